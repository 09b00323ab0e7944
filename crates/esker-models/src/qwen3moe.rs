//! Qwen3-MoE. Sources: arXiv:2505.09388 §2; transformers `modeling_qwen3_moe.py`; GGUF arch `qwen3moe`.
//!
//! A Llama block with two changes: RMSNorm on every query and key head before RoPE, and a routed feed-forward (softmax
//! over all experts, top-k, renormalise). No biases, no shared expert.

use crate::blocks::attention::{Heads, PlainAttention};
use crate::blocks::moe::{Gating, moe};
use crate::layers::{attention_state, attention_state_bytes, predict_routes, rope_spec, trunk_layers};
use crate::pass::{Pass, Segment, advance, logits, n_rows, output_rows, positions};
use crate::state::{SequenceState, StateBytes, StateOptions};
use crate::store::{StoreError, TableId};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    KvType, Matrix, RopeAngles, RopeSpec, RopeStyle, Rows, Vector, add, rms_norm, rms_norm_heads,
};

struct Hparams {
    heads: Heads,
    eps: f32,
    rope: RopeSpec,
    gating: Gating,
}

/// A matrix is `[n_out, n_in]`.
struct Layer {
    attn_norm: Vector, // [n_embd]
    attention: PlainAttention,
    attn_q_norm: Vector,  // [head_dim]
    attn_k_norm: Vector,  // [head_dim]
    ffn_norm: Vector,     // [n_embd]
    ffn_gate_inp: Matrix, // [n_expert, n_embd], the router
}

/// The model's weights; routed experts and tables are in the store.
pub struct Qwen3Moe {
    hp: Hparams,
    token_embd: TableId, // [n_vocab, n_embd]
    layers: Vec<Layer>,
    output_norm: Vector, // [n_embd]
    output: Matrix,      // [n_vocab, n_embd]
}

impl Qwen3Moe {
    /// Reads everything but the routed experts and the tables. Returns the model and its number of layers.
    pub fn load(t: &mut Tensors<'_>, notes: &mut Vec<String>) -> Result<(Qwen3Moe, usize), LoadError> {
        let n_layer = trunk_layers(t, notes)?;
        let n_embd = t.count("embedding_length")?;
        let n_vocab = t.n_vocab()?;
        let heads = Heads::load(t, n_layer, n_embd)?;
        let n_expert = t.count("expert_count")?;
        let n_ff = t.uniform_count("expert_feed_forward_length", n_layer)?;
        let hp = Hparams {
            heads,
            eps: t.f32("attention.layer_norm_rms_epsilon")?,
            rope: rope_spec(t, heads.head_dim, RopeStyle::HalfSplit)?,
            gating: Gating::load(t, n_expert, true)?,
        };
        let token_embd = t.table("token_embd.weight", n_vocab, n_embd)?;
        let mut layers = Vec::with_capacity(n_layer);
        for il in 0..n_layer {
            t.experts(il, n_expert, hp.gating.n_expert_used, n_ff, n_embd)?;
            let name = |part: &str| format!("blk.{il}.{part}.weight");
            layers.push(Layer {
                attn_norm: t.vector(&name("attn_norm"), &[n_embd])?,
                attention: PlainAttention::load(t, il, heads, n_embd)?,
                attn_q_norm: t.vector(&name("attn_q_norm"), &[heads.head_dim])?,
                attn_k_norm: t.vector(&name("attn_k_norm"), &[heads.head_dim])?,
                ffn_norm: t.vector(&name("ffn_norm"), &[n_embd])?,
                ffn_gate_inp: t.matrix(&name("ffn_gate_inp"), n_expert, n_embd)?,
            });
        }
        let output_norm = t.vector("output_norm.weight", &[n_embd])?;
        let output = t.output_head(n_vocab, n_embd)?;
        Ok((Qwen3Moe { hp, token_embd, layers, output_norm, output }, n_layer))
    }

    /// A fresh sequence.
    pub fn new_state(&self, options: StateOptions) -> SequenceState {
        SequenceState::new(options, self.layers.iter().map(|_| attention_state(self.hp.heads, options)))
    }

    /// Memory of a sequence.
    pub fn state_bytes(&self, kv_type: KvType) -> StateBytes {
        attention_state_bytes(self.hp.heads, kv_type, self.layers.len())
    }

    /// Runs the tokens of all segments.
    pub fn forward(
        &self,
        pass: &mut Pass<'_>,
        segments: &mut [Segment<'_>],
    ) -> Result<Option<Rows>, StoreError> {
        let (ctx, hp) = (pass.ctx, &self.hp);
        let angles = RopeAngles::new(ctx, &hp.rope, n_rows(segments), positions(segments));
        let mut x = pass.embed(self.token_embd, segments)?; // [n_rows, n_embd]
        for (il, layer) in self.layers.iter().enumerate() {
            let normed = rms_norm(ctx, &x, &layer.attn_norm, hp.eps);
            let y = layer.attention.forward(ctx, &normed, &angles, segments, il, |mut q, mut k| {
                rms_norm_heads(ctx, &mut q, &layer.attn_q_norm, hp.eps);
                rms_norm_heads(ctx, &mut k, &layer.attn_k_norm, hp.eps);
                (q, k)
            });
            add(ctx, &mut x, &y);
            let normed = rms_norm(ctx, &x, &layer.ffn_norm, hp.eps);
            let next = self.layers.get(il + 1).map(|next| (&next.ffn_norm, &next.ffn_gate_inp));
            let y = moe(pass, il, &normed, &layer.ffn_gate_inp, hp.gating, |pass| {
                predict_routes(pass, il + 1, &x, next, hp.eps);
                None
            })?;
            add(ctx, &mut x, &y);
            ctx.probe("l_out", il, &x);
        }
        advance(segments);
        let Some(x) = output_rows(ctx, x, segments) else { return Ok(None) };
        Ok(Some(logits(ctx, &self.output, &rms_norm(ctx, &x, &self.output_norm, hp.eps))))
    }
}
