//! The figures about a file; what `--json` prints.

use super::packed::Packing;
use super::role::{self, Role};
use crate::model;
use crate::output::escaped;
use esker_gguf::{Gguf, TensorInfo};
use esker_models::Architecture;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a file holds. Sizes in bytes.
#[derive(Serialize)]
pub struct Summary {
    pub name: String,
    pub files: Vec<FileSize>,
    pub gguf_version: u32,
    pub architecture: Option<String>,
    /// This program can run it.
    pub supported: bool,
    /// Why not.
    pub unsupported_because: Option<String>,
    pub n_parameters: u64,
    pub n_tensors: usize,
    pub file_bytes: u64,
    pub tensor_bytes: u64,
    /// Of the tensors, scales included.
    pub bits_per_weight: f64,
    pub n_layers: usize,
    pub context_length: Option<u64>,
    pub embedding_length: Option<u64>,
    pub vocabulary: Option<Vocabulary>,
    pub experts: Option<Experts>,
    pub drafts: Option<Drafts>,
    /// Of a repacked file. The tensors here are those of the model, not of the file.
    pub packing: Option<Packing>,
    pub layers: Vec<Layer>,
    pub outside: Vec<Outside>,
    pub types: Vec<TypeShare>,
    pub mix: Vec<Mix>,
}

#[derive(Serialize)]
pub struct FileSize {
    pub path: String,
    pub bytes: u64,
}

#[derive(Serialize)]
pub struct Vocabulary {
    pub n_tokens: usize,
    pub model: Option<String>,
    pub pre: Option<String>,
    pub has_chat_template: bool,
}

/// Routed experts of all layers.
#[derive(Serialize)]
pub struct Experts {
    pub n_layers: usize,
    /// Per layer; files that were pruned layer by layer have a range.
    pub count_min: u64,
    pub count_max: u64,
    /// Chosen for a token in each layer, if the file says.
    pub used: Option<u64>,
    /// Of one expert: gate, up and down.
    pub expert_bytes_min: u64,
    pub expert_bytes_max: u64,
    pub total_bytes: u64,
    /// All weights but the routed experts.
    pub dense_bytes: u64,
    /// Experts that one token uses, over all layers.
    pub token_bytes: Option<u64>,
}

/// Blocks that predict further tokens (MTP). They are recognised, and not run.
#[derive(Serialize)]
pub struct Drafts {
    pub blocks: Vec<u32>,
    pub bytes: u64,
}

#[derive(Serialize)]
pub struct Layer {
    pub index: u32,
    pub mixer: &'static str,
    /// A draft block (MTP).
    pub draft: bool,
    pub total_bytes: u64,
    pub bytes: BTreeMap<Role, u64>,
    pub experts: Option<LayerExperts>,
}

#[derive(Serialize)]
pub struct LayerExperts {
    pub count: u64,
    pub expert_bytes: u64,
    /// Tensor, without `blk.N.` and `.weight`, and its type.
    pub types: Vec<(String, &'static str)>,
}

/// A tensor outside of layers.
#[derive(Serialize)]
pub struct Outside {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: &'static str,
    pub shape: Vec<u64>,
    pub bytes: u64,
}

#[derive(Serialize)]
pub struct TypeShare {
    #[serde(rename = "type")]
    pub ty: &'static str,
    pub n_tensors: usize,
    pub n_parameters: u64,
    pub bytes: u64,
    pub bits_per_weight: f64,
}

/// The types of one role's tensors, most bytes first.
#[derive(Serialize)]
pub struct Mix {
    pub role: Role,
    pub n_parameters: u64,
    pub bytes: u64,
    pub bits_per_weight: f64,
    pub types: Vec<(&'static str, u64)>,
}

impl Summary {
    pub fn new(gguf: &Gguf, path: &Path) -> Summary {
        let architecture = gguf.architecture().ok();
        let key = |name: &str| gguf.metadata.opt_u64(&format!("{}.{name}", architecture?)).ok().flatten();
        let supported = Architecture::of(gguf);
        let drafts = key("nextn_predict_layers").unwrap_or(0);
        let first_draft = key("block_count").and_then(|n| n.checked_sub(drafts));
        let layers = layers(gguf, first_draft.unwrap_or(u64::MAX));
        let (n_parameters, tensor_bytes) = (gguf.total_elements(), gguf.total_tensor_bytes());
        let file = |(i, path): (usize, &std::path::PathBuf)| FileSize {
            path: path.display().to_string(),
            bytes: gguf.file_bytes(i).unwrap_or(0),
        };
        Summary {
            name: model::name(gguf, path),
            files: gguf.files.iter().enumerate().map(file).collect(),
            gguf_version: gguf.version,
            architecture: architecture.map(str::to_owned),
            supported: supported.is_ok(),
            unsupported_because: supported.err().map(|e| escaped(&e.to_string(), 1000)),
            n_parameters,
            n_tensors: gguf.tensors.len(),
            file_bytes: gguf.total_file_bytes(),
            tensor_bytes,
            bits_per_weight: bits_per_weight(tensor_bytes, n_parameters),
            n_layers: layers.iter().filter(|layer| !layer.draft).count(),
            context_length: key("context_length"),
            embedding_length: key("embedding_length"),
            vocabulary: vocabulary(gguf),
            experts: experts(&layers, key("expert_used_count"), tensor_bytes),
            drafts: drafts_of(&layers),
            packing: None,
            outside: outside(gguf),
            types: types(gguf),
            mix: mix(gguf),
            layers,
        }
    }
}

fn bits_per_weight(bytes: u64, n_parameters: u64) -> f64 {
    if n_parameters == 0 { 0.0 } else { bytes as f64 * 8.0 / n_parameters as f64 }
}

fn layers(gguf: &Gguf, first_draft: u64) -> Vec<Layer> {
    let blocks = gguf.tensors_by_block();
    let layers = blocks.iter().filter_map(|(block, tensors)| Some(((*block)?, tensors)));
    layers
        .map(|(index, tensors)| {
            let mut bytes = BTreeMap::new();
            for tensor in tensors {
                *bytes.entry(Role::of(tensor)).or_insert(0) += tensor.size;
            }
            Layer {
                index,
                mixer: role::mixer(tensors.iter().map(|t| t.name_in_block())),
                draft: u64::from(index) >= first_draft || tensors.iter().any(|t| t.name.contains(".nextn.")),
                total_bytes: tensors.iter().map(|t| t.size).sum(),
                bytes,
                experts: layer_experts(tensors),
            }
        })
        .collect()
}

fn layer_experts(tensors: &[&TensorInfo]) -> Option<LayerExperts> {
    let mut stacks: Vec<_> = tensors.iter().filter_map(|t| Some((t, t.expert_stack()?))).collect();
    let &(_, (count, _)) = stacks.first()?;
    let short = |name: &str| name.strip_suffix(".weight").unwrap_or(name).to_owned();
    let place = |name: &str| ["gate_up", "gate", "up", "down"].iter().position(|part| name.contains(part));
    stacks.sort_by_key(|(tensor, _)| place(tensor.name_in_block()));
    Some(LayerExperts {
        count,
        expert_bytes: stacks.iter().map(|(_, (_, bytes))| bytes).sum(),
        types: stacks.iter().map(|(t, _)| (short(t.name_in_block()), t.ty.name())).collect(),
    })
}

fn experts(layers: &[Layer], used: Option<u64>, tensor_bytes: u64) -> Option<Experts> {
    let routed: Vec<&LayerExperts> =
        layers.iter().filter(|l| !l.draft).filter_map(|l| l.experts.as_ref()).collect();
    let counts = || routed.iter().map(|e| e.count);
    let sizes = || routed.iter().map(|e| e.expert_bytes);
    let expert_bytes = |layer: &Layer| layer.bytes.get(&Role::Experts).copied().unwrap_or(0);
    let total_bytes = layers.iter().map(expert_bytes).sum();
    Some(Experts {
        n_layers: routed.len(),
        count_min: counts().min()?,
        count_max: counts().max()?,
        used,
        expert_bytes_min: sizes().min()?,
        expert_bytes_max: sizes().max()?,
        total_bytes,
        dense_bytes: tensor_bytes - total_bytes,
        token_bytes: used.map(|k| routed.iter().map(|e| e.expert_bytes.saturating_mul(k.min(e.count))).sum()),
    })
}

fn drafts_of(layers: &[Layer]) -> Option<Drafts> {
    let drafts = || layers.iter().filter(|layer| layer.draft);
    let blocks: Vec<u32> = drafts().map(|layer| layer.index).collect();
    let bytes = drafts().map(|layer| layer.total_bytes).sum();
    (!blocks.is_empty()).then_some(Drafts { blocks, bytes })
}

fn vocabulary(gguf: &Gguf) -> Option<Vocabulary> {
    let text = |key: &str| gguf.metadata.str(key).ok().map(str::to_owned);
    let tokens = gguf.metadata.get("tokenizer.ggml.tokens")?.as_array()?;
    Some(Vocabulary {
        n_tokens: tokens.len(),
        model: text("tokenizer.ggml.model"),
        pre: text("tokenizer.ggml.pre"),
        has_chat_template: gguf.metadata.contains("tokenizer.chat_template"),
    })
}

fn outside(gguf: &Gguf) -> Vec<Outside> {
    let global = gguf.tensors.iter().filter(|t| t.block().is_none());
    let outside = |t: &TensorInfo| Outside {
        name: t.name.clone(),
        ty: t.ty.name(),
        shape: t.shape.clone(),
        bytes: t.size,
    };
    global.map(outside).collect()
}

fn types(gguf: &Gguf) -> Vec<TypeShare> {
    let share = |total: esker_gguf::TypeTotal| TypeShare {
        ty: total.ty.name(),
        n_tensors: total.n_tensors,
        n_parameters: total.n_elements,
        bytes: total.size,
        bits_per_weight: total.ty.bits_per_weight(),
    };
    gguf.totals_by_type().into_iter().map(share).collect()
}

fn mix(gguf: &Gguf) -> Vec<Mix> {
    let mut roles: BTreeMap<Role, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    for tensor in &gguf.tensors {
        let (n_parameters, types) = roles.entry(Role::of(tensor)).or_default();
        *n_parameters = n_parameters.saturating_add(tensor.n_elements());
        *types.entry(tensor.ty.name()).or_default() += tensor.size;
    }
    let mix = |(role, (n_parameters, types)): (Role, (u64, BTreeMap<&'static str, u64>))| {
        let bytes = types.values().sum();
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        Mix { role, n_parameters, bytes, bits_per_weight: bits_per_weight(bytes, n_parameters), types }
    };
    roles.into_iter().map(mix).collect()
}
