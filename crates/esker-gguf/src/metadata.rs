//! Metadata: keys to values in file order, with typed access whose errors name the key.

use crate::array::{Array, StringArray};
use crate::value::Value;
use indexmap::IndexMap;
use thiserror::Error;

/// The key-value pairs of a file, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: IndexMap<String, Value>,
}

/// Why a key cannot be used as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// No such key.
    #[error("key `{key}` is missing")]
    Missing {
        /// The key.
        key: String,
    },
    /// The value is of a type that does not convert.
    #[error("key `{key}` is {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// The type in the file, in words.
        found: String,
        /// What was asked for, in words.
        expected: &'static str,
    },
    /// The number does not fit the type asked for.
    #[error("key `{key}`{} is {value}, expected {expected}", element(.index))]
    OutOfRange {
        /// The key.
        key: String,
        /// Which element, if the value is an array.
        index: Option<usize>,
        /// The number in the file.
        value: String,
        /// What was asked for, in words.
        expected: &'static str,
    },
    /// A string is not UTF-8.
    #[error("key `{key}`{} is not UTF-8", element(.index))]
    NotUtf8 {
        /// The key.
        key: String,
        /// Which element, if the value is an array.
        index: Option<usize>,
    },
    /// A per-layer array has another number of elements than there are layers.
    #[error("key `{key}` has {found} elements, expected {expected}")]
    WrongLength {
        /// The key.
        key: String,
        /// Elements in the file.
        found: usize,
        /// Elements needed.
        expected: usize,
    },
}

fn element(index: &Option<usize>) -> String {
    index.map_or(String::new(), |i| format!(" element {i}"))
}

impl Metadata {
    /// No keys.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// True if `key` is there.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All pairs, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Sets `key`; a key that is there keeps its place. Returns the value that it had.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.entries.insert(key.into(), value.into())
    }

    /// Removes `key`; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.entries.shift_remove(key)
    }

    /// Removes the keys for which `keep` is false; the others keep their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Value) -> bool) {
        self.entries.retain(|k, v| keep(k, v));
    }

    fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, MetadataError> {
        self.optional(key)?.ok_or_else(|| MetadataError::Missing { key: key.to_owned() })
    }

    fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, MetadataError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).map_err(|mismatch| mismatch.of::<T>(key, value))
    }

    fn per_layer<'a, T>(&'a self, key: &str, n_layer: usize) -> Result<Option<Vec<T>>, MetadataError>
    where
        T: FromValue<'a> + Clone,
        Vec<T>: FromValue<'a>,
    {
        match self.get(key) {
            Some(Value::Array(_)) => {
                let values = self.required::<Vec<T>>(key)?;
                if values.len() != n_layer {
                    return Err(MetadataError::WrongLength {
                        key: key.to_owned(),
                        found: values.len(),
                        expected: n_layer,
                    });
                }
                Ok(Some(values))
            }
            Some(_) => Ok(Some(vec![self.required::<T>(key)?; n_layer])),
            None => Ok(None),
        }
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident, $opt:ident -> $t:ty;)*) => {
        impl Metadata {$(
            $(#[$doc])*
            /// # Errors
            /// If the key is missing, or its value is none of these.
            pub fn $name(&self, key: &str) -> Result<$t, MetadataError> {
                self.required(key)
            }

            #[doc = concat!("As [`Metadata::", stringify!($name), "`], `None` if the key is missing.")]
            pub fn $opt(&self, key: &str) -> Result<Option<$t>, MetadataError> {
                self.optional(key)
            }
        )*}
    };
}

getters! {
    /// An integer of any width and sign whose value fits.
    u32, opt_u32 -> u32;
    /// An integer of any width and sign whose value fits.
    u64, opt_u64 -> u64;
    /// An integer of any width and sign whose value fits.
    i32, opt_i32 -> i32;
    /// An integer of any width and sign whose value fits.
    i64, opt_i64 -> i64;
    /// A float (rounded if it is an f64), or an integer that f32 holds exactly.
    f32, opt_f32 -> f32;
    /// A float, or an integer that f64 holds exactly.
    f64, opt_f64 -> f64;
    /// A bool; numbers do not convert.
    bool, opt_bool -> bool;
    /// A string in UTF-8.
    str, opt_str -> &str;
    /// An array of integers of any width and sign whose values fit.
    u32_array, opt_u32_array -> Vec<u32>;
    /// An array of integers of any width and sign whose values fit.
    u64_array, opt_u64_array -> Vec<u64>;
    /// An array of integers of any width and sign whose values fit.
    i32_array, opt_i32_array -> Vec<i32>;
    /// An array of floats, or of integers that f32 holds exactly.
    f32_array, opt_f32_array -> Vec<f32>;
    /// An array of bools.
    bool_array, opt_bool_array -> Vec<bool>;
    /// An array of strings in UTF-8.
    str_array, opt_str_array -> &StringArray;
}

macro_rules! per_layer_getters {
    ($($name:ident, $opt:ident -> $t:ty;)*) => {
        impl Metadata {$(
            /// One value per layer: an array of `n_layer` elements, or a single value that holds for all.
            /// # Errors
            /// If the key is missing, of another type, or has another number of elements.
            pub fn $name(&self, key: &str, n_layer: usize) -> Result<Vec<$t>, MetadataError> {
                self.$opt(key, n_layer)?.ok_or_else(|| MetadataError::Missing { key: key.to_owned() })
            }

            #[doc = concat!("As [`Metadata::", stringify!($name), "`], `None` if the key is missing.")]
            pub fn $opt(&self, key: &str, n_layer: usize) -> Result<Option<Vec<$t>>, MetadataError> {
                self.per_layer(key, n_layer)
            }
        )*}
    };
}

per_layer_getters! {
    u32_per_layer, opt_u32_per_layer -> u32;
    f32_per_layer, opt_f32_per_layer -> f32;
    bool_per_layer, opt_bool_per_layer -> bool;
}

/// Why a value does not convert, without the key.
enum Mismatch {
    Type,
    Range { index: Option<usize>, value: String },
    Utf8 { index: Option<usize> },
}

impl Mismatch {
    fn at(self, i: usize) -> Mismatch {
        match self {
            Mismatch::Type => Mismatch::Type,
            Mismatch::Range { value, .. } => Mismatch::Range { index: Some(i), value },
            Mismatch::Utf8 { .. } => Mismatch::Utf8 { index: Some(i) },
        }
    }

    fn of<'a, T: FromValue<'a>>(self, key: &str, value: &Value) -> MetadataError {
        let key = key.to_owned();
        match self {
            Mismatch::Type => {
                MetadataError::WrongType { key, found: value.type_name(), expected: T::EXPECTED }
            }
            Mismatch::Range { index, value } => {
                MetadataError::OutOfRange { key, index, value, expected: T::EXPECTED }
            }
            Mismatch::Utf8 { index } => MetadataError::NotUtf8 { key, index },
        }
    }
}

/// Private: the getters above are its only users, so that callers see plain names.
trait FromValue<'a>: Sized {
    /// What was asked for, in words.
    const EXPECTED: &'static str;
    fn from_value(value: &'a Value) -> Result<Self, Mismatch>;
}

macro_rules! from_integer {
    ($($t:ty: $words:literal, $array_words:literal;)*) => {$(
        impl FromValue<'_> for $t {
            const EXPECTED: &'static str = $words;

            fn from_value(value: &Value) -> Result<$t, Mismatch> {
                let integer = value.as_integer().ok_or(Mismatch::Type)?;
                <$t>::try_from(integer)
                    .map_err(|_| Mismatch::Range { index: None, value: integer.to_string() })
            }
        }

        impl FromValue<'_> for Vec<$t> {
            const EXPECTED: &'static str = $array_words;

            fn from_value(value: &Value) -> Result<Vec<$t>, Mismatch> {
                collect(value)
            }
        }
    )*};
}
from_integer! {
    u32: "an integer of 0 to 2^32-1", "an array of integers of 0 to 2^32-1";
    u64: "an integer of 0 to 2^64-1", "an array of integers of 0 to 2^64-1";
    i32: "an integer of -2^31 to 2^31-1", "an array of integers of -2^31 to 2^31-1";
    i64: "an integer of -2^63 to 2^63-1", "an array of integers of -2^63 to 2^63-1";
}

impl FromValue<'_> for f64 {
    const EXPECTED: &'static str = "a number that f64 holds";

    fn from_value(value: &Value) -> Result<f64, Mismatch> {
        match *value {
            Value::F32(v) => Ok(v.into()),
            Value::F64(v) => Ok(v),
            _ => {
                let integer = value.as_integer().ok_or(Mismatch::Type)?;
                let float = integer as f64;
                if float as i128 != integer {
                    return Err(Mismatch::Range { index: None, value: integer.to_string() });
                }
                Ok(float)
            }
        }
    }
}

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a number that f32 holds";

    fn from_value(value: &Value) -> Result<f32, Mismatch> {
        if let Value::F32(v) = *value {
            return Ok(v); // Not by way of f64, which may change the bits of a NaN.
        }
        let wide = f64::from_value(value)?;
        let float = wide as f32;
        let is_integer = value.as_integer().is_some();
        if (is_integer && f64::from(float) != wide) || (float.is_infinite() && wide.is_finite()) {
            return Err(Mismatch::Range { index: None, value: wide.to_string() });
        }
        Ok(float)
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a bool";

    fn from_value(value: &Value) -> Result<bool, Mismatch> {
        match *value {
            Value::Bool(v) => Ok(v),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";

    fn from_value(value: &'a Value) -> Result<&'a str, Mismatch> {
        match value {
            Value::String(v) => Ok(v),
            Value::RawString(_) => Err(Mismatch::Utf8 { index: None }),
            _ => Err(Mismatch::Type),
        }
    }
}

impl FromValue<'_> for Vec<f32> {
    const EXPECTED: &'static str = "an array of numbers that f32 holds";

    fn from_value(value: &Value) -> Result<Vec<f32>, Mismatch> {
        collect(value)
    }
}

impl FromValue<'_> for Vec<bool> {
    const EXPECTED: &'static str = "an array of bools";

    fn from_value(value: &Value) -> Result<Vec<bool>, Mismatch> {
        collect(value)
    }
}

impl<'a> FromValue<'a> for &'a StringArray {
    const EXPECTED: &'static str = "an array of strings";

    fn from_value(value: &'a Value) -> Result<&'a StringArray, Mismatch> {
        match value {
            Value::Array(Array::Strings(strings)) => Ok(strings),
            Value::Array(Array::RawStrings(raw)) => Err(Mismatch::Utf8 { index: raw.first_not_utf8() }),
            _ => Err(Mismatch::Type),
        }
    }
}

/// Converts each element as if it stood alone.
fn collect<T: for<'a> FromValue<'a>>(value: &Value) -> Result<Vec<T>, Mismatch> {
    fn each<S: Copy + Into<Value>, T: for<'a> FromValue<'a>>(values: &[S]) -> Result<Vec<T>, Mismatch> {
        values.iter().enumerate().map(|(i, &v)| T::from_value(&v.into()).map_err(|m| m.at(i))).collect()
    }
    match value {
        Value::Array(Array::U8(v)) => each(v),
        Value::Array(Array::I8(v)) => each(v),
        Value::Array(Array::U16(v)) => each(v),
        Value::Array(Array::I16(v)) => each(v),
        Value::Array(Array::U32(v)) => each(v),
        Value::Array(Array::I32(v)) => each(v),
        Value::Array(Array::U64(v)) => each(v),
        Value::Array(Array::I64(v)) => each(v),
        Value::Array(Array::F32(v)) => each(v),
        Value::Array(Array::F64(v)) => each(v),
        Value::Array(Array::Bool(v)) => each(v),
        _ => Err(Mismatch::Type),
    }
}

#[cfg(test)]
mod tests;
