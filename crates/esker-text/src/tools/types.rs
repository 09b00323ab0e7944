//! What an argument that is written as plain text may be in JSON, by the tool's schema.

use serde_json::Value;

use super::json::push_escaped_str;

/// How often a schema may refer on before it is taken as unknown.
const MAX_DEPTH: usize = 16;

/// The JSON types that a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentTypes {
    text: bool,
    null: bool,
    boolean: bool,
    number: bool,
    array: bool,
    object: bool,
}

const NONE: ArgumentTypes =
    ArgumentTypes { text: false, null: false, boolean: false, number: false, array: false, object: false };
const ANY: ArgumentTypes =
    ArgumentTypes { text: true, null: true, boolean: true, number: true, array: true, object: true };

impl ArgumentTypes {
    /// The types that the schema of a tool's arguments allows for `key`; all if it does not say.
    pub(crate) fn of_argument(schema: Option<&Value>, key: &str) -> ArgumentTypes {
        let Some(root) = schema else { return ANY };
        root.get("properties").and_then(|properties| properties.get(key)).map_or(ANY, |own| of(root, own, 0))
    }

    /// A string and nothing else.
    pub(crate) fn only_text(self) -> bool {
        self == ArgumentTypes { text: true, ..NONE }
    }

    /// A string, or more.
    pub(crate) fn may_be_text(self) -> bool {
        self.text
    }

    /// The JSON for a value as a model wrote it.
    pub(crate) fn json(self, text: &str) -> String {
        let trimmed = match text.trim() {
            // As Python writes them.
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        };
        match serde_json::from_str::<Value>(trimmed) {
            // A quoted string stays quoted where only strings could be meant.
            Ok(value) if !value.is_string() && (self.has(&value) || !self.text) => trimmed.to_owned(),
            Ok(Value::String(_)) if !self.text => trimmed.to_owned(),
            _ => {
                let mut out = String::from("\"");
                push_escaped_str(text, &mut out);
                out.push('"');
                out
            }
        }
    }

    fn has(self, value: &Value) -> bool {
        match value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(_) => self.number,
            Value::String(_) => self.text,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        }
    }

    fn with(self, other: ArgumentTypes) -> ArgumentTypes {
        ArgumentTypes {
            text: self.text | other.text,
            null: self.null | other.null,
            boolean: self.boolean | other.boolean,
            number: self.number | other.number,
            array: self.array | other.array,
            object: self.object | other.object,
        }
    }

    fn named(name: &str) -> ArgumentTypes {
        match name {
            "string" => ArgumentTypes { text: true, ..NONE },
            "null" => ArgumentTypes { null: true, ..NONE },
            "boolean" => ArgumentTypes { boolean: true, ..NONE },
            "number" | "integer" => ArgumentTypes { number: true, ..NONE },
            "array" => ArgumentTypes { array: true, ..NONE },
            "object" => ArgumentTypes { object: true, ..NONE },
            _ => ANY,
        }
    }

    fn of_value(value: &Value) -> ArgumentTypes {
        match value {
            Value::Null => ArgumentTypes::named("null"),
            Value::Bool(_) => ArgumentTypes::named("boolean"),
            Value::Number(_) => ArgumentTypes::named("number"),
            Value::String(_) => ArgumentTypes::named("string"),
            Value::Array(_) => ArgumentTypes::named("array"),
            Value::Object(_) => ArgumentTypes::named("object"),
        }
    }
}

fn of(root: &Value, schema: &Value, depth: usize) -> ArgumentTypes {
    if depth == MAX_DEPTH {
        return ANY;
    }
    let each = |schemas: &[Value]| schemas.iter().fold(NONE, |types, s| types.with(of(root, s, depth + 1)));
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(ANY, |target| of(root, target, depth + 1));
    }
    match schema.get("type") {
        Some(Value::String(name)) => return ArgumentTypes::named(name),
        Some(Value::Array(names)) => {
            return names
                .iter()
                .fold(NONE, |types, name| types.with(ArgumentTypes::named(name.as_str().unwrap_or(""))));
        }
        _ => {}
    }
    if let Some(value) = schema.get("const") {
        return ArgumentTypes::of_value(value);
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.iter().fold(NONE, |types, value| types.with(ArgumentTypes::of_value(value)));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(schemas)) = schema.get(key) {
            return each(schemas);
        }
    }
    match schema.get("allOf") {
        Some(Value::Array(schemas)) if schemas.len() == 1 => each(schemas),
        _ => ANY,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_decides() {
        let schema = json!({
            "$defs": { "Id": { "type": ["string", "null"] }, "Loop": { "$ref": "#/$defs/Loop" } },
            "properties": {
                "text": { "type": "string" },
                "count": { "type": "integer" },
                "id": { "$ref": "#/$defs/Id" },
                "loop": { "$ref": "#/$defs/Loop" },
                "mode": { "enum": ["on", "off"] },
                "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
                "list": { "allOf": [{ "type": "array" }] },
                "free": {},
            },
        });
        let json = |key: &str, text: &str| ArgumentTypes::of_argument(Some(&schema), key).json(text);
        assert!(ArgumentTypes::of_argument(Some(&schema), "text").only_text());
        assert!(ArgumentTypes::of_argument(Some(&schema), "mode").only_text());
        assert_eq!(json("text", "12"), "\"12\"");
        assert_eq!(json("count", " 12\n"), "12");
        assert_eq!(json("count", "many"), "\"many\"");
        assert_eq!(json("id", "null"), "null");
        assert_eq!(json("id", "12"), "\"12\"");
        assert_eq!(json("either", "12"), "12");
        assert_eq!(json("either", "true"), "\"true\"");
        assert_eq!(json("list", "[1, 2]"), "[1, 2]");
        assert_eq!(json("free", "True"), "true");
        assert_eq!(json("free", " a \"b\""), "\" a \\\"b\\\"\"");
        assert_eq!(json("loop", "{\"a\": 1}"), "{\"a\": 1}");
        assert_eq!(json("unknown", "[1"), "\"[1\"");
    }
}
