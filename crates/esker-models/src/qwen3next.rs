//! Qwen3-Next and Qwen3.5-MoE. Source: transformers `modeling_qwen3_next.py`, `modeling_qwen3_5_moe.py`; GGUF archs
//! `qwen3next`, `qwen35moe`.
//!
//! Three of four layers are gated delta nets, the fourth is gated attention; every layer has routed experts and a shared
//! one behind a sigmoid gate. A classic pre-norm residual. The two architectures differ in the order in which value heads
//! are stored and so in which key head each reads; interleaved M-RoPE equals plain RoPE for text.

use crate::blocks::attention::{GatedAttention, Heads};
use crate::blocks::delta_net::{DeltaHparams, DeltaNet, OutputGate};
use crate::blocks::moe::{Gating, SharedExpert, moe};
use crate::layers::{
    attention_state, attention_state_bytes, is_recurrent, predict_routes, rope_spec, trunk_layers,
};
use crate::pass::{Pass, Segment, advance, logits, n_rows, output_rows, positions};
use crate::state::{SequenceState, StateBytes, StateOptions};
use crate::store::{StoreError, TableId};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{HeadPairing, KvType, Matrix, RopeAngles, RopeSpec, RopeStyle, Rows, Vector, add, rms_norm};

struct Hparams {
    heads: Heads,
    eps: f32,
    rope: RopeSpec,
    delta: DeltaHparams,
    gating: Gating,
}

/// A matrix is `[n_out, n_in]`.
struct Layer {
    attn_norm: Vector, // [n_embd]
    mixer: TokenMixer,
    post_attention_norm: Vector, // [n_embd]
    ffn_gate_inp: Matrix,        // [n_expert, n_embd], the router
    shared: SharedExpert,
}

enum TokenMixer {
    Delta(DeltaNet),
    Attention(GatedAttention),
}

/// The model's weights; routed experts and tables are in the store.
pub struct Qwen3Next {
    hp: Hparams,
    token_embd: TableId, // [n_vocab, n_embd]
    layers: Vec<Layer>,
    output_norm: Vector, // [n_embd]
    output: Matrix,      // [n_vocab, n_embd]
}

impl Qwen3Next {
    /// Reads everything but the routed experts and the tables. `pairing`: grouped in `qwen3next` files, tiled in `qwen35moe`.
    /// Returns the model and its number of layers.
    pub fn load(
        t: &mut Tensors<'_>,
        pairing: HeadPairing,
        notes: &mut Vec<String>,
    ) -> Result<(Qwen3Next, usize), LoadError> {
        let n_layer = trunk_layers(t, notes)?;
        let n_embd = t.count("embedding_length")?;
        let n_vocab = t.n_vocab()?;
        let eps = t.f32("attention.layer_norm_rms_epsilon")?;
        let heads = Heads::load(t, n_layer, n_embd)?;
        let n_expert = t.count("expert_count")?;
        let n_ff = t.uniform_count("expert_feed_forward_length", n_layer)?;
        let n_ff_shared = t.count("expert_shared_feed_forward_length")?;
        let recurrent = is_recurrent(t, n_layer)?;
        let hp = Hparams {
            heads,
            eps,
            rope: rope_spec(t, heads.head_dim, RopeStyle::HalfSplit)?,
            delta: DeltaHparams::load(t, pairing, OutputGate::Silu, eps)?,
            gating: Gating::load(t, n_expert, true)?,
        };
        let token_embd = t.table("token_embd.weight", n_vocab, n_embd)?;
        let mut layers = Vec::with_capacity(n_layer);
        for (il, &recurrent) in recurrent.iter().enumerate() {
            t.experts(il, n_expert, hp.gating.n_expert_used, n_ff, n_embd)?;
            let name = |part: &str| format!("blk.{il}.{part}.weight");
            layers.push(Layer {
                attn_norm: t.vector(&name("attn_norm"), &[n_embd])?,
                mixer: match recurrent {
                    true => TokenMixer::Delta(DeltaNet::load(t, il, &hp.delta, n_embd)?),
                    false => TokenMixer::Attention(GatedAttention::load(t, il, heads, eps, n_embd)?),
                },
                post_attention_norm: t.vector(&name("post_attention_norm"), &[n_embd])?,
                ffn_gate_inp: t.matrix(&name("ffn_gate_inp"), n_expert, n_embd)?,
                shared: SharedExpert::load(t, il, n_ff_shared, n_embd)?,
            });
        }
        let output_norm = t.vector("output_norm.weight", &[n_embd])?;
        let output = t.output_head(n_vocab, n_embd)?;
        Ok((Qwen3Next { hp, token_embd, layers, output_norm, output }, n_layer))
    }

    /// A fresh sequence.
    pub fn new_state(&self, options: StateOptions) -> SequenceState {
        SequenceState::new(
            options,
            self.layers.iter().map(|layer| match layer.mixer {
                TokenMixer::Delta(_) => self.hp.delta.new_state(),
                TokenMixer::Attention(_) => attention_state(self.hp.heads, options),
            }),
        )
    }

    /// Memory of a sequence.
    pub fn state_bytes(&self, kv_type: KvType) -> StateBytes {
        let n_delta = self.layers.iter().filter(|layer| matches!(layer.mixer, TokenMixer::Delta(_))).count();
        let mut bytes = attention_state_bytes(self.hp.heads, kv_type, self.layers.len() - n_delta);
        bytes.fixed += n_delta * self.hp.delta.state_bytes();
        bytes
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
            let y = match &layer.mixer {
                TokenMixer::Delta(delta) => delta.forward(ctx, &hp.delta, &normed, segments, il),
                TokenMixer::Attention(attention) => {
                    attention.forward(ctx, &normed, &angles, segments, il, None)
                }
            };
            add(ctx, &mut x, &y);
            let normed = rms_norm(ctx, &x, &layer.post_attention_norm, hp.eps);
            let next = self.layers.get(il + 1).map(|next| (&next.post_attention_norm, &next.ffn_gate_inp));
            let y = moe(pass, il, &normed, &layer.ffn_gate_inp, hp.gating, |pass| {
                predict_routes(pass, il + 1, &x, next, hp.eps);
                Some(layer.shared.forward(ctx, &normed))
            })?;
            add(ctx, &mut x, &y);
            ctx.probe("l_out", il, &x);
        }
        advance(segments);
        let Some(x) = output_rows(ctx, x, segments) else { return Ok(None) };
        Ok(Some(logits(ctx, &self.output, &rms_norm(ctx, &x, &self.output_norm, hp.eps))))
    }
}
