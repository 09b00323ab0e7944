//! `POST /v1/chat/completions`: the answer as a whole.

use super::logprobs;
use crate::generation::{Answer, Finish, FinishReason, Usage, random_seed};
use crate::time::unix_s;
use serde_json::{Map, Value, json};

/// The response object.
pub(super) fn response(answers: &[Answer], model: &str, logprobs: bool) -> Value {
    let choices = answers.iter().enumerate().map(|(index, answer)| choice(index, answer, logprobs));
    json!({
        "id": completion_id("chatcmpl"),
        "object": "chat.completion",
        "created": unix_s(),
        "model": model,
        "choices": choices.collect::<Vec<_>>(),
        "usage": usage(answers.iter().map(|a| a.finish.usage)),
        "system_fingerprint": fingerprint(),
    })
}

fn choice(index: usize, answer: &Answer, logprobs: bool) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let nothing = answer.text.is_empty() && !answer.calls.is_empty();
    message.insert("content".into(), if nothing { Value::Null } else { answer.text.as_str().into() });
    message.insert("refusal".into(), Value::Null);
    if !answer.reasoning.is_empty() {
        message.insert("reasoning_content".into(), answer.reasoning.as_str().into());
    }
    if !answer.calls.is_empty() {
        let call = |c: &crate::generation::Call| json!({"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}});
        message.insert("tool_calls".into(), answer.calls.iter().map(call).collect());
    }
    json!({
        "index": index,
        "message": message,
        "logprobs": logprobs.then(|| json!({"content": logprobs::content(&answer.logprobs), "refusal": null})),
        "finish_reason": finish_reason(&answer.finish.reason),
        "esker": extension(&answer.finish),
    })
}

/// Why a choice ended, in the words of the API.
pub(super) fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText | FinishReason::Stop(_) => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::MaxTokens | FinishReason::ContextFull => "length",
    }
}

/// What the API has no field for: what was done about the reasoning, and times.
pub(crate) fn extension(finish: &Finish) -> Value {
    let s = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    let timing = &finish.timing;
    let decoded = finish.usage.completion_tokens.saturating_sub(1);
    let rate = if timing.decode.is_zero() { 0.0 } else { decoded as f64 / timing.decode.as_secs_f64() };
    json!({
        "thinking": finish.thinking,
        "stop": match &finish.reason {
            FinishReason::Stop(text) => Some(text),
            _ => None,
        },
        "context_full": finish.reason == FinishReason::ContextFull,
        "timings": {
            "queued_s": s(timing.queued),
            "prefill_s": s(timing.prefill),
            "decode_s": s(timing.decode),
            "decode_tokens_per_s": (rate * 100.0).round() / 100.0,
        },
    })
}

/// Tokens of all choices; the prompt counts once.
pub(super) fn usage(choices: impl Iterator<Item = Usage>) -> Value {
    let mut sum = Usage::default();
    for (i, choice) in choices.enumerate() {
        if i == 0 {
            (sum.prompt_tokens, sum.cached_tokens) = (choice.prompt_tokens, choice.cached_tokens);
        }
        sum.completion_tokens += choice.completion_tokens;
        sum.reasoning_tokens += choice.reasoning_tokens;
    }
    json!({
        "prompt_tokens": sum.prompt_tokens,
        "completion_tokens": sum.completion_tokens,
        "total_tokens": sum.prompt_tokens + sum.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": sum.reasoning_tokens},
    })
}

/// An id with a prefix.
pub(super) fn completion_id(prefix: &str) -> String {
    format!("{prefix}-{:08x}{:08x}{:08x}", random_seed(), random_seed(), random_seed())
}

/// What computes the answers: the same version gives the same answers for the same seed.
pub(super) fn fingerprint() -> &'static str {
    concat!("esker-", env!("CARGO_PKG_VERSION"))
}
