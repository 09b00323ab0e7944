//! Writing: the layout is computed first, then tensor data is streamed in order into a temporary file that takes
//! the place of the target in one step.

mod file;
mod layout;

pub use file::GgufWriter;
pub use layout::Layout;

use crate::error::ParseError;
use crate::metadata::MetadataError;
use crate::tensor::ShapeError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a file cannot be written. The cause is in `source()`.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum WriteError {
    /// A shape that no tensor can have.
    #[error("the shape of tensor `{tensor}` is impossible")]
    Shape { tensor: String, source: ShapeError },
    /// All tensors together are more than a file can hold.
    #[error("tensor `{tensor}` would end beyond byte 2^63 of the file")]
    TooBig { tensor: String },
    /// The alignment asked for is not the one in the metadata, or no alignment.
    #[error("alignment {asked} is not that of the metadata, {found}")]
    Alignment { asked: u64, found: u64 },
    /// The reader would refuse the header: a name too long, a key twice, too deep an array.
    #[error("the file would not be readable")]
    Unreadable { source: ParseError },
    /// A `split.` key is missing or wrong.
    #[error("the file could not be opened as part of a split set")]
    SplitKey { source: MetadataError },
    /// Metadata of one part of a split set for a file that is not named as that part.
    #[error(
        "`{}` would be part {} of {count} of a split set, expected a name ending in `{suffix}`",
        .path.display(), .no + 1
    )]
    PartName { path: PathBuf, no: u64, count: u64, suffix: String },
    /// The system failed to write.
    #[error("cannot write `{}`", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another tensor comes next.
    #[error("tensor `{given}` is given, expected `{expected}`")]
    WrongTensor { given: String, expected: String },
    /// Data after the last tensor.
    #[error("tensor `{given}` is given after the last one")]
    NoMoreTensors { given: String },
    /// Data that is not as long as the tensor.
    #[error("tensor `{tensor}` is given {given} bytes, expected {expected}")]
    Size { tensor: String, given: u64, expected: u64 },
    /// Finished before all data was given.
    #[error("tensor `{tensor}` and {} after it are not complete", .n_missing - 1)]
    Incomplete { tensor: String, n_missing: usize },
    /// An earlier write failed, so the file cannot be finished.
    #[error("`{}` cannot be finished: an earlier write failed", .path.display())]
    Failed { path: PathBuf },
}

impl WriteError {
    /// What the user may do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            WriteError::SplitKey { .. } | WriteError::PartName { .. } => {
                Some("drop the `split.` keys to write the model as one file".to_owned())
            }
            _ => None,
        }
    }
}
