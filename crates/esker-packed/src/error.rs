//! What can be wrong with the container.

use esker_gguf::MetadataError;
use esker_quant::{GgmlType, UnknownType};
use thiserror::Error;

/// Why experts of these shapes cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum LayoutError {
    /// Not a gated feed-forward.
    #[error("the parts are {found}, expected gate, up and down, or gate_up and down")]
    Parts { found: String },
    /// Nothing to pack.
    #[error("there are no experts")]
    NoExperts,
    /// More experts than any layer has.
    #[error("there are {found} experts, expected at most {max}")]
    TooManyExperts { found: u64, max: u64 },
    /// A part without elements.
    #[error("part `{part}` has {rows} rows of {cols} elements")]
    Empty { part: String, rows: u64, cols: u64 },
    /// A row that ends inside a quantization block.
    #[error("part `{part}`: a row of {cols} elements is not a multiple of {ty}'s block of {block}")]
    PartialBlock { part: String, ty: GgmlType, cols: u64, block: u64 },
    /// More bytes than a file can have.
    #[error("part `{part}` ends beyond byte 2^63 of the tensor")]
    TooBig { part: String },
}

/// Why the experts of a repacked file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum PackedError {
    /// Written by another version of the program.
    #[error(
        "key `esker.repack.version` is {found}, expected {expected}: this file was repacked by another version"
    )]
    Version { found: u32, expected: u32 },
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Key(#[from] MetadataError),
    /// A list that has not one entry per part, or per expert.
    #[error("key `{key}` has {found} entries, expected {expected}, one per {of}")]
    Length { key: String, found: usize, expected: u64, of: &'static str },
    /// Parts that make no expert.
    #[error("key `{key}` is {found}, expected gate, up and down, or gate_up and down, in this order")]
    Parts { key: String, found: String },
    /// A type that is not known.
    #[error("key `{key}` element {index}")]
    Type { key: String, index: usize, source: UnknownType },
    /// Shapes that no part can have.
    #[error("the keys `{prefix}` make no layout")]
    Layout { prefix: String, source: LayoutError },
    /// A part that begins where none can.
    #[error("key `{key}` element {index} is {found}, expected {expected}")]
    Offset { key: String, index: usize, found: u64, expected: String },
    /// A value that does not fit.
    #[error("key `{key}` is {found}, expected {expected}")]
    Value { key: String, found: String, expected: String },
    /// A layer that has keys and no tensor.
    #[error("key `{key}` describes tensor `{tensor}`, which is missing")]
    MissingTensor { key: String, tensor: String },
    /// A tensor that cannot hold packed experts.
    #[error("tensor `{tensor}` has {what} {found}, expected {expected}")]
    Tensor { tensor: String, what: &'static str, found: String, expected: String },
    /// Experts that are there twice.
    #[error("tensor `{tensor}` is there although its layer is packed in `{packed}`")]
    Twice { tensor: String, packed: String },
    /// A list of the source's tensors that is not that of this file.
    #[error("key `esker.repack.tensor_order` {what} `{tensor}`")]
    Order { what: &'static str, tensor: String },
}
