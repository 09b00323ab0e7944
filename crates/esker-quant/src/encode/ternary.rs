//! TQ1_0, TQ2_0, Q1_0, Q2_0: the reference's rules; Q2_0 searches where importance is given.

use crate::blocks::{BlockQ1_0, BlockQ2_0, BlockTQ1_0, BlockTQ2_0};

use super::half;
use super::round::half_away;
use super::search::{Uniform, Weights, fit_scale};

/// Scale and codes 0, 1, 2 for -1, 0, +1: the scale is the largest magnitude.
fn trits<const N: usize>(values: &[f32; N]) -> (f32, [u8; N]) {
    let d = values.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, values.map(|v| half_away(v * inverse).wrapping_add(1) as u8 & 3))
}

pub(super) fn tq1_0(values: &[f32; 256], _: Option<&[f32; 256]>) -> Option<BlockTQ1_0> {
    let (d, trits) = trits(values);
    // `digits` most significant first; four of them count as five with a 0 at the end.
    let byte = |digits: &mut dyn Iterator<Item = u8>| {
        let (number, count) =
            digits.fold((0u16, 0), |(number, n), digit| (number * 3 + u16::from(digit), n + 1));
        let number = if count == 4 { number * 3 } else { number };
        (number * 256).div_ceil(243) as u8
    };
    let qs = std::array::from_fn(|j| {
        let (first, stride) = if j < 32 { (j, 32) } else { (160 + j - 32, 16) };
        byte(&mut (0..5).map(|k| trits[first + stride * k]))
    });
    let qh = std::array::from_fn(|j| byte(&mut (0..4).map(|k| trits[240 + j + 4 * k])));
    Some(BlockTQ1_0 { qs, qh, d: half(d)? })
}

pub(super) fn tq2_0(values: &[f32; 256], _: Option<&[f32; 256]>) -> Option<BlockTQ2_0> {
    let (d, trits) = trits(values);
    let qs = std::array::from_fn(|j| {
        let first = j / 32 * 128 + j % 32;
        (0..4).fold(0, |byte, s| byte | trits[first + 32 * s] << (2 * s))
    });
    Some(BlockTQ2_0 { qs, d: half(d)? })
}

/// The scale is the mean magnitude; zero counts as plus.
pub(super) fn q1_0(values: &[f32; 128], _: Option<&[f32; 128]>) -> Option<BlockQ1_0> {
    let sum = values.iter().fold(0.0f32, |sum, v| sum + v.abs());
    let qs =
        std::array::from_fn(|i| (0..8).fold(0, |byte, j| byte | u8::from(values[8 * i + j] >= 0.0) << j));
    Some(BlockQ1_0 { d: half(sum / 128.0)?, qs })
}

/// Without importance only codes 0 to 2 occur; the search uses code 3 (+2) as well.
pub(super) fn q2_0(values: &[f32; 64], importance: Option<&[f32; 64]>) -> Option<BlockQ2_0> {
    let (d, codes) = match importance {
        None => {
            let d = values.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            (d, values.map(|v| half_away(v * inverse).wrapping_add(1).clamp(0, 3) as u8))
        }
        Some(_) => {
            let levels = Uniform { low: -1.0, high: 2.0 };
            let d = half(fit_scale(values, &Weights::of(importance).0, &levels))?.to_f32();
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            (d, values.map(|v| (levels.nearest(v * inverse) + 1.0) as u8))
        }
    };
    let qs = std::array::from_fn(|i| (0..4).fold(0, |byte, j| byte | codes[4 * i + j] << (2 * j)));
    Some(BlockQ2_0 { d: half(d)?, qs })
}
