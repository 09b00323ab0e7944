//! MXFP4 and NVFP4: the reference's rules.

use crate::blocks::codebooks::KVALUES_E2M1;
use crate::blocks::{BlockMXFP4, BlockNVFP4, e8m0_half_to_f32, ue4m3_half_to_f32};

use super::legacy::low_nibbles;

/// The scale's exponent is that of the largest magnitude less 2, so that this falls on 4 to 8 of E2M1's
/// largest 6.
///
/// The reference differs in two corners: below the range of E8M0 its exponent wraps round to a huge one (all
/// codes being 0), here it stays at 0; and its `log2f` may round a magnitude just below a power of two up to
/// it.
pub(super) fn mxfp4(values: &[f32; 32], _: Option<&[f32; 32]>) -> Option<BlockMXFP4> {
    let largest = largest(values);
    // For subnormals the exponent field is 0: below the range in any case.
    let exponent = (largest.to_bits() >> 23) as i32;
    let e = (exponent - 2).max(0) as u8;
    let d = e8m0_half_to_f32(e);
    Some(BlockMXFP4 { e, qs: low_nibbles(&values.map(|v| nearest(v, d))) })
}

/// Each group's largest magnitude falls on 6, as far as E4M3 can express the scale.
pub(super) fn nvfp4(values: &[f32; 64], _: Option<&[f32; 64]>) -> Option<BlockNVFP4> {
    let mut block = BlockNVFP4 { d: [0; 4], qs: [0; 32] };
    for (g, group) in values.as_chunks::<16>().0.iter().enumerate() {
        block.d[g] = f32_to_ue4m3(largest(group) / 6.0);
        let d = ue4m3_half_to_f32(block.d[g]);
        for j in 0..8 {
            block.qs[8 * g + j] = nearest(group[j], d) | nearest(group[j + 8], d) << 4;
        }
    }
    Some(block)
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |largest, v| largest.max(v.abs()))
}

/// The code whose value is nearest; the lowest of equals.
fn nearest(value: f32, d: f32) -> u8 {
    let error = |code: usize| (f32::from(KVALUES_E2M1[code]) * d - value).abs();
    let mut best = 0;
    for code in 1..16 {
        if error(code) < error(best) {
            best = code;
        }
    }
    best as u8
}

/// Unsigned E4M3 (bias 7), halves away from zero; `value` must not be negative. The largest, 448, is 0x7e.
fn f32_to_ue4m3(value: f32) -> u8 {
    const SMALLEST_NORMAL: f32 = 1.0 / 64.0;
    if value >= 448.0 {
        return 0x7e;
    }
    if value < SMALLEST_NORMAL {
        // A count of 2^-9; the reference does not let a subnormal round up into the normal range.
        return ((value * 512.0 + 0.5) as u8).min(7);
    }
    // Rebias, keep 3 bits of mantissa rounded; a carry runs into the exponent.
    let rebiased = value.to_bits() - (120 << 23);
    (((rebiased + (1 << 19)) >> 20) as u8).min(0x7e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_e4m3_code_comes_back() {
        for code in 0..0x7fu8 {
            assert_eq!(f32_to_ue4m3(2.0 * ue4m3_half_to_f32(code)), code);
        }
        assert_eq!(f32_to_ue4m3(1e9), 0x7e);
        assert_eq!(f32_to_ue4m3(1.0625), 0x39); // half way between 1 and 1.125
        assert_eq!(f32_to_ue4m3(0.0155), 0x07); // nearer to the smallest normal
    }
}
