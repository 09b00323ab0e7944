//! AVX2, with AVX-VNNI or without: 64 bytes or 16 lanes are two registers, lower half first.
//!
//! Products of bytes: `vpmaddubsw` multiplies unsigned by signed and adds pairs in 16 bits, which cannot saturate
//! here: the weight's sign is moved to the activation, so a pair is at most `2 · 128 · 127`. `vpmaddwd` multiplies by
//! the scale (or one) and adds pairs again. AVX-VNNI does the second step and an addition at once (`vpdpwssd`), or all
//! of it where there is no scale (`vpdpbusd`; signed weights become `w + 128`, and the accumulator starts at the
//! activations' correction, `-128 Σ x`).

use super::{Panels, Simd, each_u32, each_u64, hsums_of_quarters};
use crate::act::Line;
use crate::isa::Isa;
use std::arch::x86_64::*;

/// The proof that [`Isa::Avx2`] is available, and [`Isa::AvxVnni`] if `VNNI`.
#[derive(Clone, Copy)]
pub(in crate::matmul) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    pub(in crate::matmul) fn detect() -> Option<Avx2<VNNI>> {
        let isa = if VNNI { Isa::AvxVnni } else { Isa::Avx2 };
        isa.is_available().then_some(Avx2(()))
    }
}

/// Two registers of integers.
type Two = [__m256i; 2];

/// Intrinsics that need nothing but the instruction set.
macro_rules! cpu {
    ($($body:tt)*) => {
        // SAFETY: `self` exists only where these instructions were detected; loads and stores go through references to
        // arrays of the size they touch, and need no alignment.
        unsafe { $($body)* }
    };
}

/// The same operation on both registers.
macro_rules! both {
    ($($name:ident = $value:expr),+ => $body:expr) => {{
        let low = { $(let $name = $value[0];)+ cpu! { $body } };
        let high = { $(let $name = $value[1];)+ cpu! { $body } };
        [low, high]
    }};
}

/// For a byte shuffle: words `4 i` to `4 i + 3` get byte `first + i` and a zero.
const fn bytes_of_fours(first: usize) -> [u8; 32] {
    let mut out = [0x80; 32];
    let mut word = 0;
    while word < 16 {
        out[2 * word] = (first + word / 4) as u8;
        word += 1;
    }
    out
}

/// For a byte shuffle of 16-bit scales: element `a` in the lower 128 bits, `b` in the upper.
const fn picks(a: usize, b: usize) -> [u8; 32] {
    let mut out = [0; 32];
    let mut i = 0;
    while i < 32 {
        out[i] = (2 * (if i < 16 { a } else { b }) + i % 2) as u8;
        i += 1;
    }
    out
}

/// 16 scales in memory, so that a load spreads one.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(in crate::matmul) struct FloatScales([f32; 16]);

/// An array that the compiler knows, as a vector that it knows too (a load would hide it from its simplifications).
#[inline(always)]
fn constant<T: bytemuck::Pod, const N: usize, const VNNI: bool>(_: Avx2<VNNI>, values: [T; N]) -> __m256i {
    const { assert!(size_of::<[T; N]>() == 32) };
    // SAFETY: plain data of the same size.
    unsafe { std::mem::transmute_copy(&values) }
}

#[inline(always)]
fn array_256<T: bytemuck::Pod, const N: usize, const VNNI: bool>(_: Avx2<VNNI>, values: &[T; N]) -> __m256i {
    const { assert!(size_of::<[T; N]>() == 32) };
    // SAFETY: 32 readable bytes; the instruction set is there, says the first argument.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

/// `vpdpwssd`. In assembly, since the compiler makes the intrinsic two instructions, for a shorter chain that does not
/// matter here.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn add_products_vnni(mut sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the function has the instruction's feature; registers only.
    unsafe {
        std::arch::asm!(
            "{{vex}} vpdpwssd {sum}, {a}, {b}",
            sum = inout(ymm_reg) sum,
            a = in(ymm_reg) a,
            b = in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

impl<const VNNI: bool> Avx2<VNNI> {
    /// All bits of the bytes whose bit is set in `bits`.
    #[inline(always)]
    fn mask(self, bits: u64) -> Two {
        const BYTE: [u8; 32] = {
            let mut out = [0; 32];
            let mut i = 0;
            while i < 32 {
                out[i] = (i / 8) as u8;
                i += 1;
            }
            out
        };
        const BIT: [u8; 32] = {
            let mut out = [0; 32];
            let mut i = 0;
            while i < 32 {
                out[i] = 1 << (i % 8);
                i += 1;
            }
            out
        };
        let (byte, bit) = (constant(self, BYTE), constant(self, BIT));
        let halves = [bits as i32, (bits >> 32) as i32];
        both!(half = halves => {
            let v = _mm256_shuffle_epi8(_mm256_set1_epi32(half), byte);
            _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit)
        })
    }

    #[inline(always)]
    fn activations(self, x: &Line<i8, 64>) -> Two {
        let (parts, _) = x.0.as_chunks::<32>();
        [array_256(self, &parts[0]), array_256(self, &parts[1])]
    }

    #[inline(always)]
    fn pairs(self, w: Two, x: Two) -> Two {
        both!(w = w, x = x => _mm256_maddubs_epi16(w, x))
    }

    /// `sum` plus the products of unsigned `w` and signed `x`, by fours.
    #[inline(always)]
    fn dot(self, sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        cpu! {
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, w, x);
            }
            _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)))
        }
    }

    /// The products of unsigned `w` and signed `x`, by fours.
    #[inline(always)]
    fn dot_unsigned_with(self, w: Two, x: Two) -> Two {
        let zero = self.zero_ints();
        [self.dot(zero[0], w[0], x[0]), self.dot(zero[1], w[1], x[1])]
    }

    /// `sum` plus the products of 16 bits, by twos.
    #[inline(always)]
    fn add_products(self, sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        if VNNI {
            return cpu! { add_products_vnni(sum, a, b) };
        }
        cpu! { _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)) }
    }
}

impl<const VNNI: bool> Avx2<VNNI> {
    /// The first two steps of `hsum16`: 16 lanes to 4.
    #[inline(always)]
    fn quarter(self, [low, high]: [__m256; 2]) -> __m128 {
        cpu! {
            let l = _mm256_add_ps(low, high);
            _mm_add_ps(_mm256_castps256_ps128(l), _mm256_extractf128_ps::<1>(l))
        }
    }
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    const VECTORS: usize = 8;

    type Bytes = Two;
    type DotWeights = (Two, Two);
    type ProductWeights = (Two, Two);
    type Products = Two;
    type Spread = Two;
    type Scales = Two;
    type Ints = Two;
    type Floats = [__m256; 2];
    type FloatScales = FloatScales;
    type Floats4 = __m128;

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        cpu! { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }

    #[inline(always)]
    fn load64(self, bytes: &[u8; 64]) -> Two {
        let (parts, _) = bytes.as_chunks::<32>();
        [array_256(self, &parts[0]), array_256(self, &parts[1])]
    }

    #[inline(always)]
    fn load32_and_32(self, a: &[u8; 32], b: &[u8; 32]) -> Two {
        [array_256(self, a), array_256(self, b)]
    }

    #[inline(always)]
    fn load32_twice(self, bytes: &[u8; 32]) -> Two {
        [array_256(self, bytes); 2]
    }

    #[inline(always)]
    fn load16_twice(self, a: &[u8; 16], b: &[u8; 16]) -> Two {
        both!(part = [a, b] => _mm256_broadcastsi128_si256(_mm_loadu_si128(part.as_ptr().cast())))
    }

    #[inline(always)]
    fn nibbles_by_8(self, bytes: &[u8; 32]) -> Two {
        let v = array_256(self, bytes);
        let v = cpu! { [_mm256_permute4x64_epi64::<0x50>(v), _mm256_permute4x64_epi64::<0xfa>(v)] };
        both!(v = v => {
            let v = _mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 4, 0, 4));
            _mm256_and_si256(v, _mm256_set1_epi8(15))
        })
    }

    #[inline(always)]
    fn expand_2_bits(self, bytes: &[u8; 16]) -> Two {
        let (parts, _) = bytes.as_chunks::<8>();
        both!(part = parts => {
            // Bits 0..8 of each dword; two doublings put the pairs at bits 0, 8, 16 and 24.
            let v = _mm256_cvtepu8_epi32(_mm_loadl_epi64(part.as_ptr().cast()));
            let v = _mm256_or_si256(v, _mm256_slli_epi32::<6>(v));
            let v = _mm256_or_si256(v, _mm256_slli_epi32::<12>(v));
            _mm256_and_si256(v, _mm256_set1_epi8(3))
        })
    }

    #[inline(always)]
    fn indices_10(self, low: &[u8; 32], high: &[u8; 8]) -> [u16; 32] {
        let mut out = [0; 32];
        let bytes =
            [constant(self, const { bytes_of_fours(0) }), constant(self, const { bytes_of_fours(4) })];
        let high = i64::from_le_bytes(*high);
        let parts = out.as_chunks_mut::<16>().0.iter_mut().zip(low.as_chunks::<16>().0);
        for ((out, low), byte) in parts.zip(bytes) {
            cpu! {
                let low = _mm256_cvtepu8_epi16(_mm_loadu_si128(low.as_ptr().cast()));
                // The byte to the low half of its four words, then up until its two bits are bits 8 and 9.
                let high = _mm256_shuffle_epi8(_mm256_set1_epi64x(high), byte);
                let high = _mm256_mullo_epi16(high, _mm256_set1_epi64x(0x0004_0010_0040_0100));
                let index = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x0300)));
                _mm256_storeu_si256(out.as_mut_ptr().cast(), index);
            }
        }
        out
    }

    #[inline(always)]
    fn indices_9(self, low: &[u8; 64], high: u64) -> [u16; 64] {
        let mut out = [0; 64];
        for (i, (out, low)) in out.as_chunks_mut::<16>().0.iter_mut().zip(low.as_chunks::<16>().0).enumerate()
        {
            cpu! {
                let low = _mm256_cvtepu8_epi16(_mm_loadu_si128(low.as_ptr().cast()));
                let bits = _mm256_set1_epi16((high >> (16 * i)) as i16);
                let bit = _mm256_setr_epi16(
                    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768,
                );
                let set = _mm256_cmpeq_epi16(_mm256_and_si256(bits, bit), bit);
                let index = _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi16(256)));
                _mm256_storeu_si256(out.as_mut_ptr().cast(), index);
            }
        }
        out
    }

    #[inline(always)]
    fn look_up_u64s<const SIZE: usize>(self, table: &[u64; SIZE], indices: [u16; 8]) -> Two {
        self.load64(&bytemuck::cast(each_u64(table, indices)))
    }

    #[inline(always)]
    fn look_up_u32s<const SIZE: usize>(self, table: &[u32; SIZE], indices: [u16; 16]) -> Two {
        self.load64(&bytemuck::cast(each_u32(table, indices)))
    }

    #[inline(always)]
    fn shift_right<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: Two,
        mask: u8,
    ) -> Two {
        let counts = cpu! {
            [
                _mm256_setr_epi32(Q0, Q0, Q0, Q0, Q1, Q1, Q1, Q1),
                _mm256_setr_epi32(Q2, Q2, Q2, Q2, Q3, Q3, Q3, Q3),
            ]
        };
        both!(v = v, n = counts => _mm256_and_si256(_mm256_srlv_epi32(v, n), _mm256_set1_epi8(mask as i8)))
    }

    #[inline(always)]
    fn shift_left<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(self, v: Two, mask: u8) -> Two {
        let counts = cpu! {
            [
                _mm256_setr_epi32(Q0, Q0, Q0, Q0, Q1, Q1, Q1, Q1),
                _mm256_setr_epi32(Q2, Q2, Q2, Q2, Q3, Q3, Q3, Q3),
            ]
        };
        both!(v = v, n = counts => _mm256_and_si256(_mm256_sllv_epi32(v, n), _mm256_set1_epi8(mask as i8)))
    }

    #[inline(always)]
    fn or(self, a: Two, b: Two) -> Two {
        both!(a = a, b = b => _mm256_or_si256(a, b))
    }

    #[inline(always)]
    fn add_to_all(self, v: Two, value: i8) -> Two {
        both!(v = v => _mm256_add_epi8(v, _mm256_set1_epi8(value)))
    }

    #[inline(always)]
    fn add_where(self, v: Two, bits: u64, value: i8) -> Two {
        both!(v = v, m = self.mask(bits) => {
            _mm256_add_epi8(v, _mm256_and_si256(m, _mm256_set1_epi8(value)))
        })
    }

    #[inline(always)]
    fn add_where_set<const LOW: u8, const HIGH: u8>(self, v: Two, q: Two, value: i8) -> Two {
        both!(v = v, q = q, bit = [LOW, HIGH] => {
            let bit = _mm256_set1_epi8(bit as i8);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(q, bit), bit);
            _mm256_add_epi8(v, _mm256_and_si256(set, _mm256_set1_epi8(value)))
        })
    }

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: Two) -> Two {
        let table = cpu! { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())) };
        both!(v = v => _mm256_shuffle_epi8(table, v))
    }

    #[inline(always)]
    fn dot_unsigned(self, w: Two, x: &Line<i8, 64>) -> Two {
        self.dot_unsigned_with(w, self.activations(x))
    }

    #[inline(always)]
    fn dot_weights(self, w: Two) -> (Two, Two) {
        if VNNI {
            return (both!(w = w => _mm256_xor_si256(w, _mm256_set1_epi8(-128))), w);
        }
        (both!(w = w => _mm256_abs_epi8(w)), w)
    }

    #[inline(always)]
    fn dot_signed(self, (first, w): (Two, Two), x: &Line<i8, 64>, corrections: &Line<i32, 16>) -> Two {
        let x = self.activations(x);
        if VNNI {
            let (sums, _) = corrections.0.as_chunks::<8>();
            let sums = [array_256(self, &sums[0]), array_256(self, &sums[1])];
            return [self.dot(sums[0], first[0], x[0]), self.dot(sums[1], first[1], x[1])];
        }
        self.dot_unsigned_with(first, both!(x = x, w = w => _mm256_sign_epi8(x, w)))
    }

    #[inline(always)]
    fn products_unsigned(self, w: Two, x: &Line<i8, 64>) -> Two {
        self.pairs(w, self.activations(x))
    }

    #[inline(always)]
    fn product_weights(self, w: Two) -> (Two, Two) {
        (both!(w = w => _mm256_abs_epi8(w)), w)
    }

    #[inline(always)]
    fn product_weights_of(self, magnitudes: Two, negative: u64) -> (Two, Two) {
        // Any number with the sign will do.
        (magnitudes, both!(m = self.mask(negative) => _mm256_or_si256(m, _mm256_set1_epi8(1))))
    }

    #[inline(always)]
    fn products_signed(self, (magnitude, w): (Two, Two), x: &Line<i8, 64>) -> Two {
        let x = self.activations(x);
        self.pairs(magnitude, both!(x = x, w = w => _mm256_sign_epi8(x, w)))
    }

    #[inline(always)]
    fn scales(self, bytes: [u64; 2]) -> Two {
        cpu! {
            let words = _mm256_cvtepi8_epi16(_mm_set_epi64x(bytes[1] as i64, bytes[0] as i64));
            // The first eight in both 128-bit lanes, then the others.
            [_mm256_permute4x64_epi64::<0x44>(words), _mm256_permute4x64_epi64::<0xee>(words)]
        }
    }

    #[inline(always)]
    fn spread32<const G: usize>(self, scales: Two) -> Two {
        let low = constant(self, const { picks(2 * G, 2 * G) });
        let high = constant(self, const { picks(2 * G + 1, 2 * G + 1) });
        let picks = [low, high];
        both!(pick = picks => _mm256_shuffle_epi8(scales[0], pick))
    }

    #[inline(always)]
    fn spread16<const G: usize>(self, scales: Two) -> Two {
        let low = constant(self, const { picks(4 * G % 8, 4 * G % 8 + 1) });
        let high = constant(self, const { picks(4 * G % 8 + 2, 4 * G % 8 + 3) });
        let picks = [low, high];
        both!(pick = picks => _mm256_shuffle_epi8(scales[G / 2], pick))
    }

    #[inline(always)]
    fn add_scaled(self, acc: Two, products: Two, scales: Two) -> Two {
        [self.add_products(acc[0], products[0], scales[0]), self.add_products(acc[1], products[1], scales[1])]
    }

    #[inline(always)]
    fn zero_ints(self) -> Two {
        cpu! { [_mm256_setzero_si256(); 2] }
    }

    #[inline(always)]
    fn floats(self, v: Two) -> [__m256; 2] {
        both!(v = v => _mm256_cvtepi32_ps(v))
    }

    #[inline(always)]
    fn zero(self) -> [__m256; 2] {
        cpu! { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [__m256; 2] {
        cpu! { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn load(self, values: &[f32; 16]) -> [__m256; 2] {
        let (parts, _) = values.as_chunks::<8>();
        both!(part = parts => _mm256_loadu_ps(part.as_ptr()))
    }

    #[inline(always)]
    fn store(self, v: [__m256; 2]) -> [f32; 16] {
        let mut out = [0.0; 16];
        let (parts, _) = out.as_chunks_mut::<8>();
        cpu! {
            _mm256_storeu_ps(parts[0].as_mut_ptr(), v[0]);
            _mm256_storeu_ps(parts[1].as_mut_ptr(), v[1]);
        }
        out
    }

    #[inline(always)]
    fn load_f16(self, bits: &[u16; 16]) -> [__m256; 2] {
        let (parts, _) = bits.as_chunks::<8>();
        both!(part = parts => _mm256_cvtph_ps(_mm_loadu_si128(part.as_ptr().cast())))
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; 16]) -> [__m256; 2] {
        let (parts, _) = bits.as_chunks::<8>();
        both!(part = parts => {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(part.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        both!(a = a, b = b => _mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        both!(a = a, b = b, c = c => _mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn fma_first(self, n: usize, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        let sum = self.fma(a, b, c);
        let counts = [n as i32, n as i32 - 8];
        both!(sum = sum, c = c, n = counts => {
            let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            _mm256_blendv_ps(c, sum, _mm256_castsi256_ps(inside))
        })
    }

    #[inline(always)]
    fn float_scales(self, v: [__m256; 2]) -> FloatScales {
        FloatScales(self.store(v))
    }

    #[inline(always)]
    fn spread_pair(self, scales: &FloatScales, p: usize) -> [__m256; 2] {
        let pair = scales.0.as_chunks::<2>().0[p];
        both!(scale = pair => _mm256_set1_ps(scale))
    }

    #[inline(always)]
    fn spread_four(self, scales: &FloatScales, p: usize) -> [__m256; 2] {
        let [a, b, c, d] = scales.0.as_chunks::<4>().0[p];
        both!(pair = [[a, b], [c, d]] => _mm256_set_m128(_mm_set1_ps(pair[1]), _mm_set1_ps(pair[0])))
    }

    #[inline(always)]
    fn hsums<const N: usize>(self, v: &[[__m256; 2]; N]) -> [f32; N] {
        let mut quarters = [self.zero4(); N];
        for i in 0..N {
            quarters[i] = self.quarter(v[i]);
        }
        // The instruction set includes SSE3.
        cpu! { hsums_of_quarters(&quarters) }
    }

    #[inline(always)]
    fn zero4(self) -> __m128 {
        cpu! { _mm_setzero_ps() }
    }

    #[inline(always)]
    fn add_mins16(self, acc: __m128, d: f32, mins: [u64; 2], sums: &[i16; 16]) -> __m128 {
        cpu! {
            let mins = _mm256_cvtepu8_epi16(_mm_set_epi64x(mins[1] as i64, mins[0] as i64));
            let pairs = _mm256_madd_epi16(mins, _mm256_loadu_si256(sums.as_ptr().cast()));
            let sums = _mm_hadd_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
            _mm_fmadd_ps(_mm_set1_ps(d), _mm_cvtepi32_ps(sums), acc)
        }
    }

    #[inline(always)]
    fn add_mins8(self, acc: __m128, d: f32, mins: u64, sums: &[i16; 8]) -> __m128 {
        cpu! {
            let mins = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(mins as i64));
            let sums = _mm_madd_epi16(mins, _mm_loadu_si128(sums.as_ptr().cast()));
            _mm_fmadd_ps(_mm_set1_ps(d), _mm_cvtepi32_ps(sums), acc)
        }
    }

    #[inline(always)]
    fn store4(self, v: __m128) -> [f32; 4] {
        let mut out = [0.0; 4];
        cpu! { _mm_storeu_ps(out.as_mut_ptr(), v) }
        out
    }
}

impl<const VNNI: bool> Panels for Avx2<VNNI> {
    const PARTS: usize = 2;
    const SIGNED_32: bool = !VNNI;

    type Part = __m256i;
    type PartSigned = (__m256i, __m256i);
    type PartFloats = __m256;

    #[inline(always)]
    fn signed_codes(self, (magnitude, w): (Two, Two)) -> Two {
        both!(m = magnitude, w = w => _mm256_sign_epi8(m, w))
    }

    #[inline(always)]
    fn keep(self, v: Two, to: &mut Line<i8, 64>) {
        let (parts, _) = to.0.as_chunks_mut::<32>();
        cpu! {
            _mm256_storeu_si256(parts[0].as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(parts[1].as_mut_ptr().cast(), v[1]);
        }
    }

    #[inline(always)]
    fn keep_scales(self, v: Two, to: &mut Line<i16, 32>) {
        let (parts, _) = to.0.as_chunks_mut::<16>();
        cpu! {
            _mm256_storeu_si256(parts[0].as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(parts[1].as_mut_ptr().cast(), v[1]);
        }
    }

    #[inline(always)]
    fn part<const PART: usize>(self, codes: &Line<i8, 64>) -> __m256i {
        array_256(self, &codes.0.as_chunks::<32>().0[PART])
    }

    #[inline(always)]
    fn part_scales<const PART: usize>(self, scales: &Line<i16, 32>) -> __m256i {
        array_256(self, &scales.0.as_chunks::<16>().0[PART])
    }

    #[inline(always)]
    fn part_signed(self, w: __m256i) -> (__m256i, __m256i) {
        (cpu! { _mm256_abs_epi8(w) }, w)
    }

    #[inline(always)]
    fn part_dot_unsigned(self, w: __m256i, x: __m256i) -> __m256i {
        self.dot(self.part_zero(), w, x)
    }

    #[inline(always)]
    fn part_dot_signed(self, (magnitude, w): (__m256i, __m256i), x: __m256i) -> __m256i {
        self.dot(self.part_zero(), magnitude, cpu! { _mm256_sign_epi8(x, w) })
    }

    #[inline(always)]
    fn part_fma_pair<const PART: usize>(
        self,
        scales: &[f32; 16],
        p: usize,
        ints: __m256i,
        acc: __m256,
    ) -> __m256 {
        self.part_fma(scales.as_chunks::<2>().0[p][PART], ints, acc)
    }

    #[inline(always)]
    fn part_add_unsigned(self, sum: __m256i, w: __m256i, x: __m256i, scales: __m256i) -> __m256i {
        self.add_products(sum, cpu! { _mm256_maddubs_epi16(w, x) }, scales)
    }

    #[inline(always)]
    fn part_add_signed(
        self,
        sum: __m256i,
        (magnitude, w): (__m256i, __m256i),
        x: __m256i,
        scales: __m256i,
    ) -> __m256i {
        self.part_add_unsigned(sum, magnitude, cpu! { _mm256_sign_epi8(x, w) }, scales)
    }

    #[inline(always)]
    fn part_zero(self) -> __m256i {
        cpu! { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn part_zero_floats(self) -> __m256 {
        cpu! { _mm256_setzero_ps() }
    }

    #[inline(always)]
    fn part_fma(self, scale: f32, ints: __m256i, acc: __m256) -> __m256 {
        cpu! { _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(ints), acc) }
    }

    #[inline(always)]
    fn add_mins_of_four(
        self,
        acc: [__m256; 2],
        d: [__m256; 2],
        mins: u64,
        sums: &Line<i16, 32>,
    ) -> [__m256; 2] {
        let mins = cpu! { _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(mins as i64))) };
        let (parts, _) = sums.0.as_chunks::<16>();
        both!(acc = acc, d = d, part = parts => {
            let sums = _mm256_madd_epi16(mins, _mm256_loadu_si256(part.as_ptr().cast()));
            _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sums), acc)
        })
    }

    #[inline(always)]
    fn join(self, low: __m256, high: __m256) -> [__m256; 2] {
        [low, high]
    }
}

/// The instance without AVX-VNNI.
pub(in crate::matmul) mod plain {
    crate::matmul::drive::kernels!(super::Avx2<false>, "avx2,fma,f16c", 4, panels);
}

/// The instance with AVX-VNNI.
pub(in crate::matmul) mod vnni {
    crate::matmul::drive::kernels!(super::Avx2<true>, "avx2,fma,f16c,avxvnni", 4, panels);
}
