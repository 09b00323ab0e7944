//! Ternary, binary and 4-bit float blocks: TQ1_0, TQ2_0, Q1_0, Q2_0, MXFP4, NVFP4.

use bytemuck::{Pod, Zeroable};

use super::{F16Le, block};

/// `w = d * (trit - 1)`, 256 weights, five base-3 digits a byte (four in `qh`).
///
/// A byte is `ceil(256 n / 243)` of the digits' number `n`, first digit most significant: multiplying by 3
/// modulo 256 moves to the next digit, and `byte * 3 >> 8` reads the first. Digit `k` of `qs[j]` is weight
/// `32 k + j` for `j < 32`, and `160 + 16 k + (j - 32)` for the others; digit `k` of `qh[j]` is weight
/// `240 + 4 k + j`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTQ1_0 {
    /// Five digits a byte.
    pub qs: [u8; 48],
    /// Four digits a byte.
    pub qh: [u8; 4],
    /// Scale.
    pub d: F16Le,
}

/// `w = d * (code - 1)`, 256 weights of 2 bits: weight `128 h + 32 s + j` (`j < 32`) is bits `2 s` and up of
/// `qs[32 h + j]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTQ2_0 {
    /// Codes.
    pub qs: [u8; 64],
    /// Scale.
    pub d: F16Le,
}

/// `w = ±d`, 128 weights of one bit: weight `j` is bit `j % 8` of `qs[j / 8]`, set for plus.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    /// Scale.
    pub d: F16Le,
    /// Codes.
    pub qs: [u8; 16],
}

/// `w = d * (code - 1)`, 64 weights of 2 bits in natural order: weight `j` is bits `2 (j % 4)` and up of
/// `qs[j / 4]`.
///
/// Code 3 (`+2 d`) is legal, though the reference encoder never writes it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    /// Scale.
    pub d: F16Le,
    /// Codes.
    pub qs: [u8; 16],
}

/// OCP MXFP4: 32 weights of E2M1 with a power-of-two scale; codes in the order of
/// [`BlockQ4_0`](super::BlockQ4_0).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMXFP4 {
    /// Scale, E8M0; see [`e8m0_half_to_f32`](super::e8m0_half_to_f32).
    pub e: u8,
    /// Indices into `KVALUES_E2M1`.
    pub qs: [u8; 16],
}

/// NVFP4: four groups of 16 weights of E2M1, each with an E4M3 scale. (The second-level scale of the tensor
/// is not in the block.)
///
/// With `j < 8`: byte `8 g + j` of `qs` holds weight `16 g + j` in its low and weight `16 g + 8 + j` in its
/// high nibble.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockNVFP4 {
    /// Scales, unsigned E4M3; see [`ue4m3_half_to_f32`](super::ue4m3_half_to_f32).
    pub d: [u8; 4],
    /// Indices into `KVALUES_E2M1`.
    pub qs: [u8; 32],
}

block! {
    BlockTQ1_0: TQ1_0, 256, 54;
    BlockTQ2_0: TQ2_0, 256, 66;
    BlockQ1_0: Q1_0, 128, 18;
    BlockQ2_0: Q2_0, 64, 18;
    BlockMXFP4: MXFP4, 32, 17;
    BlockNVFP4: NVFP4, 64, 36;
}
