//! `POST /v1/chat/completions`: the answer as it is made.

use super::chat_response::{extension, finish_reason};
use super::chunks::Chunks;
use super::logprobs;
use crate::error::ApiError;
use crate::generation::{Event, TokenLogprob};
use crate::http::sse::{Encode, SseBuffer};
use serde_json::{Value, json};

/// Writes events as chunks.
pub(super) struct ChatStream {
    chunks: Chunks,
    logprobs: bool,
}

impl ChatStream {
    pub fn new(
        model: String,
        choices: usize,
        prompt_tokens: usize,
        logprobs: bool,
        include_usage: bool,
    ) -> ChatStream {
        let sizes = (choices, prompt_tokens);
        ChatStream {
            chunks: Chunks::new("chat.completion.chunk", "chatcmpl", model, sizes, include_usage),
            logprobs,
        }
    }

    fn delta(&self, index: usize, delta: Value, logprobs: &[TokenLogprob], out: &mut SseBuffer) {
        let logprobs = (self.logprobs && !logprobs.is_empty())
            .then(|| json!({"content": logprobs::content(logprobs), "refusal": null}));
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null});
        self.chunks.write(choice, out);
    }
}

impl Encode for ChatStream {
    fn start(&mut self, out: &mut SseBuffer) {
        for index in 0..self.chunks.choices() {
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
                self.chunks.finished(choice, finish.usage);
                let ended = json!({
                    "index": choice,
                    "delta": {},
                    "logprobs": null,
                    "finish_reason": finish_reason(&finish.reason),
                    "esker": extension(&finish),
                });
                self.chunks.write(ended, out);
            }
        }
    }

    fn end(&mut self, out: &mut SseBuffer) {
        self.chunks.end(out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut SseBuffer) {
        Chunks::failed(error, out);
    }
}
