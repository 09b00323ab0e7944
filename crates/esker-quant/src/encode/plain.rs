//! Types without blocks: floats, one after the other, little endian.

use crate::blocks::{f32_to_bf16, f32_to_f16};

fn each<const N: usize>(values: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    let (chunks, _) = out.as_chunks_mut::<N>();
    for (chunk, &value) in chunks.iter_mut().zip(values) {
        *chunk = bytes(value);
    }
}

pub(super) fn f32(values: &[f32], out: &mut [u8]) {
    each(values, out, f32::to_le_bytes);
}

pub(super) fn f16(values: &[f32], out: &mut [u8]) {
    each(values, out, |v| f32_to_f16(v).to_le_bytes());
}

pub(super) fn bf16(values: &[f32], out: &mut [u8]) {
    each(values, out, |v| f32_to_bf16(v).to_le_bytes());
}

pub(super) fn f64(values: &[f32], out: &mut [u8]) {
    each(values, out, |v| f64::from(v).to_le_bytes());
}
