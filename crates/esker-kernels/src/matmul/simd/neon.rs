//! AArch64 Advanced SIMD: 64 bytes or 16 lanes are four registers, one a quarter.
//!
//! Products of bytes: `sdot` (signed by signed, four products to a lane) where the CPU has it, otherwise widening
//! multiplications and pairwise additions. Unsigned weights are at most 127, so they are signed too. Integer scales
//! multiply the 32-bit lanes.
// Which intrinsics are safe depends on whether the target has them in its baseline.
#![allow(unused_unsafe)]

use super::{Simd, each_u32, each_u64};
use crate::act::Line;
use std::arch::aarch64::*;

/// The proof that Advanced SIMD is there (it always is), and `sdot` if `DOT`.
#[derive(Clone, Copy)]
pub(in crate::matmul) struct Neon<const DOT: bool>(());

impl Neon<false> {
    pub(in crate::matmul) fn detect() -> Option<Neon<false>> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }
}

impl Neon<true> {
    pub(in crate::matmul) fn detect() -> Option<Neon<true>> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Neon(()))
    }
}

/// Four registers of bytes.
type Four = [uint8x16_t; 4];

/// Intrinsics that need nothing but the instruction set.
macro_rules! cpu {
    ($($body:tt)*) => {
        // SAFETY: `self` exists only where these instructions were detected; loads and stores go through references to
        // arrays of the size they touch, and need no alignment.
        unsafe { $($body)* }
    };
}

/// The same operation on all four registers.
macro_rules! each {
    ($($name:ident = $value:expr),+ => $body:expr) => {{
        let a = { $(let $name = $value[0];)+ cpu! { $body } };
        let b = { $(let $name = $value[1];)+ cpu! { $body } };
        let c = { $(let $name = $value[2];)+ cpu! { $body } };
        let d = { $(let $name = $value[3];)+ cpu! { $body } };
        [a, b, c, d]
    }};
}

#[inline(always)]
fn signed(v: uint8x16_t) -> int8x16_t {
    // SAFETY: a reinterpretation; Advanced SIMD is in the baseline of this architecture.
    unsafe { vreinterpretq_s8_u8(v) }
}

impl<const DOT: bool> Neon<DOT> {
    #[inline(always)]
    fn load16(self, bytes: &[u8; 16]) -> uint8x16_t {
        cpu! { vld1q_u8(bytes.as_ptr()) }
    }

    #[inline(always)]
    fn activations(self, x: &Line<i8, 64>) -> [int8x16_t; 4] {
        let (parts, _) = x.0.as_chunks::<16>();
        each!(part = parts => vld1q_s8(part.as_ptr()))
    }

    /// All bits of the bytes whose bit is set in `bits`.
    #[inline(always)]
    fn mask(self, bits: u64) -> Four {
        const BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        let bit = self.load16(&BIT);
        let bytes = bits.to_le_bytes();
        let (pairs, _) = bytes.as_chunks::<2>();
        each!(pair = pairs => vtstq_u8(vcombine_u8(vdup_n_u8(pair[0]), vdup_n_u8(pair[1])), bit))
    }

    /// Lane `l`: the sum of four products.
    #[inline(always)]
    fn dot(self, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        if DOT {
            let mut acc = cpu! { vdupq_n_s32(0) };
            // SAFETY: `sdot` is there, says `DOT`; the instruction touches its operands only.
            unsafe {
                std::arch::asm!(
                    ".arch_extension dotprod",
                    "sdot {acc:v}.4s, {w:v}.16b, {x:v}.16b",
                    acc = inout(vreg) acc,
                    w = in(vreg) w,
                    x = in(vreg) x,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            acc
        } else {
            cpu! {
                let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
                let high = vmull_high_s8(w, x);
                // Sums of two products: at most 2 * 128 * 127, which 16 bits hold.
                vpaddlq_s16(vpaddq_s16(low, high))
            }
        }
    }
}

impl<const DOT: bool> Simd for Neon<DOT> {
    const VECTORS: usize = 8;

    type Bytes = Four;
    type DotWeights = Four;
    type ProductWeights = Four;
    type Products = [int32x4_t; 4];
    type Spread = [int32x4_t; 4];
    type Scales = [i8; 16];
    type Ints = [int32x4_t; 4];
    type Floats = [float32x4_t; 4];
    type FloatScales = [f32; 16];
    type Floats4 = float32x4_t;

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a hint; the processor ignores addresses that it cannot read.
        unsafe {
            std::arch::asm!(
                "prfm pldl2keep, [{address}]",
                address = in(reg) address,
                options(readonly, nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    fn load64(self, bytes: &[u8; 64]) -> Four {
        let (parts, _) = bytes.as_chunks::<16>();
        each!(part = parts => vld1q_u8(part.as_ptr()))
    }

    #[inline(always)]
    fn load32_and_32(self, a: &[u8; 32], b: &[u8; 32]) -> Four {
        let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
        [self.load16(&a[0]), self.load16(&a[1]), self.load16(&b[0]), self.load16(&b[1])]
    }

    #[inline(always)]
    fn load32_twice(self, bytes: &[u8; 32]) -> Four {
        self.load32_and_32(bytes, bytes)
    }

    #[inline(always)]
    fn load16_twice(self, a: &[u8; 16], b: &[u8; 16]) -> Four {
        let (a, b) = (self.load16(a), self.load16(b));
        [a, a, b, b]
    }

    #[inline(always)]
    fn nibbles_by_8(self, bytes: &[u8; 32]) -> Four {
        let (parts, _) = bytes.as_chunks::<8>();
        each!(part = parts => {
            let v = vld1_u8(part.as_ptr());
            vcombine_u8(vand_u8(v, vdup_n_u8(15)), vshr_n_u8::<4>(v))
        })
    }

    #[inline(always)]
    fn expand_2_bits(self, bytes: &[u8; 16]) -> Four {
        const SHIFT: [i8; 16] = [0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6];
        const BYTE: [u8; 16] = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
        let v = self.load16(bytes);
        let shift = cpu! { vld1q_s8(SHIFT.as_ptr()) };
        let byte = self.load16(&BYTE);
        let first = [0u8, 4, 8, 12];
        each!(first = first => {
            let v = vqtbl1q_u8(v, vaddq_u8(byte, vdupq_n_u8(first)));
            vandq_u8(vshlq_u8(v, shift), vdupq_n_u8(3))
        })
    }

    #[inline(always)]
    fn indices_10(self, low: &[u8; 32], high: &[u8; 8]) -> [u16; 32] {
        const SHIFT: [i16; 8] = [8, 6, 4, 2, 8, 6, 4, 2];
        let mut out = [0; 32];
        let parts = out.as_chunks_mut::<8>().0.iter_mut().zip(low.as_chunks::<8>().0);
        for ((out, low), high) in parts.zip(high.as_chunks::<2>().0) {
            cpu! {
                // The byte to its four words, then up until its two bits are bits 8 and 9.
                let [a, b] = [vdup_n_u16(u16::from(high[0])), vdup_n_u16(u16::from(high[1]))];
                let high = vshlq_u16(vcombine_u16(a, b), vld1q_s16(SHIFT.as_ptr()));
                let index = vorrq_u16(vmovl_u8(vld1_u8(low.as_ptr())), vandq_u16(high, vdupq_n_u16(0x0300)));
                vst1q_u16(out.as_mut_ptr(), index);
            }
        }
        out
    }

    #[inline(always)]
    fn indices_9(self, low: &[u8; 64], high: u64) -> [u16; 64] {
        const BIT: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
        let mut out = [0; 64];
        let parts = out.as_chunks_mut::<8>().0.iter_mut().zip(low.as_chunks::<8>().0);
        for ((out, low), high) in parts.zip(high.to_le_bytes()) {
            cpu! {
                let set = vtstq_u16(vdupq_n_u16(u16::from(high)), vld1q_u16(BIT.as_ptr()));
                let index = vorrq_u16(vmovl_u8(vld1_u8(low.as_ptr())), vandq_u16(set, vdupq_n_u16(256)));
                vst1q_u16(out.as_mut_ptr(), index);
            }
        }
        out
    }

    #[inline(always)]
    fn look_up_u64s<const SIZE: usize>(self, table: &[u64; SIZE], indices: [u16; 8]) -> Four {
        self.load64(&bytemuck::cast(each_u64(table, indices)))
    }

    #[inline(always)]
    fn look_up_u32s<const SIZE: usize>(self, table: &[u32; SIZE], indices: [u16; 16]) -> Four {
        self.load64(&bytemuck::cast(each_u32(table, indices)))
    }

    #[inline(always)]
    fn shift_right<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: Four,
        mask: u8,
    ) -> Four {
        let counts = [-Q0, -Q1, -Q2, -Q3];
        each!(v = v, n = counts => vandq_u8(vshlq_u8(v, vdupq_n_s8(n as i8)), vdupq_n_u8(mask)))
    }

    #[inline(always)]
    fn shift_left<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: Four,
        mask: u8,
    ) -> Four {
        let counts = [Q0, Q1, Q2, Q3];
        each!(v = v, n = counts => vandq_u8(vshlq_u8(v, vdupq_n_s8(n as i8)), vdupq_n_u8(mask)))
    }

    #[inline(always)]
    fn or(self, a: Four, b: Four) -> Four {
        each!(a = a, b = b => vorrq_u8(a, b))
    }

    #[inline(always)]
    fn add_to_all(self, v: Four, value: i8) -> Four {
        each!(v = v => vaddq_u8(v, vdupq_n_u8(value as u8)))
    }

    #[inline(always)]
    fn add_where(self, v: Four, bits: u64, value: i8) -> Four {
        each!(v = v, m = self.mask(bits) => vaddq_u8(v, vandq_u8(m, vdupq_n_u8(value as u8))))
    }

    #[inline(always)]
    fn add_where_set<const LOW: u8, const HIGH: u8>(self, v: Four, q: Four, value: i8) -> Four {
        let bits = [LOW, LOW, HIGH, HIGH];
        each!(v = v, q = q, bit = bits => {
            let set = vtstq_u8(q, vdupq_n_u8(bit));
            vaddq_u8(v, vandq_u8(set, vdupq_n_u8(value as u8)))
        })
    }

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: Four) -> Four {
        let table = cpu! { vreinterpretq_u8_s8(vld1q_s8(table.as_ptr())) };
        each!(v = v => vqtbl1q_u8(table, v))
    }

    #[inline(always)]
    fn dot_unsigned(self, w: Four, x: &Line<i8, 64>) -> [int32x4_t; 4] {
        self.products_signed(w, x)
    }

    #[inline(always)]
    fn dot_weights(self, w: Four) -> Four {
        w
    }

    #[inline(always)]
    fn dot_signed(self, w: Four, x: &Line<i8, 64>, _: &Line<i32, 16>) -> [int32x4_t; 4] {
        self.products_signed(w, x)
    }

    #[inline(always)]
    fn products_unsigned(self, w: Four, x: &Line<i8, 64>) -> [int32x4_t; 4] {
        self.products_signed(w, x)
    }

    #[inline(always)]
    fn product_weights(self, w: Four) -> Four {
        w
    }

    #[inline(always)]
    fn product_weights_of(self, magnitudes: Four, negative: u64) -> Four {
        each!(v = magnitudes, m = self.mask(negative) => vsubq_u8(veorq_u8(v, m), m))
    }

    #[inline(always)]
    fn products_signed(self, w: Four, x: &Line<i8, 64>) -> [int32x4_t; 4] {
        each!(w = w, x = self.activations(x) => self.dot(signed(w), x))
    }

    #[inline(always)]
    fn scales(self, bytes: [u64; 2]) -> [i8; 16] {
        bytemuck::cast(bytes.map(u64::to_le_bytes))
    }

    #[inline(always)]
    fn spread32<const G: usize>(self, scales: [i8; 16]) -> [int32x4_t; 4] {
        let (a, b) = (scales[2 * G], scales[2 * G + 1]);
        let four = [a, a, b, b];
        each!(scale = four => vdupq_n_s32(i32::from(scale)))
    }

    #[inline(always)]
    fn spread16<const G: usize>(self, scales: [i8; 16]) -> [int32x4_t; 4] {
        let four = scales.as_chunks::<4>().0[G];
        each!(scale = four => vdupq_n_s32(i32::from(scale)))
    }

    #[inline(always)]
    fn add_scaled(
        self,
        acc: [int32x4_t; 4],
        products: [int32x4_t; 4],
        scales: [int32x4_t; 4],
    ) -> [int32x4_t; 4] {
        each!(acc = acc, p = products, s = scales => vmlaq_s32(acc, p, s))
    }

    #[inline(always)]
    fn zero_ints(self) -> [int32x4_t; 4] {
        cpu! { [vdupq_n_s32(0); 4] }
    }

    #[inline(always)]
    fn floats(self, v: [int32x4_t; 4]) -> [float32x4_t; 4] {
        each!(v = v => vcvtq_f32_s32(v))
    }

    #[inline(always)]
    fn zero(self) -> [float32x4_t; 4] {
        cpu! { [vdupq_n_f32(0.0); 4] }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [float32x4_t; 4] {
        cpu! { [vdupq_n_f32(value); 4] }
    }

    #[inline(always)]
    fn load(self, values: &[f32; 16]) -> [float32x4_t; 4] {
        let (parts, _) = values.as_chunks::<4>();
        each!(part = parts => vld1q_f32(part.as_ptr()))
    }

    #[inline(always)]
    fn store(self, v: [float32x4_t; 4]) -> [f32; 16] {
        let mut out = [0.0; 16];
        let (parts, _) = out.as_chunks_mut::<4>();
        for (part, v) in parts.iter_mut().zip(v) {
            cpu! { vst1q_f32(part.as_mut_ptr(), v) }
        }
        out
    }

    #[inline(always)]
    fn load_f16(self, bits: &[u16; 16]) -> [float32x4_t; 4] {
        let (parts, _) = bits.as_chunks::<4>();
        each!(part = parts => vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(part.as_ptr()))))
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; 16]) -> [float32x4_t; 4] {
        let (parts, _) = bits.as_chunks::<4>();
        each!(part = parts => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(part.as_ptr()))))
    }

    #[inline(always)]
    fn mul(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(a = a, b = b => vmulq_f32(a, b))
    }

    #[inline(always)]
    fn fma(self, a: [float32x4_t; 4], b: [float32x4_t; 4], c: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(a = a, b = b, c = c => vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn fma_first(
        self,
        n: usize,
        a: [float32x4_t; 4],
        b: [float32x4_t; 4],
        c: [float32x4_t; 4],
    ) -> [float32x4_t; 4] {
        const LANE: [i32; 4] = [0, 1, 2, 3];
        let n = n as i32;
        let counts = [n, n - 4, n - 8, n - 12];
        each!(sum = self.fma(a, b, c), c = c, n = counts => {
            vbslq_f32(vcltq_s32(vld1q_s32(LANE.as_ptr()), vdupq_n_s32(n)), sum, c)
        })
    }

    #[inline(always)]
    fn float_scales(self, v: [float32x4_t; 4]) -> [f32; 16] {
        self.store(v)
    }

    #[inline(always)]
    fn spread_pair(self, scales: &[f32; 16], p: usize) -> [float32x4_t; 4] {
        let [a, b] = scales.as_chunks::<2>().0[p];
        let four = [a, a, b, b];
        each!(scale = four => vdupq_n_f32(scale))
    }

    #[inline(always)]
    fn spread_four(self, scales: &[f32; 16], p: usize) -> [float32x4_t; 4] {
        let four = scales.as_chunks::<4>().0[p];
        each!(scale = four => vdupq_n_f32(scale))
    }

    #[inline(always)]
    fn zero4(self) -> float32x4_t {
        cpu! { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    fn add_mins16(self, acc: float32x4_t, d: f32, mins: [u64; 2], sums: &[i16; 16]) -> float32x4_t {
        let (parts, _) = sums.as_chunks::<8>();
        cpu! {
            let half = |mins: u64, sums: &[i16; 8]| {
                let mins = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(mins)));
                let sums = vld1q_s16(sums.as_ptr());
                let low = vmull_s16(vget_low_s16(mins), vget_low_s16(sums));
                vpaddq_s32(low, vmull_high_s16(mins, sums))
            };
            let sums = vpaddq_s32(half(mins[0], &parts[0]), half(mins[1], &parts[1]));
            vfmaq_f32(acc, vdupq_n_f32(d), vcvtq_f32_s32(sums))
        }
    }

    #[inline(always)]
    fn add_mins8(self, acc: float32x4_t, d: f32, mins: u64, sums: &[i16; 8]) -> float32x4_t {
        cpu! {
            let mins = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(mins)));
            let sums = vld1q_s16(sums.as_ptr());
            let low = vmull_s16(vget_low_s16(mins), vget_low_s16(sums));
            let sums = vpaddq_s32(low, vmull_high_s16(mins, sums));
            vfmaq_f32(acc, vdupq_n_f32(d), vcvtq_f32_s32(sums))
        }
    }

    #[inline(always)]
    fn store4(self, v: float32x4_t) -> [f32; 4] {
        let mut out = [0.0; 4];
        cpu! { vst1q_f32(out.as_mut_ptr(), v) }
        out
    }
}

/// The instance with `sdot`.
pub(in crate::matmul) mod dot {
    crate::matmul::drive::kernels!(super::Neon<true>, "neon,dotprod", 4, tiles);
}

/// The instance without.
pub(in crate::matmul) mod plain {
    crate::matmul::drive::kernels!(super::Neon<false>, "neon", 4, tiles);
}
