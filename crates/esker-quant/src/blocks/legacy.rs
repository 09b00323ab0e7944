//! Blocks of 32 weights: one half-precision scale (and minimum), codes of 4, 5 or 8 bits.
//!
//! 4-bit codes: byte `j` of `qs` holds weight `j` in its low and weight `j + 16` in its high nibble. The
//! fifth bit of weight `j` is bit `j` of `qh`.

use bytemuck::{Pod, Zeroable};

use super::{F16Le, U32Le, block};

/// `w = d * (code - 8)`, code 4 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Scale.
    pub d: F16Le,
    /// Codes.
    pub qs: [u8; 16],
}

/// `w = d * code + m`, code 4 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Scale.
    pub d: F16Le,
    /// Minimum.
    pub m: F16Le,
    /// Codes.
    pub qs: [u8; 16],
}

/// `w = d * (code - 16)`, code 5 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: F16Le,
    /// Fifth bits.
    pub qh: U32Le,
    /// Lower four bits of the codes.
    pub qs: [u8; 16],
}

/// `w = d * code + m`, code 5 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Scale.
    pub d: F16Le,
    /// Minimum.
    pub m: F16Le,
    /// Fifth bits.
    pub qh: U32Le,
    /// Lower four bits of the codes.
    pub qs: [u8; 16],
}

/// `w = d * code`, code 8 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Scale.
    pub d: F16Le,
    /// Codes.
    pub qs: [i8; 32],
}

/// [`BlockQ8_0`] with the sum of its weights; for activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_1 {
    /// Scale.
    pub d: F16Le,
    /// `d` times the sum of the codes.
    pub s: F16Le,
    /// Codes.
    pub qs: [i8; 32],
}

block! {
    BlockQ4_0: Q4_0, 32, 18;
    BlockQ4_1: Q4_1, 32, 20;
    BlockQ5_0: Q5_0, 32, 22;
    BlockQ5_1: Q5_1, 32, 24;
    BlockQ8_0: Q8_0, 32, 34;
    BlockQ8_1: Q8_1, 32, 36;
}
