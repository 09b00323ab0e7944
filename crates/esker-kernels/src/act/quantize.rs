//! The rounding itself: one body per format, compiled once per instruction set.
//!
//! Nothing here depends on the order of operations (maxima, integer sums, elementwise float operations), so every
//! instance gives the same bits.

use super::Line;
use crate::isa::Isa;
use esker_quant::blocks::{f16_to_f32, f32_to_f16};

pub(super) struct Row32Mut<'a> {
    pub(super) codes: &'a mut [Line<i8, 64>],
    pub(super) corrections: &'a mut [Line<i32, 16>],
    pub(super) scales: &'a mut [f32],
    pub(super) scaled_sums: &'a mut [f32],
}

pub(super) struct Row256Mut<'a> {
    pub(super) codes: &'a mut [Line<i8, 64>],
    pub(super) scales: &'a mut [f32],
    pub(super) sums16: &'a mut [i16],
    pub(super) sums32: &'a mut [i16],
}

/// Defines `$name(isa, x, row)` as `$body(x, row)` compiled for `isa`.
macro_rules! per_isa {
    ($(#[$doc:meta])* $name:ident = $body:ident($row:ident)) => {
        $(#[$doc])*
        pub(super) fn $name(isa: Isa, x: &[f32], row: $row<'_>) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2(x: &[f32], row: $row<'_>) {
                $body(x, row)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512(x: &[f32], row: $row<'_>) {
                $body(x, row)
            }
            assert!(isa.is_available());
            match isa {
                // SAFETY: the instruction set is available, asserted above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::AvxVnni => unsafe { avx2(x, row) },
                // SAFETY: the instruction set is available, asserted above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => unsafe { avx512(x, row) },
                _ => $body(x, row),
            }
        }
    };
}

per_isa! {
    /// Rounds one row to Q8x32 and pads it with zeros to the length of the arrays.
    q8x32 = q8x32_row(Row32Mut)
}
per_isa! {
    /// Rounds one row to Q8x256 and pads its scales.
    q8x256 = q8x256_row(Row256Mut)
}

#[inline(always)]
fn q8x32_row(x: &[f32], row: Row32Mut<'_>) {
    let codes = row.codes.as_flattened_codes();
    let (blocks, rest) = x.as_chunks::<32>();
    debug_assert!(rest.is_empty());
    let (code_blocks, _) = codes.as_chunks_mut::<32>();
    for (b, x) in blocks.iter().enumerate() {
        let amax = largest_magnitude(x);
        let scale = f16_to_f32(f32_to_f16(amax / 127.0));
        let inverse = if amax != 0.0 { 127.0 / amax } else { 0.0 };
        let q = &mut code_blocks[b];
        round_codes(x, inverse, q);
        row.scales[b] = scale;
        row.scaled_sums[b] = scale * sum_codes(q) as f32;
    }
    for q in &mut code_blocks[blocks.len()..] {
        *q = [0; 32];
    }
    row.scales[blocks.len()..].fill(0.0);
    row.scaled_sums[blocks.len()..].fill(0.0);
    for (line, corrections) in row.codes.iter().zip(row.corrections) {
        for (q, correction) in line.0.as_chunks::<4>().0.iter().zip(&mut corrections.0) {
            *correction = -128 * sum_codes(q);
        }
    }
}

#[inline(always)]
fn q8x256_row(x: &[f32], row: Row256Mut<'_>) {
    let codes = row.codes.as_flattened_codes();
    let (blocks, rest) = x.as_chunks::<256>();
    debug_assert!(rest.is_empty());
    let (code_blocks, _) = codes.as_chunks_mut::<256>();
    for (b, (x, q)) in blocks.iter().zip(code_blocks).enumerate() {
        let amax = largest_magnitude(x);
        if amax == 0.0 {
            *q = [0; 256];
            row.scales[b] = 0.0;
        } else {
            // The first of the largest, should both signs occur.
            let first = x.iter().position(|v| v.to_bits() & MAGNITUDE == amax.to_bits());
            let max = x[first.expect("the maximum is an element")];
            let inverse = -127.0 / max;
            round_codes(x, inverse, q);
            row.scales[b] = 1.0 / inverse;
        }
    }
    row.scales[blocks.len()..].fill(0.0);
    let codes: &[i8] = codes;
    for (q, sum) in codes.as_chunks::<16>().0.iter().zip(row.sums16) {
        *sum = sum_codes(q) as i16;
    }
    for (q, sum) in codes.as_chunks::<32>().0.iter().zip(row.sums32) {
        *sum = sum_codes(q) as i16;
    }
}

const MAGNITUDE: u32 = 0x7fff_ffff;

/// Compared as integers, where infinity and then NaN are largest: no order of comparisons hides a NaN.
#[inline(always)]
fn largest_magnitude<const N: usize>(x: &[f32; N]) -> f32 {
    let mut max = 0;
    for v in x {
        max = max.max(v.to_bits() & MAGNITUDE);
    }
    f32::from_bits(max)
}

/// `round(x * inverse)`, ties to even, held to -127..=127 (only a tiny scale, whose inverse overflows, needs that).
#[inline(always)]
fn round_codes<const N: usize>(x: &[f32; N], inverse: f32, q: &mut [i8; N]) {
    for (q, x) in q.iter_mut().zip(x) {
        let value = (x * inverse).clamp(-127.0, 127.0);
        // 1.5 * 2^23 has its last place at 1: the sum is rounded to an integer, in the low bits of the mantissa.
        *q = (value + 12_582_912.0).to_bits() as i8;
    }
}

#[inline(always)]
fn sum_codes(q: &[i8]) -> i32 {
    let mut sum = 0;
    for &q in q {
        sum += i32::from(q);
    }
    sum
}

trait Flatten {
    fn as_flattened_codes(&mut self) -> &mut [i8];
}

impl Flatten for [Line<i8, 64>] {
    #[inline(always)]
    fn as_flattened_codes(&mut self) -> &mut [i8] {
        // SAFETY: `Line<i8, 64>` is `repr(C)` with size and alignment 64, so a slice of them is as many times 64 bytes.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len() * 64) }
    }
}
