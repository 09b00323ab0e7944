//! Q4_0 to Q8_1. Without importance the reference's rule, to the byte; with it, Q4 and Q5 search.

use crate::blocks::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1, U32Le};

use super::half;
use super::round::{half_away, truncate};
use super::search::{Affine, Uniform, Weights, fit_affine, fit_scale};

type Importance<'a> = Option<&'a [f32; 32]>;

pub(super) fn q4_0(values: &[f32; 32], importance: Importance) -> Option<BlockQ4_0> {
    let (d, codes) = symmetric(values, importance, 8)?;
    Some(BlockQ4_0 { d: half(d)?, qs: low_nibbles(&codes) })
}

pub(super) fn q4_1(values: &[f32; 32], importance: Importance) -> Option<BlockQ4_1> {
    let (d, m, codes) = with_minimum(values, importance, 15)?;
    Some(BlockQ4_1 { d: half(d)?, m: half(m)?, qs: low_nibbles(&codes) })
}

pub(super) fn q5_0(values: &[f32; 32], importance: Importance) -> Option<BlockQ5_0> {
    let (d, codes) = symmetric(values, importance, 16)?;
    Some(BlockQ5_0 { d: half(d)?, qh: fifth_bits(&codes), qs: low_nibbles(&codes) })
}

pub(super) fn q5_1(values: &[f32; 32], importance: Importance) -> Option<BlockQ5_1> {
    let (d, m, codes) = with_minimum(values, importance, 31)?;
    Some(BlockQ5_1 { d: half(d)?, m: half(m)?, qh: fifth_bits(&codes), qs: low_nibbles(&codes) })
}

pub(super) fn q8_0(values: &[f32; 32], _: Importance) -> Option<BlockQ8_0> {
    let (d, qs) = eight_bits(values);
    Some(BlockQ8_0 { d: half(d)?, qs })
}

pub(super) fn q8_1(values: &[f32; 32], _: Importance) -> Option<BlockQ8_1> {
    let (d, qs) = eight_bits(values);
    let sum: i32 = qs.iter().map(|&code| i32::from(code)).sum();
    Some(BlockQ8_1 { d: half(d)?, s: half(sum as f32 * d)?, qs })
}

/// Scale and codes `0..2n`, standing for `-n..n`. The value of largest magnitude gets code 0, whatever its
/// sign.
fn symmetric(values: &[f32; 32], importance: Importance, n: i32) -> Option<(f32, [u8; 32])> {
    let bound = n as f32;
    if let Some(importance) = importance {
        let levels = Uniform { low: -bound, high: bound - 1.0 };
        let d = half(fit_scale(values, &Weights::of(Some(importance)).0, &levels))?.to_f32();
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        return Some((d, values.map(|v| (levels.nearest(v * inverse) + bound) as u8)));
    }
    let mut extreme = 0.0f32;
    for &v in values {
        if v.abs() > extreme.abs() {
            extreme = v;
        }
    }
    let d = extreme / -bound;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    Some((d, values.map(|v| truncate(v * inverse + (bound + 0.5)).clamp(0, 2 * n - 1) as u8)))
}

/// Scale, minimum and codes `0..=n`.
fn with_minimum(values: &[f32; 32], importance: Importance, n: i32) -> Option<(f32, f32, [u8; 32])> {
    let top = n as f32;
    if let Some(importance) = importance {
        let Affine { scale, offset } =
            fit_affine(values, &Weights::of(Some(importance)).0, top, f32::INFINITY);
        let (d, m) = (half(scale)?.to_f32(), half(offset)?.to_f32());
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let levels = Uniform { low: 0.0, high: top };
        return Some((d, m, values.map(|v| levels.nearest((v - m) * inverse) as u8)));
    }
    let (mut low, mut high) = (f32::MAX, f32::MIN);
    for &v in values {
        if v < low {
            low = v;
        }
        if v > high {
            high = v;
        }
    }
    let d = (high - low) / top;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    Some((d, low, values.map(|v| truncate((v - low) * inverse + 0.5).clamp(0, n) as u8)))
}

/// Scale and codes of the 8-bit types: the largest magnitude gets ±127.
fn eight_bits(values: &[f32; 32]) -> (f32, [i8; 32]) {
    let largest = values.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
    let d = largest / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, values.map(|v| half_away(v * inverse) as i8))
}

/// Lower four bits: weight `j` in the low, weight `j + 16` in the high nibble of byte `j`.
pub(super) fn low_nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| (codes[j] & 15) | (codes[j + 16] << 4))
}

fn fifth_bits(codes: &[u8; 32]) -> U32Le {
    let bits = codes.iter().enumerate().map(|(j, &code)| u32::from(code >> 4) << j);
    U32Le::new(bits.fold(0, |all, bit| all | bit))
}
