//! Expert-major model files: what the keys and tensors of a repacked GGUF file mean.
//!
//! A repacked file is a GGUF file whose routed experts lie one after the other, each at a multiple of a page, so that one
//! expert is one read. The stacked tensors `blk.N.ffn_{gate,up,down}_exps.weight` of layer N (or `ffn_gate_up_exps` and
//! `ffn_down_exps`) are replaced by one tensor `blk.N.ffn_exps.packed` of type I8 and shape `[stride, n_expert]`; every
//! other tensor is as it was. What is in a row of it is said by the keys `esker.repack.blk.N.*`; see [`PackedLayer`].
//!
//! What this is not: the program that writes such files (`esker repack`), or the one that reads experts during inference.
//! Both have the definition from here, so that they cannot disagree.
//!
//! | Key | Type | Meaning |
//! | --- | --- | --- |
//! | `esker.repack.version` | u32 | [`VERSION`] |
//! | `esker.repack.source_sha256` | string | SHA-256 of the source file, of the files of a split set one after the other |
//! | `esker.repack.source_files` | u32 | files of the source |
//! | `esker.repack.source_canonical` | bool | writing the source's tensors in order gives the source byte for byte |
//! | `esker.repack.tensor_order` | string array | names of the source's tensors, in file order |
//! | `esker.repack.alignment` | as in the source | the source's `general.alignment`; 0 if it had none |
//! | `esker.repack.blk.N.parts` | string array | names of the stacked tensors without `blk.N.`, in the order within an expert |
//! | `esker.repack.blk.N.types` | u32 array | tensor type ids, per part |
//! | `esker.repack.blk.N.rows`, `.cols` | u64 array | rows and elements per row of one expert's slice, per part |
//! | `esker.repack.blk.N.offsets` | u64 array | where the part begins in an expert, per part |
//! | `esker.repack.blk.N.checksums` | u64 array | XXH3-64 (seed 0) of the expert's parts without padding, per expert |
//!
//! Start at [`read_packed`].
#![forbid(unsafe_code)]

mod checksum;
mod error;
mod keys;
mod layer;
mod read;
mod source;

pub use checksum::ExpertHasher;
pub use error::{LayoutError, PackedError};
pub use keys::{
    DOWN, EXPERT_ALIGN, EXPERTS_MAX, GATE, GATE_UP, PART_ALIGN, PREFIX, UP, VERSION, is_packed, is_part,
    layer_key, part_order, tensor_name,
};
pub use layer::{PackedLayer, PackedPart, PartShape};
pub use read::read_packed;
pub use source::{Place, Source};
