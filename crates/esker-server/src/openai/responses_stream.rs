//! The answer as it is made: events of items that follow each other, numbered.

use super::logprobs;
use super::responses_output::{
    Echo, call_item, call_status, finished, id, message_item, reasoning_item, skeleton, status, text_part,
};
use crate::error::ApiError;
use crate::generation::{Call, Event, Finish, TokenLogprob};
use crate::http::sse::{Encode, SseBuffer};
use crate::time::unix_s;
use serde_json::{Value, json};

/// Writes events.
pub(super) struct ResponseStream {
    echo: Echo,
    id: String,
    created: u64,
    sequence: u64,
    /// Items that are complete.
    output: Vec<Value>,
    open: Option<Item>,
    finish: Option<Finish>,
}

/// The item that is being written.
struct Item {
    id: String,
    kind: Kind,
    text: String,
    logprobs: Vec<TokenLogprob>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call { id: String, name: String },
}

impl ResponseStream {
    pub fn new(echo: Echo) -> ResponseStream {
        ResponseStream {
            echo,
            id: id("resp"),
            created: unix_s(),
            sequence: 0,
            output: Vec::new(),
            open: None,
            finish: None,
        }
    }

    fn send(&mut self, name: &str, fields: Value, out: &mut SseBuffer) {
        let mut event = json!({"type": name, "sequence_number": self.sequence});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        out.event(name, &event);
    }

    /// Index of the item that is being written.
    fn index(&self) -> usize {
        self.output.len()
    }

    /// Makes sure that an item of this kind is open.
    fn item(&mut self, kind: Kind, out: &mut SseBuffer) {
        if self.open.as_ref().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.close("completed", out);
        let index = self.index();
        let item_id = id(match kind {
            Kind::Reasoning => "rs",
            Kind::Message => "msg",
            Kind::Call { .. } => "fc",
        });
        let item = match &kind {
            Kind::Reasoning => {
                json!({"id": item_id, "type": "reasoning", "summary": [], "content": [], "status": "in_progress"})
            }
            Kind::Message => {
                json!({"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []})
            }
            Kind::Call { id, name } => {
                let call =
                    Call { id: id.clone(), name: name.clone(), arguments: String::new(), complete: false };
                call_item(&item_id, "in_progress", &call)
            }
        };
        self.send("response.output_item.added", json!({"output_index": index, "item": item}), out);
        let part = match kind {
            Kind::Reasoning => Some(json!({"type": "reasoning_text", "text": ""})),
            Kind::Message => Some(text_part("", &[], &self.echo)),
            Kind::Call { .. } => None,
        };
        if let Some(part) = part {
            let fields = json!({"item_id": item_id, "output_index": index, "content_index": 0, "part": part});
            self.send("response.content_part.added", fields, out);
        }
        self.open = Some(Item { id: item_id, kind, text: String::new(), logprobs: Vec::new() });
    }

    /// Ends the open item, if any.
    fn close(&mut self, status: &str, out: &mut SseBuffer) {
        let Some(Item { id, kind, text, logprobs }) = self.open.take() else { return };
        let index = self.index();
        let item = match kind {
            Kind::Reasoning => {
                let at = json!({"item_id": id, "output_index": index, "content_index": 0});
                let part = json!({"type": "reasoning_text", "text": text});
                self.send("response.reasoning_text.done", with(&at, json!({"text": text})), out);
                self.send("response.content_part.done", with(&at, json!({"part": part})), out);
                reasoning_item(&id, &text, &self.echo)
            }
            Kind::Message => {
                let at = json!({"item_id": id, "output_index": index, "content_index": 0});
                let part = text_part(&text, &logprobs, &self.echo);
                let done = json!({"text": text, "logprobs": part["logprobs"]});
                self.send("response.output_text.done", with(&at, done), out);
                self.send("response.content_part.done", with(&at, json!({"part": part})), out);
                message_item(&id, status, &text, &logprobs, &self.echo)
            }
            Kind::Call { id: call_id, name } => {
                let fields = json!({"item_id": id, "output_index": index, "name": name, "arguments": text});
                self.send("response.function_call_arguments.done", fields, out);
                let call = Call { id: call_id, name, arguments: text, complete: status == "completed" };
                call_item(&id, status, &call)
            }
        };
        self.send("response.output_item.done", json!({"output_index": index, "item": item}), out);
        self.output.push(item);
    }

    /// More text of the open item.
    fn delta(&mut self, text: &str, logprobs: Vec<TokenLogprob>, out: &mut SseBuffer) {
        let index = self.index();
        let Some(item) = &mut self.open else { return };
        item.text.push_str(text);
        let mut fields = json!({"item_id": item.id, "output_index": index, "delta": text});
        let name = match item.kind {
            Kind::Reasoning => {
                fields["content_index"] = 0.into();
                "response.reasoning_text.delta"
            }
            Kind::Message => {
                fields["content_index"] = 0.into();
                fields["logprobs"] =
                    if self.echo.logprobs { logprobs::content(&logprobs) } else { json!([]) };
                "response.output_text.delta"
            }
            Kind::Call { .. } => "response.function_call_arguments.delta",
        };
        item.logprobs.extend(logprobs);
        self.send(name, fields, out);
    }
}

impl Encode for ResponseStream {
    fn start(&mut self, out: &mut SseBuffer) {
        for name in ["response.created", "response.in_progress"] {
            let response = skeleton(&self.id, self.created, &self.echo);
            self.send(name, json!({"response": response}), out);
        }
    }

    fn event(&mut self, _choice: usize, event: Event, out: &mut SseBuffer) {
        match event {
            Event::Failed(_) => {}
            Event::Reasoning(text) => {
                self.item(Kind::Reasoning, out);
                self.delta(&text, Vec::new(), out);
            }
            Event::Text { text, logprobs } => {
                self.item(Kind::Message, out);
                self.delta(&text, logprobs, out);
            }
            Event::CallStart { id, name, .. } => self.item(Kind::Call { id, name }, out),
            Event::CallArguments { delta, .. } => self.delta(&delta, Vec::new(), out),
            Event::CallEnd { complete } => self.close(call_status(complete), out),
            Event::Finished(finish) => {
                if self.output.is_empty() && self.open.is_none() {
                    self.item(Kind::Message, out);
                }
                self.close(status(&finish.reason).0, out);
                self.finish = Some(*finish);
            }
        }
    }

    fn end(&mut self, out: &mut SseBuffer) {
        let Some(finish) = self.finish.take() else { return };
        let name = match status(&finish.reason).0 {
            "completed" => "response.completed",
            _ => "response.incomplete",
        };
        let output = std::mem::take(&mut self.output);
        let response = finished(skeleton(&self.id, self.created, &self.echo), output, &finish);
        self.send(name, json!({"response": response}), out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut SseBuffer) {
        let mut response = skeleton(&self.id, self.created, &self.echo);
        response["status"] = "failed".into();
        response["error"] = json!({"code": "server_error", "message": error.message});
        response["output"] = std::mem::take(&mut self.output).into();
        self.send("response.failed", json!({"response": response}), out);
    }
}

/// The fields of both objects.
fn with(a: &Value, b: Value) -> Value {
    let mut out = a.clone();
    if let (Some(out), Value::Object(b)) = (out.as_object_mut(), b) {
        out.extend(b);
    }
    out
}
