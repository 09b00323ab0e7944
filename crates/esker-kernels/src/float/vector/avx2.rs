//! Sixteen lanes as two AVX registers.

use std::arch::x86_64::*;

use super::Vector;
use crate::lanes::LANES;

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(in crate::float) struct Avx2(__m256, __m256);

/// An intrinsic that needs nothing but its instruction set.
macro_rules! cpu {
    ($call:expr) => {
        // SAFETY: these values are used only where `multiversion!` checked avx2, fma and f16c.
        unsafe { $call }
    };
}

macro_rules! each {
    ($op:ident, $($x:expr),+) => { Avx2(cpu!($op($($x.0),+)), cpu!($op($($x.1),+))) };
}

impl Vector for Avx2 {
    const WIDE_TILES: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        let half = cpu!(_mm256_set1_ps(x));
        Self(half, half)
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: reads the 16 values of `x`; the instruction set as for all values here.
        unsafe { Self(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))) }
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        // SAFETY: writes the 16 values of `out`; the instruction set as for all values here.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), self.0);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), self.1);
        }
    }

    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        // SAFETY: reads the 16 values of `x`; the instruction set as for all values here.
        unsafe {
            let low = _mm_loadu_si128(x.as_ptr().cast());
            let high = _mm_loadu_si128(x.as_ptr().add(8).cast());
            Self(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }

    #[inline(always)]
    fn store_f16(self, out: &mut [u16; LANES]) {
        // SAFETY: writes the 16 values of `out`; the instruction set as for all values here.
        unsafe {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1);
            _mm_storeu_si128(out.as_mut_ptr().cast(), low);
            _mm_storeu_si128(out.as_mut_ptr().add(8).cast(), high);
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        each!(_mm256_add_ps, self, other)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        each!(_mm256_sub_ps, self, other)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        each!(_mm256_mul_ps, self, other)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        each!(_mm256_div_ps, self, other)
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        each!(_mm256_fmadd_ps, self, b, c)
    }

    // maxps and minps return their second operand unless the comparison holds, as the trait asks.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        each!(_mm256_max_ps, self, other)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        each!(_mm256_min_ps, self, other)
    }

    #[inline(always)]
    fn shift_into_exponent(self, bias: u32) -> Self {
        Self(shift_and_add(self.0, bias), shift_and_add(self.1, bias))
    }

    #[inline(always)]
    fn hsum(self) -> f32 {
        hsum8(self.eight())
    }

    #[inline(always)]
    fn hsum_each<const N: usize>(v: &[Self; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        let (v4, v_tail) = v.as_chunks::<4>();
        let (sums4, sums_tail) = sums.as_chunks_mut::<4>();
        for (v, sums) in v4.iter().zip(sums4) {
            *sums = hsum8_of_four([v[0].eight(), v[1].eight(), v[2].eight(), v[3].eight()]);
        }
        for (v, sum) in v_tail.iter().zip(sums_tail) {
            *sum = v.hsum();
        }
        sums
    }
}

impl Avx2 {
    /// First step of the canonical tree: lanes 8..16 added to lanes 0..8.
    #[inline(always)]
    fn eight(self) -> __m256 {
        cpu!(_mm256_add_ps(self.0, self.1))
    }
}

#[inline(always)]
fn shift_and_add(x: __m256, bias: u32) -> __m256 {
    let shifted = cpu!(_mm256_slli_epi32::<23>(_mm256_castps_si256(x)));
    cpu!(_mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(bias as i32))))
}

/// The rest of the canonical tree, from 8 lanes: 8 → 4 → 2 → 1.
#[inline(always)]
pub(super) fn hsum8(v: __m256) -> f32 {
    let four = cpu!(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v)));
    let two = cpu!(_mm_add_ps(four, _mm_movehl_ps(four, four)));
    cpu!(_mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two))))
}

/// [`hsum8`] of four vectors, sharing the shuffles: each step adds the halves of two vectors at once.
#[inline(always)]
pub(super) fn hsum8_of_four(v: [__m256; 4]) -> [f32; 4] {
    let (even, odd) = (fours(v[0], v[2]), fours(v[1], v[3]));
    let pairs =
        cpu!(_mm256_add_ps(_mm256_shuffle_ps::<0x44>(even, odd), _mm256_shuffle_ps::<0xee>(even, odd)));
    let (low, high) = (cpu!(_mm256_castps256_ps128(pairs)), cpu!(_mm256_extractf128_ps::<1>(pairs)));
    let sums = cpu!(_mm_add_ps(_mm_shuffle_ps::<0x88>(low, high), _mm_shuffle_ps::<0xdd>(low, high)));
    let mut out = [0.0; 4];
    // SAFETY: writes the 4 values of `out`.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

/// 8 → 4 lanes of two vectors: `[a | b]`.
#[inline(always)]
fn fours(a: __m256, b: __m256) -> __m256 {
    cpu!(_mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)))
}
