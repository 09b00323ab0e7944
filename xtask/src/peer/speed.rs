//! `peer speed`: times of both sides on one file, in alternating order ([`Bench`]).
//!
//! What is isolated: the same file, token ids, number of threads, type of keys and values (f16), greedy choice, and no
//! cache of earlier prompts. Each side is a process; one computes while the other waits. Times are each engine's own:
//! from a prompt's first token to the first token drawn (prefill), and from there to the last (decode).
//!
//! What is not: instruction sets. A ready-made llama.cpp may have been compiled without those that Esker uses; both
//! sides' words about it are printed and archived, and `--isa` holds Esker back.

use super::archive::{self, Archive, ModelFile, Raw, Settings};
use super::group::parse_size;
use super::machine::{self, Machine};
use super::measure::Bench;
use super::protocol::{Kv, Load};
use super::python::Python;
use super::{CommonArguments, PeerError, prompt, summary, table};
use esker_gguf::Gguf;
use std::path::PathBuf;

/// Share of a memory limit that Esker is told to take: the rest is for what it does not count.
const ESKER_SHARE: f64 = 0.92;

/// Arguments of `peer speed`.
#[derive(clap::Args)]
pub(crate) struct SpeedArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// The GGUF file (the first one of a split set).
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Pairs of runs. Fewer than six are always inconclusive.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pairs: usize,
    /// Rounds before them that do not count.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warm_ups: usize,
    /// Pairs of starts; by default as many as of runs, 0: none.
    #[arg(long, value_name = "N")]
    starts: Option<usize>,
    /// Prompt lengths for prefill; by default 512 and 2048 (with --memory-limit 128), as far as the model's context reaches.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    prompt_tokens: Option<Vec<usize>>,
    /// Context lengths for decode; by default 128, 2048 and 8192 (with --memory-limit 128), as far as the model's context
    /// reaches. Each grows by the tokens that are generated.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    context: Option<Vec<usize>>,
    /// Tokens that a side generates in its turn; by default 32, with --memory-limit 8.
    #[arg(long, value_name = "N")]
    r#gen: Option<usize>,
    /// Text that prompts are cut from; by default a built-in one.
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Limit on either side's memory, page cache included (512M, 2G), for models that are larger: Esker streams experts,
    /// llama.cpp maps the file without repacking. Both processes live at once, each with a limit of its own.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<u64>,
    /// What Esker is told to take of the limit; by default 92 %.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "memory_limit")]
    esker_memory: Option<u64>,
    /// Differences up to this count as equal.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    margin: f64,
    /// Where the archive goes; by default a new file in target/peer.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures, prints the summary, writes the archive.
///
/// # Errors
/// If arguments do not fit the model, or a side fails.
pub(crate) fn run(arguments: &SpeedArguments) -> Result<(), PeerError> {
    let gguf = Gguf::open(&arguments.model)
        .map_err(|e| argument("--model", &arguments.model.display(), e.to_string()))?;
    let settings = settings(arguments, trained_context(&gguf))?;
    let started = machine::unix_time();
    let path = arguments.json.clone().unwrap_or_else(|| {
        let stem = arguments.model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        super::folder().join(format!("speed-{stem}-{started}.json"))
    });
    if path.exists() {
        return Err(argument("--json", &path.display(), "a file that is not there yet"));
    }
    let python = arguments.common.python(&[])?;
    // Reading the files for their hashes also brings them into the page cache.
    let model = model_file(&python, &gguf)?;
    let load_average = machine::load_average();
    let probe_folder = super::folder().join("disks");

    let load = Load {
        model: arguments.model.to_string_lossy().into_owned(),
        threads: settings.threads,
        context: settings.capacity,
        kv: Kv::F16,
        flash_attention: true,
        isa: arguments.common.isa.clone(),
        memory: settings.esker_memory,
        probe_folder: settings.esker_memory.map(|_| probe_folder.to_string_lossy().into_owned()),
    };
    let mut bench = Bench::new(&python, gguf.files.clone(), load, &settings, arguments.common.timeout());
    bench.tokenize(prompt::text(arguments.prompt_file.as_deref())?)?;
    bench.run_all()?;
    bench.start_all()?;
    let Bench { ids, facts: [Some(esker), Some(llama_cpp)], runs, starts, memory, .. } = bench else {
        unreachable!("both sides were started")
    };
    let raw = Raw {
        command: machine::command(),
        started,
        ended: machine::unix_time(),
        load_average: [load_average, machine::load_average()],
        machine: Machine::here(),
        commit: machine::commit(&crate::workspace()),
        esker,
        llama_cpp,
        model,
        settings: settings.clone(),
        prompt_ids: ids,
        runs,
        starts,
        memory,
    };
    let summary = summary::summarize(&raw);
    let archive = Archive { format: archive::FORMAT.to_owned(), raw, summary };
    archive::write(&path, &archive)?;
    print!("{}", table::speed(&archive, &archive.summary));
    println!("archive: {}", path.display());
    Ok(())
}

pub(super) fn argument(name: &'static str, value: &impl ToString, expected: impl Into<String>) -> PeerError {
    PeerError::Argument { name, value: value.to_string(), expected: expected.into() }
}

fn trained_context(gguf: &Gguf) -> Option<usize> {
    let arch = gguf.metadata.str("general.architecture").ok()?;
    gguf.metadata.opt_u32(&format!("{arch}.context_length")).ok()?.map(|n| n as usize)
}

fn model_file(python: &Python, gguf: &Gguf) -> Result<ModelFile, PeerError> {
    let name =
        gguf.files.first().and_then(|f| f.file_name()).unwrap_or_default().to_string_lossy().into_owned();
    let bytes = gguf.files.iter().filter_map(|f| Some(f.metadata().ok()?.len())).sum();
    let sha256 = gguf.files.iter().map(|f| python.sha256(f)).collect::<Result<_, _>>()?;
    let read_ahead_bytes = gguf.files.first().and_then(|file| machine::read_ahead(file));
    Ok(ModelFile { name, bytes, sha256, read_ahead_bytes })
}

/// Checks the arguments against each other and against what the model was trained for.
fn settings(arguments: &SpeedArguments, trained: Option<usize>) -> Result<Settings, PeerError> {
    let trained = trained.unwrap_or(usize::MAX);
    let limit = arguments.memory_limit;
    let generate = arguments.r#gen.unwrap_or(if limit.is_some() { 8 } else { 32 });
    if arguments.pairs == 0 {
        return Err(argument("--pairs", &0, "at least 1"));
    }
    if generate < 2 {
        return Err(argument("--gen", &generate, "at least 2: a turn is timed from its first token on"));
    }
    if !(arguments.margin > 0.0 && arguments.margin < 1.0) {
        return Err(argument("--margin", &arguments.margin, "more than 0 and less than 1"));
    }
    let esker_memory =
        limit.map(|limit| arguments.esker_memory.unwrap_or((limit as f64 * ESKER_SHARE) as u64));
    if let (Some(memory), Some(limit)) = (esker_memory, limit)
        && memory > limit
    {
        return Err(argument("--esker-memory", &memory, format!("at most the limit, {limit} bytes")));
    }
    let lengths = |name, given: &Option<Vec<usize>>, usual: &[usize], drawn: usize| {
        // A prompt and what follows it must be within what the model was trained for: llama.cpp's server refuses more.
        let most = trained.saturating_sub(drawn);
        let mut lengths = given.clone().unwrap_or_else(|| usual.iter().map(|&n| n.min(most)).collect());
        lengths.sort_unstable();
        lengths.dedup();
        match lengths.iter().find(|&&n| n == 0 || n > most) {
            Some(n) => {
                Err(argument(name, n, format!("1 to {most}, with {drawn} more within the model's context")))
            }
            None if lengths.is_empty() => Err(argument(name, &"", "at least one length")),
            None => Ok(lengths),
        }
    };
    let (prompts, contexts): (&[usize], &[usize]) = match limit {
        Some(_) => (&[128], &[128]),
        None => (&[512, 2048], &[128, 2048, 8192]),
    };
    // A sequence that is decoded grows from turn to turn.
    let drawn = 1 + (arguments.warm_ups + arguments.pairs) * generate;
    let prompt_tokens = lengths("--prompt-tokens", &arguments.prompt_tokens, prompts, 1)?;
    let context = lengths("--context", &arguments.context, contexts, drawn)?;
    let longest = |lengths: &[usize]| lengths.last().copied().unwrap_or(0);
    // The server wants a multiple of 256 and rounds up itself otherwise.
    let capacity = (longest(&prompt_tokens) + 1).max(longest(&context) + drawn).next_multiple_of(256);
    Ok(Settings {
        threads: arguments.common.threads(),
        pairs: arguments.pairs,
        warm_ups: arguments.warm_ups,
        starts: Some(arguments.starts.unwrap_or(arguments.pairs)),
        prompt_tokens,
        context,
        generate,
        capacity,
        memory_limit: limit,
        esker_memory,
        margin: arguments.margin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SpeedArguments,
    }

    fn parsed(line: &str) -> SpeedArguments {
        let words =
            ["speed", "--model", "m.gguf", "--threads", "2"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).expect("a valid line").arguments
    }

    #[test]
    fn usual_lengths_shrink_to_the_models_context() {
        let usual = settings(&parsed(""), Some(32_768)).expect("fits");
        assert_eq!(
            (&usual.prompt_tokens[..], &usual.context[..]),
            (&[512, 2048][..], &[128, 2048, 8192][..])
        );
        // 8 turns of 32 tokens and the first one.
        assert_eq!((usual.generate, usual.starts, usual.capacity), (32, Some(7), 8704));
        let short = settings(&parsed(""), Some(1024)).expect("shrinks");
        assert_eq!((&short.prompt_tokens[..], &short.context[..]), (&[512, 1023][..], &[128, 767][..]));
        assert_eq!(short.capacity, 1024);
        let unknown = settings(&parsed("--context 100000"), None).expect("nothing to check against");
        assert_eq!(unknown.context, [100_000]);
    }

    #[test]
    fn lengths_that_were_asked_for_are_not_changed() {
        let refused = |line: &str| settings(&parsed(line), Some(1024)).expect_err(line).to_string();
        assert!(refused("--context 128,1000").contains("1 to 767"), "{}", refused("--context 128,1000"));
        assert!(refused("--prompt-tokens 0").contains("--prompt-tokens 0"));
        assert!(refused("--pairs 0").contains("--pairs"));
        assert!(refused("--gen 1").contains("--gen"));
        assert!(refused("--margin 1.5").contains("--margin"));
    }

    #[test]
    fn under_a_limit_less_is_measured() {
        let limited =
            settings(&parsed("--memory-limit 1000 --pairs 2 --starts 0"), Some(4096)).expect("fits");
        assert_eq!((limited.memory_limit, limited.esker_memory), (Some(1000), Some(920)));
        assert_eq!((&limited.prompt_tokens[..], &limited.context[..]), (&[128][..], &[128][..]));
        assert_eq!((limited.generate, limited.starts), (8, Some(0)));
        let own = settings(&parsed("--memory-limit 1000 --esker-memory 700"), None).expect("fits");
        assert_eq!(own.esker_memory, Some(700));
        assert!(settings(&parsed("--memory-limit 1000 --esker-memory 2K"), None).is_err());
    }
}
