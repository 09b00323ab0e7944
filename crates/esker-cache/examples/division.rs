//! What it is worth to divide the arena anew among size classes: hit rates with the division that a run begins with, with
//! one that follows demand, and with the best fixed one.
//!
//! `cargo run --release -p esker-cache --example division -- [--tokens 6000] [--seed 1]`

#[path = "../tests/demand/mod.rs"]
mod demand;

use demand::{Demand, N_EXPERT, N_LAYERS, Outcome, best_fixed, config, decode};
use esker_cache::{PolicyConfig, RebalanceConfig};

fn print(name: &str, outcome: &Outcome) {
    let [a, b] = outcome.n_slots;
    println!(
        "  {name:<22} {:>7.2} % {:>10.0} bytes/token   {a:>4} + {b:<4} {:>4} moves",
        100.0 * outcome.hit_rate(),
        outcome.bytes_per_token,
        outcome.moves
    );
}

fn table(n_tokens: usize, seed: u64) {
    let demand = |slot_bytes, n_popular| Demand { slot_bytes, n_popular };
    let cases = [
        ("skewed", demand([100, 100], [8, 40]), [160, 160]),
        ("skewed, larger slots want more", demand([100, 200], [8, 40]), [160, 160]),
        ("skewed, smaller slots want more", demand([100, 200], [40, 8]), [160, 160]),
        ("even", demand([100, 100], [24, 24]), [160, 160]),
        ("even, other sizes", demand([100, 200], [24, 24]), [160, 160]),
    ];
    for (name, demand, n_slots) in cases {
        let [a, b] = demand.n_popular;
        println!("{name}: {a} and {b} popular experts of {N_EXPERT}, slots of {:?} bytes", demand.slot_bytes);
        for policy in ["lru", "protected-lru"] {
            let policy = PolicyConfig::by_name(policy).expect("listed");
            for (what, rebalance) in [("as begun", RebalanceConfig::OFF), ("moving", RebalanceConfig::ON)] {
                let outcome = decode(config(&demand, n_slots, policy, rebalance), n_tokens, seed, |_| demand);
                print(&format!("{}, {what}", policy.name()), &outcome);
            }
            print("  best fixed of 19", &best_fixed(demand, n_slots, policy, n_tokens, seed));
        }
    }
}

fn main() {
    let (mut n_tokens, mut seed) = (6_000, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--tokens", Some(value @ 100..)) => n_tokens = value as usize,
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: division [--tokens N, at least 100] [--seed S]");
                std::process::exit(2);
            }
        }
    }
    println!("2 classes of {N_LAYERS} layers, {n_tokens} tokens, the last half counted, seed {seed}");
    table(n_tokens, seed);
}
