//! The IQ types with 256 weights a block.

use super::super::simd::Simd;
use super::{Kind256, half_bits, minus_32, spread_nibbles};
use esker_quant::blocks::codebooks::{
    IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS, KVALUES_IQ4NL,
};
use esker_quant::blocks::{BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS, BlockIQ4XS};

pub(in crate::matmul) struct Iq2Xxs;
pub(in crate::matmul) struct Iq2Xs;
pub(in crate::matmul) struct Iq2S;
pub(in crate::matmul) struct Iq3Xxs;
pub(in crate::matmul) struct Iq3S;
pub(in crate::matmul) struct Iq4Xs;

/// `2 s + 1` for each nibble.
#[inline(always)]
fn odd(nibbles: u64) -> u64 {
    nibbles << 1 | 0x0101_0101_0101_0101
}

/// 16 nibbles to 16 odd scales.
#[inline(always)]
fn odd_scales(bytes: &[u8; 8]) -> [u64; 2] {
    let v = u64::from_le_bytes(*bytes);
    [odd(spread_nibbles(v as u32)), odd(spread_nibbles((v >> 32) as u32))]
}

/// The sign bits of 32 weights from four indices of 7 bits.
#[inline(always)]
fn signs_of_32(packed: u32) -> u64 {
    let sign = |i: u32| u64::from(KSIGNS[(packed >> (7 * i)) as usize & 127]);
    sign(0) | sign(1) << 8 | sign(2) << 16 | sign(3) << 24
}

/// The scale of 8 groups from the top nibble of each word, as odd numbers.
#[inline(always)]
fn top_nibbles(word: impl Fn(usize) -> u32) -> u64 {
    let mut scales = 0;
    for g in 0..8 {
        scales |= u64::from(word(g) >> 28) << (8 * g);
    }
    odd(scales)
}

impl Kind256 for Iq2Xxs {
    type Block = BlockIQ2XXS;
    const SIGNED: bool = true;
    const GROUP: usize = 32;
    const FACTOR: f32 = 0.125;

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ2XXS) -> S::Bytes {
        let (a, b) = (&block.groups[2 * G], &block.groups[2 * G + 1]);
        let grid = |i: u8| IQ2XXS_GRID[usize::from(i)];
        let magnitudes = s.gather_u64s([
            grid(a.grid[0]),
            grid(a.grid[1]),
            grid(a.grid[2]),
            grid(a.grid[3]),
            grid(b.grid[0]),
            grid(b.grid[1]),
            grid(b.grid[2]),
            grid(b.grid[3]),
        ]);
        let signs = signs_of_32(a.signs_scale.get()) | signs_of_32(b.signs_scale.get()) << 32;
        s.negate_where(magnitudes, signs)
    }

    #[inline(always)]
    fn d(block: &BlockIQ2XXS) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockIQ2XXS) -> [u64; 2] {
        [top_nibbles(|g| block.groups[g].signs_scale.get()), 0]
    }
}

impl Kind256 for Iq2Xs {
    type Block = BlockIQ2XS;
    const SIGNED: bool = true;
    const GROUP: usize = 16;
    const FACTOR: f32 = 0.125;

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ2XS) -> S::Bytes {
        let (mut magnitudes, mut signs) = ([0; 8], 0);
        for (i, magnitudes) in magnitudes.iter_mut().enumerate() {
            let entry = usize::from(block.qs[8 * G + i].get());
            *magnitudes = IQ2XS_GRID[entry & 511];
            signs |= u64::from(KSIGNS[entry >> 9]) << (8 * i);
        }
        s.negate_where(s.gather_u64s(magnitudes), signs)
    }

    #[inline(always)]
    fn d(block: &BlockIQ2XS) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockIQ2XS) -> [u64; 2] {
        odd_scales(&block.scales)
    }
}

impl Kind256 for Iq2S {
    type Block = BlockIQ2S;
    const SIGNED: bool = true;
    const GROUP: usize = 16;
    const FACTOR: f32 = 0.125;

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ2S) -> S::Bytes {
        let mut magnitudes = [0; 8];
        for (i, magnitudes) in magnitudes.iter_mut().enumerate() {
            let high = usize::from(block.qh[2 * G + i / 4] >> (i % 4 * 2) & 3);
            *magnitudes = IQ2S_GRID[high << 8 | usize::from(block.qs[8 * G + i])];
        }
        s.negate_where(s.gather_u64s(magnitudes), u64::from_le_bytes(block.signs.as_chunks().0[G]))
    }

    #[inline(always)]
    fn d(block: &BlockIQ2S) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockIQ2S) -> [u64; 2] {
        odd_scales(&block.scales)
    }
}

impl Kind256 for Iq3Xxs {
    type Block = BlockIQ3XXS;
    const SIGNED: bool = true;
    const GROUP: usize = 32;
    const FACTOR: f32 = 0.25;

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ3XXS) -> S::Bytes {
        let mut magnitudes = [0; 8];
        for (i, magnitudes) in magnitudes.iter_mut().enumerate() {
            let [a, b] = [0, 1].map(|j| IQ3XXS_GRID[usize::from(block.qs[16 * G + 2 * i + j])]);
            *magnitudes = u64::from(a) | u64::from(b) << 32;
        }
        let [a, b] = [2 * G, 2 * G + 1].map(|g| signs_of_32(block.signs_scales[g].get()));
        s.negate_where(s.gather_u64s(magnitudes), a | b << 32)
    }

    #[inline(always)]
    fn d(block: &BlockIQ3XXS) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockIQ3XXS) -> [u64; 2] {
        [top_nibbles(|g| block.signs_scales[g].get()), 0]
    }
}

impl Kind256 for Iq3S {
    type Block = BlockIQ3S;
    const SIGNED: bool = true;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ3S) -> S::Bytes {
        let mut magnitudes = [0; 8];
        for (i, magnitudes) in magnitudes.iter_mut().enumerate() {
            let [a, b] = [0, 1].map(|j| {
                let entry = 2 * i + j;
                let high = usize::from(block.qh[2 * G + entry / 8] >> (entry % 8) & 1);
                IQ3S_GRID[high << 8 | usize::from(block.qs[16 * G + entry])]
            });
            *magnitudes = u64::from(a) | u64::from(b) << 32;
        }
        s.negate_where(s.gather_u64s(magnitudes), u64::from_le_bytes(block.signs.as_chunks().0[G]))
    }

    #[inline(always)]
    fn d(block: &BlockIQ3S) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockIQ3S) -> [u64; 2] {
        [odd(spread_nibbles(u32::from_le_bytes(block.scales))), 0]
    }
}

impl Kind256 for Iq4Xs {
    type Block = BlockIQ4XS;
    const SIGNED: bool = true;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ4XS) -> S::Bytes {
        let (parts, _) = block.qs.as_chunks::<16>();
        let codes = s.shift_right::<0, 4, 0, 4>(s.load16_twice(&parts[2 * G], &parts[2 * G + 1]), 15);
        s.look_up(&KVALUES_IQ4NL, codes)
    }

    #[inline(always)]
    fn d(block: &BlockIQ4XS) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockIQ4XS) -> [u64; 2] {
        let low = spread_nibbles(u32::from_le_bytes(block.scales_l));
        // Two bits each to bytes.
        let v = u64::from(block.scales_h.get());
        let v = (v | v << 24) & 0x0000_00ff_0000_00ff;
        let v = (v | v << 12) & 0x000f_000f_000f_000f;
        let high = (v | v << 6) & 0x0303_0303_0303_0303;
        [minus_32(low | high << 4), 0]
    }
}
