//! `bench growth`: how times grow with the context.
//!
//! What is isolated: one sequence, all weights in memory, other state reused from nothing. The context is filled once, in
//! chunks whose times are kept; at each mark some decode steps are timed one by one, each a pass and the choice of the
//! likeliest token. Tokens are those of a text, whatever the model would have said, so that every run takes the same
//! path. Steps at a mark belong to the context of what follows.

use super::record::{self, Archive, Counted, ModelFile, OpMs, Started};
use super::spread::Spread;
use super::{BenchError, ModelArguments, argument, force_isa, parse_tokens, token_ids};
use crate::peer::archive;
use crate::peer::table::columns;
use esker_engine::{Engine, EngineOptions, KvType, Memory, Output, Session, argmax};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::Instant;

/// Written into every archive.
pub(crate) const FORMAT: &str = "esker-bench-growth/1";

/// Steps before those that count: the first one after a prompt takes its memory.
const WARM_UPS: usize = 2;

/// Arguments of `bench growth`.
#[derive(clap::Args)]
pub(crate) struct GrowthArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Context lengths, in tokens (k: times 1024).
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = parse_tokens,
        default_value = "1k,8k,32k,64k")]
    contexts: Vec<usize>,
    /// Decode steps at each of them.
    #[arg(long, value_name = "N", default_value_t = 16)]
    r#gen: usize,
    /// Tokens per pass of a prompt.
    #[arg(long, value_name = "N", default_value_t = 512)]
    chunk: usize,
    /// Keys and values as f32 instead of f16.
    #[arg(long)]
    kv_f32: bool,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raw {
    /// The model.
    pub(crate) model: ModelFile,
    /// Tokens per pass of a prompt.
    pub(crate) chunk: usize,
    /// `f16` or `f32`.
    pub(crate) kv: String,
    /// Chunks of the prompt, in order.
    pub(crate) chunks: Vec<Chunk>,
    /// Decode steps, in order.
    pub(crate) marks: Vec<Mark>,
}

/// One pass over a part of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    /// Tokens before it.
    pub(crate) first: usize,
    /// Tokens in it.
    pub(crate) tokens: usize,
    /// How long it took.
    pub(crate) ms: f64,
}

/// Decode steps at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Tokens before the first step.
    pub(crate) context: usize,
    /// Of each step.
    pub(crate) step_ms: Vec<f64>,
    /// Where the time of all these steps went.
    pub(crate) ops: Vec<OpMs>,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// By mark.
    pub(crate) decode: Vec<Point>,
    /// By mark.
    pub(crate) prefill: Vec<PrefillPoint>,
}

/// A decode step at one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Tokens before it.
    pub(crate) context: usize,
    /// Milliseconds.
    pub(crate) step_ms: Spread,
    /// Of these, attention and what chooses its positions, on average.
    pub(crate) attention_ms: f64,
    /// The median by that of the first mark.
    pub(crate) growth: f64,
}

/// A prompt up to one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PrefillPoint {
    /// Tokens.
    pub(crate) tokens: usize,
    /// From the first chunk to the last.
    pub(crate) seconds: f64,
    /// Time per token by that of the first mark: 1 is linear.
    pub(crate) growth: f64,
}

/// The archive.
pub(crate) type GrowthArchive = Archive<Raw, Summary>;

/// Measures, prints, writes the archive.
///
/// # Errors
/// If arguments do not fit the model, or the engine fails.
pub(crate) fn run(arguments: &GrowthArguments) -> Result<(), BenchError> {
    let common = &arguments.model;
    let started = Started::now();
    let path = record::archive_path(common.json.as_deref(), "growth", &common.model, started.unix_time())?;
    force_isa(common.isa.as_deref())?;
    let (raw, threads) = measure(arguments)?;
    let summary = summarize(&raw);
    let archive = Archive { format: FORMAT.to_owned(), run: started.end(threads), raw, summary };
    archive::write(&path, &archive)?;
    print!("{}", table(&archive));
    println!("archive: {}", path.display());
    Ok(())
}

fn measure(arguments: &GrowthArguments) -> Result<(Raw, usize), BenchError> {
    if arguments.r#gen == 0 || arguments.chunk == 0 {
        return Err(argument("--gen and --chunk", &0, "at least 1"));
    }
    let mut contexts = arguments.contexts.clone();
    contexts.sort_unstable();
    contexts.dedup();
    let steps = WARM_UPS + arguments.r#gen;
    let close = contexts.windows(2).find(|two| two[1] - two[0] < steps);
    if let Some(two) = close {
        return Err(argument("--contexts", &two[1], format!("{steps} more than the one before at least")));
    }
    let longest = contexts.last().copied().unwrap_or(0);
    let capacity = longest + steps;
    let kv_type = if arguments.kv_f32 { KvType::F32 } else { KvType::F16 };
    let options = EngineOptions {
        threads: arguments.model.threads,
        context: Some(capacity),
        chunk: arguments.chunk,
        kv_type,
        memory: Memory::Resident,
        ..EngineOptions::default()
    };
    let mut engine = Engine::load(&arguments.model.model, options)?;
    if engine.context() < capacity {
        return Err(argument("--contexts", &longest, format!("at most {}", engine.context() - steps)));
    }
    let ids = token_ids(&engine, &arguments.model, capacity)?;
    engine.profile().turn_on();

    // Brings the weights in and the processor up to speed.
    let mut warm = engine.new_session();
    engine.prefill(&mut warm, &ids[..arguments.chunk.min(longest)], |_| ControlFlow::Continue(()))?;
    drop(warm);

    let mut session = engine.new_session();
    let (mut chunks, mut marks) = (Vec::new(), Vec::new());
    for context in contexts {
        fill(&mut engine, &mut session, &ids[..context], &mut chunks)?;
        let mut step_ms = Vec::with_capacity(arguments.r#gen);
        let mut before = Counted::decode(engine.profile());
        for step in 0..steps {
            if step == WARM_UPS {
                before = Counted::decode(engine.profile());
            }
            let token = ids[context + step];
            let begin = Instant::now();
            let logits = engine.forward(&mut session, &[token], Output::Last)?;
            std::hint::black_box(logits.as_ref().map(|rows| argmax(rows.row(0))));
            drop(logits);
            if step >= WARM_UPS {
                step_ms.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
        let (_, ops) = before.until(&Counted::decode(engine.profile()));
        eprintln!("context {context}: {:.2} ms per token", Spread::of(step_ms.iter().copied()).median);
        marks.push(Mark { context, step_ms, ops });
    }
    let kv = if arguments.kv_f32 { "f32" } else { "f16" }.to_owned();
    let raw = Raw { model: ModelFile::of(&engine), chunk: arguments.chunk, kv, chunks, marks };
    Ok((raw, engine.threads()))
}

/// Feeds what of `ids` the session does not hold yet.
fn fill(
    engine: &mut Engine,
    session: &mut Session,
    ids: &[u32],
    chunks: &mut Vec<Chunk>,
) -> Result<(), BenchError> {
    let (base, mut done) = (session.tokens().len(), 0);
    let mut begin = Instant::now();
    engine.prefill(session, &ids[base..], |now| {
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        chunks.push(Chunk { first: base + done, tokens: now - done, ms });
        done = now;
        begin = Instant::now();
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// The tables' numbers: a pure function of what was measured.
pub(crate) fn summarize(raw: &Raw) -> Summary {
    let steps = |mark: &Mark| Spread::of(mark.step_ms.iter().copied());
    let first_step = raw.marks.first().map_or(1.0, |mark| steps(mark).median);
    let decode = raw.marks.iter().map(|mark| {
        let attention = mark.ops.iter().filter(|op| ["attention", "indexer"].contains(&op.op.as_str()));
        Point {
            context: mark.context,
            step_ms: steps(mark),
            attention_ms: attention.map(|op| op.ms).sum::<f64>() / mark.step_ms.len() as f64,
            growth: steps(mark).median / first_step,
        }
    });
    let up_to = |context: usize| {
        let chunks = raw.chunks.iter().filter(move |chunk| chunk.first < context);
        chunks.fold((0, 0.0), |(tokens, ms), chunk| (tokens + chunk.tokens, ms + chunk.ms))
    };
    let per_token = |(tokens, ms): (usize, f64)| ms / tokens as f64;
    let first_prefill = raw.marks.first().map_or(1.0, |mark| per_token(up_to(mark.context)));
    let prefill = raw.marks.iter().map(|mark| {
        let sums = up_to(mark.context);
        PrefillPoint { tokens: sums.0, seconds: sums.1 / 1e3, growth: per_token(sums) / first_prefill }
    });
    Summary { decode: decode.collect(), prefill: prefill.collect() }
}

/// For people.
fn table(archive: &GrowthArchive) -> String {
    let Archive { run, raw, summary, .. } = archive;
    let head =
        ["context", "ms/token", "min", "max", "attention", "growth", "prefill s", "tok/s", "growth/token"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (decode, prefill) in summary.decode.iter().zip(&summary.prefill) {
        rows.push(vec![
            decode.context.to_string(),
            format!("{:.2}", decode.step_ms.median),
            format!("{:.2}", decode.step_ms.min),
            format!("{:.2}", decode.step_ms.max),
            format!("{:.2}", decode.attention_ms),
            format!("{:.2}", decode.growth),
            format!("{:.2}", prefill.seconds),
            format!("{:.1}", prefill.tokens as f64 / prefill.seconds),
            format!("{:.2}", prefill.growth),
        ]);
    }
    format!(
        "{}, {} threads, {}, chunks of {}, keys and values {}\n{}",
        raw.model.name,
        run.threads,
        run.isa,
        raw.chunk,
        raw.kv,
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
        arguments: GrowthArguments,
    }

    fn parsed(line: &str) -> GrowthArguments {
        let model = crate::workspace().join("crates/esker-engine/tests/golden/logits/qwen3moe.gguf");
        let model = model.to_string_lossy().into_owned();
        let words =
            ["growth", "--model", &model, "--threads", "1"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).expect("a valid line").arguments
    }

    #[test]
    fn every_mark_has_its_steps_and_every_token_is_fed_once() {
        let (raw, threads) = measure(&parsed("--contexts 24,8 --gen 3 --chunk 5")).expect("measured");
        assert_eq!(threads, 1);
        let chunks: Vec<_> = raw.chunks.iter().map(|c| (c.first, c.tokens)).collect();
        // The steps at the first mark, warm-ups included, take positions 8 to 12.
        assert_eq!(chunks, [(0, 5), (5, 3), (13, 5), (18, 5), (23, 1)]);
        assert_eq!(
            raw.marks.iter().map(|m| (m.context, m.step_ms.len())).collect::<Vec<_>>(),
            [(8, 3), (24, 3)]
        );
        assert!(raw.marks.iter().all(|m| m.ops.iter().any(|op| op.op == "attention")));
        let refused = measure(&parsed("--contexts 8,9")).expect_err("too close").to_string();
        assert!(refused.contains("--contexts 9"), "{refused}");
    }

    #[test]
    fn growth_is_against_the_first_mark() {
        let op = |ms| OpMs { op: "attention".into(), ms, weight_bytes: 0 };
        let raw = Raw {
            model: ModelFile { name: "m".into(), bytes: 1, architecture: "a".into(), layers: 1 },
            chunk: 8,
            kv: "f16".into(),
            chunks: vec![Chunk { first: 0, tokens: 8, ms: 80.0 }, Chunk { first: 10, tokens: 8, ms: 160.0 }],
            marks: vec![
                Mark { context: 8, step_ms: vec![2.0, 1.0], ops: vec![op(1.0)] },
                Mark { context: 18, step_ms: vec![3.0, 4.0], ops: vec![op(4.0)] },
            ],
        };
        let summary = summarize(&raw);
        assert_eq!(summary.decode[1].growth, 3.0);
        assert_eq!(summary.decode[1].attention_ms, 2.0);
        assert_eq!((summary.prefill[0].tokens, summary.prefill[0].growth), (8, 1.0));
        assert_eq!((summary.prefill[1].tokens, summary.prefill[1].seconds), (16, 0.24));
        assert_eq!(summary.prefill[1].growth, 1.5);
    }
}
