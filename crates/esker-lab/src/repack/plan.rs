//! What goes where: which tensors stay, which become experts, and whether the source can be made again.

use super::RepackError;
use super::source::{Files, Span};
use esker_gguf::{Gguf, Layout, TensorInfo, TensorSpec};
use esker_packed::{PackedLayer, PartShape, is_part};
use std::collections::BTreeMap;

/// A source's tensors, sorted.
pub(super) struct Plan<'a> {
    /// Copied as they are, in file order.
    pub(super) dense: Vec<&'a TensorInfo>,
    /// Packed, by layer.
    pub(super) layers: BTreeMap<u32, Experts<'a>>,
}

/// One layer's experts.
pub(super) struct Experts<'a> {
    pub(super) packed: PackedLayer,
    /// The stacked tensors, in the order of `packed.parts`.
    pub(super) tensors: Vec<&'a TensorInfo>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(gguf: &'a Gguf) -> Result<Plan<'a>, RepackError> {
        let mut dense = Vec::new();
        let mut stacked: BTreeMap<u32, Vec<&TensorInfo>> = BTreeMap::new();
        for tensor in &gguf.tensors {
            match tensor.block() {
                // The name must be the one that is put together again from the number.
                Some(layer)
                    if is_part(tensor.name_in_block())
                        && tensor.name == format!("blk.{layer}.{}", tensor.name_in_block()) =>
                {
                    stacked.entry(layer).or_default().push(tensor);
                }
                _ => dense.push(tensor),
            }
        }
        let layers = stacked.into_iter().map(|(layer, tensors)| Ok((layer, experts(layer, tensors)?)));
        Ok(Plan { dense, layers: layers.collect::<Result<_, RepackError>>()? })
    }

    /// The tensors of the result: what stays, then the layers.
    pub(super) fn specs(&self) -> Vec<TensorSpec> {
        let dense = self.dense.iter().map(|t| t.spec());
        dense.chain(self.layers.iter().map(|(&layer, experts)| experts.packed.spec(layer))).collect()
    }
}

fn experts(layer: u32, mut tensors: Vec<&TensorInfo>) -> Result<Experts<'_>, RepackError> {
    let first = tensors[0];
    let mut shapes = Vec::with_capacity(tensors.len());
    let mut n_expert = 0;
    for tensor in &tensors {
        let [cols, rows, n] = tensor.shape[..] else {
            return Err(RepackError::NotStacked { tensor: tensor.name.clone(), shape: tensor.shape.clone() });
        };
        if n_expert != 0 && n != n_expert {
            return Err(RepackError::ExpertCount {
                tensor: tensor.name.clone(),
                found: n,
                other: first.name.clone(),
                expected: n_expert,
            });
        }
        n_expert = n;
        shapes.push(PartShape { name: tensor.name_in_block().to_owned(), ty: tensor.ty, rows, cols });
    }
    let packed =
        PackedLayer::plan(n_expert, shapes).map_err(|source| RepackError::Layer { layer, source })?;
    tensors.sort_by_key(|t| packed.parts.iter().position(|p| p.name == t.name_in_block()));
    Ok(Experts { packed, tensors })
}

/// Why writing the source's tensors by the rules of [`Layout`] does not give the source byte for byte; `None` if it does.
pub(super) fn why_not_canonical(gguf: &Gguf, files: &mut Files) -> Result<Option<String>, RepackError> {
    if gguf.files.len() > 1 {
        return Ok(Some(format!("it is a set of {} files", gguf.files.len())));
    }
    let specs = gguf.tensors.iter().map(TensorInfo::spec).collect();
    let layout = Layout::new(&gguf.metadata, specs, gguf.alignment)?;
    let file_bytes = gguf.file_bytes(0).unwrap_or(0);
    let differs = |what: &str| Ok(Some(what.to_owned()));

    let header = layout.header();
    let (mut same, mut at) = (header.len() as u64 <= file_bytes, 0);
    if same {
        files.read(Span { file: 0, offset: 0, len: header.len() as u64 }, &mut |piece| {
            same &= header[at..at + piece.len()] == *piece;
            at += piece.len();
            Ok(())
        })?;
    }
    if !same {
        return differs("its header is of another version or form");
    }
    if layout.tensors().iter().zip(&gguf.tensors).any(|(ours, theirs)| ours.offset != theirs.offset) {
        return differs("its tensors are not one after the other in the order of the directory");
    }
    if layout.file_bytes() != file_bytes {
        return differs("it ends elsewhere than after its last tensor and padding");
    }
    let ends = gguf.tensors.iter().skip(1).map(|t| t.offset).chain([file_bytes]);
    for (tensor, end) in gguf.tensors.iter().zip(ends) {
        let offset = tensor.offset + tensor.size;
        if !files.is_zero(Span { file: 0, offset, len: end - offset })? {
            return differs("the padding between its tensors is not zero");
        }
    }
    Ok(None)
}
