//! What all records of benchmarks begin with, and where they go.

use super::BenchError;
use crate::peer::machine::{self, Machine};
use esker_engine::{Engine, Op, Phase, Profile};
use esker_gguf::Gguf;
use esker_kernels::isa;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Archive<R, S> {
    /// Which benchmark, and a number that changes when fields change their meaning.
    pub(crate) format: String,
    /// The run.
    pub(crate) run: Run,
    /// What was measured.
    pub(crate) raw: R,
    /// What a pure function makes of it.
    pub(crate) summary: S,
}

/// When, where and of what state of the code a record is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
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
    /// The commit of the code.
    pub(crate) commit: Option<String>,
    /// Version of Esker.
    pub(crate) version: String,
    /// The best instruction set of those in use.
    pub(crate) isa: String,
    /// Threads that computed.
    pub(crate) threads: usize,
}

/// A run that goes on.
pub(crate) struct Started {
    at: u64,
    load_average: Option<f64>,
}

impl Started {
    /// Now.
    pub(crate) fn now() -> Started {
        Started { at: machine::unix_time(), load_average: machine::load_average() }
    }

    /// Seconds since 1970.
    pub(crate) fn unix_time(&self) -> u64 {
        self.at
    }

    /// Its end.
    pub(crate) fn end(self, threads: usize) -> Run {
        Run {
            command: machine::command(),
            started: self.at,
            ended: machine::unix_time(),
            load_average: [self.load_average, machine::load_average()],
            machine: Machine::here(),
            commit: machine::commit(&crate::workspace()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            isa: isa::active().to_string(),
            threads,
        }
    }
}

/// The model that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelFile {
    /// File name, without folders.
    pub(crate) name: String,
    /// Bytes of all its files.
    pub(crate) bytes: u64,
    /// `general.architecture`.
    pub(crate) architecture: String,
    /// Layers.
    pub(crate) layers: usize,
}

impl ModelFile {
    /// Of a loaded model.
    pub(crate) fn of(engine: &Engine) -> ModelFile {
        let gguf: &Gguf = engine.gguf();
        let name = gguf.files.first().and_then(|f| f.file_name()).unwrap_or_default();
        ModelFile {
            name: name.to_string_lossy().into_owned(),
            bytes: gguf.total_file_bytes(),
            architecture: gguf.metadata.str("general.architecture").unwrap_or("unknown").to_owned(),
            layers: engine.n_layer(),
        }
    }
}

/// Time of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpMs {
    /// Its name in profiles.
    pub(crate) op: String,
    /// Milliseconds.
    pub(crate) ms: f64,
    /// Bytes of weights that it read.
    pub(crate) weight_bytes: u64,
}

/// What a profile has counted in decode steps up to a moment.
pub(crate) struct Counted {
    passes_ms: f64,
    ops: Vec<OpMs>,
}

impl Counted {
    /// Up to now.
    pub(crate) fn decode(profile: &Profile) -> Counted {
        let op = |op: Op| {
            let entry = profile.of(Phase::Decode, op);
            let ms = entry.time.as_secs_f64() * 1e3;
            OpMs { op: op.name().to_owned(), ms, weight_bytes: entry.weight_bytes }
        };
        let passes_ms = profile.passes(Phase::Decode).time.as_secs_f64() * 1e3;
        Counted { passes_ms, ops: Op::ALL.map(op).to_vec() }
    }

    /// Time of passes, and of the operations that ran, from here to `later`.
    pub(crate) fn until(&self, later: &Counted) -> (f64, Vec<OpMs>) {
        let both = self.ops.iter().zip(&later.ops).map(|(from, to)| OpMs {
            op: to.op.clone(),
            ms: to.ms - from.ms,
            weight_bytes: to.weight_bytes - from.weight_bytes,
        });
        (later.passes_ms - self.passes_ms, both.filter(|op| op.ms > 0.0).collect())
    }
}

/// Where a new archive goes: the file asked for, or one in the folder that this program was built into.
///
/// # Errors
/// If it exists: archives are never edited.
pub(crate) fn archive_path(
    asked: Option<&Path>,
    kind: &str,
    model: &Path,
    started: u64,
) -> Result<PathBuf, BenchError> {
    let path = asked.map_or_else(
        || {
            let stem = model.file_stem().unwrap_or(OsStr::new("")).to_string_lossy();
            let dash = if stem.is_empty() { "" } else { "-" };
            crate::target().join("bench").join(format!("{kind}{dash}{stem}-{started}.json"))
        },
        Path::to_owned,
    );
    if path.exists() {
        return Err(super::argument("--json", &path.display(), "a file that is not there yet"));
    }
    Ok(path)
}
