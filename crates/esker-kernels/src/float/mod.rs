//! Float operations on rows: norms, activations, rotary embedding, attention, recurrences.
//!
//! Free functions over slices, each spreading its outputs over the pool. What this is not: products with weight
//! matrices ([`crate::matmul`]); those are the only operations that read quantized data.
//!
//! Every result is a function of its inputs alone, bit for bit: reductions have the canonical order of
//! [`crate::lanes`], and everything else is exactly rounded operations in a fixed sequence, exponentials included
//! (`math`). An operation's body is written once over sixteen lanes (`vector`) and instantiated per instruction set
//! (`multiversion`). Start reading at `norm`, the simplest.

mod attention;
mod conv;
mod delta;
mod elementwise;
mod half;
mod hyper;
mod indexer;
mod kv;
mod math;
mod multiversion;
mod norm;
mod rope;
mod select;
mod softmax;
mod split;
#[cfg(test)]
mod tests;
mod vector;

pub use attention::{AttnScratch, AttnShape, BLOCK as ATTN_BLOCK, Visible, attend};
pub use conv::{CONV_TAPS_MAX, causal_conv};
pub use delta::{DeltaShape, HeadPairing, Strided, delta_net, softplus_decay};
pub use elementwise::{
    add_in_place, add_scaled_rows, scatter_rows, sigmoid, sigmoid_mul_in_place, sigmoid_scaled_in_place,
    silu_mul, silu_mul_in_place, silu_scaled_in_place, split_halves, weighted_sum_rows,
};
pub use half::{f16_to_f32, f32_to_f16};
pub use hyper::{hc_combine, hc_mix_mean};
pub use indexer::{indexer_scores, pool_blocks};
pub use kv::{Kv, KvMut, kv_store};
pub use norm::{l2_norm_columns_in_place, l2_norm_in_place, rms_norm, rms_norm_in_place, row_dots};
pub use rope::{RopeStyle, rope};
pub use select::{select_blocks, top_k};
pub use softmax::{log_sum_exp, softmax_rows};
