//! The answer as it is made: events of blocks that follow each other.

use super::output::{call_id, message_id, signature, stop_reason, usage};
use crate::error::{ApiError, ErrorShape};
use crate::generation::{Event, Usage};
use crate::http::sse::{Encode, SseBuffer};
use crate::openai::extension;
use serde_json::{Value, json};

/// Writes the events of a message.
pub(super) struct MessageStream {
    model: String,
    prompt_tokens: usize,
    /// Blocks that have begun.
    blocks: usize,
    open: Option<Block>,
    thinking: String,
}

/// A block that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

impl MessageStream {
    pub fn new(model: String, prompt_tokens: usize) -> MessageStream {
        MessageStream { model, prompt_tokens, blocks: 0, open: None, thinking: String::new() }
    }

    /// Makes sure that a block of this kind is open.
    fn block(&mut self, kind: Block, content: &Value, out: &mut SseBuffer) {
        if self.open == Some(kind) && kind != Block::ToolUse {
            return;
        }
        self.close(out);
        let start = json!({"type": "content_block_start", "index": self.blocks, "content_block": content});
        out.event("content_block_start", &start);
        self.blocks += 1;
        self.open = Some(kind);
    }

    fn delta(&self, delta: &Value, out: &mut SseBuffer) {
        let index = self.blocks.saturating_sub(1);
        out.event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": index, "delta": delta}),
        );
    }

    fn close(&mut self, out: &mut SseBuffer) {
        let Some(kind) = self.open.take() else { return };
        if kind == Block::Thinking {
            let signature = signature(&std::mem::take(&mut self.thinking));
            self.delta(&json!({"type": "signature_delta", "signature": signature}), out);
        }
        let index = self.blocks.saturating_sub(1);
        out.event("content_block_stop", &json!({"type": "content_block_stop", "index": index}));
    }
}

impl Encode for MessageStream {
    fn start(&mut self, out: &mut SseBuffer) {
        // How much of the prompt is cached is not known yet: the last event has it.
        let so_far = Usage { prompt_tokens: self.prompt_tokens, ..Usage::default() };
        let message = json!({
            "id": message_id(),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage(&so_far),
        });
        out.event("message_start", &json!({"type": "message_start", "message": message}));
        self.keep_alive(out);
    }

    fn event(&mut self, _choice: usize, event: Event, out: &mut SseBuffer) {
        match event {
            Event::Failed(_) => {}
            Event::Reasoning(text) => {
                self.block(
                    Block::Thinking,
                    &json!({"type": "thinking", "thinking": "", "signature": ""}),
                    out,
                );
                self.delta(&json!({"type": "thinking_delta", "thinking": text}), out);
                self.thinking.push_str(&text);
            }
            Event::Text { text, .. } => {
                if !text.is_empty() {
                    self.block(Block::Text, &json!({"type": "text", "text": "", "citations": null}), out);
                    self.delta(&json!({"type": "text_delta", "text": text}), out);
                }
            }
            Event::CallStart { id, name, .. } => {
                let content = json!({"type": "tool_use", "id": call_id(&id), "name": name, "input": {}});
                self.block(Block::ToolUse, &content, out);
            }
            Event::CallArguments { delta, .. } => {
                self.delta(&json!({"type": "input_json_delta", "partial_json": delta}), out);
            }
            Event::CallEnd { .. } => self.close(out),
            Event::Finished(finish) => {
                if self.blocks == 0 {
                    self.block(Block::Text, &json!({"type": "text", "text": "", "citations": null}), out);
                }
                self.close(out);
                let (reason, sequence) = stop_reason(&finish.reason);
                out.event(
                    "message_delta",
                    &json!({
                        "type": "message_delta",
                        "delta": {"stop_reason": reason, "stop_sequence": sequence},
                        "usage": usage(&finish.usage),
                        "esker": extension(&finish),
                    }),
                );
            }
        }
    }

    fn end(&mut self, out: &mut SseBuffer) {
        out.event("message_stop", &json!({"type": "message_stop"}));
    }

    fn failed(&mut self, error: &ApiError, out: &mut SseBuffer) {
        out.event("error", &error.body(ErrorShape::Anthropic));
    }

    fn keep_alive(&mut self, out: &mut SseBuffer) {
        out.event("ping", &json!({"type": "ping"}));
    }
}
