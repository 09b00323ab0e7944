//! `peer speed`: times of both sides on one file, in alternating order.
//!
//! What is isolated: the same file, token ids, number of threads, type of keys and values (f16), greedy choice, and no
//! cache of earlier prompts. Each side is a process; one computes while the other waits. Times are each engine's own,
//! from a prompt's first token to the first token drawn (prefill) and from there to the last (decode).
//!
//! What is not: instruction sets. A ready-made llama.cpp may have been compiled without those that Esker uses; both
//! sides' words about it are printed and archived, and `--isa` holds Esker back.

use super::archive::{self, Archive, Memory, ModelFile, Raw, Run, Settings, Start};
use super::group::{MemoryGroup, parse_size};
use super::machine::{self, Machine, ProcessorTime};
use super::protocol::{Complete, Completion, Facts, Kv, Load, Loaded, Request, Tokens};
use super::python::Python;
use super::side::{Resident, Side, Who};
use super::{CommonArguments, PeerError, prompt, summary, table};
use esker_disk::page_cache;
use esker_gguf::Gguf;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Pause before a run, in which the other side's threads stop looking for work.
const SETTLE: Duration = Duration::from_millis(100);

/// Tokens of the prompt whose first answer ends a start.
const START_PROMPT: usize = 16;

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
    /// Prompt lengths for prefill; by default 512 and 2048, as far as the model's context reaches.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    prompt_tokens: Option<Vec<usize>>,
    /// Context lengths for decode; by default 128 and 2048, as far as the model's context reaches.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    context: Option<Vec<usize>>,
    /// Tokens to generate at each context length.
    #[arg(long, value_name = "N", default_value_t = 64)]
    r#gen: usize,
    /// Text that prompts are cut from; by default a built-in one.
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Limit on either side's memory, page cache included (512M, 2G); every start is then a cold one.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<u64>,
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

    let mut bench = Bench {
        python: &python,
        files: gguf.files.clone(),
        load: Load {
            model: arguments.model.to_string_lossy().into_owned(),
            threads: settings.threads,
            context: settings.capacity,
            kv: Kv::F16,
            flash_attention: true,
            isa: arguments.common.isa.clone(),
        },
        settings: &settings,
        timeout: arguments.common.timeout(),
        ids: Vec::new(),
        facts: [None, None],
        runs: Vec::new(),
        starts: Vec::new(),
        memory: Vec::new(),
    };
    bench.ids = bench.tokenize(prompt::text(arguments.prompt_file.as_deref())?)?;
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

fn argument(name: &'static str, value: &impl ToString, expected: impl Into<String>) -> PeerError {
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
    Ok(ModelFile { name, bytes, sha256 })
}

/// Checks the arguments against each other and against what the model was trained for.
fn settings(arguments: &SpeedArguments, trained: Option<usize>) -> Result<Settings, PeerError> {
    let trained = trained.unwrap_or(usize::MAX);
    if arguments.pairs == 0 {
        return Err(argument("--pairs", &0, "at least 1"));
    }
    if arguments.r#gen < 2 {
        return Err(argument("--gen", &arguments.r#gen, "at least 2: the first token belongs to the prompt"));
    }
    if !(arguments.margin > 0.0 && arguments.margin < 1.0) {
        return Err(argument("--margin", &arguments.margin, "more than 0 and less than 1"));
    }
    let lengths = |name, given: &Option<Vec<usize>>, usual: [usize; 2], drawn: usize| {
        // A prompt and what follows it must be within what the model was trained for: llama.cpp's server refuses more.
        let most = trained.saturating_sub(drawn);
        let mut lengths = given.clone().unwrap_or_else(|| usual.map(|n| n.min(most)).to_vec());
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
    let prompt_tokens = lengths("--prompt-tokens", &arguments.prompt_tokens, [512, 2048], 1)?;
    let context = lengths("--context", &arguments.context, [128, 2048], arguments.r#gen)?;
    let longest = prompt_tokens.iter().chain(&context).max().copied().unwrap_or(0);
    // The server wants a multiple of 256 and rounds up itself otherwise.
    let capacity = (longest + arguments.r#gen).next_multiple_of(256);
    Ok(Settings {
        threads: arguments.common.threads(),
        pairs: arguments.pairs,
        warm_ups: arguments.warm_ups,
        prompt_tokens,
        context,
        generate: arguments.r#gen,
        capacity,
        memory_limit: arguments.memory_limit,
        margin: arguments.margin,
    })
}

/// Runs that belong together: by one side, without the other in between.
#[derive(Clone, Debug, PartialEq)]
struct Turn {
    /// `None`: warming up.
    pair: Option<usize>,
    who: Who,
    lengths: Vec<usize>,
}

/// Warm-ups, then pairs; whoever was second begins the next pair of the same kind: A B, B A, A B …
fn turns(settings: &Settings) -> Vec<Turn> {
    let mut lengths = [&settings.prompt_tokens[..], &settings.context].concat();
    lengths.sort_unstable();
    lengths.dedup();
    // Under a memory limit a turn is a process's life, so it holds all lengths.
    let kinds: Vec<Vec<usize>> = match settings.memory_limit {
        Some(_) => vec![lengths],
        None => lengths.into_iter().map(|n| vec![n]).collect(),
    };
    // Processes that live for one turn warm up in it.
    let warm_ups = if settings.memory_limit.is_some() { 0 } else { settings.warm_ups };
    let rounds = std::iter::repeat_n(None, warm_ups).chain((0..settings.pairs).map(Some));
    let mut turns = Vec::new();
    for (round, pair) in rounds.enumerate() {
        for (kind, lengths) in kinds.iter().enumerate() {
            let order = if (round + kind) % 2 == 0 {
                [Who::Esker, Who::LlamaCpp]
            } else {
                [Who::LlamaCpp, Who::Esker]
            };
            turns.extend(order.map(|who| Turn { pair, who, lengths: lengths.clone() }));
        }
    }
    turns
}

/// A comparison while it is made.
struct Bench<'a> {
    python: &'a Python,
    files: Vec<PathBuf>,
    load: Load,
    settings: &'a Settings,
    timeout: Duration,
    /// Ids of the text that prompts are cut from.
    ids: Vec<u32>,
    /// Of Esker and llama.cpp.
    facts: [Option<Facts>; 2],
    runs: Vec<Run>,
    starts: Vec<Start>,
    memory: Vec<Memory>,
}

/// A side's process. The group is dropped after it, when it can be removed.
struct Process {
    side: Side,
    idle: Resident,
    group: Option<MemoryGroup>,
}

impl Bench<'_> {
    /// A process that is ready to load; under a limit in a group of its own and with the file out of the page cache.
    fn process(&mut self, who: Who) -> Result<Process, PeerError> {
        let group = self.settings.memory_limit.map(MemoryGroup::new).transpose()?;
        if group.is_some() {
            for file in &self.files {
                page_cache::drop_page_cache(file)?;
            }
        }
        let (program, arguments) = side_command(who, self.python);
        let command = match &group {
            Some(group) => group.command(program.as_os_str(), &arguments),
            None => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
        };
        let mut side = Side::start(who, command, self.timeout)?;
        if let Some(group) = &group {
            group.enter(side.pid())?;
        }
        // Its answer means that the interpreter is up and libraries are loaded.
        let _: Facts = side.ask(&Request::Facts)?;
        let idle = side.resident();
        Ok(Process { side, idle, group })
    }

    fn loaded(&mut self, who: Who) -> Result<Process, PeerError> {
        let mut process = self.process(who)?;
        let _: Loaded = process.side.ask(&Request::Load(self.load.clone()))?;
        // Loading chooses the instruction set.
        self.facts[usize::from(who == Who::LlamaCpp)] = Some(process.side.ask(&Request::Facts)?);
        Ok(process)
    }

    /// Esker's ids of the text; llama.cpp is given the same.
    fn tokenize(&mut self, text: String) -> Result<Vec<u32>, PeerError> {
        let mut process = self.loaded(Who::Esker)?;
        let tokens: Tokens = process.side.ask(&Request::Tokenize { text, special: false })?;
        Ok(tokens.tokens)
    }

    fn run_all(&mut self) -> Result<(), PeerError> {
        let mut alive: [Option<Process>; 2] = [None, None];
        let limited = self.settings.memory_limit.is_some();
        for turn in turns(self.settings) {
            let place = usize::from(turn.who == Who::LlamaCpp);
            let mut process = match alive[place].take() {
                Some(process) => process,
                None => self.loaded(turn.who)?,
            };
            if limited {
                for _ in 0..self.settings.warm_ups {
                    self.one(&mut process.side, None, turn.who, turn.lengths[0])?;
                }
            }
            for &length in &turn.lengths {
                self.one(&mut process.side, turn.pair, turn.who, length)?;
            }
            if limited {
                self.retire(turn.who, process);
            } else {
                alive[place] = Some(process);
            }
        }
        for (who, process) in [Who::Esker, Who::LlamaCpp].into_iter().zip(alive) {
            if let Some(process) = process {
                self.retire(who, process);
            }
        }
        Ok(())
    }

    fn retire(&mut self, who: Who, process: Process) {
        let after = process.side.resident();
        let group_peak = process.group.as_ref().and_then(|group| group.peak_bytes(process.side.pid()));
        self.memory.push(Memory { who, idle: process.idle, after, group_peak });
    }

    /// One continuation, recorded.
    fn one(
        &mut self,
        side: &mut Side,
        pair: Option<usize>,
        who: Who,
        length: usize,
    ) -> Result<(), PeerError> {
        let decode = self.settings.context.contains(&length);
        let n = if decode { self.settings.generate } else { 1 };
        let prompt = prompt::stretch(&self.ids, length, pair)?;
        std::thread::sleep(SETTLE);
        let before = ProcessorTime::now(side.pid());
        let done = complete(side, prompt, n)?;
        let others = others(before, side.pid());
        check(who, &done, length, n)?;
        let name = pair.map_or_else(|| "warm-up".to_owned(), |pair| format!("pair {}", pair + 1));
        let steps = (n - 1) as f64;
        eprintln!(
            "{name}: {:<9} prompt {length:>5}: {:>9.1} tok/s{}",
            who.name(),
            length as f64 / done.prompt_ms * 1e3,
            if decode {
                format!(", decode {:>8.1} tok/s", steps / done.decode_ms * 1e3)
            } else {
                String::new()
            },
        );
        let Completion { prompt_ms, decode_ms, tokens, .. } = done;
        self.runs.push(Run { pair, who, length, prompt_ms, decode_ms, tokens, others });
        Ok(())
    }

    /// Starts of fresh processes, in pairs.
    fn start_all(&mut self) -> Result<(), PeerError> {
        let rounds =
            std::iter::repeat_n(None, self.settings.warm_ups).chain((0..self.settings.pairs).map(Some));
        for (round, pair) in rounds.enumerate() {
            let order =
                if round % 2 == 0 { [Who::Esker, Who::LlamaCpp] } else { [Who::LlamaCpp, Who::Esker] };
            for who in order {
                self.start_one(pair, who)?;
            }
        }
        Ok(())
    }

    fn start_one(&mut self, pair: Option<usize>, who: Who) -> Result<(), PeerError> {
        let prompt = prompt::stretch(&self.ids, START_PROMPT.min(self.settings.capacity - 1), pair)?;
        let mut process = self.process(who)?;
        let cached = cached(&self.files);
        std::thread::sleep(SETTLE);
        let before = ProcessorTime::now(process.side.pid());
        let started = Instant::now();
        let Loaded { load_ms } = process.side.ask(&Request::Load(self.load.clone()))?;
        let length = prompt.len();
        let done = complete(&mut process.side, prompt, 1)?;
        let first_token_ms = started.elapsed().as_secs_f64() * 1e3;
        let others = others(before, process.side.pid());
        check(who, &done, length, 1)?;
        eprintln!("start: {:<9} first token after {first_token_ms:.0} ms", who.name());
        self.starts.push(Start { pair, who, cached, load_ms, first_token_ms, others });
        Ok(())
    }
}

/// The program of a side and its arguments.
pub(super) fn side_command(who: Who, python: &Python) -> (PathBuf, Vec<OsString>) {
    match who {
        Who::Esker => {
            let this = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
            (this, vec!["esker-side".into()])
        }
        Who::LlamaCpp => {
            let (program, arguments) = python.driver();
            (program, arguments.into_iter().map(OsString::from).collect())
        }
    }
}

fn complete(side: &mut Side, prompt: Vec<u32>, n: usize) -> Result<Completion, PeerError> {
    Ok(side.ask(&Request::Complete(Complete { prompt, n, top: 0, ignore_eos: true }))?)
}

/// Cores that everything but process `pid` kept busy since `before`.
fn others(before: Option<ProcessorTime>, pid: u32) -> Option<f64> {
    Some(before?.others_until(ProcessorTime::now(pid)?))
}

/// A side that computed less than it was asked to is not timed.
fn check(who: Who, done: &Completion, length: usize, n: usize) -> Result<(), PeerError> {
    let found = format!("{} prompt tokens computed, {} drawn", done.prompt_n, done.tokens.len());
    if done.prompt_n != length || done.tokens.len() != n || done.prompt_ms <= 0.0 {
        return Err(argument(
            "a run of",
            &who.name(),
            format!("not comparable: {found}, expected {length} and {n}"),
        ));
    }
    Ok(())
}

/// The share of the files that is in the page cache.
fn cached(files: &[PathBuf]) -> Option<f64> {
    let counts = files.iter().map(|f: &PathBuf| page_cache::resident_pages(Path::new(f)));
    let counts = counts.collect::<Result<Vec<_>, _>>().ok()?;
    let (resident, total) = counts.iter().fold((0, 0), |sum, c| (sum.0 + c.resident, sum.1 + c.total));
    Some(resident as f64 / total as f64)
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
        let usual = settings(&parsed(""), Some(8192)).expect("fits");
        assert_eq!((&usual.prompt_tokens[..], &usual.context[..]), (&[512, 2048][..], &[128, 2048][..]));
        assert_eq!(usual.capacity, 2304);
        let short = settings(&parsed(""), Some(1024)).expect("shrinks");
        assert_eq!((&short.prompt_tokens[..], &short.context[..]), (&[512, 1023][..], &[128, 960][..]));
        let unknown = settings(&parsed("--context 100000"), None).expect("nothing to check against");
        assert_eq!(unknown.context, [100_000]);
    }

    #[test]
    fn lengths_that_were_asked_for_are_not_changed() {
        let refused = |line: &str| settings(&parsed(line), Some(1024)).expect_err(line).to_string();
        assert!(refused("--context 128,1000").contains("1 to 960"), "{}", refused("--context 128,1000"));
        assert!(refused("--prompt-tokens 0").contains("--prompt-tokens 0"));
        assert!(refused("--pairs 0").contains("--pairs"));
        assert!(refused("--gen 1").contains("--gen"));
        assert!(refused("--margin 1.5").contains("--margin"));
    }

    #[test]
    fn each_kind_of_run_alternates() {
        let settings =
            settings(&parsed("--context 128 --prompt-tokens 128,512 --pairs 4"), None).expect("fits");
        let turns = turns(&settings);
        assert_eq!(turns.len(), (1 + 4) * 2 * 2);
        for length in [128, 512] {
            let of: Vec<_> = turns.iter().filter(|t| t.lengths == [length] && t.pair.is_some()).collect();
            let first: Vec<Who> = of.chunks(2).map(|two| two[0].who).collect();
            assert!(of.chunks(2).all(|two| two[0].pair == two[1].pair && two[0].who != two[1].who));
            assert!(first.windows(2).all(|two| two[0] != two[1]), "A B B A A B B A: {first:?}");
        }
        assert!(turns[..4].iter().all(|t| t.pair.is_none()), "warm-ups come first");
    }

    #[test]
    fn under_a_limit_a_turn_is_a_whole_life() {
        let settings = settings(&parsed("--memory-limit 1G --pairs 2"), None).expect("fits");
        assert_eq!(settings.memory_limit, Some(1 << 30));
        let turns = turns(&settings);
        assert_eq!(turns.len(), 4);
        assert!(turns.iter().all(|t| t.lengths == [128, 512, 2048] && t.pair.is_some()));
        assert_ne!(turns[0].who, turns[2].who);
    }

    #[test]
    fn shortened_runs_are_refused() {
        let done = |prompt_n, drawn| Completion {
            tokens: vec![1; drawn],
            prompt_n,
            prompt_ms: 1.0,
            decode_ms: 1.0,
            top: vec![],
        };
        assert!(check(Who::LlamaCpp, &done(16, 4), 16, 4).is_ok());
        let cached = check(Who::LlamaCpp, &done(1, 4), 16, 4).expect_err("a cached prompt");
        assert!(cached.to_string().contains("not comparable"), "{cached}");
        assert!(check(Who::Esker, &done(16, 3), 16, 4).is_err(), "it ended early");
    }
}
