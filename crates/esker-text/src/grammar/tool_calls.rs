//! Grammars of tool calls, one for each notation.

use serde_json::json;

use super::{GrammarError, GrammarVocabulary};
use crate::tools::{ToolChoice, ToolFormat, ToolSpec};

/// A grammar in Lark syntax; see [`Constraint::tool_calls`](super::Constraint::tool_calls).
pub(super) fn grammar(
    vocabulary: &GrammarVocabulary,
    format: ToolFormat,
    tools: &[ToolSpec],
    choice: &ToolChoice,
    parallel: bool,
) -> Result<String, GrammarError> {
    let _ = (parallel, vocabulary.control("<tool_call>"));
    let calls: Vec<_> = tools
        .iter()
        .filter(|t| !matches!(choice, ToolChoice::Named(name) if *name != t.name))
        .map(|t| {
            json!({
                "type": "object",
                "properties": { "name": { "const": t.name }, "arguments": t.parameters },
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        })
        .collect();
    match format {
        ToolFormat::HermesJson if !calls.is_empty() => Ok(format!(
            "start: \"<tool_call>\\n\" call \"\\n</tool_call>\"\ncall: %json {}\n",
            json!({ "anyOf": calls })
        )),
        _ => Err(GrammarError::Unsupported { what: "tool", reason: format!("no grammar for {format:?}") }),
    }
}
