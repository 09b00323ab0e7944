//! Products with weight matrices.
//!
//! One token: over weights that are much larger than the caches, in matrices of about 2 MiB, like those of an expert; in
//! turns with reading the same bytes and doing nothing with them.
//! `cached` is the same over 512 KiB again and again: what the instructions alone allow. Many tokens: one matrix, two
//! operations per weight and token.

use super::ceiling::read_all;
use super::{Bench, BenchError, checksum};
use esker_kernels::Pool;
use esker_kernels::matmul::{ActBuf, ActFormat, Acts, Isa, Job, Weights, act_format, force_isa, matmul};
use esker_quant::GgmlType;
use serde::{Deserialize, Serialize};
use std::hint::black_box;

/// Tokens of the product with many.
const N_TOKENS: usize = 64;

/// One type on one instruction set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Product {
    /// Type of the weights.
    pub(crate) ty: String,
    /// Instruction set.
    pub(crate) isa: String,
    /// Elements of a row.
    pub(crate) cols: usize,
    /// Rows of a matrix.
    pub(crate) rows: usize,
    /// Whether activations are rounded to integers of 8 bits.
    pub(crate) integers: bool,
    /// One token: GB of weights per second.
    pub(crate) one_gb_s: f64,
    /// Reading the same bytes.
    pub(crate) read_gb_s: f64,
    /// As `one_gb_s`, of weights that stay in a cache.
    pub(crate) cached_gb_s: f64,
    /// 64 tokens: GFLOP per second.
    pub(crate) many_gflop_s: f64,
    /// To prepare 64 tokens of activations, microseconds; `None` if they stay as they are.
    pub(crate) prepare_us: Option<f64>,
    /// Of all outputs, one token's and many tokens'.
    pub(crate) checksum: String,
}

/// Matrices of one type, one after the other.
struct Matrices {
    ty: GgmlType,
    n_rows: usize,
    n_cols: usize,
    row_bytes: usize,
    bytes: Vec<u8>,
}

impl Matrices {
    fn count(&self) -> usize {
        self.bytes.len() / (self.n_rows * self.row_bytes)
    }

    /// The first rows of one.
    fn get(&self, index: usize, n_rows: usize) -> Weights<'_> {
        let bytes = &self.bytes[index * self.n_rows * self.row_bytes..][..n_rows * self.row_bytes];
        Weights::new(self.ty, n_rows, self.n_cols, bytes)
    }
}

/// One type on all instruction sets.
///
/// # Errors
/// If one is not available.
pub(super) fn measure(
    bench: &Bench<'_>,
    ty: GgmlType,
    n_cols: usize,
    bytes: usize,
) -> Result<Vec<Product>, BenchError> {
    let row_bytes = ty.row_bytes(n_cols).expect("columns are whole blocks");
    let n_rows = if bench.smoke { 24 } else { ((2 << 20) / row_bytes).max(16) / 16 * 16 };
    let n_matrices = (bytes / (n_rows * row_bytes)).max(1);
    let bytes = weights(ty, n_matrices * n_rows * row_bytes);
    let matrices = Matrices { ty, n_rows, n_cols, row_bytes, bytes };
    let mut products = Vec::new();
    for &isa in bench.isas {
        force_isa(isa)?;
        products.push(on_isa(bench, &matrices, isa));
    }
    Ok(products)
}

fn on_isa(bench: &Bench<'_>, matrices: &Matrices, isa: Isa) -> Product {
    let &Matrices { ty, n_rows, n_cols, row_bytes, ref bytes } = matrices;
    let (pool, once) = (bench.pool, isa == Isa::Scalar);
    let n_cached = n_rows.min((512 << 10) / row_bytes).max(1);
    let x: Vec<f32> = (0..N_TOKENS * n_cols).map(|i| ((i * 37 % 1001) as f32 - 500.0) / 250.0).collect();
    let (mut buf, format) = (ActBuf::new(), act_format(ty));
    let mut out = vec![0.0f32; n_rows * N_TOKENS];
    let mut outputs = Vec::new();

    let acts = buf.prepare(pool, format, &x[..n_cols], n_cols);
    for i in 0..matrices.count() {
        product(pool, matrices.get(i, n_rows), acts, &mut out[..n_rows]);
        outputs.extend_from_slice(&out[..n_rows]);
    }
    let mut one = || {
        for i in 0..matrices.count() {
            product(pool, matrices.get(i, n_rows), acts, &mut out[..n_rows]);
        }
    };
    let (mut read, mut read_four) = (|| read_all(pool, bytes, 1), || read_all(pool, bytes, 4));
    let best = bench.best_of_each(once, &mut [&mut one, &mut read, &mut read_four]);
    let (one, read) = (best[0], best[1].min(best[2]));
    let cached = bench.best(once, || product(pool, matrices.get(0, n_cached), acts, &mut out[..n_cached]));
    let prepare = bench.best(once, || {
        black_box(buf.prepare(pool, format, &x, n_cols));
    });
    let acts = buf.prepare(pool, format, &x, n_cols);
    product(pool, matrices.get(0, n_rows), acts, &mut out);
    outputs.extend_from_slice(&out);
    let many = bench.best(once, || product(pool, matrices.get(0, n_rows), acts, &mut out));

    let integers = format != ActFormat::F32;
    Product {
        ty: ty.name().to_owned(),
        isa: isa.name().to_owned(),
        cols: n_cols,
        rows: n_rows,
        integers,
        one_gb_s: bytes.len() as f64 / one / 1e9,
        read_gb_s: bytes.len() as f64 / read / 1e9,
        cached_gb_s: (n_cached * row_bytes) as f64 / cached / 1e9,
        many_gflop_s: 2.0 * (n_rows * n_cols * N_TOKENS) as f64 / many / 1e9,
        prepare_us: integers.then_some(prepare * 1e6),
        checksum: checksum(&outputs),
    }
}

fn product(pool: &Pool, weights: Weights<'_>, acts: Acts<'_>, out: &mut [f32]) {
    matmul(pool, &mut [Job { weights, acts, tokens: None, out }]);
}

/// Random codes with scales of a sensible size.
fn weights(ty: GgmlType, n_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; n_bytes];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        // Without this bit a float is finite, wherever the scales are in the block; codes lose a little randomness.
        block.iter_mut().for_each(|byte| *byte &= 0xbf);
        match ty {
            GgmlType::MXFP4 => block[0] = 120 + block[0] % 8,
            GgmlType::Q8_K | GgmlType::F32 => block[3] = 0x3f,
            GgmlType::BF16 => block[1] = 0x3f,
            _ => {}
        }
    }
    bytes
}
