//! One layer's experts: the arithmetic of where each part is.

use crate::checksum::ExpertHasher;
use crate::error::LayoutError;
use crate::keys::{EXPERT_ALIGN, EXPERTS_MAX, PART_ALIGN, layer_key, part_order, tensor_name};
use esker_gguf::{Array, Metadata, TensorSpec, Value};
use esker_quant::GgmlType;
use std::ops::Range;

/// One slice of an expert: the part of a stacked tensor that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedPart {
    /// Name of the stacked tensor without `blk.N.`.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// Rows of the slice.
    pub rows: u64,
    /// Elements per row, whole blocks of `ty`.
    pub cols: u64,
    /// First byte, from the start of the expert; a multiple of [`PART_ALIGN`].
    pub offset: u64,
    /// Bytes, without padding.
    pub size: u64,
}

/// The experts of one layer: `n_expert` rows of `stride` bytes, in one tensor. An expert is its parts in the order gate,
/// up, down (or gate_up, down), each at a multiple of [`PART_ALIGN`], then zeros up to a multiple of [`EXPERT_ALIGN`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedLayer {
    /// Experts, at least 1.
    pub n_expert: u64,
    /// Bytes from one expert to the next; a multiple of [`EXPERT_ALIGN`].
    pub stride: u64,
    /// Two or three parts, by offset.
    pub parts: Vec<PackedPart>,
    /// One per expert; see [`ExpertHasher`].
    pub checksums: Vec<u64>,
}

/// What a part is, before its place is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartShape {
    /// Name of the stacked tensor without `blk.N.`.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// Rows of one expert's slice.
    pub rows: u64,
    /// Elements per row.
    pub cols: u64,
}

impl PartShape {
    /// Bytes of one expert's slice.
    pub(crate) fn size(&self) -> Result<u64, LayoutError> {
        let &PartShape { ref name, ty, rows, cols } = self;
        if rows == 0 || cols == 0 {
            return Err(LayoutError::Empty { part: name.clone(), rows, cols });
        }
        let block = ty.block_elems() as u64;
        if !cols.is_multiple_of(block) {
            return Err(LayoutError::PartialBlock { part: name.clone(), ty, cols, block });
        }
        (cols / block)
            .checked_mul(ty.block_bytes() as u64)
            .and_then(|row| row.checked_mul(rows))
            .filter(|&bytes| fits(bytes))
            .ok_or_else(|| LayoutError::TooBig { part: name.clone() })
    }
}

/// Offsets in files are signed in system calls.
pub(crate) fn fits(bytes: u64) -> bool {
    i64::try_from(bytes).is_ok()
}

impl PackedLayer {
    /// The layout of `n_expert` experts of these parts, given in any order. All checksums are 0.
    /// # Errors
    /// If the parts are not those of a gated feed-forward, a shape is impossible, or the tensor would be too big.
    pub fn plan(n_expert: u64, mut shapes: Vec<PartShape>) -> Result<PackedLayer, LayoutError> {
        let names: Vec<&str> = shapes.iter().map(|s| s.name.as_str()).collect();
        let Some(order) = part_order(&names) else {
            return Err(LayoutError::Parts { found: names.join(", ") });
        };
        shapes.sort_by_key(|s| order.iter().position(|&name| name == s.name));
        if n_expert == 0 {
            return Err(LayoutError::NoExperts);
        }
        if n_expert > EXPERTS_MAX {
            return Err(LayoutError::TooManyExperts { found: n_expert, max: EXPERTS_MAX });
        }
        let mut parts = Vec::with_capacity(shapes.len());
        let mut end = 0u64;
        for shape in shapes {
            let size = shape.size()?;
            let PartShape { name, ty, rows, cols } = shape;
            // Both are below 2^63, so the sums do not overflow.
            let offset = end.next_multiple_of(PART_ALIGN);
            end = offset + size;
            let whole = end.next_multiple_of(EXPERT_ALIGN).checked_mul(n_expert);
            if !whole.is_some_and(fits) {
                return Err(LayoutError::TooBig { part: name });
            }
            parts.push(PackedPart { name, ty, rows, cols, offset, size });
        }
        let stride = end.next_multiple_of(EXPERT_ALIGN);
        let checksums = vec![0; n_expert as usize];
        Ok(PackedLayer { n_expert, stride, parts, checksums })
    }

    /// Bytes of one expert, without padding.
    pub fn expert_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.size).sum()
    }

    /// Where the last part of an expert ends: what has to be read of it.
    pub fn used_bytes(&self) -> u64 {
        self.parts.last().map_or(0, |p| p.offset + p.size)
    }

    /// The bytes of part `index` within an expert.
    /// # Panics
    /// If there is no such part, or it does not fit memory.
    pub fn part_range(&self, index: usize) -> Range<usize> {
        let part = &self.parts[index];
        let [start, end] =
            [part.offset, part.offset + part.size].map(|n| usize::try_from(n).expect("a slot is in memory"));
        start..end
    }

    /// The checksum of an expert in memory, to be compared with `checksums[expert]`.
    ///
    /// `expert`: its bytes from the first part on, at least [`PackedLayer::used_bytes`]; padding is not looked at.
    /// # Panics
    /// If `expert` is shorter.
    pub fn checksum_of(&self, expert: &[u8]) -> u64 {
        let mut hasher = ExpertHasher::new();
        for index in 0..self.parts.len() {
            hasher.update(&expert[self.part_range(index)]);
        }
        hasher.finish()
    }

    /// The tensor that holds layer `layer`'s experts.
    pub fn spec(&self, layer: u32) -> TensorSpec {
        TensorSpec { name: tensor_name(layer), ty: GgmlType::I8, shape: vec![self.stride, self.n_expert] }
    }

    /// Sets the keys of layer `layer`.
    pub fn describe(&self, layer: u32, metadata: &mut Metadata) {
        let numbers = |f: fn(&PackedPart) -> u64| Value::from(self.parts.iter().map(f).collect::<Vec<u64>>());
        let names: Vec<String> = self.parts.iter().map(|p| p.name.clone()).collect();
        let types: Vec<u32> = self.parts.iter().map(|p| p.ty.id()).collect();
        metadata.set(layer_key(layer, "parts"), Array::from(names));
        metadata.set(layer_key(layer, "types"), types);
        metadata.set(layer_key(layer, "rows"), numbers(|p| p.rows));
        metadata.set(layer_key(layer, "cols"), numbers(|p| p.cols));
        metadata.set(layer_key(layer, "offsets"), numbers(|p| p.offset));
        metadata.set(layer_key(layer, "checksums"), self.checksums.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &str, ty: GgmlType, rows: u64, cols: u64) -> PartShape {
        PartShape { name: name.to_owned(), ty, rows, cols }
    }

    #[test]
    fn a_released_model_by_hand() {
        // One expert of 3 x 2560 x 640 weights: 640 rows of 10 Q4_K blocks twice, 2560 rows of 20 Q5_0 blocks.
        let layer = PackedLayer::plan(
            512,
            vec![
                shape("ffn_down_exps.weight", GgmlType::Q5_0, 2560, 640),
                shape("ffn_gate_exps.weight", GgmlType::Q4_K, 640, 2560),
                shape("ffn_up_exps.weight", GgmlType::Q4_K, 640, 2560),
            ],
        )
        .unwrap();
        let places: Vec<_> = layer.parts.iter().map(|p| (p.name.as_str(), p.offset, p.size)).collect();
        assert_eq!(
            places,
            [
                ("ffn_gate_exps.weight", 0, 921_600),
                ("ffn_up_exps.weight", 921_600, 921_600),
                ("ffn_down_exps.weight", 1_843_200, 1_126_400),
            ]
        );
        assert_eq!((layer.stride, layer.used_bytes()), (2_969_600, 2_969_600));
        assert_eq!(layer.spec(7).shape, [2_969_600, 512]);
    }

    #[test]
    fn odd_sizes_are_padded() {
        // 18 bytes, then 46 of padding, then 34, then padding to a page.
        let layer = PackedLayer::plan(
            3,
            vec![
                shape("ffn_gate_up_exps.weight", GgmlType::Q4_0, 1, 32),
                shape("ffn_down_exps.weight", GgmlType::Q8_0, 1, 32),
            ],
        )
        .unwrap();
        assert_eq!((layer.part_range(0), layer.part_range(1)), (0..18, 64..98));
        assert_eq!((layer.stride, layer.expert_bytes(), layer.used_bytes()), (4096, 52, 98));
        let mut expert = vec![1; 98];
        let before = layer.checksum_of(&expert);
        expert[63] = 9;
        assert_eq!(layer.checksum_of(&expert), before, "padding does not count");
        expert[64] = 9;
        assert_ne!(layer.checksum_of(&expert), before);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let plan = |n, shapes| PackedLayer::plan(n, shapes).unwrap_err().to_string();
        let two = |rows, cols| {
            vec![
                shape("ffn_gate_up_exps.weight", GgmlType::Q4_0, rows, cols),
                shape("ffn_down_exps.weight", GgmlType::Q4_0, 1, 32),
            ]
        };
        assert_eq!(plan(0, two(1, 32)), "there are no experts");
        assert_eq!(plan(1, two(0, 32)), "part `ffn_gate_up_exps.weight` has 0 rows of 32 elements");
        assert_eq!(
            plan(1, two(1, 33)),
            "part `ffn_gate_up_exps.weight`: a row of 33 elements is not a multiple of Q4_0's block of 32"
        );
        assert_eq!(
            plan(1, two(1, 32)[..1].to_vec()),
            "the parts are ffn_gate_up_exps.weight, expected gate, up and down, or gate_up and down"
        );
        let too_big = "part `ffn_gate_up_exps.weight` ends beyond byte 2^63 of the tensor";
        assert_eq!(plan(1, two(u64::MAX, 32)), too_big);
        assert_eq!(plan(1, two(i64::MAX as u64 / 18, 32)), too_big);
        assert_eq!(plan(2, two(i64::MAX as u64 / 18 - 4096, 32)), too_big);
        assert_eq!(
            plan(1 << 60, two(1, 32)),
            format!("there are {} experts, expected at most 65536", 1u64 << 60)
        );
    }
}
