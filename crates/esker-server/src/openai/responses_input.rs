//! `input` of a response: items to messages.

use super::chat_messages::arguments_value;
use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{Message, Role, ToolCall};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Reads the input: a text, or items of which reasoning, text and calls of one turn become one message.
pub(super) fn input(value: Value, most: usize) -> Result<Vec<Message>, ApiError> {
    let items = match value {
        Value::String(text) => return Ok(vec![Message::new(Role::User, text)]),
        Value::Array(items) if items.is_empty() => {
            return Err(ApiError::value("input", "empty", "at least one item"));
        }
        Value::Array(items) if items.len() <= most => items,
        other => {
            return Err(ApiError::value(
                "input",
                shown(&other),
                &format!("a string or a list of at most {most} items"),
            ));
        }
    };
    let mut out: Vec<Message> = Vec::new();
    for (i, item) in items.into_iter().enumerate() {
        let mut o = Object::new(item, format!("input[{i}]"))?;
        // Messages may come without a type.
        let kind = o.string("type")?.unwrap_or_else(|| "message".to_owned());
        // Sent back by clients as they got them.
        o.ignore(&["id", "status"]);
        match &*kind {
            "message" => message(&mut o, &mut out)?,
            "reasoning" => {
                let text = reasoning(&mut o)?;
                let turn = turn(&mut out);
                turn.reasoning.get_or_insert_default().push_str(&text);
            }
            "function_call" => {
                let id = o.need_string("call_id")?;
                let name = o.need_string("name")?;
                let arguments = arguments_value(o.need_string("arguments")?);
                o.ignore(&["namespace"]);
                turn(&mut out).tool_calls.push(ToolCall { id, name, arguments });
            }
            "function_call_output" => {
                let id = o.need_string("call_id")?;
                let output = o.need("output", "a string or a list of parts")?;
                let mut message = Message::new(Role::Tool, content(output, &o.at("output"))?);
                message.tool_call_id = Some(id);
                out.push(message);
            }
            other => {
                let why = format!("items of type `{other:.60}` are not known here");
                return Err(ApiError::unsupported(o.path(), why));
            }
        }
        o.finish()?;
    }
    Ok(out)
}

/// The message of the assistant's turn that is going on, or a new one.
fn turn(out: &mut Vec<Message>) -> &mut Message {
    if out.last().is_none_or(|m| m.role != Role::Assistant) {
        out.push(Message::new(Role::Assistant, ""));
    }
    out.last_mut().expect("pushed above")
}

fn message(o: &mut Object, out: &mut Vec<Message>) -> Result<(), ApiError> {
    let role = o.need_string("role")?;
    let content_value = o.need("content", "a string or a list of parts")?;
    let text = content(content_value, &o.at("content"))?;
    o.ignore(&["phase"]);
    match &*role {
        "user" => out.push(Message::new(Role::User, text)),
        "system" | "developer" => out.push(Message::new(Role::System, text)),
        "assistant" => {
            let goes_on = out.last().is_some_and(|m| {
                m.role == Role::Assistant && m.content.is_empty() && m.tool_calls.is_empty()
            });
            if !goes_on {
                out.push(Message::new(Role::Assistant, ""));
            }
            turn(out).content = text;
        }
        other => {
            let expected = "`user`, `assistant`, `system` or `developer`";
            return Err(ApiError::value(o.at("role"), format!("`{other:.40}`"), expected));
        }
    }
    Ok(())
}

fn content(value: Value, path: &str) -> Result<String, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(ApiError::value(path, shown(&other), "a string or a list of parts")),
    };
    let mut out = String::new();
    for (i, part) in parts.into_iter().enumerate() {
        let mut part = Object::new(part, format!("{path}[{i}]"))?;
        let kind = part.need_string("type")?;
        match &*kind {
            "input_text" | "output_text" | "text" => out.push_str(&part.need_string("text")?),
            "refusal" => out.push_str(&part.need_string("refusal")?),
            "input_image" => {
                let error = ApiError::unsupported(part.path(), "images cannot be read, only text");
                return Err(error.code("images_unsupported"));
            }
            other => {
                let why = format!("parts of type `{other:.40}` cannot be read, only text");
                return Err(ApiError::unsupported(part.path(), why));
            }
        }
        part.ignore(&["annotations", "logprobs"]);
        part.finish()?;
    }
    Ok(out)
}

/// The text of a reasoning item: from its content, from what we put into its encrypted content, or from its summary.
fn reasoning(o: &mut Object) -> Result<String, ApiError> {
    let mut read = |name: &'static str| -> Result<String, ApiError> {
        let mut text = String::new();
        let path = o.at(name);
        for (i, part) in o.array(name, 1024)?.unwrap_or_default().into_iter().enumerate() {
            let mut part = Object::new(part, format!("{path}[{i}]"))?;
            part.only("type", &[json!("reasoning_text"), json!("summary_text")], "only text can be read")?;
            text.push_str(&part.need_string("text")?);
            part.finish()?;
        }
        Ok(text)
    };
    let (content, summary) = (read("content")?, read("summary")?);
    let hidden = match o.string("encrypted_content")? {
        Some(hidden) => {
            let bytes = STANDARD.decode(hidden).ok();
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            text.ok_or_else(|| {
                ApiError::value(o.at("encrypted_content"), "of another service", "what this one gave")
            })?
        }
        None => String::new(),
    };
    Ok([content, hidden, summary].into_iter().find(|text| !text.is_empty()).unwrap_or_default())
}
