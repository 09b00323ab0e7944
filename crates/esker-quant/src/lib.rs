//! Block layouts and scalar encode/decode of every ggml tensor type: the definitions.
//!
//! What this is not: fast. `esker-kernels` computes on the same blocks and is held to these functions by
//! tests.
#![forbid(unsafe_code)]

pub mod blocks;
mod decode;
mod encode;
mod error;
mod types;

pub use decode::decode;
pub use encode::encode;
pub use error::CodecError;
pub use types::{GgmlType, UnknownType};
