//! Rotary position embedding. Source: arXiv:2104.09864.

use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::{GRAIN_MOVE, for_rows};
use super::vector::Vector;
use crate::Pool;
use crate::lanes::LANES;

/// Which two of the first `n_rot` values of a head are rotated together, by angle `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `(i, i + n_rot / 2)`, as in GPT-NeoX and the Qwen family.
    HalfSplit,
    /// `(2 i, 2 i + 1)`, as in the paper and Llama's GGUF files.
    Interleaved,
}

/// Rotates the first `n_rot` values of each head: `(a, b) <- (a cos - b sin, b cos + a sin)`; the rest is untouched.
///
/// `x`: `[T, n_heads, head_dim]`. `cos`, `sin`: `[T, n_rot / 2]`, of each token's angles (made by the caller, who
/// knows positions, base and scaling).
///
/// # Panics
/// If `n_rot` is odd or above `head_dim`, or a length does not fit.
#[expect(clippy::too_many_arguments, reason = "one flat shape and two tables")]
pub fn rope(
    pool: &Pool,
    x: &mut [f32],
    n_heads: usize,
    head_dim: usize,
    n_rot: usize,
    cos: &[f32],
    sin: &[f32],
    style: RopeStyle,
) {
    assert!(n_rot.is_multiple_of(2) && n_rot <= head_dim, "cannot rotate {n_rot} of {head_dim} values");
    check_rows(x.len(), n_heads * head_dim);
    let half = n_rot / 2;
    let n_tokens = x.len() / (n_heads * head_dim);
    assert!(
        cos.len() == n_tokens * half && sin.len() == cos.len(),
        "one row of n_rot / 2 angles for each token"
    );
    if half == 0 {
        return;
    }
    let isa = current();
    for_rows(pool, x, head_dim, GRAIN_MOVE / 2, |first, x| {
        for (r, x) in x.chunks_exact_mut(head_dim).enumerate() {
            let token = (first + r) / n_heads;
            let (cos, sin) = (&cos[token * half..][..half], &sin[token * half..][..half]);
            match style {
                RopeStyle::HalfSplit => {
                    let (a, b) = x[..n_rot].split_at_mut(half);
                    rotate_halves(isa, a, b, cos, sin);
                }
                RopeStyle::Interleaved => rotate_pairs(isa, &mut x[..n_rot], cos, sin),
            }
        }
    });
}

multiversion! {
    fn rotate_halves = rotate_halves_body(a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32]);
    fn rotate_pairs = rotate_pairs_body(x: &mut [f32], cos: &[f32], sin: &[f32]);
}

#[inline(always)]
fn rotate<V: Vector>(a: V, b: V, cos: V, sin: V) -> (V, V) {
    let minus_sin = sin.mul(V::splat(-1.0));
    (a.mul_add(cos, b.mul(minus_sin)), b.mul_add(cos, a.mul(sin)))
}

#[inline(always)]
fn rotate_halves_body<V: Vector>(a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32]) {
    let pieces = a.chunks_mut(LANES).zip(b.chunks_mut(LANES));
    for ((a, b), (cos, sin)) in pieces.zip(cos.chunks(LANES).zip(sin.chunks(LANES))) {
        let (new_a, new_b) = rotate(V::load_part(a), V::load_part(b), V::load_part(cos), V::load_part(sin));
        new_a.store_part(a);
        new_b.store_part(b);
    }
}

#[inline(always)]
fn rotate_pairs_body<V: Vector>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (x, (cos, sin)) in x.chunks_mut(2 * LANES).zip(cos.chunks(LANES).zip(sin.chunks(LANES))) {
        let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
        for (i, pair) in x.chunks_exact(2).enumerate() {
            (a[i], b[i]) = (pair[0], pair[1]);
        }
        let (new_a, new_b) = rotate(V::load(&a), V::load(&b), V::load_part(cos), V::load_part(sin));
        let (a, b) = (new_a.to_array(), new_b.to_array());
        for (i, pair) in x.chunks_exact_mut(2).enumerate() {
            (pair[0], pair[1]) = (a[i], b[i]);
        }
    }
}
