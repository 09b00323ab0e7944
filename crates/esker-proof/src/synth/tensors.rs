//! The tensors of a file, in order: name, shape, type, content.

use super::fill::Content;
use super::geometry::{DeltaGeometry, Family, Geometry, HyperGeometry, IndexGeometry};
use super::ngram::NgramTable;
use super::recipe::{Recipe, Role};
use esker_gguf::TensorSpec;

/// What attention and delta nets add to the residual, relative to what experts add. They mix tokens, so in a deep model of
/// random weights all tokens would end up with nearly the same residual and choose the same experts; at a tenth they stay
/// as different as they were, through 48 layers.
const MIXING_GAIN: f32 = 0.1;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) spec: TensorSpec,
    pub(super) content: Content,
}

/// All tensors of `geometry`, which is cut to its layers already.
pub(super) fn list(geometry: &Geometry, table: Option<&NgramTable>, recipe: Recipe) -> Vec<Tensor> {
    let mut list = List { recipe, tensors: Vec::new(), prefix: String::new() };
    let (n, n_vocab) = (geometry.n_embd, geometry.vocabulary.n_vocab);
    list.rows("token_embd.weight", Role::Embedding, n, n_vocab);
    list.matrix("output.weight", Role::Output, n, n_vocab);
    match &geometry.hyper {
        Some(hyper) => list.mixer("output_hc", geometry, hyper, false),
        None => list.norm("output_norm.weight", n),
    }
    if let (Some(ngram), Some(table)) = (&geometry.ngram, table) {
        list.rows("per_layer_token_embd.weight", Role::Table, n / ngram.n_heads(), table.n_rows);
    }
    for il in 0..geometry.n_layer {
        list.prefix = format!("blk.{il}.");
        list.layer(geometry, il);
    }
    list.tensors
}

struct List {
    recipe: Recipe,
    tensors: Vec<Tensor>,
    prefix: String,
}

impl List {
    fn push(&mut self, name: &str, role: Role, shape: &[u64], content: Content) {
        let ty = self.recipe.type_of(role, shape[0]);
        let spec = TensorSpec { name: format!("{}{name}", self.prefix), ty, shape: shape.to_vec() };
        self.tensors.push(Tensor { spec, content });
    }

    /// `n_out` rows of `n_in` weights.
    fn matrix(&mut self, name: &str, role: Role, n_in: u64, n_out: u64) {
        self.push(name, role, &[n_in, n_out], fan_in(n_in));
    }

    /// The last matrix of what mixes tokens.
    fn mixing_output(&mut self, name: &str, n_in: u64, n_out: u64) {
        self.push(name, Role::Dense, &[n_in, n_out], scaled_fan_in(n_in, MIXING_GAIN));
    }

    /// Rows that are looked up: each element is of size 1.
    fn rows(&mut self, name: &str, role: Role, n: u64, n_rows: u64) {
        self.push(name, role, &[n, n_rows], Content::Spread { std: 1.0 });
    }

    fn norm(&mut self, name: &str, n: u64) {
        self.push(name, Role::Small, &[n], Content::Between { low: 0.9, high: 1.1 });
    }

    fn layer(&mut self, geometry: &Geometry, il: u32) {
        let n = geometry.n_embd;
        match (&geometry.ngram, &geometry.hyper) {
            (Some(ngram), Some(hyper)) if ngram.layer == il => self.ngram(n, n * hyper.n_streams, ngram.taps),
            _ => {}
        }
        match &geometry.hyper {
            Some(hyper) => self.mixer("hc_attn", geometry, hyper, true),
            None => self.norm("attn_norm.weight", n),
        }
        match &geometry.delta {
            Some(delta) if geometry.is_recurrent(il) => self.delta_net(geometry, delta),
            _ => self.attention(geometry),
        }
        match (&geometry.hyper, geometry.family) {
            (Some(hyper), _) => self.mixer("hc_ffn", geometry, hyper, true),
            (None, Family::Qwen3Moe) => self.norm("ffn_norm.weight", n),
            (None, _) => self.norm("post_attention_norm.weight", n),
        }
        self.experts(geometry);
    }

    /// A mixer of streams; those of layers also say how much of the output each stream receives.
    fn mixer(&mut self, prefix: &str, geometry: &Geometry, hyper: &HyperGeometry, inject: bool) {
        let wide = geometry.n_embd * hyper.n_streams;
        // The gate that follows is about one half.
        let about_two = Content::Between { low: 1.8, high: 2.2 };
        self.push(&format!("{prefix}_norm.weight"), Role::Small, &[wide], about_two);
        self.matrix(&format!("{prefix}_down.weight"), Role::Dense, wide, hyper.low_rank);
        self.matrix(&format!("{prefix}_up.weight"), Role::Dense, hyper.low_rank, wide);
        if inject {
            self.matrix(&format!("{prefix}_inject.weight"), Role::Dense, wide, hyper.n_streams);
        }
    }

    fn attention(&mut self, geometry: &Geometry) {
        let (n, heads) = (geometry.n_embd, &geometry.attention);
        // Hybrid models have a gate beside each query head.
        let per_head = if geometry.family == Family::Qwen3Moe { 1 } else { 2 };
        let (q_dim, kv_dim) = (heads.n_head * heads.head_dim, heads.n_head_kv * heads.head_dim);
        self.matrix("attn_q.weight", Role::Dense, n, per_head * q_dim);
        self.matrix("attn_k.weight", Role::Dense, n, kv_dim);
        self.matrix("attn_v.weight", Role::DenseFine, n, kv_dim);
        self.mixing_output("attn_output.weight", q_dim, n);
        self.norm("attn_q_norm.weight", heads.head_dim);
        self.norm("attn_k_norm.weight", heads.head_dim);
        if let Some(IndexGeometry { n_head, head_dim, .. }) = geometry.index {
            self.matrix("indexer.q_proj.weight", Role::Index, n, n_head * head_dim);
            self.matrix("indexer.k_proj.weight", Role::Index, n, head_dim);
            self.norm("indexer.q_norm.weight", head_dim);
            self.norm("indexer.k_norm.weight", head_dim);
        }
    }

    fn delta_net(&mut self, geometry: &Geometry, delta: &DeltaGeometry) {
        let n = geometry.n_embd;
        let &DeltaGeometry { n_k, n_v, d, taps } = delta;
        let conv_dim = 2 * n_k * d + n_v * d;
        self.matrix("attn_qkv.weight", Role::Dense, n, conv_dim);
        self.matrix("attn_gate.weight", Role::Dense, n, n_v * d);
        self.push("ssm_conv1d.weight", Role::Small, &[taps, conv_dim], fan_in(taps));
        if geometry.family == Family::Qwen3Next {
            self.matrix("ssm_ba.weight", Role::Dense, n, 2 * n_v);
        } else {
            self.matrix("ssm_beta.weight", Role::Dense, n, n_v);
            self.matrix("ssm_alpha.weight", Role::Dense, n, n_v);
        }
        // As models are initialised: time steps of 0.001 to 0.1 under softplus, decay rates up to 16.
        self.push("ssm_dt.bias", Role::Small, &[n_v], Content::Between { low: -6.9, high: -2.25 });
        self.push("ssm_a", Role::Small, &[n_v], Content::Between { low: -16.0, high: -0.5 });
        self.norm("ssm_norm.weight", d);
        self.mixing_output("ssm_out.weight", n_v * d, n);
    }

    fn experts(&mut self, geometry: &Geometry) {
        let (n, experts) = (geometry.n_embd, &geometry.experts);
        let (n_expert, n_ff) = (experts.n_expert, experts.n_ff);
        self.matrix("ffn_gate_inp.weight", Role::Small, n, n_expert);
        self.push("ffn_gate_exps.weight", Role::ExpertIn, &[n, n_ff, n_expert], fan_in(n));
        self.push("ffn_up_exps.weight", Role::ExpertIn, &[n, n_ff, n_expert], fan_in(n));
        self.push("ffn_down_exps.weight", Role::ExpertDown, &[n_ff, n, n_expert], fan_in(n_ff));
        let shared = experts.n_ff_shared;
        if shared > 0 {
            self.push("ffn_gate_inp_shexp.weight", Role::Small, &[n], fan_in(n));
            self.matrix("ffn_gate_shexp.weight", Role::Dense, n, shared);
            self.matrix("ffn_up_shexp.weight", Role::Dense, n, shared);
            self.matrix("ffn_down_shexp.weight", Role::DenseFine, shared, n);
        }
    }

    fn ngram(&mut self, n: u64, wide: u64, taps: u64) {
        self.matrix("ple_key.weight", Role::Dense, n, wide);
        self.matrix("ple_value.weight", Role::Dense, n, n);
        self.norm("ple_norm_key.weight", wide);
        self.norm("ple_norm_query.weight", wide);
        self.norm("ple_norm_conv.weight", wide);
        self.push("ple_conv1d.weight", Role::Small, &[taps, wide], fan_in(taps));
    }
}

/// Weights that keep the size of what they are applied to.
fn fan_in(n: u64) -> Content {
    scaled_fan_in(n, 1.0)
}

fn scaled_fan_in(n: u64, gain: f32) -> Content {
    Content::Spread { std: gain / (n as f64).sqrt() as f32 }
}
