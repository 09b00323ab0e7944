//! Simulated histories of the expert cache, as many as one likes: each seed is another configuration and
//! another history, and every promise is checked after every call.
//!
//! `cargo run --release -p esker-cache --example simulate -- --calls 2000 --seeds 1000 --seed 0`

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::process::ExitCode;
use std::time::Instant;

use simulation::{Simulation, Tally};

fn main() -> ExitCode {
    let (mut seed, mut seeds, mut calls) = (0, 1000, 2000);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--seed", Some(value)) => seed = value,
            ("--seeds", Some(value)) => seeds = value,
            ("--calls", Some(value)) => calls = value,
            _ => {
                eprintln!("usage: simulate [--seed FIRST] [--seeds N] [--calls CALLS_PER_SEED]");
                return ExitCode::from(2);
            }
        }
    }
    let start = Instant::now();
    let mut sum = Tally::default();
    for seed in seed..seed + seeds {
        let mut simulation = Simulation::new(seed);
        let outcome = simulation.run(calls);
        sum.add(&simulation.tally());
        if let Err(violation) = outcome {
            eprintln!("seed {seed}: {violation}");
            eprintln!("{:#?}", simulation.cache.config());
            return ExitCode::FAILURE;
        }
    }
    println!("{sum:#?}");
    println!("{} calls in {:.1} s, no promise broken", sum.calls, start.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
