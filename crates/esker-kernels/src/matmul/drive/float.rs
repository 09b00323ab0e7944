//! Products of float weights with f32 activations: some rows at a time, so that four or more chains of additions
//! overlap.

use super::super::kinds::KindFloat;
use super::super::simd::Simd;
use super::super::{Rows, each};
use crate::lanes::hsum16;
use bytemuck::Zeroable;

/// All rows for the tokens `token` to `token + N - 1`.
#[inline(always)]
pub(in crate::matmul) fn tile<S: Simd, K: KindFloat, const N: usize>(s: S, rows: &Rows<'_>, token: usize) {
    let x: [_; N] = rows.of_tile(token, |row| rows.acts.row_f32(row));
    let mut r = 0;
    // As many rows at a time as there are registers for.
    if N == 1 || S::VECTORS >= 32 {
        while rows.n_rows - r >= 4 {
            some_rows::<S, K, N, 4>(s, rows, &x, token, r);
            r += 4;
        }
    } else if N == 2 {
        while rows.n_rows - r >= 2 {
            some_rows::<S, K, N, 2>(s, rows, &x, token, r);
            r += 2;
        }
    }
    while r < rows.n_rows {
        some_rows::<S, K, N, 1>(s, rows, &x, token, r);
        r += 1;
    }
}

/// Rows `r` to `r + R - 1`.
#[inline(always)]
fn some_rows<S: Simd, K: KindFloat, const N: usize, const R: usize>(
    s: S,
    rows: &Rows<'_>,
    x: &[&[f32]; N],
    token: usize,
    r: usize,
) {
    let mut w: [&[K::Element]; R] = [&[]; R];
    for (i, w) in w.iter_mut().enumerate() {
        *w = bytemuck::cast_slice(rows.row(r + i));
    }
    let n_full = rows.n_cols / 16;
    let n_tail = rows.n_cols % 16;
    let mut acc = [[s.zero(); N]; R];
    {
        // Lengths all equal, so that one check holds for every row and token.
        let w = each(w, |w| &w.as_chunks::<16>().0[..n_full]);
        let x = each(*x, |x| &x.as_chunks::<16>().0[..n_full]);
        for c in 0..n_full {
            let mut x16 = [s.zero(); N];
            for j in 0..N {
                x16[j] = s.load(&x[j][c]);
            }
            for i in 0..R {
                let w = K::load(s, &w[i][c]);
                for j in 0..N {
                    acc[i][j] = s.fma(w, x16[j], acc[i][j]);
                }
            }
        }
    }
    if n_tail > 0 {
        for i in 0..R {
            let mut padded = [K::Element::zeroed(); 16];
            padded[..n_tail].copy_from_slice(&w[i][n_full * 16..]);
            let w = K::load(s, &padded);
            for j in 0..N {
                let mut padded = [0.0; 16];
                padded[..n_tail].copy_from_slice(&x[j][n_full * 16..]);
                acc[i][j] = s.fma_first(n_tail, w, s.load(&padded), acc[i][j]);
            }
        }
    }
    for i in 0..R {
        for j in 0..N {
            rows.put(token + j, r + i, hsum16(&s.store(acc[i][j])));
        }
    }
}
