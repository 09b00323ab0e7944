//! GGUF files: metadata and tensor directory, read from hostile input and written.
//!
//! What this is not: a loader. Tensor data stays on disk; [`TensorInfo`] says in which file, at which byte, how
//! many bytes. Nothing here knows what a key or a tensor means to a model, but for the naming conventions
//! (`blk.N.`, `_exps.weight`) that listings need.
//!
//! Source of the layout: the GGUF specification (`docs/gguf.md` of ggml), versions 2 and 3; split sets as
//! `gguf-split` of llama.cpp writes them.
//!
//! What a file says is not believed: every count is held against a limit of [`limits`] and against the bytes
//! that are left in the file, and memory grows only as data is really read.
//!
//! Start at [`Gguf::open`]; [`Header::read`] parses one file from any reader; [`GgufWriter`] writes.

#![forbid(unsafe_code)]

mod array;
mod cursor;
mod error;
mod gguf;
mod header;
pub mod limits;
mod listing;
mod metadata;
mod split;
mod tensor;
mod value;
mod write;

pub use array::{Array, RawStringArray, StringArray};
pub use error::{OpenError, ParseError, Place, ReadTensorError};
pub use gguf::Gguf;
pub use header::Header;
pub use listing::TypeTotal;
pub use metadata::{Metadata, MetadataError};
pub use tensor::{ShapeError, TensorInfo, TensorSpec};
pub use value::{Value, ValueType};
pub use write::{GgufWriter, Layout, WriteError};
