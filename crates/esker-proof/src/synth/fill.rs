//! Random weights, written as blocks of their type.
//!
//! A piece of a tensor is filled with random bytes, which are valid codes of every type; then scales are put in their
//! places. Codes whose mean is not zero get scales of random sign, or minima that make up for it: a matrix with a mean
//! would push every token toward one direction.

use super::normal;
use super::random::Random;
use bytemuck::Pod;
use esker_quant::GgmlType;
use esker_quant::blocks::{
    Block, BlockIQ3S, BlockIQ4NL, BlockIQ4XS, BlockQ2_0, BlockQ4K, BlockQ5_0, BlockQ5K, BlockQ6K, BlockQ8_0,
    F16Le,
};

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Content {
    /// Mean 0.
    Spread {
        /// Standard deviation.
        std: f32,
    },
    /// Evenly distributed, F32 only.
    Between {
        /// Smallest value.
        low: f32,
        /// Largest value.
        high: f32,
    },
}

/// Fills pieces of one tensor.
pub(super) struct Filler {
    ty: GgmlType,
    content: Content,
    /// Scale of the blocks.
    d: f32,
}

impl Filler {
    /// # Panics
    /// If no recipe has this type, or `content` does not go with it.
    pub(super) fn new(ty: GgmlType, content: Content) -> Filler {
        let d = match content {
            Content::Spread { std } => std / unit_rms(ty),
            Content::Between { .. } => {
                assert_eq!(ty, GgmlType::F32, "small tensors are F32");
                1.0
            }
        };
        Filler { ty, content, d }
    }

    /// Fills `bytes`, whole blocks.
    pub(super) fn fill(&self, random: &mut Random, bytes: &mut [u8]) {
        random.fill(bytes);
        if let Content::Between { low, high } = self.content {
            const UNIT: f32 = 1.0 / (1 << 24) as f32;
            for value in cast::<[u8; 4]>(bytes) {
                let random = (u32::from_le_bytes(*value) >> 8) as f32 * UNIT; // 0 to 1, exact
                *value = (low + (high - low) * random).to_le_bytes();
            }
            return;
        }
        set_scales(self.ty, self.d, bytes);
    }
}

/// The root of the mean square of weights with scale 1, by the type's own decoder.
fn unit_rms(ty: GgmlType) -> f32 {
    const N: usize = 1 << 15;
    let mut bytes = vec![0; ty.row_bytes(N).expect("blocks have at most 256 elements")];
    Random::new(0, "scale of a type", 0).fill(&mut bytes);
    set_scales(ty, 1.0, &mut bytes);
    let mut values = vec![0.0; N];
    esker_quant::decode(ty, &bytes, &mut values).expect("lengths agree");
    let mean_square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / N as f64;
    mean_square.sqrt() as f32
}

fn cast<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn each<B: Block>(bytes: &mut [u8], change: impl Fn(&mut B)) {
    cast::<B>(bytes).iter_mut().for_each(change);
}

/// Turns random bytes into blocks of scale `d`.
fn set_scales(ty: GgmlType, d: f32, bytes: &mut [u8]) {
    let half = F16Le::from_f32(d);
    // The random bytes that the scale replaces decide on its sign.
    let signed = |old: F16Le| F16Le([half.0[0], half.0[1] | old.0[1] & 0x80]);
    match ty {
        GgmlType::F32 => {
            for value in cast::<[u8; 4]>(bytes) {
                let pick = u32::from_le_bytes(*value) >> (32 - normal::BITS);
                *value = (d * normal::QUANTILES[pick as usize]).to_le_bytes();
            }
        }
        GgmlType::F16 => {
            let table: Vec<[u8; 2]> = normal::QUANTILES.iter().map(|q| F16Le::from_f32(d * q).0).collect();
            for value in cast::<[u8; 2]>(bytes) {
                *value = table[usize::from(u16::from_le_bytes(*value) >> (16 - normal::BITS))];
            }
        }
        GgmlType::Q5_0 => each(bytes, |b: &mut BlockQ5_0| b.d = signed(b.d)),
        GgmlType::IQ4_NL => each(bytes, |b: &mut BlockIQ4NL| b.d = signed(b.d)),
        // The group scales are random, and so are their signs.
        GgmlType::IQ4_XS => each(bytes, |b: &mut BlockIQ4XS| b.d = half),
        GgmlType::IQ3_S => each(bytes, |b: &mut BlockIQ3S| b.d = half),
        GgmlType::Q8_0 => each(bytes, |b: &mut BlockQ8_0| {
            b.d = half;
            b.qs = b.qs.map(|code| code.max(-127)); // Encoders do not write -128.
        }),
        GgmlType::Q2_0 => each(bytes, |b: &mut BlockQ2_0| {
            b.d = half;
            // Code 3 becomes 1: -1, 0, 0, +1, which is also all that the reference encoder writes.
            let codes = u128::from_le_bytes(b.qs);
            let threes = codes & codes >> 1 & (u128::MAX / 3);
            b.qs = (codes ^ threes << 1).to_le_bytes();
        }),
        GgmlType::Q6_K => each(bytes, |b: &mut BlockQ6K| {
            b.d = half;
            b.scales = b.scales.map(|random| {
                let magnitude = 32 + (random & 63);
                if random < 0 { -magnitude } else { magnitude }
            });
        }),
        // The middle of the codes times the scale is what the minimum takes away.
        GgmlType::Q4_K => {
            let dmin = F16Le::from_f32(half.to_f32() * 7.5);
            each(bytes, |b: &mut BlockQ4K| {
                (b.d, b.dmin, b.scales) = (half, dmin, minima_as_scales(b.scales))
            });
        }
        GgmlType::Q5_K => {
            let dmin = F16Le::from_f32(half.to_f32() * 15.5);
            each(bytes, |b: &mut BlockQ5K| {
                (b.d, b.dmin, b.scales) = (half, dmin, minima_as_scales(b.scales))
            });
        }
        other => unreachable!("no recipe has {other}"),
    }
}

/// Packed scales of 32 to 63, each with a minimum equal to it; see [`esker_quant::blocks::unpack_scale_min`].
fn minima_as_scales(random: [u8; 12]) -> [u8; 12] {
    let mut packed = random;
    for g in 0..4 {
        // The highest bit of scale g is bit 5, that of scale g + 4 is bit 7.
        packed[g] |= 0xa0;
        packed[g + 4] = packed[g];
        packed[g + 8] = random[g + 8] & 15 | random[g + 8] << 4;
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_quant::blocks::unpack_scale_min;

    const TYPES: [GgmlType; 11] = [
        GgmlType::F32,
        GgmlType::F16,
        GgmlType::Q5_0,
        GgmlType::Q8_0,
        GgmlType::Q4_K,
        GgmlType::Q5_K,
        GgmlType::Q6_K,
        GgmlType::IQ3_S,
        GgmlType::IQ4_NL,
        GgmlType::IQ4_XS,
        GgmlType::Q2_0,
    ];

    /// Standard deviations from the largest matrix to a table of unit rows. The tolerances are five standard errors of
    /// 2^17 draws in blocks of 256 at worst, and the steps of a subnormal half-precision scale.
    #[test]
    fn weights_have_the_spread_and_no_mean() {
        const N: usize = 1 << 17;
        for ty in TYPES {
            for std in [1.0, 0.0442, 0.0099] {
                let mut bytes = vec![0; ty.row_bytes(N).unwrap()];
                Filler::new(ty, Content::Spread { std }).fill(&mut Random::new(7, "x", 0), &mut bytes);
                let mut values = vec![0.0; N];
                esker_quant::decode(ty, &bytes, &mut values).unwrap();
                let sum: f64 = values.iter().map(|&v| f64::from(v)).sum();
                let squares: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
                let (mean, rms) = (sum / N as f64, (squares / N as f64).sqrt());
                let std = f64::from(std);
                assert!((rms / std - 1.0).abs() < 0.03, "{ty}: rms {rms}, expected {std}");
                assert!(mean.abs() < 0.02 * std, "{ty}: mean {mean} at {std}");
                let largest = values.iter().fold(0f64, |m, &v| m.max(f64::from(v).abs()));
                assert!(largest < 8.0 * std, "{ty}: {largest} at {std}");
            }
        }
    }

    #[test]
    fn scales_equal_minima() {
        let mut bytes = [0; 12];
        for seed in 0..100 {
            Random::new(seed, "x", 0).fill(&mut bytes);
            let packed = minima_as_scales(bytes);
            for g in 0..8 {
                let (scale, min) = unpack_scale_min(&packed, g);
                assert!(scale == min && (32..64).contains(&scale), "group {g}: {scale}, {min}");
            }
        }
    }

    #[test]
    fn codes_that_encoders_do_not_write_are_absent() {
        let mut bytes = vec![0; GgmlType::Q8_0.row_bytes(1 << 16).unwrap()];
        Filler::new(GgmlType::Q8_0, Content::Spread { std: 1.0 })
            .fill(&mut Random::new(1, "x", 0), &mut bytes);
        assert!(cast::<BlockQ8_0>(&mut bytes).iter().all(|b| !b.qs.contains(&-128)));
        let mut bytes = vec![0; GgmlType::Q2_0.row_bytes(1 << 16).unwrap()];
        Filler::new(GgmlType::Q2_0, Content::Spread { std: 1.0 })
            .fill(&mut Random::new(1, "x", 0), &mut bytes);
        let codes = cast::<BlockQ2_0>(&mut bytes).iter().flat_map(|b| b.qs);
        assert!(codes.flat_map(|q| [q & 3, q >> 2 & 3, q >> 4 & 3, q >> 6]).all(|code| code < 3));
    }

    #[test]
    fn small_tensors_stay_in_their_range() {
        let mut bytes = vec![0; 4 << 12];
        let content = Content::Between { low: -6.5, high: 0.25 };
        Filler::new(GgmlType::F32, content).fill(&mut Random::new(1, "x", 0), &mut bytes);
        let mut values = vec![0.0; 1 << 12];
        esker_quant::decode(GgmlType::F32, &bytes, &mut values).unwrap();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(values.iter().all(|v| (-6.5..=0.25).contains(v)) && (mean + 3.125).abs() < 0.2);
    }
}
