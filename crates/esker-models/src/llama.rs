//! Llama, dense and with experts (Mixtral). Sources: arXiv:2302.13971, arXiv:2401.04088 §2; GGUF arch `llama`.
//!
//! GGUF stores query and key rows so that RoPE turns neighbouring pairs (2i, 2i+1). Llama 3 files bring frequency factors
//! in `rope_freqs.weight`; small models tie the output head to the token embedding.

use crate::blocks::attention::{Heads, PlainAttention};
use crate::blocks::dense_ffn::DenseFfn;
use crate::blocks::moe::{Gating, moe};
use crate::layers::{attention_state, attention_state_bytes, predict_routes, rope_spec, trunk_layers};
use crate::pass::{Pass, Segment, advance, logits, n_rows, output_rows, positions};
use crate::state::{SequenceState, StateBytes, StateOptions};
use crate::store::{StoreError, TableId};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{KvType, Matrix, RopeAngles, RopeSpec, RopeStyle, Rows, Vector, add, rms_norm};

struct Hparams {
    heads: Heads,
    eps: f32,
    rope: RopeSpec,
}

/// A matrix is `[n_out, n_in]`.
struct Layer {
    attn_norm: Vector, // [n_embd]
    attention: PlainAttention,
    ffn_norm: Vector, // [n_embd]
    ffn: Ffn,
}

enum Ffn {
    Dense(DenseFfn),
    /// `ffn_gate_inp`: `[n_expert, n_embd]`.
    Routed {
        ffn_gate_inp: Matrix,
        gating: Gating,
    },
}

/// The model's weights; routed experts and tables are in the store.
pub struct Llama {
    hp: Hparams,
    token_embd: TableId, // [n_vocab, n_embd]
    layers: Vec<Layer>,
    output_norm: Vector, // [n_embd]
    output: Matrix,      // [n_vocab, n_embd]
}

impl Llama {
    /// Reads everything but the routed experts and the tables. Returns the model and its number of layers.
    pub fn load(t: &mut Tensors<'_>, notes: &mut Vec<String>) -> Result<(Llama, usize), LoadError> {
        let n_layer = trunk_layers(t, notes)?;
        let n_embd = t.count("embedding_length")?;
        let n_vocab = t.n_vocab()?;
        let heads = Heads::load(t, n_layer, n_embd)?;
        let n_ff = t.uniform_count("feed_forward_length", n_layer)?;
        let n_expert = t.opt_count("expert_count")?.unwrap_or(0);
        let gating = if n_expert > 0 { Some(Gating::load(t, n_expert, true)?) } else { None };
        let mut rope = rope_spec(t, heads.head_dim, RopeStyle::Interleaved)?;
        if t.has("rope_freqs.weight") {
            let factors = t.vector("rope_freqs.weight", &[rope.n_rot / 2])?;
            if let Some(bad) = factors.values().iter().find(|f| !(f.is_finite() && **f > 0.0)) {
                return Err(LoadError::Value {
                    key: "rope_freqs.weight".into(),
                    found: bad.to_string(),
                    expected: "positive factors".into(),
                });
            }
            rope.apply_factors(factors.values());
        }
        let hp = Hparams { heads, eps: t.f32("attention.layer_norm_rms_epsilon")?, rope };
        let token_embd = t.table("token_embd.weight", n_vocab, n_embd)?;
        let mut layers = Vec::with_capacity(n_layer);
        for il in 0..n_layer {
            let name = |part: &str| format!("blk.{il}.{part}.weight");
            layers.push(Layer {
                attn_norm: t.vector(&name("attn_norm"), &[n_embd])?,
                attention: PlainAttention::load(t, il, heads, n_embd)?,
                ffn_norm: t.vector(&name("ffn_norm"), &[n_embd])?,
                ffn: match gating {
                    None => Ffn::Dense(DenseFfn::load(t, il, n_ff, n_embd)?),
                    Some(gating) => {
                        t.experts(il, n_expert, gating.n_expert_used, n_ff, n_embd)?;
                        Ffn::Routed {
                            ffn_gate_inp: t.matrix(&name("ffn_gate_inp"), n_expert, n_embd)?,
                            gating,
                        }
                    }
                },
            });
        }
        let output_norm = t.vector("output_norm.weight", &[n_embd])?;
        let output = t.output_head(n_vocab, n_embd)?;
        Ok((Llama { hp, token_embd, layers, output_norm, output }, n_layer))
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
            let y = layer.attention.forward(ctx, &normed, &angles, segments, il, |q, k| (q, k));
            add(ctx, &mut x, &y);
            let normed = rms_norm(ctx, &x, &layer.ffn_norm, hp.eps);
            let y = match &layer.ffn {
                Ffn::Dense(ffn) => ffn.forward(ctx, &normed),
                Ffn::Routed { ffn_gate_inp, gating } => {
                    moe(pass, il, &normed, ffn_gate_inp, *gating, |pass| {
                        predict_routes(pass, il + 1, &x, self.router(il + 1), hp.eps);
                        None
                    })?
                }
            };
            add(ctx, &mut x, &y);
            ctx.probe("l_out", il, &x);
        }
        advance(segments);
        let Some(x) = output_rows(ctx, x, segments) else { return Ok(None) };
        Ok(Some(logits(ctx, &self.output, &rms_norm(ctx, &x, &self.output_norm, hp.eps))))
    }

    fn router(&self, il: usize) -> Option<(&Vector, &Matrix)> {
        match self.layers.get(il)? {
            Layer { ffn_norm, ffn: Ffn::Routed { ffn_gate_inp, .. }, .. } => Some((ffn_norm, ffn_gate_inp)),
            _ => None,
        }
    }
}
