//! Names and numbers of the container.

use esker_gguf::Gguf;

/// The version that is written and the only one that is read.
pub const VERSION: u32 = 1;

/// Experts begin at multiples of this many bytes of the file, and `general.alignment` has this value: a page, and the
/// largest sector that direct I/O asks for.
pub const EXPERT_ALIGN: u64 = 4096;

/// Parts begin at multiples of this many bytes of an expert: a cache line, and the widest vector load.
pub const PART_ALIGN: u64 = 64;

/// Experts of a layer; models have some hundreds. Every one takes memory for its checksum.
pub const EXPERTS_MAX: u64 = 1 << 16;

/// What the keys of the container begin with.
pub const PREFIX: &str = "esker.repack.";

pub(crate) const VERSION_KEY: &str = "esker.repack.version";
pub(crate) const SHA256_KEY: &str = "esker.repack.source_sha256";
pub(crate) const FILES_KEY: &str = "esker.repack.source_files";
pub(crate) const CANONICAL_KEY: &str = "esker.repack.source_canonical";
pub(crate) const ORDER_KEY: &str = "esker.repack.tensor_order";
pub(crate) const ALIGNMENT_KEY: &str = "esker.repack.alignment";
pub(crate) const LAYER_PREFIX: &str = "esker.repack.blk.";

/// Name of a packed tensor without `blk.N.`.
pub(crate) const PACKED_NAME: &str = "ffn_exps.packed";

/// Part name of the gate matrices.
pub const GATE: &str = "ffn_gate_exps.weight";
/// Part name of the up matrices.
pub const UP: &str = "ffn_up_exps.weight";
/// Part name of the down matrices.
pub const DOWN: &str = "ffn_down_exps.weight";
/// Part name of gate and up matrices in one, gate rows first.
pub const GATE_UP: &str = "ffn_gate_up_exps.weight";

/// The parts that a layer may have, in the order within an expert.
const ORDERS: [&[&str]; 2] = [&[GATE, UP, DOWN], &[GATE_UP, DOWN]];

/// True for the name (without `blk.N.`) of a stacked tensor that becomes part of the experts.
pub fn is_part(name: &str) -> bool {
    [GATE, UP, DOWN, GATE_UP].contains(&name)
}

/// The order within an expert of the parts that a layer has, given in any order; `None` if they are not the parts of a
/// gated feed-forward: gate, up and down, or gate and up in one and down.
pub fn part_order(names: &[&str]) -> Option<&'static [&'static str]> {
    ORDERS.into_iter().find(|order| order.len() == names.len() && order.iter().all(|n| names.contains(n)))
}

/// The name of layer `layer`'s packed tensor.
pub fn tensor_name(layer: u32) -> String {
    format!("blk.{layer}.{PACKED_NAME}")
}

/// The key of one field of layer `layer`: `parts`, `types`, `rows`, `cols`, `offsets` or `checksums`.
pub fn layer_key(layer: u32, field: &str) -> String {
    format!("{LAYER_PREFIX}{layer}.{field}")
}

/// True if anything in the file belongs to the container, whole or not.
pub fn is_packed(gguf: &Gguf) -> bool {
    gguf.metadata.iter().any(|(key, _)| key.starts_with(PREFIX))
        || gguf.tensors.iter().any(|t| t.name_in_block() == PACKED_NAME)
}
