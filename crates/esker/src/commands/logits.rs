//! `esker logits`: teacher-forced logits of given tokens.

use crate::cli::{LogitsArgs, kv_type_name};
use crate::failure::Failure;
use crate::interrupt::Listener;
use crate::model::Loaded;
use crate::output::{Console, NpyWriter, OutputFile, Progress, units};
use crate::{text_input, token_ids};
use esker_engine::{EngineOptions, KvType, Output, Session, argmax};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Tokens per pass: the logits of all of them are in memory at once.
const CHUNK: usize = 128;

pub fn logits(args: &LogitsArgs, console: &Console) -> Result<(), Failure> {
    if args.out.is_none() && !args.json && io::stdout().is_terminal() {
        return Err(Failure::usage("the array is not for a terminal")
            .hint("write it with `--out FILE.npy`, or print a summary with `--json`".to_owned()));
    }
    let from = text_input::name(&args.tokens);
    let text = text_input::read(&args.tokens)?;
    let tokens =
        token_ids::parse(&String::from_utf8_lossy(&text)).map_err(|e| Failure::new(e).place("in", &from))?;
    if tokens.is_empty() {
        return Err(Failure::new("there are no tokens").place("in", &from));
    }

    let defaults = EngineOptions {
        kv_type: KvType::F32,
        context: Some(tokens.len()),
        chunk: CHUNK,
        all_logits: true,
        ..EngineOptions::default()
    };
    let options = args.engine.options(defaults.clone());
    let mut model = Loaded::new(console, args.model.as_deref(), &args.engine, defaults)?;
    let n_vocab = model.engine.n_vocab();
    if let Some((index, id)) = tokens.iter().enumerate().find(|(_, id)| **id as usize >= n_vocab) {
        return Err(Failure::new(format_args!(
            "token {id} at position {index} is not in the vocabulary of {n_vocab} tokens"
        ))
        .place("in", &from));
    }
    if tokens.len() > model.engine.context() {
        let (n, context) = (units::tokens(tokens.len()), model.engine.context());
        return Err(Failure::new(format_args!("{n} do not fit a context of {context}"))
            .hint("leave out `--context`: it becomes as long as the tokens".to_owned()));
    }

    let chunk = if args.step { 1 } else { options.chunk };
    let mut pass = Pass { console, tokens: &tokens, chunk, summary: Summary::default() };
    let mut session = model.engine.new_session();
    let stdout_failed = Failure::stdout;
    match &args.out {
        Some(path) => {
            let failed = |e: io::Error| Failure::file("write", path, &e);
            let file = OutputFile::create(path)?;
            let npy = NpyWriter::new(file, tokens.len(), n_vocab).map_err(failed)?;
            pass.run(&mut model, &mut session, Some(npy), failed)?.map_or(Ok(()), OutputFile::finish)?;
        }
        None if args.json => {
            pass.run::<io::Sink>(&mut model, &mut session, None, stdout_failed)?;
        }
        None => {
            let npy = NpyWriter::new(io::stdout().lock(), tokens.len(), n_vocab).map_err(stdout_failed)?;
            pass.run(&mut model, &mut session, Some(npy), stdout_failed)?;
        }
    }

    let summary = pass.summary;
    let rate = tokens.len() as f64 / summary.forward_time.as_secs_f64().max(f64::MIN_POSITIVE);
    if args.json {
        console.stdout().json(&json!({
            "shape": [tokens.len(), n_vocab],
            "argmax": summary.argmax,
            "nll_mean_nats": summary.nll_mean_nats(),
            "non_finite": summary.non_finite,
            "step": args.step,
            "chunk": chunk,
            "kv_type": kv_type_name(options.kv_type),
            "threads": model.engine.threads(),
            "load_s": model.load_time.as_secs_f64(),
            "forward_s": summary.forward_time.as_secs_f64(),
            "tokens_per_s": rate,
        }))?;
    }
    if summary.non_finite > 0 {
        console
            .warning(format_args!("{} logits are not finite: the file may be damaged", summary.non_finite));
    }
    let nll =
        summary.nll_mean_nats().as_f64().map_or(String::new(), |nll| format!(", mean NLL {nll:.4} nats"));
    let time = units::seconds(summary.forward_time);
    console.line(format_args!(
        "{} in {time}, {}{nll}",
        units::tokens(tokens.len()),
        units::tokens_per_s(rate)
    ));
    Ok(())
}

/// The tokens' way through the model.
struct Pass<'a> {
    console: &'a Console,
    tokens: &'a [u32],
    chunk: usize,
    summary: Summary,
}

impl Pass<'_> {
    /// Feeds all tokens, writes all rows; gives the output back.
    fn run<W: Write>(
        &mut self,
        model: &mut Loaded,
        session: &mut Session,
        mut npy: Option<NpyWriter<W>>,
        failed: impl Fn(io::Error) -> Failure,
    ) -> Result<Option<W>, Failure> {
        let interrupt = Listener::new();
        let progress = Progress::tokens(self.console, "computing", self.tokens.len());
        let mut done = 0;
        for chunk in self.tokens.chunks(self.chunk) {
            let started = Instant::now();
            let rows = model.engine.forward(session, chunk, Output::All).map_err(|e| model.failure(&e))?;
            let rows = rows.ok_or_else(|| Failure::new("the model gave no logits"))?;
            self.summary.forward_time += started.elapsed();
            for row in 0..chunk.len() {
                self.summary.add(rows.row(row), self.tokens.get(done + row + 1).copied());
            }
            if let Some(npy) = &mut npy {
                npy.rows(rows.data()).map_err(&failed)?;
            }
            done += chunk.len();
            progress.set(done as u64);
            if interrupt.requested() {
                return Err(Failure::interrupted());
            }
        }
        npy.map(NpyWriter::finish).transpose().map_err(failed)
    }
}

/// What is said about the logits.
#[derive(Default)]
struct Summary {
    argmax: Vec<u32>,
    nll_sum: f64,
    n_predicted: usize,
    non_finite: usize,
    forward_time: Duration,
}

impl Summary {
    fn add(&mut self, row: &[f32], next: Option<u32>) {
        self.argmax.push(argmax(row));
        self.non_finite += row.iter().filter(|logit| !logit.is_finite()).count();
        if let Some(next) = next {
            self.nll_sum += nll(row, next);
            self.n_predicted += 1;
        }
    }

    /// Null for a single token, which predicts nothing, and if logits are not finite.
    fn nll_mean_nats(&self) -> Value {
        let mean = self.nll_sum / self.n_predicted as f64;
        if mean.is_finite() { Value::from(mean) } else { Value::Null }
    }
}

/// Negative log-likelihood of `token` under the softmax of `row`, in nats.
fn nll(row: &[f32], token: u32) -> f64 {
    let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = row.iter().map(|&logit| (f64::from(logit) - max).exp()).sum();
    sum.ln() - (f64::from(row[token as usize]) - max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihoods_are_those_of_the_softmax() {
        let row = [1.0f32, 2.0, 3.0];
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for (token, logit) in row.into_iter().enumerate() {
            let expect = -(f64::from(logit).exp() / sum).ln();
            assert!((nll(&row, token as u32) - expect).abs() < 1e-12);
        }
        assert_eq!(nll(&[1e30, 1e30], 0), std::f64::consts::LN_2);
    }

    #[test]
    fn one_token_predicts_nothing() {
        let mut summary = Summary::default();
        summary.add(&[0.0, 1.0], None);
        assert_eq!((summary.nll_mean_nats(), &summary.argmax[..]), (Value::Null, &[1][..]));
        summary.add(&[0.0, f32::NAN], Some(0));
        assert_eq!((summary.nll_mean_nats(), summary.non_finite), (Value::Null, 1));
    }
}
