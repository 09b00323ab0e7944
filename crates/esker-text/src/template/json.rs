//! JSON in and out: messages to template values, and the `tojson` filter, which is Python's `json.dumps`.

use std::borrow::Cow;
use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, State};

use super::python::{self, error};
use super::shield::Shield;

/// A JSON value as a template value, keys in order. `None` if it is nested more than `depth` levels deep. Adds its
/// size to `bytes`. Texts and keys are shielded, if wanted.
pub(super) fn to_value(
    json: &serde_json::Value,
    depth: usize,
    bytes: &mut usize,
    shield: Option<&Shield>,
) -> Option<Value> {
    let text = |text| shield.map_or(Cow::Borrowed(text), |shield| shield.mark(text));
    *bytes += 8;
    let below = depth.checked_sub(1)?;
    Some(match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(v) => Value::from(*v),
        serde_json::Value::Number(v) => match (v.as_i64(), v.as_u64(), v.as_f64()) {
            (Some(v), _, _) => Value::from(v),
            (_, Some(v), _) => Value::from(v),
            (_, _, v) => Value::from(v.unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(v) => {
            *bytes += v.len();
            Value::from(&*text(v))
        }
        serde_json::Value::Array(items) => {
            items.iter().map(|v| to_value(v, below, bytes, shield)).collect::<Option<Vec<Value>>>()?.into()
        }
        serde_json::Value::Object(map) => {
            let mut pairs = Vec::with_capacity(map.len());
            for (key, v) in map {
                *bytes += key.len();
                pairs.push((text(key), to_value(v, below, bytes, shield)?));
            }
            Value::from_pairs(pairs)
        }
    })
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as transformers defines it.
pub(super) fn to_json(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let option = |index: usize, name| match positional.get(index) {
        Some(v) => Ok(v.clone()),
        None => Ok::<_, Error>(kwargs.get::<Option<Value>>(name)?.unwrap_or_default()),
    };
    let ensure_ascii = option(0, "ensure_ascii")?.is_true();
    let indent = option(1, "indent")?;
    let separators = option(2, "separators")?;
    let sort_keys = option(3, "sort_keys")?.is_true();
    kwargs.assert_all_used()?;

    let indent = match indent.kind() {
        ValueKind::Undefined | ValueKind::None => None,
        ValueKind::String => Some(indent.as_str().unwrap_or_default().to_owned()),
        _ => {
            let width = i64::try_from(indent)?.clamp(0, MAX_INDENT);
            Some(" ".repeat(width as usize))
        }
    };
    let (item, key) = match separators.kind() {
        ValueKind::Undefined | ValueKind::None => {
            (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned())
        }
        _ => {
            let parts: Vec<Value> = separators.try_iter()?.collect();
            match &parts[..] {
                [item, key] if item.as_str().is_some() && key.as_str().is_some() => {
                    (item.to_string(), key.to_string())
                }
                _ => return Err(error("tojson: separators must be two strings")),
            }
        }
    };
    let mut writer =
        Writer { state, out: String::new(), charged: 0, ensure_ascii, indent, item, key, sort_keys };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

/// Widest indentation; Python has no limit.
const MAX_INDENT: i64 = 64;
/// Deepest nesting; Python stops at its recursion limit.
const MAX_DEPTH: usize = 256;

struct Writer<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    out: String,
    charged: usize,
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Writer<'_, '_, '_> {
    /// A step for each value and 16 bytes, paid while the text grows, so that it cannot outgrow the limit.
    fn charge(&mut self) -> Result<(), Error> {
        let n = self.out.len() - self.charged;
        self.charged = self.out.len();
        self.state.consume_fuel(1 + n as u64 / 16)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(error(format!("tojson: nested more than {MAX_DEPTH} levels deep")));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => {
                let text = python::float(value);
                self.out.push_str(match &*text {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    text => text,
                });
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let mut n = 0;
                self.out.push('[');
                for item in value.try_iter()? {
                    self.separate(n, depth + 1);
                    self.value(&item, depth + 1)?;
                    n += 1;
                }
                self.close(n, depth, ']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    self.state.consume_fuel(keys.len() as u64 * 16)?;
                    keys.sort();
                }
                self.out.push('{');
                for (n, key) in keys.iter().enumerate() {
                    self.separate(n, depth + 1);
                    match key.kind() {
                        ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                            self.out.push('"');
                            self.value(key, depth + 1)?;
                            self.out.push('"');
                        }
                        kind => return Err(error(format!("tojson: keys must be strings, not {kind}"))),
                    }
                    self.out.push_str(&self.key);
                    self.value(&value.get_item(key)?, depth + 1)?;
                }
                self.close(keys.len(), depth, '}');
            }
            kind => return Err(error(format!("tojson: {kind} is not JSON serializable"))),
        }
        self.charge()
    }

    /// What goes before item `n` of a list or map.
    fn separate(&mut self, n: usize, depth: usize) {
        if n > 0 {
            self.out.push_str(&self.item);
        }
        self.new_line(depth);
    }

    fn close(&mut self, n: usize, depth: usize, bracket: char) {
        if n > 0 {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                _ if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
