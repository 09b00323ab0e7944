//! Block-sparse attention's indexer: pooled block keys and block scores. `select_blocks` chooses among them.

use super::kv::{Element, Kv};
use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::{GRAIN_MOVE, for_rows};
use super::vector::{Vector, dot_tile};
use crate::Pool;
use crate::disjoint::Disjoint;
use crate::lanes::LANES;

/// Block keys before norm and rope: `out[b, :]` = mean of the raw keys of tokens `b r .. b r + r`, summed in order.
///
/// `keys`: `[n_blocks * r, d]`, whole blocks only; `out`: `[n_blocks, d]`.
///
/// # Panics
/// If a length does not fit.
pub fn pool_blocks(pool: &Pool, keys: Kv<'_>, r: usize, d: usize, out: &mut [f32]) {
    check_rows(out.len(), d);
    assert!(r > 0, "a block has at least one token");
    assert_eq!(keys.len(), out.len() * r, "the keys are whole blocks of {r} rows");
    let isa = current();
    for_rows(pool, out, d, GRAIN_MOVE / r, |first, out| {
        let range = first * r * d..(first * d + out.len()) * r;
        match keys {
            Kv::F32(keys) => mean_f32(isa, &keys[range], r, d, out),
            Kv::F16(keys) => mean_f16(isa, &keys[range], r, d, out),
        }
    });
}

/// Block scores: `scores[t, b] = Σ_h max(0, iq[t, h, :] · keys[b, :])`, heads in order, canonical dot products.
///
/// `iq`: `[T, n_heads, d]`; `keys`: `[n_blocks, d]`; `scores`: `[T, n_blocks]`. Blocks that a token must not see yet
/// get a score too: the caller passes only its own to `select_blocks`. NaN stays NaN.
///
/// # Panics
/// If a length does not fit.
pub fn indexer_scores(pool: &Pool, iq: &[f32], keys: Kv<'_>, n_heads: usize, d: usize, scores: &mut [f32]) {
    check_rows(iq.len(), n_heads * d);
    check_rows(keys.len(), d);
    let n_blocks = keys.len() / d;
    let n_tokens = iq.len() / (n_heads * d);
    assert_eq!(scores.len(), n_tokens * n_blocks, "one score for each token and block");
    let isa = current();
    // A task takes some blocks for all tokens, so that its keys stay in cache.
    const BLOCKS: usize = 64;
    let scores = Disjoint::new(scores);
    pool.run(n_blocks.div_ceil(BLOCKS), (GRAIN_MOVE / BLOCKS / d / n_tokens.max(1)).max(1), &|range| {
        let range = range.start * BLOCKS..(range.end * BLOCKS).min(n_blocks);
        for (t, iq) in iq.chunks_exact(n_heads * d).enumerate() {
            // SAFETY: the pool's ranges do not overlap, and each token has its own row.
            let scores = unsafe { scores.part(t * n_blocks + range.start..t * n_blocks + range.end) };
            match keys {
                Kv::F32(keys) => score_f32(isa, iq, &keys[range.start * d..range.end * d], d, scores),
                Kv::F16(keys) => score_f16(isa, iq, &keys[range.start * d..range.end * d], d, scores),
            }
        }
    });
}

multiversion! {
    fn mean_f32 = mean_f32_body(keys: &[f32], r: usize, d: usize, out: &mut [f32]);
    fn mean_f16 = mean_f16_body(keys: &[u16], r: usize, d: usize, out: &mut [f32]);
    fn score_f32 = score_f32_body(iq: &[f32], keys: &[f32], d: usize, scores: &mut [f32]);
    fn score_f16 = score_f16_body(iq: &[f32], keys: &[u16], d: usize, scores: &mut [f32]);
}

#[inline(always)]
fn mean_f32_body<V: Vector>(keys: &[f32], r: usize, d: usize, out: &mut [f32]) {
    mean::<V, f32>(keys, r, d, out);
}

#[inline(always)]
fn mean_f16_body<V: Vector>(keys: &[u16], r: usize, d: usize, out: &mut [f32]) {
    mean::<V, u16>(keys, r, d, out);
}

#[inline(always)]
fn mean<V: Vector, E: Element>(keys: &[E], r: usize, d: usize, out: &mut [f32]) {
    let share = V::splat(1.0 / r as f32);
    for (keys, out) in keys.chunks_exact(r * d).zip(out.chunks_exact_mut(d)) {
        for (i, out) in out.chunks_mut(LANES).enumerate() {
            let mut sum = V::zero();
            for key in keys.chunks_exact(d) {
                sum = sum.add(E::load_part(&key[i * LANES..][..out.len()]));
            }
            sum.mul(share).store_part(out);
        }
    }
}

#[inline(always)]
fn score_f32_body<V: Vector>(iq: &[f32], keys: &[f32], d: usize, scores: &mut [f32]) {
    score::<V, f32>(iq, keys, d, scores);
}

#[inline(always)]
fn score_f16_body<V: Vector>(iq: &[f32], keys: &[u16], d: usize, scores: &mut [f32]) {
    score::<V, u16>(iq, keys, d, scores);
}

#[inline(always)]
fn score<V: Vector, E: Element>(iq: &[f32], keys: &[E], d: usize, scores: &mut [f32]) {
    scores.fill(0.0);
    let mut heads = iq;
    // Heads in order, four at a time: a score gets its addends in the order of the heads.
    while heads.len() >= 4 * d {
        let (now, later) = heads.split_at(4 * d);
        if V::WIDE_TILES {
            add_heads::<V, E, 4, 4, 16>(now, keys, d, scores);
        } else {
            add_heads::<V, E, 4, 1, 4>(now, keys, d, scores);
        }
        heads = later;
    }
    for head in heads.chunks_exact(d) {
        if V::WIDE_TILES {
            add_heads::<V, E, 1, 16, 16>(head, keys, d, scores);
        } else {
            add_heads::<V, E, 1, 4, 4>(head, keys, d, scores);
        }
    }
}

/// Adds the rectified products of `H` heads with all keys, `P` keys at a time; `N = H * P`.
#[inline(always)]
fn add_heads<V: Vector, E: Element, const H: usize, const P: usize, const N: usize>(
    heads: &[f32],
    keys: &[E],
    d: usize,
    scores: &mut [f32],
) {
    let mut q: [&[f32]; H] = [&[]; H];
    for (q, head) in q.iter_mut().zip(heads.chunks_exact(d)) {
        *q = head;
    }
    let n_keys = scores.len();
    for (tile, scores) in scores.chunks_mut(P).enumerate() {
        // The last tile repeats the last key; the extra products are not used.
        let mut rows: [&[E]; P] = [&[]; P];
        for (p, row) in rows.iter_mut().enumerate() {
            *row = &keys[(tile * P + p).min(n_keys - 1) * d..][..d];
        }
        let products = dot_tile::<V, E, H, P, N>(q, rows);
        for (p, score) in scores.iter_mut().enumerate() {
            for h in 0..H {
                let product = products[h * P + p];
                *score += if product < 0.0 { 0.0 } else { product };
            }
        }
    }
}
