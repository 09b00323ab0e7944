//! IQ4_NL and IQ4_XS: search over 16 non-uniform levels.

use crate::blocks::codebooks::KVALUES_IQ4NL;
use crate::blocks::{BlockIQ4NL, BlockIQ4XS, U16Le};

use super::half;
use super::legacy::low_nibbles;
use super::search::{Levels, Weights, fit_scale};
use super::superblock::fit_symmetric;

pub(super) fn iq4_nl(values: &[f32; 32], importance: Option<&[f32; 32]>) -> Option<BlockIQ4NL> {
    let d = half(fit_scale(values, &Weights::of(importance).0, &Iq4Levels))?;
    let inverse = if d.to_f32() == 0.0 { 0.0 } else { 1.0 / d.to_f32() };
    Some(BlockIQ4NL { d, qs: low_nibbles(&values.map(|v| nearest_index(v * inverse) as u8)) })
}

pub(super) fn iq4_xs(values: &[f32; 256], importance: Option<&[f32; 256]>) -> Option<BlockIQ4XS> {
    let fit = fit_symmetric::<8, 32>(values, &Weights::of(importance).0, &Iq4Levels, -32.0)?;
    let scales = fit.scales.map(|scale| (scale + 32) as u8);
    let mut block = BlockIQ4XS { d: fit.d, scales_h: U16Le::default(), scales_l: [0; 4], qs: [0; 128] };
    let mut upper = 0;
    for (g, scale) in scales.iter().enumerate() {
        block.scales_l[g / 2] |= (scale & 15) << (g % 2 * 4);
        upper |= u16::from(scale >> 4) << (2 * g);
    }
    block.scales_h = U16Le::new(upper);
    for (qs, levels) in block.qs.as_chunks_mut::<16>().0.iter_mut().zip(fit.levels.as_chunks::<32>().0) {
        *qs = low_nibbles(&levels.map(|level| nearest_index(level) as u8));
    }
    Some(block)
}

struct Iq4Levels;

impl Levels for Iq4Levels {
    /// The levels reach further down than up: the largest magnitude is put on either end, more or less
    /// clipped.
    fn starts(&self) -> impl Iterator<Item = f32> {
        (0..9).flat_map(|k| {
            let start = 95.0 + 5.0 * k as f32;
            [start, -start]
        })
    }

    fn nearest(&self, value: f32) -> f32 {
        f32::from(KVALUES_IQ4NL[nearest_index(value)])
    }
}

/// Midpoints between neighbouring levels; the last is never passed.
const MIDPOINTS: [f32; 16] = {
    let mut midpoints = [f32::INFINITY; 16];
    let mut i = 0;
    while i < 15 {
        midpoints[i] = (KVALUES_IQ4NL[i] as f32 + KVALUES_IQ4NL[i + 1] as f32) / 2.0;
        i += 1;
    }
    midpoints
};

/// For each integer from -128: the index of the level nearest to it. Levels are at least 9 apart, so at most
/// one midpoint lies between an integer and the next.
const INDEX: [u8; 256] = {
    let mut table = [0; 256];
    let (mut i, mut index) = (0, 0);
    while i < 256 {
        while i as f32 - 128.0 > MIDPOINTS[index] {
            index += 1;
        }
        table[i] = index as u8;
        i += 1;
    }
    table
};

fn nearest_index(value: f32) -> usize {
    let value = value.clamp(-128.0, 127.0);
    let index = usize::from(INDEX[(value + 128.0) as usize]);
    index + usize::from(value > MIDPOINTS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_index_is_the_nearest() {
        for step in -2600..2600 {
            let value = step as f32 / 20.0;
            let distance = |index: usize| (f32::from(KVALUES_IQ4NL[index]) - value).abs();
            let least = (0..16).map(distance).fold(f32::INFINITY, f32::min);
            assert_eq!(distance(nearest_index(value)), least, "{value}");
        }
    }
}
