//! Hyper-connections: a residual of several streams. Source: arXiv:2409.19606; the low-rank gated form of `qwen4exp`.

use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    Ctx, Matrix, Rows, Vector, matmul, matmul_many, mix_streams, rms_norm_grouped, sigmoid, silu,
};

/// Sizes shared by all of a model's mixers.
#[derive(Clone, Copy, Debug)]
pub struct HyperShape {
    /// Streams.
    pub n_streams: usize,
    /// Rank of the gate.
    pub low_rank: usize,
    /// Width of a stream.
    pub n_embd: usize,
    /// Of the norm.
    pub eps: f32,
}

/// Turns the wide residual into one sublayer's input, and says how much of its output each stream receives.
pub struct Mixer {
    /// `[n_streams * n_embd]`; the statistic is taken per stream.
    norm: Vector,
    /// `[low_rank, n_streams * n_embd]`
    down: Matrix,
    /// `[n_streams * n_embd, low_rank]`
    up: Matrix,
    /// `[n_streams, n_streams * n_embd]`; the output mixer has none.
    inject: Option<Matrix>,
}

impl Mixer {
    /// Reads `<prefix>_norm`, `_down`, `_up` and, if asked, `_inject`.
    pub fn load(
        t: &mut Tensors<'_>,
        prefix: &str,
        shape: HyperShape,
        inject: bool,
    ) -> Result<Mixer, LoadError> {
        let wide = shape.n_streams * shape.n_embd;
        Ok(Mixer {
            norm: t.vector(&format!("{prefix}_norm.weight"), &[wide])?,
            down: t.matrix(&format!("{prefix}_down.weight"), shape.low_rank, wide)?,
            up: t.matrix(&format!("{prefix}_up.weight"), wide, shape.low_rank)?,
            inject: match inject {
                true => Some(t.matrix(&format!("{prefix}_inject.weight"), shape.n_streams, wide)?),
                false => None,
            },
        })
    }

    /// `r`: `[n_tokens, n_streams * n_embd]`. Returns the sublayer's input `[n_tokens, n_embd]` and the stream weights
    /// `[n_tokens, n_streams]`.
    pub fn mix(&self, ctx: &Ctx, r: &Rows, shape: HyperShape) -> (Rows, Rows) {
        let inject = self.inject.as_ref().expect("mixers of layers are loaded with inject");
        let x = rms_norm_grouped(ctx, r, &self.norm, shape.n_embd, shape.eps);
        let [low, mut w] = matmul_many(ctx, [&self.down, inject], &x);
        sigmoid(ctx, &mut w, 1.0 / shape.n_streams as f32, 2.0);
        (self.gated_mean(ctx, &x, low, shape), w)
    }

    /// As [`mix`](Self::mix), without the stream weights: the output mixer, and predictions.
    pub fn mix_only(&self, ctx: &Ctx, r: &Rows, shape: HyperShape) -> Rows {
        let x = rms_norm_grouped(ctx, r, &self.norm, shape.n_embd, shape.eps);
        let low = matmul(ctx, &self.down, &x);
        self.gated_mean(ctx, &x, low, shape)
    }

    fn gated_mean(&self, ctx: &Ctx, x: &Rows, mut low: Rows, shape: HyperShape) -> Rows {
        // The division by the number of streams is inside the silu.
        silu(ctx, &mut low, 1.0 / shape.n_streams as f32);
        let mut gate = matmul(ctx, &self.up, &low);
        sigmoid(ctx, &mut gate, 1.0, 1.0);
        mix_streams(ctx, x, &gate, shape.n_streams)
    }
}
