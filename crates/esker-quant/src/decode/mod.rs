//! Blocks to single precision: the meaning of every tensor type.
//!
//! Source: the `dequantize_row_*` functions of llama.cpp, whose results these equal bit for bit
//! (`tests/golden.rs`): the order of the multiplications below is part of the definition. One file a family;
//! the layouts are in [`blocks`](crate::blocks).

mod fp4;
mod iq;
mod k;
mod legacy;
mod plain;
mod ternary;

use crate::blocks::Block;
use crate::{CodecError, GgmlType};

/// Decodes `out.len()` values from as many whole blocks.
///
/// `bytes` and `out` may hold any number of blocks: a row, many rows, one block. F64 and the integer types
/// are rounded to the nearest `f32`. Allocates nothing; cost is linear.
///
/// # Errors
/// [`CodecError::PartialBlock`] if `out` is no whole number of blocks, [`CodecError::ByteLength`] if `bytes`
/// is not exactly their size. Any bytes of the right length decode, to NaN or infinities where the scales say
/// so.
pub fn decode(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), CodecError> {
    check_lengths(ty, out.len(), bytes.len())?;
    match ty {
        GgmlType::F32 => plain::f32(bytes, out),
        GgmlType::F16 => plain::f16(bytes, out),
        GgmlType::BF16 => plain::bf16(bytes, out),
        GgmlType::F64 => plain::f64(bytes, out),
        GgmlType::I8 => plain::i8(bytes, out),
        GgmlType::I16 => plain::i16(bytes, out),
        GgmlType::I32 => plain::i32(bytes, out),
        GgmlType::I64 => plain::i64(bytes, out),
        GgmlType::Q4_0 => each_block(bytes, out, legacy::q4_0),
        GgmlType::Q4_1 => each_block(bytes, out, legacy::q4_1),
        GgmlType::Q5_0 => each_block(bytes, out, legacy::q5_0),
        GgmlType::Q5_1 => each_block(bytes, out, legacy::q5_1),
        GgmlType::Q8_0 => each_block(bytes, out, legacy::q8_0),
        GgmlType::Q8_1 => each_block(bytes, out, legacy::q8_1),
        GgmlType::Q2_K => each_block(bytes, out, k::q2_k),
        GgmlType::Q3_K => each_block(bytes, out, k::q3_k),
        GgmlType::Q4_K => each_block(bytes, out, k::q4_k),
        GgmlType::Q5_K => each_block(bytes, out, k::q5_k),
        GgmlType::Q6_K => each_block(bytes, out, k::q6_k),
        GgmlType::Q8_K => each_block(bytes, out, k::q8_k),
        GgmlType::IQ1_S => each_block(bytes, out, iq::iq1_s),
        GgmlType::IQ1_M => each_block(bytes, out, iq::iq1_m),
        GgmlType::IQ2_XXS => each_block(bytes, out, iq::iq2_xxs),
        GgmlType::IQ2_XS => each_block(bytes, out, iq::iq2_xs),
        GgmlType::IQ2_S => each_block(bytes, out, iq::iq2_s),
        GgmlType::IQ3_XXS => each_block(bytes, out, iq::iq3_xxs),
        GgmlType::IQ3_S => each_block(bytes, out, iq::iq3_s),
        GgmlType::IQ4_NL => each_block(bytes, out, iq::iq4_nl),
        GgmlType::IQ4_XS => each_block(bytes, out, iq::iq4_xs),
        GgmlType::TQ1_0 => each_block(bytes, out, ternary::tq1_0),
        GgmlType::TQ2_0 => each_block(bytes, out, ternary::tq2_0),
        GgmlType::Q1_0 => each_block(bytes, out, ternary::q1_0),
        GgmlType::Q2_0 => each_block(bytes, out, ternary::q2_0),
        GgmlType::MXFP4 => each_block(bytes, out, fp4::mxfp4),
        GgmlType::NVFP4 => each_block(bytes, out, fp4::nvfp4),
    }
    Ok(())
}

/// Refuses a number of values that is no whole number of blocks, and bytes that are not exactly these blocks.
pub(crate) fn check_lengths(ty: GgmlType, elems: usize, bytes: usize) -> Result<(), CodecError> {
    let Some(expected) = ty.row_bytes(elems) else {
        return Err(CodecError::PartialBlock { ty, elems, block_elems: ty.block_elems() });
    };
    if bytes != expected {
        return Err(CodecError::ByteLength { ty, elems, bytes, expected });
    }
    Ok(())
}

/// Runs `decode_block` on each block and its part of `out`. The lengths have been checked.
fn each_block<B: Block, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode_block: impl Fn(&B, &mut [f32; N]),
) {
    const { assert!(B::ELEMS == N, "must be the block's number of weights") };
    let blocks: &[B] = bytemuck::cast_slice(bytes);
    let (chunks, rest) = out.as_chunks_mut::<N>();
    assert!(blocks.len() == chunks.len() && rest.is_empty());
    for (block, chunk) in blocks.iter().zip(chunks) {
        decode_block(block, chunk);
    }
}

#[cfg(test)]
mod tests;
