//! Qwen3.8-Flash-Next. Source: transformers `modeling_qwen4_exp.py` (text path); GGUF arch `qwen4exp`.
//!
//! Three of four layers are gated delta nets, the fourth is gated attention over positions that a block index selects
//! (QSA). Every layer has routed experts and a shared one. The residual is several streams wide (hyper-connections), so
//! there are no norms of the usual kind. One layer adds a hashed n-gram embedding (PLE) read from a table on disk.
//! Not here: the draft (MTP) block, which is recognised and left alone, and images.

use crate::blocks::attention::{GatedAttention, Heads};
use crate::blocks::delta_net::{DeltaHparams, DeltaNet, OutputGate};
use crate::blocks::hyper::{HyperShape, Mixer};
use crate::blocks::moe::{Gating, SharedExpert, moe};
use crate::blocks::ngram::{Ngram, NgramHparams};
use crate::layers::{is_recurrent, rope_spec, trunk_layers};
use crate::pass::{Output, Pass, logits, output_rows};
use crate::state::{LayerState, NgramState, SequenceState, StateBytes, StateOptions};
use crate::store::{StoreError, TableId};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    Ctx, HeadPairing, IndexKeys, KvCache, Matrix, Op, RopeAngles, RopeSpec, RopeStyle, Rows, Selection,
    Vector, combine_streams, matmul, matmul_many, repeat_streams, rms_norm_heads, rope_heads,
    select_positions,
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

/// The block index of sparse attention.
#[derive(Clone, Debug)]
struct IndexHparams {
    n_head: usize,
    dim: usize,
    /// Tokens per block.
    ratio: usize,
    /// Blocks that a query may see besides the tail.
    budget: usize,
    rope: RopeSpec,
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

    /// Runs `tokens` at positions `state.n_past..`.
    pub fn forward(
        &self,
        pass: &mut Pass<'_>,
        tokens: &[u32],
        state: &mut SequenceState,
        output: Output,
    ) -> Result<Option<Rows>, StoreError> {
        let (ctx, hp) = (pass.ctx, &self.hp);
        let positions = state.n_past..state.n_past + tokens.len();
        let angles = RopeAngles::new(ctx, &hp.rope, positions.clone());
        let emb = pass.embed(self.token_embd, tokens)?;
        let mut r = repeat_streams(ctx, &emb, hp.hyper.n_streams); // [n_tokens, n_streams * n_embd]
        drop(emb);
        for (il, layer) in self.layers.iter().enumerate() {
            if let (Some(ngram), Some(ngram_hp)) = (&layer.ngram, &hp.ngram) {
                let emb = ngram.embed(pass, ngram_hp, &state.ngram.recent, tokens)?;
                ngram.forward(ctx, ngram_hp, &emb, &mut r, &mut state.ngram);
            }
            let (x, w) = layer.hc_attn.mix(ctx, &r, hp.hyper);
            let y = match (&layer.mixer, &mut state.layers[il]) {
                (TokenMixer::Delta(delta), layer_state) => delta.forward(ctx, &hp.delta, &x, layer_state),
                (TokenMixer::Attention(attention, indexer), LayerState::Attention { kv, index }) => {
                    let causal = Selection::causal();
                    let selection = match (indexer, &hp.index, index) {
                        (Some(indexer), Some(index_hp), Some(keys)) => {
                            indexer.select(ctx, index_hp, hp.eps, &x, positions.clone(), keys)
                        }
                        _ => &causal,
                    };
                    attention.forward(ctx, &x, &angles, kv, selection)
                }
                _ => unreachable!("states are made by new_state"),
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
            ngram.advance(&mut state.ngram.recent, tokens);
        }
        state.n_past += tokens.len();
        let Some(r) = output_rows(ctx, r, output) else { return Ok(None) };
        let h = self.output_hc.mix_only(ctx, &r, hp.hyper);
        Ok(Some(logits(ctx, &self.output, &h)))
    }

    /// Read-ahead: the router of layer `il` on the residual as it is before the layer under it has finished.
    fn predict(&self, pass: &mut Pass<'_>, il: usize, r: &Rows) {
        let _timer = pass.ctx.time(Op::Request);
        if r.n_rows() == 1
            && let Some(layer) = self.layers.get(il)
            && pass.store.wants_read_ahead(il)
        {
            let x = layer.hc_ffn.mix_only(pass.ctx, r, self.hp.hyper);
            let logits = matmul(pass.ctx, &layer.ffn_gate_inp, &x);
            pass.store.read_ahead(il, logits.row(0));
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

impl IndexHparams {
    /// `None` if the file attends densely everywhere.
    fn load(
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
struct Indexer {
    q_proj: Matrix, // [n_head * dim, n_embd]
    k_proj: Matrix, // [dim, n_embd]
    q_norm: Vector, // [dim]
    k_norm: Vector, // [dim]
}

impl Indexer {
    fn load(t: &mut Tensors<'_>, il: usize, hp: &IndexHparams, n_embd: usize) -> Result<Indexer, LoadError> {
        let name = |part: &str| format!("blk.{il}.indexer.{part}.weight");
        Ok(Indexer {
            q_proj: t.matrix(&name("q_proj"), hp.n_head * hp.dim, n_embd)?,
            k_proj: t.matrix(&name("k_proj"), hp.dim, n_embd)?,
            q_norm: t.vector(&name("q_norm"), &[hp.dim])?,
            k_norm: t.vector(&name("k_norm"), &[hp.dim])?,
        })
    }

    /// Stores the tokens' raw keys and selects for each of them. Keys are needed from the first token on, scores only
    /// once a sequence has outgrown the budget.
    fn select<'k>(
        &self,
        ctx: &Ctx,
        hp: &IndexHparams,
        eps: f32,
        x: &Rows,
        positions: std::ops::Range<usize>,
        keys: &'k mut IndexKeys,
    ) -> &'k Selection {
        let [mut iq, ik] = matmul_many(ctx, [&self.q_proj, &self.k_proj], x);
        keys.push(ctx, &ik, &self.k_norm, eps, &hp.rope);
        rms_norm_heads(ctx, &mut iq, &self.q_norm, eps);
        let angles = RopeAngles::new(ctx, &hp.rope, positions.clone());
        rope_heads(ctx, &mut iq, hp.dim, &angles);
        select_positions(ctx, &iq, keys, positions.start, hp.budget)
    }
}
