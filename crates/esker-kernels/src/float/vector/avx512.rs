//! Sixteen lanes as one AVX-512 register.

use std::arch::x86_64::*;

use super::Vector;
use super::avx2::{hsum8, hsum8_of_four};
use crate::lanes::LANES;

#[derive(Clone, Copy)]
pub(in crate::float) struct Avx512(__m512);

/// An intrinsic that needs nothing but its instruction set.
macro_rules! cpu {
    ($call:expr) => {
        // SAFETY: these values are used only where `multiversion!` checked avx512f, bw, dq and vl.
        unsafe { $call }
    };
}

impl Vector for Avx512 {
    const WIDE_TILES: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self(cpu!(_mm512_set1_ps(x)))
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: reads the 16 values of `x`; the instruction set as for all values here.
        Self(unsafe { _mm512_loadu_ps(x.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        // SAFETY: writes the 16 values of `out`; the instruction set as for all values here.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        // SAFETY: reads the 16 values of `x`; the instruction set as for all values here.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) })
    }

    #[inline(always)]
    fn store_f16(self, out: &mut [u16; LANES]) {
        const NEAREST_EVEN: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: writes the 16 values of `out`; the instruction set as for all values here.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST_EVEN>(self.0)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(cpu!(_mm512_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(cpu!(_mm512_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(cpu!(_mm512_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(cpu!(_mm512_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(cpu!(_mm512_fmadd_ps(self.0, b.0, c.0)))
    }

    // vmaxps and vminps return their second operand unless the comparison holds, as the trait asks.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(cpu!(_mm512_max_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(cpu!(_mm512_min_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn shift_into_exponent(self, bias: u32) -> Self {
        let shifted = cpu!(_mm512_slli_epi32::<23>(_mm512_castps_si512(self.0)));
        Self(cpu!(_mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(bias as i32)))))
    }

    #[inline(always)]
    fn hsum(self) -> f32 {
        hsum8(self.eight())
    }

    #[inline(always)]
    fn hsum_each<const N: usize>(v: &[Self; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        let (v16, v_rest) = v.as_chunks::<16>();
        let (sums16, sums_rest) = sums.as_chunks_mut::<16>();
        for (v, sums) in v16.iter().zip(sums16) {
            hsum_sixteen(v).store(sums);
        }
        let (v4, v_tail) = v_rest.as_chunks::<4>();
        let (sums4, sums_tail) = sums_rest.as_chunks_mut::<4>();
        for (v, sums) in v4.iter().zip(sums4) {
            *sums = hsum8_of_four([v[0].eight(), v[1].eight(), v[2].eight(), v[3].eight()]);
        }
        for (v, sum) in v_tail.iter().zip(sums_tail) {
            *sum = v.hsum();
        }
        sums
    }
}

impl Avx512 {
    /// First step of the canonical tree: lanes 8..16 added to lanes 0..8.
    #[inline(always)]
    fn eight(self) -> __m256 {
        cpu!(_mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0)))
    }
}

/// Canonical sums of sixteen vectors, lane `i` of the result that of `v[i]`: a transposition in which each of the
/// four steps also does one step of the tree, so 45 instructions replace 16 trees.
#[inline(always)]
fn hsum_sixteen(v: &[Avx512; 16]) -> Avx512 {
    let a = twos(fours(v[0], v[4], v[8], v[12]), fours(v[1], v[5], v[9], v[13]));
    let b = twos(fours(v[2], v[6], v[10], v[14]), fours(v[3], v[7], v[11], v[15]));
    Avx512(cpu!(_mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))))
}

/// 16 → 8 lanes of two vectors: `[a | b]`.
#[inline(always)]
fn eights(a: Avx512, b: Avx512) -> __m512 {
    cpu!(_mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a.0, b.0), _mm512_shuffle_f32x4::<0xee>(a.0, b.0)))
}

/// 16 → 4 lanes of four vectors: `[a | b | c | d]`.
#[inline(always)]
fn fours(a: Avx512, b: Avx512, c: Avx512, d: Avx512) -> __m512 {
    let (ab, cd) = (eights(a, b), eights(c, d));
    cpu!(_mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd)))
}

/// 4 → 2 lanes in each quarter of two vectors.
#[inline(always)]
fn twos(a: __m512, b: __m512) -> __m512 {
    cpu!(_mm512_add_ps(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b)))
}
