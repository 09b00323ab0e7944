//! The answer as a whole: the response object and its items.

use super::chat_response::extension;
use super::logprobs;
use crate::generation::{Answer, Call, Finish, FinishReason, TokenLogprob, Usage, random_seed};
use crate::time::unix_s;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What a response repeats of its request.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    pub model: String,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<usize>,
    pub temperature: f32,
    pub top_p: f32,
    pub top_logprobs: usize,
    pub logprobs: bool,
    pub encrypted_reasoning: bool,
    pub tools: Vec<Value>,
    pub tool_choice: Value,
    pub parallel: bool,
    pub text: Value,
    pub effort: Option<String>,
}

/// An id of an item or a response.
pub(super) fn id(prefix: &str) -> String {
    format!("{prefix}_{:08x}{:08x}{:08x}{:08x}", random_seed(), random_seed(), random_seed(), random_seed())
}

/// The response object.
pub(super) fn response(answer: &Answer, echo: &Echo) -> Value {
    let mut output = Vec::new();
    if !answer.reasoning.is_empty() {
        output.push(reasoning_item(&id("rs"), &answer.reasoning, echo));
    }
    let status = status(&answer.finish.reason).0;
    if !answer.text.is_empty() || answer.calls.is_empty() {
        output.push(message_item(&id("msg"), status, &answer.text, &answer.logprobs, echo));
    }
    output.extend(answer.calls.iter().map(|call| call_item(&id("fc"), call_status(call.complete), call)));
    finished(skeleton(&id("resp"), unix_s(), echo), output, &answer.finish)
}

/// A response that has not begun to be answered.
pub(super) fn skeleton(id: &str, created: u64, echo: &Echo) -> Value {
    json!({
        "id": id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": echo.instructions,
        "max_output_tokens": echo.max_output_tokens,
        "model": echo.model,
        "output": [],
        "parallel_tool_calls": echo.parallel,
        "previous_response_id": null,
        "reasoning": {"effort": echo.effort, "summary": null},
        "service_tier": "default",
        "store": false,
        "temperature": echo.temperature,
        "text": echo.text,
        "tool_choice": echo.tool_choice,
        "tools": echo.tools,
        "top_logprobs": echo.top_logprobs,
        "top_p": echo.top_p,
        "truncation": "disabled",
        "usage": null,
        "metadata": {},
    })
}

/// A response with its items and its end.
pub(super) fn finished(mut response: Value, output: Vec<Value>, finish: &Finish) -> Value {
    let (word, reason) = status(&finish.reason);
    response["status"] = word.into();
    response["incomplete_details"] = reason.map_or(Value::Null, |reason| json!({"reason": reason}));
    response["output"] = output.into();
    response["usage"] = usage(&finish.usage);
    response["esker"] = extension(finish);
    response
}

/// Status of the response, and why it is not complete.
pub(super) fn status(reason: &FinishReason) -> (&'static str, Option<&'static str>) {
    match reason {
        FinishReason::EndOfText | FinishReason::Stop(_) | FinishReason::ToolCalls => ("completed", None),
        FinishReason::MaxTokens | FinishReason::ContextFull => ("incomplete", Some("max_output_tokens")),
    }
}

/// An item of reasoning. What is called encrypted is only wrapped: it comes back as it was, and who holds it may read it.
pub(super) fn reasoning_item(id: &str, text: &str, echo: &Echo) -> Value {
    let mut item = json!({
        "id": id,
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        "status": "completed",
    });
    if echo.encrypted_reasoning {
        item["encrypted_content"] = STANDARD.encode(text).into();
    }
    item
}

/// An item of text.
pub(super) fn message_item(
    id: &str,
    status: &str,
    text: &str,
    logprobs: &[TokenLogprob],
    echo: &Echo,
) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [text_part(text, logprobs, echo)],
    })
}

/// A part of an item of text.
pub(super) fn text_part(text: &str, logprobs: &[TokenLogprob], echo: &Echo) -> Value {
    let logprobs = if echo.logprobs { logprobs::content(logprobs) } else { json!([]) };
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

/// Status of a call that has ended.
pub(super) fn call_status(complete: bool) -> &'static str {
    if complete { "completed" } else { "incomplete" }
}

/// An item of a call.
pub(super) fn call_item(id: &str, status: &str, call: &Call) -> Value {
    json!({
        "id": id,
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": status,
    })
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}
