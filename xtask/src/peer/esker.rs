//! Esker's side: answers requests from stdin until it is closed.

use super::protocol::{
    Candidate, Complete, Completion, Facts, Kv, Load, Loaded, Rendered, Reply, Request, Scores, Tokens,
};
use esker_engine::{
    Engine, EngineError, EngineOptions, Event, GenerateOptions, KvType, Memory, Output, Sampling, Session,
};
use esker_kernels::isa;
use esker_text::{ChatInput, ChatTemplate, EncodeError, EncodeOptions, TemplateError};
use serde::Serialize;
use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Instant;

/// A request cannot be answered.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Isa(#[from] isa::UnknownIsa),
    #[error(transparent)]
    IsaUnavailable(#[from] isa::IsaUnavailable),
    #[error("no model is loaded")]
    NotLoaded,
    #[error("not a request: {0}")]
    NotARequest(#[from] serde_json::Error),
    #[error("{field} has {found} entries, expected {expected}")]
    Shape { field: &'static str, found: usize, expected: usize },
}

/// Answers until stdin is closed; then the process ends, in the middle of a computation if need be.
///
/// # Errors
/// If a reply cannot be written.
pub(crate) fn run() -> std::io::Result<()> {
    let (send, requests) = channel();
    // A thread of its own sees that the asking program is gone also while this one computes.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    let mut model = None;
    for line in requests {
        let reply = match answer(&mut model, &line) {
            Ok(value) => Reply::Ok(value),
            Err(error) => Reply::Error(with_causes(&error)),
        };
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &reply)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A loaded model and the sequence that was computed last.
struct Model {
    engine: Engine,
    session: Option<Session>,
}

fn answer(model: &mut Option<Model>, line: &str) -> Result<serde_json::Value, AnswerError> {
    match serde_json::from_str(line)? {
        Request::Facts => json(&Facts {
            version: format!("esker {}", env!("CARGO_PKG_VERSION")),
            isa: isa::active().to_string(),
        }),
        Request::Load(request) => {
            let started = Instant::now();
            *model = Some(Model { engine: load(&request)?, session: None });
            json(&Loaded { load_ms: milliseconds(started) })
        }
        Request::Complete(request) => json(&complete(loaded(model)?, &request)?),
        Request::Tokenize { text, special } => {
            let tokenizer = loaded(model)?.engine.tokenizer()?;
            let tokens = tokenizer.encode(&text, EncodeOptions { special, add_bos_eos: false })?;
            json(&Tokens { tokens })
        }
        Request::Render { messages } => {
            let (template, _) = ChatTemplate::for_tokenizer(&*loaded(model)?.engine.tokenizer()?)?;
            let input = ChatInput { messages, add_generation_prompt: true, ..ChatInput::default() };
            json(&Rendered { prompt: Some(template.render(&input)?) })
        }
        Request::Score { prompt, continuation, wanted } => {
            if wanted.len() != continuation.len() {
                let (found, expected) = (wanted.len(), continuation.len());
                return Err(AnswerError::Shape { field: "wanted", found, expected });
            }
            json(&score(&mut loaded(model)?.engine, &prompt, &continuation, &wanted)?)
        }
    }
}

fn json(answer: &impl Serialize) -> Result<serde_json::Value, AnswerError> {
    Ok(serde_json::to_value(answer)?)
}

fn loaded(model: &mut Option<Model>) -> Result<&mut Model, AnswerError> {
    model.as_mut().ok_or(AnswerError::NotLoaded)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn load(request: &Load) -> Result<Engine, AnswerError> {
    if let Some(name) = &request.isa {
        isa::force_isa(name.parse()?)?;
    }
    let kv_type = match request.kv {
        Kv::F32 => KvType::F32,
        Kv::F16 => KvType::F16,
    };
    let usual = EngineOptions::default();
    let options = EngineOptions {
        threads: Some(request.threads),
        context: Some(request.context),
        kv_type,
        memory: request.memory.map_or(usual.memory, Memory::Budget),
        probe_folder: request.probe_folder.as_ref().map(PathBuf::from),
        ..usual
    };
    Ok(Engine::load(Path::new(&request.model), options)?)
}

fn complete(model: &mut Model, request: &Complete) -> Result<Completion, AnswerError> {
    let engine = &mut model.engine;
    let options = GenerateOptions {
        max_tokens: Some(request.n),
        sampling: Sampling::greedy(),
        ignore_eos: request.ignore_eos,
        ..GenerateOptions::default()
    };
    // A new one is made before the clock starts, and when the old one is gone: the other side has its cache from loading
    // on, and only one.
    let kept = model.session.take().filter(|_| request.resume);
    let mut session = kept.unwrap_or_else(|| engine.new_session());
    let started = Instant::now();
    // When the first and the latest token was drawn, and how many were.
    let (mut first, mut latest, mut drawn) = (None, None, 0);
    let generation = engine.generate(&mut session, &request.prompt, &options, &mut |event| {
        if let Event::Text { .. } = event
            && drawn < request.n
        {
            drawn += 1;
            latest = Some(Instant::now());
            first = first.or(latest);
        }
        // Ends here rather than by the limit, which is looked at only after one more decode step.
        if drawn == request.n { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    model.session = Some(session);
    let top = if request.top == 0 {
        Vec::new()
    } else {
        top_candidates(engine, &request.prompt, &generation.tokens, request.top)?
    };
    let span = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
        (Some(from), Some(to)) => (to - from).as_secs_f64() * 1e3,
        _ => 0.0,
    };
    Ok(Completion {
        tokens: generation.tokens,
        prompt_n: request.prompt.len() - generation.stats.reused_tokens,
        prompt_ms: span(Some(started), first),
        decode_ms: span(first, latest),
        top,
    })
}

/// Calls `f` with the logits at each token of `continuation`, before it is drawn.
fn each_place(
    engine: &mut Engine,
    prompt: &[u32],
    continuation: &[u32],
    mut f: impl FnMut(usize, &[f32]),
) -> Result<(), AnswerError> {
    let Some(before_last) = continuation.len().checked_sub(1) else { return Ok(()) };
    let fed = [prompt, &continuation[..before_last]].concat();
    let mut session = engine.new_session();
    let rows = engine.forward(&mut session, &fed, Output::All)?.ok_or(EngineError::EmptyPrompt)?;
    for place in 0..continuation.len() {
        f(place, rows.row(prompt.len() - 1 + place));
    }
    Ok(())
}

fn top_candidates(
    engine: &mut Engine,
    prompt: &[u32],
    continuation: &[u32],
    n: usize,
) -> Result<Vec<Vec<Candidate>>, AnswerError> {
    let mut all = Vec::new();
    each_place(engine, prompt, continuation, |_, logits| {
        let sum = log_sum_exp(logits);
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
        let candidate = |&id: &u32| Candidate { id, logprob: f64::from(logits[id as usize]) - sum };
        all.push(order.iter().take(n).map(candidate).collect());
    })?;
    Ok(all)
}

fn score(
    engine: &mut Engine,
    prompt: &[u32],
    continuation: &[u32],
    wanted: &[Vec<u32>],
) -> Result<Scores, AnswerError> {
    let n_vocab = engine.n_vocab();
    if let Some(&token) = wanted.iter().flatten().find(|&&id| id as usize >= n_vocab) {
        return Err(EngineError::TokenRange { token, n_vocab }.into());
    }
    let (mut best, mut logprobs) = (Vec::new(), Vec::new());
    each_place(engine, prompt, continuation, |place, logits| {
        let sum = log_sum_exp(logits);
        best.push(esker_engine::argmax(logits));
        logprobs.push(wanted[place].iter().map(|&id| f64::from(logits[id as usize]) - sum).collect());
    })?;
    Ok(Scores { best, logprobs })
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|&l| (f64::from(l) - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ask(model: &mut Option<Model>, request: &Value) -> Result<Value, String> {
        answer(model, &request.to_string()).map_err(|e| with_causes(&e))
    }

    fn load_request() -> Value {
        let model = crate::workspace().join("crates/esker-engine/tests/golden/logits/llama.gguf");
        json!({"do": "load", "model": model, "threads": 1, "context": 64, "kv": "f32", "flash_attention": false})
    }

    fn complete_request(prompt: &[u32], n: usize, resume: bool) -> Value {
        json!({"do": "complete", "prompt": prompt, "n": n, "top": 0, "ignore_eos": true, "resume": resume})
    }

    #[test]
    fn a_resumed_sequence_computes_its_last_token_only() {
        let mut model = None;
        ask(&mut model, &load_request()).expect("the model loads");
        let mut of = |prompt: &[u32], n, resume| -> Completion {
            let answer = ask(&mut model, &complete_request(prompt, n, resume)).expect("a completion");
            serde_json::from_value(answer).expect("its fields")
        };
        let whole = of(&[1, 5, 9], 12, false);
        assert_eq!((whole.prompt_n, whole.tokens.len()), (3, 12));
        let mut held = vec![1, 5, 9];
        for (turn, n) in [1, 3, 8].into_iter().enumerate() {
            let part = of(&held, n, turn > 0);
            assert_eq!(part.prompt_n, if turn == 0 { 3 } else { 1 }, "turn {turn}");
            held.extend(part.tokens);
        }
        assert_eq!(held[3..], whole.tokens, "turns change nothing");
        assert_eq!(of(&held, 1, false).prompt_n, held.len(), "nothing is kept unless asked for");
        assert_eq!(of(&[1, 5, 8, 2], 1, true).prompt_n, 2, "only what is the same is kept");
    }

    #[test]
    fn nothing_is_computed_without_a_model() {
        let refused = ask(&mut None, &complete_request(&[1], 1, false));
        assert_eq!(refused, Err("no model is loaded".to_owned()));
        assert!(ask(&mut None, &json!({"do": "dance"})).unwrap_err().starts_with("not a request"));
        let missing = json!({"do": "load", "model": "no/such.gguf", "threads": 1, "context": 8, "kv": "f16",
            "flash_attention": true});
        assert!(ask(&mut None, &missing).unwrap_err().contains("no/such.gguf"));
    }

    #[test]
    fn candidates_and_scores_are_of_the_same_distribution() {
        let mut model = None;
        ask(&mut model, &load_request()).expect("the model loads");
        let engine = &mut model.as_mut().expect("a model").engine;
        let (prompt, continuation) = ([1, 5, 9], [7, 3, 3, 8]);
        let top = top_candidates(engine, &prompt, &continuation, 3).expect("candidates");
        let ids: Vec<Vec<u32>> = top.iter().map(|row| row.iter().map(|c| c.id).collect()).collect();
        let scores = score(engine, &prompt, &continuation, &ids).expect("scores");
        assert_eq!(top.len(), continuation.len());
        for (place, row) in top.iter().enumerate() {
            assert_eq!(row[0].id, scores.best[place]);
            assert!(row.is_sorted_by(|a, b| a.logprob >= b.logprob), "best first: {row:?}");
            assert_eq!(row.iter().map(|c| c.logprob).collect::<Vec<_>>(), scores.logprobs[place]);
        }
        let all: Vec<Vec<u32>> = vec![(0..engine.n_vocab() as u32).collect(); continuation.len()];
        for row in score(engine, &prompt, &continuation, &all).expect("scores").logprobs {
            let total: f64 = row.iter().map(|l| l.exp()).sum();
            assert!((total - 1.0).abs() < 1e-9, "probabilities sum to {total}");
        }
    }

    #[test]
    fn out_of_range_ids_and_missing_lists_are_refused() {
        let mut model = None;
        ask(&mut model, &load_request()).expect("the model loads");
        let wrong = json!({"do": "score", "prompt": [1], "continuation": [2, 3], "wanted": [[1]]});
        assert_eq!(ask(&mut model, &wrong), Err("wanted has 1 entries, expected 2".to_owned()));
        let wrong = json!({"do": "score", "prompt": [1], "continuation": [2], "wanted": [[4_000_000]]});
        assert!(ask(&mut model, &wrong).unwrap_err().contains("4000000"));
    }
}
