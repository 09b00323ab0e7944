//! Types with 32 weights a block, and Q2_0 and NVFP4 with 64.

use super::super::simd::Simd;
use super::{Kind32, half_bits};
use esker_quant::blocks::codebooks::{KVALUES_E2M1, KVALUES_IQ4NL};
use esker_quant::blocks::{
    BlockIQ4NL, BlockMXFP4, BlockNVFP4, BlockQ2_0, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0,
    U32Le, e8m0_half_to_f32, ue4m3_half_to_f32,
};

pub(in crate::matmul) struct Q4_0;
pub(in crate::matmul) struct Q4_1;
pub(in crate::matmul) struct Q5_0;
pub(in crate::matmul) struct Q5_1;
pub(in crate::matmul) struct Q8_0;
pub(in crate::matmul) struct Q2_0;
pub(in crate::matmul) struct Iq4Nl;
pub(in crate::matmul) struct Mxfp4;
pub(in crate::matmul) struct Nvfp4;

/// 4-bit codes of two blocks: low nibbles first, then high ones.
#[inline(always)]
fn nibbles<S: Simd>(s: S, a: &[u8; 16], b: &[u8; 16]) -> S::Bytes {
    s.shift_right::<0, 4, 0, 4>(s.load16_twice(a, b), 15)
}

#[inline(always)]
fn fifth_bits(a: U32Le, b: U32Le) -> u64 {
    u64::from(a.get()) | u64::from(b.get()) << 32
}

impl Kind32 for Q4_0 {
    type Pair = [BlockQ4_0; 2];
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.add_to_all(nibbles(s, &a.qs, &b.qs), -8)
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.d), half_bits(b.d)]
    }
}

impl Kind32 for Q4_1 {
    type Pair = [BlockQ4_1; 2];
    const SIGNED: bool = false;
    const MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        nibbles(s, &a.qs, &b.qs)
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.d), half_bits(b.d)]
    }

    #[inline(always)]
    fn mins([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.m), half_bits(b.m)]
    }
}

impl Kind32 for Q5_0 {
    type Pair = [BlockQ5_0; 2];
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        // Minus 16, unless the fifth bit adds them back.
        let low = s.add_to_all(nibbles(s, &a.qs, &b.qs), -16);
        s.add_where(low, fifth_bits(a.qh, b.qh), 16)
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.d), half_bits(b.d)]
    }
}

impl Kind32 for Q5_1 {
    type Pair = [BlockQ5_1; 2];
    const SIGNED: bool = false;
    const MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.add_where(nibbles(s, &a.qs, &b.qs), fifth_bits(a.qh, b.qh), 16)
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.d), half_bits(b.d)]
    }

    #[inline(always)]
    fn mins([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.m), half_bits(b.m)]
    }
}

impl Kind32 for Q8_0 {
    type Pair = [BlockQ8_0; 2];
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.load32_and_32(bytemuck::cast_ref(&a.qs), bytemuck::cast_ref(&b.qs))
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.d), half_bits(b.d)]
    }
}

impl Kind32 for Q2_0 {
    type Pair = BlockQ2_0;
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, block: &BlockQ2_0) -> S::Bytes {
        s.add_to_all(s.expand_2_bits(&block.qs), -1)
    }

    #[inline(always)]
    fn scales(block: &BlockQ2_0) -> [u16; 2] {
        [half_bits(block.d); 2]
    }
}

impl Kind32 for Iq4Nl {
    type Pair = [BlockIQ4NL; 2];
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.look_up(&KVALUES_IQ4NL, nibbles(s, &a.qs, &b.qs))
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [half_bits(a.d), half_bits(b.d)]
    }
}

impl Kind32 for Mxfp4 {
    type Pair = [BlockMXFP4; 2];
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.look_up(&KVALUES_E2M1, nibbles(s, &a.qs, &b.qs))
    }

    #[inline(always)]
    fn scales([a, b]: &Self::Pair) -> [u16; 2] {
        [a.e.into(), b.e.into()]
    }

    #[inline(always)]
    fn floats<S: Simd>(s: S, scales: &[u16; 16]) -> S::Floats {
        s.load(&scales.map(|e| e8m0_half_to_f32(e as u8)))
    }
}

impl Kind32 for Nvfp4 {
    type Pair = BlockNVFP4;
    const SIGNED: bool = true;
    const FOURS: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, block: &BlockNVFP4) -> S::Bytes {
        s.look_up(&KVALUES_E2M1, s.nibbles_by_8(&block.qs))
    }

    fn scales(_: &BlockNVFP4) -> [u16; 2] {
        [0; 2]
    }

    #[inline(always)]
    fn four_scales(block: &BlockNVFP4) -> [u16; 4] {
        block.d.map(u16::from)
    }

    #[inline(always)]
    fn floats<S: Simd>(s: S, scales: &[u16; 16]) -> S::Floats {
        s.load(&scales.map(|d| ue4m3_half_to_f32(d as u8)))
    }
}
