//! `Matrix` and `Vector`: weights and where their bytes are.

use esker_kernels::matmul::Weights;
use esker_quant::GgmlType;
use std::ops::Range;
use std::sync::Arc;

/// A range of bytes that stays alive as long as someone holds it: part of a mapped file, of an arena, or of a vector.
#[derive(Clone)]
pub struct WeightBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl WeightBytes {
    /// `range` of what `owner` holds.
    ///
    /// # Panics
    /// If `range` is not inside.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> WeightBytes {
        assert!(
            range.start <= range.end && range.end <= (*owner).as_ref().len(),
            "weight bytes outside their owner"
        );
        WeightBytes { owner, range }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl From<Vec<u8>> for WeightBytes {
    fn from(bytes: Vec<u8>) -> WeightBytes {
        let range = 0..bytes.len();
        WeightBytes::new(Arc::new(bytes), range)
    }
}

/// The number of bytes is not what type and shape ask for.
#[derive(Debug, thiserror::Error)]
#[error("a {ty} matrix of {n_rows} rows of {n_cols} needs {expected} bytes, found {found}")]
pub struct ShapeError {
    /// Element type.
    pub ty: GgmlType,
    /// Rows asked for.
    pub n_rows: usize,
    /// Elements per row asked for.
    pub n_cols: usize,
    /// Bytes that this takes, or "a row length that is a multiple of the block".
    pub expected: String,
    /// Bytes that were given.
    pub found: usize,
}

/// `[n_rows, n_cols]` = `[n_out, n_in]` weights, row-major quantized blocks.
#[derive(Clone)]
pub struct Matrix {
    ty: GgmlType,
    n_rows: usize,
    n_cols: usize,
    bytes: WeightBytes,
}

impl Matrix {
    /// # Errors
    /// If `bytes` is not exactly the size of `n_rows` rows of `n_cols` elements.
    pub fn new(ty: GgmlType, n_rows: usize, n_cols: usize, bytes: WeightBytes) -> Result<Matrix, ShapeError> {
        let expected = ty.row_bytes(n_cols).and_then(|row| row.checked_mul(n_rows));
        let found = bytes.bytes().len();
        if expected != Some(found) {
            let expected = match expected {
                Some(bytes) => bytes.to_string(),
                None => format!("a row length that is a multiple of {}", ty.block_elems()),
            };
            return Err(ShapeError { ty, n_rows, n_cols, expected, found });
        }
        Ok(Matrix { ty, n_rows, n_cols, bytes })
    }

    /// Element type.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Output length.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Input length.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    pub(crate) fn weights(&self) -> Weights<'_> {
        Weights::new(self.ty, self.n_rows, self.n_cols, self.bytes())
    }

    /// Bytes of row `index`.
    pub fn row_bytes(&self, index: usize) -> &[u8] {
        let bytes = self.ty.row_bytes(self.n_cols).expect("checked in new");
        &self.bytes()[index * bytes..][..bytes]
    }
}

/// A small weight (norm gain, bias, convolution taps), decoded to f32 at load.
#[derive(Clone, Debug)]
pub struct Vector(Vec<f32>);

impl Vector {
    /// Wraps decoded values.
    pub fn new(values: Vec<f32>) -> Vector {
        Vector(values)
    }

    /// The values.
    pub fn values(&self) -> &[f32] {
        &self.0
    }
}

/// True for the types that weights can have: all but plain integers.
pub fn is_weight_type(ty: GgmlType) -> bool {
    !matches!(ty, GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64)
}
