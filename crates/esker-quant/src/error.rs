//! What can be wrong with a request to decode or encode.

use crate::GgmlType;

/// Why a slice of blocks could not be decoded or encoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CodecError {
    /// The values are no whole number of blocks.
    #[error("{elems} values of type {ty} are no multiple of its block of {block_elems}")]
    PartialBlock {
        /// The tensor type.
        ty: GgmlType,
        /// Values asked for.
        elems: usize,
        /// Values in a block.
        block_elems: usize,
    },
    /// The bytes do not hold as many values as asked for.
    #[error("{elems} values of type {ty} take {expected} bytes, not {bytes}")]
    ByteLength {
        /// The tensor type.
        ty: GgmlType,
        /// Values asked for.
        elems: usize,
        /// Bytes given.
        bytes: usize,
        /// Bytes that these values take.
        expected: usize,
    },
    /// The column importance does not cover the values in whole rows of whole blocks.
    #[error(
        "importance of {len} columns does not fit {elems} values of type {ty}: it must be a multiple of \
         {block_elems} that divides them"
    )]
    ImportanceLength {
        /// The tensor type.
        ty: GgmlType,
        /// Columns given.
        len: usize,
        /// Values to encode.
        elems: usize,
        /// Values in a block.
        block_elems: usize,
    },
    /// A column importance is negative, NaN or infinite.
    #[error("importance of column {column} is {value}, expected a finite number of at least 0")]
    ImportanceValue {
        /// Index into the importance.
        column: usize,
        /// The value found there.
        value: f32,
    },
    /// A block type cannot hold NaN or infinities.
    #[error("value {index} is {value}: type {ty} holds finite values only")]
    NotFinite {
        /// The tensor type.
        ty: GgmlType,
        /// Index of the value.
        index: usize,
        /// The value.
        value: f32,
    },
    /// Values so large that their scale overflows half precision.
    #[error("values {first} to {} are too large for type {ty}: their scale exceeds 65504", first + count - 1)]
    ScaleOverflow {
        /// The tensor type.
        ty: GgmlType,
        /// Index of the block's first value.
        first: usize,
        /// Values in the block.
        count: usize,
    },
    /// This type can be read but not written.
    #[error("no encoder for type {ty}")]
    NoEncoder {
        /// The tensor type.
        ty: GgmlType,
    },
}
