//! Why no file is made.

use esker_gguf::WriteError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why no file is made. The cause is in `source()`.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum SynthError {
    /// A value that makes no model.
    #[error("{field} is {found}, expected {expected}")]
    Value { field: &'static str, found: String, expected: String },
    /// Something is there.
    #[error("`{}` exists", .path.display())]
    Exists { path: PathBuf },
    /// The file system is too full.
    #[error("`{}` needs {needed} bytes, and its file system has {available} left", .path.display())]
    NoSpace { path: PathBuf, needed: u64, available: u64 },
    /// The free space cannot be asked for: mostly, the directory is not there.
    #[error("cannot use the directory of `{}`", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The caller asked to end.
    #[error("cancelled")]
    Cancelled,
}

impl SynthError {
    pub(super) fn value(
        field: &'static str,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> SynthError {
        SynthError::Value { field, found: found.to_string(), expected: expected.into() }
    }
}
