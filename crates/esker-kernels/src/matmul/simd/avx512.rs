//! AVX-512: 64 bytes or 16 lanes are one register.
//!
//! Products of bytes. `vpdpbusd` multiplies unsigned by signed: signed weights become `w + 128`, and the accumulator
//! starts at the activations' correction, `-128 Σ x`. With integer scales, `vpmaddubsw` gives 16-bit sums of two
//! products (the weight's sign moved to the activation, so at most `2 · 127 · 127`: no saturation), and `vpdpwssd`
//! multiplies by the scale and adds the pairs.

use super::{Panels, Simd, hsums_of_quarters};
use crate::act::Line;
use crate::isa::Isa;
use std::arch::x86_64::*;

/// The proof that [`Isa::Avx512`] is available.
#[derive(Clone, Copy)]
pub(in crate::matmul) struct Avx512(());

impl Avx512 {
    pub(in crate::matmul) fn detect() -> Option<Avx512> {
        Isa::Avx512.is_available().then_some(Avx512(()))
    }
}

/// Intrinsics that need nothing but the instruction set.
macro_rules! cpu {
    ($($body:tt)*) => {
        // SAFETY: `self` exists only where these instructions were detected; loads and stores go through references to
        // arrays of the size they touch, and need no alignment.
        unsafe { $($body)* }
    };
}

/// A shift count for the 16-bit elements of a quarter.
const fn count(n: i32) -> i64 {
    n as i64 * 0x0001_0001_0001_0001
}

/// For a byte shuffle: words `4 i` to `4 i + 3` get byte `i` and a zero. (A shuffle stays within 16 bytes.)
const fn bytes_of_fours() -> [u8; 64] {
    let mut out = [0x80; 64];
    let mut word = 0;
    while word < 32 {
        out[2 * word] = (word / 4) as u8;
        word += 1;
    }
    out
}

/// Element indices: `first + i / run`.
const fn runs<const N: usize>(first: usize, run: usize) -> [u16; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        out[i] = (first + i / run) as u16;
        i += 1;
    }
    out
}

/// [`runs`] for each `p`, as 32-bit elements.
const fn lane_runs<const P: usize>(step: usize, run: usize) -> [[i32; 16]; P] {
    let mut out = [[0; 16]; P];
    let mut p = 0;
    while p < P {
        let mut i = 0;
        while i < 16 {
            out[p][i] = (p * step + i / run) as i32;
            i += 1;
        }
        p += 1;
    }
    out
}

static PAIRS: [[i32; 16]; 8] = lane_runs(2, 8);
static FOURS: [[i32; 16]; 4] = lane_runs(4, 4);

/// An array that the compiler knows, as a vector that it knows too (a load would hide it from its simplifications).
#[inline(always)]
fn constant<T: bytemuck::Pod, const N: usize>(_: Avx512, values: [T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: plain data of the same size.
    unsafe { std::mem::transmute_copy(&values) }
}

#[inline(always)]
fn array_512<T: bytemuck::Pod, const N: usize>(_: Avx512, values: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: 64 readable bytes; the instruction set is there, says the first argument.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

/// `vpdpwssd`. In assembly, since the compiler makes the intrinsic two instructions, for a shorter chain that does not
/// matter here.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_products(mut sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the function has the instruction's feature; registers only.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {sum}, {a}, {b}",
            sum = inout(zmm_reg) sum,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

impl Avx512 {
    /// The first two steps of `hsum16`: 16 lanes to 4.
    #[inline(always)]
    fn quarter(self, v: __m512) -> __m128 {
        cpu! {
            let l = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            _mm_add_ps(_mm256_castps256_ps128(l), _mm256_extractf128_ps::<1>(l))
        }
    }

    /// `sum` plus the products of 16 bits, by twos.
    #[inline(always)]
    fn add_products(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        cpu! { add_products(sum, a, b) }
    }
}

impl Simd for Avx512 {
    const VECTORS: usize = 32;

    type Bytes = __m512i;
    type DotWeights = __m512i;
    type ProductWeights = (__m512i, __mmask64);
    type Products = __m512i;
    type Spread = __m512i;
    type Scales = __m512i;
    type Ints = __m512i;
    type Floats = __m512;
    type FloatScales = __m512;
    type Floats4 = __m128;

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        cpu! { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }

    #[inline(always)]
    fn load64(self, bytes: &[u8; 64]) -> __m512i {
        array_512(self, bytes)
    }

    #[inline(always)]
    fn load32_and_32(self, a: &[u8; 32], b: &[u8; 32]) -> __m512i {
        cpu! {
            let a = _mm256_loadu_si256(a.as_ptr().cast());
            let b = _mm256_loadu_si256(b.as_ptr().cast());
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
        }
    }

    #[inline(always)]
    fn load32_twice(self, bytes: &[u8; 32]) -> __m512i {
        cpu! { _mm512_broadcast_i64x4(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load16_twice(self, a: &[u8; 16], b: &[u8; 16]) -> __m512i {
        cpu! {
            let a = _mm512_broadcast_i64x2(_mm_loadu_si128(a.as_ptr().cast()));
            _mm512_mask_broadcast_i64x2(a, 0xf0, _mm_loadu_si128(b.as_ptr().cast()))
        }
    }

    #[inline(always)]
    fn nibbles_by_8(self, bytes: &[u8; 32]) -> __m512i {
        cpu! {
            let v = _mm512_castsi256_si512(_mm256_loadu_si256(bytes.as_ptr().cast()));
            let v = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), v);
            let v = _mm512_srlv_epi64(v, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
            _mm512_and_si512(v, _mm512_set1_epi8(15))
        }
    }

    #[inline(always)]
    fn expand_2_bits(self, bytes: &[u8; 16]) -> __m512i {
        cpu! {
            // Bits 0..8 of each dword; two doublings put the pairs at bits 0, 8, 16 and 24.
            let v = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
            let v = _mm512_or_si512(v, _mm512_slli_epi32::<6>(v));
            let v = _mm512_or_si512(v, _mm512_slli_epi32::<12>(v));
            _mm512_and_si512(v, _mm512_set1_epi8(3))
        }
    }

    #[inline(always)]
    fn indices_10(self, low: &[u8; 32], high: &[u8; 8]) -> [u16; 32] {
        let mut out = [0; 32];
        // The byte to the low half of its four words, then up until its two bits are bits 8 and 9.
        let byte = constant(self, const { bytes_of_fours() });
        cpu! {
            let low = _mm512_cvtepu8_epi16(_mm256_loadu_si256(low.as_ptr().cast()));
            let high = _mm512_shuffle_epi8(_mm512_set1_epi64(i64::from_le_bytes(*high)), byte);
            let high = _mm512_sllv_epi16(high, _mm512_set1_epi64(0x0002_0004_0006_0008));
            let index = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi16(0x0300)));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), index);
        }
        out
    }

    #[inline(always)]
    fn indices_9(self, low: &[u8; 64], high: u64) -> [u16; 64] {
        let mut out = [0; 64];
        let bits = [high as u32, (high >> 32) as u32];
        for ((out, low), bits) in
            out.as_chunks_mut::<32>().0.iter_mut().zip(low.as_chunks::<32>().0).zip(bits)
        {
            cpu! {
                let low = _mm512_cvtepu8_epi16(_mm256_loadu_si256(low.as_ptr().cast()));
                let index = _mm512_mask_add_epi16(low, bits, low, _mm512_set1_epi16(256));
                _mm512_storeu_si512(out.as_mut_ptr().cast(), index);
            }
        }
        out
    }

    #[inline(always)]
    fn look_up_u64s<const SIZE: usize>(self, table: &[u64; SIZE], indices: [u16; 8]) -> __m512i {
        const { assert!(SIZE.is_power_of_two()) };
        cpu! {
            let indices = _mm_and_si128(_mm_loadu_si128(indices.as_ptr().cast()), _mm_set1_epi16(SIZE as i16 - 1));
            // The indices are inside the table.
            _mm512_i32gather_epi64::<8>(_mm256_cvtepu16_epi32(indices), table.as_ptr().cast())
        }
    }

    #[inline(always)]
    fn look_up_u32s<const SIZE: usize>(self, table: &[u32; SIZE], indices: [u16; 16]) -> __m512i {
        const { assert!(SIZE.is_power_of_two()) };
        cpu! {
            let indices = _mm256_loadu_si256(indices.as_ptr().cast());
            let indices = _mm256_and_si256(indices, _mm256_set1_epi16(SIZE as i16 - 1));
            // The indices are inside the table.
            _mm512_i32gather_epi32::<4>(_mm512_cvtepu16_epi32(indices), table.as_ptr().cast())
        }
    }

    #[inline(always)]
    fn shift_right<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: __m512i,
        mask: u8,
    ) -> __m512i {
        let [a, b, c, d] = const { [count(Q0), count(Q1), count(Q2), count(Q3)] };
        cpu! {
            let counts = _mm512_setr_epi64(a, a, b, b, c, c, d, d);
            _mm512_and_si512(_mm512_srlv_epi16(v, counts), _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    fn shift_left<const Q0: i32, const Q1: i32, const Q2: i32, const Q3: i32>(
        self,
        v: __m512i,
        mask: u8,
    ) -> __m512i {
        let [a, b, c, d] = const { [count(Q0), count(Q1), count(Q2), count(Q3)] };
        cpu! {
            let counts = _mm512_setr_epi64(a, a, b, b, c, c, d, d);
            _mm512_and_si512(_mm512_sllv_epi16(v, counts), _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        cpu! { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn add_to_all(self, v: __m512i, value: i8) -> __m512i {
        cpu! { _mm512_add_epi8(v, _mm512_set1_epi8(value)) }
    }

    #[inline(always)]
    fn add_where(self, v: __m512i, bits: u64, value: i8) -> __m512i {
        cpu! { _mm512_mask_add_epi8(v, bits, v, _mm512_set1_epi8(value)) }
    }

    #[inline(always)]
    fn add_where_set<const LOW: u8, const HIGH: u8>(self, v: __m512i, q: __m512i, value: i8) -> __m512i {
        cpu! {
            let (low, high) = (_mm256_set1_epi8(LOW as i8), _mm256_set1_epi8(HIGH as i8));
            let mask = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            _mm512_mask_add_epi8(v, _mm512_test_epi8_mask(q, mask), v, _mm512_set1_epi8(value))
        }
    }

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: __m512i) -> __m512i {
        cpu! { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), v) }
    }

    #[inline(always)]
    fn dot_unsigned(self, w: __m512i, x: &Line<i8, 64>) -> __m512i {
        cpu! { _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, array_512(self, &x.0)) }
    }

    #[inline(always)]
    fn dot_weights(self, w: __m512i) -> __m512i {
        cpu! { _mm512_xor_si512(w, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn dot_signed(self, w: __m512i, x: &Line<i8, 64>, corrections: &Line<i32, 16>) -> __m512i {
        cpu! { _mm512_dpbusd_epi32(array_512(self, &corrections.0), w, array_512(self, &x.0)) }
    }

    #[inline(always)]
    fn products_unsigned(self, w: __m512i, x: &Line<i8, 64>) -> __m512i {
        cpu! { _mm512_maddubs_epi16(w, array_512(self, &x.0)) }
    }

    #[inline(always)]
    fn product_weights(self, w: __m512i) -> (__m512i, __mmask64) {
        cpu! { (_mm512_abs_epi8(w), _mm512_movepi8_mask(w)) }
    }

    #[inline(always)]
    fn product_weights_of(self, magnitudes: __m512i, negative: u64) -> (__m512i, __mmask64) {
        (magnitudes, negative)
    }

    #[inline(always)]
    fn products_signed(self, (w, negative): (__m512i, __mmask64), x: &Line<i8, 64>) -> __m512i {
        cpu! {
            let x = array_512(self, &x.0);
            _mm512_maddubs_epi16(w, _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x))
        }
    }

    #[inline(always)]
    fn scales(self, bytes: [u64; 2]) -> __m512i {
        cpu! {
            let bytes = _mm_set_epi64x(bytes[1] as i64, bytes[0] as i64);
            _mm512_castsi256_si512(_mm256_cvtepi8_epi16(bytes))
        }
    }

    #[inline(always)]
    fn spread32<const G: usize>(self, scales: __m512i) -> __m512i {
        let index = constant(self, const { runs::<32>(2 * G, 16) });
        cpu! { _mm512_permutexvar_epi16(index, scales) }
    }

    #[inline(always)]
    fn spread16<const G: usize>(self, scales: __m512i) -> __m512i {
        let index = constant(self, const { runs::<32>(4 * G, 8) });
        cpu! { _mm512_permutexvar_epi16(index, scales) }
    }

    #[inline(always)]
    fn add_scaled(self, acc: __m512i, products: __m512i, scales: __m512i) -> __m512i {
        self.add_products(acc, products, scales)
    }

    #[inline(always)]
    fn zero_ints(self) -> __m512i {
        cpu! { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn floats(self, v: __m512i) -> __m512 {
        cpu! { _mm512_cvtepi32_ps(v) }
    }

    #[inline(always)]
    fn zero(self) -> __m512 {
        cpu! { _mm512_setzero_ps() }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        cpu! { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, values: &[f32; 16]) -> __m512 {
        cpu! { _mm512_loadu_ps(values.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512) -> [f32; 16] {
        let mut out = [0.0; 16];
        cpu! { _mm512_storeu_ps(out.as_mut_ptr(), v) }
        out
    }

    #[inline(always)]
    fn load_f16(self, bits: &[u16; 16]) -> __m512 {
        cpu! { _mm512_cvtph_ps(_mm256_loadu_si256(bits.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; 16]) -> __m512 {
        cpu! {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bits.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        cpu! { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        cpu! { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn fma_first(self, n: usize, a: __m512, b: __m512, c: __m512) -> __m512 {
        let first = ((1u32 << n) - 1) as __mmask16;
        cpu! { _mm512_mask3_fmadd_ps(a, b, c, first) }
    }

    #[inline(always)]
    fn float_scales(self, v: __m512) -> __m512 {
        v
    }

    #[inline(always)]
    fn spread_pair(self, scales: &__m512, p: usize) -> __m512 {
        cpu! { _mm512_permutexvar_ps(array_512(self, &PAIRS[p]), *scales) }
    }

    #[inline(always)]
    fn spread_four(self, scales: &__m512, p: usize) -> __m512 {
        cpu! { _mm512_permutexvar_ps(array_512(self, &FOURS[p]), *scales) }
    }

    #[inline(always)]
    fn hsums<const N: usize>(self, v: &[__m512; N]) -> [f32; N] {
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

impl Panels for Avx512 {
    const PARTS: usize = 1;
    const SIGNED_32: bool = false;

    type Part = __m512i;
    type PartSigned = (__m512i, __mmask64);
    type PartFloats = __m512;

    #[inline(always)]
    fn signed_codes(self, (w, negative): (__m512i, __mmask64)) -> __m512i {
        cpu! { _mm512_mask_sub_epi8(w, negative, _mm512_setzero_si512(), w) }
    }

    #[inline(always)]
    fn keep(self, v: __m512i, to: &mut Line<i8, 64>) {
        cpu! { _mm512_storeu_si512(to.0.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn keep_scales(self, v: __m512i, to: &mut Line<i16, 32>) {
        cpu! { _mm512_storeu_si512(to.0.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn part<const PART: usize>(self, codes: &Line<i8, 64>) -> __m512i {
        array_512(self, &codes.0)
    }

    #[inline(always)]
    fn part_scales<const PART: usize>(self, scales: &Line<i16, 32>) -> __m512i {
        array_512(self, &scales.0)
    }

    #[inline(always)]
    fn part_signed(self, w: __m512i) -> (__m512i, __mmask64) {
        self.product_weights(w)
    }

    #[inline(always)]
    fn part_dot_unsigned(self, w: __m512i, x: __m512i) -> __m512i {
        cpu! { _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x) }
    }

    #[inline(always)]
    fn part_fma_pair<const PART: usize>(
        self,
        scales: &[f32; 16],
        p: usize,
        ints: __m512i,
        acc: __m512,
    ) -> __m512 {
        self.fma(self.spread_pair(&self.load(scales), p), self.floats(ints), acc)
    }

    #[inline(always)]
    fn part_add_unsigned(self, sum: __m512i, w: __m512i, x: __m512i, scales: __m512i) -> __m512i {
        self.add_products(sum, cpu! { _mm512_maddubs_epi16(w, x) }, scales)
    }

    #[inline(always)]
    fn part_add_signed(
        self,
        sum: __m512i,
        (w, negative): (__m512i, __mmask64),
        x: __m512i,
        scales: __m512i,
    ) -> __m512i {
        let x = cpu! { _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x) };
        self.part_add_unsigned(sum, w, x, scales)
    }

    #[inline(always)]
    fn part_zero(self) -> __m512i {
        self.zero_ints()
    }

    #[inline(always)]
    fn part_zero_floats(self) -> __m512 {
        self.zero()
    }

    #[inline(always)]
    fn part_fma(self, scale: f32, ints: __m512i, acc: __m512) -> __m512 {
        self.fma(self.splat(scale), self.floats(ints), acc)
    }

    #[inline(always)]
    fn add_mins_of_four(self, acc: __m512, d: __m512, mins: u64, sums: &Line<i16, 32>) -> __m512 {
        cpu! {
            let mins = _mm512_broadcast_i32x4(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(mins as i64)));
            let sums = _mm512_madd_epi16(mins, array_512(self, &sums.0));
            _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sums), acc)
        }
    }

    #[inline(always)]
    fn join(self, all: __m512, _: __m512) -> __m512 {
        all
    }
}

crate::matmul::drive::kernels!(
    Avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c",
    8,
    panels
);
