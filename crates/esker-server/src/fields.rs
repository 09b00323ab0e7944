//! Strict reading of JSON objects: every field has to be asked for, and what is left over is refused by name.
//!
//! `null` counts as absent everywhere, because client libraries send it for options that are not set.

use crate::error::ApiError;
use serde_json::{Map, Value};

/// An object being read. [`finish`](Self::finish) refuses what was not asked for.
#[derive(Debug)]
pub struct Object {
    fields: Map<String, Value>,
    path: String,
}

impl Object {
    /// Reads `value`, which is at `path` of the request (empty for the request itself).
    ///
    /// # Errors
    /// If it is not an object.
    pub fn new(value: Value, path: impl Into<String>) -> Result<Object, ApiError> {
        let path = path.into();
        match value {
            Value::Object(fields) => Ok(Object { fields, path }),
            other => {
                let at = if path.is_empty() { "body" } else { &path };
                Err(ApiError::value(at, shown(&other), "an object"))
            }
        }
    }

    /// Where a field of this object is, as messages name it.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Where the object is.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes a field out; `null` is as good as none.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    /// As [`take`](Self::take), for a field that has to be there.
    ///
    /// # Errors
    /// If it is not.
    pub fn need(&mut self, name: &str, expected: &str) -> Result<Value, ApiError> {
        self.take(name).ok_or_else(|| ApiError::missing(self.at(name), expected))
    }

    /// A text.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::value(self.at(name), shown(&other), "a string")),
        }
    }

    /// A text that has to be there.
    ///
    /// # Errors
    /// If it is not there, or is something else.
    pub fn need_string(&mut self, name: &str) -> Result<String, ApiError> {
        self.string(name)?.ok_or_else(|| ApiError::missing(self.at(name), "a string"))
    }

    /// True or false.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn bool(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(ApiError::value(self.at(name), shown(&other), "true or false")),
        }
    }

    /// A whole number of `least` to `most`.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn integer(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        // Some clients write whole numbers as floats.
        let whole = |f: f64| (f.fract() == 0.0 && (0.0..9e15).contains(&f)).then_some(f as u64);
        match value.as_u64().or_else(|| value.as_f64().and_then(whole)) {
            Some(n) if (least..=most).contains(&n) => Ok(Some(n)),
            _ => {
                let expected = format!("a whole number of {least} to {most}");
                Err(ApiError::value(self.at(name), shown(&value), &expected))
            }
        }
    }

    /// A number of `least` to `most`.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64() {
            Some(n) if (least..=most).contains(&n) => Ok(Some(n)),
            _ => {
                let expected = format!("a number of {least} to {most}");
                Err(ApiError::value(self.at(name), shown(&value), &expected))
            }
        }
    }

    /// A list of at most `most` elements.
    ///
    /// # Errors
    /// If the field is something else, or the list is longer.
    pub fn array(&mut self, name: &str, most: usize) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() <= most => Ok(Some(list)),
            Some(Value::Array(list)) => {
                let found = format!("a list of {}", list.len());
                Err(ApiError::value(self.at(name), found, &format!("at most {most} elements")))
            }
            Some(other) => Err(ApiError::value(self.at(name), shown(&other), "a list")),
        }
    }

    /// An object.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn object(&mut self, name: &str) -> Result<Option<Object>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => Object::new(value, self.at(name)).map(Some),
        }
    }

    /// Fields that change no answer: taken and forgotten.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// A field that may only have one of the values that change nothing.
    ///
    /// # Errors
    /// If it has another.
    pub fn only(&mut self, name: &str, neutral: &[Value], why: &str) -> Result<(), ApiError> {
        match self.take(name) {
            Some(value) if !neutral.contains(&value) => {
                Err(ApiError::unsupported(self.at(name), format_args!("{why} (it is {})", shown(&value))))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what was not asked for, unless it is `null`.
    ///
    /// # Errors
    /// Names the first such field.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.fields.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => {
                let name = name.chars().take(80).collect::<String>();
                let error = ApiError::unsupported(self.at(&name), "no such parameter is known here");
                Err(error.code("unknown_parameter"))
            }
        }
    }

    /// All fields, for objects whose keys are data.
    pub fn into_entries(self) -> Vec<(String, Value)> {
        self.fields.into_iter().collect()
    }
}

/// A value in a message: short, and of long texts only the beginning.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 40 => {
            format!("\"{}…\"", text.chars().take(40).collect::<String>().escape_debug())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(result: Result<impl Sized, ApiError>) -> String {
        result.err().expect("refused").message
    }

    #[test]
    fn fields_are_typed_and_named() {
        let mut o = Object::new(json!({"a": "x", "n": 3.0, "f": 0.5, "b": true, "l": [1, 2]}), "").unwrap();
        assert_eq!(o.string("a").unwrap().as_deref(), Some("x"));
        assert_eq!(o.integer("n", 0, 5).unwrap(), Some(3));
        assert_eq!(o.number("f", 0.0, 1.0).unwrap(), Some(0.5));
        assert_eq!(o.bool("b").unwrap(), Some(true));
        assert_eq!(o.array("l", 2).unwrap().unwrap().len(), 2);
        assert_eq!(o.string("absent").unwrap(), None);
        o.finish().expect("nothing is left");
    }

    #[test]
    fn wrong_values_name_field_value_and_range() {
        let object =
            || Object::new(json!({"a": 1, "n": -1, "l": [1, 2, 3], "s": "x".repeat(99)}), "m[0]").unwrap();
        assert_eq!(message(object().string("a")), "`m[0].a` is 1, expected a string");
        assert_eq!(message(object().integer("n", 0, 5)), "`m[0].n` is -1, expected a whole number of 0 to 5");
        assert_eq!(message(object().array("l", 2)), "`m[0].l` is a list of 3, expected at most 2 elements");
        assert!(message(object().bool("s")).starts_with("`m[0].s` is \"xxx"));
        assert_eq!(message(object().need_string("t")), "`m[0].t` is missing, expected a string");
        assert_eq!(message(Object::new(json!(3), "")), "`body` is 3, expected an object");
    }

    #[test]
    fn what_is_left_is_refused_unless_null() {
        let o = Object::new(json!({"a": null}), "").unwrap();
        o.finish().expect("null is none");
        let error = Object::new(json!({"b": 1}), "").unwrap().finish().unwrap_err();
        assert_eq!((error.param.as_deref(), error.code), (Some("b"), Some("unknown_parameter")));
    }

    #[test]
    fn neutral_values_pass() {
        let object = || Object::new(json!({"store": true}), "").unwrap();
        assert!(object().only("store", &[json!(true)], "x").is_ok());
        assert_eq!(
            message(object().only("store", &[json!(false)], "nothing is kept")),
            "`store` is not supported: nothing is kept (it is true)"
        );
    }
}
