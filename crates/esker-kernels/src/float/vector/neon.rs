//! Sixteen lanes as four NEON registers. NEON is part of the aarch64 baseline, so these intrinsics are always there.

use std::arch::aarch64::*;

use super::Vector;
use crate::lanes::LANES;

/// Lanes 0..4, 4..8, 8..12, 12..16.
#[derive(Clone, Copy)]
pub(in crate::float) struct Neon([float32x4_t; 4]);

/// An intrinsic that needs nothing but its instruction set.
macro_rules! cpu {
    ($call:expr) => {
        // SAFETY: NEON is in the aarch64 baseline.
        unsafe { $call }
    };
}

impl Neon {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Vector for Neon {
    const WIDE_TILES: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([cpu!(vdupq_n_f32(x)); 4])
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: each load reads 4 of the 16 values of `x`.
        Self(std::array::from_fn(|i| unsafe { vld1q_f32(x.as_ptr().add(4 * i)) }))
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        for (i, part) in self.0.into_iter().enumerate() {
            // SAFETY: writes 4 of the 16 values of `out`.
            unsafe { vst1q_f32(out.as_mut_ptr().add(4 * i), part) }
        }
    }

    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        Self(std::array::from_fn(|i| {
            // SAFETY: reads 4 of the 16 values of `x`.
            let bits = unsafe { vld1_u16(x.as_ptr().add(4 * i)) };
            cpu!(vcvt_f32_f16(vreinterpret_f16_u16(bits)))
        }))
    }

    #[inline(always)]
    fn store_f16(self, out: &mut [u16; LANES]) {
        for (i, part) in self.0.into_iter().enumerate() {
            let bits = cpu!(vreinterpret_u16_f16(vcvt_f16_f32(part)));
            // SAFETY: writes 4 of the 16 values of `out`.
            unsafe { vst1_u16(out.as_mut_ptr().add(4 * i), bits) }
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| cpu!(vaddq_f32(a, b)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| cpu!(vsubq_f32(a, b)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| cpu!(vmulq_f32(a, b)))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| cpu!(vdivq_f32(a, b)))
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| cpu!(vfmaq_f32(c.0[i], self.0[i], b.0[i]))))
    }

    // A comparison and a selection: fmax and fmin treat NaN and signed zeros in another way than the trait asks.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| cpu!(vbslq_f32(vcgtq_f32(a, b), a, b)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| cpu!(vbslq_f32(vcltq_f32(a, b), a, b)))
    }

    #[inline(always)]
    fn shift_into_exponent(self, bias: u32) -> Self {
        Self(self.0.map(|x| {
            let shifted = cpu!(vshlq_n_u32::<23>(vreinterpretq_u32_f32(x)));
            cpu!(vreinterpretq_f32_u32(vaddq_u32(shifted, vdupq_n_u32(bias))))
        }))
    }

    #[inline(always)]
    fn hsum(self) -> f32 {
        let [a, b, c, d] = self.0;
        let four = cpu!(vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d)));
        let two = cpu!(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
        cpu!(vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two))
    }
}
