//! Norms of rows, statistics in f32 with the canonical sum of squares.

use std::ops::Range;

use super::multiversion::{current, multiversion};
use super::split::{GRAIN_MOVE, for_rows};
use super::vector::{Vector, dot, map, map_two, zip_map};
use crate::Pool;
use crate::disjoint::Disjoint;

/// RMS norm: `out = x / sqrt(mean(x²) + eps) * gamma`, row by row.
///
/// `x`, `out`: `[rows, n]`. `gamma`: `[g, n]`; row `r` uses gamma row `r % g`, so one gamma serves all rows and a
/// grouped norm passes one per group. Source: arXiv:1910.07467.
///
/// # Panics
/// If a length does not fit.
pub fn rms_norm(pool: &Pool, x: &[f32], gamma: &[f32], n: usize, eps: f32, out: &mut [f32]) {
    check_rows(x.len(), n);
    check_gamma(gamma.len(), n);
    assert_eq!(out.len(), x.len(), "a norm's output has the shape of its input");
    let isa = current();
    for_rows(pool, out, n, GRAIN_MOVE / 2, |first, out| {
        let x = &x[first * n..][..out.len()];
        rms_rows(isa, x, gamma, first, n, eps, out);
    });
}

/// [`rms_norm`] with `x` as its own output.
///
/// # Panics
/// If a length does not fit.
pub fn rms_norm_in_place(pool: &Pool, x: &mut [f32], gamma: &[f32], n: usize, eps: f32) {
    check_rows(x.len(), n);
    check_gamma(gamma.len(), n);
    let isa = current();
    for_rows(pool, x, n, GRAIN_MOVE / 2, |first, x| rms_rows_in_place(isa, x, gamma, first, n, eps));
}

/// L2 norm: `x <- x / sqrt(Σx² + eps) * scale`, row by row; `x`: `[rows, n]`. The epsilon is added to the sum.
///
/// # Panics
/// If a length does not fit.
pub fn l2_norm_in_place(pool: &Pool, x: &mut [f32], n: usize, eps: f32, scale: f32) {
    check_rows(x.len(), n);
    let isa = current();
    for_rows(pool, x, n, GRAIN_MOVE / 2, |_, x| l2_rows(isa, x, n, eps, scale));
}

/// [`l2_norm_in_place`] on some columns of wider rows: in each row of `stride` values, `columns` holds rows of `n`.
/// For the queries and keys inside the convolution output of a delta-net layer.
///
/// # Panics
/// If a length does not fit.
pub fn l2_norm_columns_in_place(
    pool: &Pool,
    x: &mut [f32],
    stride: usize,
    columns: Range<usize>,
    n: usize,
    eps: f32,
    scale: f32,
) {
    check_rows(x.len(), stride);
    assert!(columns.end <= stride, "columns must lie inside a row");
    check_rows(columns.len(), n);
    let isa = current();
    let n_tokens = x.len() / stride;
    let groups = columns.len() / n;
    let x = Disjoint::new(x);
    pool.run(n_tokens * groups, (GRAIN_MOVE / 2 / n).max(1), &|rows| {
        for row in rows {
            let start = row / groups * stride + columns.start + row % groups * n;
            // SAFETY: each row number is in one range, and rows do not overlap.
            l2_rows(isa, unsafe { x.part(start..start + n) }, n, eps, scale);
        }
    });
}

/// Canonical dot product of each row of `a` with the same row of `b`.
///
/// `a`, `b`: `[rows, n]`; `out`: `[rows]`.
///
/// # Panics
/// If a length does not fit.
pub fn row_dots(pool: &Pool, a: &[f32], b: &[f32], n: usize, out: &mut [f32]) {
    check_rows(a.len(), n);
    assert_eq!(a.len(), b.len(), "both sides of the dot products have one shape");
    assert_eq!(out.len(), a.len() / n, "one dot product for each row");
    let isa = current();
    for_rows(pool, out, 1, (GRAIN_MOVE / 2 / n).max(1), |first, out| {
        dot_rows(isa, &a[first * n..][..out.len() * n], &b[first * n..][..out.len() * n], n, out);
    });
}

pub(super) fn check_rows(len: usize, n: usize) {
    assert!(n > 0 && len.is_multiple_of(n), "{len} values are not whole rows of {n}");
}

fn check_gamma(len: usize, n: usize) {
    assert!(len > 0 && len.is_multiple_of(n), "gamma has {len} values, not whole rows of {n}");
}

multiversion! {
    fn rms_rows = rms_rows_body(x: &[f32], gamma: &[f32], first: usize, n: usize, eps: f32, out: &mut [f32]);
    fn rms_rows_in_place = rms_rows_in_place_body(x: &mut [f32], gamma: &[f32], first: usize, n: usize, eps: f32);
    fn l2_rows = l2_rows_body(x: &mut [f32], n: usize, eps: f32, scale: f32);
    fn dot_rows = dot_rows_body(a: &[f32], b: &[f32], n: usize, out: &mut [f32]);
}

#[inline(always)]
fn inverse_rms<V: Vector>(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot::<V>(x, x) / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn rms_rows_body<V: Vector>(x: &[f32], gamma: &[f32], first: usize, n: usize, eps: f32, out: &mut [f32]) {
    for (r, (x, out)) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)).enumerate() {
        let gamma = &gamma[(first + r) * n % gamma.len()..][..n];
        let inverse = V::splat(inverse_rms::<V>(x, eps));
        map_two::<V>(out, x, gamma, |x, gamma| x.mul(inverse).mul(gamma));
    }
}

#[inline(always)]
fn rms_rows_in_place_body<V: Vector>(x: &mut [f32], gamma: &[f32], first: usize, n: usize, eps: f32) {
    for (r, x) in x.chunks_exact_mut(n).enumerate() {
        let gamma = &gamma[(first + r) * n % gamma.len()..][..n];
        let inverse = V::splat(inverse_rms::<V>(x, eps));
        zip_map::<V>(x, gamma, |x, gamma| x.mul(inverse).mul(gamma));
    }
}

#[inline(always)]
fn l2_rows_body<V: Vector>(x: &mut [f32], n: usize, eps: f32, scale: f32) {
    for x in x.chunks_exact_mut(n) {
        let factor = V::splat(scale / (dot::<V>(x, x) + eps).sqrt());
        map::<V>(x, |x| x.mul(factor));
    }
}

#[inline(always)]
fn dot_rows_body<V: Vector>(a: &[f32], b: &[f32], n: usize, out: &mut [f32]) {
    for ((a, b), out) in a.chunks_exact(n).zip(b.chunks_exact(n)).zip(out) {
        *out = dot::<V>(a, b);
    }
}
