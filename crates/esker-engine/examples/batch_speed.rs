//! Decode speed of several sequences in one pass, against the same sequences one after the other.
//!
//! `cargo run --release -p esker-engine --example batch_speed -- MODEL [BUDGET_MIB]`

use esker_engine::{BatchItem, Engine, EngineOptions, Memory, Output, Session};
use std::path::Path;
use std::time::Instant;

/// Tokens of each sequence before the clock starts, and tokens that are timed.
const PROMPT: usize = 64;
const STEPS: usize = 48;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(model) = args.first() else {
        eprintln!("usage: batch_speed MODEL [BUDGET_MIB]");
        std::process::exit(2);
    };
    let memory = match args.get(1).map(|mib| mib.parse::<u64>().expect("a number of MiB")) {
        Some(mib) => Memory::Budget(mib << 20),
        None => Memory::Resident,
    };
    println!("{:>9} {:>16} {:>16} {:>14}", "sequences", "together tok/s", "in turn tok/s", "MiB per token");
    for sessions in [1, 2, 4, 8] {
        let options = EngineOptions { sessions, context: Some(512), memory, ..EngineOptions::default() };
        let mut engine = Engine::load(Path::new(model), options).expect("loads");
        let n_vocab = engine.n_vocab() as u32;
        let token = |i: usize, t: usize| (i * 7919 + t * 104_729) as u32 % n_vocab;
        let mut all: Vec<Session> = (0..sessions).map(|_| engine.new_session()).collect();
        for (i, session) in all.iter_mut().enumerate() {
            let prompt: Vec<u32> = (0..PROMPT).map(|t| token(i, t)).collect();
            engine.forward(session, &prompt, Output::None).expect("a prompt");
        }
        let before = engine.stats().expert_bytes_read;
        let started = Instant::now();
        for t in 0..STEPS {
            let tokens: Vec<u32> = (0..sessions).map(|i| token(i, PROMPT + t)).collect();
            let mut items: Vec<BatchItem<'_>> = all
                .iter_mut()
                .zip(&tokens)
                .map(|(session, token)| BatchItem {
                    session,
                    tokens: std::slice::from_ref(token),
                    output: Output::Last,
                })
                .collect();
            engine.forward_batch(&mut items).expect("a pass");
        }
        let together = started.elapsed();
        let read = engine.stats().expert_bytes_read - before;
        let started = Instant::now();
        for t in 0..STEPS {
            for (i, session) in all.iter_mut().enumerate() {
                engine.forward(session, &[token(i, PROMPT + STEPS + t)], Output::Last).expect("a pass");
            }
        }
        let in_turn = started.elapsed();
        let n = (sessions * STEPS) as f64;
        println!(
            "{sessions:>9} {:>16.1} {:>16.1} {:>14.2}",
            n / together.as_secs_f64(),
            n / in_turn.as_secs_f64(),
            read as f64 / n / f64::from(1 << 20)
        );
    }
}
