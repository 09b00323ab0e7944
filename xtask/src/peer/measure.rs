//! The measurements of `peer speed`: which side does what, and when.
//!
//! Prefill is measured with a fresh prompt in every pair. A sequence that is decoded is given to both sides once; then
//! they take turns, and each turn goes on where the side's last one ended. So a long context costs one prefill, and models
//! with recurrent state are measured as others are, since nothing is ever taken back. Each side goes on with the tokens
//! that it drew itself, which rounding may make differ: what a step computes depends on tokens only in which experts they
//! choose, and the archive has all tokens. That a side kept its state is checked: at most [`AGAIN_MAX`] tokens of what it
//! has had may be computed again in a turn, of which the last token drawn is always one.

use super::PeerError;
use super::archive::{Memory, Phase, Run, Settings, Start};
use super::group::MemoryGroup;
use super::machine::ProcessorTime;
use super::protocol::{Complete, Completion, Facts, Load, Loaded, Request, Tokens};
use super::python::Python;
use super::side::{Resident, Side, Who};
use super::{prompt, speed::argument};
use esker_disk::page_cache;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Pause before a run, in which the other side's threads stop looking for work.
const SETTLE: Duration = Duration::from_millis(100);

/// Tokens of the prompt whose first answer ends a start.
const START_PROMPT: usize = 16;

/// Tokens that a side may compute before it goes on with a sequence.
const AGAIN_MAX: usize = 4;

/// A comparison while it is made.
pub(super) struct Bench<'a> {
    python: &'a Python,
    files: Vec<PathBuf>,
    load: Load,
    settings: &'a Settings,
    timeout: Duration,
    /// Ids of the text that prompts are cut from.
    pub(super) ids: Vec<u32>,
    /// Of Esker and llama.cpp.
    pub(super) facts: [Option<Facts>; 2],
    pub(super) runs: Vec<Run>,
    pub(super) starts: Vec<Start>,
    pub(super) memory: Vec<Memory>,
}

/// A side's process. The group is dropped after it, when it can be removed.
struct Process {
    who: Who,
    side: Side,
    idle: Resident,
    group: Option<MemoryGroup>,
}

/// One run that is asked of a side.
struct Ask {
    pair: Option<usize>,
    phase: Phase,
    /// Tokens of the prompt that the run is named after.
    length: usize,
    prompt: Vec<u32>,
    generate: usize,
    resume: bool,
}

fn place(who: Who) -> usize {
    usize::from(who == Who::LlamaCpp)
}

/// Warm-ups, then pairs.
fn rounds(warm_ups: usize, pairs: usize) -> impl Iterator<Item = Option<usize>> {
    std::iter::repeat_n(None, warm_ups).chain((0..pairs).map(Some))
}

/// Whoever was second in one turn is first in the next: A B, B A, A B …
fn order(turn: usize) -> [Who; 2] {
    if turn.is_multiple_of(2) { [Who::Esker, Who::LlamaCpp] } else { [Who::LlamaCpp, Who::Esker] }
}

impl<'a> Bench<'a> {
    /// Nothing is started yet.
    pub(super) fn new(
        python: &'a Python,
        files: Vec<PathBuf>,
        load: Load,
        settings: &'a Settings,
        timeout: Duration,
    ) -> Bench<'a> {
        Bench {
            python,
            files,
            load,
            settings,
            timeout,
            ids: Vec::new(),
            facts: [None, None],
            runs: Vec::new(),
            starts: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Esker's ids of the text; llama.cpp is given the same.
    pub(super) fn tokenize(&mut self, text: String) -> Result<(), PeerError> {
        self.forget_files()?;
        let mut process = self.loaded(Who::Esker)?;
        let tokens: Tokens = process.side.ask(&Request::Tokenize { text, special: false })?;
        self.ids = tokens.tokens;
        Ok(())
    }

    /// Prefill, then decode, by two processes that live that long.
    pub(super) fn run_all(&mut self) -> Result<(), PeerError> {
        // Before both: afterwards, what one has in the page cache by then would go, too.
        self.forget_files()?;
        let mut processes = [self.loaded(Who::Esker)?, self.loaded(Who::LlamaCpp)?];
        self.prefill(&mut processes)?;
        for (kind, &context) in self.settings.context.iter().enumerate() {
            self.decode(&mut processes, kind, context)?;
        }
        for process in processes {
            self.retire(process);
        }
        Ok(())
    }

    /// Starts of fresh processes, in pairs.
    pub(super) fn start_all(&mut self) -> Result<(), PeerError> {
        let starts = self.settings.starts.unwrap_or(self.settings.pairs);
        let warm_ups = if starts == 0 { 0 } else { self.settings.warm_ups };
        for (round, pair) in rounds(warm_ups, starts).enumerate() {
            for who in order(round) {
                self.start_one(pair, who)?;
            }
        }
        Ok(())
    }

    /// Under a limit everything begins with nothing of the model in memory.
    fn forget_files(&self) -> Result<(), PeerError> {
        if self.settings.memory_limit.is_some() {
            for file in &self.files {
                page_cache::drop_page_cache(file)?;
            }
        }
        Ok(())
    }

    /// A process that is ready to load; under a limit in a group of its own.
    fn process(&mut self, who: Who) -> Result<Process, PeerError> {
        let group = self.settings.memory_limit.map(MemoryGroup::new).transpose()?;
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
        Ok(Process { who, side, idle, group })
    }

    fn loaded(&mut self, who: Who) -> Result<Process, PeerError> {
        let mut process = self.process(who)?;
        let _: Loaded = process.side.ask(&Request::Load(self.load.clone()))?;
        // Loading chooses the instruction set.
        self.facts[place(who)] = Some(process.side.ask(&Request::Facts)?);
        Ok(process)
    }

    fn retire(&mut self, process: Process) {
        let Process { who, side, idle, group } = &process;
        let group_peak = group.as_ref().and_then(|group| group.peak_bytes(side.pid()));
        self.memory.push(Memory { who: *who, idle: *idle, after: side.resident(), group_peak });
    }

    fn prefill(&mut self, processes: &mut [Process; 2]) -> Result<(), PeerError> {
        let phase = Phase::Prefill;
        for (round, pair) in rounds(self.settings.warm_ups, self.settings.pairs).enumerate() {
            for (kind, &length) in self.settings.prompt_tokens.iter().enumerate() {
                for who in order(round + kind) {
                    let prompt = prompt::stretch(&self.ids, length, pair)?;
                    let ask = Ask { pair, phase, length, prompt, generate: 1, resume: false };
                    self.one(&mut processes[place(who)], ask)?;
                }
            }
        }
        Ok(())
    }

    /// Both sides get a prompt of `length` tokens; then they go on with it in turns.
    fn decode(&mut self, processes: &mut [Process; 2], kind: usize, length: usize) -> Result<(), PeerError> {
        let phase = Phase::Decode;
        let prompt = prompt::stretch(&self.ids, length, None)?;
        let mut held = [prompt.clone(), prompt];
        for who in order(kind) {
            let prompt = held[place(who)].clone();
            let ask = Ask { pair: None, phase, length, prompt, generate: 1, resume: false };
            held[place(who)].extend(self.one(&mut processes[place(who)], ask)?);
        }
        for (round, pair) in rounds(self.settings.warm_ups, self.settings.pairs).enumerate() {
            for who in order(round + kind) {
                let (prompt, generate) = (held[place(who)].clone(), self.settings.generate);
                let ask = Ask { pair, phase, length, prompt, generate, resume: true };
                held[place(who)].extend(self.one(&mut processes[place(who)], ask)?);
            }
        }
        Ok(())
    }

    /// One run, recorded; returns the tokens drawn.
    fn one(&mut self, process: &mut Process, ask: Ask) -> Result<Vec<u32>, PeerError> {
        let Ask { pair, phase, length, prompt, generate, resume } = ask;
        let (who, side, given) = (process.who, &mut process.side, prompt.len());
        std::thread::sleep(SETTLE);
        let (before, read_before) = (ProcessorTime::now(side.pid()), side.read_bytes());
        let done = complete(side, prompt, generate, resume)?;
        let (others, read_after) = (others(before, side.pid()), side.read_bytes());
        check(who, &done, given, generate, resume)?;
        let read_bytes = read_after.zip(read_before).map(|(after, before)| after.saturating_sub(before));
        let name = pair.map_or_else(|| "warm-up".to_owned(), |pair| format!("pair {}", pair + 1));
        let rate = match resume {
            false => format!("prompt {length:>5}: {:>9.1} tok/s", given as f64 / done.prompt_ms * 1e3),
            true => {
                format!("decode at {length:>5}: {:>9.2} tok/s", (generate - 1) as f64 / done.decode_ms * 1e3)
            }
        };
        let read = match (self.settings.memory_limit, read_bytes) {
            (Some(_), Some(bytes)) => format!(", {:.0} MB read", bytes as f64 / 1e6),
            _ => String::new(),
        };
        eprintln!("{name}: {:<9} {rate}{read}", who.name());
        let Completion { prompt_ms, decode_ms, tokens, prompt_n, .. } = done;
        self.runs.push(Run {
            pair,
            who,
            phase,
            length,
            computed: Some(prompt_n),
            prompt_ms,
            decode_ms,
            tokens: tokens.clone(),
            read_bytes,
            others,
        });
        Ok(tokens)
    }

    fn start_one(&mut self, pair: Option<usize>, who: Who) -> Result<(), PeerError> {
        let prompt = prompt::stretch(&self.ids, START_PROMPT.min(self.settings.capacity - 1), pair)?;
        self.forget_files()?;
        let mut process = self.process(who)?;
        let cached = cached(&self.files);
        std::thread::sleep(SETTLE);
        let before = ProcessorTime::now(process.side.pid());
        let started = Instant::now();
        let Loaded { load_ms } = process.side.ask(&Request::Load(self.load.clone()))?;
        let length = prompt.len();
        let done = complete(&mut process.side, prompt, 1, false)?;
        let first_token_ms = started.elapsed().as_secs_f64() * 1e3;
        let others = others(before, process.side.pid());
        check(who, &done, length, 1, false)?;
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

fn complete(side: &mut Side, prompt: Vec<u32>, n: usize, resume: bool) -> Result<Completion, PeerError> {
    Ok(side.ask(&Request::Complete(Complete { prompt, n, top: 0, ignore_eos: true, resume }))?)
}

/// Cores that everything but process `pid` kept busy since `before`.
fn others(before: Option<ProcessorTime>, pid: u32) -> Option<f64> {
    Some(before?.others_until(ProcessorTime::now(pid)?))
}

/// A side that computed less than it was asked to is not timed, nor one that had to compute anew what it should have kept.
fn check(who: Who, done: &Completion, given: usize, n: usize, resume: bool) -> Result<(), PeerError> {
    let (computed, drawn) = (done.prompt_n, done.tokens.len());
    let expected = match resume {
        false => given..=given,
        true => 1..=AGAIN_MAX.min(given),
    };
    if resume && computed > *expected.end() {
        return Err(argument(
            "a turn of",
            &who.name(),
            format!(
                "it computed {computed} of the {given} tokens before the turn again, expected at most {}: its state was \
                not kept",
                expected.end()
            ),
        ));
    }
    if !expected.contains(&computed) || drawn != n || done.prompt_ms <= 0.0 {
        return Err(argument(
            "a run of",
            &who.name(),
            format!(
                "not comparable: {computed} prompt tokens computed, {drawn} drawn, expected {} to {} and {n}",
                expected.start(),
                expected.end()
            ),
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

    #[test]
    fn sides_alternate_and_warm_ups_come_first() {
        let first: Vec<Who> = (0..6).map(|turn| order(turn)[0]).collect();
        assert!(first.windows(2).all(|two| two[0] != two[1]), "{first:?}");
        assert!((0..6).all(|turn| order(turn)[0] != order(turn)[1]));
        assert_eq!(rounds(2, 2).collect::<Vec<_>>(), [None, None, Some(0), Some(1)]);
    }

    fn done(prompt_n: usize, drawn: usize) -> Completion {
        Completion { tokens: vec![1; drawn], prompt_n, prompt_ms: 1.0, decode_ms: 1.0, top: vec![] }
    }

    #[test]
    fn shortened_runs_are_refused() {
        assert!(check(Who::LlamaCpp, &done(16, 4), 16, 4, false).is_ok());
        let cached = check(Who::LlamaCpp, &done(1, 4), 16, 4, false).expect_err("a cached prompt");
        assert!(cached.to_string().contains("not comparable"), "{cached}");
        assert!(check(Who::Esker, &done(16, 3), 16, 4, false).is_err(), "it ended early");
    }

    #[test]
    fn turns_that_computed_their_past_again_are_refused() {
        assert!(check(Who::Esker, &done(1, 4), 2048, 4, true).is_ok());
        assert!(check(Who::LlamaCpp, &done(AGAIN_MAX, 4), 2048, 4, true).is_ok());
        let again = check(Who::LlamaCpp, &done(2048, 4), 2048, 4, true).expect_err("all of it");
        let text = again.to_string();
        assert!(
            text.contains("llama.cpp") && text.contains("2048 of the 2048") && text.contains("not kept"),
            "{text}"
        );
        assert!(check(Who::Esker, &done(0, 4), 2048, 4, true).is_err(), "the last token has to be computed");
        assert!(check(Who::Esker, &done(1, 3), 2048, 4, true).is_err(), "it ended early");
    }
}
