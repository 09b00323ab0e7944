//! The record of a speed comparison: what was measured, untouched, and the summary that follows from it.

use super::machine::Machine;
use super::protocol::Facts;
use super::side::{Resident, Who};
use super::summary::Line;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Written into every archive; another number when fields change their meaning.
pub(crate) const FORMAT: &str = "esker-peer-speed/2";

/// The format before: each run was a prompt of its own and, where decode was timed, what followed it ([`Phase::Both`]).
pub(crate) const FORMAT_1: &str = "esker-peer-speed/1";

/// A whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Archive {
    /// [`FORMAT`] or [`FORMAT_1`].
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
    /// Bytes that the kernel reads ahead on the disk that it lies on: what page faults of a mapped file are answered with.
    #[serde(default)]
    pub(crate) read_ahead_bytes: Option<u64>,
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
    /// Pairs of starts; `None`: as many as of runs.
    #[serde(default)]
    pub(crate) starts: Option<usize>,
    /// Prompt lengths whose prefill is timed.
    pub(crate) prompt_tokens: Vec<usize>,
    /// Context lengths at which decode is timed; they grow from turn to turn.
    pub(crate) context: Vec<usize>,
    /// Tokens generated in each turn.
    pub(crate) generate: usize,
    /// Room that both sides make, in tokens.
    pub(crate) capacity: usize,
    /// Limit on either side's memory, in bytes. With one, everything begins with the file out of the page cache.
    pub(crate) memory_limit: Option<u64>,
    /// What Esker was told to take of it, in bytes.
    #[serde(default)]
    pub(crate) esker_memory: Option<u64>,
    /// Ratios up to 1 + this, or down to its inverse, count as equal.
    pub(crate) margin: f64,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// A prompt of its own; one token drawn.
    Prefill,
    /// A turn in a sequence that goes on, or the prompt that it begins with.
    Decode,
    /// In archives of [`FORMAT_1`]: a prompt of its own, and the tokens that followed it at once.
    #[default]
    Both,
}

/// One continuation by one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Which pair it belongs to; `None`: warming up.
    pub(crate) pair: Option<usize>,
    /// Who made it.
    pub(crate) who: Who,
    /// What it is for.
    #[serde(default)]
    pub(crate) phase: Phase,
    /// Tokens of the prompt; in a turn, of the prompt that the sequence began with.
    pub(crate) length: usize,
    /// Tokens that were computed before the first was drawn; `None` in archives of [`FORMAT_1`]: all of the prompt.
    #[serde(default)]
    pub(crate) computed: Option<usize>,
    /// From the first of these to the first token drawn.
    pub(crate) prompt_ms: f64,
    /// From the first token drawn to the last.
    pub(crate) decode_ms: f64,
    /// Tokens drawn.
    pub(crate) tokens: Vec<u32>,
    /// Bytes that the kernel read from disks for the process meanwhile.
    #[serde(default)]
    pub(crate) read_bytes: Option<u64>,
    /// Cores that other processes, the waiting side among them, kept busy meanwhile.
    pub(crate) others: Option<f64>,
}

impl Run {
    /// Bytes read from disks for each token that went through the model.
    pub(crate) fn read_per_token(&self) -> Option<f64> {
        // The last token drawn was not computed any more.
        let tokens = self.computed? + self.tokens.len().saturating_sub(1);
        Some(self.read_bytes? as f64 / tokens as f64)
    }
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
    #[error("`{}` has format `{found}`, expected `{FORMAT}` or `{FORMAT_1}`", path.display())]
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
    if archive.format != FORMAT && archive.format != FORMAT_1 {
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
