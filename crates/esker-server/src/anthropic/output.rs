//! The answer as a whole.

use crate::generation::{Answer, Call, FinishReason, Usage, random_seed};
use crate::openai::extension;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hasher};

/// The message object.
pub(super) fn message(answer: &Answer, model: &str) -> Value {
    let mut content = Vec::new();
    if !answer.reasoning.is_empty() {
        let signature = signature(&answer.reasoning);
        content.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": signature}));
    }
    if !answer.text.is_empty() || answer.calls.is_empty() {
        content.push(json!({"type": "text", "text": answer.text, "citations": null}));
    }
    content.extend(answer.calls.iter().map(call_block));
    let uses_tools = content.iter().any(|block| block["type"] == "tool_use");
    let (stop_reason, stop_sequence) = match stop_reason(&answer.finish.reason) {
        ("tool_use", _) if !uses_tools => ("end_turn", None),
        other => other,
    };
    json!({
        "id": message_id(),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage(&answer.finish.usage),
        "esker": extension(&answer.finish),
    })
}

/// A call; one whose arguments are no object, because it was cut off or the model wrote something else, is shown as the
/// text that it is: an input that the model did not give would be acted upon.
fn call_block(call: &Call) -> Value {
    let whole =
        if call.complete && call.arguments.trim().is_empty() { "{}" } else { call.arguments.as_str() };
    match serde_json::from_str::<Map<String, Value>>(whole) {
        Ok(input) => json!({"type": "tool_use", "id": call_id(&call.id), "name": call.name, "input": input}),
        Err(_) => {
            let text = format!("{}({})", call.name, call.arguments);
            json!({"type": "text", "text": text, "citations": null})
        }
    }
}

/// Why the model stopped, in the words of the API, and at which sequence.
pub(super) fn stop_reason(reason: &FinishReason) -> (&'static str, Option<&str>) {
    match reason {
        FinishReason::EndOfText => ("end_turn", None),
        FinishReason::ToolCalls => ("tool_use", None),
        FinishReason::Stop(text) => ("stop_sequence", Some(text)),
        FinishReason::MaxTokens => ("max_tokens", None),
        FinishReason::ContextFull => ("model_context_window_exceeded", None),
    }
}

/// Tokens: the API counts cached ones apart.
pub(super) fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    })
}

/// An id of a call as clients of this API know them.
pub(super) fn call_id(id: &str) -> String {
    match id.strip_prefix("call_") {
        Some(rest) => format!("toolu_{rest}"),
        None => id.to_owned(),
    }
}

pub(super) fn message_id() -> String {
    format!("msg_{:08x}{:08x}{:08x}", random_seed(), random_seed(), random_seed())
}

/// Clients send thinking back with its signature. Ours only tells texts apart; nothing depends on it.
pub(super) fn signature(thinking: &str) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(thinking.as_bytes());
    format!("{:016x}", hasher.finish())
}
