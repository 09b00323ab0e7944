//! Is the budget kept? Runs random configurations, each in a process of its own, and holds the peak of its memory against
//! the plan.
//!
//!     cargo run --release -p esker-engine --example budget_check -- [--configs N] [--seed S] MODEL...
//!
//! A run fills the context of each of its sessions, one after the other with a prompt while the others decode, and reports
//! what was planned and the most that was ever resident.
//! Configurations that cannot work must be refused before anything is allocated.

use esker_disk::memory;
use esker_engine::{
    BatchItem, Engine, EngineError, EngineOptions, KvType, Memory, Output, PolicyConfig, Session,
};
use std::path::Path;
use std::process::{Command, ExitCode};

/// A small generator with a fixed sequence (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "child") {
        return child(&args[1..]);
    }
    let (mut configs, mut seed, mut models) = (100, 1, Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--configs" => configs = args.next().and_then(|n| n.parse().ok()).expect("--configs N"),
            "--seed" => seed = args.next().and_then(|n| n.parse().ok()).expect("--seed S"),
            _ => models.push(arg),
        }
    }
    if models.is_empty() {
        eprintln!("usage: budget_check [--configs N] [--seed S] MODEL...");
        return ExitCode::from(2);
    }
    let mut random = Random(seed);
    let policies: Vec<&str> = PolicyConfig::NAMES.iter().copied().filter(|p| *p != "clairvoyant").collect();
    let (mut ran, mut refused, mut over) = (0, 0, 0);
    let (mut worst, mut least) = (0.0f64, f64::INFINITY);
    for config in 0..configs {
        let model = &models[random.below(models.len() as u64) as usize];
        let context = random.of(&[64u64, 200, 512, 1000, 2048, 4096]);
        let chunk = random.of(&[1u64, 7, 64, 256, 512, 2048]);
        let file = std::fs::metadata(model).expect("the model is there").len();
        // From far too little to more than the whole model.
        let budget = (4 << 20) + random.below(file + file / 2 + (32 << 20));
        let policy = random.of(&policies);
        let threads = random.of(&[1u64, 2, 3]);
        let kv = random.of(&["f16", "f32"]);
        let sessions = random.of(&[1u64, 1, 2, 5]);
        let snapshots = random.of(&[0u64, 0, 8 << 20]);
        let numbers = [budget, context, chunk, sessions, snapshots].map(|n| n.to_string());
        let child = [&[model.clone()][..], &numbers[..]].concat();
        let exe = std::env::current_exe().expect("this program's path");
        let output = Command::new(exe)
            .arg("child")
            .args(&child)
            .args([policy, &threads.to_string(), kv])
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut words = text.split_whitespace();
        match words.next() {
            Some("refused") => {
                refused += 1;
                let (smallest, rss): (u64, u64) = (number(words.next()), number(words.next()));
                assert!(smallest > budget, "config {config}: refused {budget}, but {smallest} would do");
                assert!(rss < 64 << 20, "config {config}: {rss} bytes resident after a refusal");
            }
            Some("ran") => {
                let (planned, peak): (u64, u64) = (number(words.next()), number(words.next()));
                ran += 1;
                let ratio = peak as f64 / planned as f64;
                worst = worst.max(ratio);
                least = least.min(ratio);
                if ratio > 1.03 || planned > budget {
                    over += 1;
                    println!(
                        "config {config}: {child:?} {policy} {threads} {kv}: planned {planned}, peak {peak} ({ratio:.3})"
                    );
                }
            }
            _ => {
                println!(
                    "config {config}: {child:?} {policy} {threads} {kv} failed: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                over += 1;
            }
        }
    }
    println!(
        "{configs} configurations (seed {seed}): {ran} ran, {refused} refused in time, {over} over; peak / plan {least:.3} to {worst:.3}"
    );
    if over == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|w| w.parse().ok()).expect("a number from the child")
}

fn child(args: &[String]) -> ExitCode {
    let [model, budget, context, chunk, sessions, snapshots, policy, threads, kv] = args else {
        return ExitCode::from(2);
    };
    let n = |s: &String| s.parse::<u64>().expect("a number");
    let options = EngineOptions {
        memory: Memory::Budget(n(budget)),
        context: Some(n(context) as usize),
        chunk: n(chunk) as usize,
        sessions: n(sessions) as usize,
        snapshot_bytes: n(snapshots),
        policy: PolicyConfig::by_name(policy).expect("a policy"),
        threads: Some(n(threads) as usize),
        kv_type: if kv == "f32" { KvType::F32 } else { KvType::F16 },
        ..EngineOptions::default()
    };
    let mut engine = match Engine::load(Path::new(model), options) {
        Ok(engine) => engine,
        Err(EngineError::Budget { smallest_budget, .. }) => {
            println!("refused {smallest_budget} {}", memory::footprint().map_or(0, |f| f.rss));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    // Many different tokens, so that many experts are used and the arena fills; 16 decoded ones to end with.
    let context = n(context) as usize;
    let mut random = Random(7);
    let vocab = engine.n_vocab() as u64;
    let tokens: Vec<u32> = (0..context).map(|_| random.below(vocab) as u32).collect();
    let prompt = context - 16.min(context / 2);
    let mut sessions: Vec<Session> = (0..n(sessions)).map(|_| engine.new_session()).collect();
    while sessions.iter().any(|s| s.tokens().len() < context) {
        let mut room = engine.rows_max() - (sessions.len() - 1);
        let mut items = Vec::new();
        for session in &mut sessions {
            let used = session.tokens().len();
            let n = match prompt.saturating_sub(used) {
                0 => 1.min(context - used),
                left => {
                    let n = left.min(room);
                    room -= n;
                    n
                }
            };
            items.push(BatchItem { session, tokens: &tokens[used..used + n], output: Output::Last });
        }
        engine.forward_batch(&mut items).expect("a pass");
    }
    let planned = engine.plan().map_or(0, |p| p.total());
    println!("ran {planned} {}", memory::peak_resident_bytes().unwrap_or(0));
    ExitCode::SUCCESS
}
