//! Typed arrays of metadata. Strings lie in one buffer: a vocabulary of 250,000 tokens is two allocations.

use crate::value::ValueType;
use std::ops::Index;

/// An array of one element type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Strings(StringArray),
    /// Strings of which at least one is not UTF-8. Written as strings; read back as `Strings` if all are UTF-8.
    RawStrings(RawStringArray),
    /// Arrays in an array; element types may differ. Depth at most [`crate::limits::ARRAY_DEPTH_MAX`].
    Arrays(Vec<Array>),
}

impl Array {
    /// Elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Strings(v) => v.len(),
            Array::RawStrings(v) => v.len(),
            Array::Arrays(v) => v.len(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements, as the file names it.
    pub fn element_type(&self) -> ValueType {
        match self {
            Array::U8(_) => ValueType::U8,
            Array::I8(_) => ValueType::I8,
            Array::U16(_) => ValueType::U16,
            Array::I16(_) => ValueType::I16,
            Array::U32(_) => ValueType::U32,
            Array::I32(_) => ValueType::I32,
            Array::U64(_) => ValueType::U64,
            Array::I64(_) => ValueType::I64,
            Array::F32(_) => ValueType::F32,
            Array::F64(_) => ValueType::F64,
            Array::Bool(_) => ValueType::Bool,
            Array::Strings(_) | Array::RawStrings(_) => ValueType::String,
            Array::Arrays(_) => ValueType::Array,
        }
    }

    /// 1 for an array of plain values, one more per level of arrays.
    pub fn depth(&self) -> usize {
        match self {
            Array::Arrays(inner) => 1 + inner.iter().map(Array::depth).max().unwrap_or(0),
            _ => 1,
        }
    }
}

/// Many strings in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    text: String,
    /// `ends[i]` is where string `i` ends in `text`; always a character boundary.
    ends: Vec<usize>,
}

impl StringArray {
    /// No strings.
    pub fn new() -> StringArray {
        StringArray::default()
    }

    /// Strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let range = range(&self.ends, index)?;
        self.text.get(range)
    }

    /// All strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|i| &self[i])
    }

    /// Appends one string.
    pub fn push(&mut self, string: &str) {
        self.text.push_str(string);
        self.ends.push(self.text.len());
    }

    /// Each string on its own.
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }

    /// Bytes of all strings together.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

impl Index<usize> for StringArray {
    type Output = str;

    /// # Panics
    /// If `index` is not below `len()`.
    fn index(&self, index: usize) -> &str {
        self.get(index).expect("index below len()")
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> StringArray {
        let mut array = StringArray::new();
        strings.into_iter().for_each(|s| array.push(s.as_ref()));
        array
    }
}

/// Many byte strings in one buffer: what a file holds where strings are not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawStringArray {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RawStringArray {
    /// No strings.
    pub fn new() -> RawStringArray {
        RawStringArray::default()
    }

    /// Strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(range(&self.ends, index)?)
    }

    /// All strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|i| self.get(i).expect("index below len()"))
    }

    /// Appends one string.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// The first string that is not UTF-8.
    pub fn first_not_utf8(&self) -> Option<usize> {
        self.iter().position(|s| str::from_utf8(s).is_err())
    }

    /// Appends what `fill` adds to the buffer, as one string.
    pub(crate) fn push_with<E>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        fill(&mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// `Strings` if every string is UTF-8, otherwise `RawStrings`. One pass over the buffer: it is UTF-8 as a
    /// whole and cut at character boundaries exactly if every string is.
    pub(crate) fn into_array(mut self) -> Array {
        self.ends.shrink_to_fit();
        self.bytes.shrink_to_fit();
        let ends = self.ends;
        match String::from_utf8(self.bytes) {
            Ok(text) if ends.iter().all(|&end| text.is_char_boundary(end)) => {
                Array::Strings(StringArray { text, ends })
            }
            Ok(text) => Array::RawStrings(RawStringArray { bytes: text.into_bytes(), ends }),
            Err(error) => Array::RawStrings(RawStringArray { bytes: error.into_bytes(), ends }),
        }
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for RawStringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> RawStringArray {
        let mut array = RawStringArray::new();
        strings.into_iter().for_each(|s| array.push(s.as_ref()));
        array
    }
}

fn range(ends: &[usize], index: usize) -> Option<std::ops::Range<usize>> {
    let end = *ends.get(index)?;
    let start = index.checked_sub(1).map_or(0, |i| ends[i]);
    Some(start..end)
}

macro_rules! from_vec {
    ($($variant:ident($t:ty)),*) => {$(
        impl From<Vec<$t>> for Array {
            fn from(values: Vec<$t>) -> Array {
                Array::$variant(values)
            }
        }
    )*};
}
from_vec!(
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Arrays(Array)
);

impl From<StringArray> for Array {
    fn from(strings: StringArray) -> Array {
        Array::Strings(strings)
    }
}

impl From<Vec<String>> for Array {
    fn from(strings: Vec<String>) -> Array {
        Array::Strings(strings.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_their_borders() {
        let array: StringArray = ["", "ä", "bc", ""].into_iter().collect();
        assert_eq!(array.len(), 4);
        assert_eq!(array.iter().collect::<Vec<_>>(), ["", "ä", "bc", ""]);
        assert_eq!(array.get(1), Some("ä"));
        assert_eq!(array.get(4), None);
        assert_eq!(array.text_bytes(), 4);
        assert_eq!(StringArray::new().get(0), None);
    }

    #[test]
    fn a_character_cut_across_two_strings_is_not_utf8() {
        let cut: RawStringArray = [&b"\xc3"[..], b"\xa4"].into_iter().collect();
        assert_eq!(cut.first_not_utf8(), Some(0));
        assert_eq!(cut.clone().into_array(), Array::RawStrings(cut));
        let whole: RawStringArray = [&b"\xc3\xa4"[..], b""].into_iter().collect();
        assert_eq!(whole.into_array(), Array::Strings(["ä", ""].into_iter().collect()));
    }

    #[test]
    fn depth_counts_levels() {
        assert_eq!(Array::U8(vec![]).depth(), 1);
        assert_eq!(Array::Arrays(vec![]).depth(), 1);
        assert_eq!(Array::Arrays(vec![Array::U8(vec![]), Array::Arrays(vec![Array::U8(vec![])])]).depth(), 3);
    }
}
