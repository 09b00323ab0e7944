//! A streamed answer in chunks: what those of chats and of completions have in common.

use super::chat_response::{completion_id, fingerprint, usage};
use crate::error::{ApiError, ErrorShape};
use crate::generation::Usage;
use crate::http::sse::SseBuffer;
use crate::time::unix_s;
use serde_json::{Value, json};

/// Writes chunks, which differ in their choices only.
pub(super) struct Chunks {
    object: &'static str,
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    /// Of each choice.
    usages: Vec<Usage>,
}

impl Chunks {
    /// For an answer with `choices` choices, whose chunks say that they are an `object`.
    pub fn new(
        object: &'static str,
        id_prefix: &str,
        model: String,
        (choices, prompt_tokens): (usize, usize),
        include_usage: bool,
    ) -> Chunks {
        let usage = Usage { prompt_tokens, ..Usage::default() };
        let (id, created) = (completion_id(id_prefix), unix_s());
        Chunks { object, id, created, model, include_usage, usages: vec![usage; choices] }
    }

    /// Number of choices.
    pub fn choices(&self) -> usize {
        self.usages.len()
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": self.object,
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

    /// A chunk of one choice.
    pub fn write(&self, choice: Value, out: &mut SseBuffer) {
        out.data(&self.chunk(json!([choice])));
    }

    /// A choice has come to its end.
    pub fn finished(&mut self, choice: usize, usage: Usage) {
        self.usages[choice] = usage;
    }

    /// The end of the answer.
    pub fn end(&self, out: &mut SseBuffer) {
        if self.include_usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = usage(self.usages.iter().copied());
            out.data(&chunk);
        }
        out.done();
    }

    /// The end of an answer that could not go on.
    pub fn failed(error: &ApiError, out: &mut SseBuffer) {
        out.data(&error.body(ErrorShape::OpenAi));
        out.done();
    }
}
