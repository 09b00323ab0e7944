//! Messages of a conversation, whichever API they came through, and their form for chat templates.

use serde_json::{Map, Value, json};

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// One message. Only the fields that its role has are set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub role: Role,
    pub content: String,
    /// What the assistant thought before its answer.
    pub reasoning: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's result: the call that it answers.
    pub tool_call_id: Option<String>,
    /// Name of the participant, or of the tool.
    pub name: Option<String>,
}

/// A call that the assistant made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: Value,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message {
            role,
            content: content.into(),
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// As templates know it: the message of the OpenAI API, but with arguments as objects, as transformers has them.
    pub fn for_template(&self) -> Value {
        let mut out = Map::new();
        let role = match self.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        out.insert("role".into(), role.into());
        out.insert("content".into(), self.content.as_str().into());
        if let Some(reasoning) = &self.reasoning {
            out.insert("reasoning_content".into(), reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| {
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                })
            });
            out.insert("tool_calls".into(), calls.collect());
        }
        for (key, value) in [("tool_call_id", &self.tool_call_id), ("name", &self.name)] {
            if let Some(value) = value {
                out.insert(key.into(), value.as_str().into());
            }
        }
        Value::Object(out)
    }
}
