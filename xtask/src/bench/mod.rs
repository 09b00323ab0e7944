//! `cargo xtask bench`: how fast Esker is, next to what the machine it runs on could do.
//!
//! [`kernels`] sets single operations against measured ceilings of the processor and its memory, [`stream`] sets decoding
//! from the disk against the disk, [`growth`] shows times over the length of the context. Each writes an archive
//! ([`record`]); [`plot`] makes tables and pictures of archives, and those of `peer speed`.

mod growth;
mod kernels;
mod plot;
mod record;
mod spread;
mod stream;

use clap::{Args, Subcommand};
use esker_engine::{Engine, EngineError};
use esker_kernels::isa;
use std::path::PathBuf;

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum BenchChore {
    /// Products with weights and operations on floats, against the memory's bandwidth and the processor's peak.
    Kernels(kernels::KernelsArguments),
    /// Decoding with experts on disk, against what disk and processor allow in the same minutes.
    Stream(stream::StreamArguments),
    /// Time of a decode step and of a prompt over the length of the context, all weights in memory.
    Growth(growth::GrowthArguments),
    /// Makes pictures and tables of archives.
    Plot(plot::PlotArguments),
}

/// What benchmarks of a whole model take.
#[derive(Args, Clone)]
pub(crate) struct ModelArguments {
    /// The GGUF file (the first one of a split set).
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Threads; by default as many as there are physical cores.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Instruction set (avx512, avxvnni, avx2, neon, scalar); by default the best one here.
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Text that tokens are taken from; by default a built-in one.
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Where the archive goes; by default a new file in target/bench.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A benchmark could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model file.
    #[error(transparent)]
    Open(#[from] esker_gguf::OpenError),
    /// The disk.
    #[error(transparent)]
    Probe(#[from] esker_disk::probe::ProbeError),
    /// The sampler.
    #[error(transparent)]
    Sampling(#[from] esker_engine::SamplingError),
    /// Text to tokens.
    #[error(transparent)]
    Encode(#[from] esker_text::EncodeError),
    /// The text.
    #[error(transparent)]
    Prompt(#[from] crate::peer::prompt::PromptError),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] crate::peer::archive::ArchiveError),
    /// Pictures and tables.
    #[error(transparent)]
    Plot(#[from] plot::PlotError),
    /// Instruction sets.
    #[error(transparent)]
    Isa(#[from] isa::UnknownIsa),
    /// Instruction sets.
    #[error(transparent)]
    IsaUnavailable(#[from] isa::IsaUnavailable),
    /// A folder for what lasts as long as the benchmark.
    #[error("cannot make a temporary folder")]
    Folder(#[source] std::io::Error),
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

/// Runs a benchmark; false if it found a difference where there should be none.
///
/// # Errors
/// If it could not be made.
pub(crate) fn run(chore: &BenchChore) -> Result<bool, BenchError> {
    match chore {
        BenchChore::Kernels(arguments) => kernels::run(arguments),
        BenchChore::Stream(arguments) => stream::run(arguments).map(|()| true),
        BenchChore::Growth(arguments) => growth::run(arguments).map(|()| true),
        BenchChore::Plot(arguments) => Ok(plot::run(arguments).map(|()| true)?),
    }
}

fn argument(name: &'static str, value: &impl ToString, expected: impl Into<String>) -> BenchError {
    BenchError::Argument { name, value: value.to_string(), expected: expected.into() }
}

/// Makes the process use an instruction set, if one is named.
fn force_isa(name: Option<&str>) -> Result<(), BenchError> {
    if let Some(name) = name {
        isa::force_isa(name.parse()?)?;
    }
    Ok(())
}

/// `length` ids of ordinary text; of a model without a usable tokenizer, ids that look random and are the same always.
fn token_ids(engine: &Engine, arguments: &ModelArguments, length: usize) -> Result<Vec<u32>, BenchError> {
    let Ok(tokenizer) = engine.tokenizer() else {
        let n_vocab = engine.n_vocab() as u64;
        let id = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % n_vocab;
        return Ok((1..=length as u64).map(|i| id(i) as u32).collect());
    };
    let text = crate::peer::prompt::text(arguments.prompt_file.as_deref())?;
    let ids = tokenizer.encode(&text, esker_text::EncodeOptions { special: false, add_bos_eos: false })?;
    Ok(crate::peer::prompt::stretch(&ids, length, None)?)
}

/// A count of tokens such as `8192` or `8k` (binary).
///
/// # Errors
/// In words, for the command line.
fn parse_tokens(text: &str) -> Result<usize, String> {
    let expected = || format!("`{text}` is no number of tokens; expected for example 512 or 8k");
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let count = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    count.filter(|&n| n > 0).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts() {
        assert_eq!(parse_tokens("64k"), Ok(65_536));
        assert_eq!(parse_tokens("100"), Ok(100));
        for wrong in ["", "k", "0", "-1", "1M", "99999999999999999999k"] {
            assert!(parse_tokens(wrong).is_err(), "{wrong}");
        }
    }
}
