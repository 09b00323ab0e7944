//! The operations that the kernels are written in, one implementation per instruction set.
//!
//! A value of a type that implements [`Simd`] is the proof that this CPU has the instructions: it comes from
//! `detect` only. So the methods are safe to call; their bodies are the only unsafe code of the kernels.
//!
//! Vectors hold 64 bytes, or 16 numbers of 32 bits, whatever the register size; "halves" are elements 0..32 and
//! 32..64 of the bytes, "quarters" 16 of them each. All operations are exact, except the float ones, which round as
//! IEEE 754 says: that is why every instruction set gives the same bits.
//!
//! Everything is `#[inline(always)]`: it has to end up inside a function that has the target features.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;

use super::each;
use crate::act::Line;
use crate::lanes::hsum16;

/// The entries one by one, for [`Simd::look_up_u64s`].
#[inline(always)]
fn each_u64<const SIZE: usize>(table: &[u64; SIZE], indices: [u16; 8]) -> [u64; 8] {
    const { assert!(SIZE.is_power_of_two()) };
    each(indices, |i| table[usize::from(i) & (SIZE - 1)])
}

/// The entries one by one, two to a number, for [`Simd::look_up_u32s`].
#[inline(always)]
fn each_u32<const SIZE: usize>(table: &[u32; SIZE], indices: [u16; 16]) -> [u64; 8] {
    const { assert!(SIZE.is_power_of_two()) };
    let mut out = [0; 8];
    for (out, &[a, b]) in out.iter_mut().zip(indices.as_chunks().0) {
        let [a, b] = [a, b].map(|i| u64::from(table[usize::from(i) & (SIZE - 1)]));
        *out = a | b << 32;
    }
    out
}

/// The last two steps of `hsum16` for four vectors: lanes `(l0 + l2) + (l1 + l3)` of each.
///
/// # Safety
/// Needs SSE, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn hsums_of_4([a, b, c, d]: [std::arch::x86_64::__m128; 4]) -> std::arch::x86_64::__m128 {
    use std::arch::x86_64::*;
    // SAFETY: SSE is part of x86-64.
    unsafe {
        // (a0 + a2, b0 + b2, a1 + a3, b1 + b3), and the same of c and d.
        let ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab))
    }
}

/// The last two steps of `hsum16` for any number of vectors, four at a time where there are as many.
///
/// # Safety
/// Needs SSE3.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn hsums_of_quarters<const N: usize>(quarters: &[std::arch::x86_64::__m128; N]) -> [f32; N] {
    use std::arch::x86_64::*;
    let mut out = [0.0; N];
    let (fours, rest) = quarters.as_chunks::<4>();
    let (out_fours, out_rest) = out.as_chunks_mut::<4>();
    for (out, &four) in out_fours.iter_mut().zip(fours) {
        // SAFETY: the store goes to an array of four numbers; SSE is part of x86-64.
        unsafe { _mm_storeu_ps(out.as_mut_ptr(), hsums_of_4(four)) }
    }
    for (out, &l) in out_rest.iter_mut().zip(rest) {
        // SAFETY: SSE3 is there, says the caller.
        unsafe {
            let l = _mm_add_ps(l, _mm_movehl_ps(l, l));
            *out = _mm_cvtss_f32(_mm_add_ss(l, _mm_movehdup_ps(l)));
        }
    }
    out
}

pub(super) trait Simd: Copy {
    /// Vectors of 16 numbers that the registers hold.
    const VECTORS: usize;

    /// 64 bytes, signed or unsigned.
    type Bytes: Copy;
    /// 64 signed weights, ready for [`Simd::dot_signed`].
    type DotWeights: Copy;
    /// 64 signed weights, ready for [`Simd::products_signed`].
    type ProductWeights: Copy;
    /// The products of 64 weights and activations, partly added, not yet scaled.
    type Products: Copy;
    /// Integer scales for [`Simd::add_scaled`], spread over the weights they belong to.
    type Spread: Copy;
    /// 16 integer scales.
    type Scales: Copy;
    /// 16 `i32`.
    type Ints: Copy;
    /// 16 `f32`.
    type Floats: Copy;
    /// 16 `f32` to be picked from by [`Simd::spread_pair`].
    type FloatScales: Copy;
    /// 4 `f32`.
    type Floats4: Copy;

    /// Starts bringing the cache line at `address` to the second-level cache; it may be any address.
    fn prefetch(self, address: *const u8);
    /// Bytes as they lie.
    fn load64(self, bytes: &[u8; 64]) -> Self::Bytes;
    /// `a`, then `b`.
    fn load32_and_32(self, a: &[u8; 32], b: &[u8; 32]) -> Self::Bytes;
    /// 32 bytes, in both halves.
    fn load32_twice(self, bytes: &[u8; 32]) -> Self::Bytes;
    /// `a` in quarters 0 and 1, `b` in quarters 2 and 3.
    fn load16_twice(self, a: &[u8; 16], b: &[u8; 16]) -> Self::Bytes;
    /// 8 bytes to 16, four times: the 8 bytes shifted right by 0, then by 4, all masked with 15.
    fn nibbles_by_8(self, bytes: &[u8; 32]) -> Self::Bytes;
    /// Each byte to four: its bits 0 and 1, 2 and 3, 4 and 5, 6 and 7.
    fn expand_2_bits(self, bytes: &[u8; 16]) -> Self::Bytes;
    /// Entry `i`: byte `i` of `low`, and bits `2 (i % 4)` and up of byte `i / 4` of `high` on top.
    fn indices_10(self, low: &[u8; 32], high: &[u8; 8]) -> [u16; 32];
    /// Entry `i`: byte `i` of `low`, and bit `i` of `high` on top.
    fn indices_9(self, low: &[u8; 64], high: u64) -> [u16; 64];
    /// 8 bytes each: entry `indices[i] % SIZE`; `SIZE` is a power of two.
    fn look_up_u64s<const SIZE: usize>(self, table: &[u64; SIZE], indices: [u16; 8]) -> Self::Bytes;
    /// 4 bytes each: entry `indices[i] % SIZE`; `SIZE` is a power of two.
    fn look_up_u32s<const SIZE: usize>(self, table: &[u32; SIZE], indices: [u16; 16]) -> Self::Bytes;

    /// Quarter `i` shifted right by `Qi` (0 to 7), then `& mask`; `mask` must clear what crosses from byte to byte.
    fn shift_right<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: Self::Bytes,
        mask: u8,
    ) -> Self::Bytes;
    /// As [`Simd::shift_right`], to the left.
    fn shift_left<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: Self::Bytes,
        mask: u8,
    ) -> Self::Bytes;
    /// Bitwise or.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Adds `value` to every byte.
    fn add_to_all(self, v: Self::Bytes, value: i8) -> Self::Bytes;
    /// Adds `value` to the bytes whose bit is set.
    fn add_where(self, v: Self::Bytes, bits: u64, value: i8) -> Self::Bytes;
    /// Adds `value` to the bytes of `v` where `q & mask` is not 0; `mask` (one bit) is `LOW` in the lower half and `HIGH`
    /// in the upper.
    fn add_where_set<const LOW: u8, const HIGH: u8>(
        self,
        v: Self::Bytes,
        q: Self::Bytes,
        value: i8,
    ) -> Self::Bytes;
    /// `table[v]`, each byte of `v` below 16.
    fn look_up(self, table: &[i8; 16], v: Self::Bytes) -> Self::Bytes;

    /// Lane `l`: the sum of `w·x` over bytes `4 l` to `4 l + 3`; `w` 0 to 127.
    fn dot_unsigned(self, w: Self::Bytes, x: &Line<i8, 64>) -> Self::Ints;
    /// Prepares `w`, -128 to 127.
    fn dot_weights(self, w: Self::Bytes) -> Self::DotWeights;
    /// As [`Simd::dot_unsigned`]; `corrections` are those that belong to `x`.
    fn dot_signed(self, w: Self::DotWeights, x: &Line<i8, 64>, corrections: &Line<i32, 16>) -> Self::Ints;

    /// Products of `w`, 0 to 127, and `x`.
    fn products_unsigned(self, w: Self::Bytes, x: &Line<i8, 64>) -> Self::Products;
    /// Prepares `w`, -127 to 127.
    fn product_weights(self, w: Self::Bytes) -> Self::ProductWeights;
    /// Prepares weights of these magnitudes, 0 to 127, negative where the bit is set.
    fn product_weights_of(self, magnitudes: Self::Bytes, negative: u64) -> Self::ProductWeights;
    /// Products of `w` and `x`.
    fn products_signed(self, w: Self::ProductWeights, x: &Line<i8, 64>) -> Self::Products;
    /// Sixteen scales of 8 bits (`i8`), first in the lowest byte.
    fn scales(self, bytes: [u64; 2]) -> Self::Scales;
    /// For the 64 weights of group `G` (0 to 3): scale `2 G` in the lower half, `2 G + 1` in the upper.
    fn spread32<const G: usize>(self, scales: Self::Scales) -> Self::Spread;
    /// For the 64 weights of group `G` (0 to 3): scales `4 G` to `4 G + 3`, one a quarter.
    fn spread16<const G: usize>(self, scales: Self::Scales) -> Self::Spread;
    /// Lane `l` adds the products of bytes `4 l` to `4 l + 3`, times their scale.
    fn add_scaled(self, acc: Self::Ints, products: Self::Products, scales: Self::Spread) -> Self::Ints;

    /// All zero.
    fn zero_ints(self) -> Self::Ints;
    /// Rounded to nearest.
    fn floats(self, v: Self::Ints) -> Self::Floats;
    /// All zero.
    fn zero(self) -> Self::Floats;
    /// All `value`.
    fn splat(self, value: f32) -> Self::Floats;
    /// As they lie.
    fn load(self, values: &[f32; 16]) -> Self::Floats;
    /// As they lie.
    fn store(self, v: Self::Floats) -> [f32; 16];
    /// From half precision, exactly.
    fn load_f16(self, bits: &[u16; 16]) -> Self::Floats;
    /// From bfloat16, exactly.
    fn load_bf16(self, bits: &[u16; 16]) -> Self::Floats;
    /// `a · b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// [`Simd::fma`] in the first `n` lanes, `c` in the others.
    fn fma_first(self, n: usize, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Keeps them where [`Simd::spread_pair`] finds them.
    fn float_scales(self, v: Self::Floats) -> Self::FloatScales;
    /// Scale `2 p` in lanes 0 to 7, `2 p + 1` in the others; `p` 0 to 7.
    fn spread_pair(self, scales: &Self::FloatScales, p: usize) -> Self::Floats;
    /// Scales `4 p` to `4 p + 3`, four lanes each; `p` 0 to 3.
    fn spread_four(self, scales: &Self::FloatScales, p: usize) -> Self::Floats;

    /// [`hsum16`] of each, for any number; fastest for multiples of 4.
    #[inline(always)]
    fn hsums<const N: usize>(self, v: &[Self::Floats; N]) -> [f32; N] {
        v.map(|v| hsum16(&self.store(v)))
    }

    /// All zero.
    fn zero4(self) -> Self::Floats4;
    /// Adds `d · Σ min·sum` to each lane, `d` rounded before; lane `g`: minima and sums `4 g` to `4 g + 3`.
    fn add_mins16(self, acc: Self::Floats4, d: f32, mins: [u64; 2], sums: &[i16; 16]) -> Self::Floats4;
    /// As [`Simd::add_mins16`]; lane `g`: minima and sums `2 g` and `2 g + 1`.
    fn add_mins8(self, acc: Self::Floats4, d: f32, mins: u64, sums: &[i16; 8]) -> Self::Floats4;
    /// As they lie.
    fn store4(self, v: Self::Floats4) -> [f32; 4];
}

/// What products with rows that were unpacked before need; a **part** is as many of the 64 bytes, and of the 16 lanes, as
/// a register holds.
#[cfg(target_arch = "x86_64")]
pub(super) trait Panels: Simd {
    /// Parts of 64 bytes, 1 or 2.
    const PARTS: usize;
    /// Whether `panel32` takes signed weights, and [`Panels::part_dot_signed`] is there. Not where their products take
    /// corrections: those are as many bytes again to load for each token, and what is loaded sets the pace.
    const SIGNED_32: bool;

    /// A part of 64 bytes, of 32 scales of 16 bits, or of 16 `i32`.
    type Part: Copy;
    /// A part of 64 signed weights, ready to be multiplied.
    type PartSigned: Copy;
    /// A part of 16 `f32`.
    type PartFloats: Copy;

    /// The weights that `w` was made of.
    fn signed_codes(self, w: Self::ProductWeights) -> Self::Bytes;
    /// Writes codes, unsigned or signed.
    fn keep(self, v: Self::Bytes, to: &mut Line<i8, 64>);
    /// Writes the scales of 64 weights.
    fn keep_scales(self, v: Self::Spread, to: &mut Line<i16, 32>);

    /// Part `PART` of codes.
    fn part<const PART: usize>(self, codes: &Line<i8, 64>) -> Self::Part;
    /// Part `PART` of scales.
    fn part_scales<const PART: usize>(self, scales: &Line<i16, 32>) -> Self::Part;
    /// Prepares weights -127 to 127.
    fn part_signed(self, w: Self::Part) -> Self::PartSigned;
    /// Part of [`Simd::dot_unsigned`].
    fn part_dot_unsigned(self, w: Self::Part, x: Self::Part) -> Self::Part;
    /// Part of [`Simd::dot_signed`].
    fn part_dot_signed(self, _: Self::PartSigned, _: Self::Part) -> Self::Part {
        unreachable!("signed weights are not taken in panels of 32-blocks")
    }
    /// [`Panels::part_fma`] with scale `2 p` in lanes 0 to 7 and `2 p + 1` in the others; `p` 0 to 7.
    fn part_fma_pair<const PART: usize>(
        self,
        scales: &[f32; 16],
        p: usize,
        ints: Self::Part,
        acc: Self::PartFloats,
    ) -> Self::PartFloats;

    /// Each lane of `sum` adds the products of four weights (0 to 127) and activations, times their scale.
    fn part_add_unsigned(
        self,
        sum: Self::Part,
        w: Self::Part,
        x: Self::Part,
        scales: Self::Part,
    ) -> Self::Part;
    /// As [`Panels::part_add_unsigned`] with signed weights.
    fn part_add_signed(
        self,
        sum: Self::Part,
        w: Self::PartSigned,
        x: Self::Part,
        scales: Self::Part,
    ) -> Self::Part;
    /// All zero.
    fn part_zero(self) -> Self::Part;
    /// All zero.
    fn part_zero_floats(self) -> Self::PartFloats;
    /// `scale · ints + acc`, rounded once.
    fn part_fma(self, scale: f32, ints: Self::Part, acc: Self::PartFloats) -> Self::PartFloats;
    /// The minima of four tokens, four lanes each: adds `d · Σ min·sum` to each, `d` rounded before; lane `g` of a token:
    /// minima and sums `2 g` and `2 g + 1`.
    fn add_mins_of_four(
        self,
        acc: Self::Floats,
        d: Self::Floats,
        mins: u64,
        sums: &Line<i16, 32>,
    ) -> Self::Floats;
    /// 16 lanes of their parts; `high` does not count where there is only one.
    fn join(self, low: Self::PartFloats, high: Self::PartFloats) -> Self::Floats;
}
