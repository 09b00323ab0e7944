//! Where everything in a file to be written goes.

use super::WriteError;
use crate::array::Array;
use crate::header::{ALIGNMENT_KEY, Header, MAGIC, alignment};
use crate::limits::ALIGNMENT_DEFAULT;
use crate::metadata::Metadata;
use crate::tensor::{TensorInfo, TensorSpec, tensor_bytes};
use crate::value::Value;

/// The version that is written.
const VERSION: u32 = 3;

/// Header bytes and tensor places of a file to be written: its size is known before any data is.
#[derive(Clone, Debug)]
pub struct Layout {
    header: Vec<u8>,
    tensors: Vec<TensorInfo>,
    file_bytes: u64,
}

impl Layout {
    /// Lays out a file of these tensors in this order, each padded to `alignment`, the last one too. Metadata is
    /// written in its order; where it has no `general.alignment` and `alignment` is not 32, the key is added.
    ///
    /// Cost: the header is encoded in memory and read back, so that what is written can be read.
    /// # Errors
    /// If a shape is impossible, the alignment contradicts the metadata, or [`Header::read`] would refuse the file.
    pub fn new(metadata: &Metadata, tensors: Vec<TensorSpec>, alignment: u64) -> Result<Layout, WriteError> {
        let added = alignment_to_add(metadata, alignment)?;
        let places = place(tensors, alignment)?;

        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((places.tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64 + u64::from(added.is_some())).to_le_bytes());
        let added = added.as_ref().map(|value| (ALIGNMENT_KEY, value));
        for (key, value) in metadata.iter().chain(added) {
            encode_string(key.as_bytes(), &mut header);
            header.extend(value.value_type().id().to_le_bytes());
            encode_value(value, &mut header);
        }
        for tensor in &places.tensors {
            encode_string(tensor.name.as_bytes(), &mut header);
            header.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|n| header.extend(n.to_le_bytes()));
            header.extend(tensor.ty.id().to_le_bytes());
            header.extend(tensor.offset.to_le_bytes());
        }
        header.resize(header.len().next_multiple_of(alignment as usize), 0);

        let file_bytes = places
            .data_bytes
            .checked_add(header.len() as u64)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .ok_or_else(|| WriteError::TooBig { tensor: last_name(&places.tensors) })?;
        let read =
            Header::read(&header[..], file_bytes).map_err(|source| WriteError::Unreadable { source })?;
        assert_eq!(read.data_offset, header.len() as u64, "the reader must agree on where data begins");
        Ok(Layout { header, tensors: read.tensors, file_bytes })
    }

    /// The bytes before the data, padding included.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Where each tensor goes, in the order of writing.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Bytes of the whole file, padding included.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }
}

/// The key that has to be added for the reader to find `asked`.
fn alignment_to_add(metadata: &Metadata, asked: u64) -> Result<Option<Value>, WriteError> {
    if metadata.contains(ALIGNMENT_KEY) {
        let found = alignment(metadata).map_err(|source| WriteError::Unreadable { source })?;
        return if found == asked { Ok(None) } else { Err(WriteError::Alignment { asked, found }) };
    }
    if asked == ALIGNMENT_DEFAULT {
        return Ok(None);
    }
    // ggml wants the key as u32; what does not fit is refused as no alignment.
    let value = Value::U32(u32::try_from(asked).unwrap_or(u32::MAX));
    let mut alone = Metadata::new();
    alone.set(ALIGNMENT_KEY, value.clone());
    alignment(&alone).map_err(|source| WriteError::Unreadable { source })?;
    Ok(Some(value))
}

struct Places {
    /// Offsets from the start of the data.
    tensors: Vec<TensorInfo>,
    data_bytes: u64,
}

fn place(specs: Vec<TensorSpec>, alignment: u64) -> Result<Places, WriteError> {
    let mut tensors = Vec::with_capacity(specs.len());
    let mut data_bytes = 0u64;
    for TensorSpec { name, ty, shape } in specs {
        let size = match tensor_bytes(ty, &shape) {
            Ok(size) => size,
            Err(source) => return Err(WriteError::Shape { tensor: name, source }),
        };
        let end = data_bytes.checked_add(size).and_then(|end| end.checked_next_multiple_of(alignment));
        let Some(end) = end else { return Err(WriteError::TooBig { tensor: name }) };
        tensors.push(TensorInfo { name, ty, shape, file: 0, offset: data_bytes, size });
        data_bytes = end;
    }
    Ok(Places { tensors, data_bytes })
}

fn last_name(tensors: &[TensorInfo]) -> String {
    tensors.last().map_or(String::new(), |t| t.name.clone())
}

fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Without the type id.
fn encode_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::U8(v) => out.extend(v.to_le_bytes()),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => encode_string(v.as_bytes(), out),
        Value::RawString(v) => encode_string(v, out),
        Value::Array(v) => encode_array(v, out),
    }
}

fn encode_array(array: &Array, out: &mut Vec<u8>) {
    out.extend(array.element_type().id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::U16(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::I16(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::U32(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::I32(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::U64(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::I64(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::F32(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::F64(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&v| u8::from(v))),
        Array::Strings(v) => v.iter().for_each(|v| encode_string(v.as_bytes(), out)),
        Array::RawStrings(v) => v.iter().for_each(|v| encode_string(v, out)),
        Array::Arrays(v) => v.iter().for_each(|v| encode_array(v, out)),
    }
}
