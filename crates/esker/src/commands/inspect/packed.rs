//! Repacked files: the tensors of the model, where the file has the experts of a layer as one tensor of bytes.

use esker_gguf::{Gguf, TensorInfo};
use esker_packed::{PackedError, read_packed, tensor_name};
use serde::Serialize;

/// How the experts of a repacked file lie.
#[derive(Serialize)]
pub struct Packing {
    /// Each expert begins at a multiple of this.
    pub align_bytes: u64,
    /// In and between experts.
    pub padding_bytes: u64,
}

/// The model in a repacked file: its directory as if it had not been repacked. `None` for any other file.
///
/// # Errors
/// If the keys of the container are wrong.
pub fn model(file: &Gguf) -> Result<Option<(Gguf, Packing)>, PackedError> {
    let layers = read_packed(file)?;
    if layers.is_empty() {
        return Ok(None);
    }
    let mut model = file.clone();
    model.tensors.clear();
    let mut padding_bytes = 0;
    for tensor in &file.tensors {
        let packed = tensor.block().and_then(|layer| Some((layer, layers.get(&layer)?)));
        let Some((layer, packed)) = packed.filter(|(layer, _)| tensor.name == tensor_name(*layer)) else {
            model.tensors.push(tensor.clone());
            continue;
        };
        padding_bytes += packed.n_expert * (packed.stride - packed.expert_bytes());
        model.tensors.extend(packed.parts.iter().map(|part| TensorInfo {
            name: format!("blk.{layer}.{}", part.name),
            ty: part.ty,
            shape: vec![part.cols, part.rows, packed.n_expert],
            file: tensor.file,
            offset: tensor.offset + part.offset,
            size: part.size * packed.n_expert,
        }));
    }
    Ok(Some((model, Packing { align_bytes: esker_packed::EXPERT_ALIGN, padding_bytes })))
}
