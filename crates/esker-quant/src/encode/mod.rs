//! Single precision to blocks.
//!
//! Two kinds of encoder: those that follow the reference (`quantize_row_*_ref` of llama.cpp) to the byte, and
//! those that search for the scales with the least weighted squared error ([`search`], [`superblock`]).
//! `tests/golden.rs` holds the first to the reference's bytes, the second to its error.

mod fp4;
mod iq4;
mod k;
mod legacy;
mod plain;
mod round;
mod search;
mod superblock;
mod ternary;

use crate::blocks::{Block, F16Le};
use crate::decode::check_lengths;
use crate::{CodecError, GgmlType};

/// Encodes `values` into `out`, which must be exactly as many blocks.
///
/// `importance` weighs the squared error per column (mean squared activation, as an imatrix has it): its
/// length is the row length, a multiple of the block length that divides `values.len()`. Who uses it:
///
/// | types | without importance | with importance |
/// | --- | --- | --- |
/// | F32, F16, BF16, F64 | nearest, ties to even; overflow gives infinity | ignored |
/// | Q8_0, Q8_1, Q8_K, Q1_0, TQ1_0, TQ2_0, MXFP4, NVFP4 | the reference's rule | ignored |
/// | Q4_0, Q4_1, Q5_0, Q5_1, Q2_0 | the reference's rule | search |
/// | Q2_K to Q6_K, IQ4_NL, IQ4_XS | search, all columns alike | search |
///
/// # Errors
/// The lengths must fit ([`CodecError::PartialBlock`], [`CodecError::ByteLength`],
/// [`CodecError::ImportanceLength`]); importance must be finite and not negative
/// ([`CodecError::ImportanceValue`]); block types take finite values only ([`CodecError::NotFinite`]), of
/// which the scale fits in half precision ([`CodecError::ScaleOverflow`]); the integer types, IQ1, IQ2 and
/// IQ3 have no encoder ([`CodecError::NoEncoder`]). After an error `out` is unspecified.
pub fn encode(
    ty: GgmlType,
    values: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), CodecError> {
    check_lengths(ty, values.len(), out.len())?;
    if let Some(importance) = importance {
        check_importance(ty, values.len(), importance)?;
    }
    let job = Job { ty, values, importance };
    match ty {
        GgmlType::F32 => plain::f32(values, out),
        GgmlType::F16 => plain::f16(values, out),
        GgmlType::BF16 => plain::bf16(values, out),
        GgmlType::F64 => plain::f64(values, out),
        GgmlType::Q4_0 => job.run(out, legacy::q4_0)?,
        GgmlType::Q4_1 => job.run(out, legacy::q4_1)?,
        GgmlType::Q5_0 => job.run(out, legacy::q5_0)?,
        GgmlType::Q5_1 => job.run(out, legacy::q5_1)?,
        GgmlType::Q8_0 => job.run(out, legacy::q8_0)?,
        GgmlType::Q8_1 => job.run(out, legacy::q8_1)?,
        GgmlType::Q2_K => job.run(out, k::q2_k)?,
        GgmlType::Q3_K => job.run(out, k::q3_k)?,
        GgmlType::Q4_K => job.run(out, k::q4_k)?,
        GgmlType::Q5_K => job.run(out, k::q5_k)?,
        GgmlType::Q6_K => job.run(out, k::q6_k)?,
        GgmlType::Q8_K => job.run(out, k::q8_k)?,
        GgmlType::IQ4_NL => job.run(out, iq4::iq4_nl)?,
        GgmlType::IQ4_XS => job.run(out, iq4::iq4_xs)?,
        GgmlType::TQ1_0 => job.run(out, ternary::tq1_0)?,
        GgmlType::TQ2_0 => job.run(out, ternary::tq2_0)?,
        GgmlType::Q1_0 => job.run(out, ternary::q1_0)?,
        GgmlType::Q2_0 => job.run(out, ternary::q2_0)?,
        GgmlType::MXFP4 => job.run(out, fp4::mxfp4)?,
        GgmlType::NVFP4 => job.run(out, fp4::nvfp4)?,
        GgmlType::I8
        | GgmlType::I16
        | GgmlType::I32
        | GgmlType::I64
        | GgmlType::IQ1_S
        | GgmlType::IQ1_M
        | GgmlType::IQ2_XXS
        | GgmlType::IQ2_XS
        | GgmlType::IQ2_S
        | GgmlType::IQ3_XXS
        | GgmlType::IQ3_S => return Err(CodecError::NoEncoder { ty }),
    }
    Ok(())
}

fn check_importance(ty: GgmlType, elems: usize, importance: &[f32]) -> Result<(), CodecError> {
    let len = importance.len();
    if len == 0 || !len.is_multiple_of(ty.block_elems()) || !elems.is_multiple_of(len) {
        return Err(CodecError::ImportanceLength { ty, len, elems, block_elems: ty.block_elems() });
    }
    match importance.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        Some(column) => Err(CodecError::ImportanceValue { column, value: importance[column] }),
        None => Ok(()),
    }
}

/// One call of [`encode`] for a block type, lengths checked.
struct Job<'a> {
    ty: GgmlType,
    values: &'a [f32],
    importance: Option<&'a [f32]>,
}

impl Job<'_> {
    /// Runs `encode_block` on each block's values and importance; `None` from it says that a scale overflows.
    fn run<B: Block, const N: usize>(
        &self,
        out: &mut [u8],
        encode_block: impl Fn(&[f32; N], Option<&[f32; N]>) -> Option<B>,
    ) -> Result<(), CodecError> {
        const { assert!(B::ELEMS == N, "must be the block's number of weights") };
        let ty = self.ty;
        if let Some(index) = self.values.iter().position(|v| !v.is_finite()) {
            return Err(CodecError::NotFinite { ty, index, value: self.values[index] });
        }
        let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
        let (chunks, rest) = self.values.as_chunks::<N>();
        assert!(blocks.len() == chunks.len() && rest.is_empty());
        let columns = self.importance.map(|importance| importance.as_chunks::<N>().0);
        for (i, (block, values)) in blocks.iter_mut().zip(chunks).enumerate() {
            let importance = columns.map(|columns| &columns[i % columns.len()]);
            *block = encode_block(values, importance).ok_or(CodecError::ScaleOverflow {
                ty,
                first: i * N,
                count: N,
            })?;
        }
        Ok(())
    }
}

/// A scale or minimum as stored; `None` if it overflows half precision.
fn half(value: f32) -> Option<F16Le> {
    let stored = F16Le::from_f32(value);
    stored.to_f32().is_finite().then_some(stored)
}

#[cfg(test)]
mod tests;
