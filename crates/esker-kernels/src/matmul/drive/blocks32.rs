//! Products with Q8x32 activations.

use super::super::Rows;
use super::super::kinds::Kind32;
use super::super::simd::Simd;
use crate::act::{Line, Row32};
use crate::lanes::hsum16;
use bytemuck::Zeroable;

/// All rows for the tokens `token` to `token + N - 1`.
#[inline(always)]
pub(in crate::matmul) fn tile<S: Simd, K: Kind32, const N: usize>(s: S, rows: &Rows<'_>, token: usize) {
    let mut x = [rows.acts.row_q8x32(rows.act_row(token)); N];
    for (i, x) in x.iter_mut().enumerate().skip(1) {
        *x = rows.acts.row_q8x32(rows.act_row(token + i));
    }
    for r in 0..rows.n_rows {
        let values = row::<S, K, N>(s, rows.row(r), &x);
        for (i, value) in values.into_iter().enumerate() {
            rows.put(token + i, r, value);
        }
    }
}

/// The state of `N` dot products.
struct Sums<S: Simd, const N: usize> {
    acc: [S::Floats; N],
    mins: [S::Floats; N],
}

#[inline(always)]
fn row<S: Simd, K: Kind32, const N: usize>(s: S, row: &[u8], x: &[Row32<'_>; N]) -> [f32; N] {
    let n_pairs = row.len() / size_of::<K::Pair>();
    let (pairs, half) = row.split_at(n_pairs * size_of::<K::Pair>());
    let pairs: &[K::Pair] = bytemuck::cast_slice(pairs);
    let mut sums = Sums::<S, N> { acc: [s.zero(); N], mins: [s.zero(); N] };
    if K::FOURS {
        for (first, pairs) in pairs.chunks(4).enumerate() {
            fours::<S, K, N>(s, pairs, x, first, &mut sums);
        }
    } else {
        let (full, rest) = pairs.as_chunks::<8>();
        for (first, pairs) in full.iter().enumerate() {
            batch::<S, K, N>(s, pairs, 16, x, first, &mut sums);
        }
        if !rest.is_empty() {
            batch::<S, K, N>(s, rest, 2 * rest.len(), x, full.len(), &mut sums);
        }
        if !half.is_empty() {
            // A lone block: the other half of its pair is zero, and its lanes are not touched.
            let mut pair = K::Pair::zeroed();
            bytemuck::bytes_of_mut(&mut pair)[..K::BLOCK_BYTES].copy_from_slice(half);
            lone::<S, K, N>(s, &pair, x, n_pairs, &mut sums);
        }
    }
    let mut out = [0.0; N];
    for i in 0..N {
        out[i] = hsum16(&s.store(sums.acc[i]));
        if K::MIN {
            out[i] += hsum16(&s.store(sums.mins[i]));
        }
    }
    out
}

/// Adds a pair's products: one multiplication of scales is left to the caller.
#[inline(always)]
fn dots<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pair: &K::Pair,
    codes: [&Line<i8, 64>; N],
    corrections: [&Line<i32, 16>; N],
) -> [S::Floats; N] {
    let w = K::codes(s, pair);
    let mut out = [s.zero(); N];
    if K::SIGNED {
        let w = s.dot_weights(w);
        for i in 0..N {
            out[i] = s.floats(s.dot_signed(w, codes[i], corrections[i]));
        }
    } else {
        for i in 0..N {
            out[i] = s.floats(s.dot_unsigned(w, codes[i]));
        }
    }
    out
}

/// Up to 8 pairs, whose scales are converted and multiplied together; `n_blocks` of 32 are there.
#[inline(always)]
fn batch<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pairs: &[K::Pair],
    n_blocks: usize,
    x: &[Row32<'_>; N],
    index: usize,
    sums: &mut Sums<S, N>,
) {
    let d = K::scales(s, pairs);
    let m = K::mins(s, pairs);
    let mut scales = [s.float_scales(s.zero()); N];
    for i in 0..N {
        scales[i] = s.float_scales(s.mul(d, s.load(&x[i].scales.as_chunks().0[index])));
        if K::MIN {
            let x_sums = s.load(&x[i].scaled_sums.as_chunks().0[index]);
            sums.mins[i] = s.fma_first(n_blocks, m, x_sums, sums.mins[i]);
        }
    }
    let x_codes = x.map(|x| &x.codes.as_chunks::<8>().0[index]);
    let x_corrections = x.map(|x| &x.corrections.as_chunks::<8>().0[index]);
    for (p, pair) in pairs.iter().enumerate() {
        let dots = dots::<S, K, N>(s, pair, x_codes.map(|x| &x[p]), x_corrections.map(|x| &x[p]));
        for i in 0..N {
            sums.acc[i] = s.fma(s.spread_pair(&scales[i], p), dots[i], sums.acc[i]);
        }
    }
}

/// The last block of an odd number.
#[inline(always)]
fn lone<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pair: &K::Pair,
    x: &[Row32<'_>; N],
    p: usize,
    sums: &mut Sums<S, N>,
) {
    let d = K::scales(s, std::slice::from_ref(pair));
    let m = K::mins(s, std::slice::from_ref(pair));
    let dots = dots::<S, K, N>(s, pair, x.map(|x| &x.codes[p]), x.map(|x| &x.corrections[p]));
    for i in 0..N {
        let scale = s.mul(d, s.splat(x[i].scales[2 * p]));
        let scale = s.spread_pair(&s.float_scales(scale), 0);
        sums.acc[i] = s.fma_first(8, scale, dots[i], sums.acc[i]);
        if K::MIN {
            // Block `2 p` belongs to lane `2 p % 16`: as if at the head of a batch, so move it there.
            let lane = 2 * p % 16;
            let (mut mins, m) = (s.store(sums.mins[i]), s.store(m));
            mins[lane] = m[0].mul_add(x[i].scaled_sums[2 * p], mins[lane]);
            sums.mins[i] = s.load(&mins);
        }
    }
}

/// As [`batch`] with a scale for each 16 weights: up to 4 pairs have 16 of them.
#[inline(always)]
fn fours<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pairs: &[K::Pair],
    x: &[Row32<'_>; N],
    index: usize,
    sums: &mut Sums<S, N>,
) {
    let d = s.float_scales(K::scales(s, pairs));
    for (p, pair) in pairs.iter().enumerate() {
        let at = 4 * index + p;
        let dots = dots::<S, K, N>(s, pair, x.map(|x| &x.codes[at]), x.map(|x| &x.corrections[at]));
        let d = s.spread_four(&d, p);
        for i in 0..N {
            let x_scales = s.float_scales(s.load(&x[i].scales.as_chunks().0[at / 8]));
            let scale = s.mul(d, s.spread_pair(&x_scales, at % 8));
            sums.acc[i] = s.fma(scale, dots[i], sums.acc[i]);
        }
    }
}
