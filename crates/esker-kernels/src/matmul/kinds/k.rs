//! The K types.

use super::super::simd::Simd;
use super::{Codes, Kind256, half_bits, minus_32};
use esker_quant::blocks::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};

pub(in crate::matmul) struct Q2K;
pub(in crate::matmul) struct Q3K;
pub(in crate::matmul) struct Q4K;
pub(in crate::matmul) struct Q5K;
pub(in crate::matmul) struct Q6K;

/// 32 of the code bytes, which is where 64 or 128 weights have their bits.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], index: usize) -> &[u8; N] {
    &bytes.as_chunks::<N>().0[index]
}

#[inline(always)]
fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(*part(bytes, index))
}

#[inline(always)]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Two-bit codes of group `G`: bits 0..4 of 32 bytes, or bits 4..8.
#[inline(always)]
fn two_bits<S: Simd, const G: usize>(s: S, qs: &[u8; 64]) -> S::Bytes {
    let v = s.load32_twice(part(qs, G / 2));
    if G.is_multiple_of(2) { s.shift_right::<0, 0, 2, 2>(v, 3) } else { s.shift_right::<4, 4, 6, 6>(v, 3) }
}

/// Four-bit codes of group `G`: low nibbles, then high ones.
#[inline(always)]
fn four_bits<S: Simd, const G: usize>(s: S, qs: &[u8; 128]) -> S::Bytes {
    s.shift_right::<0, 0, 4, 4>(s.load32_twice(part(qs, G)), 15)
}

/// The 8 scales and the 8 minima of Q4_K and Q5_K, see `unpack_scale_min`.
#[inline(always)]
fn scales_and_mins(packed: &[u8; 12]) -> (u64, u64) {
    let [a, b, c] = [word(packed, 0), word(packed, 1), word(packed, 2)];
    let scales = join(a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | (a >> 2 & 0x3030_3030));
    let mins = join(b & 0x3f3f_3f3f, (c >> 4 & 0x0f0f_0f0f) | (b >> 2 & 0x3030_3030));
    (scales, mins)
}

impl Kind256 for Q2K {
    type Block = BlockQ2K;
    type Prepared = ();
    const CODES: Codes = Codes::Unsigned;
    const GROUP: usize = 16;
    const MIN: bool = true;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockQ2K) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockQ2K, (): &()) -> S::Bytes {
        two_bits::<S, G>(s, &block.qs)
    }

    #[inline(always)]
    fn d(block: &BlockQ2K) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockQ2K) -> [u64; 2] {
        [0, 1].map(|i| u64::from_le_bytes(*part(&block.scales, i)) & 0x0f0f_0f0f_0f0f_0f0f)
    }

    #[inline(always)]
    fn dmin(block: &BlockQ2K) -> u16 {
        half_bits(block.dmin)
    }

    #[inline(always)]
    fn mins(block: &BlockQ2K) -> [u64; 2] {
        [0, 1].map(|i| u64::from_le_bytes(*part(&block.scales, i)) >> 4 & 0x0f0f_0f0f_0f0f_0f0f)
    }
}

impl Kind256 for Q3K {
    type Block = BlockQ3K;
    type Prepared = ();
    const CODES: Codes = Codes::Signed;
    const GROUP: usize = 16;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockQ3K) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockQ3K, (): &()) -> S::Bytes {
        // Minus 4, unless the third bit adds them back.
        let low = s.add_to_all(two_bits::<S, G>(s, &block.qs), -4);
        let high = s.load32_twice(&block.hmask);
        match G {
            0 => s.add_where_set::<0x01, 0x02>(low, high, 4),
            1 => s.add_where_set::<0x04, 0x08>(low, high, 4),
            2 => s.add_where_set::<0x10, 0x20>(low, high, 4),
            _ => s.add_where_set::<0x40, 0x80>(low, high, 4),
        }
    }

    #[inline(always)]
    fn d(block: &BlockQ3K) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockQ3K) -> [u64; 2] {
        let [a, b, high] = [word(&block.scales, 0), word(&block.scales, 1), word(&block.scales, 2)];
        let low = |v: u32| v & 0x0f0f_0f0f;
        let first = join(low(a) | (high << 4 & 0x3030_3030), low(b) | (high << 2 & 0x3030_3030));
        let second = join(low(a >> 4) | (high & 0x3030_3030), low(b >> 4) | (high >> 2 & 0x3030_3030));
        [minus_32(first), minus_32(second)]
    }
}

impl Kind256 for Q4K {
    type Block = BlockQ4K;
    type Prepared = ();
    const CODES: Codes = Codes::Unsigned;
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockQ4K) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockQ4K, (): &()) -> S::Bytes {
        four_bits::<S, G>(s, &block.qs)
    }

    #[inline(always)]
    fn d(block: &BlockQ4K) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockQ4K) -> [u64; 2] {
        [scales_and_mins(&block.scales).0, 0]
    }

    #[inline(always)]
    fn dmin(block: &BlockQ4K) -> u16 {
        half_bits(block.dmin)
    }

    #[inline(always)]
    fn mins(block: &BlockQ4K) -> [u64; 2] {
        [scales_and_mins(&block.scales).1, 0]
    }
}

impl Kind256 for Q5K {
    type Block = BlockQ5K;
    type Prepared = ();
    const CODES: Codes = Codes::Unsigned;
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockQ5K) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockQ5K, (): &()) -> S::Bytes {
        let low = four_bits::<S, G>(s, &block.qs);
        let high = s.load32_twice(&block.qh);
        match G {
            0 => s.add_where_set::<0x01, 0x02>(low, high, 16),
            1 => s.add_where_set::<0x04, 0x08>(low, high, 16),
            2 => s.add_where_set::<0x10, 0x20>(low, high, 16),
            _ => s.add_where_set::<0x40, 0x80>(low, high, 16),
        }
    }

    #[inline(always)]
    fn d(block: &BlockQ5K) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockQ5K) -> [u64; 2] {
        [scales_and_mins(&block.scales).0, 0]
    }

    #[inline(always)]
    fn dmin(block: &BlockQ5K) -> u16 {
        half_bits(block.dmin)
    }

    #[inline(always)]
    fn mins(block: &BlockQ5K) -> [u64; 2] {
        [scales_and_mins(&block.scales).1, 0]
    }
}

impl Kind256 for Q6K {
    type Block = BlockQ6K;
    type Prepared = ();
    const CODES: Codes = Codes::Signed;
    const GROUP: usize = 16;

    #[inline(always)]
    fn prepare<S: Simd>(_: S, _: &BlockQ6K) {}

    #[inline(always)]
    fn codes<S: Simd, const G: usize>(s: S, block: &BlockQ6K, (): &()) -> S::Bytes {
        let low = s.load64(part(&block.ql, G / 2));
        let high = s.load32_twice(part(&block.qh, G / 2));
        let codes = if G.is_multiple_of(2) {
            s.or(s.shift_right::<0, 0, 0, 0>(low, 15), s.shift_left::<4, 4, 2, 2>(high, 0x30))
        } else {
            s.or(s.shift_right::<4, 4, 4, 4>(low, 15), s.shift_right::<0, 0, 2, 2>(high, 0x30))
        };
        s.add_to_all(codes, -32)
    }

    #[inline(always)]
    fn d(block: &BlockQ6K) -> u16 {
        half_bits(block.d)
    }

    #[inline(always)]
    fn scales(block: &BlockQ6K) -> [u64; 2] {
        [0, 1].map(|i| u64::from_le_bytes(*part(bytemuck::cast_slice(&block.scales), i)))
    }
}
