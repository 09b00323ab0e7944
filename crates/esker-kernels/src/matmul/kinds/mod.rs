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

/// A type whose activations are Q8x32. It is read 64 weights (a pair of 32-blocks) at a time.
pub(super) trait Kind32 {
    /// Bytes of 64 weights. All zero must mean 64 weights of no effect.
    type Pair: Pod;
    /// Bytes of a block: a row may end with half a pair of that many.
    const BLOCK_BYTES: usize;
    /// Codes are -128 to 127 if set, 0 to 127 if not.
    const SIGNED: bool;
    /// Weights have a minimum each 32.
    const MIN: bool = false;
    /// Scales for each 16 weights, not 32.
    const FOURS: bool = false;

    /// The integer codes of the weights.
    fn codes<S: Simd>(s: S, pair: &Self::Pair) -> S::Bytes;

    /// The scales of up to 8 pairs, two each. (With [`Kind32::FOURS`]: of up to 4 pairs, four each.)
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats;

    /// The minima of up to 8 pairs, two each; only if [`Kind32::MIN`].
    fn mins<S: Simd>(s: S, _: &[Self::Pair]) -> S::Floats {
        s.zero()
    }
}

/// A type whose activations are Q8x256: `d · scale · code - dmin · min`.
pub(super) trait Kind256 {
    /// Its block.
    type Block: Pod;
    /// Codes are -127 to 127 if set, 0 to 127 if not.
    const SIGNED: bool;
    /// Weights per integer scale (and minimum), 16 or 32.
    const GROUP: usize;
    /// Weights have minima.
    const MIN: bool = false;
    /// What `d` is multiplied by: a power of two.
    const FACTOR: f32 = 1.0;

    /// The integer codes of weights `64 G` to `64 G + 63`.
    fn codes<S: Simd, const G: usize>(s: S, block: &Self::Block) -> S::Bytes;

    /// The scale of the scales, in half precision.
    fn d(block: &Self::Block) -> u16;

    /// 16 (or 8) scales, `i8` each, first in the lowest byte.
    fn scales(block: &Self::Block) -> [u64; 2];

    /// `dmin` in half precision and 16 (or 8) minima; only if [`Kind256::MIN`].
    fn mins(_: &Self::Block) -> (u16, [u64; 2]) {
        (0, [0; 2])
    }
}

/// A float type: 16 weights at a time.
pub(super) trait KindFloat {
    /// One weight, in the file's byte order.
    type Element: Pod;

    /// 16 weights.
    fn load<S: Simd>(s: S, weights: &[Self::Element; 16]) -> S::Floats;
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
