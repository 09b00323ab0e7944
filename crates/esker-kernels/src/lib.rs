//! CPU kernels as free functions over slices, and the thread pool they run on.
//!
//! What this is not: shapes are checked here, meaning is not. Tensors, models and places (host, device) belong to
//! the crates above.
//!
//! Every result is bit-identical on every instruction set, for every thread count and however many rows or tokens
//! are computed together: each reduction has one canonical order ([`lanes`]), defined by the scalar code and
//! reproduced by the SIMD variants; threads split outputs, never a reduction.
//!
//! Start reading at [`matmul`]: dot products against quantized and float weight rows.

pub mod act;
mod disjoint;
pub mod float;
pub mod isa;
pub mod lanes;
pub mod matmul;
pub mod pool;
#[cfg(test)]
mod testdata;

pub use float::*;
pub use isa::Isa;
pub use pool::Pool;
