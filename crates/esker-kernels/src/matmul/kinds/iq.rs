//! The IQ types with 256 weights a block.

use super::super::each;
use super::super::simd::Simd;
use super::{Codes, Kind256, half_bits, minus_32, spread_nibbles};
use esker_quant::blocks::codebooks::{
    IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KVALUES_IQ4NL,
};
use esker_quant::blocks::{BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS, BlockIQ4XS};

pub(in crate::matmul) struct Iq2Xxs;
pub(in crate::matmul) struct Iq2Xs;
pub(in crate::matmul) struct Iq2S;
pub(in crate::matmul) struct Iq3Xxs;
pub(in crate::matmul) struct Iq3S;
pub(in crate::matmul) struct Iq4Xs;

/// `N` neighbours of an array that has a multiple of `N`.
#[inline(always)]
fn part<T: Copy, const N: usize>(all: &[T], index: usize) -> [T; N] {
    all.as_chunks::<N>().0[index]
}

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

/// The sign bits of 64 weights from twice four indices of 7 bits into `KSIGNS`, lowest first: the index itself, and
/// its parity as the eighth bit.
#[inline(always)]
fn signs_of_64(a: u32, b: u32) -> u64 {
    let v = u64::from(a) | u64::from(b) << 32;
    let field = |shift: u32, mask: u64| (v << shift) & (mask | mask << 32);
    with_parity(field(0, 0x7f) | field(1, 0x7f00) | field(2, 0x7f_0000) | field(3, 0x7f00_0000))
}

/// Bit 7 of each byte set to the parity of the others: the table `KSIGNS`.
#[inline(always)]
fn with_parity(low: u64) -> u64 {
    let parity = low ^ low >> 4;
    let parity = parity ^ parity >> 2;
    let parity = (parity ^ parity >> 1) & 0x0101_0101_0101_0101;
    low | parity << 7
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
    type Prepared = ();
    const CODES: Codes = Codes::Magnitudes;
    const GROUP: usize = 32;
    const FACTOR: f32 = 0.125;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockIQ2XXS) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ2XXS, (): &()) -> S::Bytes {
        let [a, b] = [2 * G, 2 * G + 1].map(|g| u64::from(u32::from_le_bytes(block.groups[g].grid)));
        s.look_up_u64s(&IQ2XXS_GRID, each((a | b << 32).to_le_bytes(), u16::from))
    }

    #[inline(always)]
    fn signs<const G: usize>(block: &BlockIQ2XXS) -> u64 {
        signs_of_64(block.groups[2 * G].signs_scale.get(), block.groups[2 * G + 1].signs_scale.get())
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
    type Prepared = ();
    const CODES: Codes = Codes::Magnitudes;
    const GROUP: usize = 16;
    const FACTOR: f32 = 0.125;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockIQ2XS) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ2XS, (): &()) -> S::Bytes {
        s.look_up_u64s(&IQ2XS_GRID, each(part::<_, 8>(&block.qs, G), |entry| entry.get() & 511))
    }

    #[inline(always)]
    fn signs<const G: usize>(block: &BlockIQ2XS) -> u64 {
        with_parity(u64::from_le_bytes(each(part::<_, 8>(&block.qs, G), |entry| (entry.get() >> 9) as u8)))
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
    type Prepared = [u16; 32];
    const CODES: Codes = Codes::Magnitudes;
    const GROUP: usize = 16;
    const FACTOR: f32 = 0.125;

    #[inline(always)]
    fn prepare<S: Simd>(s: S, block: &BlockIQ2S) -> [u16; 32] {
        s.indices_10(&block.qs, &block.qh)
    }

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, _: &BlockIQ2S, indices: &[u16; 32]) -> S::Bytes {
        s.look_up_u64s(&IQ2S_GRID, part(indices, G))
    }

    #[inline(always)]
    fn signs<const G: usize>(block: &BlockIQ2S) -> u64 {
        u64::from_le_bytes(part(&block.signs, G))
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
    type Prepared = ();
    const CODES: Codes = Codes::Magnitudes;
    const GROUP: usize = 32;
    const FACTOR: f32 = 0.25;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockIQ3XXS) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ3XXS, (): &()) -> S::Bytes {
        s.look_up_u32s(&IQ3XXS_GRID, each(part::<_, 16>(&block.qs, G), u16::from))
    }

    #[inline(always)]
    fn signs<const G: usize>(block: &BlockIQ3XXS) -> u64 {
        signs_of_64(block.signs_scales[2 * G].get(), block.signs_scales[2 * G + 1].get())
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
    type Prepared = [u16; 64];
    const CODES: Codes = Codes::Magnitudes;
    const GROUP: usize = 32;

    #[inline(always)]
    fn prepare<S: Simd>(s: S, block: &BlockIQ3S) -> [u16; 64] {
        s.indices_9(&block.qs, u64::from_le_bytes(block.qh))
    }

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, _: &BlockIQ3S, indices: &[u16; 64]) -> S::Bytes {
        s.look_up_u32s(&IQ3S_GRID, part(indices, G))
    }

    #[inline(always)]
    fn signs<const G: usize>(block: &BlockIQ3S) -> u64 {
        u64::from_le_bytes(part(&block.signs, G))
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
    type Prepared = ();
    const CODES: Codes = Codes::Signed;
    const GROUP: usize = 32;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockIQ4XS) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockIQ4XS, (): &()) -> S::Bytes {
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
