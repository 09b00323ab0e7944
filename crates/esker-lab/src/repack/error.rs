//! What can go wrong when repacking.

use crate::output::OutputError;
use esker_gguf::{OpenError, WriteError};
use esker_packed::{LayoutError, PackedError};
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An expert whose bytes are not those that were packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadExpert {
    /// Layer.
    pub layer: u32,
    /// Index in the layer.
    pub expert: u64,
    /// The file.
    pub file: PathBuf,
    /// Where the expert begins in it.
    pub offset: u64,
    /// Bytes from there to the end of its last part.
    pub len: u64,
    /// The checksum in the file's metadata.
    pub expected: u64,
    /// The checksum of the bytes.
    pub found: u64,
}

impl fmt::Display for BadExpert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadExpert { layer, expert, file, offset, len, expected, found } = self;
        write!(
            f,
            "expert {expert} of layer {layer} ({len} bytes at byte {offset} of `{}`) has checksum {found:016x}, \
             expected {expected:016x}",
            file.display()
        )
    }
}

/// Why a model cannot be repacked, restored or verified. The cause is in `source()`.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum RepackError {
    /// The source is no usable model file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The source is repacked already.
    #[error("`{}` is repacked already", .path.display())]
    AlreadyPacked { path: PathBuf },
    /// The source is not repacked.
    #[error("`{}` is not repacked", .path.display())]
    NotPacked { path: PathBuf },
    /// The source has no routed experts.
    #[error("`{}` has no routed experts (no tensor `blk.N.ffn_*_exps.weight`): there is nothing to repack", .path.display())]
    NoExperts { path: PathBuf },
    /// A stacked tensor that is none.
    #[error("tensor `{tensor}` has shape {shape:?}, expected 3 dimensions, the last one counting experts")]
    NotStacked { tensor: String, shape: Vec<u64> },
    /// Stacked tensors of one layer that do not belong together.
    #[error("tensor `{tensor}` holds {found} experts, expected {expected}, as `{other}` does")]
    ExpertCount { tensor: String, found: u64, other: String, expected: u64 },
    /// A layer whose experts cannot be packed.
    #[error("the experts of layer {layer} cannot be packed")]
    Layer { layer: u32, source: LayoutError },
    /// The keys of a repacked file are wrong.
    #[error("`{}` cannot be used as a repacked file", .path.display())]
    Packed { path: PathBuf, source: PackedError },
    /// The result's header cannot be written.
    #[error("the header of the result cannot be written")]
    Header(#[from] WriteError),
    /// The source cannot be read.
    #[error("cannot read {len} bytes at byte {offset} of `{}`", .path.display())]
    Read { path: PathBuf, offset: u64, len: u64, source: io::Error },
    /// The source has changed since it was opened.
    #[error("`{}` was changed while it was read", .path.display())]
    Changed { path: PathBuf },
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A checksum does not hold.
    #[error("`{}` is damaged: {bad}", .bad.file.display())]
    Damaged { bad: BadExpert },
    /// All experts are whole, but the result is not the source.
    #[error(
        "`{}` is damaged outside of its experts: the restored file would have SHA-256 {found}, expected {expected}",
        .path.display()
    )]
    DamagedElsewhere { path: PathBuf, expected: String, found: String },
    /// The caller asked to end.
    #[error("cancelled")]
    Cancelled,
}

impl RepackError {
    /// What the user may do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            RepackError::Open(source) => source.hint(),
            RepackError::Damaged { .. } | RepackError::DamagedElsewhere { .. } => {
                Some("copy the file again, or repack the original again".to_owned())
            }
            RepackError::Packed { source: PackedError::Version { .. }, .. } => {
                Some("repack the original with this version".to_owned())
            }
            _ => None,
        }
    }
}
