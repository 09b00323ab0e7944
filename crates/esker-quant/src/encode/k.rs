//! Q2_K to Q6_K: search. Q8_K: the reference's rule.

use crate::blocks::{
    BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K, F32Le, I16Le, pack_scales_mins,
};

use super::round::half_even;
use super::search::{Uniform, Weights};
use super::superblock::{fit_symmetric, fit_with_minima};

type Importance<'a> = Option<&'a [f32; 256]>;

pub(super) fn q2_k(values: &[f32; 256], importance: Importance) -> Option<BlockQ2K> {
    let fit = fit_with_minima::<16, 16>(values, &Weights::of(importance).0, 3.0, 15.0)?;
    Some(BlockQ2K {
        scales: std::array::from_fn(|g| fit.scales[g] | fit.mins[g] << 4),
        qs: crumbs(&fit.codes),
        d: fit.d,
        dmin: fit.dmin,
    })
}

pub(super) fn q3_k(values: &[f32; 256], importance: Importance) -> Option<BlockQ3K> {
    let levels = Uniform { low: -4.0, high: 3.0 };
    let fit = fit_symmetric::<16, 16>(values, &Weights::of(importance).0, &levels, -32.0)?;
    let codes = fit.levels.map(|level| (level + 4.0) as u8);
    let scales = fit.scales.map(|scale| (scale + 32) as u8);
    let mut packed = [0; 12];
    for (g, scale) in scales.iter().enumerate() {
        packed[g % 8] |= (scale & 15) << (g / 8 * 4);
        packed[8 + g % 4] |= (scale >> 4) << (g / 4 * 2);
    }
    Some(BlockQ3K {
        hmask: std::array::from_fn(|j| (0..8).fold(0, |byte, i| byte | (codes[32 * i + j] >> 2) << i)),
        qs: crumbs(&codes.map(|code| code & 3)),
        scales: packed,
        d: fit.d,
    })
}

pub(super) fn q4_k(values: &[f32; 256], importance: Importance) -> Option<BlockQ4K> {
    let fit = fit_with_minima::<8, 32>(values, &Weights::of(importance).0, 15.0, 63.0)?;
    Some(BlockQ4K {
        d: fit.d,
        dmin: fit.dmin,
        scales: pack_scales_mins(&fit.scales, &fit.mins),
        qs: low_nibbles(&fit.codes),
    })
}

pub(super) fn q5_k(values: &[f32; 256], importance: Importance) -> Option<BlockQ5K> {
    let fit = fit_with_minima::<8, 32>(values, &Weights::of(importance).0, 31.0, 63.0)?;
    Some(BlockQ5K {
        d: fit.d,
        dmin: fit.dmin,
        scales: pack_scales_mins(&fit.scales, &fit.mins),
        qh: std::array::from_fn(|j| (0..8).fold(0, |byte, g| byte | (fit.codes[32 * g + j] >> 4) << g)),
        qs: low_nibbles(&fit.codes),
    })
}

pub(super) fn q6_k(values: &[f32; 256], importance: Importance) -> Option<BlockQ6K> {
    let levels = Uniform { low: -32.0, high: 31.0 };
    let fit = fit_symmetric::<16, 16>(values, &Weights::of(importance).0, &levels, -128.0)?;
    let codes = fit.levels.map(|level| (level + 32.0) as u8);
    let ql = std::array::from_fn(|i| {
        let low = i / 64 * 128 + i % 64;
        codes[low] & 15 | codes[low + 64] << 4
    });
    Some(BlockQ6K { ql, qh: crumbs(&codes.map(|code| code >> 4)), scales: fit.scales, d: fit.d })
}

/// The value of largest magnitude gets -127, whatever its sign.
pub(super) fn q8_k(values: &[f32; 256], _: Importance) -> Option<BlockQ8K> {
    let mut extreme = 0.0f32;
    for &v in values {
        if v.abs() > extreme.abs() {
            extreme = v;
        }
    }
    if extreme == 0.0 {
        return Some(BlockQ8K { d: F32Le::default(), qs: [0; 256], bsums: [I16Le::default(); 16] });
    }
    let inverse = -127.0 / extreme;
    let qs = values.map(|v| half_even(v * inverse).min(127) as i8);
    let bsums = std::array::from_fn(|g| I16Le::new(qs[16 * g..][..16].iter().map(|&q| i16::from(q)).sum()));
    Some(BlockQ8K { d: F32Le::new(1.0 / inverse), qs, bsums })
}

/// Codes of 2 bits: weight `128 h + 32 s + j` at bits `2 s` of byte `32 h + j`.
fn crumbs(codes: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let first = i / 32 * 128 + i % 32;
        (0..4).fold(0, |byte, s| byte | codes[first + 32 * s] << (2 * s))
    })
}

/// Lower four bits: weights `64 p + j` and `64 p + 32 + j` in byte `32 p + j`.
fn low_nibbles(codes: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let low = i / 32 * 64 + i % 32;
        codes[low] & 15 | codes[low + 32] << 4
    })
}
