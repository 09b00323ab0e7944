//! What a template can do, found out by rendering small conversations with it, and bringing conversations into the form
//! that it takes.
//!
//! Templates agree on messages, but not on calls: some write arguments from an object, some from text; some take one
//! call a message, some only ids of a certain length.

use serde_json::{Map, Value, json};

use super::{ChatInput, ChatTemplate};

const TOOL: &str = "probe_tool";
const KEY: &str = "probe_key";
const RESULT: &str = "probe_result";
/// As long as the ids that the OpenAI API gives.
const COMMON_ID: &str = "call_0123456789abcdefABCDEF01";
/// Ids that a template wants shorter are not longer than this.
const MAX_ID: usize = 16;

/// What a template can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TemplateTraits {
    /// It writes a system message.
    pub system: bool,
    /// It writes descriptions of tools.
    pub tools: bool,
    /// It writes calls and their results.
    pub tool_calls: bool,
    /// It writes several calls in one message.
    pub parallel_calls: bool,
    /// It takes the arguments of a call as JSON text, not as an object.
    pub arguments_as_text: bool,
    /// It takes only ids of calls with this many letters and digits.
    pub call_id_len: Option<usize>,
}

impl ChatTemplate {
    /// Finds out what the template can do, by a few renders.
    pub fn traits(&self) -> TemplateTraits {
        let user = json!({ "role": "user", "content": "probe_user" });
        let system = self.shows(
            json!([{ "role": "system", "content": "probe_system" }, user]),
            None,
            &["probe_system"],
        );
        let tool = json!([{ "type": "function", "function": {
            "name": TOOL,
            "description": "probe",
            "parameters": { "type": "object", "properties": { KEY: { "type": "string", "description": "probe" } }, "required": [KEY] },
        } }]);
        let tools = self.shows(json!([user]), Some(&tool), &[TOOL]);
        let mut traits = TemplateTraits {
            system,
            tools,
            tool_calls: false,
            parallel_calls: false,
            arguments_as_text: false,
            call_id_len: None,
        };
        let ids = std::iter::once(COMMON_ID.len()).chain((1..=MAX_ID).rev());
        for (id_len, as_text) in ids.flat_map(|len| [(len, false), (len, true)]) {
            let id = &COMMON_ID[COMMON_ID.len() - id_len..];
            // What Python writes for a mapping is no JSON.
            let wrong = format!("{{'{KEY}'");
            let messages = conversation(&user, &[id], as_text);
            if self.shows(messages.clone(), Some(&tool), &[TOOL, KEY, "probe_value", RESULT])
                && !self.shows(messages, Some(&tool), &[&wrong])
            {
                traits.tool_calls = true;
                traits.arguments_as_text = as_text;
                traits.call_id_len = (id_len != COMMON_ID.len()).then_some(id_len);
                let other: String = id.chars().rev().collect();
                let second = format!("{RESULT}_1");
                let both = conversation(&user, &[id, &other], as_text);
                traits.parallel_calls = self.shows(both, Some(&tool), &[TOOL, "probe_value_1", &second]);
                break;
            }
        }
        traits
    }

    /// Whether the template takes the conversation and shows all of `texts`.
    fn shows(&self, messages: Value, tools: Option<&Value>, texts: &[&str]) -> bool {
        let input =
            ChatInput { messages, tools: tools.cloned(), add_generation_prompt: true, extra: Map::new() };
        self.render(&input).is_ok_and(|prompt| texts.iter().all(|text| prompt.contains(text)))
    }
}

/// A call for each id, and their results.
fn conversation(user: &Value, ids: &[&str], as_text: bool) -> Value {
    let suffix = |i: usize| if i == 0 { String::new() } else { format!("_{i}") };
    let calls = ids.iter().enumerate().map(|(i, id)| {
        let arguments = json!({ KEY: format!("probe_value{}", suffix(i)) });
        let arguments = if as_text { Value::from(arguments.to_string()) } else { arguments };
        json!({ "id": id, "type": "function", "function": { "name": TOOL, "arguments": arguments } })
    });
    let mut messages = vec![
        user.clone(),
        json!({ "role": "assistant", "content": "", "tool_calls": calls.collect::<Vec<_>>() }),
    ];
    messages.extend(ids.iter().enumerate().map(|(i, id)| {
        let content = format!("{RESULT}{}", suffix(i));
        json!({ "role": "tool", "tool_call_id": id, "name": TOOL, "content": content })
    }));
    Value::from(messages)
}

impl TemplateTraits {
    /// Brings messages in the form of the OpenAI API into the one that the template takes: arguments of calls as object
    /// or text, ids of the right length, one call a message.
    ///
    /// Ids are replaced by others that depend on nothing but the old one, the same in a call and in its result.
    /// Arguments that are no JSON object stay text.
    pub fn adapt(&self, messages: &mut Value) {
        let Some(list) = messages.as_array_mut() else { return };
        if !self.parallel_calls {
            one_call_a_message(list);
        }
        for message in list {
            if let Some(id) = message.get_mut("tool_call_id") {
                self.adapt_id(id);
            }
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
            for call in calls.into_iter().flatten() {
                if let Some(id) = call.get_mut("id") {
                    self.adapt_id(id);
                }
                if let Some(arguments) = call.get_mut("function").and_then(|f| f.get_mut("arguments")) {
                    self.adapt_arguments(arguments);
                }
            }
        }
    }

    fn adapt_arguments(&self, arguments: &mut Value) {
        let new = match &*arguments {
            Value::String(text) if !self.arguments_as_text => {
                let text = if text.trim().is_empty() { "{}" } else { text };
                serde_json::from_str(text).ok().filter(Value::is_object)
            }
            Value::String(_) => None,
            other => self.arguments_as_text.then(|| other.to_string().into()),
        };
        if let Some(new) = new {
            *arguments = new;
        }
    }

    fn adapt_id(&self, id: &mut Value) {
        if let (Some(len), Some(text)) = (self.call_id_len, id.as_str())
            && !(text.len() == len && text.bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            *id = short_id(text, len).into();
        }
    }
}

/// Letters and digits that depend on `id`.
fn short_id(id: &str, len: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // FNV-1a over 128 bits.
    let mut hash = id.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    (0..len)
        .map(|_| {
            let digit = DIGITS[(hash % 62) as usize];
            hash /= 62;
            char::from(digit)
        })
        .collect()
}

/// Splits messages with several calls; each call takes its result along.
fn one_call_a_message(messages: &mut Vec<Value>) {
    let mut out = Vec::with_capacity(messages.len());
    let mut rest = std::mem::take(messages).into_iter().peekable();
    while let Some(mut message) = rest.next() {
        let calls = match message.get_mut("tool_calls") {
            Some(Value::Array(calls)) if calls.len() > 1 => std::mem::take(calls),
            _ => {
                out.push(message);
                continue;
            }
        };
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|next| next.get("role").is_some_and(|role| role == "tool")) {
            results.push(result);
        }
        for call in calls {
            let mut one = message.clone();
            one["tool_calls"] = Value::from(vec![call.clone()]);
            out.push(one);
            let own =
                |result: &Value| result.get("tool_call_id").is_some_and(|id| Some(id) == call.get("id"));
            // Without ids, results come in the order of the calls.
            let at = results
                .iter()
                .position(own)
                .or_else(|| results.first().filter(|first| first.get("tool_call_id").is_none()).map(|_| 0));
            out.extend(at.map(|at| results.remove(at)));
            // What is said and thought stands before the first call only.
            message["content"] = "".into();
            if let Some(fields) = message.as_object_mut() {
                fields.remove("reasoning_content");
            }
        }
        out.append(&mut results);
    }
    *messages = out;
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TemplateTraits = TemplateTraits {
        system: true,
        tools: true,
        tool_calls: true,
        parallel_calls: true,
        arguments_as_text: false,
        call_id_len: None,
    };

    fn call(id: &str, arguments: Value) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": arguments } })
    }

    #[test]
    fn arguments_and_ids() {
        let adapt = |traits: TemplateTraits, arguments: Value| {
            let mut messages = json!([
                { "role": "assistant", "content": null, "tool_calls": [call("call_1", arguments)] },
                { "role": "tool", "tool_call_id": "call_1", "content": "x" },
            ]);
            traits.adapt(&mut messages);
            messages
        };
        let of = |messages: &Value| messages[0]["tool_calls"][0]["function"]["arguments"].clone();
        assert_eq!(of(&adapt(PLAIN, json!("{\"a\": 1}"))), json!({ "a": 1 }));
        assert_eq!(of(&adapt(PLAIN, json!("{\"a\": "))), json!("{\"a\": "));
        assert_eq!(of(&adapt(PLAIN, json!(""))), json!({}));
        let text = TemplateTraits { arguments_as_text: true, ..PLAIN };
        assert_eq!(of(&adapt(text, json!({ "a": 1 }))), json!("{\"a\":1}"));
        let short = TemplateTraits { call_id_len: Some(9), ..PLAIN };
        let messages = adapt(short, json!({}));
        let id = messages[1]["tool_call_id"].as_str().unwrap();
        assert!(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()));
        assert_eq!(messages[0]["tool_calls"][0]["id"], id);
        assert_ne!(short_id("call_2", 9), id);
        let mut kept = json!([{ "role": "tool", "tool_call_id": "a1B2c3D4e", "content": "x" }]);
        short.adapt(&mut kept);
        assert_eq!(kept[0]["tool_call_id"], "a1B2c3D4e");
    }

    #[test]
    fn calls_are_separated_with_their_results() {
        let one = TemplateTraits { parallel_calls: false, ..PLAIN };
        let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": id });
        let mut messages = json!([
            { "role": "user", "content": "u" },
            { "role": "assistant", "content": "I look", "tool_calls": [call("a", json!({})), call("b", json!({}))] },
            result("b"),
            result("a"),
            { "role": "assistant", "content": "done" },
        ]);
        one.adapt(&mut messages);
        let short: Vec<String> = messages
            .as_array()
            .unwrap()
            .iter()
            .map(|m| {
                let call = m["tool_calls"][0]["id"].as_str().unwrap_or("-");
                format!("{} {} {call}", m["role"].as_str().unwrap(), m["content"].as_str().unwrap())
            })
            .collect();
        assert_eq!(
            short,
            ["user u -", "assistant I look a", "tool a -", "assistant  b", "tool b -", "assistant done -"]
        );
    }
}
