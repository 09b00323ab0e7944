//! What a listing or a memory plan asks of a directory: sums, blocks, experts.
//!
//! Only the naming conventions of GGUF are known here: `blk.N.` for layer N, `_exps.weight` for the stacked
//! weights of all routed experts of a layer, one expert after the other along the last dimension.

use crate::gguf::Gguf;
use crate::metadata::MetadataError;
use crate::tensor::TensorInfo;
use esker_quant::GgmlType;
use std::collections::BTreeMap;

/// What all tensors of one type amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeTotal {
    /// The type.
    pub ty: GgmlType,
    /// Tensors of it.
    pub n_tensors: usize,
    /// Their elements.
    pub n_elements: u64,
    /// Their bytes.
    pub size: u64,
}

impl TensorInfo {
    /// The layer N of a tensor named `blk.N.…`; `None` for global tensors and for other stacks (`v.blk.N.…`).
    pub fn block(&self) -> Option<u32> {
        let (number, _) = self.name.strip_prefix("blk.")?.split_once('.')?;
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return None; // `parse` would take a sign.
        }
        number.parse().ok()
    }

    /// The name without `blk.N.`; the whole name for other tensors.
    pub fn name_in_block(&self) -> &str {
        match self.block() {
            Some(_) => self.name.splitn(3, '.').nth(2).unwrap_or_default(),
            None => &self.name,
        }
    }

    /// True for the stacked weights of a layer's routed experts. Their biases and scales, small, do not count.
    pub fn is_expert(&self) -> bool {
        self.name.ends_with("_exps.weight")
    }

    /// Experts in the stack and bytes of one, of a tensor that [`TensorInfo::is_expert`] and has 3 dimensions.
    pub fn expert_stack(&self) -> Option<(u64, u64)> {
        match self.shape[..] {
            [_, _, n_expert] if self.is_expert() => Some((n_expert, self.size / n_expert)),
            _ => None,
        }
    }
}

impl Gguf {
    /// `general.architecture`: the prefix of the model's own keys.
    /// # Errors
    /// If the key is missing or no string.
    pub fn architecture(&self) -> Result<&str, MetadataError> {
        self.metadata.str("general.architecture")
    }

    /// Bytes of all tensors, without padding.
    pub fn total_tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.size).sum()
    }

    /// Bytes of all tensors that [`TensorInfo::is_expert`].
    pub fn expert_tensor_bytes(&self) -> u64 {
        self.tensors.iter().filter(|t| t.is_expert()).map(|t| t.size).sum()
    }

    /// Elements of all tensors: the parameters of the model. Saturates.
    pub fn total_elements(&self) -> u64 {
        self.tensors.iter().fold(0, |sum: u64, t| sum.saturating_add(t.n_elements()))
    }

    /// Tensors by layer, global ones under `None` first; directory order within each.
    pub fn tensors_by_block(&self) -> BTreeMap<Option<u32>, Vec<&TensorInfo>> {
        let mut blocks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for tensor in &self.tensors {
            blocks.entry(tensor.block()).or_default().push(tensor);
        }
        blocks
    }

    /// Totals per tensor type, the one with most bytes first.
    pub fn totals_by_type(&self) -> Vec<TypeTotal> {
        let mut totals: BTreeMap<GgmlType, TypeTotal> = BTreeMap::new();
        for t in &self.tensors {
            let total =
                totals.entry(t.ty).or_insert(TypeTotal { ty: t.ty, n_tensors: 0, n_elements: 0, size: 0 });
            total.n_tensors += 1;
            total.n_elements = total.n_elements.saturating_add(t.n_elements());
            total.size += t.size;
        }
        let mut totals: Vec<TypeTotal> = totals.into_values().collect();
        totals.sort_by_key(|t| std::cmp::Reverse(t.size));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str) -> TensorInfo {
        TensorInfo {
            name: name.to_owned(),
            ty: GgmlType::Q4_K,
            shape: vec![256, 8, 4],
            file: 0,
            offset: 0,
            size: 144 * 8 * 4,
        }
    }

    #[test]
    fn blocks_are_read_from_names() {
        let block = |name: &str| tensor(name).block();
        assert_eq!(block("blk.0.attn_q.weight"), Some(0));
        assert_eq!(block("blk.93.ffn_up_exps.weight"), Some(93));
        for name in
            ["token_embd.weight", "blk.7", "blk..x", "blk.+7.x", "blk.-1.x", "v.blk.3.x", "blk.4294967296.x"]
        {
            assert_eq!(block(name), None, "{name}");
        }
        assert_eq!(tensor("blk.93.ffn_up_exps.weight").name_in_block(), "ffn_up_exps.weight");
        assert_eq!(tensor("output_norm.weight").name_in_block(), "output_norm.weight");
    }

    #[test]
    fn experts_are_stacks_of_equal_size() {
        let experts = tensor("blk.1.ffn_down_exps.weight");
        assert!(experts.is_expert());
        assert_eq!(experts.expert_stack(), Some((4, 144 * 8)));
        for name in ["blk.1.ffn_down_shexp.weight", "blk.1.ffn_down_exps.bias", "blk.1.ffn_gate_inp.weight"] {
            assert!(!tensor(name).is_expert() && tensor(name).expert_stack().is_none(), "{name}");
        }
        let flat = TensorInfo { shape: vec![256, 32], ..experts };
        assert_eq!(flat.expert_stack(), None);
    }
}
