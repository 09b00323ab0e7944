//! The float types: their values are exact in f32.

use super::super::simd::Simd;
use super::KindFloat;

pub(in crate::matmul) struct F32;
pub(in crate::matmul) struct F16;
pub(in crate::matmul) struct Bf16;

impl KindFloat for F32 {
    type Element = [u8; 4];

    #[inline(always)]
    fn load<S: Simd>(s: S, weights: &[[u8; 4]; 16]) -> S::Floats {
        s.load(&weights.map(f32::from_le_bytes))
    }
}

impl KindFloat for F16 {
    type Element = [u8; 2];

    #[inline(always)]
    fn load<S: Simd>(s: S, weights: &[[u8; 2]; 16]) -> S::Floats {
        s.load_f16(&weights.map(u16::from_le_bytes))
    }
}

impl KindFloat for Bf16 {
    type Element = [u8; 2];

    #[inline(always)]
    fn load<S: Simd>(s: S, weights: &[[u8; 2]; 16]) -> S::Floats {
        s.load_bf16(&weights.map(u16::from_le_bytes))
    }
}
