//! What a weight type's codes are, in the operations of [`Simd`]: 64 weights at a time, for any instruction set.
//!
//! A kind says how its blocks become small integers and scales; `drive` multiplies. The same facts in plain Rust, one
//! weight at a time, are in `scalar`: tests compare the two.

mod blocks32;
mod float;
mod iq;
mod k;

pub(super) use blocks32::{Iq4Nl, Mxfp4, Nvfp4, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub(super) use float::{Bf16, F16, F32};
pub(super) use iq::{Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Iq4Xs};
pub(super) use k::{Q2K, Q3K, Q4K, Q5K, Q6K};

use super::simd::Simd;
use bytemuck::Pod;
use esker_quant::blocks::F16Le;

/// A type whose activations are Q8x32. It is read 64 weights (a pair of 32-blocks) at a time.
pub(super) trait Kind32 {
    /// Bytes of 64 weights; a row may end with the first half of a pair, completed with zeros.
    type Pair: Pod;
    /// Codes are -128 to 127 if set, 0 to 127 if not.
    const SIGNED: bool;
    /// Weights have a minimum each 32.
    const MIN: bool = false;
    /// Scales for each 16 weights, not 32.
    const FOURS: bool = false;

    /// The integer codes of the weights.
    fn codes<S: Simd>(s: S, pair: &Self::Pair) -> S::Bytes;

    /// The scales as they are in the two blocks; of no meaning if [`Kind32::FOURS`].
    fn scales(pair: &Self::Pair) -> [u16; 2];

    /// The minima as they are in the two blocks; only if [`Kind32::MIN`].
    fn mins(_: &Self::Pair) -> [u16; 2] {
        unreachable!("has no minima")
    }

    /// The scales as they are in the block; only if [`Kind32::FOURS`].
    fn four_scales(_: &Self::Pair) -> [u16; 4] {
        unreachable!("has a scale for each 32 weights")
    }

    /// What the scales (and minima) stand for.
    #[inline(always)]
    fn floats<S: Simd>(s: S, scales: &[u16; 16]) -> S::Floats {
        s.load_f16(scales)
    }
}

/// How [`Kind256::codes`] are to be understood.
#[derive(Clone, Copy)]
pub(super) enum Codes {
    /// 0 to 127.
    Unsigned,
    /// -127 to 127.
    Signed,
    /// 0 to 127, with the signs in [`Kind256::signs`].
    Magnitudes,
}

/// A type whose activations are Q8x256: `d · scale · code - dmin · min`.
pub(super) trait Kind256 {
    /// Its block.
    type Block: Pod;
    /// What is found out once for a block, for its four groups: indices into a table, or nothing.
    type Prepared;
    const CODES: Codes;
    /// Weights per integer scale (and minimum), 16 or 32.
    const GROUP: usize;
    /// Weights have minima.
    const MIN: bool = false;
    /// What `d` is multiplied by: a power of two.
    const FACTOR: f32 = 1.0;

    /// See [`Kind256::Prepared`].
    fn prepare<S: Simd>(s: S, block: &Self::Block) -> Self::Prepared;

    /// The integer codes of weights `64 G` to `64 G + 63`.
    fn codes<S: Simd, const G: usize>(s: S, block: &Self::Block, prepared: &Self::Prepared) -> S::Bytes;

    /// Their signs, one bit each, set for minus; only if [`Codes::Magnitudes`].
    fn signs<const G: usize>(_: &Self::Block) -> u64 {
        unreachable!("has signed or unsigned codes")
    }

    /// The scale of the scales, in half precision.
    fn d(block: &Self::Block) -> u16;

    /// 16 (or 8) scales, `i8` each, first in the lowest byte.
    fn scales(block: &Self::Block) -> [u64; 2];

    /// The scale of the minima, in half precision; only if [`Kind256::MIN`].
    fn dmin(_: &Self::Block) -> u16 {
        unreachable!("has no minima")
    }

    /// 16 (or 8) minima, `u8` each, first in the lowest byte; only if [`Kind256::MIN`].
    fn mins(_: &Self::Block) -> [u64; 2] {
        unreachable!("has no minima")
    }
}

/// A float type: 16 weights at a time.
pub(super) trait KindFloat {
    /// One weight, in the file's byte order.
    type Element: Pod;

    /// 16 weights.
    fn load<S: Simd>(s: S, weights: &[Self::Element; 16]) -> S::Floats;
}

/// The bits of a half-precision number.
#[inline(always)]
fn half_bits(half: F16Le) -> u16 {
    u16::from_le_bytes(half.0)
}

/// Nibbles to bytes: nibble `i` of `v` (lowest first) is byte `i`.
#[inline(always)]
fn spread_nibbles(v: u32) -> u64 {
    let v = u64::from(v);
    let v = (v | v << 16) & 0x0000_ffff_0000_ffff;
    let v = (v | v << 8) & 0x00ff_00ff_00ff_00ff;
    (v | v << 4) & 0x0f0f_0f0f_0f0f_0f0f
}

/// Every byte of `v` minus 32 as `i8`; bytes 0 to 63.
#[inline(always)]
fn minus_32(v: u64) -> u64 {
    // With bit 7 set there is nothing to borrow from the next byte.
    ((v | 0x8080_8080_8080_8080) - 0x2020_2020_2020_2020) ^ 0x8080_8080_8080_8080
}
