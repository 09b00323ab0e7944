//! Least squares for a super-block of 256: group scales that are themselves small integers times one common
//! scale.
//!
//! Each group is fitted on its own first ([`search`](super::search)). Then, in turns: with the common scale
//! fixed, every group takes the integers around its ideal that give the least error; with integers and codes
//! fixed, the common scale is a least-squares solution. The common scale is rounded to half precision in
//! every turn, so its rounding error is made up for by the integers. Several starts, since the turns end in a
//! local minimum.

use crate::blocks::F16Le;

use super::half;
use super::search::{Affine, Levels, Uniform, fit_affine, fit_scale, sum};

/// Common scales to start from: the largest group scale gets the largest integer, or one less, or two.
const STARTS: [f32; 3] = [0.0, 1.0, 2.0];

/// Turns of (integers, common scale) from each start.
const TURNS: usize = 2;

/// `x ≈ d * scales[group] * levels`.
pub(super) struct Symmetric<const GROUPS: usize> {
    pub d: F16Le,
    pub scales: [i8; GROUPS],
    pub levels: [f32; 256],
}

/// Fits groups of `LEN`, scales from `scale_low` to `-scale_low - 1`. `None` if the common scale overflows.
pub(super) fn fit_symmetric<const GROUPS: usize, const LEN: usize>(
    x: &[f32; 256],
    weights: &[f32; 256],
    levels: &impl Levels,
    scale_low: f32,
) -> Option<Symmetric<GROUPS>> {
    const { assert!(GROUPS * LEN == 256) };
    let groups = Groups::<LEN> { x: x.as_chunks().0, weights: weights.as_chunks().0 };
    let ideal: [f32; GROUPS] = std::array::from_fn(|g| fit_scale(&groups.x[g], &groups.weights[g], levels));
    let extreme = ideal.iter().fold(0.0f32, |extreme, s| if s.abs() > extreme.abs() { *s } else { extreme });

    let mut best = Symmetric { d: F16Le::default(), scales: [0; GROUPS], levels: [0.0; 256] };
    let mut best_error = f64::INFINITY;
    for start in STARTS {
        let mut d = half(extreme / (scale_low + start))?;
        for _ in 0..TURNS {
            if d.to_f32() == 0.0 {
                break;
            }
            let (error, found, next) = symmetric_turn(&groups, levels, &ideal, d, scale_low);
            if error < best_error {
                (best_error, best) = (error, found);
            }
            match half(next) {
                Some(next) if next != d => d = next,
                _ => break,
            }
        }
    }
    Some(best)
}

/// The best integers and levels for this `d`, their error, and the best `d` for them.
fn symmetric_turn<const GROUPS: usize, const LEN: usize>(
    groups: &Groups<LEN>,
    levels: &impl Levels,
    ideal: &[f32; GROUPS],
    d: F16Le,
    scale_low: f32,
) -> (f64, Symmetric<GROUPS>, f32) {
    let common = d.to_f32();
    let mut found = Symmetric { d, scales: [0; GROUPS], levels: [0.0; 256] };
    let (mut error, mut xa, mut aa) = (0.0, 0.0, 0.0);
    for (g, chosen) in found.levels.as_chunks_mut::<LEN>().0.iter_mut().enumerate() {
        let mut group_error = f64::INFINITY;
        let nearest = (ideal[g] / common).round_ties_even();
        for step in [0.0, -1.0, 1.0] {
            let scale = (nearest + step).clamp(scale_low, -scale_low - 1.0);
            let effective = common * scale;
            let inverse = inverse_or_zero(effective);
            let trial = groups.x[g].map(|v| levels.nearest(v * inverse));
            let trial_error = groups.squared_error(g, |j| effective * trial[j]);
            if trial_error < group_error {
                group_error = trial_error;
                found.scales[g] = scale as i8;
                *chosen = trial;
            }
        }
        error += group_error;
        let scale = f64::from(found.scales[g]);
        let (x, weights) = (&groups.x[g], &groups.weights[g]);
        xa += scale * sum::<LEN>(|j| f64::from(weights[j] * chosen[j]) * f64::from(x[j]));
        aa += scale * scale * sum::<LEN>(|j| f64::from(weights[j] * chosen[j]) * f64::from(chosen[j]));
    }
    let next = if aa > 0.0 { (xa / aa) as f32 } else { common };
    (error, found, next)
}

/// `x ≈ d * scales[group] * codes - dmin * mins[group]`.
pub(super) struct WithMinima<const GROUPS: usize> {
    pub d: F16Le,
    pub dmin: F16Le,
    pub scales: [u8; GROUPS],
    pub mins: [u8; GROUPS],
    pub codes: [u8; 256],
}

/// Fits groups of `LEN`, codes `0..=n`, scales and minima `0..=top`. `None` if a common scale overflows.
///
/// Where all values are positive `dmin` comes out negative: minima are then added, and the codes need not
/// reach down to zero.
pub(super) fn fit_with_minima<const GROUPS: usize, const LEN: usize>(
    x: &[f32; 256],
    weights: &[f32; 256],
    n: f32,
    top: f32,
) -> Option<WithMinima<GROUPS>> {
    const { assert!(GROUPS * LEN == 256) };
    let offset_max = if x.iter().all(|v| *v > 0.0) { f32::INFINITY } else { 0.0 };
    let groups = Groups::<LEN> { x: x.as_chunks().0, weights: weights.as_chunks().0 };
    let ideal: [Affine; GROUPS] =
        std::array::from_fn(|g| fit_affine(&groups.x[g], &groups.weights[g], n, offset_max));
    let largest_scale = ideal.iter().fold(0.0f32, |largest, fit| largest.max(fit.scale));
    let largest_min = ideal
        .iter()
        .fold(0.0f32, |largest, fit| if fit.offset.abs() > largest.abs() { -fit.offset } else { largest });

    let zero = F16Le::default();
    let mut best =
        WithMinima { d: zero, dmin: zero, scales: [0; GROUPS], mins: [0; GROUPS], codes: [0; 256] };
    let mut best_error = f64::INFINITY;
    for start in STARTS {
        let mut common = (half(largest_scale / (top - start))?, half(largest_min / (top - start))?);
        for _ in 0..TURNS {
            let (error, found, next) = turn_with_minima(&groups, &ideal, common, n, top);
            if error < best_error {
                (best_error, best) = (error, found);
            }
            match (half(next.0), half(next.1)) {
                (Some(d), Some(dmin)) if d.to_f32() >= 0.0 && (d, dmin) != common => common = (d, dmin),
                _ => break,
            }
        }
    }
    Some(best)
}

/// The best integers and codes for this `(d, dmin)`, their error, and the best `(d, dmin)` for them.
fn turn_with_minima<const GROUPS: usize, const LEN: usize>(
    groups: &Groups<LEN>,
    ideal: &[Affine; GROUPS],
    (d, dmin): (F16Le, F16Le),
    n: f32,
    top: f32,
) -> (f64, WithMinima<GROUPS>, (f32, f32)) {
    let levels = Uniform { low: 0.0, high: n };
    let (common, common_min) = (d.to_f32(), dmin.to_f32());
    let mut found = WithMinima { d, dmin, scales: [0; GROUPS], mins: [0; GROUPS], codes: [0; 256] };
    let mut error = 0.0;
    let mut normal = Normal::default();
    for (g, chosen) in found.codes.as_chunks_mut::<LEN>().0.iter_mut().enumerate() {
        let mut group_error = f64::INFINITY;
        for scale in around(ideal[g].scale, common, top) {
            for min in around(-ideal[g].offset, common_min, top) {
                let (effective, minimum) = (common * scale, common_min * min);
                let inverse = inverse_or_zero(effective);
                let trial = groups.x[g].map(|v| levels.nearest((v + minimum) * inverse));
                let trial_error = groups.squared_error(g, |j| effective * trial[j] - minimum);
                if trial_error < group_error {
                    group_error = trial_error;
                    (found.scales[g], found.mins[g]) = (scale as u8, min as u8);
                    *chosen = trial.map(|code| code as u8);
                }
            }
        }
        error += group_error;
        let (scale, min) = (f64::from(found.scales[g]), f64::from(found.mins[g]));
        normal.add_group(&groups.x[g], &groups.weights[g], chosen, scale, min);
    }
    let (next, next_min) = normal.solve();
    (error, found, (next as f32, next_min as f32))
}

/// The integer nearest to `ideal / common` and its neighbours, within `0..=top`; 0 where `common` is.
fn around(ideal: f32, common: f32, top: f32) -> impl Iterator<Item = f32> {
    let (nearest, last) =
        if common == 0.0 { (0.0, 0.0) } else { ((ideal / common).round_ties_even().clamp(0.0, top), top) };
    [nearest, nearest - 1.0, nearest + 1.0].into_iter().filter(move |v| (0.0..=last).contains(v))
}

/// Values and weights by group.
struct Groups<'a, const LEN: usize> {
    x: &'a [[f32; LEN]],
    weights: &'a [[f32; LEN]],
}

impl<const LEN: usize> Groups<'_, LEN> {
    fn squared_error(&self, g: usize, decoded: impl Fn(usize) -> f32) -> f64 {
        let (x, weights) = (&self.x[g], &self.weights[g]);
        sum::<LEN>(|j| {
            let difference = f64::from(x[j] - decoded(j));
            f64::from(weights[j]) * difference * difference
        })
    }
}

/// Normal equations of `x ≈ d a - dmin b`, with `a` = group scale times code and `b` = group minimum.
#[derive(Default)]
struct Normal {
    aa: f64,
    ab: f64,
    bb: f64,
    xa: f64,
    xb: f64,
}

impl Normal {
    fn add_group<const LEN: usize>(
        &mut self,
        x: &[f32; LEN],
        weights: &[f32; LEN],
        codes: &[u8; LEN],
        scale: f64,
        min: f64,
    ) {
        let weighted_code = |j: usize| f64::from(weights[j]) * f64::from(codes[j]);
        let code_sum = sum::<LEN>(weighted_code);
        self.aa += scale * scale * sum::<LEN>(|j| weighted_code(j) * f64::from(codes[j]));
        self.ab += scale * min * code_sum;
        self.bb += min * min * sum::<LEN>(|j| f64::from(weights[j]));
        self.xa += scale * sum::<LEN>(|j| weighted_code(j) * f64::from(x[j]));
        self.xb += min * sum::<LEN>(|j| f64::from(weights[j]) * f64::from(x[j]));
    }

    /// `(d, dmin)`; a factor that nothing depends on is 0.
    fn solve(&self) -> (f64, f64) {
        let determinant = self.aa * self.bb - self.ab * self.ab;
        if determinant > 1e-9 * self.aa * self.bb {
            let d = (self.xa * self.bb - self.xb * self.ab) / determinant;
            let dmin = (self.xa * self.ab - self.xb * self.aa) / determinant;
            (d, dmin)
        } else if self.aa > 0.0 {
            (self.xa / self.aa, 0.0)
        } else if self.bb > 0.0 {
            (0.0, -self.xb / self.bb)
        } else {
            (0.0, 0.0)
        }
    }
}

fn inverse_or_zero(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
