//! Activations, rounded as a weight type's dot product wants them.
//!
//! Rounding happens once per activation row, not once per weight row. [`ActBuf`] owns the memory and is reused;
//! [`Acts`] borrows it (or, for [`ActFormat::F32`], the activations themselves).
//!
//! Source of the two 8-bit formats: `quantize_row_q8_0` and `quantize_row_q8_K` of llama.cpp; the codes and scales
//! equal theirs (tests compare bytes). The layout is our own: codes, scales and sums lie in separate arrays.

mod quantize;
#[cfg(test)]
mod tests;

use crate::disjoint::Disjoint;
use crate::pool::Pool;
use esker_quant::GgmlType;
use std::ops::Range;

/// How activations are rounded before they meet weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActFormat {
    /// Not at all.
    F32,
    /// 8 bits, a scale per 32 elements rounded to half precision: `d = amax / 127`, `q = round(x · 127 / amax)`.
    Q8x32,
    /// 8 bits, a scale per 256 elements in single precision: `q = round(x · -127 / max)` where `max` is the signed value
    /// of largest magnitude, `d = -max / 127`.
    Q8x256,
}

impl ActFormat {
    /// All formats.
    pub const ALL: [ActFormat; 3] = [ActFormat::F32, ActFormat::Q8x32, ActFormat::Q8x256];

    /// Row lengths must be a multiple of this.
    pub fn block_elems(self) -> usize {
        match self {
            ActFormat::F32 => 1,
            ActFormat::Q8x32 => 32,
            ActFormat::Q8x256 => 256,
        }
    }
}

/// The activation format of a weight type: one choice per type, on every CPU.
///
/// It is the one that llama.cpp uses for types with integer dot products (`vec_dot_type` in its type traits; its
/// Q8_1 is Q8_0 with a sum). Everything else stays in f32: the float types, for which llama.cpp rounds activations to
/// the weight's type, and rare types whose rows are decoded on the fly.
pub fn act_format(ty: GgmlType) -> ActFormat {
    use GgmlType::*;
    match ty {
        Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q2_0 | IQ4_NL | MXFP4 | NVFP4 => ActFormat::Q8x32,
        Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ4_XS => {
            ActFormat::Q8x256
        }
        F32 | F16 | BF16 | F64 | I8 | I16 | I32 | I64 | Q8_1 | Q8_K | IQ1_S | IQ1_M | TQ1_0 | TQ2_0
        | Q1_0 => ActFormat::F32,
    }
}

/// Memory for prepared activations; grows to the largest use and stays.
#[derive(Default)]
pub struct ActBuf {
    codes: Vec<Line<i8, 64>>,
    corrections: Vec<Line<i32, 16>>,
    scales: Vec<f32>,
    scaled_sums: Vec<f32>,
    sums16: Vec<i16>,
    sums32: Vec<i16>,
}

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line<T, const N: usize>(pub(crate) [T; N]);

/// Prepared activations: `n_tokens` rows of `n_cols`.
#[derive(Clone, Copy)]
pub struct Acts<'a> {
    n_tokens: usize,
    n_cols: usize,
    data: Data<'a>,
}

#[derive(Clone, Copy)]
enum Data<'a> {
    F32(&'a [f32]),
    Q8x32 {
        codes: &'a [Line<i8, 64>],
        corrections: &'a [Line<i32, 16>],
        scales: &'a [f32],
        scaled_sums: &'a [f32],
    },
    Q8x256 {
        codes: &'a [Line<i8, 64>],
        scales: &'a [f32],
        sums16: &'a [i16],
        sums32: &'a [i16],
    },
}

/// One row in [`ActFormat::Q8x32`]. All arrays reach to a multiple of 512 elements, padded with zeros.
#[derive(Clone, Copy)]
pub(crate) struct Row32<'a> {
    /// Codes, -127 to 127.
    pub(crate) codes: &'a [Line<i8, 64>],
    /// For each 4 codes, -128 times their sum: makes signed weights of unsigned ones (`w + 128`).
    pub(crate) corrections: &'a [Line<i32, 16>],
    /// Scale of each 32.
    pub(crate) scales: &'a [f32],
    /// Scale times the sum of the codes, of each 32.
    pub(crate) scaled_sums: &'a [f32],
}

/// One row in [`ActFormat::Q8x256`]. The scales reach to a multiple of 16 blocks, padded with zeros.
#[derive(Clone, Copy)]
pub(crate) struct Row256<'a> {
    /// Codes, -127 to 127.
    pub(crate) codes: &'a [Line<i8, 64>],
    /// Scale of each 256.
    pub(crate) scales: &'a [f32],
    /// Sum of each 16 codes.
    pub(crate) sums16: &'a [i16],
    /// Sum of each 32 codes.
    pub(crate) sums32: &'a [i16],
}

impl ActBuf {
    /// An empty buffer.
    pub fn new() -> ActBuf {
        ActBuf::default()
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.codes[..])
            + size_of_val(&self.corrections[..])
            + size_of_val(&self.scales[..])
            + size_of_val(&self.scaled_sums[..])
            + size_of_val(&self.sums16[..])
            + size_of_val(&self.sums32[..])
    }

    /// Rounds `x`, `[n_tokens, n_cols]`, to `format`. Allocates only while the buffer is still too small; nothing for
    /// [`ActFormat::F32`], which borrows `x`.
    ///
    /// An infinity or NaN in a block makes its scale infinite or NaN, so that it shows in every product.
    ///
    /// # Panics
    /// If `n_cols` is zero or no multiple of [`ActFormat::block_elems`], or `x` is no whole number of rows.
    pub fn prepare<'a>(
        &'a mut self,
        pool: &Pool,
        format: ActFormat,
        x: &'a [f32],
        n_cols: usize,
    ) -> Acts<'a> {
        assert!(n_cols > 0 && n_cols.is_multiple_of(format.block_elems()), "{format:?} rows of {n_cols}");
        assert!(x.len().is_multiple_of(n_cols), "{} activations in rows of {n_cols}", x.len());
        let n_tokens = x.len() / n_cols;
        let data = match format {
            ActFormat::F32 => Data::F32(x),
            ActFormat::Q8x32 => self.prepare_q8x32(pool, x, n_cols),
            ActFormat::Q8x256 => self.prepare_q8x256(pool, x, n_cols),
        };
        Acts { n_tokens, n_cols, data }
    }

    fn prepare_q8x32<'a>(&'a mut self, pool: &Pool, x: &[f32], n_cols: usize) -> Data<'a> {
        let n_tokens = x.len() / n_cols;
        let (lines, blocks) = (lines_q8x32(n_cols), blocks_q8x32(n_cols));
        let codes = Disjoint::new(grown(&mut self.codes, n_tokens * lines, Line([0; 64])));
        let corrections = Disjoint::new(grown(&mut self.corrections, n_tokens * lines, Line([0; 16])));
        let scales = Disjoint::new(grown(&mut self.scales, n_tokens * blocks, 0.0));
        let scaled_sums = Disjoint::new(grown(&mut self.scaled_sums, n_tokens * blocks, 0.0));
        pool.run(n_tokens, grain(n_cols), &|tokens| {
            for t in tokens {
                // SAFETY: each token's parts are its own, and a round gives each token to one thread.
                let row = unsafe {
                    quantize::Row32Mut {
                        codes: codes.part(span(t, lines)),
                        corrections: corrections.part(span(t, lines)),
                        scales: scales.part(span(t, blocks)),
                        scaled_sums: scaled_sums.part(span(t, blocks)),
                    }
                };
                quantize::q8x32(crate::isa::active(), &x[span(t, n_cols)], row);
            }
        });
        Data::Q8x32 {
            codes: &self.codes[..n_tokens * lines],
            corrections: &self.corrections[..n_tokens * lines],
            scales: &self.scales[..n_tokens * blocks],
            scaled_sums: &self.scaled_sums[..n_tokens * blocks],
        }
    }

    fn prepare_q8x256<'a>(&'a mut self, pool: &Pool, x: &[f32], n_cols: usize) -> Data<'a> {
        let n_tokens = x.len() / n_cols;
        let (lines, blocks, n_scales) = (n_cols / 64, n_cols / 256, scales_q8x256(n_cols));
        let codes = Disjoint::new(grown(&mut self.codes, n_tokens * lines, Line([0; 64])));
        let scales = Disjoint::new(grown(&mut self.scales, n_tokens * n_scales, 0.0));
        let sums16 = Disjoint::new(grown(&mut self.sums16, n_tokens * blocks * 16, 0));
        let sums32 = Disjoint::new(grown(&mut self.sums32, n_tokens * blocks * 8, 0));
        pool.run(n_tokens, grain(n_cols), &|tokens| {
            for t in tokens {
                // SAFETY: each token's parts are its own, and a round gives each token to one thread.
                let row = unsafe {
                    quantize::Row256Mut {
                        codes: codes.part(span(t, lines)),
                        scales: scales.part(span(t, n_scales)),
                        sums16: sums16.part(span(t, blocks * 16)),
                        sums32: sums32.part(span(t, blocks * 8)),
                    }
                };
                quantize::q8x256(crate::isa::active(), &x[span(t, n_cols)], row);
            }
        });
        Data::Q8x256 {
            codes: &self.codes[..n_tokens * lines],
            scales: &self.scales[..n_tokens * n_scales],
            sums16: &self.sums16[..n_tokens * blocks * 16],
            sums32: &self.sums32[..n_tokens * blocks * 8],
        }
    }
}

impl<'a> Acts<'a> {
    /// Rows.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Elements per row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// The format they are in.
    pub fn format(&self) -> ActFormat {
        match self.data {
            Data::F32(_) => ActFormat::F32,
            Data::Q8x32 { .. } => ActFormat::Q8x32,
            Data::Q8x256 { .. } => ActFormat::Q8x256,
        }
    }

    /// Row `t` in f32.
    ///
    /// # Panics
    /// If the format is another one, or `t` is out of range.
    #[inline]
    pub(crate) fn row_f32(&self, t: usize) -> &'a [f32] {
        let Data::F32(x) = self.data else { panic!("activations are {:?}, not F32", self.format()) };
        &x[span(t, self.n_cols)]
    }

    /// Row `t` in Q8x32. Panics as [`Acts::row_f32`].
    #[inline]
    pub(crate) fn row_q8x32(&self, t: usize) -> Row32<'a> {
        let Data::Q8x32 { codes, corrections, scales, scaled_sums } = self.data else {
            panic!("activations are {:?}, not Q8x32", self.format())
        };
        let (lines, blocks) = (span(t, lines_q8x32(self.n_cols)), span(t, blocks_q8x32(self.n_cols)));
        Row32 {
            codes: &codes[lines.clone()],
            corrections: &corrections[lines],
            scales: &scales[blocks.clone()],
            scaled_sums: &scaled_sums[blocks],
        }
    }

    /// Row `t` in Q8x256. Panics as [`Acts::row_f32`].
    #[inline]
    pub(crate) fn row_q8x256(&self, t: usize) -> Row256<'a> {
        let Data::Q8x256 { codes, scales, sums16, sums32 } = self.data else {
            panic!("activations are {:?}, not Q8x256", self.format())
        };
        let blocks = self.n_cols / 256;
        Row256 {
            codes: &codes[span(t, blocks * 4)],
            scales: &scales[span(t, scales_q8x256(self.n_cols))],
            sums16: &sums16[span(t, blocks * 16)],
            sums32: &sums32[span(t, blocks * 8)],
        }
    }

    /// What the rounded activations stand for, exactly: writes row `t` to `out`, `[n_cols]`. For tests and reports.
    ///
    /// # Panics
    /// If `t` is out of range or `out` has another length.
    pub fn decode_row(&self, t: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.n_cols);
        let decode = |codes: &[Line<i8, 64>], scales: &[f32], block: usize, out: &mut [f32]| {
            for (i, out) in out.iter_mut().enumerate() {
                *out = f32::from(codes[i / 64].0[i % 64]) * scales[i / block];
            }
        };
        match self.data {
            Data::F32(_) => out.copy_from_slice(self.row_f32(t)),
            Data::Q8x32 { .. } => {
                let row = self.row_q8x32(t);
                decode(row.codes, row.scales, 32, out);
            }
            Data::Q8x256 { .. } => {
                let row = self.row_q8x256(t);
                decode(row.codes, row.scales, 256, out);
            }
        }
    }
}

/// Element range of row `t` in rows of `len`.
#[inline]
fn span(t: usize, len: usize) -> Range<usize> {
    t * len..(t + 1) * len
}

/// Kernels read scales 16 at a time.
fn scales_q8x256(n_cols: usize) -> usize {
    (n_cols / 256).next_multiple_of(16)
}

/// Kernels read scales 16 at a time, so rows in Q8x32 are padded to 16 blocks.
fn blocks_q8x32(n_cols: usize) -> usize {
    (n_cols / 32).next_multiple_of(16)
}

fn lines_q8x32(n_cols: usize) -> usize {
    blocks_q8x32(n_cols) / 2
}

/// Rows per range: some 10 µs of work.
fn grain(n_cols: usize) -> usize {
    (32 * 1024 / n_cols).max(1)
}

fn grown<T: Clone>(buf: &mut Vec<T>, len: usize, zero: T) -> &mut [T] {
    if buf.len() < len {
        buf.resize(len, zero);
    }
    &mut buf[..len]
}
