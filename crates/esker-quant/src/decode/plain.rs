//! Types without blocks: floats and integers, one after the other, little endian.

use crate::blocks::{bf16_to_f32, f16_to_f32};

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (out, &chunk) in out.iter_mut().zip(chunks) {
        *out = value(chunk);
    }
}

pub(super) fn f32(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, f32::from_le_bytes);
}

pub(super) fn f16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b)));
}

pub(super) fn bf16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b)));
}

pub(super) fn f64(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f64::from_le_bytes(b) as f32);
}

pub(super) fn i8(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f32::from(i8::from_le_bytes(b)));
}

pub(super) fn i16(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f32::from(i16::from_le_bytes(b)));
}

pub(super) fn i32(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| i32::from_le_bytes(b) as f32);
}

pub(super) fn i64(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| i64::from_le_bytes(b) as f32);
}
