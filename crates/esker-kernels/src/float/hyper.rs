//! Hyper-connections: several residual streams, mixed into one sublayer input and fed from its output.

use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::{GRAIN_MOVE, for_rows};
use super::vector::{Vector, zip_map};
use crate::Pool;
use crate::lanes::LANES;

/// Mean of the gated streams: `out[t, i] = (1 / hc) Σ_s x[t, s, i] * gate[t, s, i]`, summed in stream order.
///
/// `x` (normed) and `gate` (already through its sigmoid): `[T, hc, n]`; `out`: `[T, n]`.
///
/// # Panics
/// If a length does not fit.
pub fn hc_mix_mean(pool: &Pool, x: &[f32], gate: &[f32], hc: usize, n: usize, out: &mut [f32]) {
    check_rows(x.len(), hc * n);
    assert_eq!(x.len(), gate.len(), "one gate for each value");
    assert_eq!(out.len() * hc, x.len(), "the output has one row for the streams of a token");
    let isa = current();
    for_rows(pool, out, n, GRAIN_MOVE / 4, |first, out| {
        for (r, out) in out.chunks_exact_mut(n).enumerate() {
            let start = (first + r) * hc * n;
            mix(isa, &x[start..][..hc * n], &gate[start..][..hc * n], hc, out);
        }
    });
}

/// Adds a sublayer's output to every stream: `r[t, s, :] = fma(w[t, s], y[t, :], r[t, s, :])`.
///
/// `r`: `[T, hc, n]`, `y`: `[T, n]`, `w`: `[T, hc]`.
///
/// # Panics
/// If a length does not fit.
pub fn hc_combine(pool: &Pool, r: &mut [f32], y: &[f32], w: &[f32], hc: usize, n: usize) {
    check_rows(r.len(), hc * n);
    assert_eq!(y.len() * hc, r.len(), "one row of output for the streams of a token");
    assert_eq!(w.len() * n, r.len(), "one weight for each stream");
    let isa = current();
    for_rows(pool, r, n, GRAIN_MOVE, |first, r| {
        for (i, r) in r.chunks_exact_mut(n).enumerate() {
            let stream = first + i;
            combine(isa, r, &y[stream / hc * n..][..n], w[stream]);
        }
    });
}

multiversion! {
    fn mix = mix_body(x: &[f32], gate: &[f32], hc: usize, out: &mut [f32]);
    fn combine = combine_body(r: &mut [f32], y: &[f32], w: f32);
}

#[inline(always)]
fn mix_body<V: Vector>(x: &[f32], gate: &[f32], hc: usize, out: &mut [f32]) {
    let n = out.len();
    let share = V::splat(1.0 / hc as f32);
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let mut sum = V::zero();
        for s in 0..hc {
            let start = s * n + i * LANES;
            let (x, gate) = (&x[start..][..out.len()], &gate[start..][..out.len()]);
            sum = V::load_part(x).mul_add(V::load_part(gate), sum);
        }
        sum.mul(share).store_part(out);
    }
}

#[inline(always)]
fn combine_body<V: Vector>(r: &mut [f32], y: &[f32], w: f32) {
    let w = V::splat(w);
    zip_map::<V>(r, y, |r, y| w.mul_add(y, r));
}
