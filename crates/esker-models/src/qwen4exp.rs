//! Qwen3.8-Flash-Next. Source: transformers `modeling_qwen4_exp.py` (text path); GGUF arch `qwen4exp`.
//!
//! Three of four layers are gated delta nets, the fourth is gated attention over positions that a block index selects
//! (QSA). Every layer has routed experts and a shared one. The residual is several streams wide (hyper-connections), so
//! there are no norms of the usual kind. One layer adds a hashed n-gram embedding (PLE) read from a table on disk.
//! Not here: the draft (MTP) block, which is recognised and left alone, and images.

use crate::blocks::attention::{GatedAttention, Heads};
use crate::blocks::delta_net::{DeltaHparams, DeltaNet, OutputGate};
use crate::blocks::hyper::{HyperShape, Mixer};
use crate::blocks::indexer::{IndexHparams, Indexer};
use crate::blocks::moe::{Gating, SharedExpert, moe};
use crate::blocks::ngram::{Ngram, NgramHparams};
use crate::layers::{is_recurrent, read_ahead, rope_spec, trunk_layers};
use crate::pass::{Pass, Segment, advance, logits, n_rows, output_rows, positions};
use crate::state::{LayerState, NgramState, SequenceState, StateBytes, StateOptions};
use crate::store::{StoreError, TableId};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    HeadPairing, IndexKeys, KvCache, Matrix, Op, RopeAngles, RopeSpec, RopeStyle, Rows, combine_streams,
    matmul, repeat_streams,
};

/// Sizes and choices.
#[derive(Clone, Debug)]
struct Hparams {
    n_embd: usize,
    heads: Heads,
    eps: f32,
    rope: RopeSpec,
    hyper: HyperShape,
    delta: DeltaHparams,
    gating: Gating,
    index: Option<IndexHparams>,
    ngram: Option<NgramHparams>,
}

struct Layer {
    ngram: Option<Ngram>,
    hc_attn: Mixer,
    mixer: TokenMixer,
    hc_ffn: Mixer,
    ffn_gate_inp: Matrix, // [n_expert, n_embd], the router
    shared: SharedExpert,
}

enum TokenMixer {
    Delta(DeltaNet),
    Attention(GatedAttention, Option<Indexer>),
}

/// The model's weights; routed experts and tables are in the store.
pub struct Qwen4Exp {
    hp: Hparams,
    token_embd: TableId, // [n_vocab, n_embd]
    layers: Vec<Layer>,
    output_hc: Mixer,
    output: Matrix, // [n_vocab, n_embd]
}

impl Qwen4Exp {
    /// Reads everything but the routed experts and the tables. Returns the model and its number of layers.
    pub fn load(t: &mut Tensors<'_>, notes: &mut Vec<String>) -> Result<(Qwen4Exp, usize), LoadError> {
        let n_layer = trunk_layers(t, notes)?;
        let n_embd = t.count("embedding_length")?;
        let n_vocab = t.n_vocab()?;
        let eps = t.f32("attention.layer_norm_rms_epsilon")?;
        let heads = Heads::load(t, n_layer, n_embd)?;
        let n_streams = t.count("hyper_connection.count")?;
        let hyper = HyperShape { n_streams, low_rank: t.count("hyper_connection.low_rank")?, n_embd, eps };
        let n_expert = t.count("expert_count")?;
        let gating = Gating::load(t, n_expert, true)?;
        let n_ff = t.uniform_count("expert_feed_forward_length", n_layer)?;
        let n_ff_shared = t.count("expert_shared_feed_forward_length")?;
        let recurrent = is_recurrent(t, n_layer)?;
        let hp = Hparams {
            n_embd,
            heads,
            eps,
            rope: rope_spec(t, heads.head_dim, RopeStyle::HalfSplit)?,
            hyper,
            delta: DeltaHparams::load(t, HeadPairing::Tiled, OutputGate::Sigmoid, eps)?,
            gating,
            index: IndexHparams::load(t, &recurrent, notes)?,
            ngram: if t.has("per_layer_token_embd.weight") {
                Some(NgramHparams::load(t, n_embd)?)
            } else {
                None
            },
        };
        let ngram_layer = ngram_layer(t, &hp, &recurrent)?;

        let token_embd = t.table("token_embd.weight", n_vocab, n_embd)?;
        let mut layers = Vec::with_capacity(n_layer);
        for (il, &recurrent) in recurrent.iter().enumerate() {
            t.experts(il, n_expert, gating.n_expert_used, n_ff, n_embd)?;
            layers.push(Layer {
                ngram: match &hp.ngram {
                    Some(ngram) if ngram_layer == Some(il) => Some(Ngram::load(t, il, ngram, hyper)?),
                    _ => None,
                },
                hc_attn: Mixer::load(t, &format!("blk.{il}.hc_attn"), hyper, true)?,
                mixer: match recurrent {
                    true => TokenMixer::Delta(DeltaNet::load(t, il, &hp.delta, n_embd)?),
                    false => TokenMixer::Attention(
                        GatedAttention::load(t, il, heads, eps, n_embd)?,
                        hp.index.as_ref().map(|index| Indexer::load(t, il, index, n_embd)).transpose()?,
                    ),
                },
                hc_ffn: Mixer::load(t, &format!("blk.{il}.hc_ffn"), hyper, true)?,
                ffn_gate_inp: t.matrix(&format!("blk.{il}.ffn_gate_inp.weight"), n_expert, n_embd)?,
                shared: SharedExpert::load(t, il, n_ff_shared, n_embd)?,
            });
        }
        let output_hc = Mixer::load(t, "output_hc", hyper, false)?;
        let output = t.output_head(n_vocab, n_embd)?;
        Ok((Qwen4Exp { hp, token_embd, layers, output_hc, output }, n_layer))
    }

    /// A fresh sequence.
    pub fn new_state(&self, options: StateOptions) -> SequenceState {
        let (heads, capacity) = (self.hp.heads, options.capacity);
        let layers = self.layers.iter().map(|layer| match &layer.mixer {
            TokenMixer::Delta(_) => self.hp.delta.new_state(),
            TokenMixer::Attention(_, indexer) => LayerState::Attention {
                kv: KvCache::new(options.kv_type, heads.n_head_kv, heads.head_dim, capacity),
                index: match (indexer, &self.hp.index) {
                    (Some(_), Some(index)) => {
                        Some(Box::new(IndexKeys::new(index.ratio, index.dim, capacity)))
                    }
                    _ => None,
                },
            },
        });
        let wide = self.hp.hyper.n_streams * self.hp.n_embd;
        let ngram = self.hp.ngram.as_ref().map_or_else(NgramState::default, |n| n.new_state(wide));
        SequenceState { n_past: 0, options, layers: layers.collect(), ngram }
    }

    /// Memory of a sequence.
    pub fn state_bytes(&self, kv_type: esker_ops::KvType) -> StateBytes {
        let mut bytes = StateBytes::default();
        for layer in &self.layers {
            match &layer.mixer {
                TokenMixer::Delta(_) => bytes.fixed += self.hp.delta.state_bytes(),
                TokenMixer::Attention(_, indexer) => {
                    bytes.per_position += 2 * self.hp.heads.kv_dim() * kv_type.bytes();
                    if let (Some(_), Some(index)) = (indexer, &self.hp.index) {
                        bytes.per_position += (4 * index.dim).div_ceil(index.ratio);
                        bytes.fixed += 4 * index.dim * index.ratio;
                    }
                }
            }
        }
        if let Some(ngram) = &self.hp.ngram {
            bytes.fixed += ngram.state_bytes(self.hp.hyper.n_streams * self.hp.n_embd);
        }
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
        let index_angles =
            hp.index.as_ref().map(|i| RopeAngles::new(ctx, &i.rope, n_rows(segments), positions(segments)));
        let emb = pass.embed(self.token_embd, segments)?;
        let mut r = repeat_streams(ctx, &emb, hp.hyper.n_streams); // [n_rows, n_streams * n_embd]
        drop(emb);
        for (il, layer) in self.layers.iter().enumerate() {
            if let (Some(ngram), Some(ngram_hp)) = (&layer.ngram, &hp.ngram) {
                let emb = ngram.embed(pass, ngram_hp, segments)?;
                ngram.forward(ctx, ngram_hp, &emb, &mut r, segments);
            }
            let (x, w) = layer.hc_attn.mix(ctx, &r, hp.hyper);
            let y = match &layer.mixer {
                TokenMixer::Delta(delta) => delta.forward(ctx, &hp.delta, &x, segments, il),
                TokenMixer::Attention(attention, indexer) => {
                    let index = match (indexer, &hp.index, &index_angles) {
                        (Some(indexer), Some(index_hp), Some(angles)) => {
                            Some(indexer.queries(ctx, index_hp, hp.eps, &x, angles, pass.select))
                        }
                        _ => None,
                    };
                    attention.forward(ctx, &x, &angles, segments, il, index)
                }
            };
            combine_streams(ctx, &mut r, &y, &w);
            drop((x, w, y));

            let (x, w) = layer.hc_ffn.mix(ctx, &r, hp.hyper);
            let y = moe(pass, il, &x, &layer.ffn_gate_inp, hp.gating, |pass| {
                self.predict(pass, il + 1, &r);
                Some(layer.shared.forward(ctx, &x))
            })?;
            combine_streams(ctx, &mut r, &y, &w);
            ctx.probe("l_out", il, &r);
        }
        if let Some(ngram) = &hp.ngram {
            for Segment { tokens, state, .. } in segments.iter_mut() {
                ngram.advance(&mut state.ngram.recent, tokens);
            }
        }
        advance(segments);
        let Some(r) = output_rows(ctx, r, segments) else { return Ok(None) };
        let h = self.output_hc.mix_only(ctx, &r, hp.hyper);
        Ok(Some(logits(ctx, &self.output, &h)))
    }

    /// Read-ahead: the router of layer `il` on the residual as it is before the layer under it has finished.
    fn predict(&self, pass: &mut Pass<'_>, il: usize, r: &Rows) {
        let _timer = pass.ctx.time(Op::Request);
        if pass.is_decode
            && let Some(layer) = self.layers.get(il)
            && pass.store.wants_read_ahead(il)
        {
            let x = layer.hc_ffn.mix_only(pass.ctx, r, self.hp.hyper);
            let logits = matmul(pass.ctx, &layer.ffn_gate_inp, &x);
            read_ahead(pass, il, logits);
        }
    }
}

/// Which layer has the n-gram module; the key counts from 0.
fn ngram_layer(t: &Tensors<'_>, hp: &Hparams, recurrent: &[bool]) -> Result<Option<usize>, LoadError> {
    if hp.ngram.is_none() {
        return Ok(None);
    }
    let layers = t.gguf().metadata.u32_array("qwen4exp.ple.layers")?;
    match layers[..] {
        [il] if recurrent.get(il as usize) == Some(&true) => Ok(Some(il as usize)),
        _ => Err(t.bad_value("ple.layers", format!("{layers:?}"), "one layer, a delta-net layer")),
    }
}
