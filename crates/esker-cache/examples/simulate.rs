//! Simulated histories of the expert cache, as many as one likes: each seed is another configuration and
//! another history, and every promise is checked after every call.
//!
//! `cargo run --release -p esker-cache --example simulate -- --steps 10000000 --seed 0`

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::process::ExitCode;
use std::time::Instant;

use simulation::{Simulation, Tally};

fn main() -> ExitCode {
    let (mut steps, mut seed, mut each) = (1_000_000, 0, 1000);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--steps", Some(value)) => steps = value,
            ("--seed", Some(value)) => seed = value,
            ("--each", Some(value @ 1..)) => each = value,
            _ => {
                eprintln!("usage: simulate [--steps CALLS] [--seed FIRST] [--each CALLS_PER_SEED]");
                return ExitCode::from(2);
            }
        }
    }
    let start = Instant::now();
    let mut sum = Tally::default();
    while sum.calls < steps {
        let mut simulation = Simulation::new(seed);
        let outcome = simulation.run(each);
        sum.add(&simulation.tally());
        if let Err(violation) = outcome {
            eprintln!("seed {seed}, --each {each}: {violation}");
            eprintln!("{:#?}", simulation.cache.config());
            return ExitCode::FAILURE;
        }
        seed += 1;
    }
    println!("{sum:#?}");
    println!("{} calls in {:.1} s, no promise broken", sum.calls, start.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
