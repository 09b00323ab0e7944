//! `POST /v1/chat/completions`: the answer as it is made.

use super::chat_response::{completion_id, extension, fingerprint, finish_reason, usage};
use super::logprobs;
use crate::error::{ApiError, ErrorShape};
use crate::generation::{Event, TokenLogprob, Usage};
use crate::http::sse::{Encode, SseBuffer};
use crate::time::unix_s;
use serde_json::{Value, json};

/// Writes chunks.
pub(super) struct ChatStream {
    id: String,
    created: u64,
    model: String,
    logprobs: bool,
    include_usage: bool,
    usages: Vec<Usage>,
}

impl ChatStream {
    pub fn new(
        model: String,
        choices: usize,
        prompt_tokens: usize,
        logprobs: bool,
        include_usage: bool,
    ) -> ChatStream {
        let usage = Usage { prompt_tokens, ..Usage::default() };
        ChatStream {
            id: completion_id("chatcmpl"),
            created: unix_s(),
            model,
            logprobs,
            include_usage,
            usages: vec![usage; choices],
        }
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": fingerprint(),
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&self, index: usize, delta: Value, logprobs: &[TokenLogprob], out: &mut SseBuffer) {
        let logprobs = (self.logprobs && !logprobs.is_empty())
            .then(|| json!({"content": logprobs::content(logprobs), "refusal": null}));
        out.data(&self.chunk(json!([
            {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null}
        ])));
    }
}

impl Encode for ChatStream {
    fn start(&mut self, out: &mut SseBuffer) {
        for index in 0..self.usages.len() {
            self.delta(index, json!({"role": "assistant", "content": "", "refusal": null}), &[], out);
        }
    }

    fn event(&mut self, choice: usize, event: Event, out: &mut SseBuffer) {
        match event {
            Event::CallEnd { .. } | Event::Failed(_) => {}
            Event::Reasoning(text) => self.delta(choice, json!({"reasoning_content": text}), &[], out),
            Event::Text { text, logprobs } => self.delta(choice, json!({"content": text}), &logprobs, out),
            Event::CallStart { index, id, name } => {
                let function = json!({"name": name, "arguments": ""});
                let call = json!({"index": index, "id": id, "type": "function", "function": function});
                self.delta(choice, json!({"tool_calls": [call]}), &[], out);
            }
            Event::CallArguments { index, delta } => {
                let call = json!({"index": index, "function": {"arguments": delta}});
                self.delta(choice, json!({"tool_calls": [call]}), &[], out);
            }
            Event::Finished(finish) => {
                self.usages[choice] = finish.usage;
                out.data(&self.chunk(json!([{
                    "index": choice,
                    "delta": {},
                    "logprobs": null,
                    "finish_reason": finish_reason(&finish.reason),
                    "esker": extension(&finish),
                }])));
            }
        }
    }

    fn end(&mut self, out: &mut SseBuffer) {
        if self.include_usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = usage(self.usages.iter().copied());
            out.data(&chunk);
        }
        out.done();
    }

    fn failed(&mut self, error: &ApiError, out: &mut SseBuffer) {
        out.data(&error.body(ErrorShape::OpenAi));
        out.done();
    }
}
