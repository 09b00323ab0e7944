//! Grouped-query attention: plain, and with per-head norms and an output gate (`qwen3next`, `qwen35moe`, `qwen4exp`).

use crate::blocks::indexer::IndexQueries;
use crate::pass::{Segment, of_layer};
use crate::state::LayerState;
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    Ctx, Matrix, RopeAngles, Rows, Selection, Vector, attend, matmul, matmul_many, rms_norm_heads,
    rope_heads, sigmoid_gate, split_interleaved,
};
use std::ops::Range;

/// Head counts and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads; each serves `n_head / n_head_kv` query heads.
    pub n_head_kv: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl Heads {
    /// Reads the `attention.*` keys. A missing key length is the embedding's share.
    pub fn load(t: &Tensors<'_>, n_layer: usize, n_embd: usize) -> Result<Heads, LoadError> {
        let n_head = t.uniform_count("attention.head_count", n_layer)?;
        let n_head_kv = match t.opt_count("attention.head_count_kv") {
            Ok(None) => n_head,
            _ => t.uniform_count("attention.head_count_kv", n_layer)?,
        };
        let head_dim = match t.opt_count("attention.key_length")? {
            Some(_) => t.count("attention.key_length")?,
            None if n_embd.is_multiple_of(n_head) => n_embd / n_head,
            None => {
                return Err(t.bad_value("attention.head_count", n_head, format!("a divisor of {n_embd}")));
            }
        };
        if let Some(value) = t.opt_count("attention.value_length")?
            && value != head_dim
        {
            return Err(t.bad_value("attention.value_length", value, format!("the key length {head_dim}")));
        }
        if !n_head.is_multiple_of(n_head_kv) {
            return Err(t.bad_value("attention.head_count_kv", n_head_kv, format!("a divisor of {n_head}")));
        }
        Ok(Heads { n_head, n_head_kv, head_dim })
    }

    /// Width of all query heads.
    pub fn q_dim(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Width of all key (or value) heads.
    pub fn kv_dim(&self) -> usize {
        self.n_head_kv * self.head_dim
    }

    /// `1 / sqrt(head_dim)`, the factor on scores.
    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
}

/// One layer's weights of attention without a gate; names are those of the file.
pub struct PlainAttention {
    heads: Heads,
    attn_q: Matrix,      // [n_head * head_dim, n_embd]
    attn_k: Matrix,      // [n_head_kv * head_dim, n_embd]
    attn_v: Matrix,      // [n_head_kv * head_dim, n_embd]
    attn_output: Matrix, // [n_embd, n_head * head_dim]
}

impl PlainAttention {
    /// Reads block `il`'s tensors.
    pub fn load(
        t: &mut Tensors<'_>,
        il: usize,
        heads: Heads,
        n_embd: usize,
    ) -> Result<PlainAttention, LoadError> {
        let name = |part: &str| format!("blk.{il}.{part}.weight");
        Ok(PlainAttention {
            heads,
            attn_q: t.matrix(&name("attn_q"), heads.q_dim(), n_embd)?,
            attn_k: t.matrix(&name("attn_k"), heads.kv_dim(), n_embd)?,
            attn_v: t.matrix(&name("attn_v"), heads.kv_dim(), n_embd)?,
            attn_output: t.matrix(&name("attn_output"), n_embd, heads.q_dim())?,
        })
    }

    /// `x`: `[n_rows, n_embd]`, normed; this is layer `il`. `norm` is handed queries and keys before they are turned:
    /// architectures that norm them do it there.
    pub(crate) fn forward(
        &self,
        ctx: &Ctx,
        x: &Rows,
        angles: &RopeAngles,
        segments: &mut [Segment<'_>],
        il: usize,
        norm: impl FnOnce(Rows, Rows) -> (Rows, Rows),
    ) -> Rows {
        let [q, k, v] = matmul_many(ctx, [&self.attn_q, &self.attn_k, &self.attn_v], x);
        let (mut q, mut k) = norm(q, k);
        rope_heads(ctx, &mut q, self.heads.head_dim, angles);
        rope_heads(ctx, &mut k, self.heads.head_dim, angles);
        let out = attend_each(ctx, [&q, &k, &v], self.heads, of_layer(segments, il), None);
        matmul(ctx, &self.attn_output, &out)
    }
}

/// Every sequence's queries over its own keys and values, to which those of its rows are added first.
fn attend_each<'s>(
    ctx: &Ctx,
    [q, k, v]: [&Rows; 3],
    heads: Heads,
    states: impl Iterator<Item = (Range<usize>, &'s mut LayerState)>,
    mut index: Option<IndexQueries<'_>>,
) -> Rows {
    let causal = Selection::causal();
    let mut out = ctx.rows(q.n_rows(), q.n_cols());
    for (rows, state) in states {
        let LayerState::Attention { kv, index: keys } = state else {
            unreachable!("states are made by new_state")
        };
        let selection = match (&mut index, keys) {
            (Some(queries), Some(keys)) => queries.select(ctx, rows.clone(), keys),
            _ => &causal,
        };
        kv.push(ctx, k, v, rows.clone());
        attend(ctx, q, rows, kv, heads.scale(), selection, &mut out);
    }
    out
}

/// One layer's weights of gated attention; names are those of the file.
pub struct GatedAttention {
    heads: Heads,
    eps: f32,
    attn_q: Matrix,      // [n_head * 2 * head_dim, n_embd]: per head the query, then the gate
    attn_k: Matrix,      // [n_head_kv * head_dim, n_embd]
    attn_v: Matrix,      // [n_head_kv * head_dim, n_embd]
    attn_output: Matrix, // [n_embd, n_head * head_dim]
    attn_q_norm: Vector, // [head_dim]
    attn_k_norm: Vector, // [head_dim]
}

impl GatedAttention {
    /// Reads block `il`'s tensors.
    pub fn load(
        t: &mut Tensors<'_>,
        il: usize,
        heads: Heads,
        eps: f32,
        n_embd: usize,
    ) -> Result<GatedAttention, LoadError> {
        let name = |part: &str| format!("blk.{il}.{part}.weight");
        Ok(GatedAttention {
            heads,
            eps,
            attn_q: t.matrix(&name("attn_q"), 2 * heads.q_dim(), n_embd)?,
            attn_k: t.matrix(&name("attn_k"), heads.kv_dim(), n_embd)?,
            attn_v: t.matrix(&name("attn_v"), heads.kv_dim(), n_embd)?,
            attn_output: t.matrix(&name("attn_output"), n_embd, heads.q_dim())?,
            attn_q_norm: t.vector(&name("attn_q_norm"), &[heads.head_dim])?,
            attn_k_norm: t.vector(&name("attn_k_norm"), &[heads.head_dim])?,
        })
    }

    /// `x`: `[n_rows, n_embd]`, normed; this is layer `il`. `index` chooses what each token may see; without, it is its own
    /// position and all before it.
    pub(crate) fn forward(
        &self,
        ctx: &Ctx,
        x: &Rows,
        angles: &RopeAngles,
        segments: &mut [Segment<'_>],
        il: usize,
        index: Option<IndexQueries<'_>>,
    ) -> Rows {
        let &GatedAttention { heads, eps, .. } = self;
        let [q_gate, mut k, v] = matmul_many(ctx, [&self.attn_q, &self.attn_k, &self.attn_v], x);
        let (mut q, gate) = split_interleaved(ctx, &q_gate, heads.head_dim);
        rms_norm_heads(ctx, &mut q, &self.attn_q_norm, eps);
        rms_norm_heads(ctx, &mut k, &self.attn_k_norm, eps);
        rope_heads(ctx, &mut q, heads.head_dim, angles);
        rope_heads(ctx, &mut k, heads.head_dim, angles);
        let mut out = attend_each(ctx, [&q, &k, &v], heads, of_layer(segments, il), index);
        sigmoid_gate(ctx, &mut out, &gate);
        matmul(ctx, &self.attn_output, &out)
    }
}
