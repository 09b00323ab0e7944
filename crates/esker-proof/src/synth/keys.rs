//! The metadata of a file: what loaders read.

use super::error::SynthError;
use super::geometry::{AttentionGeometry, ExpertGeometry, Family, Geometry};
use super::ngram::NgramTable;
use super::vocabulary;
use super::write::Options;
use esker_gguf::{Metadata, Value};

/// All keys, in the order in which converters write them. `geometry` is cut to its layers already.
pub(super) fn metadata(
    geometry: &Geometry,
    table: Option<&NgramTable>,
    options: &Options,
) -> Result<Metadata, SynthError> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", geometry.family.architecture());
    metadata.set("general.type", "model");
    metadata.set("general.name", format!("{} with random weights", geometry.name));
    metadata.set(
        "general.description",
        "Random weights in the shapes of a real model, for measuring speed. Routing is nearly uniform: the worst case \
         for an expert cache.",
    );
    metadata.set("general.file_type", options.recipe.file_type());
    metadata.set("general.quantization_version", 2u32);
    metadata.set("esker.synth.geometry", geometry.name);
    metadata.set("esker.synth.recipe", options.recipe.name());
    metadata.set("esker.synth.seed", options.seed);
    model_keys(geometry, table, &mut metadata);
    vocabulary::describe(&geometry.vocabulary, &mut metadata)?;
    Ok(metadata)
}

/// The keys that begin with the architecture. Source: what the converters of llama.cpp write for these models.
fn model_keys(geometry: &Geometry, table: Option<&NgramTable>, metadata: &mut Metadata) {
    let mut set = |key: &str, value: Value| {
        metadata.set(format!("{}.{key}", geometry.family.architecture()), value);
    };
    let narrow = |n: u64| Value::U32(n as u32); // Sizes are limited by `Geometry::check`.
    let layers = 0..geometry.n_layer;
    let AttentionGeometry { n_head, n_head_kv, head_dim, n_rot, rope_theta, rope_sections } =
        geometry.attention;
    let ExpertGeometry { n_expert, n_expert_used, n_ff, n_ff_shared } = geometry.experts;

    set("block_count", geometry.n_layer.into());
    set("context_length", geometry.n_ctx.into());
    set("embedding_length", narrow(geometry.n_embd));
    if geometry.n_ff_dense > 0 {
        set("feed_forward_length", geometry.n_ff_dense.into());
    }
    set("attention.head_count", narrow(n_head));
    set("attention.head_count_kv", narrow(n_head_kv));
    set("attention.key_length", narrow(head_dim));
    set("attention.value_length", narrow(head_dim));
    set("attention.layer_norm_rms_epsilon", 1e-6f32.into());
    set("rope.freq_base", rope_theta.into());
    if geometry.family != Family::Qwen3Moe {
        set("rope.dimension_count", narrow(n_rot));
    }
    if let Some(sections) = rope_sections {
        set("rope.dimension_sections", sections.to_vec().into());
    }
    set("expert_count", narrow(n_expert));
    set("expert_used_count", n_expert_used.into());
    set("expert_feed_forward_length", narrow(n_ff));
    if n_ff_shared > 0 {
        set("expert_shared_feed_forward_length", narrow(n_ff_shared));
    }
    if let Some(delta) = &geometry.delta {
        set("ssm.conv_kernel", narrow(delta.taps));
        set("ssm.state_size", narrow(delta.d));
        set("ssm.group_count", narrow(delta.n_k));
        set("ssm.time_step_rank", narrow(delta.n_v));
        set("ssm.inner_size", narrow(delta.n_v * delta.d));
        let recurrent: Vec<bool> = layers.clone().map(|il| geometry.is_recurrent(il)).collect();
        set("attention.recurrent_layers", recurrent.into());
        set("full_attention_interval", 4u32.into());
    }
    if let Some(hyper) = &geometry.hyper {
        set("hyper_connection.count", narrow(hyper.n_streams));
        set("hyper_connection.low_rank", narrow(hyper.low_rank));
    }
    if let Some(index) = &geometry.index {
        set("attention.indexer.head_count", narrow(index.n_head));
        set("attention.indexer.key_length", narrow(index.head_dim));
        set("attention.indexer.top_k", index.top_k.into());
        let ratios: Vec<i32> =
            layers.map(|il| if geometry.is_recurrent(il) { 0 } else { index.ratio }).collect();
        set("attention.compress_ratios", ratios.into());
    }
    if let (Some(ngram), Some(table)) = (&geometry.ngram, table) {
        set("ple.layers", vec![ngram.layer as i32].into());
        set("ple.ngram_size", ngram.ngram_size.into());
        set("ple.heads_per_ngram", ngram.heads_per_ngram.into());
        set("ple.conv_kernel", narrow(ngram.taps));
        set("ple.eos_token_id", narrow(geometry.vocabulary.end_of_text));
        set("embedding_length_per_layer_input", narrow(geometry.n_embd / ngram.n_heads()));
        set("ple.layer_multipliers", table.multipliers.clone().into());
        set("ple.head_offsets", table.head_offsets.clone().into());
        set("ple.head_vocab_sizes", table.head_sizes.clone().into());
    }
}
