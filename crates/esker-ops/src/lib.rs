//! Rows, matrices and one function per model operation, placed on the host.
//!
//! This is the vocabulary that architectures are written in: a [`Rows`] is `[n_rows, n_cols]` activations in f32, a
//! [`Matrix`] is `[n_out, n_in]` weights in any ggml type, and every operation is a free function over a [`Ctx`]
//! (thread pool, scratch memory, probe). It holds no arithmetic of its own: that is in `esker-kernels`.
#![forbid(unsafe_code)]

mod attention;
mod ctx;
mod elementwise;
mod experts;
mod matmul;
mod profile;
mod rope;
mod rows;
mod weights;

pub use attention::{IndexKeys, KvCache, KvType, SelectScratch, Selection, attend, select_positions};
pub use ctx::{Ctx, ProbeFn, ScratchUse};
pub use elementwise::{
    ShortConv, add, combine_streams, delta_net, gather_rows, group_dots, l2_norm_columns, mix_streams,
    repeat_streams, rms_norm, rms_norm_grouped, rms_norm_heads, scale_rows_by_sigmoid, short_conv, sigmoid,
    sigmoid_gate, signed_root_gate, silu, silu_gate, softmax, softplus_decay, split_interleaved, swiglu,
    top_k, weighted_sum,
};
pub use esker_kernels::matmul::Weights;
pub use esker_kernels::{DeltaShape, HeadPairing, RopeStyle};
pub use experts::{EXPERTS_PER_ROUND, ExpertCall, ExpertInput, ExpertWeights, with_expert_input};
pub use matmul::{matmul, matmul_many};
pub use profile::{Op, OpTime, OpTimer, PassTime, Phase, Profile};
pub use rope::{RopeAngles, RopeSpec, rope_heads};
pub use rows::Rows;
pub use weights::{Matrix, ShapeError, Vector, WeightBytes, is_weight_type};
