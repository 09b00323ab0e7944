//! Reading the container: nothing that the keys say is used before it agrees with the tensor.

use crate::error::{LayoutError, PackedError};
use crate::keys::{
    EXPERT_ALIGN, LAYER_PREFIX, PACKED_NAME, PART_ALIGN, VERSION, VERSION_KEY, is_packed, is_part, layer_key,
    part_order, tensor_name,
};
use crate::layer::{PackedLayer, PackedPart, PartShape, fits};
use esker_gguf::{Gguf, Metadata, TensorInfo};
use esker_quant::GgmlType;
use std::collections::BTreeMap;

/// The packed layers of a file, by layer; none if nothing in it belongs to the container.
///
/// The experts of layer `il` are in the tensor [`tensor_name`]`(il)`: expert `e` begins `e * stride` bytes after
/// the tensor's offset, which is a multiple of [`EXPERT_ALIGN`]. Every part lies inside its expert, sizes fit `u64` sums.
/// # Errors
/// If the file is of another version, or keys and tensors do not agree.
pub fn read_packed(gguf: &Gguf) -> Result<BTreeMap<u32, PackedLayer>, PackedError> {
    let mut layers = BTreeMap::new();
    if !is_packed(gguf) {
        return Ok(layers);
    }
    check_version(&gguf.metadata)?;
    for tensor in gguf.tensors.iter().filter(|t| t.name_in_block() == PACKED_NAME) {
        let layer = number(tensor)?;
        layers.insert(layer, read_layer(&gguf.metadata, layer, tensor)?);
    }
    for (key, _) in gguf.metadata.iter() {
        let Some(number) = key.strip_prefix(LAYER_PREFIX) else { continue };
        let number = number.split('.').next().unwrap_or_default();
        let layer = number.parse::<u32>().ok().filter(|layer| layer.to_string() == number);
        if !layer.is_some_and(|layer| layers.contains_key(&layer)) {
            let tensor = format!("blk.{number}.{PACKED_NAME}");
            return Err(PackedError::MissingTensor { key: key.to_owned(), tensor });
        }
    }
    let stacked = |t: &&TensorInfo| {
        is_part(t.name_in_block()) && t.block().is_some_and(|layer| layers.contains_key(&layer))
    };
    if let Some(tensor) = gguf.tensors.iter().find(stacked) {
        let packed = tensor.block().map_or(String::new(), tensor_name);
        return Err(PackedError::Twice { tensor: tensor.name.clone(), packed });
    }
    Ok(layers)
}

pub(crate) fn check_version(metadata: &Metadata) -> Result<(), PackedError> {
    match metadata.u32(VERSION_KEY)? {
        VERSION => Ok(()),
        found => Err(PackedError::Version { found, expected: VERSION }),
    }
}

/// The layer of a packed tensor; `blk.07.` would be found under another name than it is looked for.
fn number(tensor: &TensorInfo) -> Result<u32, PackedError> {
    match tensor.block() {
        Some(layer) if tensor.name == tensor_name(layer) => Ok(layer),
        layer => Err(PackedError::Tensor {
            tensor: tensor.name.clone(),
            what: "the name",
            found: tensor.name.clone(),
            expected: layer.map_or_else(|| tensor_name(0), tensor_name),
        }),
    }
}

fn read_layer(metadata: &Metadata, layer: u32, tensor: &TensorInfo) -> Result<PackedLayer, PackedError> {
    let (stride, n_expert) = check_tensor(tensor)?;
    let parts = read_parts(metadata, layer, stride)?;
    let key = layer_key(layer, "checksums");
    let checksums = metadata.u64_array(&key)?;
    if checksums.len() as u64 != n_expert {
        let found = checksums.len();
        return Err(PackedError::Length { key, found, expected: n_expert, of: "expert" });
    }
    Ok(PackedLayer { n_expert, stride, parts, checksums })
}

/// Stride and number of experts of a tensor that can hold packed experts.
fn check_tensor(tensor: &TensorInfo) -> Result<(u64, u64), PackedError> {
    let wrong = |what, found, expected: &str| {
        Err(PackedError::Tensor { tensor: tensor.name.clone(), what, found, expected: expected.to_owned() })
    };
    if tensor.ty != GgmlType::I8 {
        return wrong("type", tensor.ty.to_string(), "I8");
    }
    let &[stride, n_expert] = tensor.shape.as_slice() else {
        return wrong("shape", format!("{:?}", tensor.shape), "[stride, n_expert]");
    };
    if !stride.is_multiple_of(EXPERT_ALIGN) {
        return wrong("stride", stride.to_string(), "a multiple of 4096");
    }
    if !tensor.offset.is_multiple_of(EXPERT_ALIGN) {
        return wrong("offset", tensor.offset.to_string(), "a multiple of 4096");
    }
    Ok((stride, n_expert)) // The directory has neither of them zero, and their product inside the file.
}

fn read_parts(metadata: &Metadata, layer: u32, stride: u64) -> Result<Vec<PackedPart>, PackedError> {
    let key = layer_key(layer, "parts");
    let names: Vec<&str> = metadata.str_array(&key)?.iter().take(4).collect();
    if part_order(&names).is_none_or(|order| order != names) {
        return Err(PackedError::Parts { key, found: names.join(", ") });
    }
    let n_part = names.len();
    let list = |field: &str| -> Result<Vec<u64>, PackedError> {
        let key = layer_key(layer, field);
        let values = metadata.u64_array(&key)?;
        match values.len() {
            found if found != n_part => {
                Err(PackedError::Length { key, found, expected: n_part as u64, of: "part" })
            }
            _ => Ok(values),
        }
    };
    let (types, rows, cols, offsets) = (list("types")?, list("rows")?, list("cols")?, list("offsets")?);

    let mut parts: Vec<PackedPart> = Vec::with_capacity(n_part);
    let mut end = 0;
    for (index, name) in names.into_iter().enumerate() {
        let id = u32::try_from(types[index]).unwrap_or(u32::MAX);
        let ty = GgmlType::from_id(id).map_err(|source| PackedError::Type {
            key: layer_key(layer, "types"),
            index,
            source,
        })?;
        let shape = PartShape { name: name.to_owned(), ty, rows: rows[index], cols: cols[index] };
        let prefix = || format!("{LAYER_PREFIX}{layer}.");
        let size = shape.size().map_err(|source| PackedError::Layout { prefix: prefix(), source })?;
        let offset = offsets[index];
        if offset < end || !offset.is_multiple_of(PART_ALIGN) || !fits(offset) {
            let (key, expected) = (layer_key(layer, "offsets"), format!("a multiple of 64 from {end} on"));
            return Err(PackedError::Offset { key, index, found: offset, expected });
        }
        end = offset + size; // Both are below 2^63.
        if end > stride {
            let source = LayoutError::TooBig { part: name.to_owned() };
            if !fits(end) {
                return Err(PackedError::Layout { prefix: prefix(), source });
            }
            let expected =
                format!("at most {}, for {size} bytes in a stride of {stride}", stride.saturating_sub(size));
            return Err(PackedError::Offset {
                key: layer_key(layer, "offsets"),
                index,
                found: offset,
                expected,
            });
        }
        let PartShape { name, ty, rows, cols } = shape;
        parts.push(PackedPart { name, ty, rows, cols, offset, size });
    }
    Ok(parts)
}
