//! Gated DeltaNet as a recurrence over tokens, in prefill too, so that its bits do not depend on how a sequence is
//! cut. Source: arXiv:2412.06464.

use super::math;
use super::multiversion::{current, multiversion};
use super::split::{GRAIN_EXP, for_rows};
use super::vector::{Vector, zip_map};
use crate::Pool;
use crate::disjoint::Disjoint;
use crate::lanes::LANES;

/// Rows of a wider matrix: row `t` is `data[t * stride..][..width]`, the width given by the operation's shape.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// The first row's first value and all that follows.
    pub data: &'a [f32],
    /// Values from the start of one row to the start of the next; 0 for rows without a gap.
    pub stride: usize,
}

impl<'a> From<&'a [f32]> for Strided<'a> {
    fn from(data: &'a [f32]) -> Self {
        Self { data, stride: 0 }
    }
}

impl<'a> From<&'a Vec<f32>> for Strided<'a> {
    fn from(data: &'a Vec<f32>) -> Self {
        Self { data, stride: 0 }
    }
}

impl<'a> Strided<'a> {
    /// Checks that `n_rows` rows of `width` lie inside the data and do not overlap; the stride is then explicit.
    fn checked(self, what: &str, n_rows: usize, width: usize) -> Strided<'a> {
        let stride = if self.stride == 0 { width } else { self.stride };
        assert!(stride >= width, "rows of {what} overlap: stride {stride}, width {width}");
        let needed = n_rows.checked_sub(1).map_or(0, |last| last * stride + width);
        assert!(
            self.data.len() >= needed,
            "{what} has {} values, {n_rows} rows need {needed}",
            self.data.len()
        );
        Strided { data: self.data, stride }
    }
}

/// Which key head serves value head `j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadPairing {
    /// `j % n_k`.
    Tiled,
    /// `j / (n_v / n_k)`.
    Grouped,
}

/// Shape of a delta-net layer.
#[derive(Clone, Copy, Debug)]
pub struct DeltaShape {
    /// Key (and query) heads.
    pub n_k: usize,
    /// Value heads, a multiple of `n_k`.
    pub n_v: usize,
    /// Values of a key head and of a value head.
    pub d: usize,
    /// Which key head serves which value head.
    pub pairing: HeadPairing,
}

/// One layer's recurrence over `T` tokens. Per value head, with `S` the state, one row for each of its `d` values:
/// ```text
/// S <- e^decay S        p = S k        S <- S + beta (v - p) kᵀ        out = S q
/// ```
/// `q`, `k`: `[T, n_k, d]`, already normalised and scaled. `v`, `out`: `[T, n_v, d]`. `decay` (≤ 0), `beta`: `[T, n_v]`.
/// `state`: `[n_v, d, d]`, the key index contiguous; updated. Dot products are canonical; any split of a sequence
/// into calls gives the same bits.
///
/// # Panics
/// If a length does not fit.
#[expect(clippy::too_many_arguments, reason = "the five inputs of the recurrence, its state and its output")]
pub fn delta_net<'a>(
    pool: &Pool,
    q: impl Into<Strided<'a>>,
    k: impl Into<Strided<'a>>,
    v: impl Into<Strided<'a>>,
    decay: &[f32],
    beta: &[f32],
    state: &mut [f32],
    shape: &DeltaShape,
    out: &mut [f32],
) {
    let &DeltaShape { n_k, n_v, d, pairing } = shape;
    assert!(
        n_k > 0 && n_v.is_multiple_of(n_k) && d > 0,
        "{n_v} value heads cannot share {n_k} key heads of {d}"
    );
    assert!(decay.len().is_multiple_of(n_v) && beta.len() == decay.len(), "decay and beta are [T, n_v]");
    let n_tokens = decay.len() / n_v;
    assert_eq!(out.len(), n_tokens * n_v * d, "the output is [T, n_v, d]");
    assert_eq!(state.len(), n_v * d * d, "the state is [n_v, d, d]");
    let q = q.into().checked("q", n_tokens, n_k * d);
    let k = k.into().checked("k", n_tokens, n_k * d);
    let v = v.into().checked("v", n_tokens, n_v * d);
    let isa = current();
    let (state, out) = (Disjoint::new(state), Disjoint::new(out));
    let groups = d.div_ceil(GROUP);
    pool.run(n_v * groups, (GRAIN_EXP / (GROUP * d * n_tokens.max(1))).max(1), &|range| {
        for task in range {
            let (head, first) = (task / groups, task % groups * GROUP);
            let last = d.min(first + GROUP);
            let key_head = match pairing {
                HeadPairing::Tiled => head % n_k,
                HeadPairing::Grouped => head / (n_v / n_k),
            };
            // SAFETY: each (head, group of rows) is in one range of the pool.
            let state = unsafe { state.part((head * d + first) * d..(head * d + last) * d) };
            let group = Group { q, k, v, decay, beta, out: &out, n_v, d, n_tokens, head, key_head, first };
            group_of_rows(isa, &group, state);
        }
    });
}

/// `alpha[t, j] <- a[j] * softplus(alpha[t, j] + dt_bias[j])`: the logarithm of a head's decay, ≤ 0 because `a` is.
///
/// `alpha`: `[T, n_v]`; `dt_bias`, `a`: `[n_v]`.
///
/// # Panics
/// If a length does not fit.
pub fn softplus_decay(pool: &Pool, alpha: &mut [f32], dt_bias: &[f32], a: &[f32]) {
    let n = a.len();
    assert!(
        n > 0 && dt_bias.len() == n && alpha.len().is_multiple_of(n),
        "alpha is [T, n_v], dt_bias and a [n_v]"
    );
    let isa = current();
    for_rows(pool, alpha, n, GRAIN_EXP, |_, alpha| {
        for alpha in alpha.chunks_exact_mut(n) {
            decay_row(isa, alpha, dt_bias, a);
        }
    });
}

/// State rows of a task: one cache line of each token's output.
const GROUP: usize = 16;
/// Tokens run through one set of rows before the next set: their q and k stay in the first-level cache.
const TOKENS: usize = 32;
/// Rows computed together, for independent sums.
const ROWS: usize = 4;

struct Group<'a> {
    q: Strided<'a>,
    k: Strided<'a>,
    v: Strided<'a>,
    decay: &'a [f32],
    beta: &'a [f32],
    out: &'a Disjoint<'a, f32>,
    n_v: usize,
    d: usize,
    n_tokens: usize,
    head: usize,
    key_head: usize,
    /// First row of the group inside its head.
    first: usize,
}

multiversion! {
    fn group_of_rows = group_of_rows_body(group: &Group<'_>, state: &mut [f32]);
    fn decay_row = decay_row_body(alpha: &mut [f32], dt_bias: &[f32], a: &[f32]);
}

#[inline(always)]
fn decay_row_body<V: Vector>(alpha: &mut [f32], dt_bias: &[f32], a: &[f32]) {
    zip_map::<V>(alpha, dt_bias, |alpha, bias| math::softplus(alpha.add(bias)));
    zip_map::<V>(alpha, a, V::mul);
}

#[inline(always)]
fn group_of_rows_body<V: Vector>(group: &Group<'_>, state: &mut [f32]) {
    let d = group.d;
    for from in (0..group.n_tokens).step_by(TOKENS) {
        let to = group.n_tokens.min(from + TOKENS);
        let n_rows = state.len() / d;
        let whole = n_rows - n_rows % ROWS;
        for row in (0..whole).step_by(ROWS) {
            run_rows::<V, ROWS>(group, from, to, row, &mut state[row * d..][..ROWS * d]);
        }
        for row in whole..n_rows {
            run_rows::<V, 1>(group, from, to, row, &mut state[row * d..][..d]);
        }
    }
}

/// Tokens `from..to` through `N` state rows, `row` counted in the group.
#[inline(always)]
fn run_rows<V: Vector, const N: usize>(
    group: &Group<'_>,
    from: usize,
    to: usize,
    row: usize,
    state: &mut [f32],
) {
    let &Group { q, k, v, decay, beta, out, n_v, d, head, key_head, first, .. } = group;
    let place = head * d + first + row;
    for t in from..to {
        let k = &k.data[t * k.stride + key_head * d..][..d];
        let q = &q.data[t * q.stride + key_head * d..][..d];
        let v = &v.data[t * v.stride + place..][..N];
        let factor = math::exp(V::splat(decay[t * n_v + head]));
        let beta = beta[t * n_v + head];

        let mut sums = [V::zero(); N];
        for (i, k) in k.chunks(LANES).enumerate() {
            let k = V::load_part(k);
            for (r, sum) in sums.iter_mut().enumerate() {
                let s = V::load_part(&state[r * d + i * LANES..][..LANES.min(d - i * LANES)]).mul(factor);
                *sum = s.mul_add(k, *sum);
            }
        }
        let predicted = V::hsum_each(&sums);
        let delta: [V; N] = std::array::from_fn(|r| V::splat(beta * (v[r] - predicted[r])));

        let mut sums = [V::zero(); N];
        for (i, (k, q)) in k.chunks(LANES).zip(q.chunks(LANES)).enumerate() {
            let (k, q) = (V::load_part(k), V::load_part(q));
            for (r, sum) in sums.iter_mut().enumerate() {
                let s = &mut state[r * d + i * LANES..][..LANES.min(d - i * LANES)];
                let updated = k.mul_add(delta[r], V::load_part(s).mul(factor));
                updated.store_part(s);
                *sum = updated.mul_add(q, *sum);
            }
        }
        // SAFETY: only this task uses these rows' outputs.
        let out = unsafe { out.part(t * n_v * d + place..t * n_v * d + place + N) };
        out.copy_from_slice(&V::hsum_each(&sums));
    }
}
