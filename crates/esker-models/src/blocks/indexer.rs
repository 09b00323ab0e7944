//! The block index of sparse attention (QSA of `qwen4exp`): chooses what queries may see. Tensors `indexer.*`.

use crate::layers::rope_spec;
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    Ctx, IndexKeys, Matrix, RopeAngles, RopeSpec, RopeStyle, Rows, SelectScratch, Selection, Vector,
    matmul_many, rms_norm_heads, rope_heads, select_positions,
};
use std::ops::Range;

/// The block index of sparse attention.
#[derive(Clone, Debug)]
pub(crate) struct IndexHparams {
    pub(crate) n_head: usize,
    pub(crate) dim: usize,
    /// Tokens per block.
    pub(crate) ratio: usize,
    /// Blocks that a query may see besides the tail.
    pub(crate) budget: usize,
    pub(crate) rope: RopeSpec,
}

impl IndexHparams {
    /// `None` if the file attends densely everywhere.
    pub(crate) fn load(
        t: &Tensors<'_>,
        recurrent: &[bool],
        notes: &mut Vec<String>,
    ) -> Result<Option<IndexHparams>, LoadError> {
        let Some(first) = recurrent.iter().position(|r| !r) else { return Ok(None) };
        if !t.has(&format!("blk.{first}.indexer.k_proj.weight")) {
            return Ok(None);
        }
        let ratios =
            t.gguf().metadata.opt_u32_array("qwen4exp.attention.compress_ratios")?.unwrap_or_default();
        let of_attention =
            || ratios.iter().zip(recurrent).filter(|(_, r)| !**r).map(|(ratio, _)| *ratio as usize);
        let ratio = match of_attention().find(|&r| r != 0) {
            Some(ratio) if of_attention().all(|r| r == ratio) && (2..=1024).contains(&ratio) => ratio,
            Some(_) => {
                let expected = "one ratio of 2 to 1024 for all attention layers";
                return Err(t.bad_value("attention.compress_ratios", format!("{ratios:?}"), expected));
            }
            // A converter that renames the layer type writes zeros although the index is there.
            None => {
                notes.push(
                    "attention.compress_ratios is all zero although the file has indexer tensors: using 4, the ratio \
                     of the released model"
                        .to_owned(),
                );
                4
            }
        };
        let top_k = t.count("attention.indexer.top_k")?;
        if !top_k.is_multiple_of(ratio) {
            return Err(t.bad_value(
                "attention.indexer.top_k",
                top_k,
                format!("a multiple of the ratio {ratio}"),
            ));
        }
        let dim = t.count("attention.indexer.key_length")?;
        let rope = rope_spec(t, dim, RopeStyle::HalfSplit)?;
        Ok(Some(IndexHparams {
            n_head: t.count("attention.indexer.head_count")?,
            dim,
            ratio,
            budget: top_k / ratio,
            rope,
        }))
    }
}

/// Chooses what attention may see. Tensors `indexer.*`.
pub(crate) struct Indexer {
    q_proj: Matrix, // [n_head * dim, n_embd]
    k_proj: Matrix, // [dim, n_embd]
    q_norm: Vector, // [dim]
    k_norm: Vector, // [dim]
}

impl Indexer {
    pub(crate) fn load(
        t: &mut Tensors<'_>,
        il: usize,
        hp: &IndexHparams,
        n_embd: usize,
    ) -> Result<Indexer, LoadError> {
        let name = |part: &str| format!("blk.{il}.indexer.{part}.weight");
        Ok(Indexer {
            q_proj: t.matrix(&name("q_proj"), hp.n_head * hp.dim, n_embd)?,
            k_proj: t.matrix(&name("k_proj"), hp.dim, n_embd)?,
            q_norm: t.vector(&name("q_norm"), &[hp.dim])?,
            k_norm: t.vector(&name("k_norm"), &[hp.dim])?,
        })
    }

    /// The index queries and raw keys of all rows `x`, `[n_rows, n_embd]`; `angles` are those of `hp.rope`.
    pub(crate) fn queries<'a>(
        &'a self,
        ctx: &Ctx,
        hp: &'a IndexHparams,
        eps: f32,
        x: &Rows,
        angles: &RopeAngles,
        scratch: &'a mut SelectScratch,
    ) -> IndexQueries<'a> {
        let [mut queries, keys] = matmul_many(ctx, [&self.q_proj, &self.k_proj], x);
        rms_norm_heads(ctx, &mut queries, &self.q_norm, eps);
        rope_heads(ctx, &mut queries, hp.dim, angles);
        IndexQueries { indexer: self, hp, eps, queries, keys, scratch }
    }
}

/// What a layer's index is asked in a pass.
pub(crate) struct IndexQueries<'a> {
    indexer: &'a Indexer,
    hp: &'a IndexHparams,
    eps: f32,
    /// `[n_rows, n_head * dim]`
    queries: Rows,
    /// `[n_rows, dim]`, raw
    keys: Rows,
    scratch: &'a mut SelectScratch,
}

impl IndexQueries<'_> {
    /// Adds the raw keys of the rows `rows` to those of their sequence, and selects for each row. Keys are needed from the
    /// first token on, scores only once a sequence has outgrown the budget.
    pub(crate) fn select(&mut self, ctx: &Ctx, rows: Range<usize>, keys: &mut IndexKeys) -> &Selection {
        keys.push(ctx, &self.keys, rows.clone(), &self.indexer.k_norm, self.eps, &self.hp.rope);
        select_positions(ctx, &self.queries, rows, keys, self.hp.budget, self.scratch)
    }
}
