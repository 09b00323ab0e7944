//! Metadata values for people and for programs; long ones abbreviated.

use crate::output::escaped;
use esker_gguf::{Array, Value as Meta};
use serde_json::{Value, json};

/// Longest string shown to people, in characters.
const TEXT_CHARS_MAX: usize = 80;
/// Elements of an array shown to people.
const TEXT_ELEMENTS_MAX: usize = 8;
/// Elements of an array that JSON has in full.
const JSON_ELEMENTS_MAX: usize = 64;
/// Elements that JSON has of a longer array.
const JSON_ELEMENTS_FIRST: usize = 8;

/// One line.
pub fn to_text(value: &Meta) -> String {
    match value {
        Meta::U8(v) => v.to_string(),
        Meta::I8(v) => v.to_string(),
        Meta::U16(v) => v.to_string(),
        Meta::I16(v) => v.to_string(),
        Meta::U32(v) => v.to_string(),
        Meta::I32(v) => v.to_string(),
        Meta::U64(v) => v.to_string(),
        Meta::I64(v) => v.to_string(),
        Meta::F32(v) => v.to_string(),
        Meta::F64(v) => v.to_string(),
        Meta::Bool(v) => v.to_string(),
        Meta::String(v) => string(v),
        Meta::RawString(v) => format!("{} (not UTF-8)", string(&String::from_utf8_lossy(v))),
        Meta::Array(array) => {
            let n = array.len();
            let shown: Vec<String> = first(array, TEXT_ELEMENTS_MAX).iter().map(to_text).collect();
            let rest =
                if n > shown.len() { format!(", … {n} {}", array.element_type()) } else { String::new() };
            format!("[{}{rest}]", shown.join(", "))
        }
    }
}

fn string(text: &str) -> String {
    let shown = escaped(text, TEXT_CHARS_MAX);
    if text.chars().nth(TEXT_CHARS_MAX).is_some() { format!("{shown} ({} bytes)", text.len()) } else { shown }
}

/// The value, or what describes a long array. Floats that JSON does not have become null.
pub fn to_json(value: &Meta) -> Value {
    match value {
        Meta::U8(v) => json!(v),
        Meta::I8(v) => json!(v),
        Meta::U16(v) => json!(v),
        Meta::I16(v) => json!(v),
        Meta::U32(v) => json!(v),
        Meta::I32(v) => json!(v),
        Meta::U64(v) => json!(v),
        Meta::I64(v) => json!(v),
        // By way of its shortest text: 0.7 stays 0.7.
        Meta::F32(v) => v.to_string().parse::<f64>().map_or(Value::Null, |v| json!(v)),
        Meta::F64(v) => json!(v),
        Meta::Bool(v) => json!(v),
        Meta::String(v) => json!(v),
        Meta::RawString(v) => json!(String::from_utf8_lossy(v)),
        Meta::Array(array) if array.len() <= JSON_ELEMENTS_MAX => {
            first(array, JSON_ELEMENTS_MAX).iter().map(to_json).collect()
        }
        Meta::Array(array) => {
            let first: Value = first(array, JSON_ELEMENTS_FIRST).iter().map(to_json).collect();
            json!({ "type": array.element_type().name(), "length": array.len(), "first": first })
        }
    }
}

/// At most `n` elements, as values of their own.
fn first(array: &Array, n: usize) -> Vec<Meta> {
    fn each<T: Copy + Into<Meta>>(values: &[T], n: usize) -> Vec<Meta> {
        values.iter().take(n).map(|&v| v.into()).collect()
    }
    match array {
        Array::U8(v) => each(v, n),
        Array::I8(v) => each(v, n),
        Array::U16(v) => each(v, n),
        Array::I16(v) => each(v, n),
        Array::U32(v) => each(v, n),
        Array::I32(v) => each(v, n),
        Array::U64(v) => each(v, n),
        Array::I64(v) => each(v, n),
        Array::F32(v) => each(v, n),
        Array::F64(v) => each(v, n),
        Array::Bool(v) => each(v, n),
        Array::Strings(v) => v.iter().take(n).map(Meta::from).collect(),
        Array::RawStrings(v) => v.iter().take(n).map(|s| Meta::RawString(s.to_vec())).collect(),
        Array::Arrays(v) => v.iter().take(n).map(|a| Meta::Array(a.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_abbreviated() {
        let text = |value: Meta| to_text(&value);
        assert_eq!(text(Meta::from(vec![1u32, 2])), "[1, 2]");
        assert_eq!(text(Meta::from((0..100u32).collect::<Vec<_>>())), "[0, 1, 2, 3, 4, 5, 6, 7, … 100 u32]");
        assert_eq!(text(Meta::from("a\nb")), "a\\nb");
        assert_eq!(text(Meta::from("x".repeat(100))), format!("{}… (100 bytes)", "x".repeat(80)));
        assert_eq!(text(Meta::RawString(vec![b'a', 0xff])), "a\u{fffd} (not UTF-8)");
    }

    #[test]
    fn json_has_numbers_as_they_were_written() {
        assert_eq!(to_json(&Meta::from(0.7f32)), json!(0.7));
        assert_eq!(to_json(&Meta::from(f32::NAN)), Value::Null);
        assert_eq!(to_json(&Meta::from(vec![true, false])), json!([true, false]));
        let long = to_json(&Meta::from(vec![1u8; 65]));
        assert_eq!(long, json!({ "type": "u8", "length": 65, "first": [1, 1, 1, 1, 1, 1, 1, 1] }));
    }
}
