//! Q4_0 to Q8_1: blocks of 32 with one scale.

use crate::blocks::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1};

pub(super) fn q4_0(block: &BlockQ4_0, out: &mut [f32; 32]) {
    let d = block.d.to_f32();
    for (j, byte) in block.qs.iter().enumerate() {
        out[j] = f32::from((byte & 15) as i8 - 8) * d;
        out[j + 16] = f32::from((byte >> 4) as i8 - 8) * d;
    }
}

pub(super) fn q4_1(block: &BlockQ4_1, out: &mut [f32; 32]) {
    let (d, m) = (block.d.to_f32(), block.m.to_f32());
    for (j, byte) in block.qs.iter().enumerate() {
        out[j] = f32::from(byte & 15) * d + m;
        out[j + 16] = f32::from(byte >> 4) * d + m;
    }
}

/// The codes of weights `j` and `j + 16`, without offset.
fn codes_of_5_bits(qs: &[u8; 16], qh: u32, j: usize) -> [u8; 2] {
    let fifth = |weight: usize| ((qh >> weight) as u8 & 1) << 4;
    [qs[j] & 15 | fifth(j), qs[j] >> 4 | fifth(j + 16)]
}

pub(super) fn q5_0(block: &BlockQ5_0, out: &mut [f32; 32]) {
    let (d, qh) = (block.d.to_f32(), block.qh.get());
    for j in 0..16 {
        let [low, high] = codes_of_5_bits(&block.qs, qh, j);
        out[j] = f32::from(low as i8 - 16) * d;
        out[j + 16] = f32::from(high as i8 - 16) * d;
    }
}

pub(super) fn q5_1(block: &BlockQ5_1, out: &mut [f32; 32]) {
    let (d, m, qh) = (block.d.to_f32(), block.m.to_f32(), block.qh.get());
    for j in 0..16 {
        let [low, high] = codes_of_5_bits(&block.qs, qh, j);
        out[j] = f32::from(low) * d + m;
        out[j + 16] = f32::from(high) * d + m;
    }
}

pub(super) fn q8_0(block: &BlockQ8_0, out: &mut [f32; 32]) {
    let d = block.d.to_f32();
    for (out, &code) in out.iter_mut().zip(&block.qs) {
        *out = f32::from(code) * d;
    }
}

/// The stored sum plays no part.
pub(super) fn q8_1(block: &BlockQ8_1, out: &mut [f32; 32]) {
    let d = block.d.to_f32();
    for (out, &code) in out.iter_mut().zip(&block.qs) {
        *out = f32::from(code) * d;
    }
}
