//! JSON schemas on their way to the engine: bounded, and with our choice of white space.

use serde_json::{Map, Value, json};

use super::GrammarError;
use super::limits::{MAX_BOUND, MAX_COMBINATIONS, MAX_GRAMMAR_BYTES, MAX_GRAMMAR_DEPTH};

/// Between JSON tokens: a few blanks, or a line end and an indentation. Unbounded white space is where a small model
/// that is not sure how to go on stays for good.
const WHITE_SPACE: &str = r"[ \t]{1,4}|[ \t]{0,4}\r?\n[ \t]{0,64}";

const WHAT: &str = "JSON schema";

/// The key under which a schema may carry options of the engine.
const OPTIONS: &str = "x-guidance";

/// `schema` for the engine.
pub(super) fn prepare(schema: &Value) -> Result<Value, GrammarError> {
    check(schema)?;
    let mut object = match schema {
        Value::Object(object) => object.clone(),
        Value::Bool(true) => Map::new(),
        other => {
            let reason = format!("it is `{}`, expected an object", brief(other));
            return Err(GrammarError::Unsupported { what: WHAT, reason });
        }
    };
    object.insert(OPTIONS.to_owned(), json!({ "whitespace_pattern": WHITE_SPACE }));
    Ok(Value::Object(object))
}

/// `schema` as that of an object, which the arguments of a tool always are.
pub(super) fn of_arguments(schema: &Value) -> Value {
    let mut object = schema.as_object().cloned().unwrap_or_default();
    if ["type", "$ref", "anyOf", "oneOf", "allOf"].iter().all(|key| !object.contains_key(*key)) {
        object.insert("type".to_owned(), json!("object"));
    }
    Value::Object(object)
}

/// Refuses what would cost too much to compile.
fn check(schema: &Value) -> Result<(), GrammarError> {
    // Depth first: everything after may recurse.
    if depth_exceeds(schema, MAX_GRAMMAR_DEPTH) {
        return Err(GrammarError::TooDeep { what: WHAT, max: MAX_GRAMMAR_DEPTH });
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_GRAMMAR_BYTES {
        return Err(GrammarError::TooLarge { what: WHAT, bytes, max: MAX_GRAMMAR_BYTES });
    }
    check_bounds(schema)?;
    Combinations { root: schema, left: 100_000 }.of(schema, 0).map(|_| ())
}

/// Whether values are nested more than `max` levels deep; without recursion.
pub(super) fn depth_exceeds(value: &Value, max: usize) -> bool {
    let mut level: Vec<&Value> = vec![value];
    for _ in 0..=max {
        if level.is_empty() {
            return false;
        }
        level = level
            .into_iter()
            .flat_map(|value| -> Box<dyn Iterator<Item = &Value>> {
                match value {
                    Value::Array(values) => Box::new(values.iter()),
                    Value::Object(fields) => Box::new(fields.values()),
                    _ => Box::new(std::iter::empty()),
                }
            })
            .collect();
    }
    !level.is_empty()
}

fn check_bounds(schema: &Value) -> Result<(), GrammarError> {
    const KEYWORDS: [&str; 6] =
        ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];
    match schema {
        Value::Array(values) => values.iter().try_for_each(check_bounds),
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
            match (KEYWORDS.iter().find(|k| *k == key), value.as_f64()) {
                (Some(keyword), Some(n)) if n > MAX_BOUND as f64 => {
                    Err(GrammarError::BoundTooLarge { keyword, value: value.to_string(), max: MAX_BOUND })
                }
                _ => check_bounds(value),
            }
        }),
        _ => Ok(()),
    }
}

/// Counts how large a schema becomes when alternatives are multiplied out, which intersections do.
struct Combinations<'a> {
    root: &'a Value,
    /// Steps that counting may still take.
    left: u64,
}

impl Combinations<'_> {
    /// Cases of `schema`, at least 1. References are followed a few levels: a schema that intersects itself has the
    /// engine's own limit.
    fn of(&mut self, schema: &Value, references: usize) -> Result<u64, GrammarError> {
        const TOO_MANY: GrammarError = GrammarError::TooManyCombinations { max: MAX_COMBINATIONS };
        self.left = self.left.checked_sub(1).ok_or(TOO_MANY)?;
        let Value::Object(fields) = schema else { return Ok(1) };
        // What stands side by side is intersected; each contributes its cases.
        let mut cases = 1u64;
        for (key, value) in fields {
            let own = match (&**key, value) {
                ("anyOf" | "oneOf", Value::Array(schemas)) => {
                    let mut sum = 0u64;
                    for schema in schemas {
                        sum = sum.saturating_add(self.of(schema, references)?);
                    }
                    sum
                }
                ("allOf", Value::Array(schemas)) => {
                    let mut product = 1u64;
                    for schema in schemas {
                        product = product.saturating_mul(self.of(schema, references)?);
                    }
                    product
                }
                ("$ref", Value::String(reference)) if references < 3 => {
                    let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                    match target {
                        Some(target) => self.of(target, references + 1)?,
                        None => 1,
                    }
                }
                // An intersection reaches into properties and items, where alternatives multiply again.
                ("properties" | "patternProperties", Value::Object(schemas)) => {
                    let mut largest = 1;
                    for schema in schemas.values() {
                        largest = largest.max(self.of(schema, references)?);
                    }
                    largest
                }
                ("$defs" | "definitions", Value::Object(schemas)) => {
                    for schema in schemas.values() {
                        self.of(schema, references)?;
                    }
                    1
                }
                ("items" | "additionalProperties" | "additionalItems", schema) => {
                    self.of(schema, references)?
                }
                ("prefixItems", Value::Array(schemas)) => {
                    let mut largest = 1;
                    for schema in schemas {
                        largest = largest.max(self.of(schema, references)?);
                    }
                    largest
                }
                _ => 1,
            };
            cases = cases.saturating_mul(own.max(1));
        }
        if cases > MAX_COMBINATIONS { Err(TOO_MANY) } else { Ok(cases) }
    }
}

/// The beginning of a value, for an error.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
