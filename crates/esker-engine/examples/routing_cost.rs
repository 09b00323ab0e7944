//! What do cache policies save, and what does cache-aware routing cost? Token by token over given windows.
//!
//!     cargo run --release -p esker-engine --example routing_cost -- MODEL WINDOWS.jsonl [--share 0.5] [--tokens 256]
//!
//! WINDOWS: a line each, `{"ids": [...]}`. The arena holds `share` of the experts. First every policy at lambda 0 (the
//! logits are equal to the last bit, so only hits and bytes differ), then lambda 0.25 to 2 under the default policy: KL
//! divergence from lambda 0 in nats, top-1 agreement, picks changed, hits, bytes read.

use esker_engine::{
    Engine, EngineError, EngineOptions, KvType, Memory, Output, PolicyConfig, RouteBiasOptions, argmax,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut paths, mut share, mut n_tokens) = (Vec::new(), 0.5, 256);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--share" => share = args.next().and_then(|n| n.parse().ok()).expect("--share X"),
            "--tokens" => n_tokens = args.next().and_then(|n| n.parse().ok()).expect("--tokens N"),
            _ => paths.push(PathBuf::from(arg)),
        }
    }
    let [model, windows] = &paths[..] else {
        eprintln!("usage: routing_cost MODEL WINDOWS.jsonl [--share X] [--tokens N]");
        return ExitCode::from(2);
    };
    let windows: Vec<Vec<u32>> = std::fs::read_to_string(windows)
        .expect("the windows")
        .lines()
        .map(|line| {
            let window: serde_json::Value = serde_json::from_str(line).expect("a JSON object a line");
            let ids = window["ids"].as_array().expect("`ids`, a list");
            ids.iter().take(n_tokens).map(|id| id.as_u64().expect("an id") as u32).collect()
        })
        .collect();
    let base = EngineOptions {
        context: Some(n_tokens),
        kv_type: KvType::F32,
        process_bytes: Some(0),
        memory: Memory::Budget(budget(model, n_tokens, share)),
        ..EngineOptions::default()
    };
    println!("{} windows of {n_tokens} tokens, {:.0} % of the experts fit", windows.len(), share * 100.0);
    println!("{:20} {:>8} {:>8} {:>12}", "policy", "hits", "ahead", "bytes/token");
    for name in PolicyConfig::NAMES.iter().filter(|name| **name != "clairvoyant") {
        for read_ahead in [false, true] {
            let policy = PolicyConfig::by_name(name).expect("listed");
            let (_, stats) =
                run(model, &EngineOptions { policy, read_ahead, ..base.clone() }, &windows, None);
            let lookups = (stats.expert_hits + stats.expert_read_ahead_hits + stats.expert_misses) as f64;
            println!(
                "{:20} {:7.2}% {:7.2}% {:12.0}",
                format!("{name}{}", if read_ahead { " + ahead" } else { "" }),
                100.0 * stats.expert_hits as f64 / lookups,
                100.0 * stats.expert_read_ahead_hits as f64 / lookups,
                stats.expert_bytes_read as f64 / stats.decode_steps as f64
            );
        }
    }
    let (reference, _) = run(model, &base, &windows, None);
    println!(
        "{:>8} {:>10} {:>8} {:>8} {:>8} {:>12}",
        "lambda", "KL, nats", "top-1", "changed", "hits", "bytes/token"
    );
    for lambda in [0.0, 0.25, 0.5, 0.85, 1.0, 2.0] {
        let route_bias = RouteBiasOptions { lambda, ..RouteBiasOptions::default() };
        let (quality, stats) =
            run(model, &EngineOptions { route_bias, ..base.clone() }, &windows, Some(&reference));
        let lookups = (stats.expert_hits + stats.expert_read_ahead_hits + stats.expert_misses) as f64;
        println!(
            "{lambda:8} {:10.5} {:7.2}% {:7.2}% {:7.2}% {:12.0}",
            quality.kl / quality.n as f64,
            100.0 * quality.same_top1 as f64 / quality.n as f64,
            100.0 * stats.route_picks_changed as f64 / stats.route_picks.max(1) as f64,
            100.0 * (stats.expert_hits + stats.expert_read_ahead_hits) as f64 / lookups,
            stats.expert_bytes_read as f64 / stats.decode_steps as f64
        );
    }
    ExitCode::SUCCESS
}

/// Log-probabilities of a run, and how they compare with another's.
#[derive(Default)]
struct Quality {
    log_probs: Vec<Vec<f32>>,
    kl: f64,
    same_top1: usize,
    n: usize,
}

fn run(
    model: &Path,
    options: &EngineOptions,
    windows: &[Vec<u32>],
    reference: Option<&Quality>,
) -> (Quality, esker_engine::Stats) {
    let mut engine = Engine::load(model, options.clone()).expect("loads");
    let mut quality = Quality::default();
    for window in windows {
        let mut session = engine.new_session();
        for token in window {
            let rows =
                engine.forward(&mut session, &[*token], Output::Last).expect("a step").expect("logits");
            let log_probs = log_softmax(rows.row(0));
            match reference {
                None => quality.log_probs.push(log_probs),
                Some(reference) => {
                    let expected = &reference.log_probs[quality.n];
                    let terms = expected.iter().zip(&log_probs);
                    quality.kl += terms.map(|(p, q)| f64::from(*p).exp() * f64::from(p - q)).sum::<f64>();
                    quality.same_top1 += usize::from(argmax(expected) == argmax(&log_probs));
                }
            }
            quality.n += 1;
        }
    }
    (quality, engine.stats())
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    logits.iter().map(|l| l - max - sum.ln() as f32).collect()
}

/// A budget whose arena holds `share` of the experts.
fn budget(model: &Path, context: usize, share: f64) -> u64 {
    let at = |memory| {
        let options = EngineOptions {
            context: Some(context),
            process_bytes: Some(0),
            kv_type: KvType::F32,
            memory,
            ..EngineOptions::default()
        };
        esker_engine::plan(model, &options)
    };
    let smallest = match at(Memory::Budget(1)) {
        Err(EngineError::Budget { smallest_budget, .. }) => smallest_budget,
        other => panic!("a budget of one byte is refused, not {other:?}"),
    };
    let plan = at(Memory::Budget(smallest)).expect("the smallest works").plan.expect("a budget has a plan");
    let all: u64 = plan.classes.iter().map(|c| c.n_experts as u64 * c.slot_bytes).sum();
    let least: u64 = plan.classes.iter().map(|c| c.n_slots as u64 * c.slot_bytes).sum();
    smallest - least + (all as f64 * share) as u64
}
