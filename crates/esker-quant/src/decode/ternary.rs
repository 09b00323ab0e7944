//! TQ1_0, TQ2_0, Q1_0, Q2_0: one or two bits (or a base-3 digit) a weight, one scale a block.

use crate::blocks::{BlockQ1_0, BlockQ2_0, BlockTQ1_0, BlockTQ2_0};

pub(super) fn tq1_0(block: &BlockTQ1_0, out: &mut [f32; 256]) {
    const POW3: [u8; 5] = [1, 3, 9, 27, 81];
    let d = block.d.to_f32();
    // Multiplying by 3^k modulo 256 drops the first k digits; the next one is then byte * 3 / 256.
    let weight = |byte: u8, k: usize| {
        let digit = (u16::from(byte.wrapping_mul(POW3[k])) * 3) >> 8;
        f32::from(digit as i8 - 1) * d
    };
    for k in 0..5 {
        for j in 0..32 {
            out[32 * k + j] = weight(block.qs[j], k);
        }
        for j in 0..16 {
            out[160 + 16 * k + j] = weight(block.qs[32 + j], k);
        }
    }
    for k in 0..4 {
        for j in 0..4 {
            out[240 + 4 * k + j] = weight(block.qh[j], k);
        }
    }
}

pub(super) fn tq2_0(block: &BlockTQ2_0, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    let (halves, _) = block.qs.as_chunks::<32>();
    for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (out, byte) in out.iter_mut().zip(&halves[i / 4]) {
            *out = f32::from((byte >> (i % 4 * 2) & 3) as i8 - 1) * d;
        }
    }
}

pub(super) fn q1_0(block: &BlockQ1_0, out: &mut [f32; 128]) {
    let d = block.d.to_f32();
    for (out, byte) in out.as_chunks_mut::<8>().0.iter_mut().zip(&block.qs) {
        for (j, out) in out.iter_mut().enumerate() {
            *out = if byte >> j & 1 == 1 { d } else { -d };
        }
    }
}

pub(super) fn q2_0(block: &BlockQ2_0, out: &mut [f32; 64]) {
    let d = block.d.to_f32();
    for (out, byte) in out.as_chunks_mut::<4>().0.iter_mut().zip(&block.qs) {
        for (j, out) in out.iter_mut().enumerate() {
            *out = f32::from((byte >> (2 * j) & 3) as i8 - 1) * d;
        }
    }
}
