//! The header of one file: start, metadata, tensor directory, in the order of the bytes.

use crate::array::{Array, RawStringArray};
use crate::cursor::{Cursor, Fault};
use crate::error::{ParseError, Place};
use crate::limits::{
    ALIGNMENT_DEFAULT, ALIGNMENT_MAX, ARRAY_DEPTH_MAX, DIMS_MAX, KEY_BYTES_MAX, KEYS_MAX,
    TENSOR_NAME_BYTES_MAX, TENSORS_MAX,
};
use crate::metadata::Metadata;
use crate::tensor::{ShapeError, TensorInfo, tensor_bytes};
use crate::value::{Value, ValueType};
use esker_quant::GgmlType;
use std::io::{BufReader, Read};

/// `general.alignment`.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";

/// All of one file but the tensor data.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// 2 or 3; they differ in nothing that is read here.
    pub version: u32,
    /// `general.alignment`, or 32.
    pub alignment: u64,
    /// Key-value pairs in file order.
    pub metadata: Metadata,
    /// Tensors in directory order; offsets count from the start of the file, `file` is 0.
    pub tensors: Vec<TensorInfo>,
    /// Where tensor data begins.
    pub data_offset: u64,
    /// Length of the file.
    pub file_bytes: u64,
}

impl Header {
    /// Reads a header. `reader` is at the start of a file of `file_bytes` bytes; it is read in large steps, a
    /// little past the header. Every tensor is checked to lie inside the file, and to share no byte with another.
    ///
    /// Memory: a small multiple of the bytes read.
    /// # Errors
    /// If the bytes are no GGUF header of version 2 or 3 within [`crate::limits`].
    pub fn read<R: Read>(reader: R, file_bytes: u64) -> Result<Header, ParseError> {
        let buffer_bytes = file_bytes.min(256 << 10) as usize;
        let mut cursor = Cursor::new(BufReader::with_capacity(buffer_bytes, reader), file_bytes);
        let start = read_start(&mut cursor)?;

        let mut metadata = Metadata::new();
        for index in 0..start.n_keys {
            let offset = cursor.offset();
            let key = read_key(&mut cursor, index)?;
            if metadata.contains(&key) {
                return Err(ParseError::DuplicateKey { key, offset });
            }
            let value = read_value(&mut cursor, &key)?;
            metadata.set(key, value);
        }
        let alignment = alignment(&metadata)?;

        let mut tensors = Vec::new();
        for index in 0..start.n_tensors {
            tensors.push(read_tensor(&mut cursor, index, alignment)?);
        }
        let data_offset = cursor.offset().next_multiple_of(alignment);
        for tensor in &mut tensors {
            place(tensor, data_offset, file_bytes)?;
        }
        check_distinct(&tensors)?;
        check_overlap(&tensors)?;
        Ok(Header { version: start.version, alignment, metadata, tensors, data_offset, file_bytes })
    }
}

struct Start {
    version: u32,
    n_tensors: u64,
    n_keys: u64,
}

fn read_start<R: Read>(cursor: &mut Cursor<R>) -> Result<Start, ParseError> {
    let at = |fault: Fault| fault.at(Place::Start);
    let magic: [u8; 4] = cursor.array().map_err(at)?;
    let swapped = magic.iter().rev().eq(MAGIC.iter());
    if magic != MAGIC && !swapped {
        return Err(ParseError::NotGguf { found: magic });
    }
    let version = cursor.u32().map_err(at)?;
    // A writer of the other byte order may keep the magic and swap only the numbers; no version has 65,536.
    if swapped || version & 0xffff == 0 {
        return Err(ParseError::BigEndian { version: version.swap_bytes() });
    }
    if !(2..=3).contains(&version) {
        return Err(ParseError::UnsupportedVersion { version });
    }
    let n_tensors = cursor.u64().map_err(at)?;
    let n_keys = cursor.u64().map_err(at)?;
    if n_tensors > TENSORS_MAX {
        return Err(ParseError::TooManyTensors { count: n_tensors, max: TENSORS_MAX });
    }
    if n_keys > KEYS_MAX {
        return Err(ParseError::TooManyKeys { count: n_keys, max: KEYS_MAX });
    }
    Ok(Start { version, n_tensors, n_keys })
}

fn read_key<R: Read>(cursor: &mut Cursor<R>, index: u64) -> Result<String, ParseError> {
    let at = |fault: Fault| fault.at(Place::Key { index });
    let offset = cursor.offset();
    let bytes = cursor.u64().map_err(at)?;
    if !(1..=KEY_BYTES_MAX).contains(&bytes) {
        return Err(ParseError::KeyLength { index, offset, bytes });
    }
    let mut key = Vec::new();
    cursor.append(bytes, &mut key).map_err(at)?;
    printable(key).map_err(|key| ParseError::KeyText { index, offset, key })
}

fn read_value<R: Read>(cursor: &mut Cursor<R>, key: &str) -> Result<Value, ParseError> {
    let at = |fault: Fault| fault.at(Place::Value { key: key.to_owned() });
    Ok(match read_value_type(cursor, key)? {
        ValueType::U8 => Value::U8(cursor.array().map(u8::from_le_bytes).map_err(at)?),
        ValueType::I8 => Value::I8(cursor.array().map(i8::from_le_bytes).map_err(at)?),
        ValueType::U16 => Value::U16(cursor.array().map(u16::from_le_bytes).map_err(at)?),
        ValueType::I16 => Value::I16(cursor.array().map(i16::from_le_bytes).map_err(at)?),
        ValueType::U32 => Value::U32(cursor.u32().map_err(at)?),
        ValueType::I32 => Value::I32(cursor.array().map(i32::from_le_bytes).map_err(at)?),
        ValueType::U64 => Value::U64(cursor.u64().map_err(at)?),
        ValueType::I64 => Value::I64(cursor.array().map(i64::from_le_bytes).map_err(at)?),
        ValueType::F32 => Value::F32(cursor.array().map(f32::from_le_bytes).map_err(at)?),
        ValueType::F64 => Value::F64(cursor.array().map(f64::from_le_bytes).map_err(at)?),
        ValueType::Bool => {
            let offset = cursor.offset();
            let [byte] = cursor.array().map_err(at)?;
            Value::Bool(to_bool(key, offset, byte)?)
        }
        ValueType::String => {
            let bytes = cursor.u64().map_err(at)?;
            let mut text = Vec::new();
            cursor.append(bytes, &mut text).map_err(at)?;
            match String::from_utf8(text) {
                Ok(text) => Value::String(text),
                Err(error) => Value::RawString(error.into_bytes()),
            }
        }
        ValueType::Array => Value::Array(read_array(cursor, key, 1)?),
    })
}

fn read_value_type<R: Read>(cursor: &mut Cursor<R>, key: &str) -> Result<ValueType, ParseError> {
    let offset = cursor.offset();
    let id = cursor.u32().map_err(|fault| fault.at(Place::Value { key: key.to_owned() }))?;
    ValueType::from_id(id).ok_or_else(|| ParseError::ValueType { key: key.to_owned(), offset, id })
}

/// `depth` is the level of this array, from 1; the recursion is as deep as the limit allows.
fn read_array<R: Read>(cursor: &mut Cursor<R>, key: &str, depth: usize) -> Result<Array, ParseError> {
    let at = |fault: Fault| fault.at(Place::Value { key: key.to_owned() });
    let offset = cursor.offset();
    if depth > ARRAY_DEPTH_MAX {
        return Err(ParseError::ArrayDepth { key: key.to_owned(), offset });
    }
    let element_type = read_value_type(cursor, key)?;
    let count = cursor.u64().map_err(at)?;
    Ok(match element_type {
        ValueType::U8 => Array::U8(cursor.numbers(count, u8::from_le_bytes).map_err(at)?),
        ValueType::I8 => Array::I8(cursor.numbers(count, i8::from_le_bytes).map_err(at)?),
        ValueType::U16 => Array::U16(cursor.numbers(count, u16::from_le_bytes).map_err(at)?),
        ValueType::I16 => Array::I16(cursor.numbers(count, i16::from_le_bytes).map_err(at)?),
        ValueType::U32 => Array::U32(cursor.numbers(count, u32::from_le_bytes).map_err(at)?),
        ValueType::I32 => Array::I32(cursor.numbers(count, i32::from_le_bytes).map_err(at)?),
        ValueType::U64 => Array::U64(cursor.numbers(count, u64::from_le_bytes).map_err(at)?),
        ValueType::I64 => Array::I64(cursor.numbers(count, i64::from_le_bytes).map_err(at)?),
        ValueType::F32 => Array::F32(cursor.numbers(count, f32::from_le_bytes).map_err(at)?),
        ValueType::F64 => Array::F64(cursor.numbers(count, f64::from_le_bytes).map_err(at)?),
        ValueType::Bool => {
            let start = cursor.offset();
            let bytes = cursor.numbers(count, u8::from_le_bytes).map_err(at)?;
            let bools = bytes.iter().zip(start..).map(|(&byte, offset)| to_bool(key, offset, byte));
            Array::Bool(bools.collect::<Result<_, _>>()?)
        }
        ValueType::String => {
            // Each string has at least its length.
            cursor.ensure(count.saturating_mul(8)).map_err(at)?;
            let mut strings = RawStringArray::new();
            for _ in 0..count {
                let bytes = cursor.u64().map_err(at)?;
                strings.push_with(|buffer| cursor.append(bytes, buffer)).map_err(at)?;
            }
            strings.into_array()
        }
        ValueType::Array => {
            // Each array has at least its type and its length.
            cursor.ensure(count.saturating_mul(12)).map_err(at)?;
            let mut arrays = Vec::new();
            for _ in 0..count {
                arrays.push(read_array(cursor, key, depth + 1)?);
            }
            Array::Arrays(arrays)
        }
    })
}

fn to_bool(key: &str, offset: u64, byte: u8) -> Result<bool, ParseError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(ParseError::Bool { key: key.to_owned(), offset, value }),
    }
}

/// The value of `general.alignment`, checked.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u64, ParseError> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(ALIGNMENT_DEFAULT) };
    let integer = value.as_integer();
    integer
        .and_then(|n| u64::try_from(n).ok())
        .filter(|&n| is_alignment(n))
        .ok_or_else(|| ParseError::Alignment { found: integer.map_or(value.type_name(), |n| n.to_string()) })
}

pub(crate) fn is_alignment(n: u64) -> bool {
    n.is_power_of_two() && n <= ALIGNMENT_MAX
}

/// Reads one entry of the directory; `offset` is as in the file, from the start of the data.
fn read_tensor<R: Read>(
    cursor: &mut Cursor<R>,
    index: u64,
    alignment: u64,
) -> Result<TensorInfo, ParseError> {
    let at = |fault: Fault| fault.at(Place::TensorName { index });
    let entry = cursor.offset();
    let bytes = cursor.u64().map_err(at)?;
    if !(1..=TENSOR_NAME_BYTES_MAX).contains(&bytes) {
        return Err(ParseError::NameLength { index, offset: entry, bytes });
    }
    let mut name = Vec::new();
    cursor.append(bytes, &mut name).map_err(at)?;
    let name = printable(name).map_err(|name| ParseError::NameText { index, offset: entry, name })?;

    let at = |fault: Fault| fault.at(Place::Tensor { name: name.clone() });
    let n_dims = cursor.u32().map_err(at)?;
    if n_dims as usize > DIMS_MAX {
        let source = ShapeError::TooManyDims { n_dims: n_dims.into() };
        return Err(ParseError::Shape { tensor: name, offset: entry, source });
    }
    let mut shape = cursor.numbers(n_dims.into(), u64::from_le_bytes).map_err(at)?;
    if shape.is_empty() {
        shape.push(1); // A scalar; one dimension means the same and spares every reader the case.
    }
    let type_id = cursor.u32().map_err(at)?;
    let offset = cursor.u64().map_err(at)?;

    let ty = GgmlType::from_id(type_id).map_err(|source| ParseError::UnknownType {
        tensor: name.clone(),
        offset: entry,
        source,
    })?;
    let size = tensor_bytes(ty, &shape).map_err(|source| ParseError::Shape {
        tensor: name.clone(),
        offset: entry,
        source,
    })?;
    if !offset.is_multiple_of(alignment) {
        return Err(ParseError::Misaligned { tensor: name, data_offset: offset, alignment });
    }
    Ok(TensorInfo { name, ty, shape, file: 0, offset, size })
}

/// Makes the offset absolute; the tensor must end inside the file.
fn place(tensor: &mut TensorInfo, data_offset: u64, file_bytes: u64) -> Result<(), ParseError> {
    let start = tensor.offset.saturating_add(data_offset);
    if start.checked_add(tensor.size).is_none_or(|end| end > file_bytes) {
        let tensor = tensor.clone();
        return Err(ParseError::OutsideFile { tensor: tensor.name, start, size: tensor.size, file_bytes });
    }
    tensor.offset = start;
    Ok(())
}

fn check_distinct(tensors: &[TensorInfo]) -> Result<(), ParseError> {
    let mut names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ParseError::DuplicateTensor { name: pair[0].to_owned() }),
        None => Ok(()),
    }
}

fn check_overlap(tensors: &[TensorInfo]) -> Result<(), ParseError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_unstable_by_key(|t| t.offset);
    match by_offset.windows(2).find(|pair| pair[0].offset + pair[0].size > pair[1].offset) {
        Some(pair) => Err(ParseError::Overlap {
            first: pair[0].name.clone(),
            ty: pair[0].ty,
            first_start: pair[0].offset,
            first_size: pair[0].size,
            second: pair[1].name.clone(),
            second_start: pair[1].offset,
        }),
        None => Ok(()),
    }
}

/// The text, or what to print where it is not fit to be printed.
pub(crate) fn printable(bytes: Vec<u8>) -> Result<String, String> {
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => Ok(text),
        Ok(text) => Err(text.escape_debug().to_string()),
        Err(error) => Err(error.as_bytes().escape_ascii().to_string()),
    }
}
