//! `messages` of a chat completion.

use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{Message, Role, ToolCall};
use serde_json::{Value, json};

/// Reads the list of messages.
pub(super) fn messages(list: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::value("messages", "empty", "at least one message"));
    }
    list.into_iter()
        .enumerate()
        .map(|(i, value)| message(Object::new(value, format!("messages[{i}]"))?))
        .collect()
}

fn message(mut o: Object) -> Result<Message, ApiError> {
    let role = o.need_string("role")?;
    let role = match &*role {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => {
            let expected = "`system`, `developer`, `user`, `assistant` or `tool`";
            return Err(ApiError::value(o.at("role"), format!("`{other:.40}`"), expected));
        }
    };
    let content = o.take("content");
    let mut message = Message::new(role, String::new());
    message.name = o.string("name")?;
    match role {
        Role::Assistant => {
            message.reasoning = o.string("reasoning_content")?.filter(|text| !text.is_empty());
            o.only("audio", &[], "audio is not supported")?;
            o.only("function_call", &[], "it is deprecated, use `tool_calls`")?;
            // Sent back by clients as they got them.
            o.ignore(&["annotations"]);
            let refusal = o.string("refusal")?;
            if let Some(calls) = o.array("tool_calls", 1024)? {
                let path = o.at("tool_calls");
                let call = |(i, value)| tool_call(Object::new(value, format!("{path}[{i}]"))?);
                message.tool_calls = calls.into_iter().enumerate().map(call).collect::<Result<_, _>>()?;
            }
            message.content = match (content, refusal) {
                (Some(content), _) => text(content, &o.at("content"))?,
                (None, Some(refusal)) => refusal,
                (None, None) if !message.tool_calls.is_empty() => String::new(),
                (None, None) => return Err(ApiError::missing(o.at("content"), "a text or `tool_calls`")),
            };
        }
        Role::Tool => {
            message.tool_call_id = Some(o.need_string("tool_call_id")?);
            message.content = need_text(content, &o)?;
        }
        Role::System | Role::User => message.content = need_text(content, &o)?,
    }
    o.finish()?;
    Ok(message)
}

fn need_text(content: Option<Value>, o: &Object) -> Result<String, ApiError> {
    match content {
        Some(content) => text(content, &o.at("content")),
        None => Err(ApiError::missing(o.at("content"), "a string or a list of parts")),
    }
}

/// A text, or parts that are texts.
fn text(content: Value, path: &str) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(ApiError::value(path, shown(&other), "a string or a list of parts")),
    };
    let mut out = String::new();
    for (i, part) in parts.into_iter().enumerate() {
        let mut part = Object::new(part, format!("{path}[{i}]"))?;
        let kind = part.need_string("type")?;
        match &*kind {
            "text" => out.push_str(&part.need_string("text")?),
            "refusal" => out.push_str(&part.need_string("refusal")?),
            "image_url" | "input_image" => {
                return Err(ApiError::unsupported(part.path(), "images cannot be read, only text")
                    .code("images_unsupported"));
            }
            "input_audio" | "file" => {
                return Err(ApiError::unsupported(
                    part.path(),
                    format_args!("parts of type `{kind}` cannot be read, only text"),
                ));
            }
            other => return Err(ApiError::value(part.at("type"), format!("`{other:.40}`"), "`text`")),
        }
        part.finish()?;
    }
    Ok(out)
}

fn tool_call(mut o: Object) -> Result<ToolCall, ApiError> {
    let id = o.need_string("id")?;
    o.only("type", &[json!("function")], "only functions can be called")?;
    // Streaming clients keep the number of a call.
    o.ignore(&["index"]);
    let Some(mut function) = o.object("function")? else {
        return Err(ApiError::missing(o.at("function"), "an object"));
    };
    let name = function.need_string("name")?;
    let arguments = function.need_string("arguments")?;
    function.finish()?;
    o.finish()?;
    Ok(ToolCall { id, name, arguments: arguments_value(arguments) })
}

/// Arguments as JSON; what a model wrote that is none stays text, as it was.
pub(super) fn arguments_value(text: String) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}
