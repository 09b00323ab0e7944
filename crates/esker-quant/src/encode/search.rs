//! Least weighted squared error for one group: `x ≈ scale * level`, or `x ≈ scale * code + offset`.
//!
//! For given codes the best scale (and offset) is a linear least-squares solution; for a given scale the best
//! code is the nearest. Each fit tries a row of starting scales around the one that just spans the largest
//! value, solves for the codes that these give, keeps the best and alternates the two steps from there.
//!
//! Sums are in `f64`: squares of `f32` neither overflow nor underflow there, so no input needs rescaling.

use super::round::small_half_even;

/// Below this magnitude a group is zero: no half-precision scale reaches it, and inverses stay finite above
/// it.
const NEGLIGIBLE: f32 = 1e-30;

/// Rounds of (nearest codes, least squares) after the best start.
const REFINEMENTS: usize = 2;

/// Starting scales of an affine fit; each with three offsets.
const AFFINE_STARTS: usize = 9;

/// Weights of the squared errors, positive.
pub(super) struct Weights<const N: usize>(pub [f32; N]);

impl<const N: usize> Weights<N> {
    /// The importance, raised to a thousandth of its mean, so that a column that calibration never saw still
    /// gets a sensible scale. Without importance (or if it is all zero), ones.
    pub(super) fn of(importance: Option<&[f32; N]>) -> Weights<N> {
        let Some(importance) = importance else { return Weights([1.0; N]) };
        let mean = importance.iter().map(|&w| f64::from(w)).sum::<f64>() / N as f64;
        if mean == 0.0 {
            return Weights([1.0; N]);
        }
        // Relative to the mean: tiny importance must not underflow in the sums.
        Weights(importance.map(|w| (f64::from(w) / mean).max(1e-3) as f32))
    }
}

/// The levels a code can stand for.
pub(super) trait Levels {
    /// Inverse scales to start from, as multiples of 1 / largest magnitude; of either sign.
    fn starts(&self) -> impl Iterator<Item = f32>;
    /// The level nearest to `value`.
    fn nearest(&self, value: f32) -> f32;
}

/// The integers `low..=high`.
#[derive(Clone, Copy)]
pub(super) struct Uniform {
    pub low: f32,
    pub high: f32,
}

impl Uniform {
    pub(super) fn nearest(self, value: f32) -> f32 {
        small_half_even(value.clamp(self.low, self.high))
    }
}

impl Levels for Uniform {
    /// From 1 below to 1 above the bound of larger magnitude (more steps where there are few levels), for
    /// both signs.
    fn starts(&self) -> impl Iterator<Item = f32> {
        let bound = self.high.max(-self.low);
        let steps = if bound < 8.0 { 20 } else { 12 };
        (0..=steps).flat_map(move |k| {
            let start = bound - 1.0 + 2.0 * k as f32 / steps as f32;
            // A start of 0 (bound 1) gives no codes; half a level more does.
            let start = start.max(0.5);
            [start, -start]
        })
    }

    fn nearest(&self, value: f32) -> f32 {
        (*self).nearest(value)
    }
}

/// The scale (of either sign) for which `x ≈ scale * nearest level` has the least error. 0 if `x` is
/// negligible.
pub(super) fn fit_scale<const N: usize>(x: &[f32; N], weights: &[f32; N], levels: &impl Levels) -> f32 {
    let largest = x.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
    if largest < NEGLIGIBLE {
        return 0.0;
    }
    // With l the levels, the least error is Σwx² - gain, at scale Σwxl / Σwl².
    let solve = |inverse: f32| {
        let level = x.map(|v| levels.nearest(v * inverse));
        let xl = sum::<N>(|j| f64::from(weights[j] * level[j]) * f64::from(x[j]));
        let ll = sum::<N>(|j| f64::from(weights[j] * level[j]) * f64::from(level[j]));
        if ll == 0.0 { (0.0, 0.0) } else { (xl * xl / ll, (xl / ll) as f32) }
    };
    let mut best = (0.0, 0.0);
    for start in levels.starts() {
        keep_larger_gain(&mut best, solve(start / largest));
    }
    for _ in 0..REFINEMENTS {
        if best.1.abs() > NEGLIGIBLE {
            let refined = solve(1.0 / best.1);
            keep_larger_gain(&mut best, refined);
        }
    }
    best.1
}

/// `Σ term(j)` over `0..N`, in four interleaved parts, so that the additions need not wait for each other.
pub(super) fn sum<const N: usize>(term: impl Fn(usize) -> f64) -> f64 {
    const { assert!(N.is_multiple_of(4)) };
    let mut parts = [0.0; 4];
    for first in (0..N).step_by(4) {
        for (k, part) in parts.iter_mut().enumerate() {
            *part += term(first + k);
        }
    }
    (parts[0] + parts[2]) + (parts[1] + parts[3])
}

fn keep_larger_gain<T>(best: &mut (f64, T), new: (f64, T)) {
    if new.0 > best.0 {
        *best = new;
    }
}

/// `x ≈ scale * code + offset`; `scale` is not negative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Affine {
    pub scale: f32,
    pub offset: f32,
}

/// Scale and offset for which `x ≈ scale * code + offset`, codes `0..=n`, has the least error;
/// `offset <= offset_max`.
pub(super) fn fit_affine<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    n: f32,
    offset_max: f32,
) -> Affine {
    let low = x.iter().fold(offset_max, |low, v| low.min(*v));
    let high = x.iter().fold(f32::NEG_INFINITY, |high, v| high.max(*v));
    let range = high - low;
    if range < NEGLIGIBLE {
        return Affine { scale: 0.0, offset: low };
    }
    let codes = Uniform { low: 0.0, high: n };
    let w_sum = sum::<N>(|j| f64::from(weights[j]));
    let x_sum = sum::<N>(|j| f64::from(weights[j]) * f64::from(x[j]));
    // Least squares for the codes at this scale and offset; the error is Σwx² - gain.
    let solve = |inverse: f32, offset: f32| {
        let code = x.map(|v| codes.nearest((v - offset) * inverse));
        let l_sum = sum::<N>(|j| f64::from(weights[j] * code[j]));
        let ll = sum::<N>(|j| f64::from(weights[j] * code[j]) * f64::from(code[j]));
        let xl = sum::<N>(|j| f64::from(weights[j] * code[j]) * f64::from(x[j]));
        let determinant = w_sum * ll - l_sum * l_sum;
        let (mut scale, mut offset) = if determinant > 1e-9 * w_sum * ll {
            ((w_sum * xl - x_sum * l_sum) / determinant, (ll * x_sum - l_sum * xl) / determinant)
        } else {
            (0.0, x_sum / w_sum)
        };
        if offset > f64::from(offset_max) {
            offset = f64::from(offset_max);
            scale = if ll > 0.0 { (xl - offset * l_sum) / ll } else { 0.0 };
        }
        let scale = scale.max(0.0);
        let error =
            scale * (scale * ll + 2.0 * offset * l_sum - 2.0 * xl) + offset * (offset * w_sum - 2.0 * x_sum);
        (-error, Affine { scale: scale as f32, offset: offset as f32 })
    };
    let mut best = solve(n / range, low);
    for k in 0..AFFINE_STARTS {
        // From a range that is stretched (all codes within) to one that clips; at the top, at the bottom, at
        // both.
        let span = n - 0.75 + 2.25 * k as f32 / (AFFINE_STARTS - 1) as f32;
        let clipped = range - n * range / span;
        for part in [0.0, 0.5, 1.0] {
            keep_larger_gain(&mut best, solve(span / range, low + part * clipped));
        }
    }
    for _ in 0..REFINEMENTS {
        let Affine { scale, offset } = best.1;
        if scale > NEGLIGIBLE {
            keep_larger_gain(&mut best, solve(1.0 / scale, offset));
        }
    }
    best.1
}
