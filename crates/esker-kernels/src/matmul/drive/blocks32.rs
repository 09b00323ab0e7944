//! Products with Q8x32 activations.
//!
//! A row is done in batches of 8 pairs of blocks: their 16 scales are converted and multiplied in one go.

use super::super::kinds::Kind32;
use super::super::simd::Simd;
use super::super::{Rows, each};
use super::prefetch;
use crate::act::{Line, Row32};
use bytemuck::Zeroable;

/// Pairs of blocks in a batch.
const BATCH: usize = 8;

/// Blocks in a batch.
const BLOCKS: usize = 2 * BATCH;

/// All rows for the tokens `token` to `token + N - 1`.
#[inline(always)]
pub(in crate::matmul) fn tile<S: Simd, K: Kind32, const N: usize>(s: S, rows: &Rows<'_>, token: usize) {
    let x: [_; N] = rows.of_tile(token, |row| rows.acts.row_q8x32(row));
    let n_blocks = rows.n_cols / 32;
    let mut r = 0;
    if !K::FOURS && n_blocks > 0 && n_blocks < BLOCKS && BLOCKS.is_multiple_of(n_blocks) {
        r = short_rows::<S, K, N>(s, rows, &x, token, n_blocks);
    }
    for r in r..rows.n_rows {
        let values = row::<S, K, N>(s, rows.row(r), &x);
        for (i, value) in values.into_iter().enumerate() {
            rows.put(token + i, r, value);
        }
    }
}

/// Rows of 1, 2, 4 or 8 blocks: as many at a time as make up a batch. Returns how many have been done.
///
/// A sum that [`row`] forms with lanes of zeros is the same without them: no lane is ever -0, since it starts at +0.
#[inline(always)]
fn short_rows<S: Simd, K: Kind32, const N: usize>(
    s: S,
    rows: &Rows<'_>,
    x: &[Row32<'_>; N],
    token: usize,
    n_blocks: usize,
) -> usize {
    let at_a_time = BLOCKS / n_blocks;
    let mut x_scales = [[0.0; BLOCKS]; N];
    let mut x_sums = [[0.0; BLOCKS]; N];
    for i in 0..N {
        for row in 0..at_a_time {
            let to = row * n_blocks..(row + 1) * n_blocks;
            x_scales[i][to.clone()].copy_from_slice(&x[i].scales[..n_blocks]);
            x_sums[i][to].copy_from_slice(&x[i].scaled_sums[..n_blocks]);
        }
    }
    // Two rows of one block share a pair, so their activations have to be there twice.
    let mut twice = each(*x, |x| (x.codes[0], x.corrections[0]));
    if n_blocks == 1 {
        for (codes, corrections) in &mut twice {
            codes.0.copy_within(..32, 32);
            corrections.0.copy_within(..8, 8);
        }
    }
    let bytes = &rows.bytes[..rows.n_rows / at_a_time * at_a_time * rows.row_bytes];
    let batches = bytemuck::cast_slice::<u8, K::Pair>(bytes).as_chunks::<BATCH>().0;
    let mut r = 0;
    for pairs in batches {
        prefetch(s, pairs);
        let d = K::floats(s, &collect(pairs, K::scales));
        let mut scales = [s.float_scales(d); N];
        let mut mins = [[0.0; BLOCKS]; N];
        for i in 0..N {
            scales[i] = s.float_scales(s.mul(d, s.load(&x_scales[i])));
        }
        if K::MIN {
            let m = K::floats(s, &collect(pairs, K::mins));
            for i in 0..N {
                mins[i] = s.store(s.fma(m, s.load(&x_sums[i]), s.zero()));
            }
        }
        if n_blocks == 1 {
            for (p, pair) in pairs.iter().enumerate() {
                let dots = dots::<S, K, N>(s, pair, |i| (&twice[i].0, &twice[i].1));
                for i in 0..N {
                    let lanes = s.store(s.fma(s.spread_pair(&scales[i], p), dots[i], s.zero()));
                    for (half, lanes) in lanes.as_chunks::<8>().0.iter().enumerate() {
                        let min = if K::MIN { mins[i][2 * p + half] } else { 0.0 };
                        rows.put(token + i, r + half, tree(lanes) + min);
                    }
                }
                r += 2;
            }
            continue;
        }
        let n_pairs = n_blocks / 2;
        for (row, pairs) in pairs.chunks_exact(n_pairs).enumerate() {
            let mut acc = [s.zero(); N];
            for (p, pair) in pairs.iter().enumerate() {
                let dots = dots::<S, K, N>(s, pair, |i| (&x[i].codes[p], &x[i].corrections[p]));
                for i in 0..N {
                    acc[i] = s.fma(s.spread_pair(&scales[i], row * n_pairs + p), dots[i], acc[i]);
                }
            }
            for (i, mut value) in s.hsums(&acc).into_iter().enumerate() {
                if K::MIN {
                    let mins = &mins[i][row * n_blocks..][..n_blocks];
                    value += match *mins {
                        [a, b] => a + b,
                        [a, b, c, d] => (a + c) + (b + d),
                        [a, b, c, d, e, f, g, h] => tree(&[a, b, c, d, e, f, g, h]),
                        _ => unreachable!("2, 4 or 8 blocks"),
                    };
                }
                rows.put(token + i, r, value);
            }
            r += 1;
        }
    }
    r
}

/// The end of [`hsum16`].
#[inline(always)]
fn tree(l: &[f32; 8]) -> f32 {
    ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
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
        let (whole, half) = rest.split_at(rest.len() / size_of::<K::Pair>() * size_of::<K::Pair>());
        let mut last = K::Pair::zeroed();
        bytemuck::bytes_of_mut(&mut last)[..half.len()].copy_from_slice(half);
        let last = (!half.is_empty()).then_some(&last);
        rest_of_row::<S, K, N>(s, bytemuck::cast_slice(whole), last, x, n_full, &mut sums);
    }
    let mut out = s.hsums(&sums.acc);
    if K::MIN {
        for (out, mins) in out.iter_mut().zip(s.hsums(&sums.mins)) {
            *out += mins;
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
        let dots = dots::<S, K, N>(s, pair, |i| codes_of(&x[i], index, p));
        for i in 0..N {
            sums.acc[i] = s.fma(s.spread_pair(&scales[i], p), dots[i], sums.acc[i]);
        }
    }
}

/// Adds the products of fewer pairs than a batch has, with zeros in the place of the others as the definition has it.
/// `last` is one more pair, half of it zeros.
#[inline(always)]
fn rest_of_row<S: Simd, K: Kind32, const N: usize>(
    s: S,
    pairs: &[K::Pair],
    last: Option<&K::Pair>,
    x: &[Row32<'_>; N],
    index: usize,
    sums: &mut Sums<S, N>,
) {
    let mut padded = [K::Pair::zeroed(); BATCH];
    for (to, from) in padded.iter_mut().zip(pairs.iter().chain(last)) {
        *to = *from;
    }
    batch::<S, K, N>(s, &padded, pairs.len() + usize::from(last.is_some()), x, index, sums);
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
        let dots = dots::<S, K, N>(s, pair, |i| codes_of(&x[i], index, p));
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

/// Codes and corrections for pair `p` of batch `index`.
#[inline(always)]
fn codes_of<'a>(x: &Row32<'a>, index: usize, p: usize) -> (&'a Line<i8, 64>, &'a Line<i32, 16>) {
    (&x.codes.as_chunks::<BATCH>().0[index][p], &x.corrections.as_chunks::<BATCH>().0[index][p])
}

/// The integer sums of a pair with the codes (and corrections) of each token, as floats.
#[inline(always)]
fn dots<'a, S: Simd, K: Kind32, const N: usize>(
    s: S,
    pair: &K::Pair,
    x: impl Fn(usize) -> (&'a Line<i8, 64>, &'a Line<i32, 16>),
) -> [S::Floats; N] {
    let w = K::codes(s, pair);
    let mut out = [s.zero(); N];
    if K::SIGNED {
        let w = s.dot_weights(w);
        for i in 0..N {
            let (codes, corrections) = x(i);
            out[i] = s.floats(s.dot_signed(w, codes, corrections));
        }
    } else {
        for i in 0..N {
            out[i] = s.floats(s.dot_unsigned(w, x(i).0));
        }
    }
    out
}
