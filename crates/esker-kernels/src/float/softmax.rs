//! Softmax of rows, and the log-sum-exp that evaluation needs in double precision.

use super::math;
use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::{GRAIN_EXP, for_rows};
use super::vector::{Vector, map};
use crate::Pool;
use crate::lanes::LANES;

/// `x <- e^(x - max) / Σ e^(x - max)`, row by row; `x`: `[rows, n]`. The sum is canonical (16 lanes).
///
/// A row with a NaN, an infinite maximum or nothing above -inf becomes NaN.
///
/// # Panics
/// If `x` is not whole rows of `n`.
pub fn softmax_rows(pool: &Pool, x: &mut [f32], n: usize) {
    check_rows(x.len(), n);
    let isa = current();
    for_rows(pool, x, n, GRAIN_EXP, |_, x| softmax_part(isa, x, n));
}

/// `ln Σ e^x` of one row in f64, for evaluation: `row[i] - log_sum_exp(row)` is the log-probability of `i`.
///
/// Sixteen lanes of f64 in the canonical order; -inf for an empty row or one of only -inf.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let mut max = f32::NEG_INFINITY;
    for &x in row {
        max = if x > max { x } else { max };
    }
    let max = f64::from(max);
    if row.iter().any(|x| x.is_nan()) {
        return f64::NAN;
    }
    if max.is_infinite() {
        return max;
    }
    let mut lanes = [0.0f64; LANES];
    for (i, &x) in row.iter().enumerate() {
        lanes[i % LANES] += math::exp_f64(f64::from(x) - max);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    max + math::ln_f64(lanes[0])
}

multiversion! {
    fn softmax_part = softmax_body(x: &mut [f32], n: usize);
}

#[inline(always)]
fn softmax_body<V: Vector>(x: &mut [f32], n: usize) {
    for x in x.chunks_exact_mut(n) {
        let max = V::splat(row_max::<V>(x));
        map::<V>(x, |x| math::exp(x.sub(max)));
        let inverse = V::splat(1.0 / row_sum::<V>(x));
        map::<V>(x, |x| x.mul(inverse));
    }
}

/// The largest value; NaN are passed over.
#[inline(always)]
pub(super) fn row_max<V: Vector>(x: &[f32]) -> f32 {
    let (x16, tail) = x.as_chunks::<LANES>();
    let mut max = V::splat(f32::NEG_INFINITY);
    for x in x16 {
        // NaN in `x` fails the comparison, and `max` stays.
        max = V::load(x).max(max);
    }
    if !tail.is_empty() {
        max = V::load_part_or(tail, f32::NEG_INFINITY).max(max);
    }
    max.hmax()
}

/// Canonical sum of a row.
#[inline(always)]
pub(super) fn row_sum<V: Vector>(x: &[f32]) -> f32 {
    let (x16, tail) = x.as_chunks::<LANES>();
    let mut sum = V::zero();
    for x in x16 {
        sum = sum.add(V::load(x));
    }
    if !tail.is_empty() {
        sum = sum.add(V::load_part(tail));
    }
    sum.hsum()
}
