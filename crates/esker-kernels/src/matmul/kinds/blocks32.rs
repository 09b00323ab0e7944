//! Types with 32 weights a block, and Q2_0 and NVFP4 with 64.

use super::super::simd::Simd;
use super::Kind32;
use esker_quant::blocks::codebooks::{KVALUES_E2M1, KVALUES_IQ4NL};
use esker_quant::blocks::{
    BlockIQ4NL, BlockMXFP4, BlockNVFP4, BlockQ2_0, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0,
    F16Le, U32Le, e8m0_half_to_f32, ue4m3_half_to_f32,
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

/// Half-precision numbers, two of each pair.
#[inline(always)]
fn halves<S: Simd, P>(s: S, pairs: &[P], of: impl Fn(&P) -> [F16Le; 2]) -> S::Floats {
    let mut bits = [0u16; 16];
    for (bits, pair) in bits.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
        let [a, b] = of(pair);
        *bits = [u16::from_le_bytes(a.0), u16::from_le_bytes(b.0)];
    }
    s.load_f16(&bits)
}

impl Kind32 for Q4_0 {
    type Pair = [BlockQ4_0; 2];
    const BLOCK_BYTES: usize = size_of::<BlockQ4_0>();
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.add_to_all(nibbles(s, &a.qs, &b.qs), -8)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].d, pair[1].d])
    }
}

impl Kind32 for Q4_1 {
    type Pair = [BlockQ4_1; 2];
    const BLOCK_BYTES: usize = size_of::<BlockQ4_1>();
    const SIGNED: bool = false;
    const MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        nibbles(s, &a.qs, &b.qs)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].d, pair[1].d])
    }

    #[inline(always)]
    fn mins<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].m, pair[1].m])
    }
}

impl Kind32 for Q5_0 {
    type Pair = [BlockQ5_0; 2];
    const BLOCK_BYTES: usize = size_of::<BlockQ5_0>();
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        // Minus 16, unless the fifth bit adds them back.
        let low = s.add_to_all(nibbles(s, &a.qs, &b.qs), -16);
        s.add_where(low, fifth_bits(a.qh, b.qh), 16)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].d, pair[1].d])
    }
}

impl Kind32 for Q5_1 {
    type Pair = [BlockQ5_1; 2];
    const BLOCK_BYTES: usize = size_of::<BlockQ5_1>();
    const SIGNED: bool = false;
    const MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.add_where(nibbles(s, &a.qs, &b.qs), fifth_bits(a.qh, b.qh), 16)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].d, pair[1].d])
    }

    #[inline(always)]
    fn mins<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].m, pair[1].m])
    }
}

impl Kind32 for Q8_0 {
    type Pair = [BlockQ8_0; 2];
    const BLOCK_BYTES: usize = size_of::<BlockQ8_0>();
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.load32_and_32(bytemuck::cast_ref(&a.qs), bytemuck::cast_ref(&b.qs))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].d, pair[1].d])
    }
}

impl Kind32 for Q2_0 {
    type Pair = BlockQ2_0;
    const BLOCK_BYTES: usize = size_of::<BlockQ2_0>();
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, block: &BlockQ2_0) -> S::Bytes {
        s.add_to_all(s.expand_2_bits(&block.qs), -1)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |block| [block.d; 2])
    }
}

impl Kind32 for Iq4Nl {
    type Pair = [BlockIQ4NL; 2];
    const BLOCK_BYTES: usize = size_of::<BlockIQ4NL>();
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.look_up(&KVALUES_IQ4NL, nibbles(s, &a.qs, &b.qs))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        halves(s, pairs, |pair| [pair[0].d, pair[1].d])
    }
}

impl Kind32 for Mxfp4 {
    type Pair = [BlockMXFP4; 2];
    const BLOCK_BYTES: usize = size_of::<BlockMXFP4>();
    const SIGNED: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: &Self::Pair) -> S::Bytes {
        s.look_up(&KVALUES_E2M1, nibbles(s, &a.qs, &b.qs))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        let mut d = [0.0; 16];
        for (d, [a, b]) in d.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
            *d = [e8m0_half_to_f32(a.e), e8m0_half_to_f32(b.e)];
        }
        s.load(&d)
    }
}

impl Kind32 for Nvfp4 {
    type Pair = BlockNVFP4;
    const BLOCK_BYTES: usize = size_of::<BlockNVFP4>();
    const SIGNED: bool = true;
    const FOURS: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, block: &BlockNVFP4) -> S::Bytes {
        s.look_up(&KVALUES_E2M1, s.nibbles_by_8(&block.qs))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, pairs: &[Self::Pair]) -> S::Floats {
        let mut d = [0.0; 16];
        for (d, block) in d.as_chunks_mut::<4>().0.iter_mut().zip(pairs) {
            *d = block.d.map(ue4m3_half_to_f32);
        }
        s.load(&d)
    }
}
