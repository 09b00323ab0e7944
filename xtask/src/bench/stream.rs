//! `bench stream`: decoding with experts on disk, against the roofline of this machine in these minutes.
//!
//! Rounds alternate: random direct reads of the size that an expert's reads have, at several depths, the best of which
//! says what the disk gives; then decode steps of one sequence that goes on from round to round. A step could not be
//! faster than the disk moves the bytes it read, nor than its computations, taken from the profile: all of the step but
//! requests to the store and waiting for it. The longer of the two is the roofline. A round's disk rate is the mean of
//! the probes before and after it.
//!
//! Probes read into memory that is larger than caches, as the arena is. What disk benchmarks commonly do, reading into a
//! few buffers again and again, is measured beside it: where a disk is virtual and its bytes are copied it is faster, and
//! no program that keeps what it reads can reach it.
//!
//! The probe's buffers count as part of the memory given, so a memory group of that size holds the whole benchmark.
//! Tokens are drawn (seeded), since the likeliest token of a small model tends to repeat itself, and its experts with it.

use super::record::{self, Archive, Counted, ModelFile, OpMs, Started};
use super::spread::Spread;
use super::{BenchError, ModelArguments, argument, force_isa, token_ids};
use crate::peer::archive;
use crate::peer::group::{memory_limit, parse_size};
use crate::peer::table::columns;
use esker_disk::probe::{self, ProbeResult};
use esker_engine::{Engine, EngineOptions, Memory, Output, Plan, Sampler, Sampling, Session};
use esker_gguf::Gguf;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Written into every archive.
pub(crate) const FORMAT: &str = "esker-bench-stream/2";

/// Pause before a probe, in which reads that were issued ahead come in.
const SETTLE: Duration = Duration::from_millis(50);

/// Arguments of `bench stream`.
#[derive(clap::Args)]
pub(crate) struct StreamArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Memory for all of it (512M, 2G). A memory group of that size can be set from outside.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: u64,
    /// Rounds that count.
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Rounds of decoding before them, in which the cache fills.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warm_ups: usize,
    /// Decode steps of a round.
    #[arg(long, value_name = "N", default_value_t = 32)]
    r#gen: usize,
    /// Tokens of the prompt.
    #[arg(long, value_name = "N", default_value_t = 128)]
    prompt_tokens: usize,
    /// Tokens per pass of the prompt; what they take in memory the experts do not have.
    #[arg(long, value_name = "N", default_value_t = 32)]
    chunk: usize,
    /// Seconds of a probe.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    probe: f64,
    /// Do not read ahead what the next layer will probably need.
    #[arg(long)]
    no_read_ahead: bool,
    /// Temperature of the draws; 0: always the likeliest token.
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    temperature: f32,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raw {
    /// The model.
    pub(crate) model: ModelFile,
    /// What was asked for.
    pub(crate) settings: Settings,
    /// Bytes of the file's routed experts.
    pub(crate) expert_bytes: u64,
    /// Share of them that fits into the arena.
    pub(crate) resident_share: f64,
    /// Bytes of one token's routed experts, all layers.
    pub(crate) experts_per_token_bytes: u64,
    /// How the engine read.
    pub(crate) memory_note: String,
    /// Probes: one before each round and one after the last.
    pub(crate) probes: Vec<Probe>,
    /// Rounds of decoding.
    pub(crate) rounds: Vec<Round>,
    /// The most memory that was ever resident, in bytes.
    pub(crate) peak_memory_bytes: u64,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Memory in all, in bytes.
    pub(crate) memory: u64,
    /// The limit of the memory group that the process was in.
    pub(crate) group_limit: Option<u64>,
    /// Decode steps of a round.
    pub(crate) generate: usize,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    /// Rounds that do not count, before the others.
    pub(crate) warm_ups: usize,
    /// Bytes of the probe's reads.
    pub(crate) block_bytes: usize,
    /// Bytes that the probe reads to in turn.
    pub(crate) probe_memory: usize,
    /// Seconds of a probe.
    pub(crate) probe_seconds: f64,
    /// Whether experts were read ahead.
    pub(crate) read_ahead: bool,
    /// Of the draws.
    pub(crate) temperature: f32,
}

/// The disk at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// Whether reads went past the page cache.
    pub(crate) direct: bool,
    /// What carried them out.
    pub(crate) disk: String,
    /// (reads in flight, MB/s) into memory that is larger than caches, as the arena is; MB are decimal.
    pub(crate) depths: Vec<(usize, f64)>,
    /// The same into as few buffers as can be, as disk benchmarks commonly read.
    pub(crate) few_buffers: Vec<(usize, f64)>,
}

/// Decode steps between two probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Time of all steps, passes and draws.
    pub(crate) ms: f64,
    /// Of it, passes through the model.
    pub(crate) passes_ms: f64,
    /// Of it, draws.
    pub(crate) sampling_ms: f64,
    /// Bytes of experts and rows read.
    pub(crate) bytes_read: u64,
    /// Of these, experts that were read ahead in vain.
    pub(crate) wasted_bytes: u64,
    /// Lookups of experts that were there, with those read ahead in time, and all of them.
    pub(crate) lookups: (u64, u64),
    /// Where the time of passes went.
    pub(crate) ops: Vec<OpMs>,
}

/// What follows from it. Medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Decode steps per second.
    pub(crate) tokens_per_s: Spread,
    /// Bytes read per step.
    pub(crate) bytes_per_token: Spread,
    /// Bytes read by the time that passed.
    pub(crate) reached_mb_s: Spread,
    /// The best that the disk gave.
    pub(crate) disk_mb_s: Spread,
    /// The best that it gave into a few buffers.
    pub(crate) few_buffers_mb_s: Spread,
    /// The time that the disk takes for a step's bytes at its best, milliseconds.
    pub(crate) disk_ms: Spread,
    /// The time of a step's computations, milliseconds.
    pub(crate) compute_ms: Spread,
    /// The longer of the two.
    pub(crate) roofline_ms: Spread,
    /// The time that a step took, milliseconds.
    pub(crate) step_ms: Spread,
    /// Roofline by measured time.
    pub(crate) share: Spread,
    /// Lookups that were hits or read ahead in time, of all.
    pub(crate) hit_rate: Spread,
}

/// The archive.
pub(crate) type StreamArchive = Archive<Raw, Summary>;

/// Measures, prints, writes the archive.
///
/// # Errors
/// If arguments do not fit the model, or engine or disk fail.
pub(crate) fn run(arguments: &StreamArguments) -> Result<(), BenchError> {
    let common = &arguments.model;
    let started = Started::now();
    let path = record::archive_path(common.json.as_deref(), "stream", &common.model, started.unix_time())?;
    force_isa(common.isa.as_deref())?;
    let (raw, threads) = measure(arguments)?;
    let summary = summarize(&raw);
    let archive = Archive { format: FORMAT.to_owned(), run: started.end(threads), raw, summary };
    archive::write(&path, &archive)?;
    print!("{}", table(&archive));
    println!("archive: {}", path.display());
    Ok(())
}

fn measure(arguments: &StreamArguments) -> Result<(Raw, usize), BenchError> {
    let (rounds, generate, warm_ups) = (arguments.rounds, arguments.r#gen, arguments.warm_ups);
    if rounds == 0 || generate == 0 || arguments.prompt_tokens == 0 || arguments.chunk == 0 {
        return Err(argument("--rounds, --gen, --prompt-tokens and --chunk", &0, "at least 1 of each"));
    }
    let (block, block_file, expert_bytes) = expert_reads(&arguments.model.model)?;
    let probe_memory = probe::MEMORY_BYTES.min((arguments.memory / 8) as usize);
    let buffers = probe::probe_bytes(block, probe_memory);
    let budget = arguments.memory.saturating_sub(buffers as u64);
    let capacity = arguments.prompt_tokens + (warm_ups + rounds) * generate;
    let probe_folder = tempfile::tempdir().map_err(BenchError::Folder)?;
    let options = EngineOptions {
        threads: arguments.model.threads,
        context: Some(capacity),
        chunk: arguments.chunk,
        memory: Memory::Budget(budget),
        read_ahead: !arguments.no_read_ahead,
        probe_folder: Some(probe_folder.path().to_owned()),
        ..EngineOptions::default()
    };
    let mut engine = Engine::load(&arguments.model.model, options)?;
    let sampling = Sampling { temperature: arguments.temperature, ..Sampling::default() };
    let mut sampler = Sampler::new(sampling, engine.n_vocab())?;
    let prompt = token_ids(&engine, &arguments.model, arguments.prompt_tokens)?;
    let mut session = engine.new_session();
    let mut next = {
        let logits = engine.prefill(&mut session, &prompt, |_| ControlFlow::Continue(()))?;
        let rows = logits.expect("a prompt that was not interrupted has logits");
        sampler.sample(rows.row(0), session.tokens())
    };
    engine.profile().turn_on();
    let mut decode = |engine: &mut Engine| round(engine, &mut session, &mut sampler, &mut next, generate);
    for _ in 0..warm_ups {
        decode(&mut engine)?;
    }
    let probe = || probe_disk(&block_file, block, probe_memory, arguments.probe);
    let (mut probes, mut measured) = (vec![probe()?], Vec::new());
    for number in 1..=rounds {
        let round = decode(&mut engine)?;
        probes.push(probe()?);
        eprintln!(
            "round {number}: {:.2} tok/s, {:.0} MB/s; disk {:.0} MB/s",
            generate as f64 / round.ms * 1e3,
            round.bytes_read as f64 / round.ms / 1e3,
            best(&probes[number].depths),
        );
        measured.push(round);
    }
    let plan = engine.plan();
    let raw = Raw {
        model: ModelFile::of(&engine),
        settings: Settings {
            memory: arguments.memory,
            group_limit: memory_limit(),
            generate,
            prompt_tokens: arguments.prompt_tokens,
            warm_ups,
            block_bytes: block,
            probe_memory,
            probe_seconds: arguments.probe,
            read_ahead: !arguments.no_read_ahead,
            temperature: arguments.temperature,
        },
        expert_bytes,
        resident_share: plan.map_or(1.0, Plan::resident_share),
        experts_per_token_bytes: plan.map_or(0, |plan| plan.experts_per_token_bytes),
        memory_note: engine.memory_note().to_owned(),
        probes,
        rounds: measured,
        peak_memory_bytes: engine.stats().peak_memory_bytes,
    };
    Ok((raw, engine.threads()))
}

/// Bytes of the longest read of an expert, the file that it is in, and bytes of all experts.
fn expert_reads(model: &Path) -> Result<(usize, PathBuf, u64), BenchError> {
    let gguf = Gguf::open(model)?;
    let experts = gguf.tensors.iter().filter(|t| t.is_expert() || t.name.ends_with("_exps.packed"));
    let (mut longest, mut all) = (None, 0);
    for tensor in experts {
        let n_expert = tensor.shape.last().copied().unwrap_or(1).max(1);
        all += tensor.size;
        longest = longest.max(Some((tensor.size / n_expert, tensor.file)));
    }
    let Some((bytes, file)) = longest else {
        return Err(argument("--model", &model.display(), "a model with routed experts"));
    };
    Ok(((bytes as usize).clamp(1, probe::BLOCK_BYTES_MAX), gguf.files[file].clone(), all))
}

fn probe_disk(file: &Path, block: usize, memory: usize, seconds: f64) -> Result<Probe, BenchError> {
    std::thread::sleep(SETTLE);
    let measure = |memory, seconds| probe::probe(file, block, memory, seconds);
    let (arena, few) = (measure(memory, seconds * 0.6)?, measure(0, seconds * 0.4)?);
    let depths = |result: &ProbeResult| {
        result.depths.iter().map(|d| (d.depth, d.bytes_per_s as f64 / 1e6)).collect::<Vec<_>>()
    };
    Ok(Probe { direct: arena.direct, depths: depths(&arena), few_buffers: depths(&few), disk: arena.disk })
}

/// Decode steps, `next` being the token that begins them.
fn round(
    engine: &mut Engine,
    session: &mut Session,
    sampler: &mut Sampler,
    next: &mut u32,
    steps: usize,
) -> Result<Round, BenchError> {
    let (before, counted) = (engine.stats(), Counted::decode(engine.profile()));
    let mut sampling = Duration::ZERO;
    let begin = Instant::now();
    for _ in 0..steps {
        let logits = engine.forward(session, &[*next], Output::Last)?;
        let rows = logits.expect("logits of the last token were asked for");
        let drawing = Instant::now();
        *next = sampler.sample(rows.row(0), session.tokens());
        sampling += drawing.elapsed();
    }
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    let after = engine.stats();
    let (passes_ms, ops) = counted.until(&Counted::decode(engine.profile()));
    let hits = after.decode_expert_hits - before.decode_expert_hits + after.decode_expert_read_ahead_hits
        - before.decode_expert_read_ahead_hits;
    Ok(Round {
        ms,
        passes_ms,
        sampling_ms: sampling.as_secs_f64() * 1e3,
        bytes_read: after.expert_bytes_read - before.expert_bytes_read + after.row_bytes_read
            - before.row_bytes_read,
        wasted_bytes: after.expert_wasted_bytes - before.expert_wasted_bytes,
        lookups: (hits, hits + after.decode_expert_misses - before.decode_expert_misses),
        ops,
    })
}

/// MB/s of the best depth.
fn best(depths: &[(usize, f64)]) -> f64 {
    depths.iter().map(|&(_, mb_s)| mb_s).fold(0.0, f64::max)
}

/// One round's numbers, per step.
struct Step {
    ms: f64,
    bytes: f64,
    disk_mb_s: f64,
    few_buffers_mb_s: f64,
    disk_ms: f64,
    compute_ms: f64,
    hit_rate: f64,
}

impl Step {
    fn of(raw: &Raw, number: usize) -> Step {
        let round = &raw.rounds[number];
        let steps = raw.settings.generate as f64;
        let probes = &raw.probes[number..=number + 1];
        let mean =
            |depths: fn(&Probe) -> &[(usize, f64)]| probes.iter().map(|p| best(depths(p))).sum::<f64>() / 2.0;
        let disk_mb_s = mean(|p| &p.depths);
        let store = round.ops.iter().filter(|op| ["request", "wait"].contains(&op.op.as_str()));
        let compute = round.passes_ms - store.map(|op| op.ms).sum::<f64>() + round.sampling_ms;
        let bytes = round.bytes_read as f64 / steps;
        let (hits, lookups) = round.lookups;
        Step {
            ms: round.ms / steps,
            bytes,
            disk_mb_s,
            few_buffers_mb_s: mean(|p| &p.few_buffers),
            disk_ms: bytes / disk_mb_s / 1e3,
            compute_ms: compute / steps,
            hit_rate: if lookups == 0 { 1.0 } else { hits as f64 / lookups as f64 },
        }
    }

    fn roofline_ms(&self) -> f64 {
        self.disk_ms.max(self.compute_ms)
    }
}

/// The table's numbers: a pure function of what was measured.
pub(crate) fn summarize(raw: &Raw) -> Summary {
    let steps: Vec<Step> = (0..raw.rounds.len()).map(|number| Step::of(raw, number)).collect();
    let spread = |f: fn(&Step) -> f64| Spread::of(steps.iter().map(f));
    Summary {
        tokens_per_s: spread(|s| 1e3 / s.ms),
        bytes_per_token: spread(|s| s.bytes),
        reached_mb_s: spread(|s| s.bytes / s.ms / 1e3),
        disk_mb_s: spread(|s| s.disk_mb_s),
        few_buffers_mb_s: spread(|s| s.few_buffers_mb_s),
        disk_ms: spread(|s| s.disk_ms),
        compute_ms: spread(|s| s.compute_ms),
        roofline_ms: spread(Step::roofline_ms),
        step_ms: spread(|s| s.ms),
        share: spread(|s| s.roofline_ms() / s.ms),
        hit_rate: spread(|s| s.hit_rate),
    }
}

/// For people.
fn table(archive: &StreamArchive) -> String {
    let Archive { run, raw, summary, .. } = archive;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let row = |name: &str, spread: &Spread, scale: f64, digits: usize| {
        let cell = |v: f64| format!("{:.digits$}", v * scale);
        vec![name.to_owned(), cell(spread.median), cell(spread.min), cell(spread.max)]
    };
    let rows = vec![
        ["", "median", "min", "max"].map(str::to_owned).to_vec(),
        row("tokens/s", &summary.tokens_per_s, 1.0, 2),
        row("MB read per token", &summary.bytes_per_token, 1e-6, 2),
        row("MB/s reached", &summary.reached_mb_s, 1.0, 0),
        row("MB/s of the disk", &summary.disk_mb_s, 1.0, 0),
        row("MB/s of the disk, few buffers", &summary.few_buffers_mb_s, 1.0, 0),
        row("ms of the disk per token", &summary.disk_ms, 1.0, 2),
        row("ms of computation per token", &summary.compute_ms, 1.0, 2),
        row("ms per token", &summary.step_ms, 1.0, 2),
        row("% of the roofline", &summary.share, 100.0, 1),
        row("% of lookups hit", &summary.hit_rate, 100.0, 1),
    ];
    let buffered =
        if raw.probes.iter().all(|p| p.direct) { "" } else { "; PROBES WENT THROUGH THE PAGE CACHE" };
    format!(
        "{}, {:.0} MiB in {:.0} MiB of memory, {:.0} % of experts resident; {} threads, {}\n{}\nreads of {} bytes{buffered}\n{}",
        raw.model.name,
        mebibytes(raw.model.bytes),
        mebibytes(raw.settings.memory),
        raw.resident_share * 100.0,
        run.threads,
        run.isa,
        raw.memory_note,
        raw.settings.block_bytes,
        columns(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: StreamArguments,
    }

    #[test]
    fn a_short_run_reads_and_adds_up() {
        let model = crate::workspace().join("models/esker-moe-64m-small.gguf");
        let model = model.to_string_lossy().into_owned();
        // Enough for what other tests of this process take beside it.
        let line = "--memory 600M --rounds 2 --gen 2 --prompt-tokens 4 --chunk 4 --probe 0.01 --threads 1";
        let words = ["stream", "--model", &model].into_iter().chain(line.split_whitespace());
        let arguments = Line::try_parse_from(words).expect("a valid line").arguments;
        let (raw, _) = measure(&arguments).expect("measured");
        assert_eq!((raw.probes.len(), raw.rounds.len()), (3, 2));
        assert!(
            raw.probes
                .iter()
                .all(|p| p.depths.iter().map(|d| d.0).eq(probe::DEPTHS)
                    && p.few_buffers.len() == p.depths.len())
        );
        for round in &raw.rounds {
            let inside: f64 = round.ops.iter().map(|op| op.ms).sum();
            assert!(inside > 0.0 && inside <= round.passes_ms && round.passes_ms <= round.ms, "{round:?}");
            assert!(round.lookups.0 <= round.lookups.1 && round.lookups.1 > 0);
        }
    }

    #[test]
    fn the_roofline_is_the_longer_of_disk_and_computation() {
        let probe = |mb_s| Probe {
            direct: true,
            disk: "d".into(),
            depths: vec![(1, 10.0), (2, mb_s)],
            few_buffers: vec![(1, 2.0 * mb_s), (2, 1.0)],
        };
        let op = |op: &str, ms| OpMs { op: op.into(), ms, weight_bytes: 0 };
        let round = |ms: f64, bytes_read| Round {
            ms,
            passes_ms: ms - 2.0,
            sampling_ms: 2.0,
            bytes_read,
            wasted_bytes: 0,
            lookups: (1, 4),
            ops: vec![op("wait", 50.0), op("request", 8.0), op("matmul", 20.0)],
        };
        let settings = Settings {
            memory: 1,
            group_limit: None,
            generate: 2,
            prompt_tokens: 1,
            warm_ups: 0,
            block_bytes: 1,
            probe_memory: 1,
            probe_seconds: 1.0,
            read_ahead: true,
            temperature: 1.0,
        };
        let raw = Raw {
            model: ModelFile { name: "m".into(), bytes: 1, architecture: "a".into(), layers: 1 },
            settings,
            expert_bytes: 1,
            resident_share: 0.5,
            experts_per_token_bytes: 1,
            memory_note: String::new(),
            // Means of 150 and 250 MB/s; 12 MB in 80 ms at 150, 1 MB in 4 ms at 250.
            probes: vec![probe(100.0), probe(200.0), probe(300.0)],
            rounds: vec![round(100.0, 12_000_000), round(100.0, 1_000_000)],
            peak_memory_bytes: 1,
        };
        let summary = summarize(&raw);
        // 100 - 58 of each round is computation, two steps each.
        assert_eq!(summary.compute_ms.median, 21.0);
        assert!((summary.share.max - 0.8).abs() < 1e-12 && (summary.share.min - 0.42).abs() < 1e-12);
        assert_eq!((summary.disk_mb_s.min, summary.disk_mb_s.max), (150.0, 250.0));
        assert_eq!((summary.few_buffers_mb_s.min, summary.few_buffers_mb_s.max), (300.0, 500.0));
        assert_eq!(summary.hit_rate.median, 0.25);
    }
}
