//! Parts that several architectures call. They take data (a scale, a gating function), never an architecture.

pub mod attention;
pub mod delta_net;
pub mod dense_ffn;
pub mod hyper;
pub(crate) mod indexer;
pub mod moe;
pub mod ngram;
