//! One tensor of the directory: name, type, shape, and where its bytes are.

use crate::limits::DIMS_MAX;
use esker_quant::GgmlType;
use thiserror::Error;

/// Where a tensor lies, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique in the model.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// Elements per dimension, in ggml's order: the contiguous one first. 1 to 4 dimensions, none zero.
    pub shape: Vec<u64>,
    /// Index in [`crate::Gguf::files`].
    pub file: usize,
    /// First byte, from the start of that file.
    pub offset: u64,
    /// Bytes of data, without padding.
    pub size: u64,
}

/// What a tensor to be written is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name, unique in the file.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// Elements per dimension, the contiguous one first.
    pub shape: Vec<u64>,
}

/// Why no tensor can have a shape.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum ShapeError {
    /// More dimensions than ggml has.
    #[error("it has {n_dims} dimensions, expected at most {DIMS_MAX}")]
    TooManyDims { n_dims: u64 },
    /// No elements.
    #[error("dimension {dim} of {shape:?} is zero")]
    ZeroDim { shape: Vec<u64>, dim: usize },
    /// A row that ends inside a quantization block.
    #[error("a row of {row} elements is not a multiple of {ty}'s block of {block}")]
    PartialBlock { ty: GgmlType, row: u64, block: u64 },
    /// More bytes than a file can have.
    #[error("{shape:?} of {ty} is more than 2^63 bytes")]
    TooBig { ty: GgmlType, shape: Vec<u64> },
}

/// Bytes of a tensor of this type and shape. No dimensions count as one element, as in ggml.
pub(crate) fn tensor_bytes(ty: GgmlType, shape: &[u64]) -> Result<u64, ShapeError> {
    if shape.len() > DIMS_MAX {
        return Err(ShapeError::TooManyDims { n_dims: shape.len() as u64 });
    }
    if let Some(dim) = shape.iter().position(|&n| n == 0) {
        return Err(ShapeError::ZeroDim { shape: shape.to_vec(), dim });
    }
    let row = shape.first().copied().unwrap_or(1);
    let block = ty.block_elems() as u64;
    if !row.is_multiple_of(block) {
        return Err(ShapeError::PartialBlock { ty, row, block });
    }
    (row / block)
        .checked_mul(ty.block_bytes() as u64)
        .and_then(|row_bytes| shape.iter().skip(1).try_fold(row_bytes, |bytes, &n| bytes.checked_mul(n)))
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(|| ShapeError::TooBig { ty, shape: shape.to_vec() })
}

impl TensorInfo {
    /// Elements in total.
    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Name, type and shape, to write the tensor again.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec { name: self.name.clone(), ty: self.ty, shape: self.shape.clone() }
    }
}
