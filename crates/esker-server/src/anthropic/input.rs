//! `system` and `messages` of a request.

use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{Message, Role, ToolCall};
use serde_json::Value;

/// The system prompt: a text or blocks of text.
pub(super) fn system(value: Option<Value>) -> Result<Option<String>, ApiError> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(Value::Array(blocks)) => {
            let texts = blocks.into_iter().enumerate().map(|(i, value)| {
                let mut o = Object::new(value, format!("system[{i}]"))?;
                let kind = o.need_string("type")?;
                if kind != "text" {
                    return Err(ApiError::value(o.at("type"), format!("`{kind:.40}`"), "`text`"));
                }
                text_block(o)
            });
            let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
            Ok(Some(texts.join("\n\n")).filter(|text| !text.is_empty()))
        }
        Some(other) => Err(ApiError::value("system", shown(&other), "a string or a list of text blocks")),
    }
}

/// Reads the list of messages. A message with results of tools becomes one message for each of them.
pub(super) fn messages(list: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::value("messages", "empty", "at least one message"));
    }
    let mut out = Vec::with_capacity(list.len());
    for (i, value) in list.into_iter().enumerate() {
        let mut o = Object::new(value, format!("messages[{i}]"))?;
        let role = o.need_string("role")?;
        let content = o.need("content", "a string or a list of blocks")?;
        let path = o.at("content");
        match &*role {
            "user" => user(content, &path, &mut out)?,
            "assistant" => out.push(assistant(content, &path)?),
            "system" => out.push(Message::new(Role::System, system(Some(content))?.unwrap_or_default())),
            other => {
                return Err(ApiError::value(o.at("role"), format!("`{other:.40}`"), "`user` or `assistant`"));
            }
        }
        o.finish()?;
    }
    if out.last().is_some_and(|m| m.role == Role::Assistant) {
        let why = "the last message is the assistant's: an answer cannot be begun for the model";
        return Err(ApiError::unsupported("messages", why));
    }
    Ok(out)
}

/// The blocks of a message, each with its type.
fn blocks(content: Value, path: &str) -> Result<Vec<(String, Object)>, ApiError> {
    let Value::Array(blocks) = content else {
        return Err(ApiError::value(path, shown(&content), "a string or a list of blocks"));
    };
    blocks
        .into_iter()
        .enumerate()
        .map(|(i, value)| {
            let mut o = Object::new(value, format!("{path}[{i}]"))?;
            Ok((o.need_string("type")?, o))
        })
        .collect()
}

fn user(content: Value, path: &str, out: &mut Vec<Message>) -> Result<(), ApiError> {
    if let Value::String(text) = content {
        out.push(Message::new(Role::User, text));
        return Ok(());
    }
    let mut text = String::new();
    let mut said = false;
    for (kind, block) in blocks(content, path)? {
        match &*kind {
            "text" => {
                said = true;
                text.push_str(&text_block(block)?);
            }
            // Results come before the text that the user adds to them.
            "tool_result" => out.push(tool_result(block)?),
            other => return Err(unreadable(&block, other)),
        }
    }
    if said || out.last().is_none_or(|m| m.role != Role::Tool) {
        out.push(Message::new(Role::User, text));
    }
    Ok(())
}

fn assistant(content: Value, path: &str) -> Result<Message, ApiError> {
    let mut message = Message::new(Role::Assistant, "");
    if let Value::String(text) = content {
        message.content = text;
        return Ok(message);
    }
    for (kind, mut block) in blocks(content, path)? {
        match &*kind {
            "text" => message.content.push_str(&text_block(block)?),
            "thinking" => {
                let thinking = block.need_string("thinking")?;
                // Ours says nothing that could be checked.
                block.ignore(&["signature"]);
                block.finish()?;
                message.reasoning.get_or_insert_default().push_str(&thinking);
            }
            "redacted_thinking" => {
                return Err(ApiError::unsupported(block.path(), "thinking that is encrypted cannot be read"));
            }
            "tool_use" => {
                let id = block.need_string("id")?;
                let name = block.need_string("name")?;
                let arguments = block.need("input", "an object")?;
                block.ignore(&["cache_control", "caller"]);
                block.finish()?;
                message.tool_calls.push(ToolCall { id, name, arguments });
            }
            other => return Err(unreadable(&block, other)),
        }
    }
    Ok(message)
}

fn text_block(mut o: Object) -> Result<String, ApiError> {
    let text = o.need_string("text")?;
    o.ignore(&["cache_control", "citations"]);
    o.finish()?;
    Ok(text)
}

fn tool_result(mut o: Object) -> Result<Message, ApiError> {
    let id = o.need_string("tool_use_id")?;
    let failed = o.bool("is_error")?.unwrap_or(false);
    let mut text = String::new();
    match o.take("content") {
        None => {}
        Some(Value::String(content)) => text = content,
        Some(content) => {
            for (kind, block) in blocks(content, &o.at("content"))? {
                match &*kind {
                    "text" => text.push_str(&text_block(block)?),
                    other => return Err(unreadable(&block, other)),
                }
            }
        }
    }
    o.ignore(&["cache_control"]);
    o.finish()?;
    if failed {
        text = format!("Error: {text}");
    }
    let mut message = Message::new(Role::Tool, text);
    message.tool_call_id = Some(id);
    Ok(message)
}

fn unreadable(block: &Object, kind: &str) -> ApiError {
    let path = block.path();
    match kind {
        "image" => ApiError::unsupported(path, "images cannot be read, only text").code("images_unsupported"),
        "document" | "search_result" | "container_upload" => {
            ApiError::unsupported(path, format_args!("blocks of type `{kind}` cannot be read, only text"))
        }
        other => ApiError::unsupported(path, format_args!("blocks of type `{other:.40}` are not known here")),
    }
}
