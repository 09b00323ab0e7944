//! What can be wrong with a file: one enum for the bytes of a header, one for opening a path.

use crate::limits::{ALIGNMENT_MAX, ARRAY_DEPTH_MAX, KEY_BYTES_MAX, TENSOR_NAME_BYTES_MAX};
use crate::metadata::MetadataError;
use crate::tensor::ShapeError;
use esker_quant::{GgmlType, UnknownType};
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What was being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Magic, version and counts.
    Start,
    /// The key of metadata entry `index`, counted from 0.
    Key {
        /// The entry.
        index: u64,
    },
    /// The value of a key.
    Value {
        /// The key.
        key: String,
    },
    /// The name of tensor `index`, counted from 0.
    TensorName {
        /// The tensor.
        index: u64,
    },
    /// The shape, type or offset of a tensor.
    Tensor {
        /// The tensor's name.
        name: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Start => write!(f, "the start of the file"),
            Place::Key { index } => write!(f, "the key of metadata entry {index}"),
            Place::Value { key } => write!(f, "the value of key `{key}`"),
            Place::TensorName { index } => write!(f, "the name of tensor {index}"),
            Place::Tensor { name } => write!(f, "the entry of tensor `{name}`"),
        }
    }
}

/// Why the header of a file cannot be used. Offsets are bytes from the start of the file.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum ParseError {
    /// Another kind of file.
    #[error("starts with the bytes `{}`, expected `GGUF`", .found.escape_ascii())]
    NotGguf { found: [u8; 4] },
    /// Written for a big-endian machine.
    #[error("is a big-endian GGUF file (version {version}); only little endian is read")]
    BigEndian { version: u32 },
    /// Version 1, or one from the future.
    #[error("is GGUF version {version}, expected 2 or 3")]
    UnsupportedVersion { version: u32 },
    /// The file ends early.
    #[error("{place} at byte {offset} needs {needed} bytes, but the file has only {left} more")]
    Truncated { place: Place, offset: u64, needed: u64, left: u64 },
    /// The header is larger than any model's.
    #[error("{place} at byte {offset} needs {needed} bytes: a header of more than {max} bytes is not read")]
    HeaderTooBig { place: Place, offset: u64, needed: u64, max: u64 },
    /// The system failed to read.
    #[error("{place} at byte {offset} cannot be read")]
    Io { place: Place, offset: u64, source: io::Error },
    /// More metadata entries than any model has.
    #[error("claims {count} metadata entries, expected at most {max}")]
    TooManyKeys { count: u64, max: u64 },
    /// More tensors than any model has.
    #[error("claims {count} tensors, expected at most {max}")]
    TooManyTensors { count: u64, max: u64 },
    /// A key of no or too many bytes.
    #[error(
        "the key of metadata entry {index} at byte {offset} has {bytes} bytes, expected 1 to {KEY_BYTES_MAX}"
    )]
    KeyLength { index: u64, offset: u64, bytes: u64 },
    /// A key that cannot be printed.
    #[error(
        "the key of metadata entry {index} at byte {offset} is `{key}`, expected UTF-8 without control characters"
    )]
    KeyText { index: u64, offset: u64, key: String },
    /// A key that was there before.
    #[error("key `{key}` at byte {offset} is there twice")]
    DuplicateKey { key: String, offset: u64 },
    /// A value type id that the format does not have.
    #[error("key `{key}` at byte {offset} has value type {id}, expected 0 to 12")]
    ValueType { key: String, offset: u64, id: u32 },
    /// A bool that is neither.
    #[error("key `{key}`: the bool at byte {offset} is {value}, expected 0 or 1")]
    Bool { key: String, offset: u64, value: u8 },
    /// Arrays in arrays in arrays.
    #[error("key `{key}`: the array at byte {offset} is nested deeper than {ARRAY_DEPTH_MAX} levels")]
    ArrayDepth { key: String, offset: u64 },
    /// An alignment that is no power of two in range.
    #[error("key `general.alignment` is {found}, expected a power of two of 1 to {ALIGNMENT_MAX}")]
    Alignment { found: String },
    /// A name of no or too many bytes.
    #[error(
        "the name of tensor {index} at byte {offset} has {bytes} bytes, expected 1 to {TENSOR_NAME_BYTES_MAX}"
    )]
    NameLength { index: u64, offset: u64, bytes: u64 },
    /// A name that cannot be printed.
    #[error(
        "the name of tensor {index} at byte {offset} is `{name}`, expected UTF-8 without control characters"
    )]
    NameText { index: u64, offset: u64, name: String },
    /// Two tensors of one name.
    #[error("tensor `{name}` is there twice")]
    DuplicateTensor { name: String },
    /// A shape that no tensor can have.
    #[error("the shape of tensor `{tensor}` at byte {offset} is impossible")]
    Shape { tensor: String, offset: u64, source: ShapeError },
    /// A type id that is not known.
    #[error("tensor `{tensor}` at byte {offset} cannot be read")]
    UnknownType { tensor: String, offset: u64, source: UnknownType },
    /// Data that does not begin at a multiple of the alignment.
    #[error(
        "tensor `{tensor}` has data offset {data_offset}, expected a multiple of the alignment {alignment}"
    )]
    Misaligned { tensor: String, data_offset: u64, alignment: u64 },
    /// Data that the file does not have.
    #[error(
        "tensor `{tensor}` takes {size} bytes from byte {start}, but the file ends at byte {file_bytes}{}",
        missing(*.start, *.size, *.file_bytes)
    )]
    OutsideFile { tensor: String, start: u64, size: u64, file_bytes: u64 },
    /// Two tensors that share bytes.
    #[error(
        "tensor `{first}` ({ty}) takes {first_size} bytes from byte {first_start}, and tensor `{second}` begins inside it, at byte {second_start}"
    )]
    Overlap {
        first: String,
        ty: GgmlType,
        first_start: u64,
        first_size: u64,
        second: String,
        second_start: u64,
    },
}

fn missing(start: u64, size: u64, file_bytes: u64) -> String {
    match start.checked_add(size) {
        Some(end) => format!(": {} bytes are missing", end.saturating_sub(file_bytes)),
        None => String::new(),
    }
}

impl ParseError {
    /// What the user may do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            ParseError::NotGguf { found } => match found {
                b"vers" => "this looks like a Git LFS pointer: fetch the file itself (`git lfs pull`)",
                b"<!DO" | b"<!do" | b"<htm" | b"<HTM" => {
                    "this looks like a web page saved in place of the file"
                }
                b"PK\x03\x04" => "this looks like a PyTorch checkpoint: convert it to GGUF first",
                b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => "this is a format from before GGUF: convert it",
                _ => return None,
            },
            ParseError::BigEndian { .. } => "convert the file to little endian (`gguf_convert_endian.py`)",
            ParseError::UnsupportedVersion { version: 1 } => {
                "version 1 was written for a few days in August 2023: convert the original model again"
            }
            ParseError::Truncated { .. } | ParseError::OutsideFile { .. } => {
                "the file is not complete: download or copy it again"
            }
            ParseError::Overlap { ty: GgmlType::Q2_0, .. } => {
                "a fork writes blocks of 128 weights under the type id of Q2_0; such a file cannot be read"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Why a path cannot be opened as a model file. The cause is in `source()`.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum OpenError {
    /// The file cannot be opened, or its length not asked.
    #[error("cannot open `{}`", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A directory or a device.
    #[error("`{}` is not a regular file", .path.display())]
    NotAFile { path: PathBuf },
    /// The header is wrong.
    #[error("`{}` cannot be used", .path.display())]
    Header { path: PathBuf, source: ParseError },
    /// A `split.` key is missing or wrong.
    #[error("`{}` cannot be used as part of a split set", .path.display())]
    SplitKey { path: PathBuf, source: MetadataError },
    /// Another part than the first.
    #[error("`{}` is part {} of {count} of a split set, expected the first", .path.display(), .no + 1)]
    NotFirstPart { path: PathBuf, no: u64, count: u64, first: Option<PathBuf> },
    /// A part whose name does not say which; the other parts cannot be found.
    #[error(
        "`{}` is part {} of {count} of a split set, expected a name ending in `{suffix}`",
        .path.display(), .no + 1
    )]
    PartName { path: PathBuf, no: u64, count: u64, suffix: String },
    /// A part is not beside the first.
    #[error("part {} of {count} is missing: `{}`", .no + 1, .path.display())]
    MissingPart { path: PathBuf, no: u64, count: u64 },
    /// A part that belongs elsewhere.
    #[error("`{}` is not of this split set: key `{key}` is {found}, expected {expected}", .path.display())]
    ForeignPart { path: PathBuf, key: &'static str, found: u64, expected: u64 },
    /// The parts have not the tensors that they should.
    #[error(
        "the {count} parts from `{}` on hold {found} tensors, expected {expected} by key `split.tensors.count`",
        .path.display()
    )]
    SplitTensors { path: PathBuf, count: u64, found: u64, expected: u64 },
    /// Two parts hold tensors of one name.
    #[error("tensor `{name}` is in `{}` and again in `{}`", .first.display(), .second.display())]
    DuplicateTensor { name: String, first: PathBuf, second: PathBuf },
    /// The set holds more tensors than any model has.
    #[error("the parts up to `{}` hold {count} tensors, expected at most {max}", .path.display())]
    TooManyTensors { path: PathBuf, count: u64, max: u64 },
}

/// Why the data of a tensor cannot be read.
#[derive(Debug, Error)]
#[error("tensor `{tensor}` ({size} bytes at byte {offset} of `{}`) cannot be read", .path.display())]
#[allow(missing_docs)] // The fields are what the message says.
pub struct ReadTensorError {
    pub tensor: String,
    pub path: PathBuf,
    pub offset: u64,
    pub size: u64,
    pub source: io::Error,
}

impl OpenError {
    /// What the user may do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            OpenError::Header { source, .. } => source.hint(),
            OpenError::NotFirstPart { first: Some(first), .. } => {
                Some(format!("open `{}`; the other parts are found from there", first.display()))
            }
            OpenError::PartName { .. } => Some("give the file its name back".to_owned()),
            OpenError::MissingPart { .. } => {
                Some("all parts have to be in one directory: download it again".to_owned())
            }
            _ => None,
        }
    }
}
