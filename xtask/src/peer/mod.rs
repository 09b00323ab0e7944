//! `cargo xtask peer`: Esker beside llama.cpp on the same file, the same token ids and the same threads.
//!
//! Each side is a process of its own ([`side`]) that is asked in lines of JSON ([`protocol`]): this program again for
//! Esker ([`esker`]), a Python script for llama.cpp (`driver.py` with one module per binding). `smollm2` asks both for
//! the same results, `speed` for times; [`summary`] turns times into verdicts.
//!
//! Never part of CI: it downloads packages, and other people's releases must not break our builds.

pub(crate) mod archive;
mod esker;
pub(crate) mod group;
pub(crate) mod machine;
mod measure;
pub(crate) mod prompt;
mod protocol;
mod python;
pub(crate) mod side;
mod smollm2;
mod speed;
pub(crate) mod summary;
pub(crate) mod table;
mod unpack;

pub(crate) use esker::run as esker_side;

use clap::{Args, Subcommand};
use python::{Driver, Python};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The comparisons.
#[derive(Subcommand)]
pub(crate) enum PeerChore {
    /// Same tokens: tokenizer, chat template and greedy continuations of a small llama model.
    Smollm2(smollm2::Smollm2Arguments),
    /// How fast: decode, prefill, start, and memory, in alternating pairs.
    Speed(speed::SpeedArguments),
    /// Computes the summary of an archive that `speed` wrote again and compares it with the one inside.
    Recheck {
        /// The archive.
        archive: PathBuf,
    },
}

/// What all comparisons take.
#[derive(Args, Clone)]
pub(crate) struct CommonArguments {
    /// Threads of either side; by default as many as there are physical cores.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The llama.cpp package: a ready-made one, or one that is compiled here for this processor (needs a C++ compiler). By
    /// default the first that can be imported by the Python that is named; without one, xllamacpp.
    #[arg(long, value_enum)]
    driver: Option<Driver>,
    /// A Python that has the packages already, in its own folders or in PYTHONPATH; without it one is set up under
    /// target/peer.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Instruction set that Esker uses (avx512, avxvnni, avx2, neon, scalar); by default the best one here.
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Seconds that either side may take for one answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
}

impl CommonArguments {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(esker_engine::default_threads).max(1)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The Python with llama.cpp in it, set up if need be, and the scripts beside it.
    fn python(&self, extra: &[&'static str]) -> Result<Python, python::PythonError> {
        match &self.python {
            Some(program) => Python::existing(program, self.driver, &folder()),
            None => Python::set_up(&folder(), self.driver.unwrap_or(Driver::Xllamacpp), extra),
        }
    }
}

/// A comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// Packages.
    #[error(transparent)]
    Python(#[from] python::PythonError),
    /// A side failed.
    #[error(transparent)]
    Side(#[from] side::SideError),
    /// The memory limit.
    #[error(transparent)]
    Group(#[from] group::GroupError),
    /// The prompt.
    #[error(transparent)]
    Prompt(#[from] prompt::PromptError),
    /// The copy with f32 weights.
    #[error(transparent)]
    Unpack(#[from] unpack::UnpackError),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] archive::ArchiveError),
    /// The page cache.
    #[error(transparent)]
    PageCache(#[from] esker_disk::page_cache::PageCacheError),
    /// An argument that does not fit the model or another argument.
    #[error("{name} {value}: {expected}")]
    Argument {
        /// The flag.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        expected: String,
    },
}

/// Runs a comparison; false if it found a difference.
///
/// # Errors
/// If it could not be made.
pub(crate) fn run(chore: &PeerChore) -> Result<bool, PeerError> {
    match chore {
        PeerChore::Smollm2(arguments) => smollm2::run(arguments),
        PeerChore::Speed(arguments) => speed::run(arguments).map(|()| true),
        PeerChore::Recheck { archive } => recheck(archive),
    }
}

fn recheck(path: &Path) -> Result<bool, PeerError> {
    let archive = archive::read(path)?;
    let again = summary::summarize(&archive.raw);
    print!("{}", table::speed(&archive, &again));
    let same = again == archive.summary;
    println!("the summary {} what the raw part gives", if same { "is" } else { "IS NOT" });
    Ok(same)
}

/// Where packages, scripts and archives go: `peer` in the folder that this program was built into.
fn folder() -> PathBuf {
    crate::target().join("peer")
}
