//! KV cache, block index and attention over them.

use crate::rope::{RopeAngles, RopeSpec};
use crate::{Ctx, Op, Rows, Vector, rms_norm_heads, rope_heads};
use bytemuck::{cast_slice, cast_slice_mut};
use esker_kernels as k;
use esker_kernels::{AttnShape, Kv, KvMut, Visible};
use std::ops::Range;

/// In which type keys and values are kept. They are always read back from it, so that a chunk's own tokens see the
/// same numbers as later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Exact.
    F32,
    /// Half the memory and bandwidth.
    F16,
}

impl KvType {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }
}

enum KvStore {
    F32 { keys: Vec<f32>, values: Vec<f32> },
    F16 { keys: Vec<u16>, values: Vec<u16> },
}

/// Keys and values of one layer of one sequence: `[n_head_kv, capacity, head_dim]` each.
pub struct KvCache {
    store: KvStore,
    n_head_kv: usize,
    head_dim: usize,
    capacity: usize,
    len: usize,
}

impl KvCache {
    /// Room for `capacity` positions. Memory is touched only as positions are filled.
    pub fn new(ty: KvType, n_head_kv: usize, head_dim: usize, capacity: usize) -> KvCache {
        let n = n_head_kv * head_dim * capacity;
        let store = match ty {
            KvType::F32 => KvStore::F32 { keys: vec![0.0; n], values: vec![0.0; n] },
            KvType::F16 => KvStore::F16 { keys: vec![0; n], values: vec![0; n] },
        };
        KvCache { store, n_head_kv, head_dim, capacity, len: 0 }
    }

    /// Positions filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes the first `len` positions count as filled: forgets those after them, or pretends.
    pub fn skip_to(&mut self, len: usize) {
        assert!(len <= self.capacity, "within the capacity");
        self.len = len;
    }

    /// Appends the rows `rows` of `keys` and `values`, `[n_tokens, n_head_kv * head_dim]`.
    ///
    /// # Panics
    /// If there is no room: sessions check their context before a pass.
    pub fn push(&mut self, ctx: &Ctx, keys: &Rows, values: &Rows, rows: Range<usize>) {
        let _timer = ctx.time(Op::KvStore);
        assert!(self.len + rows.len() <= self.capacity, "the session checked that the tokens fit");
        let (h, c, d, first) = (self.n_head_kv, self.capacity, self.head_dim, self.len);
        let (k_dst, v_dst) = match &mut self.store {
            KvStore::F32 { keys, values } => (KvMut::F32(keys), KvMut::F32(values)),
            KvStore::F16 { keys, values } => (KvMut::F16(keys), KvMut::F16(values)),
        };
        k::kv_store(&ctx.pool, keys.rows(rows.clone()), k_dst, h, c, d, first);
        k::kv_store(&ctx.pool, values.rows(rows.clone()), v_dst, h, c, d, first);
        self.len += rows.len();
    }

    /// Shows the bytes of keys and values at `positions`, a piece for each head; always in the same order.
    ///
    /// # Panics
    /// If they are not within the capacity.
    pub fn save(&self, positions: Range<usize>, piece: &mut dyn FnMut(&[u8])) {
        for h in 0..self.n_head_kv {
            let at = self.place(h, &positions);
            match &self.store {
                KvStore::F32 { keys, values } => {
                    piece(cast_slice(&keys[at.clone()]));
                    piece(cast_slice(&values[at]));
                }
                KvStore::F16 { keys, values } => {
                    piece(cast_slice(&keys[at.clone()]));
                    piece(cast_slice(&values[at]));
                }
            }
        }
    }

    /// Hands out the pieces of [`save`](Self::save) to be written. The positions filled are not changed.
    ///
    /// # Panics
    /// As [`save`](Self::save).
    pub fn restore(&mut self, positions: Range<usize>, piece: &mut dyn FnMut(&mut [u8])) {
        for h in 0..self.n_head_kv {
            let at = self.place(h, &positions);
            match &mut self.store {
                KvStore::F32 { keys, values } => {
                    piece(cast_slice_mut(&mut keys[at.clone()]));
                    piece(cast_slice_mut(&mut values[at]));
                }
                KvStore::F16 { keys, values } => {
                    piece(cast_slice_mut(&mut keys[at.clone()]));
                    piece(cast_slice_mut(&mut values[at]));
                }
            }
        }
    }

    fn place(&self, head: usize, positions: &Range<usize>) -> Range<usize> {
        assert!(positions.end <= self.capacity, "positions within the capacity");
        let at = |position: usize| (head * self.capacity + position) * self.head_dim;
        at(positions.start)..at(positions.end)
    }
}

/// Which positions the queries of a sequence may see in a pass.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    lists: bool,
    offsets: Vec<u32>,
    positions: Vec<u32>,
}

impl Selection {
    /// Every position up to the query's own.
    pub fn causal() -> Selection {
        Selection::default()
    }

    /// Memory held, bytes.
    fn bytes(&self) -> usize {
        (self.offsets.capacity() + self.positions.capacity()) * size_of::<u32>()
    }
}

/// Grouped-query attention of the rows `rows` of `q`, `[n_tokens, n_head * head_dim]`, over the cache of their sequence,
/// which already holds their own keys and values. The result goes to the same rows of `out`, of the same shape as `q`.
pub fn attend(
    ctx: &Ctx,
    q: &Rows,
    rows: Range<usize>,
    kv: &KvCache,
    scale: f32,
    selection: &Selection,
    out: &mut Rows,
) {
    let _timer = ctx.time(Op::Attention);
    let shape = AttnShape {
        n_head: q.n_cols() / kv.head_dim,
        n_head_kv: kv.n_head_kv,
        head_dim: kv.head_dim,
        head_dim_v: kv.head_dim,
        capacity: kv.capacity,
        scale,
    };
    let visible = match selection.lists {
        false => Visible::Causal { first_position: kv.len - rows.len() },
        true => Visible::Lists { offsets: &selection.offsets, positions: &selection.positions },
    };
    let (keys, values) = match &kv.store {
        KvStore::F32 { keys, values } => (Kv::F32(keys), Kv::F32(values)),
        KvStore::F16 { keys, values } => (Kv::F16(keys), Kv::F16(values)),
    };
    let (q, out) = (q.rows(rows.clone()), out.rows_mut(rows));
    k::attend(&ctx.pool, q, keys, values, &shape, visible, &mut ctx.attn.borrow_mut(), out);
}

/// The block index of one attention layer: one pooled, normed and turned key per complete block of `ratio` tokens,
/// and the raw keys of the block that is not complete yet. Always f32: half precision is reported to hurt selection.
pub struct IndexKeys {
    ratio: usize,
    dim: usize,
    /// `[len % ratio, dim]` raw keys.
    pending: Vec<f32>,
    /// `[n_blocks, dim]`
    pooled: Vec<f32>,
    n_blocks: usize,
}

impl IndexKeys {
    /// Room for `capacity` positions in blocks of `ratio`.
    pub fn new(ratio: usize, dim: usize, capacity: usize) -> IndexKeys {
        let blocks = capacity / ratio;
        IndexKeys {
            ratio,
            dim,
            pending: Vec::with_capacity(ratio * dim),
            pooled: vec![0.0; blocks * dim],
            n_blocks: 0,
        }
    }

    /// Positions that the index covers.
    pub fn len(&self) -> usize {
        self.n_blocks * self.ratio + self.pending.len() / self.dim
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest length, at most `len`, that the index can be cut to: raw keys of complete blocks are gone.
    pub fn cut(&self, len: usize) -> usize {
        if len >= self.n_blocks * self.ratio { len.min(self.len()) } else { len / self.ratio * self.ratio }
    }

    /// Shows the bytes of the blocks that are completed between the positions `range.start` and `range.end`.
    pub fn save_blocks(&self, positions: Range<usize>, piece: &mut dyn FnMut(&[u8])) {
        piece(cast_slice(&self.pooled[self.blocks_of(&positions)]));
    }

    /// Hands out the piece of [`save_blocks`](Self::save_blocks) to be written. What is covered is not changed.
    pub fn restore_blocks(&mut self, positions: Range<usize>, piece: &mut dyn FnMut(&mut [u8])) {
        let at = self.blocks_of(&positions);
        piece(cast_slice_mut(&mut self.pooled[at]));
    }

    fn blocks_of(&self, positions: &Range<usize>) -> Range<usize> {
        positions.start / self.ratio * self.dim..positions.end / self.ratio * self.dim
    }

    /// The raw keys of the block that is not complete.
    pub fn pending(&self) -> &[f32] {
        &self.pending
    }

    /// Makes the index cover `len` positions, whose blocks are there, and hands out the raw keys of the block that is not
    /// complete to be written.
    pub fn restore_pending(&mut self, len: usize) -> &mut [f32] {
        self.skip_to(len);
        &mut self.pending
    }

    /// Covers the first `len` positions, whose blocks and raw keys are there ([`cut`](Self::cut)), or pretends to.
    pub fn skip_to(&mut self, len: usize) {
        self.n_blocks = len / self.ratio;
        self.pending.resize(len % self.ratio * self.dim, 0.0);
    }

    /// Appends the rows `rows` of raw keys (`[n_tokens, dim]`); completes blocks: mean of the raw keys, then norm, then rope
    /// at the position of the block's first token.
    pub fn push(
        &mut self,
        ctx: &Ctx,
        raw: &Rows,
        rows: Range<usize>,
        norm: &Vector,
        eps: f32,
        rope: &RopeSpec,
    ) {
        let _timer = ctx.time(Op::Indexer);
        let pending_tokens = self.pending.len() / self.dim;
        let new_blocks = (pending_tokens + rows.len()) / self.ratio;
        if new_blocks == 0 {
            self.pending.extend_from_slice(raw.rows(rows));
            return;
        }
        // Always as many as a pass of this size can complete, so that scratch memory can be planned.
        let room = raw.n_rows() / self.ratio + 1;
        let mut blocks = ctx.rows(room, self.dim).first(new_blocks);
        let mut row = rows.start;
        for b in 0..new_blocks {
            while self.pending.len() < self.ratio * self.dim {
                self.pending.extend_from_slice(raw.row(row));
                row += 1;
            }
            k::pool_blocks(&ctx.pool, Kv::F32(&self.pending), self.ratio, self.dim, blocks.row_mut(b));
            self.pending.clear();
        }
        while row < rows.end {
            self.pending.extend_from_slice(raw.row(row));
            row += 1;
        }
        rms_norm_heads(ctx, &mut blocks, norm, eps);
        let first = self.n_blocks;
        let angles = RopeAngles::new(ctx, rope, room, (0..new_blocks).map(|b| (first + b) * self.ratio));
        rope_heads(ctx, &mut blocks, self.dim, &angles);
        self.pooled[first * self.dim..][..new_blocks * self.dim].copy_from_slice(blocks.data());
        self.n_blocks += new_blocks;
    }
}

/// Memory for choosing what queries may see: reused by every layer and sequence.
#[derive(Default)]
pub struct SelectScratch {
    scores: Vec<f32>,
    chosen: Vec<u32>,
    selection: Selection,
}

impl SelectScratch {
    /// Memory held, bytes.
    pub fn bytes(&self) -> usize {
        (self.scores.capacity() + self.chosen.capacity()) * 4 + self.selection.bytes()
    }
}

/// What the queries of a sequence may see: the `budget` best complete blocks by index score, and the tail after the last
/// complete block. `iq`: `[n_tokens, n_index_head * dim]`, normed and turned, of which the rows `rows` are the sequence's;
/// the keys already hold them.
///
/// Score of a block: `Σ_head max(0, iq_head · key)`; equal scores go to the lower block. While all blocks fit the budget
/// the result is exactly causal attention.
pub fn select_positions<'s>(
    ctx: &Ctx,
    iq: &Rows,
    rows: Range<usize>,
    keys: &IndexKeys,
    budget: usize,
    scratch: &'s mut SelectScratch,
) -> &'s Selection {
    let _timer = ctx.time(Op::Indexer);
    let ratio = keys.ratio;
    let last = keys.len();
    let first_position = last - rows.len();
    let SelectScratch { scores, chosen, selection } = scratch;
    selection.lists = last / ratio > budget;
    if !selection.lists {
        return selection;
    }
    // Scores for every position that there is room for, so that a growing sequence allocates nothing.
    scores.clear();
    scores.reserve(keys.pooled.len() / keys.dim);
    selection.offsets.clear();
    selection.positions.clear();
    selection.offsets.push(0);
    for (t, row) in rows.enumerate() {
        let visible = first_position + t + 1;
        let complete = visible / ratio;
        if complete <= budget {
            selection.positions.extend(0..visible as u32);
        } else {
            scores.resize(complete, 0.0);
            let pooled = &keys.pooled[..complete * keys.dim];
            let n_heads = iq.n_cols() / keys.dim;
            k::indexer_scores(&ctx.pool, iq.row(row), Kv::F32(pooled), n_heads, keys.dim, scores);
            chosen.resize(budget, 0);
            k::select_blocks(scores, budget, chosen);
            for &block in chosen.iter() {
                let start = block * ratio as u32;
                selection.positions.extend(start..start + ratio as u32);
            }
            selection.positions.extend((complete * ratio) as u32..visible as u32);
        }
        selection.offsets.push(selection.positions.len() as u32);
    }
    selection
}
