//! Products with Q8x32 activations.
//!
//! A row is done in batches of 8 pairs of blocks: their 16 scales are converted and multiplied in one go.

use super::super::Rows;
use super::super::kinds::Kind32;
use super::super::simd::Simd;
use super::prefetch;
use crate::act::Row32;
use crate::lanes::hsum16;
use bytemuck::Zeroable;

/// Pairs of blocks in a batch.
const BATCH: usize = 8;

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
    let n_full = row.len() / size_of::<[K::Pair; BATCH]>();
    let (full, rest) = row.split_at(n_full * size_of::<[K::Pair; BATCH]>());
    let mut sums = Sums::<S, N> { acc: [s.zero(); N], mins: [s.zero(); N] };
    for (index, pairs) in bytemuck::cast_slice::<u8, K::Pair>(full).as_chunks::<BATCH>().0.iter().enumerate()
    {
        prefetch(s, pairs);
        batch::<S, K, N>(s, pairs, BATCH, x, index, &mut sums);
    }
    if !rest.is_empty() {
        // Padded with blocks of zeros, as the definition has it; this also completes the pair of an odd last block.
        let mut pairs = [K::Pair::zeroed(); BATCH];
        bytemuck::cast_slice_mut(&mut pairs)[..rest.len()].copy_from_slice(rest);
        let n_pairs = rest.len().div_ceil(size_of::<K::Pair>());
        batch::<S, K, N>(s, &pairs, n_pairs, x, n_full, &mut sums);
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

/// Adds the products of the first `n_pairs` pairs; the others are zero.
#[inline(always)]
fn batch<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pairs: &[K::Pair; BATCH],
    n_pairs: usize,
    x: &[Row32<'_>; N],
    index: usize,
    sums: &mut Sums<S, N>,
) {
    if K::FOURS {
        return batch_of_fours::<S, K, N>(s, pairs, n_pairs, x, index, sums);
    }
    let d = K::floats(s, &collect(pairs, K::scales));
    let mut scales = [s.float_scales(d); N];
    for i in 0..N {
        scales[i] = s.float_scales(s.mul(d, s.load(&x[i].scales.as_chunks().0[index])));
    }
    if K::MIN {
        let m = K::floats(s, &collect(pairs, K::mins));
        for i in 0..N {
            let x_sums = s.load(&x[i].scaled_sums.as_chunks().0[index]);
            sums.mins[i] = s.fma(m, x_sums, sums.mins[i]);
        }
    }
    for (p, pair) in pairs[..n_pairs].iter().enumerate() {
        let dots = dots::<S, K, N>(s, pair, x, index, p);
        for i in 0..N {
            sums.acc[i] = s.fma(s.spread_pair(&scales[i], p), dots[i], sums.acc[i]);
        }
    }
}

/// As [`batch`] for a type with a scale for each 16 weights.
#[inline(always)]
fn batch_of_fours<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pairs: &[K::Pair; BATCH],
    n_pairs: usize,
    x: &[Row32<'_>; N],
    index: usize,
    sums: &mut Sums<S, N>,
) {
    let halves = [pairs.as_chunks::<4>().0[0], pairs.as_chunks::<4>().0[1]];
    let d = halves
        .map(|pairs| bytemuck::cast::<[[u16; 4]; 4], [u16; 16]>(pairs.map(|pair| K::four_scales(&pair))));
    let d = [s.float_scales(K::floats(s, &d[0])), s.float_scales(K::floats(s, &d[1]))];
    let mut x_scales = [d[0]; N];
    for i in 0..N {
        x_scales[i] = s.float_scales(s.load(&x[i].scales.as_chunks().0[index]));
    }
    for (p, pair) in pairs[..n_pairs].iter().enumerate() {
        let dots = dots::<S, K, N>(s, pair, x, index, p);
        let d = s.spread_four(&d[p / 4], p % 4);
        for i in 0..N {
            sums.acc[i] = s.fma(s.mul(d, s.spread_pair(&x_scales[i], p)), dots[i], sums.acc[i]);
        }
    }
}

/// Two numbers of each pair.
#[inline(always)]
fn collect<P>(pairs: &[P; BATCH], of: impl Fn(&P) -> [u16; 2]) -> [u16; 16] {
    let mut out = [0u16; 16];
    for (out, pair) in out.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
        *out = of(pair);
    }
    out
}

/// The integer sums of pair `p` of batch `index` with each token, as floats.
#[inline(always)]
fn dots<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pair: &K::Pair,
    x: &[Row32<'_>; N],
    index: usize,
    p: usize,
) -> [S::Floats; N] {
    let w = K::codes(s, pair);
    let mut out = [s.zero(); N];
    if K::SIGNED {
        let w = s.dot_weights(w);
        for i in 0..N {
            let codes = &x[i].codes.as_chunks::<BATCH>().0[index][p];
            let corrections = &x[i].corrections.as_chunks::<BATCH>().0[index][p];
            out[i] = s.floats(s.dot_signed(w, codes, corrections));
        }
    } else {
        for i in 0..N {
            out[i] = s.floats(s.dot_unsigned(w, &x[i].codes.as_chunks::<BATCH>().0[index][p]));
        }
    }
    out
}
