//! Sums, products and activations, element by element.

use super::math;
use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::{GRAIN_EXP, GRAIN_MOVE, for_elements, for_rows};
use super::vector::{Vector, map, map_two, zip_map};
use crate::Pool;
use crate::disjoint::Disjoint;

/// `y += x`.
///
/// # Panics
/// If the lengths differ.
pub fn add_in_place(pool: &Pool, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len(), "both sides of a sum have one length");
    let isa = current();
    for_elements(pool, y, GRAIN_MOVE, |first, y| add(isa, y, &x[first..][..y.len()]));
}

/// `y[r, :] = fma(w[r], x[r, :], y[r, :])`; `y`, `x`: `[rows, n]`, `w`: `[rows]`.
///
/// # Panics
/// If a length does not fit.
pub fn add_scaled_rows(pool: &Pool, y: &mut [f32], x: &[f32], w: &[f32], n: usize) {
    check_rows(y.len(), n);
    assert_eq!(y.len(), x.len(), "both sides of a sum have one shape");
    assert_eq!(w.len(), y.len() / n, "one weight for each row");
    let isa = current();
    for_rows(pool, y, n, GRAIN_MOVE, |first, y| {
        let rows = y.len() / n;
        add_scaled(isa, y, &x[first * n..][..rows * n], &w[first..][..rows], n);
    });
}

/// `out = silu(gate) * up`, all of one length.
///
/// # Panics
/// If the lengths differ.
pub fn silu_mul(pool: &Pool, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && up.len() == out.len(), "gate, up and output have one length");
    let isa = current();
    for_elements(pool, out, GRAIN_EXP, |first, out| {
        silu_mul_part(isa, &gate[first..][..out.len()], &up[first..][..out.len()], out);
    });
}

/// `y *= sigmoid(gate)`.
///
/// # Panics
/// If the lengths differ.
pub fn sigmoid_mul_in_place(pool: &Pool, y: &mut [f32], gate: &[f32]) {
    assert_eq!(y.len(), gate.len(), "values and gate have one length");
    let isa = current();
    for_elements(pool, y, GRAIN_EXP, |first, y| sigmoid_gate(isa, y, &gate[first..][..y.len()]));
}

/// `y *= silu(gate)`.
///
/// # Panics
/// If the lengths differ.
pub fn silu_mul_in_place(pool: &Pool, y: &mut [f32], gate: &[f32]) {
    assert_eq!(y.len(), gate.len(), "values and gate have one length");
    let isa = current();
    for_elements(pool, y, GRAIN_EXP, |first, y| silu_gate(isa, y, &gate[first..][..y.len()]));
}

/// `x <- silu(scale * x)`.
pub fn silu_scaled_in_place(pool: &Pool, x: &mut [f32], scale: f32) {
    let isa = current();
    for_elements(pool, x, GRAIN_EXP, |_, x| silu_scaled(isa, x, scale));
}

/// `x <- scale_out * sigmoid(scale_in * x)`.
pub fn sigmoid_scaled_in_place(pool: &Pool, x: &mut [f32], scale_in: f32, scale_out: f32) {
    let isa = current();
    for_elements(pool, x, GRAIN_EXP, |_, x| sigmoid_scaled(isa, x, scale_in, scale_out));
}

/// `1 / (1 + e^-x)` of one value, the bits that the row operations give.
pub fn sigmoid(x: f32) -> f32 {
    sigmoid_one(current(), x)
}

/// Splits rows of `2 n` values in halves: `first` gets values `0..n` of each row, `second` the others.
/// For projections whose rows hold query and gate of a head beside each other.
///
/// `x`: `[rows, 2, n]`; `first`, `second`: `[rows, n]`.
///
/// # Panics
/// If a length does not fit.
pub fn split_halves(pool: &Pool, x: &[f32], n: usize, first: &mut [f32], second: &mut [f32]) {
    check_rows(x.len(), 2 * n);
    assert!(first.len() * 2 == x.len() && second.len() == first.len(), "each half has half of the values");
    let rows = x.len() / (2 * n);
    let (first, second) = (Disjoint::new(first), Disjoint::new(second));
    pool.run(rows, (GRAIN_MOVE / (2 * n)).max(1), &|rows| {
        for r in rows {
            let (a, b) = x[r * 2 * n..][..2 * n].split_at(n);
            // SAFETY: each row is in one range of the pool.
            unsafe { first.part(r * n..(r + 1) * n) }.copy_from_slice(a);
            // SAFETY: as above.
            unsafe { second.part(r * n..(r + 1) * n) }.copy_from_slice(b);
        }
    });
}

/// Adds the experts' rows of each token, weighted, in the order of their ranks:
/// `out[t] = fma(w[t, r], expert_out[t, r], out[t])` for `r` = 0, 1, ….
///
/// `expert_out`: `[T * k, n]`, `weights`: `[T * k]`, `out`: `[T, n]`; `k` follows from the lengths.
///
/// # Panics
/// If a length does not fit.
pub fn weighted_sum_rows(pool: &Pool, expert_out: &[f32], weights: &[f32], out: &mut [f32], n: usize) {
    check_rows(out.len(), n);
    let n_tokens = out.len() / n;
    assert_eq!(expert_out.len(), weights.len() * n, "one weight for each row");
    if n_tokens == 0 {
        assert!(weights.is_empty(), "rows without a token");
        return;
    }
    assert!(weights.len().is_multiple_of(n_tokens), "the same number of rows for each token");
    let k = weights.len() / n_tokens;
    let isa = current();
    // Columns are split too: a single decoded token must use all threads.
    const COLUMNS: usize = 256;
    let pieces = n.div_ceil(COLUMNS);
    let out = Disjoint::new(out);
    pool.run(n_tokens * pieces, (GRAIN_MOVE / COLUMNS / (k + 1)).max(1), &|range| {
        for piece in range {
            let (t, column) = (piece / pieces, piece % pieces * COLUMNS);
            let width = COLUMNS.min(n - column);
            // SAFETY: each (token, piece of columns) is in one range of the pool.
            let y = unsafe { out.part(t * n + column..t * n + column + width) };
            let rows = &expert_out[t * k * n..(t + 1) * k * n];
            sum_ranks(isa, y, rows, &weights[t * k..(t + 1) * k], n, column);
        }
    });
}

/// Copies rows to other places: row `i` of `rows` to the row of `out` that is number `i` of all of `to`, one list after
/// the other. Of two that go to the same row the later one stays.
///
/// `rows`: `[at least as many as to has, n]`, `out`: `[.., n]`.
///
/// # Panics
/// If a length does not fit, or a row of `out` does not exist.
pub fn scatter_rows(pool: &Pool, rows: &[f32], to: &[&[u32]], out: &mut [f32], n: usize) {
    check_rows(rows.len(), n);
    check_rows(out.len(), n);
    let n_rows: usize = to.iter().map(|to| to.len()).sum();
    assert!(n_rows * n <= rows.len(), "a row for each place");
    // By columns: whatever `to` says, no two threads write the same.
    const COLUMNS: usize = 128;
    let out = Disjoint::new(out);
    pool.run(n.div_ceil(COLUMNS), (GRAIN_MOVE / COLUMNS / n_rows.max(1)).max(1), &|pieces| {
        let columns = pieces.start * COLUMNS..n.min(pieces.end * COLUMNS);
        for (row, &to) in rows.chunks_exact(n).zip(to.iter().copied().flatten()) {
            let start = to as usize * n;
            // SAFETY: each column is in one range of the pool, and this thread has one part at a time.
            let part = unsafe { out.part(start + columns.start..start + columns.end) };
            part.copy_from_slice(&row[columns.clone()]);
        }
    });
}

multiversion! {
    fn add = add_body(y: &mut [f32], x: &[f32]);
    fn add_scaled = add_scaled_body(y: &mut [f32], x: &[f32], w: &[f32], n: usize);
    fn silu_mul_part = silu_mul_body(gate: &[f32], up: &[f32], out: &mut [f32]);
    fn sigmoid_gate = sigmoid_gate_body(y: &mut [f32], gate: &[f32]);
    fn silu_gate = silu_gate_body(y: &mut [f32], gate: &[f32]);
    fn silu_scaled = silu_scaled_body(x: &mut [f32], scale: f32);
    fn sigmoid_scaled = sigmoid_scaled_body(x: &mut [f32], scale_in: f32, scale_out: f32);
    fn sigmoid_one = sigmoid_one_body(x: f32) -> f32;
    fn sum_ranks = sum_ranks_body(y: &mut [f32], rows: &[f32], w: &[f32], n: usize, column: usize);
}

#[inline(always)]
fn add_body<V: Vector>(y: &mut [f32], x: &[f32]) {
    zip_map::<V>(y, x, V::add);
}

#[inline(always)]
fn add_scaled_body<V: Vector>(y: &mut [f32], x: &[f32], w: &[f32], n: usize) {
    for ((y, x), &w) in y.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(w) {
        let w = V::splat(w);
        zip_map::<V>(y, x, |y, x| w.mul_add(x, y));
    }
}

#[inline(always)]
fn silu_mul_body<V: Vector>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    map_two::<V>(out, gate, up, |gate, up| math::silu(gate).mul(up));
}

#[inline(always)]
fn sigmoid_gate_body<V: Vector>(y: &mut [f32], gate: &[f32]) {
    zip_map::<V>(y, gate, |y, gate| y.mul(math::sigmoid(gate)));
}

#[inline(always)]
fn silu_gate_body<V: Vector>(y: &mut [f32], gate: &[f32]) {
    zip_map::<V>(y, gate, |y, gate| y.mul(math::silu(gate)));
}

#[inline(always)]
fn silu_scaled_body<V: Vector>(x: &mut [f32], scale: f32) {
    let scale = V::splat(scale);
    map::<V>(x, |x| math::silu(x.mul(scale)));
}

#[inline(always)]
fn sigmoid_scaled_body<V: Vector>(x: &mut [f32], scale_in: f32, scale_out: f32) {
    let (scale_in, scale_out) = (V::splat(scale_in), V::splat(scale_out));
    map::<V>(x, |x| math::sigmoid(x.mul(scale_in)).mul(scale_out));
}

#[inline(always)]
fn sigmoid_one_body<V: Vector>(x: f32) -> f32 {
    math::sigmoid(V::splat(x)).first()
}

#[inline(always)]
fn sum_ranks_body<V: Vector>(y: &mut [f32], rows: &[f32], w: &[f32], n: usize, column: usize) {
    for (row, &w) in rows.chunks_exact(n).zip(w) {
        let w = V::splat(w);
        zip_map::<V>(y, &row[column..][..y.len()], |y, x| w.mul_add(x, y));
    }
}
