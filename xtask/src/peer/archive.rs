//! The record of a speed comparison: what was measured, untouched, and the summary that follows from it.

use super::machine::Machine;
use super::protocol::Facts;
use super::side::{Resident, Who};
use super::summary::Line;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Written into every archive; another number when fields change their meaning.
pub(crate) const FORMAT: &str = "esker-peer-speed/1";

/// A whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Archive {
    /// [`FORMAT`].
    pub(crate) format: String,
    /// What was measured.
    pub(crate) raw: Raw,
    /// What [`super::summary::summarize`] makes of it.
    pub(crate) summary: Vec<Line>,
}

/// What was measured, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raw {
    /// The command line; of files only the names.
    pub(crate) command: Vec<String>,
    /// Seconds since 1970.
    pub(crate) started: u64,
    /// The same.
    pub(crate) ended: u64,
    /// Load average when it started and when it ended.
    pub(crate) load_average: [Option<f64>; 2],
    /// The machine.
    pub(crate) machine: Machine,
    /// Esker's commit.
    pub(crate) commit: Option<String>,
    /// Esker's own account.
    pub(crate) esker: Facts,
    /// llama.cpp's own account.
    pub(crate) llama_cpp: Facts,
    /// The model.
    pub(crate) model: ModelFile,
    /// What was asked for.
    pub(crate) settings: Settings,
    /// The ids that prompts were cut from.
    pub(crate) prompt_ids: Vec<u32>,
    /// Continuations, in the order they were made.
    pub(crate) runs: Vec<Run>,
    /// Starts, in order.
    pub(crate) starts: Vec<Start>,
    /// Memory of processes that made runs.
    pub(crate) memory: Vec<Memory>,
}

/// The model that both sides ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelFile {
    /// File name, without folders.
    pub(crate) name: String,
    /// Bytes of all its files.
    pub(crate) bytes: u64,
    /// SHA-256 of each of its files.
    pub(crate) sha256: Vec<String>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Threads of either side.
    pub(crate) threads: usize,
    /// Pairs that count.
    pub(crate) pairs: usize,
    /// Rounds before them that do not.
    pub(crate) warm_ups: usize,
    /// Prompt lengths whose prefill is timed.
    pub(crate) prompt_tokens: Vec<usize>,
    /// Context lengths at which decode is timed.
    pub(crate) context: Vec<usize>,
    /// Tokens generated at each of them.
    pub(crate) generate: usize,
    /// Room that both sides make, in tokens.
    pub(crate) capacity: usize,
    /// Limit on either side's memory, in bytes. With one, every process starts with the file out of the page cache.
    pub(crate) memory_limit: Option<u64>,
    /// Ratios up to 1 + this, or down to its inverse, count as equal.
    pub(crate) margin: f64,
}

/// One continuation by one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Which pair it belongs to; `None`: warming up.
    pub(crate) pair: Option<usize>,
    /// Who made it.
    pub(crate) who: Who,
    /// Tokens of the prompt.
    pub(crate) length: usize,
    /// From the prompt's first token to the first token drawn.
    pub(crate) prompt_ms: f64,
    /// From the first token drawn to the last.
    pub(crate) decode_ms: f64,
    /// Tokens drawn.
    pub(crate) tokens: Vec<u32>,
    /// Cores that other processes, the waiting side among them, kept busy meanwhile.
    pub(crate) others: Option<f64>,
}

/// One start of one side, up to its first token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Which pair it belongs to; `None`: warming up.
    pub(crate) pair: Option<usize>,
    /// Whose.
    pub(crate) who: Who,
    /// The share of the file that was in the page cache just before.
    pub(crate) cached: Option<f64>,
    /// Loading alone.
    pub(crate) load_ms: f64,
    /// From the wish to load to the first token after a short prompt, interpreter and libraries being ready.
    pub(crate) first_token_ms: f64,
    /// Cores that other processes kept busy meanwhile.
    pub(crate) others: Option<f64>,
}

/// Memory of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Whose.
    pub(crate) who: Who,
    /// Before it loaded anything: an interpreter is not the engine's fault.
    pub(crate) idle: Resident,
    /// After its last run.
    pub(crate) after: Resident,
    /// The most its control group had, page cache included, in bytes; only under a limit.
    pub(crate) group_peak: Option<u64>,
}

/// An archive cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// The file.
    #[error("cannot {what} `{}`", path.display())]
    File { what: &'static str, path: PathBuf, cause: std::io::Error },
    /// Its contents.
    #[error("`{}` is no archive of a speed comparison", path.display())]
    Contents { path: PathBuf, cause: serde_json::Error },
    /// Its version.
    #[error("`{}` has format `{found}`, expected `{FORMAT}`", path.display())]
    Format { path: PathBuf, found: String },
}

/// Reads an archive.
pub(crate) fn read(path: &Path) -> Result<Archive, ArchiveError> {
    let text = std::fs::read(path).map_err(|cause| ArchiveError::File {
        what: "read",
        path: path.to_owned(),
        cause,
    })?;
    let archive: Archive = serde_json::from_slice(&text)
        .map_err(|cause| ArchiveError::Contents { path: path.to_owned(), cause })?;
    if archive.format != FORMAT {
        return Err(ArchiveError::Format { path: path.to_owned(), found: archive.format });
    }
    Ok(archive)
}

/// Writes a new file; one that exists is not touched, since archives are never edited.
pub(crate) fn write(path: &Path, archive: &impl Serialize) -> Result<(), ArchiveError> {
    let failed = |cause| ArchiveError::File { what: "write", path: path.to_owned(), cause };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let text = serde_json::to_string_pretty(archive).expect("archives are plain data");
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(failed)?;
    file.persist_noclobber(path).map_err(|e| failed(e.error))?;
    Ok(())
}
