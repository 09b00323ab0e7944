//! The feed-forward of a layer without experts: `down(silu(gate x) ⊙ (up x))`.

use crate::tensors::{LoadError, Tensors};
use esker_ops::{Ctx, Matrix, Rows, matmul, matmul_many, swiglu};

/// One layer's weights; names are those of the file.
pub struct DenseFfn {
    ffn_gate: Matrix, // [n_ff, n_embd]
    ffn_up: Matrix,   // [n_ff, n_embd]
    ffn_down: Matrix, // [n_embd, n_ff]
}

impl DenseFfn {
    /// Reads block `il`'s tensors.
    pub fn load(t: &mut Tensors<'_>, il: usize, n_ff: usize, n_embd: usize) -> Result<DenseFfn, LoadError> {
        Ok(DenseFfn {
            ffn_gate: t.matrix(&format!("blk.{il}.ffn_gate.weight"), n_ff, n_embd)?,
            ffn_up: t.matrix(&format!("blk.{il}.ffn_up.weight"), n_ff, n_embd)?,
            ffn_down: t.matrix(&format!("blk.{il}.ffn_down.weight"), n_embd, n_ff)?,
        })
    }

    /// `x`: `[n_tokens, n_embd]`, normed.
    pub fn forward(&self, ctx: &Ctx, x: &Rows) -> Rows {
        let [gate, up] = matmul_many(ctx, [&self.ffn_gate, &self.ffn_up], x);
        matmul(ctx, &self.ffn_down, &swiglu(ctx, &gate, up))
    }
}
