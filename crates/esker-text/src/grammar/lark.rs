//! Writing grammars in the engine's notation.

use serde_json::Value;

use super::{GrammarError, GrammarVocabulary, schema};

/// A literal. The notation's strings are JSON strings.
pub(super) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A tag: the control token of that name if there is one, else its text.
pub(super) fn tag(vocabulary: &GrammarVocabulary, text: &str) -> String {
    match vocabulary.control(text) {
        Some(id) => format!("<[{id}]>"),
        None => literal(text),
    }
}

/// JSON that follows a schema.
pub(super) fn json(schema: &Value) -> Result<String, GrammarError> {
    Ok(format!("%json {}", schema::prepare(schema)?))
}

/// Reasoning, and then the grammar `@answer`. `opened`: the opening tag has been written already.
pub(super) fn after_reasoning(
    vocabulary: &GrammarVocabulary,
    open: &str,
    close: &str,
    opened: bool,
) -> String {
    let body = match vocabulary.control(close) {
        Some(id) => format!("reasoning: /(?s:.*)/ <[{id}]>\n"),
        None => format!("reasoning[lazy]: /(?s:.*)/ {}\n", literal(close)),
    };
    let start = match opened {
        true => "reasoning /\\s{0,8}/ @answer".to_owned(),
        false => format!("@answer | /\\s{{0,8}}/ {} reasoning /\\s{{0,8}}/ @answer", tag(vocabulary, open)),
    };
    format!("start: {start}\n{body}")
}
