//! The loops: rows of a kind times tokens of activations, in the operations of an instruction set.
//!
//! A tile is `N` tokens: a block of weights is unpacked once and multiplied with all of them. Tokens are taken 4 (or
//! 2, or 1) at a time, 8 where there are 32 registers, so that a tile's activations stay in the first-level cache while
//! the rows pass. Where there are many tokens, rows are unpacked to memory once for all of them (`panel32`, `panel256`).
//! None of it changes a bit: every (row, token) has accumulators of its own.
// Lane and token indices go over several arrays at once; iterators would hide that.
#![allow(clippy::needless_range_loop)]

mod blocks256;
mod blocks32;
mod float;
#[cfg(target_arch = "x86_64")]
mod panel256;
#[cfg(target_arch = "x86_64")]
mod panel32;

use super::simd::Simd;
pub(super) use blocks32::tile as tile32;
pub(super) use blocks256::tile as tile256;
pub(super) use float::tile as tile_float;
#[cfg(target_arch = "x86_64")]
pub(super) use panel32::panels as panels32;
#[cfg(target_arch = "x86_64")]
pub(super) use panel256::panels as panels256;

/// Tokens that rows unpacked to memory are multiplied with at a time; with fewer it does not pay.
#[cfg(target_arch = "x86_64")]
const TOKENS: usize = 8;

/// How far ahead of the weights in use the next ones are asked for, in bytes. The processor does that too, but only
/// within a page, and slowly where instructions and not memory set the pace.
const AHEAD: usize = 4096;

/// Asks for what lies [`AHEAD`] of `weights`.
#[inline(always)]
fn prefetch<S: Simd, T>(s: S, weights: &T) {
    for line in (0..size_of::<T>()).step_by(64) {
        s.prefetch((&raw const *weights).cast::<u8>().wrapping_add(AHEAD + line));
    }
}

/// Calls `$tile` with the constant `$n` for tiles that cover all tokens from `$first` on.
macro_rules! each_tile {
    ($first:expr, $n_tokens:expr, $largest:tt, |$token:ident, $n:ident| $tile:expr) => {{
        let n_tokens = $n_tokens;
        let mut $token = $first;
        drive::tiles_of_8!($largest, n_tokens, |$token, $n| $tile);
        while n_tokens - $token >= 4 {
            const $n: usize = 4;
            $tile;
            $token += 4;
        }
        if n_tokens - $token >= 2 {
            const $n: usize = 2;
            $tile;
            $token += 2;
        }
        if n_tokens > $token {
            const $n: usize = 1;
            $tile;
        }
    }};
}
pub(super) use each_tile;

/// The part of [`each_tile`] that takes 8 tokens, if that is the largest tile.
macro_rules! tiles_of_8 {
    (8, $n_tokens:ident, |$token:ident, $n:ident| $tile:expr) => {
        while $n_tokens - $token >= 8 {
            const $n: usize = 8;
            $tile;
            $token += 8;
        }
    };
    (4, $n_tokens:ident, |$token:ident, $n:ident| $tile:expr) => {};
}
pub(super) use tiles_of_8;

/// Defines `run(s, rows)` for one instruction set: the loops of `drive`, compiled with its target features; `$largest` is
/// the largest tile of types with Q8x32 activations, `$many` says if many tokens are taken in `panels`, or in `tiles` like
/// few.
macro_rules! kernels {
    ($simd:ty, $features:literal, $largest:tt, $many:ident) => {
        use crate::matmul::kinds::{self, Kind32, Kind256, KindFloat};
        use crate::matmul::{Rows, drive};
        use esker_quant::GgmlType;

        #[target_feature(enable = $features)]
        fn tile32<K: Kind32, const N: usize>(s: $simd, rows: &Rows<'_>, token: usize) {
            drive::tile32::<$simd, K, N>(s, rows, token);
        }

        #[target_feature(enable = $features)]
        fn tile256<K: Kind256, const N: usize>(s: $simd, rows: &Rows<'_>, token: usize) {
            drive::tile256::<$simd, K, N>(s, rows, token);
        }

        drive::panels!($many, $simd, $features);

        #[target_feature(enable = $features)]
        fn tile_float<K: KindFloat, const N: usize>(s: $simd, rows: &Rows<'_>, token: usize) {
            drive::tile_float::<$simd, K, N>(s, rows, token);
        }

        #[target_feature(enable = $features)]
        fn decoded(_: $simd, rows: &Rows<'_>) {
            crate::matmul::decoded::run(rows);
        }

        /// Computes all rows for all tokens.
        pub(in crate::matmul) fn run(s: $simd, rows: &Rows<'_>) {
            macro_rules! each {
                (tile32, $kind:ty) => {{
                    // SAFETY: `s` is the proof that the target features are there.
                    let done = unsafe { panels32::<$kind>(s, rows) };
                    each!(tile32, $kind, done, $largest)
                }};
                (tile256, $kind:ty) => {{
                    // SAFETY: as above.
                    let done = unsafe { panels256::<$kind>(s, rows) };
                    each!(tile256, $kind, done, 4)
                }};
                ($tile:ident, $kind:ty, $first:expr, $n:tt) => {
                    drive::each_tile!($first, rows.n_tokens(), $n, |token, N| {
                        // SAFETY: `s` is the proof that the target features are there.
                        unsafe { $tile::<$kind, N>(s, rows, token) }
                    })
                };
            }
            match rows.ty {
                GgmlType::F32 => each!(tile_float, kinds::F32, 0, 4),
                GgmlType::F16 => each!(tile_float, kinds::F16, 0, 4),
                GgmlType::BF16 => each!(tile_float, kinds::Bf16, 0, 4),
                GgmlType::Q4_0 => each!(tile32, kinds::Q4_0),
                GgmlType::Q4_1 => each!(tile32, kinds::Q4_1),
                GgmlType::Q5_0 => each!(tile32, kinds::Q5_0),
                GgmlType::Q5_1 => each!(tile32, kinds::Q5_1),
                GgmlType::Q8_0 => each!(tile32, kinds::Q8_0),
                GgmlType::Q2_0 => each!(tile32, kinds::Q2_0),
                GgmlType::IQ4_NL => each!(tile32, kinds::Iq4Nl),
                GgmlType::MXFP4 => each!(tile32, kinds::Mxfp4),
                GgmlType::NVFP4 => each!(tile32, kinds::Nvfp4),
                GgmlType::Q2_K => each!(tile256, kinds::Q2K),
                GgmlType::Q3_K => each!(tile256, kinds::Q3K),
                GgmlType::Q4_K => each!(tile256, kinds::Q4K),
                GgmlType::Q5_K => each!(tile256, kinds::Q5K),
                GgmlType::Q6_K => each!(tile256, kinds::Q6K),
                GgmlType::IQ2_XXS => each!(tile256, kinds::Iq2Xxs),
                GgmlType::IQ2_XS => each!(tile256, kinds::Iq2Xs),
                GgmlType::IQ2_S => each!(tile256, kinds::Iq2S),
                GgmlType::IQ3_XXS => each!(tile256, kinds::Iq3Xxs),
                GgmlType::IQ3_S => each!(tile256, kinds::Iq3S),
                GgmlType::IQ4_XS => each!(tile256, kinds::Iq4Xs),
                // SAFETY: `s` is the proof that the target features are there.
                _ => unsafe { decoded(s, rows) },
            }
        }
    };
}
pub(super) use kernels;

/// The part of [`kernels`] for many tokens.
macro_rules! panels {
    (panels, $simd:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        fn panels32<K: Kind32>(s: $simd, rows: &Rows<'_>) -> usize {
            drive::panels32::<$simd, K>(s, rows)
        }

        #[target_feature(enable = $features)]
        fn panels256<K: Kind256>(s: $simd, rows: &Rows<'_>) -> usize {
            drive::panels256::<$simd, K>(s, rows)
        }
    };
    (tiles, $simd:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        fn panels32<K: Kind32>(_: $simd, _: &Rows<'_>) -> usize {
            0
        }

        #[target_feature(enable = $features)]
        fn panels256<K: Kind256>(_: $simd, _: &Rows<'_>) -> usize {
            0
        }
    };
}
pub(super) use panels;
