//! Block-sparse attention's indexer: pooled block keys and block scores. `select_blocks` chooses among them.

use super::kv::{Element, Kv};
use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::{GRAIN_MOVE, for_rows};
use super::vector::Vector;
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
    for (key, score) in keys.chunks_exact(d).zip(scores) {
        let mut sum = 0.0;
        for q in iq.chunks_exact(d) {
            let s = dot_stored::<V, E>(q, key);
            sum += if s < 0.0 { 0.0 } else { s };
        }
        *score = sum;
    }
}

/// Canonical dot product of f32 with stored elements.
#[inline(always)]
pub(super) fn dot_stored<V: Vector, E: Element>(a: &[f32], b: &[E]) -> f32 {
    let (a16, a_tail) = a.as_chunks::<LANES>();
    let (b16, b_tail) = b.as_chunks::<LANES>();
    let mut acc = V::zero();
    for (a, b) in a16.iter().zip(b16) {
        acc = V::load(a).mul_add(E::load(b), acc);
    }
    if !a_tail.is_empty() {
        acc = V::load_part(a_tail).mul_add(E::load_part(b_tail), acc);
    }
    acc.hsum()
}
