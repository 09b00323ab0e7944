//! Grammars of tool calls, one for each notation.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::lark::{self, literal};
use super::schema::of_arguments;
use super::xml_call::{self, XmlSyntax};
use super::{GrammarError, GrammarVocabulary};
use crate::tools::{ToolChoice, ToolFormat, ToolSpec};

/// What a grammar of calls is for.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a> {
    pub(super) vocabulary: &'a GrammarVocabulary,
    pub(super) format: ToolFormat,
    pub(super) tools: &'a [ToolSpec],
    pub(super) choice: &'a ToolChoice,
    /// Several calls in one answer.
    pub(super) parallel: bool,
    /// Hold tools that are not strict to their schemas, too.
    pub(super) all_schemas: bool,
    /// With [`ToolChoice::Auto`], what an answer without a call is: JSON of this schema, or text.
    pub(super) answer: Option<&'a Value>,
}

/// What stands around the calls of an answer; every entry is a tag or other text.
struct Frame {
    /// Begins the calls. Where there is none, a call is the whole answer.
    open: Option<&'static str>,
    /// Between the opening tag and the first call.
    first: &'static [&'static str],
    /// Between calls.
    between: &'static [&'static str],
    /// After the last call.
    close: &'static [&'static str],
}

impl Calls<'_> {
    /// A grammar; see [`Constraint::tool_calls`](super::Constraint::tool_calls).
    pub(super) fn grammar(&self) -> Result<String, GrammarError> {
        let offered: Vec<&ToolSpec> = match self.choice {
            ToolChoice::Named(name) => self.tools.iter().filter(|tool| tool.name == *name).collect(),
            _ => self.tools.iter().collect(),
        };
        if offered.is_empty() {
            let names: Vec<&str> = self.tools.iter().map(|tool| &*tool.name).collect();
            return Err(unsupported(match self.choice {
                ToolChoice::Named(name) => format!("`{name}`, expected one of [{}]", names.join(", ")),
                _ => "no tools are offered, expected at least one".to_owned(),
            }));
        }
        let frame = self.frame();
        let (first, between, close) =
            (self.parts(frame.first), self.parts(frame.between), self.parts(frame.close));
        let more = if self.parallel { format!("({between} call)*") } else { String::new() };
        let calls = format!("calls: {first} call {more} {close}\n");
        let answer = self.answer.map(lark::json).transpose()?;
        let mut grammar = match (self.choice, frame.open) {
            (ToolChoice::Auto, open) if answer.is_some() => {
                let open = open.map(|open| lark::tag(self.vocabulary, open)).unwrap_or_default();
                format!("start: answer | {open} calls\nanswer: {}\n", answer.unwrap_or_default())
            }
            (ToolChoice::Auto, Some(open)) => {
                // Free text goes up to the first opening tag; behind the calls the answer is over.
                let head = match self.vocabulary.control(open) {
                    Some(id) => format!("head: /(?s:.*)/ <[{id}]>\n"),
                    None => format!("head[lazy]: /(?s:.*)/ {}\n", literal(open)),
                };
                format!("start: /(?s:.*)/ | head calls\n{head}")
            }
            // Text that is no call does not begin like one.
            (ToolChoice::Auto, None) => "start: /([^{](?s:.*))?/ | calls\n".to_owned(),
            (_, Some(open)) => format!("start: {} calls\n", lark::tag(self.vocabulary, open)),
            (_, None) => "start: calls\n".to_owned(),
        };
        grammar.push_str(&calls);
        let alternatives: Vec<String> = (0..offered.len()).map(|i| format!("call{i}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(grammar, "call: {}", alternatives.join(" | "));
        for (i, tool) in offered.into_iter().enumerate() {
            let rule = self.call(i, tool, &mut grammar)?;
            let _ = writeln!(grammar, "call{i}: {rule}");
        }
        Ok(grammar)
    }

    fn frame(&self) -> Frame {
        let frame = |open, first, between, close| Frame { open: Some(open), first, between, close };
        match self.format {
            ToolFormat::HermesJson | ToolFormat::QwenXml => frame(
                "<tool_call>",
                &["\n"],
                &["\n", "</tool_call>", "\n", "<tool_call>", "\n"],
                &["\n", "</tool_call>"],
            ),
            ToolFormat::GlmXml => {
                frame("<tool_call>", &[], &["</tool_call>", "\n", "<tool_call>"], &["</tool_call>"])
            }
            ToolFormat::MistralArray => frame("[TOOL_CALLS]", &["["], &[", "], &["]"]),
            ToolFormat::MistralNamed => frame("[TOOL_CALLS]", &[], &["[TOOL_CALLS]"], &[]),
            ToolFormat::LlamaJson => Frame { open: None, first: &[], between: &["; "], close: &[] },
            ToolFormat::DeepSeekV3 => frame(
                "<｜tool▁calls▁begin｜>",
                &["<｜tool▁call▁begin｜>"],
                &["<｜tool▁call▁end｜>", "\n", "<｜tool▁call▁begin｜>"],
                &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
            ),
            ToolFormat::DeepSeekV31 => frame(
                "<｜tool▁calls▁begin｜>",
                &["<｜tool▁call▁begin｜>"],
                &["<｜tool▁call▁end｜>", "<｜tool▁call▁begin｜>"],
                &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
            ),
            ToolFormat::KimiK2 => frame(
                "<|tool_calls_section_begin|>",
                &["<|tool_call_begin|>"],
                &["<|tool_call_end|>", "<|tool_call_begin|>"],
                &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
            ),
            ToolFormat::MiniMaxXml => {
                frame("<minimax:tool_call>", &["\n"], &["\n"], &["\n", "</minimax:tool_call>"])
            }
            ToolFormat::PhiJson => frame("<|tool_call|>", &["["], &[", "], &["]", "<|/tool_call|>"]),
            ToolFormat::CommandJson => {
                frame("<|START_ACTION|>", &["[\n    "], &[",\n    "], &["\n]", "<|END_ACTION|>"])
            }
        }
    }

    fn parts(&self, parts: &[&str]) -> String {
        let parts: Vec<String> = parts.iter().map(|part| lark::tag(self.vocabulary, part)).collect();
        parts.join(" ")
    }

    /// The rule of one tool's call; further rules go to `rules`.
    fn call(&self, i: usize, tool: &ToolSpec, rules: &mut String) -> Result<String, GrammarError> {
        let name = &*tool.name;
        if name.is_empty()
            || name.contains(|c: char| c.is_whitespace() || c.is_control() || "<>\"\\[]{}".contains(c))
        {
            return Err(unsupported(format!(
                "the name `{}` cannot be written in a call",
                name.escape_debug()
            )));
        }
        let held = tool.strict || self.all_schemas;
        let arguments = || {
            let schema = if held { of_arguments(&tool.parameters) } else { json!({ "type": "object" }) };
            lark::json(&schema)
        };
        let object = |before: String| Ok(format!("{} {} \"}}\"", literal(&before), arguments()?));
        let tag = |text: &str| lark::tag(self.vocabulary, text);
        let xml = |syntax: &XmlSyntax, before: String, after: &str, rules: &mut String| {
            let parameters = xml_call::parameters(syntax, i, tool, held, rules)?;
            let after = if after.is_empty() { String::new() } else { literal(after) };
            Ok(format!("{} {parameters} {after}", literal(&before)))
        };
        match self.format {
            ToolFormat::HermesJson | ToolFormat::MistralArray | ToolFormat::PhiJson => {
                object(format!("{{\"name\": \"{name}\", \"arguments\": "))
            }
            // Beside an answer that is JSON itself, the engine must see both as JSON to tell them apart late.
            ToolFormat::LlamaJson if self.answer.is_some() => {
                let parameters =
                    if held { of_arguments(&tool.parameters) } else { json!({ "type": "object" }) };
                lark::json(&wrapped(name, parameters)?)
            }
            ToolFormat::LlamaJson => object(format!("{{\"name\": \"{name}\", \"parameters\": ")),
            ToolFormat::CommandJson => Ok(format!(
                "\"{{\\\"tool_call_id\\\": \\\"\" /[0-9]{{1,3}}/ {} {} \"}}\"",
                literal(&format!("\", \"tool_name\": \"{name}\", \"parameters\": ")),
                arguments()?
            )),
            ToolFormat::MistralNamed => Ok(format!("{} {} {}", literal(name), tag("[ARGS]"), arguments()?)),
            ToolFormat::DeepSeekV3 => Ok(format!(
                "\"function\" {} {} {} \"\\n```\"",
                tag("<｜tool▁sep｜>"),
                literal(&format!("{name}\n```json\n")),
                arguments()?
            )),
            ToolFormat::DeepSeekV31 => {
                Ok(format!("{} {} {}", literal(name), tag("<｜tool▁sep｜>"), arguments()?))
            }
            ToolFormat::KimiK2 => Ok(format!(
                "{} /[0-9]{{1,3}}/ {} {}",
                literal(&format!("functions.{name}:")),
                tag("<|tool_call_argument_begin|>"),
                arguments()?
            )),
            ToolFormat::QwenXml => xml(&xml_call::QWEN, format!("<function={name}>\n"), "</function>", rules),
            ToolFormat::GlmXml => xml(&xml_call::GLM, format!("{name}\n"), "", rules),
            ToolFormat::MiniMaxXml => {
                xml(&xml_call::MINIMAX, format!("<invoke name=\"{name}\">\n"), "</invoke>", rules)
            }
        }
    }
}

/// The schema of a whole call. Definitions move up to where references look for them.
fn wrapped(name: &str, mut parameters: Value) -> Result<Value, GrammarError> {
    if refers_outside_of_definitions(&parameters) {
        return Err(unsupported(format!(
            "`{name}`: a `$ref` that does not begin with `#/$defs/` or `#/definitions/`"
        )));
    }
    let definitions =
        ["$defs", "definitions"].map(|key| (key, parameters.as_object_mut().and_then(|p| p.remove(key))));
    let mut call = json!({
        "type": "object",
        "properties": { "name": { "const": name }, "parameters": parameters },
        "required": ["name", "parameters"],
        "additionalProperties": false,
    });
    for (key, definitions) in definitions {
        if let Some(definitions) = definitions {
            call[key] = definitions;
        }
    }
    Ok(call)
}

fn refers_outside_of_definitions(schema: &Value) -> bool {
    match schema {
        Value::Array(values) => values.iter().any(refers_outside_of_definitions),
        Value::Object(fields) => fields.iter().any(|(key, value)| match value {
            Value::String(to) if key == "$ref" => {
                !to.starts_with("#/$defs/") && !to.starts_with("#/definitions/")
            }
            _ => refers_outside_of_definitions(value),
        }),
        _ => false,
    }
}

fn unsupported(reason: String) -> GrammarError {
    GrammarError::Unsupported { what: "tool", reason }
}
