//! The IQ types: codes are indices into a lattice (IQ1 to IQ3) or into 16 non-uniform levels (IQ4).
//!
//! The tables are in [`codebooks`](super::codebooks). Lattice entries are magnitudes of 8 or 4 neighbouring
//! weights; the signs are stored beside them: bit `j` of a sign byte belongs to weight `j` of 8.

use bytemuck::{Pod, Zeroable};

use super::{F16Le, U16Le, U32Le, block};

/// 32 weights of a [`BlockIQ2XXS`].
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Iq2XxsGroup {
    /// Indices into `IQ2XXS_GRID`, 8 weights each.
    pub grid: [u8; 4],
    /// Four indices of 7 bits into `KSIGNS`, lowest first; the scale in bits 28 to 31.
    pub signs_scale: U32Le,
}

/// `w = ±d * (scale + 1/2) / 4 * magnitude`, 8 groups of 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ2XXS {
    /// Scale of the scales.
    pub d: F16Le,
    /// The groups.
    pub groups: [Iq2XxsGroup; 8],
}

/// `w = ±d * (scale + 1/2) / 4 * magnitude`, 16 groups of 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ2XS {
    /// Scale of the scales.
    pub d: F16Le,
    /// 8 weights each: index into `IQ2XS_GRID` (9 bits), above it the index into `KSIGNS`.
    pub qs: [U16Le; 32],
    /// Scales of 4 bits: group `g` is nibble `g % 2` (low first) of byte `g / 2`.
    pub scales: [u8; 8],
}

/// `w = ±d * (scale + 1/2) / 4 * magnitude`, 16 groups of 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ2S {
    /// Scale of the scales.
    pub d: F16Le,
    /// 8 weights each: lower 8 bits of the index into `IQ2S_GRID`.
    pub qs: [u8; 32],
    /// Sign bits of 8 weights each.
    pub signs: [u8; 32],
    /// Upper two bits of the index: entry `i` is bits `2 (i % 4)` and up of byte `i / 4`.
    pub qh: [u8; 8],
    /// Scales of 4 bits: group `g` is nibble `g % 2` (low first) of byte `g / 2`.
    pub scales: [u8; 8],
}

/// `w = ±d * (scale + 1/2) / 2 * magnitude`, 8 groups of 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ3XXS {
    /// Scale of the scales.
    pub d: F16Le,
    /// 4 weights each: index into `IQ3XXS_GRID`.
    pub qs: [u8; 64],
    /// One a group: four indices of 7 bits into `KSIGNS`, lowest first; the scale in bits 28 to 31.
    pub signs_scales: [U32Le; 8],
}

/// `w = ±d * (2 scale + 1) * magnitude`, 8 groups of 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ3S {
    /// Scale of the scales.
    pub d: F16Le,
    /// 4 weights each: lower 8 bits of the index into `IQ3S_GRID`.
    pub qs: [u8; 64],
    /// Ninth bit of the index: entry `i` is bit `i % 8` of byte `i / 8`.
    pub qh: [u8; 8],
    /// Sign bits of 8 weights each.
    pub signs: [u8; 32],
    /// Scales of 4 bits: group `g` is nibble `g % 2` (low first) of byte `g / 2`.
    pub scales: [u8; 4],
}

/// `w = d * (2 scale + 1) * (value ± 1/8)`, 8 groups of 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ1S {
    /// Scale of the scales.
    pub d: F16Le,
    /// 8 weights each: lower 8 bits of the index into `IQ1S_GRID`.
    pub qs: [u8; 32],
    /// One a group: upper three bits of its four indices (lowest first), the scale in bits 12 to 14, and bit
    /// 15 set for the offset -1/8.
    pub qh: [U16Le; 8],
}

/// `w = d * (2 scale + 1) * (value ± 1/8)`, 16 groups of 16, an offset for every 8 weights.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ1M {
    /// 8 weights each: lower 8 bits of the index into `IQ1S_GRID`.
    pub qs: [u8; 32],
    /// Nibble `i % 2` (low first) of byte `i / 2`: upper three bits of index `i`; bit 3 set for the offset
    /// -1/8.
    pub qh: [u8; 16],
    /// Four scales of 3 bits each (group `g` at bit `3 (g % 4)` of word `g / 4`); the top nibbles make up the
    /// scale of the scales.
    pub scales: [U16Le; 4],
}

impl BlockIQ1M {
    /// Scale of the scales: its bits are spread over the top nibbles of `scales`, lowest first.
    #[inline]
    pub fn d(&self) -> F16Le {
        let nibble = |i: usize| self.scales[i].get() >> 12 << (4 * i);
        F16Le((nibble(0) | nibble(1) | nibble(2) | nibble(3)).to_le_bytes())
    }

    /// Scale (0 to 7) of group `group` (0 to 15).
    #[inline]
    pub fn scale(&self, group: usize) -> u8 {
        (self.scales[group / 4].get() >> (group % 4 * 3)) as u8 & 7
    }
}

/// `w = d * level`, blocks of 32; codes in the order of [`BlockQ4_0`](super::BlockQ4_0).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ4NL {
    /// Scale.
    pub d: F16Le,
    /// Indices into `KVALUES_IQ4NL`.
    pub qs: [u8; 16],
}

/// `w = d * (scale - 32) * level`, 8 groups of 32, scale 6 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ4XS {
    /// Scale of the scales.
    pub d: F16Le,
    /// Upper two bits of the scales, 2 bits a group, lowest first.
    pub scales_h: U16Le,
    /// Lower four bits: group `g` is nibble `g % 2` (low first) of byte `g / 2`.
    pub scales_l: [u8; 4],
    /// Indices into `KVALUES_IQ4NL`; 16 bytes a group, in the order of [`BlockIQ4NL::qs`].
    pub qs: [u8; 128],
}

impl BlockIQ4XS {
    /// Scale (-32 to 31) of group `group` (0 to 7).
    #[inline]
    pub fn scale(&self, group: usize) -> i8 {
        let low = (self.scales_l[group / 2] >> (group % 2 * 4)) & 15;
        let high = (self.scales_h.get() >> (2 * group)) as u8 & 3;
        (high << 4 | low) as i8 - 32
    }
}

block! {
    BlockIQ1S: IQ1_S, 256, 50;
    BlockIQ1M: IQ1_M, 256, 56;
    BlockIQ2XXS: IQ2_XXS, 256, 66;
    BlockIQ2XS: IQ2_XS, 256, 74;
    BlockIQ2S: IQ2_S, 256, 82;
    BlockIQ3XXS: IQ3_XXS, 256, 98;
    BlockIQ3S: IQ3_S, 256, 110;
    BlockIQ4NL: IQ4_NL, 32, 18;
    BlockIQ4XS: IQ4_XS, 256, 136;
}
