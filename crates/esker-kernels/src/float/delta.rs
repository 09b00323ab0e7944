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
/// `q`, `k`: `[T, n_k, d]`, already normalised and scaled. `v`, `out`: `[T, n_v, d]`. `decay` (≤ 0), `beta`:
/// `[T, n_v]`.
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
        n_k > 0 && n_v > 0 && n_v.is_multiple_of(n_k) && d > 0,
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
    let n_rows = state.len() / d;
    // Tokens outside: the rows of the next turn are independent of this one's, and the state stays in the first-level
    // cache.
    for t in 0..group.n_tokens {
        let mut row = 0;
        if d == 8 * LANES {
            // Eight sums and their operands fill 32 wide registers, four fill 16 narrow ones.
            while V::WIDE_TILES && row + 8 <= n_rows {
                step_whole::<V, 8, 8>(group, t, row, &mut state[row * d..]);
                row += 8;
            }
            while row + 4 <= n_rows {
                step_whole::<V, 4, 8>(group, t, row, &mut state[row * d..]);
                row += 4;
            }
        }
        while row + 4 <= n_rows {
            step::<V, 4>(group, t, row, &mut state[row * d..][..4 * d]);
            row += 4;
        }
        while row < n_rows {
            step::<V, 1>(group, t, row, &mut state[row * d..][..d]);
            row += 1;
        }
    }
}

/// [`step`] for rows of `C` whole vectors: no bounds checks, and the rows share the loads of k and q.
#[inline(always)]
fn step_whole<V: Vector, const N: usize, const C: usize>(
    group: &Group<'_>,
    t: usize,
    row: usize,
    state: &mut [f32],
) {
    let &Group { q, k, v, decay, beta, out, n_v, d, head, key_head, first, .. } = group;
    let place = head * d + first + row;
    let k: &[[f32; LANES]; C] =
        k.data[t * k.stride + key_head * d..].as_chunks().0.first_chunk().expect("checked");
    let q: &[[f32; LANES]; C] =
        q.data[t * q.stride + key_head * d..].as_chunks().0.first_chunk().expect("checked");
    let v: &[f32; N] = v.data[t * v.stride + place..].first_chunk().expect("checked");
    let rows: &mut [[[f32; LANES]; C]; N] =
        state.as_chunks_mut().0.as_chunks_mut().0.first_chunk_mut().expect("N rows");
    let factor = math::exp(V::splat(decay[t * n_v + head]));
    let beta = beta[t * n_v + head];

    let mut sums = [V::zero(); N];
    for i in 0..C {
        let k = V::load(&k[i]);
        for r in 0..N {
            sums[r] = V::load(&rows[r][i]).mul(factor).mul_add(k, sums[r]);
        }
    }
    let predicted = V::hsum_each(&sums);
    let mut delta = [V::zero(); N];
    for r in 0..N {
        delta[r] = V::splat(beta * (v[r] - predicted[r]));
    }
    let mut sums = [V::zero(); N];
    for i in 0..C {
        let (k, q) = (V::load(&k[i]), V::load(&q[i]));
        for r in 0..N {
            let updated = k.mul_add(delta[r], V::load(&rows[r][i]).mul(factor));
            updated.store(&mut rows[r][i]);
            sums[r] = updated.mul_add(q, sums[r]);
        }
    }
    // SAFETY: only this task uses these rows' outputs.
    let out = unsafe { out.part(t * n_v * d + place..t * n_v * d + place + N) };
    out.copy_from_slice(&V::hsum_each(&sums));
}

/// Token `t` for `N` state rows of any length, `row` counted in the group.
#[inline(always)]
fn step<V: Vector, const N: usize>(group: &Group<'_>, t: usize, row: usize, state: &mut [f32]) {
    let &Group { q, k, v, decay, beta, out, n_v, d, head, key_head, first, .. } = group;
    let place = head * d + first + row;
    let (k16, k_tail) = k.data[t * k.stride + key_head * d..][..d].as_chunks::<LANES>();
    let (q16, q_tail) = q.data[t * q.stride + key_head * d..][..d].as_chunks::<LANES>();
    let v = &v.data[t * v.stride + place..][..N];
    let factor = math::exp(V::splat(decay[t * n_v + head]));
    let beta = beta[t * n_v + head];

    let mut sums = [V::zero(); N];
    for (s, sum) in state.chunks_exact(d).zip(&mut sums) {
        let (s16, s_tail) = s.as_chunks::<LANES>();
        for (s, k) in s16.iter().zip(k16) {
            *sum = V::load(s).mul(factor).mul_add(V::load(k), *sum);
        }
        if !s_tail.is_empty() {
            *sum = V::load_part(s_tail).mul(factor).mul_add(V::load_part(k_tail), *sum);
        }
    }
    let predicted = V::hsum_each(&sums);

    for (r, (s, sum)) in state.chunks_exact_mut(d).zip(&mut sums).enumerate() {
        let delta = V::splat(beta * (v[r] - predicted[r]));
        *sum = V::zero();
        let (s16, s_tail) = s.as_chunks_mut::<LANES>();
        for ((s, k), q) in s16.iter_mut().zip(k16).zip(q16) {
            let updated = V::load(k).mul_add(delta, V::load(s).mul(factor));
            updated.store(s);
            *sum = updated.mul_add(V::load(q), *sum);
        }
        if !s_tail.is_empty() {
            let updated = V::load_part(k_tail).mul_add(delta, V::load_part(s_tail).mul(factor));
            updated.store_part(s_tail);
            *sum = updated.mul_add(V::load_part(q_tail), *sum);
        }
    }
    // SAFETY: only this task uses these rows' outputs.
    let out = unsafe { out.part(t * n_v * d + place..t * n_v * d + place + N) };
    out.copy_from_slice(&V::hsum_each(&sums));
}
