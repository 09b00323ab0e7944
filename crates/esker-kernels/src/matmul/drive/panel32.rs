//! Products of Q8x32 activations of many tokens, as `panel256` has them: rows are unpacked to codes, once, and then
//! multiplied with all tokens. The bits are those of `blocks32`: the same operations in the same order.

use super::super::kinds::Kind32;
use super::super::simd::Panels;
use super::super::{Rows, each};
use super::{TOKENS, prefetch};
use crate::act::{Line, Row32};
use bytemuck::Zeroable;

/// Pairs of blocks in a batch; their 16 scales make up a vector.
const BATCH: usize = 8;

/// Batches that are unpacked at a time, unless a row has more: 8 KiB of codes.
const BATCHES: usize = 16;

/// The longest row, in batches.
const BATCHES_MAX: usize = 32;

/// Unpacked rows, each from a new batch on.
struct Panel {
    codes: [[Line<i8, 64>; BATCH]; BATCHES_MAX],
    /// Scales and minima.
    d: [[f32; 16]; BATCHES_MAX],
    m: [[f32; 16]; BATCHES_MAX],
}

/// Scales of one row times those of each token.
type Products<const N: usize> = [[[f32; 16]; BATCHES_MAX]; N];

/// All rows for the first tokens, as many of them as make up tiles. Returns how many.
#[inline(always)]
pub(in crate::matmul) fn panels<S: Panels, K: Kind32>(s: S, rows: &Rows<'_>) -> usize {
    let (n_pairs, n_tokens) = (rows.n_cols.div_ceil(64), rows.n_tokens());
    let n_batches = n_pairs.div_ceil(BATCH);
    if K::FOURS
        || (K::SIGNED && !S::SIGNED_32)
        || !(1..=BATCHES_MAX).contains(&n_batches)
        || n_tokens < TOKENS
    {
        return 0;
    }
    let at_a_time = (BATCHES / n_batches).max(1);
    let mut panel = Panel {
        codes: [const { [Line([0; 64]); BATCH] }; BATCHES_MAX],
        d: [[0.0; 16]; BATCHES_MAX],
        m: [[0.0; 16]; BATCHES_MAX],
    };
    let mut of_eight: Products<TOKENS> = [[[0.0; 16]; BATCHES_MAX]; TOKENS];
    let mut of_four: Products<4> = [[[0.0; 16]; BATCHES_MAX]; 4];
    let mut done = 0;
    for first_row in (0..rows.n_rows).step_by(at_a_time) {
        let n_rows = at_a_time.min(rows.n_rows - first_row);
        for row in 0..n_rows {
            unpack::<S, K>(s, rows.row(first_row + row), row, n_pairs, &mut panel);
        }
        done = 0;
        while n_tokens - done >= TOKENS {
            tile::<S, K, TOKENS>(s, rows, &panel, n_rows, first_row, done, &mut of_eight);
            done += TOKENS;
        }
        if n_tokens - done >= 4 {
            tile::<S, K, 4>(s, rows, &panel, n_rows, first_row, done, &mut of_four);
            done += 4;
        }
    }
    done
}

/// Row `row` of the panel; half a pair at the end is completed with zeros.
#[inline(always)]
fn unpack<S: Panels, K: Kind32>(s: S, bytes: &[u8], row: usize, n_pairs: usize, panel: &mut Panel) {
    let (whole, half) = bytes.split_at(bytes.len() / size_of::<K::Pair>() * size_of::<K::Pair>());
    let whole = bytemuck::cast_slice::<u8, K::Pair>(whole);
    let mut last = K::Pair::zeroed();
    bytemuck::bytes_of_mut(&mut last)[..half.len()].copy_from_slice(half);
    let n_batches = n_pairs.div_ceil(BATCH);
    for v in 0..n_batches {
        let at = row * n_batches + v;
        let (mut d, mut m) = ([0; 16], [0; 16]);
        for p in 0..BATCH.min(n_pairs - v * BATCH) {
            let pair = whole.get(v * BATCH + p).unwrap_or(&last);
            prefetch(s, pair);
            let w = K::codes(s, pair);
            s.keep(w, &mut panel.codes[at][p]);
            d.as_chunks_mut().0[p] = K::scales(pair);
            if K::MIN {
                m.as_chunks_mut().0[p] = K::mins(pair);
            }
        }
        panel.d[at] = s.store(K::floats(s, &d));
        if K::MIN {
            panel.m[at] = s.store(K::floats(s, &m));
        }
    }
}

/// The unpacked rows, `first_row` and on, for the tokens `token` to `token + N - 1`.
#[inline(always)]
fn tile<S: Panels, K: Kind32, const N: usize>(
    s: S,
    rows: &Rows<'_>,
    panel: &Panel,
    n_rows: usize,
    first_row: usize,
    token: usize,
    products: &mut Products<N>,
) {
    let n_pairs = rows.n_cols.div_ceil(64);
    let n_batches = n_pairs.div_ceil(BATCH);
    let x: [_; N] = rows.of_tile(token, |row| rows.acts.row_q8x32(row));
    for row in 0..n_rows {
        let mut mins = [s.zero(); N];
        for v in 0..n_batches {
            let d = s.load(&panel.d[row * n_batches + v]);
            for i in 0..N {
                products[i][v] = s.store(s.mul(d, s.load(&x[i].scales.as_chunks().0[v])));
            }
            if K::MIN {
                let m = s.load(&panel.m[row * n_batches + v]);
                for i in 0..N {
                    mins[i] = s.fma(m, s.load(&x[i].scaled_sums.as_chunks().0[v]), mins[i]);
                }
            }
        }
        let codes = &panel.codes[row * n_batches..][..n_batches];
        let low = part_sums::<S, K, N, 0>(s, codes, n_pairs, &x, products);
        let high = if S::PARTS == 2 { part_sums::<S, K, N, 1>(s, codes, n_pairs, &x, products) } else { low };
        let mut acc = [s.zero(); N];
        for i in 0..N {
            acc[i] = s.join(low[i], high[i]);
        }
        let mut values = s.hsums(&acc);
        if K::MIN {
            for (value, min) in values.iter_mut().zip(s.hsums(&mins)) {
                *value += min;
            }
        }
        for (i, value) in values.into_iter().enumerate() {
            rows.put(token + i, first_row + row, value);
        }
    }
}

/// Part `PART` of the lanes of a row's sums.
#[inline(always)]
fn part_sums<S: Panels, K: Kind32, const N: usize, const PART: usize>(
    s: S,
    codes: &[[Line<i8, 64>; BATCH]],
    n_pairs: usize,
    x: &[Row32<'_>; N],
    products: &Products<N>,
) -> [S::PartFloats; N] {
    let mut acc = [s.part_zero_floats(); N];
    for (v, codes) in codes.iter().enumerate() {
        let x_codes = each(*x, |x| &x.codes.as_chunks::<BATCH>().0[v]);
        let products = each(products.each_ref(), |p| &p[v]);
        // The first loop has a known length: addresses are found once for all of it.
        if n_pairs - v * BATCH >= BATCH {
            for p in 0..BATCH {
                add_pair::<S, K, N, PART>(s, codes, &x_codes, &products, p, &mut acc);
            }
        } else {
            for p in 0..n_pairs % BATCH {
                add_pair::<S, K, N, PART>(s, codes, &x_codes, &products, p, &mut acc);
            }
        }
    }
    acc
}

/// Adds the products of pair `p` of a batch.
#[inline(always)]
fn add_pair<S: Panels, K: Kind32, const N: usize, const PART: usize>(
    s: S,
    codes: &[Line<i8, 64>; BATCH],
    x_codes: &[&[Line<i8, 64>; BATCH]; N],
    products: &[&[f32; 16]; N],
    p: usize,
    acc: &mut [S::PartFloats; N],
) {
    let w = s.part::<PART>(&codes[p]);
    if K::SIGNED {
        let w = s.part_signed(w);
        for i in 0..N {
            let ints = s.part_dot_signed(w, s.part::<PART>(&x_codes[i][p]));
            acc[i] = s.part_fma_pair::<PART>(products[i], p, ints, acc[i]);
        }
    } else {
        for i in 0..N {
            let ints = s.part_dot_unsigned(w, s.part::<PART>(&x_codes[i][p]));
            acc[i] = s.part_fma_pair::<PART>(products[i], p, ints, acc[i]);
        }
    }
}
