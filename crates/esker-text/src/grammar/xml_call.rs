//! The arguments of calls that put tags around each: JSON schemas become a sequence of arguments, in the schema's order.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::GrammarError;
use super::lark::{self, literal};
use crate::tools::{ArgumentTypes, ToolSpec};

/// How a notation writes an argument.
pub(super) struct XmlSyntax {
    /// Before the key.
    open: &'static str,
    /// Between key and value.
    middle: &'static str,
    /// After the value. A value that is text ends where this stands first.
    close: &'static str,
    /// After an argument.
    end: &'static str,
}

pub(super) const QWEN: XmlSyntax =
    XmlSyntax { open: "<parameter=", middle: ">\n", close: "\n</parameter>", end: "\n" };
pub(super) const GLM: XmlSyntax =
    XmlSyntax { open: "<arg_key>", middle: "</arg_key>\n<arg_value>", close: "</arg_value>", end: "\n" };
pub(super) const MINIMAX: XmlSyntax =
    XmlSyntax { open: "<parameter name=\"", middle: "\">", close: "</parameter>", end: "\n" };

/// Keywords that restrict a string and have no meaning for text between tags here.
const OF_STRINGS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];

/// An expression for the arguments of `tool`, the `i`-th; further rules go to `rules`. `held`: by its schema.
pub(super) fn parameters(
    syntax: &XmlSyntax,
    i: usize,
    tool: &ToolSpec,
    held: bool,
    rules: &mut String,
) -> Result<String, GrammarError> {
    let root = resolve(&tool.parameters, &tool.parameters);
    let properties = root.get("properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|_| held) else {
        if !held {
            // Any arguments.
            let _ = writeln!(
                rules,
                "any{i}: {} /[^<>\\n\\r\"]{{1,64}}/ {} text{i} {}\ntext{i}[lazy]: /(?s:.*)/ {}",
                literal(syntax.open),
                literal(syntax.middle),
                literal(syntax.end),
                literal(syntax.close)
            );
            return Ok(format!("any{i}*"));
        }
        if ["anyOf", "oneOf", "allOf"].iter().any(|key| root.get(key).is_some()) {
            return Err(unsupported(tool, "alternatives at the top of the schema, expected `properties`"));
        }
        return Ok(String::new());
    };
    let required: Vec<&str> = root
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = String::new();
    for (n, (key, schema)) in properties.iter().enumerate() {
        if key.is_empty() || key.len() > 200 || key.contains(['<', '>', '"', '\n', '\r']) || key.trim() != key
        {
            return Err(unsupported(tool, &format!("the property name `{}`", key.escape_debug())));
        }
        let value = value(syntax, &format!("{i}x{n}"), tool, key, schema, rules)?;
        let _ = writeln!(
            rules,
            "argument{i}x{n}: {} {value} {}",
            literal(&format!("{}{key}{}", syntax.open, syntax.middle)),
            literal(syntax.end)
        );
        let _ = write!(out, " argument{i}x{n}{}", if required.contains(&&**key) { "" } else { "?" });
    }
    Ok(out)
}

/// An expression for a value and what closes it.
fn value(
    syntax: &XmlSyntax,
    id: &str,
    tool: &ToolSpec,
    key: &str,
    schema: &Value,
    rules: &mut String,
) -> Result<String, GrammarError> {
    let own = resolve(&tool.parameters, schema);
    let types = ArgumentTypes::of_argument(Some(&tool.parameters), key);
    if !types.may_be_text() {
        let mut with_definitions = own.as_object().cloned().unwrap_or_default();
        copy_definitions(&tool.parameters, &mut with_definitions);
        return Ok(format!("{} {}", lark::json(&Value::Object(with_definitions))?, literal(syntax.close)));
    }
    let choices: Option<Vec<&Value>> = match (own.get("enum"), own.get("const")) {
        (Some(Value::Array(values)), _) => Some(values.iter().collect()),
        (_, Some(value)) => Some(vec![value]),
        _ => None,
    };
    if let Some(choices) = choices {
        let texts: Vec<String> = choices
            .iter()
            .map(|v| literal(&v.as_str().map_or_else(|| v.to_string(), str::to_owned)))
            .collect();
        if texts.is_empty() {
            return Err(unsupported(tool, &format!("the empty `enum` of `{key}`")));
        }
        let _ = writeln!(rules, "choice{id}: {}", texts.join(" | "));
        return Ok(format!("choice{id} {}", literal(syntax.close)));
    }
    if tool.strict {
        // What else a string may be, text can say; but nothing holds it to more than that.
        let plain = |schema: &Value| OF_STRINGS.iter().find(|k| schema.get(**k).is_some()).copied();
        let parts = ["anyOf", "oneOf", "allOf"].iter().filter_map(|k| own.get(*k)?.as_array()).flatten();
        for part in std::iter::once(own).chain(parts.map(|part| resolve(&tool.parameters, part))) {
            let structured = ["enum", "const", "properties", "items"];
            let found = plain(part).or_else(|| {
                structured.into_iter().find(|k| !std::ptr::eq(part, own) && part.get(*k).is_some())
            });
            if let Some(keyword) = found {
                return Err(unsupported(tool, &format!("`{keyword}` of `{key}`, which is written as text")));
            }
        }
    }
    let _ = writeln!(rules, "text{id}[lazy]: /(?s:.*)/ {}", literal(syntax.close));
    Ok(format!("text{id}"))
}

/// What a schema that is a reference refers to, a few times over.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..16 {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        match target {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Gives a part of a schema what it may refer to.
fn copy_definitions(root: &Value, part: &mut Map<String, Value>) {
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = root.get(key) {
            part.insert(key.to_owned(), definitions.clone());
        }
    }
}

fn unsupported(tool: &ToolSpec, what: &str) -> GrammarError {
    GrammarError::Unsupported { what: "tool", reason: format!("`{}`: {what}", tool.name) }
}
