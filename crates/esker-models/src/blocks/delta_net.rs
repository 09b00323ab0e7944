//! Gated DeltaNet: a linear-attention layer with a fixed-size state. Source: arXiv:2412.06464.

use crate::pass::{Segment, of_layer};
use crate::state::LayerState;
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    Ctx, DeltaShape, HeadPairing, Matrix, Rows, ShortConv, Vector, delta_net, l2_norm_columns, matmul,
    matmul_many, rms_norm_heads, short_conv, sigmoid, sigmoid_gate, silu_gate, softplus_decay,
};

/// Added to the sum of squares (not to the mean) when queries and keys are normalised.
const L2_EPS: f32 = 1e-6;

/// The activation of the output gate `z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// `qwen4exp`
    Sigmoid,
    /// `qwen3next`, `qwen35moe`
    Silu,
}

/// Sizes and choices of a model's delta-net layers.
#[derive(Clone, Copy, Debug)]
pub struct DeltaHparams {
    /// Key (and query) heads.
    pub n_k: usize,
    /// Value heads.
    pub n_v: usize,
    /// Width of a head, of keys and values alike.
    pub d: usize,
    /// Taps of the short convolution.
    pub taps: usize,
    /// Which key head a value head reads.
    pub pairing: HeadPairing,
    /// Activation of the output gate.
    pub gate: OutputGate,
    /// Of the output norm.
    pub eps: f32,
}

impl DeltaHparams {
    /// Reads the `ssm.*` keys.
    pub fn load(
        t: &Tensors<'_>,
        pairing: HeadPairing,
        gate: OutputGate,
        eps: f32,
    ) -> Result<DeltaHparams, LoadError> {
        let hp = DeltaHparams {
            n_k: t.count("ssm.group_count")?,
            n_v: t.count("ssm.time_step_rank")?,
            d: t.count("ssm.state_size")?,
            taps: t.count("ssm.conv_kernel")?,
            pairing,
            gate,
            eps,
        };
        let inner = t.count("ssm.inner_size")?;
        if inner != hp.n_v * hp.d {
            let expected = format!("ssm.time_step_rank * ssm.state_size = {}", hp.n_v * hp.d);
            return Err(t.bad_value("ssm.inner_size", inner, expected));
        }
        if !hp.n_v.is_multiple_of(hp.n_k) {
            return Err(t.bad_value(
                "ssm.time_step_rank",
                hp.n_v,
                format!("a multiple of ssm.group_count = {}", hp.n_k),
            ));
        }
        if !(2..=64).contains(&hp.taps) {
            return Err(t.bad_value("ssm.conv_kernel", hp.taps, "2 to 64"));
        }
        Ok(hp)
    }

    /// Width of all query (or key) heads.
    pub fn key_dim(&self) -> usize {
        self.n_k * self.d
    }

    /// Width of all value heads.
    pub fn value_dim(&self) -> usize {
        self.n_v * self.d
    }

    /// Channels of the convolution: q, k, v.
    pub fn conv_dim(&self) -> usize {
        2 * self.key_dim() + self.value_dim()
    }

    /// A fresh state: all zero.
    pub fn new_state(&self) -> LayerState {
        LayerState::Recurrent {
            state: vec![0.0; self.n_v * self.d * self.d],
            conv: vec![0.0; (self.taps - 1) * self.conv_dim()],
        }
    }

    /// Bytes of [`new_state`](Self::new_state).
    pub fn state_bytes(&self) -> usize {
        4 * (self.n_v * self.d * self.d + (self.taps - 1) * self.conv_dim())
    }
}

/// The projections of `beta` and `alpha`.
enum BetaAlpha {
    /// `[n_v, n_embd]` each.
    Separate { ssm_beta: Matrix, ssm_alpha: Matrix },
    /// `[2 * n_v, n_embd]`: for each key head its value heads' beta rows, then their alpha rows.
    PerKeyHead { ssm_ba: Matrix },
}

/// One layer's weights; names are those of the file.
pub struct DeltaNet {
    attn_qkv: Matrix,
    attn_gate: Matrix,
    ssm_conv1d: Vector,
    beta_alpha: BetaAlpha,
    ssm_dt: Vector,
    ssm_a: Vector,
    ssm_norm: Vector,
    ssm_out: Matrix,
}

impl DeltaNet {
    /// Reads block `il`'s tensors.
    pub fn load(
        t: &mut Tensors<'_>,
        il: usize,
        hp: &DeltaHparams,
        n_embd: usize,
    ) -> Result<DeltaNet, LoadError> {
        let name = |part: &str| format!("blk.{il}.{part}");
        let beta_alpha = if t.has(&name("ssm_ba.weight")) {
            BetaAlpha::PerKeyHead { ssm_ba: t.matrix(&name("ssm_ba.weight"), 2 * hp.n_v, n_embd)? }
        } else {
            BetaAlpha::Separate {
                ssm_beta: t.matrix(&name("ssm_beta.weight"), hp.n_v, n_embd)?,
                ssm_alpha: t.matrix(&name("ssm_alpha.weight"), hp.n_v, n_embd)?,
            }
        };
        Ok(DeltaNet {
            attn_qkv: t.matrix(&name("attn_qkv.weight"), hp.conv_dim(), n_embd)?,
            attn_gate: t.matrix(&name("attn_gate.weight"), hp.value_dim(), n_embd)?,
            ssm_conv1d: t.vector(&name("ssm_conv1d.weight"), &[hp.conv_dim(), hp.taps])?,
            beta_alpha,
            ssm_dt: t.vector(&name("ssm_dt.bias"), &[hp.n_v])?,
            ssm_a: t.vector(&name("ssm_a"), &[hp.n_v])?,
            ssm_norm: t.vector(&name("ssm_norm.weight"), &[hp.d])?,
            ssm_out: t.matrix(&name("ssm_out.weight"), n_embd, hp.value_dim())?,
        })
    }

    /// `x`: `[n_rows, n_embd]`, normed; this is layer `il`. The recurrence runs token by token also in a prompt, so that a
    /// chunk's size cannot change a bit.
    pub(crate) fn forward(
        &self,
        ctx: &Ctx,
        hp: &DeltaHparams,
        x: &Rows,
        segments: &mut [Segment<'_>],
        il: usize,
    ) -> Rows {
        let (qkv, z, mut beta, mut decay) = match &self.beta_alpha {
            BetaAlpha::Separate { ssm_beta, ssm_alpha } => {
                let [qkv, z, beta, alpha] =
                    matmul_many(ctx, [&self.attn_qkv, &self.attn_gate, ssm_beta, ssm_alpha], x);
                (qkv, z, beta, alpha)
            }
            BetaAlpha::PerKeyHead { ssm_ba } => {
                let [qkv, z, ba] = matmul_many(ctx, [&self.attn_qkv, &self.attn_gate, ssm_ba], x);
                let (beta, alpha) = esker_ops::split_interleaved(ctx, &ba, hp.n_v / hp.n_k);
                (qkv, z, beta, alpha)
            }
        };
        sigmoid(ctx, &mut beta, 1.0, 1.0);
        softplus_decay(ctx, &mut decay, &self.ssm_dt, &self.ssm_a);
        let conv_of = ShortConv { kernel: &self.ssm_conv1d, dilation: 1 };
        let shape = DeltaShape { n_k: hp.n_k, n_v: hp.n_v, d: hp.d, pairing: hp.pairing };
        let mut mixed = ctx.rows(qkv.n_rows(), qkv.n_cols());
        for (rows, state) in of_layer(segments, il) {
            let LayerState::Recurrent { conv, .. } = state else {
                unreachable!("states are made by new_state")
            };
            short_conv(ctx, &qkv, rows, conv, conv_of, &mut mixed);
        }
        drop(qkv);
        let (queries, keys) = (0..hp.key_dim(), hp.key_dim()..2 * hp.key_dim());
        l2_norm_columns(ctx, &mut mixed, queries, hp.d, L2_EPS, 1.0 / (hp.d as f32).sqrt());
        l2_norm_columns(ctx, &mut mixed, keys, hp.d, L2_EPS, 1.0);
        let mut o = ctx.rows(mixed.n_rows(), hp.value_dim());
        for (rows, state) in of_layer(segments, il) {
            let LayerState::Recurrent { state, .. } = state else {
                unreachable!("states are made by new_state")
            };
            delta_net(ctx, &mixed, &decay, &beta, rows, state, &shape, &mut o);
        }
        rms_norm_heads(ctx, &mut o, &self.ssm_norm, hp.eps);
        match hp.gate {
            OutputGate::Sigmoid => sigmoid_gate(ctx, &mut o, &z),
            OutputGate::Silu => silu_gate(ctx, &mut o, &z),
        }
        matmul(ctx, &self.ssm_out, &o)
    }
}
