//! Softmax attention of query heads over the visible positions of a KV cache; grouped queries.
//!
//! The canonical order, which every split of the work reproduces: a query's visible positions, in increasing order,
//! are cut into blocks of [`BLOCK`]. In a block, each score is a canonical dot product times the scale; the
//! exponentials are taken relative to the block's own maximum and summed in 16 lanes; the values are added
//! position by position with fma. Blocks are merged in order ([`Running::merge`]). So a query's result depends on
//! its visible positions only: not on the other queries of the call, on threads, or on whether "all positions" was
//! said by [`Visible::Causal`] or by a list.
//!
//! Two ways to spread the work, same bits. Many queries (prefill): a task is a few tokens of one kv head, and
//! merges blocks as it goes. Few queries (decode): a task is one block, so that one token over a long context
//! uses all threads; its partial result goes to [`AttnScratch`] and is merged in a second round.

mod block;

use std::ops::Range;

use block::{Block, attend_block, merge_block, scale_rows};

use super::kv::Kv;
use super::multiversion::current;
use crate::Pool;
use crate::disjoint::Disjoint;
use crate::isa::Isa;

/// Positions of one block of the canonical order.
pub const BLOCK: usize = 256;

/// Query heads of one kv head that are computed together; more are computed in turns.
const HEADS: usize = 16;
/// Tokens of one task in prefill, each block of K and V being read once for all of them.
const TOKENS: usize = 8;

/// Shape of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttnShape {
    /// Query heads, a multiple of `n_head_kv`; query head `h` reads kv head `h / (n_head / n_head_kv)`.
    pub n_head: usize,
    /// Key and value heads.
    pub n_head_kv: usize,
    /// Values of a query or key head.
    pub head_dim: usize,
    /// Values of a value head.
    pub head_dim_v: usize,
    /// Positions that K and V have room for.
    pub capacity: usize,
    /// Factor on the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// Which positions each query sees.
#[derive(Clone, Copy, Debug)]
pub enum Visible<'a> {
    /// Query `t` is at position `first_position + t` and sees all up to its own.
    Causal {
        /// Position of the first query.
        first_position: usize,
    },
    /// Query `t` sees `positions[offsets[t]..offsets[t + 1]]`; none at all gives zeros.
    Lists {
        /// `[T + 1]`, not decreasing.
        offsets: &'a [u32],
        /// Increasing within a query.
        positions: &'a [u32],
    },
}

impl Visible<'_> {
    fn count(&self, t: usize) -> usize {
        match self {
            Visible::Causal { first_position } => first_position + t + 1,
            Visible::Lists { offsets, .. } => (offsets[t + 1] - offsets[t]) as usize,
        }
    }

    /// Writes the positions of block `b` of query `t`; returns how many. 0 beyond the query's last block.
    fn block(&self, t: usize, b: usize, out: &mut [u32; BLOCK]) -> usize {
        let count = self.count(t);
        let start = (b * BLOCK).min(count);
        let n = (count - start).min(BLOCK);
        match self {
            Visible::Causal { .. } => {
                for (i, out) in out[..n].iter_mut().enumerate() {
                    *out = (start + i) as u32;
                }
            }
            Visible::Lists { offsets, positions } => {
                out[..n].copy_from_slice(&positions[offsets[t] as usize + start..][..n]);
            }
        }
        n
    }
}

/// Partial results of a decode step's blocks. Grows when first needed; [`AttnScratch::reserve`] does it up front.
#[derive(Debug, Default)]
pub struct AttnScratch {
    /// `[blocks of a round, heads of a kv head, head_dim_v]`.
    values: Vec<f32>,
    /// `[blocks of a round, heads of a kv head]`.
    partial: Vec<Running>,
    /// `[T, n_head]`.
    running: Vec<Running>,
}

impl AttnScratch {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for every call with this shape on a pool of `threads`, so that none allocates.
    pub fn reserve(&mut self, shape: &AttnShape, threads: usize) {
        let tokens = few_tokens(shape, threads);
        if tokens > 0 {
            let blocks = shape.capacity.div_ceil(BLOCK) * shape.n_head_kv * tokens;
            self.grow(shape, blocks.min(blocks_of_a_round(threads)), tokens);
        }
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.values[..]) + size_of_val(&self.partial[..]) + size_of_val(&self.running[..])
    }

    fn grow(&mut self, shape: &AttnShape, blocks: usize, tokens: usize) {
        let heads = shape.n_head / shape.n_head_kv;
        let grown = |len: usize, needed: usize| len.max(needed);
        self.values.resize(grown(self.values.len(), blocks * heads * shape.head_dim_v), 0.0);
        self.partial.resize(grown(self.partial.len(), blocks * heads), Running::default());
        self.running.resize(grown(self.running.len(), tokens * shape.n_head), Running::default());
    }
}

/// The largest number of tokens that is spread block by block: fewer tasks than that would leave threads idle.
fn few_tokens(shape: &AttnShape, threads: usize) -> usize {
    if threads == 1 { 0 } else { (4 * threads - 1) / shape.n_head_kv }
}

/// Partial results kept at once: enough for all threads, little enough for the second-level caches.
fn blocks_of_a_round(threads: usize) -> usize {
    (16 * threads).max(256)
}

/// Softmax statistics of the blocks merged so far: `sum = Σ e^(score - max)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    max: f32,
    sum: f32,
}

impl Default for Running {
    fn default() -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0 }
    }
}

/// Attention: `out[t, h] = Σ_p softmax_p(scale * q[t, h] · k[p]) v[p]` over the positions visible to query `t`.
///
/// `q`: `[T, n_head, head_dim]`; `k`: `[n_head_kv, capacity, head_dim]`; `v`: `[n_head_kv, capacity, head_dim_v]`;
/// `out`: `[T, n_head, head_dim_v]`. The queries' own keys and values must already be stored.
///
/// # Panics
/// If a length does not fit or a visible position is not below the capacity.
#[expect(clippy::too_many_arguments, reason = "three tensors, shape, visibility, scratch and output")]
pub fn attend(
    pool: &Pool,
    q: &[f32],
    k: Kv<'_>,
    v: Kv<'_>,
    shape: &AttnShape,
    visible: Visible<'_>,
    scratch: &mut AttnScratch,
    out: &mut [f32],
) {
    let n_tokens = check(q, k, v, shape, visible, out);
    if n_tokens == 0 {
        return;
    }
    let n_blocks = (0..n_tokens).map(|t| visible.count(t).div_ceil(BLOCK)).max().unwrap_or(0);
    let call = Call { isa: current(), q, k, v, shape, visible, n_tokens, n_blocks };
    if n_blocks > 1 && n_tokens <= few_tokens(shape, pool.threads()) {
        attend_by_block(pool, &call, scratch, out);
    } else {
        attend_by_token(pool, &call, out);
    }
}

fn check(q: &[f32], k: Kv<'_>, v: Kv<'_>, shape: &AttnShape, visible: Visible<'_>, out: &[f32]) -> usize {
    let &AttnShape { n_head, n_head_kv, head_dim, head_dim_v, capacity, .. } = shape;
    assert!(
        n_head_kv > 0 && n_head.is_multiple_of(n_head_kv),
        "{n_head} heads cannot share {n_head_kv} kv heads"
    );
    assert!(n_head > 0 && head_dim > 0 && head_dim_v > 0, "heads have at least one value");
    assert!(q.len().is_multiple_of(n_head * head_dim), "q is [T, n_head, head_dim]");
    let n_tokens = q.len() / (n_head * head_dim);
    assert_eq!(out.len(), n_tokens * n_head * head_dim_v, "the output is [T, n_head, head_dim_v]");
    assert_eq!(k.len(), n_head_kv * capacity * head_dim, "K is [n_head_kv, capacity, head_dim]");
    assert_eq!(v.len(), n_head_kv * capacity * head_dim_v, "V is [n_head_kv, capacity, head_dim_v]");
    match visible {
        Visible::Causal { first_position } => assert!(
            n_tokens <= capacity && first_position <= capacity - n_tokens,
            "queries at {first_position}..{} are beyond the capacity of {capacity}",
            first_position + n_tokens
        ),
        Visible::Lists { offsets, .. } => {
            assert_eq!(offsets.len(), n_tokens + 1, "one list for each query");
        }
    }
    n_tokens
}

/// A task's own memory, on its stack: 17 KiB.
struct Work {
    positions: [u32; BLOCK],
    weights: [[f32; BLOCK]; HEADS],
}

impl Work {
    fn new() -> Self {
        Self { positions: [0; BLOCK], weights: [[0.0; BLOCK]; HEADS] }
    }
}

/// What all tasks of a call share.
struct Call<'a> {
    isa: Isa,
    q: &'a [f32],
    k: Kv<'a>,
    v: Kv<'a>,
    shape: &'a AttnShape,
    visible: Visible<'a>,
    n_tokens: usize,
    /// Blocks of the query that sees most.
    n_blocks: usize,
}

impl Call<'_> {
    /// Query heads of kv head `h`.
    fn heads(&self, h: usize) -> Range<usize> {
        let heads = self.shape.n_head / self.shape.n_head_kv;
        h * heads..(h + 1) * heads
    }

    /// Computes block `b` of query `t` for `heads` (at most [`HEADS`], of one kv head) and merges it into `running`
    /// and `out` (`[heads, head_dim_v]`), or starts those with it if it is their `first`. Nothing if there is no
    /// such block.
    #[expect(clippy::too_many_arguments, reason = "which block, and where its result goes")]
    fn attend(
        &self,
        work: &mut Work,
        t: usize,
        b: usize,
        heads: Range<usize>,
        first: bool,
        running: &mut [Running],
        out: &mut [f32],
    ) {
        let &AttnShape { n_head, n_head_kv, head_dim, head_dim_v, capacity, scale } = self.shape;
        let n = self.visible.block(t, b, &mut work.positions);
        if n == 0 {
            return;
        }
        let h = heads.start / (n_head / n_head_kv);
        let block = Block {
            q: &self.q[(t * n_head + heads.start) * head_dim..(t * n_head + heads.end) * head_dim],
            k: slice(self.k, h * capacity * head_dim..(h + 1) * capacity * head_dim),
            v: slice(self.v, h * capacity * head_dim_v..(h + 1) * capacity * head_dim_v),
            positions: &work.positions[..n],
            head_dim,
            head_dim_v,
            scale,
        };
        attend_block(self.isa, &block, first, &mut work.weights, running, out);
    }
}

fn slice(kv: Kv<'_>, range: Range<usize>) -> Kv<'_> {
    match kv {
        Kv::F32(x) => Kv::F32(&x[range]),
        Kv::F16(x) => Kv::F16(&x[range]),
    }
}

/// Cuts `heads` into turns of at most [`HEADS`].
fn turns(heads: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    heads.clone().step_by(HEADS).map(move |start| start..heads.end.min(start + HEADS))
}

fn attend_by_token(pool: &Pool, call: &Call<'_>, out: &mut [f32]) {
    let &AttnShape { n_head, n_head_kv, head_dim_v: width, .. } = call.shape;
    // As many tokens in a task as leave several tasks for each thread.
    let tokens = (call.n_tokens * n_head_kv / (4 * pool.threads())).clamp(1, TOKENS);
    let n_tiles = call.n_tokens.div_ceil(tokens);
    let out = Disjoint::new(out);
    pool.run(n_tiles * n_head_kv, 1, &|tasks| {
        let mut work = Work::new();
        for task in tasks {
            let (tile, h) = (task / n_head_kv, task % n_head_kv);
            let tile = tile * tokens..call.n_tokens.min((tile + 1) * tokens);
            for heads in turns(call.heads(h)) {
                let mut running = [[Running::default(); HEADS]; TOKENS];
                for b in 0..call.n_blocks {
                    for (t, running) in tile.clone().zip(&mut running) {
                        // SAFETY: each (token, head) is in one task.
                        let out = unsafe {
                            out.part((t * n_head + heads.start) * width..(t * n_head + heads.end) * width)
                        };
                        call.attend(&mut work, t, b, heads.clone(), b == 0, &mut running[..heads.len()], out);
                    }
                }
                for (t, running) in tile.clone().zip(&running) {
                    // SAFETY: as above.
                    let out = unsafe {
                        out.part((t * n_head + heads.start) * width..(t * n_head + heads.end) * width)
                    };
                    finish(call, t, &running[..heads.len()], out);
                }
            }
        }
    });
}

fn attend_by_block(pool: &Pool, call: &Call<'_>, scratch: &mut AttnScratch, out: &mut [f32]) {
    let &AttnShape { n_head, n_head_kv, head_dim_v: width, .. } = call.shape;
    let heads_each = n_head / n_head_kv;
    // Units in the order (token, kv head, block), so that a round holds consecutive blocks of a query.
    let n_units = call.n_tokens * n_head_kv * call.n_blocks;
    let per_round = blocks_of_a_round(pool.threads()).min(n_units);
    scratch.grow(call.shape, per_round, call.n_tokens);
    for round in (0..n_units).step_by(per_round) {
        let units = round..n_units.min(round + per_round);
        let (values, partial) = (Disjoint::new(&mut scratch.values), Disjoint::new(&mut scratch.partial));
        pool.run(units.len(), 1, &|tasks| {
            let mut work = Work::new();
            for slot in tasks {
                let unit = units.start + slot;
                let (query, b) = (unit / call.n_blocks, unit % call.n_blocks);
                let (t, h) = (query / n_head_kv, query % n_head_kv);
                for heads in turns(call.heads(h)) {
                    let first = slot * heads_each + heads.start - h * heads_each;
                    // SAFETY: each unit has its own slot, and each turn its own heads in it.
                    let partial = unsafe { partial.part(first..first + heads.len()) };
                    // SAFETY: as above.
                    let values = unsafe { values.part(first * width..(first + heads.len()) * width) };
                    call.attend(&mut work, t, b, heads, true, partial, values);
                }
            }
        });
        let (values, partial) = (&scratch.values, &scratch.partial);
        let (running, out) = (Disjoint::new(&mut scratch.running), Disjoint::new(&mut *out));
        pool.run(call.n_tokens * n_head, n_head.div_ceil(8), &|tasks| {
            for task in tasks {
                let (t, head) = (task / n_head, task % n_head);
                let h = head / heads_each;
                // SAFETY: each (token, head) is in one task.
                let running = unsafe { &mut running.part(task..task + 1)[0] };
                // SAFETY: as above.
                let out = unsafe { out.part(task * width..(task + 1) * width) };
                let all = (t * n_head_kv + h) * call.n_blocks;
                for unit in units.start.max(all)..units.end.min(all + call.n_blocks) {
                    if (unit - all) * BLOCK >= call.visible.count(t) {
                        break;
                    }
                    let row = (unit - units.start) * heads_each + head - h * heads_each;
                    let values = &values[row * width..][..width];
                    if unit == all {
                        *running = partial[row];
                        out.copy_from_slice(values);
                    } else {
                        merge_block(call.isa, running, partial[row], out, values);
                    }
                }
                if units.contains(&(all + call.n_blocks - 1)) {
                    finish(call, t, std::slice::from_ref(running), out);
                }
            }
        });
    }
}

/// Divides the merged values by the sum of the weights.
fn finish(call: &Call<'_>, t: usize, running: &[Running], out: &mut [f32]) {
    if call.visible.count(t) == 0 {
        out.fill(0.0);
    } else {
        scale_rows(call.isa, running, call.shape.head_dim_v, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_scratch_does_not_grow() {
        let shape =
            AttnShape { n_head: 6, n_head_kv: 2, head_dim: 4, head_dim_v: 4, capacity: 3000, scale: 0.5 };
        let pool = Pool::new(3);
        let mut scratch = AttnScratch::new();
        scratch.reserve(&shape, pool.threads());
        let room = |s: &AttnScratch| [s.values.capacity(), s.partial.capacity(), s.running.capacity()];
        let reserved = room(&scratch);
        assert!(reserved.iter().all(|&n| n > 0), "three threads spread a few tokens block by block");
        let kv = vec![0.25; 2 * 3000 * 4];
        for n_tokens in 1..8 {
            let mut out = vec![0.0; n_tokens * 24];
            let visible = Visible::Causal { first_position: 3000 - n_tokens };
            let q = vec![1.0; n_tokens * 24];
            attend(&pool, &q, Kv::F32(&kv), Kv::F32(&kv), &shape, visible, &mut scratch, &mut out);
            assert_eq!(room(&scratch), reserved, "{n_tokens} tokens");
            assert!(out.iter().all(|&x| x == 0.25), "the mean of equal values");
        }
    }
}
