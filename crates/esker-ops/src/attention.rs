//! KV cache, block index and attention over them.

use crate::rope::{RopeAngles, RopeSpec};
use crate::{Ctx, Op, Rows, Vector, rms_norm_heads, rope_heads};
use esker_kernels as k;
use esker_kernels::{AttnShape, Kv, KvMut, Visible};

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

    /// Forgets the positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Pretends that `len` positions are filled.
    pub fn skip_to(&mut self, len: usize) {
        assert!(len <= self.capacity, "within the capacity");
        self.len = len;
    }

    /// Appends `[n_tokens, n_head_kv * head_dim]` keys and values.
    ///
    /// # Panics
    /// If there is no room: sessions check their context before a pass.
    pub fn push(&mut self, ctx: &Ctx, keys: &Rows, values: &Rows) {
        let _timer = ctx.time(Op::KvStore);
        assert!(self.len + keys.n_rows() <= self.capacity, "the session checked that the tokens fit");
        let (h, c, d, first) = (self.n_head_kv, self.capacity, self.head_dim, self.len);
        let (k_dst, v_dst) = match &mut self.store {
            KvStore::F32 { keys, values } => (KvMut::F32(keys), KvMut::F32(values)),
            KvStore::F16 { keys, values } => (KvMut::F16(keys), KvMut::F16(values)),
        };
        k::kv_store(&ctx.pool, keys.data(), k_dst, h, c, d, first);
        k::kv_store(&ctx.pool, values.data(), v_dst, h, c, d, first);
        self.len += keys.n_rows();
    }
}

/// Which positions the queries of a pass may see.
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

/// Grouped-query attention of `q`, `[n_tokens, n_head * head_dim]`, over a cache that already holds the tokens' own
/// keys and values. Returns the same shape as `q`.
pub fn attend(ctx: &Ctx, q: &Rows, kv: &KvCache, scale: f32, selection: &Selection) -> Rows {
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
        false => Visible::Causal { first_position: kv.len - q.n_rows() },
        true => Visible::Lists { offsets: &selection.offsets, positions: &selection.positions },
    };
    let (keys, values) = match &kv.store {
        KvStore::F32 { keys, values } => (Kv::F32(keys), Kv::F32(values)),
        KvStore::F16 { keys, values } => (Kv::F16(keys), Kv::F16(values)),
    };
    let mut out = ctx.rows(q.n_rows(), q.n_cols());
    k::attend(&ctx.pool, q.data(), keys, values, &shape, visible, &mut ctx.attn.borrow_mut(), out.data_mut());
    out
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
    scores: Vec<f32>,
    chosen: Vec<u32>,
    selection: Selection,
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
            scores: Vec::with_capacity(blocks),
            chosen: Vec::new(),
            selection: Selection::default(),
        }
    }

    /// Bytes of scores and selection lists, which grow with use.
    pub fn scratch_bytes(&self) -> usize {
        (self.scores.capacity() + self.chosen.capacity()) * 4 + self.selection.bytes()
    }

    /// Pretends that `len` positions are filled.
    pub fn skip_to(&mut self, len: usize) {
        self.n_blocks = len / self.ratio;
        self.pending.resize(len % self.ratio * self.dim, 0.0);
    }

    /// Appends raw keys (`[n_tokens, dim]`); completes blocks: mean of the raw keys, then norm, then rope at the position
    /// of the block's first token.
    pub fn push(&mut self, ctx: &Ctx, raw: &Rows, norm: &Vector, eps: f32, rope: &RopeSpec) {
        let _timer = ctx.time(Op::Indexer);
        let pending_tokens = self.pending.len() / self.dim;
        let new_blocks = (pending_tokens + raw.n_rows()) / self.ratio;
        if new_blocks == 0 {
            self.pending.extend_from_slice(raw.data());
            return;
        }
        let mut blocks = ctx.rows(new_blocks, self.dim);
        let mut row = 0;
        for b in 0..new_blocks {
            while self.pending.len() < self.ratio * self.dim {
                self.pending.extend_from_slice(raw.row(row));
                row += 1;
            }
            k::pool_blocks(&ctx.pool, Kv::F32(&self.pending), self.ratio, self.dim, blocks.row_mut(b));
            self.pending.clear();
        }
        while row < raw.n_rows() {
            self.pending.extend_from_slice(raw.row(row));
            row += 1;
        }
        rms_norm_heads(ctx, &mut blocks, norm, eps);
        let first = self.n_blocks;
        let angles = RopeAngles::new(ctx, rope, (0..new_blocks).map(|b| (first + b) * self.ratio));
        rope_heads(ctx, &mut blocks, self.dim, &angles);
        self.pooled[first * self.dim..][..new_blocks * self.dim].copy_from_slice(blocks.data());
        self.n_blocks += new_blocks;
    }
}

/// What the queries of a pass may see: the `budget` best complete blocks by index score, and the tail after the last
/// complete block. `iq`: `[n_tokens, n_index_head * dim]`, normed and turned; the keys already hold the pass's tokens.
///
/// Score of a block: `Σ_head max(0, iq_head · key)`; equal scores go to the lower block. While all blocks fit the budget
/// the result is exactly causal attention.
pub fn select_positions<'k>(
    ctx: &Ctx,
    iq: &Rows,
    keys: &'k mut IndexKeys,
    first_position: usize,
    budget: usize,
) -> &'k Selection {
    let _timer = ctx.time(Op::Indexer);
    let ratio = keys.ratio;
    let last = first_position + iq.n_rows();
    let selection = &mut keys.selection;
    selection.lists = last / ratio > budget;
    if !selection.lists {
        return selection;
    }
    selection.offsets.clear();
    selection.positions.clear();
    selection.offsets.push(0);
    for t in 0..iq.n_rows() {
        let visible = first_position + t + 1;
        let complete = visible / ratio;
        if complete <= budget {
            selection.positions.extend(0..visible as u32);
        } else {
            keys.scores.resize(complete, 0.0);
            let pooled = &keys.pooled[..complete * keys.dim];
            let n_heads = iq.n_cols() / keys.dim;
            k::indexer_scores(&ctx.pool, iq.row(t), Kv::F32(pooled), n_heads, keys.dim, &mut keys.scores);
            keys.chosen.resize(budget, 0);
            k::select_blocks(&keys.scores, budget, &mut keys.chosen);
            for &block in &keys.chosen {
                let start = block * ratio as u32;
                selection.positions.extend(start..start + ratio as u32);
            }
            selection.positions.extend((complete * ratio) as u32..visible as u32);
        }
        selection.offsets.push(selection.positions.len() as u32);
    }
    selection
}
