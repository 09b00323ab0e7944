//! Writing a file.

use super::error::SynthError;
use super::fill::Filler;
use super::geometry::Geometry;
use super::random::Random;
use super::recipe::Recipe;
use super::size::{Model, SizePlan};
use esker_gguf::GgufWriter;
use std::ops::ControlFlow;
use std::path::Path;

/// What to write besides the geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only so many layers, from the first on; `None` for all. Every fourth layer attends whatever the number.
    pub layers: Option<u32>,
    /// Types.
    pub recipe: Recipe,
    /// Another seed gives other weights, in a file of the same size.
    pub seed: u64,
    /// Rows of the n-gram table, about; only for a geometry that has one. The released model has 320 million.
    pub ngram_rows: u64,
    /// Put the file in the place of one that exists.
    pub overwrite: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { layers: None, recipe: Recipe::Q4K, seed: 0, ngram_rows: 2_000_000, overwrite: false }
    }
}

/// How far writing is. The callback that receives it may answer [`ControlFlow::Break`]: then no file is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Bytes that are made at once. Each piece of a tensor has a random stream of its own, so this is part of what decides on
/// the bytes of a file.
const PIECE_BYTES: usize = 1 << 20;

/// Writes a model of random weights to `out`, where it appears when it is complete. Returns its sizes.
///
/// Cost: as fast as the disk up to about a gigabyte a second, one thread. Memory: some MiB, and the vocabulary.
/// # Errors
/// If geometry or options make no model, the file exists and is not to be overwritten, the file system is too full or
/// fails, or `progress` breaks off.
pub fn write(
    geometry: &Geometry,
    options: &Options,
    out: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<SizePlan, SynthError> {
    let model = Model::new(geometry, options)?;
    let size = model.size();
    if !options.overwrite && std::fs::symlink_metadata(out).is_ok() {
        return Err(SynthError::Exists { path: out.to_owned() });
    }
    check_space(out, size.file_bytes)?;

    let Model { metadata, tensors, .. } = &model;
    let specs = tensors.iter().map(|t| t.spec.clone()).collect();
    let mut writer = GgufWriter::new(out, metadata, specs, esker_gguf::limits::ALIGNMENT_DEFAULT)?;
    let mut piece = Vec::new();
    for tensor in tensors {
        let info = writer.next_tensor().expect("the writer has the tensors of the list");
        let (name, ty, bytes) = (info.name.clone(), info.ty, info.size);
        let start = info.offset;
        let filler = Filler::new(ty, tensor.content);
        let whole_blocks = PIECE_BYTES / ty.block_bytes() * ty.block_bytes();
        let mut done = 0;
        for index in 0.. {
            let len = (bytes - done).min(whole_blocks as u64);
            if len == 0 {
                break;
            }
            piece.resize(len as usize, 0);
            filler.fill(&mut Random::new(options.seed, &name, index), &mut piece);
            writer.write_part(&name, &piece)?;
            done += len;
            if progress(Progress { done: start + done, total: size.file_bytes }).is_break() {
                return Err(SynthError::Cancelled);
            }
        }
    }
    writer.finish()?;
    Ok(size)
}

fn check_space(out: &Path, needed: u64) -> Result<(), SynthError> {
    let directory = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let available = fs4::available_space(directory)
        .map_err(|source| SynthError::Directory { path: out.to_owned(), source })?;
    if needed > available {
        return Err(SynthError::NoSpace { path: out.to_owned(), needed, available });
    }
    Ok(())
}
