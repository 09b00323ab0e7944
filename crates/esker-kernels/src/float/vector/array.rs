//! The definition: sixteen lanes in an array, plain Rust.

use super::Vector;
use crate::float::half;
use crate::lanes::{LANES, hsum16};

#[derive(Clone, Copy)]
pub(in crate::float) struct Array([f32; LANES]);

impl Array {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Vector for Array {
    const WIDE_TILES: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(*x)
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        *out = self.0;
    }

    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        Self(x.map(half::f16_to_f32))
    }

    #[inline(always)]
    fn store_f16(self, out: &mut [u16; LANES]) {
        *out = self.0.map(half::f32_to_f16);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn shift_into_exponent(self, bias: u32) -> Self {
        Self(self.0.map(|x| f32::from_bits((x.to_bits() << 23).wrapping_add(bias))))
    }

    #[inline(always)]
    fn hsum(self) -> f32 {
        hsum16(&self.0)
    }
}
