//! Choosing the largest: top-k, the best blocks. Ties always go to the lower index, so that every path
//! through the program chooses alike.

use super::multiversion::{current, multiversion};

/// The `k` largest of `row`, largest first; ties: lower index first. `out`: `[k]`, or longer with the rest untouched.
///
/// Cost: one pass over `row`, plus `k` for each of the roughly `k ln(n / k)` values that enter the list; no
/// allocation.
///
/// # Panics
/// If `k > row.len()`, `out` is shorter than `k`, or a value is NaN (a layer above is broken).
pub fn top_k(row: &[f32], k: usize, out: &mut [u32]) {
    assert!(k <= row.len(), "cannot choose {k} of {}", row.len());
    assert!(out.len() >= k, "the output holds {} of {k}", out.len());
    let out = &mut out[..k];
    if k == 0 {
        return;
    }
    for i in 0..k {
        assert!(!row[i].is_nan(), "NaN at {i}");
        insert(row, out, i, i);
    }
    const UNIT: usize = 32;
    let mut worst = row[out[k - 1] as usize];
    for (chunk, values) in row[k..].chunks(UNIT).enumerate() {
        // Nearly all chunks have nothing to enter: one vectorised test for all their values (NaN enters too).
        if values.iter().fold(true, |below, &x| below & (x <= worst)) {
            continue;
        }
        for (i, &x) in values.iter().enumerate() {
            let index = k + chunk * UNIT + i;
            assert!(!x.is_nan(), "NaN at {index}");
            if x > worst {
                insert(row, out, k - 1, index);
                worst = row[out[k - 1] as usize];
            }
        }
    }
}

/// Puts `index` in its place among the sorted `out[..len]`; `out[len]` is overwritten.
fn insert(row: &[f32], out: &mut [u32], len: usize, index: usize) {
    let x = row[index];
    let mut at = len;
    while at > 0 && row[out[at - 1] as usize] < x {
        out[at] = out[at - 1];
        at -= 1;
    }
    out[at] = index as u32;
}

/// The best `m` blocks by score (ties: lower index), in increasing index order; `out`: at least `[min(m, n)]`.
/// Returns how many were written: `min(m, scores.len())`.
///
/// Finds the score of the last block kept by bisection over the bits of a float (at most 32 counting passes, each
/// vectorised), so the cost does not depend on `m`; no allocation.
///
/// # Panics
/// If a score is NaN or `out` is too short.
pub fn select_blocks(scores: &[f32], m: usize, out: &mut [u32]) -> usize {
    let n = scores.len();
    let m = m.min(n);
    let out = &mut out[..m];
    assert!(!scores.iter().fold(false, |nan, x| nan | x.is_nan()), "NaN among the block scores");
    if m == n {
        for (i, out) in out.iter_mut().enumerate() {
            *out = i as u32;
        }
        return m;
    }
    if m == 0 {
        return 0;
    }
    let (threshold, above) = threshold(scores, m);
    let mut ties = m - above;
    let mut written = 0;
    for (i, &score) in scores.iter().enumerate() {
        let tie = score == threshold && ties > 0;
        ties -= usize::from(tie);
        if score > threshold || tie {
            out[written] = i as u32;
            written += 1;
        }
    }
    debug_assert_eq!(written, m);
    m
}

/// A score that at least `m` reach and fewer than `m` exceed, and how many exceed it; `0 < m < scores.len()`, no NaN.
fn threshold(scores: &[f32], m: usize) -> (f32, usize) {
    let isa = current();
    // The largest key whose value is reached by at least m scores, one bit after the other.
    let mut key = 0u32;
    for bit in (0..32).rev() {
        let higher = key | 1 << bit;
        let value = value_of_key(higher);
        let reached = if value.is_nan() {
            // Below -inf all reach it, above +inf none.
            if higher & 0x8000_0000 == 0 { scores.len() } else { 0 }
        } else {
            count_reaching(isa, scores, value)
        };
        if reached >= m {
            key = higher;
        }
        if reached == m {
            break;
        }
    }
    let value = value_of_key(key);
    (value, count_above(isa, scores, value))
}

multiversion! {
    fn count_reaching = count_reaching_body(scores: &[f32], value: f32) -> usize;
    fn count_above = count_above_body(scores: &[f32], value: f32) -> usize;
}

#[expect(clippy::extra_unused_type_parameters, reason = "the compiler vectorises it")]
#[inline(always)]
fn count_reaching_body<V>(scores: &[f32], value: f32) -> usize {
    scores.iter().map(|&s| u32::from(s >= value)).sum::<u32>() as usize
}

#[expect(clippy::extra_unused_type_parameters, reason = "the compiler vectorises it")]
#[inline(always)]
fn count_above_body<V>(scores: &[f32], value: f32) -> usize {
    scores.iter().map(|&s| u32::from(s > value)).sum::<u32>() as usize
}

/// Unsigned keys in the order of the floats they stand for; the inverse of the usual sortable transform. Keys below
/// that of -inf give NaN, as do those above that of +inf.
fn value_of_key(key: u32) -> f32 {
    f32::from_bits(if key & 0x8000_0000 != 0 { key & 0x7fff_ffff } else { !key })
}
