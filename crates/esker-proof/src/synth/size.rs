//! How large a file becomes, before it is written.

use super::error::SynthError;
use super::geometry::Geometry;
use super::keys;
use super::ngram::NgramTable;
use super::tensors::{self, Tensor};
use super::write::Options;
use esker_gguf::{Layout, Metadata};
use esker_quant::GgmlType;
use std::collections::BTreeMap;

/// Sizes of a file, in bytes unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizePlan {
    /// The whole file.
    pub file_bytes: u64,
    /// Metadata and directory.
    pub header_bytes: u64,
    /// Tensors.
    pub n_tensors: usize,
    /// Weights.
    pub n_weights: u64,
    /// Layers.
    pub n_layers: u32,
    /// Routed experts of all layers.
    pub n_experts: u64,
    /// Their weights.
    pub expert_bytes: u64,
    /// Weights of one routed expert; all are alike.
    pub one_expert_bytes: u64,
    /// Routed experts that one token needs, in all layers.
    pub touched_expert_bytes: u64,
    /// Tables of which a token needs some rows: token embedding, n-grams.
    pub table_bytes: u64,
    /// Everything else: what every token needs.
    pub dense_bytes: u64,
    /// Bytes by tensor type, by type.
    pub by_type: Vec<(GgmlType, u64)>,
}

/// Computes the sizes of the file that [`write`](super::write()) would write. No file is touched.
/// # Errors
/// If the geometry or the options make no model.
pub fn plan_size(geometry: &Geometry, options: &Options) -> Result<SizePlan, SynthError> {
    Ok(Model::new(geometry, options)?.size())
}

/// Everything about a file but its data.
pub(super) struct Model {
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<Tensor>,
    geometry: Geometry,
    layout: Layout,
}

impl Model {
    pub(super) fn new(geometry: &Geometry, options: &Options) -> Result<Model, SynthError> {
        let geometry = cut(geometry, options)?;
        check(&geometry)?;
        let table = match &geometry.ngram {
            Some(ngram) => Some(NgramTable::new(ngram, geometry.vocabulary.n_vocab, options.ngram_rows)?),
            None => None,
        };
        let metadata = keys::metadata(&geometry, table.as_ref(), options)?;
        let tensors = tensors::list(&geometry, table.as_ref(), options.recipe);
        let specs = tensors.iter().map(|t| t.spec.clone()).collect();
        let layout = Layout::new(&metadata, specs, esker_gguf::limits::ALIGNMENT_DEFAULT)?;
        Ok(Model { metadata, tensors, geometry, layout })
    }

    pub(super) fn size(&self) -> SizePlan {
        let (mut expert_bytes, mut table_bytes, mut dense_bytes) = (0, 0, 0);
        let mut by_type = BTreeMap::new();
        for tensor in self.layout.tensors() {
            *by_type.entry(tensor.ty).or_insert(0) += tensor.size;
            *match tensor.name.as_str() {
                _ if tensor.is_expert() => &mut expert_bytes,
                "token_embd.weight" | "per_layer_token_embd.weight" => &mut table_bytes,
                _ => &mut dense_bytes,
            } += tensor.size;
        }
        let n_layers = self.geometry.n_layer;
        let n_experts = self.geometry.experts.n_expert * u64::from(n_layers);
        let one_expert_bytes = expert_bytes / n_experts;
        let n_touched = u64::from(self.geometry.experts.n_expert_used) * u64::from(n_layers);
        SizePlan {
            file_bytes: self.layout.file_bytes(),
            header_bytes: self.layout.header().len() as u64,
            n_tensors: self.tensors.len(),
            n_weights: self.layout.tensors().iter().map(|t| t.n_elements()).sum(),
            n_layers,
            n_experts,
            expert_bytes,
            one_expert_bytes,
            touched_expert_bytes: n_touched * one_expert_bytes,
            table_bytes,
            dense_bytes,
            by_type: by_type.into_iter().collect(),
        }
    }
}

/// The geometry with as many layers as asked for.
fn cut(geometry: &Geometry, options: &Options) -> Result<Geometry, SynthError> {
    let n_layer = options.layers.unwrap_or(geometry.n_layer);
    let least = geometry.ngram.as_ref().map_or(1, |ngram| ngram.layer.saturating_add(1));
    if !(least..=geometry.n_layer).contains(&n_layer) {
        let mut expected = format!("{least} to {}", geometry.n_layer);
        if least > 1 {
            expected += &format!(" (layer {} has the n-gram embedding)", least - 1);
        }
        return Err(SynthError::value("layers", n_layer, expected));
    }
    Ok(Geometry { n_layer, ..geometry.clone() })
}

/// Sizes that are no released model's come from callers; products of these stay far below 2^63.
fn check(geometry: &Geometry) -> Result<(), SynthError> {
    let g = geometry;
    let delta = g.delta.as_ref().map_or([1; 4], |d| [d.n_k, d.n_v, d.d, d.taps]);
    let hyper = g.hyper.as_ref().map_or([1; 2], |h| [h.n_streams, h.low_rank]);
    let index = g.index.as_ref().map_or([1; 2], |i| [i.n_head, i.head_dim]);
    let counts: [(&'static str, u64); 18] = [
        ("layers", g.n_layer.into()),
        ("embedding width", g.n_embd),
        ("heads", g.attention.n_head),
        ("key and value heads", g.attention.n_head_kv),
        ("head width", g.attention.head_dim),
        ("experts", g.experts.n_expert),
        ("experts used", g.experts.n_expert_used.into()),
        ("expert width", g.experts.n_ff),
        ("delta key heads", delta[0]),
        ("delta value heads", delta[1]),
        ("delta head width", delta[2]),
        ("delta taps", delta[3]),
        ("streams", hyper[0]),
        ("mixer rank", hyper[1]),
        ("index heads", index[0]),
        ("index head width", index[1]),
        ("vocabulary size", g.vocabulary.n_vocab),
        ("shared expert width", g.experts.n_ff_shared.max(1)),
    ];
    for (field, value) in counts {
        if !(1..=1 << 24).contains(&value) {
            return Err(SynthError::value(field, value, "1 to 2^24"));
        }
    }
    if u64::from(g.experts.n_expert_used) > g.experts.n_expert {
        let expected = format!("at most {} experts", g.experts.n_expert);
        return Err(SynthError::value("experts used", g.experts.n_expert_used, expected));
    }
    if let Some(ngram) = &g.ngram
        && (ngram.n_heads() == 0 || !g.n_embd.is_multiple_of(ngram.n_heads()))
    {
        let expected = format!("a divisor of the embedding width {}", g.n_embd);
        return Err(SynthError::value("n-gram heads", ngram.n_heads(), expected));
    }
    Ok(())
}
