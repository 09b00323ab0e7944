//! Q2_K to Q8_K: super-blocks of 256.

use crate::blocks::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K, unpack_scale_min};

pub(super) fn q2_k(block: &BlockQ2K, out: &mut [f32; 256]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block.scales[g] & 15);
        let min = dmin * f32::from(block.scales[g] >> 4);
        let qs = &block.qs[g / 8 * 32 + g % 2 * 16..][..16];
        let shift = g % 8 / 2 * 2;
        for (out, byte) in group.iter_mut().zip(qs) {
            *out = scale * f32::from(byte >> shift & 3) - min;
        }
    }
}

pub(super) fn q3_k(block: &BlockQ3K, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    let scales = block.scales();
    for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[g]);
        let qs = &block.qs[g / 8 * 32 + g % 2 * 16..][..16];
        let hmask = &block.hmask[g % 2 * 16..][..16];
        let shift = g % 8 / 2 * 2;
        for (j, out) in group.iter_mut().enumerate() {
            let high = hmask[j] >> (g / 2) & 1;
            *out = scale * f32::from((qs[j] >> shift & 3 | high << 2) as i8 - 4);
        }
    }
}

pub(super) fn q4_k(block: &BlockQ4K, out: &mut [f32; 256]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = unpack_scale_min(&block.scales, g);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let qs = &block.qs[g / 2 * 32..][..32];
        let shift = g % 2 * 4;
        for (out, byte) in group.iter_mut().zip(qs) {
            *out = scale * f32::from(byte >> shift & 15) - min;
        }
    }
}

pub(super) fn q5_k(block: &BlockQ5K, out: &mut [f32; 256]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = unpack_scale_min(&block.scales, g);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let qs = &block.qs[g / 2 * 32..][..32];
        let shift = g % 2 * 4;
        for (j, out) in group.iter_mut().enumerate() {
            let high = block.qh[j] >> g & 1;
            *out = scale * f32::from(qs[j] >> shift & 15 | high << 4) - min;
        }
    }
}

pub(super) fn q6_k(block: &BlockQ6K, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block.scales[g]);
        let (half, within) = (g / 8, g % 8);
        let ql = &block.ql[half * 64 + within % 4 * 16..][..16];
        let qh = &block.qh[half * 32 + within % 2 * 16..][..16];
        let (low_shift, high_shift) = (within / 4 * 4, within / 2 * 2);
        for (j, out) in group.iter_mut().enumerate() {
            let code = ql[j] >> low_shift & 15 | (qh[j] >> high_shift & 3) << 4;
            *out = scale * f32::from(code as i8 - 32);
        }
    }
}

/// The stored sums play no part.
pub(super) fn q8_k(block: &BlockQ8K, out: &mut [f32; 256]) {
    let d = block.d.get();
    for (out, &code) in out.iter_mut().zip(&block.qs) {
        *out = d * f32::from(code);
    }
}
