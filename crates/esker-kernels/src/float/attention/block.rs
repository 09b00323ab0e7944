//! One block of positions for the query heads of one kv head: scores, exponentials, weighted sum of values.

use super::{BLOCK, HEADS, Running};
use crate::float::kv::{Element, Kv};
use crate::float::math;
use crate::float::multiversion::multiversion;
use crate::float::softmax::{row_max, row_sum};
use crate::float::vector::{Vector, dot_tile, map, zip_map};
use crate::lanes::LANES;

/// Inputs of one block.
pub(super) struct Block<'a> {
    /// `[heads, head_dim]`.
    pub(super) q: &'a [f32],
    /// This kv head's keys, `[capacity, head_dim]`.
    pub(super) k: Kv<'a>,
    /// This kv head's values, `[capacity, head_dim_v]`.
    pub(super) v: Kv<'a>,
    /// At least one, at most [`BLOCK`].
    pub(super) positions: &'a [u32],
    pub(super) head_dim: usize,
    pub(super) head_dim_v: usize,
    pub(super) scale: f32,
}

/// Factors that bring what was merged before, and a new block, to a common maximum.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    old: f32,
    new: f32,
}

impl Running {
    /// Merges the statistics of the next block.
    #[inline(always)]
    fn merge<V: Vector>(&mut self, block: Running) -> Factors {
        let max = if block.max > self.max { block.max } else { self.max };
        let old = math::exp(V::splat(self.max - max)).first();
        let new = math::exp(V::splat(block.max - max)).first();
        let factors = Factors { old, new };
        self.sum = self.sum.mul_add(factors.old, block.sum * factors.new);
        self.max = max;
        factors
    }
}

multiversion! {
    pub(super) fn attend_block = attend_block_body(
        block: &Block<'_>,
        first: bool,
        weights: &mut [[f32; BLOCK]; HEADS],
        running: &mut [Running],
        out: &mut [f32],
    );
    pub(super) fn merge_block = merge_block_body(
        running: &mut Running,
        block: Running,
        out: &mut [f32],
        values: &[f32],
    );
    pub(super) fn scale_rows = scale_rows_body(running: &[Running], width: usize, out: &mut [f32]);
}

#[inline(always)]
fn attend_block_body<V: Vector>(
    block: &Block<'_>,
    first: bool,
    weights: &mut [[f32; BLOCK]; HEADS],
    running: &mut [Running],
    out: &mut [f32],
) {
    let heads = running.len();
    debug_assert!(heads <= HEADS && block.q.len() == heads * block.head_dim);
    // Scores first, then weights, of each head.
    match block.k {
        Kv::F32(k) => scores::<V, f32>(block, k, &mut weights[..heads]),
        Kv::F16(k) => scores::<V, u16>(block, k, &mut weights[..heads]),
    }
    let n = block.positions.len();
    let mut factors = [Factors { old: 0.0, new: 1.0 }; HEADS];
    for ((weights, running), factors) in weights.iter_mut().zip(running).zip(&mut factors) {
        let weights = &mut weights[..n];
        let max = row_max::<V>(weights);
        map::<V>(weights, |s| math::exp(s.sub(V::splat(max))));
        let own = Running { max, sum: row_sum::<V>(weights) };
        if first {
            *running = own;
        } else {
            *factors = running.merge::<V>(own);
        }
    }
    match block.v {
        Kv::F32(v) => values::<V, f32>(block, v, &weights[..heads], first, &factors, out),
        Kv::F16(v) => values::<V, u16>(block, v, &weights[..heads], first, &factors, out),
    }
}

/// Merges the next block's statistics and values, `[head_dim_v]`, into those of one head.
#[inline(always)]
fn merge_block_body<V: Vector>(running: &mut Running, block: Running, out: &mut [f32], values: &[f32]) {
    let factors = running.merge::<V>(block);
    zip_map::<V>(out, values, |old, new| merged(old, new, factors));
}

#[inline(always)]
fn merged<V: Vector>(old: V, new: V, factors: Factors) -> V {
    old.mul_add(V::splat(factors.old), new.mul(V::splat(factors.new)))
}

#[inline(always)]
fn scale_rows_body<V: Vector>(running: &[Running], width: usize, out: &mut [f32]) {
    for (out, running) in out.chunks_exact_mut(width).zip(running) {
        let inverse = V::splat(1.0 / running.sum);
        map::<V>(out, |x| x.mul(inverse));
    }
}

/// `scores[h][i] = scale * (q[h] · k[positions[i]])`, in tiles of heads by positions.
#[inline(always)]
fn scores<V: Vector, E: Element>(block: &Block<'_>, k: &[E], scores: &mut [[f32; BLOCK]]) {
    let mut head = 0;
    if V::WIDE_TILES {
        while head + 4 <= scores.len() {
            score_heads::<V, E, 4, 4, 16>(block, k, head, scores);
            head += 4;
        }
        while head < scores.len() {
            score_heads::<V, E, 1, 16, 16>(block, k, head, scores);
            head += 1;
        }
    } else {
        while head + 2 <= scores.len() {
            score_heads::<V, E, 2, 2, 4>(block, k, head, scores);
            head += 2;
        }
        while head < scores.len() {
            score_heads::<V, E, 1, 4, 4>(block, k, head, scores);
            head += 1;
        }
    }
}

/// Heads `head..head + H`, `P` positions at a time; `N = H * P`.
#[inline(always)]
fn score_heads<V: Vector, E: Element, const H: usize, const P: usize, const N: usize>(
    block: &Block<'_>,
    k: &[E],
    head: usize,
    scores: &mut [[f32; BLOCK]],
) {
    let d = block.head_dim;
    let mut q: [&[f32]; H] = [&[]; H];
    for (h, q) in q.iter_mut().enumerate() {
        *q = &block.q[(head + h) * d..][..d];
    }
    for (tile, positions) in block.positions.chunks(P).enumerate() {
        // The last tile repeats its last position; the extra scores are not stored.
        let mut rows: [&[E]; P] = [&[]; P];
        for (p, row) in rows.iter_mut().enumerate() {
            let position = positions[p.min(positions.len() - 1)] as usize;
            *row = &k[position * d..][..d];
        }
        let sums = dot_tile::<V, E, H, P, N>(q, rows);
        for h in 0..H {
            for p in 0..positions.len() {
                scores[head + h][tile * P + p] = sums[h * P + p] * block.scale;
            }
        }
    }
}

/// `out[h] = out[h] * old + (Σ_i weights[h][i] * v[positions[i]]) * new`, or only the sum for the `first` block.
#[inline(always)]
fn values<V: Vector, E: Element>(
    block: &Block<'_>,
    v: &[E],
    weights: &[[f32; BLOCK]],
    first: bool,
    factors: &[Factors; HEADS],
    out: &mut [f32],
) {
    let mut head = 0;
    if V::WIDE_TILES {
        while head + 4 <= weights.len() {
            value_heads::<V, E, 4, 4>(block, v, head, weights, first, factors, out);
            head += 4;
        }
    } else {
        while head + 2 <= weights.len() {
            value_heads::<V, E, 2, 2>(block, v, head, weights, first, factors, out);
            head += 2;
        }
    }
    while head < weights.len() {
        value_heads::<V, E, 1, 4>(block, v, head, weights, first, factors, out);
        head += 1;
    }
}

/// Heads `head..head + H`, `C` vectors of columns at a time.
#[inline(always)]
fn value_heads<V: Vector, E: Element, const H: usize, const C: usize>(
    block: &Block<'_>,
    v: &[E],
    head: usize,
    weights: &[[f32; BLOCK]],
    first: bool,
    factors: &[Factors; HEADS],
    out: &mut [f32],
) {
    let width = block.head_dim_v;
    let mut column = 0;
    while column + C * LANES <= width {
        let mut sums = [[V::zero(); C]; H];
        for (i, &position) in block.positions.iter().enumerate() {
            let (row, _) = v[position as usize * width + column..][..C * LANES].as_chunks::<LANES>();
            let mut values = [V::zero(); C];
            for c in 0..C {
                values[c] = E::load(&row[c]);
            }
            for h in 0..H {
                let weight = V::splat(weights[head + h][i]);
                for c in 0..C {
                    sums[h][c] = weight.mul_add(values[c], sums[h][c]);
                }
            }
        }
        for h in 0..H {
            let out = &mut out[(head + h) * width + column..][..C * LANES];
            for (out, sum) in out.chunks_exact_mut(LANES).zip(sums[h]) {
                put(sum, first, factors[head + h], out);
            }
        }
        column += C * LANES;
    }
    while column < width {
        let n = LANES.min(width - column);
        let mut sums = [V::zero(); H];
        for (i, &position) in block.positions.iter().enumerate() {
            let row: V = E::load_part(&v[position as usize * width + column..][..n]);
            for h in 0..H {
                sums[h] = V::splat(weights[head + h][i]).mul_add(row, sums[h]);
            }
        }
        for h in 0..H {
            put(sums[h], first, factors[head + h], &mut out[(head + h) * width + column..][..n]);
        }
        column += n;
    }
}

#[inline(always)]
fn put<V: Vector>(sum: V, first: bool, factors: Factors, out: &mut [f32]) {
    if first {
        sum.store_part(out);
    } else {
        merged(V::load_part(out), sum, factors).store_part(out);
    }
}
