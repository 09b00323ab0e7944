//! Edits conversations at random and compares incremental encoding with encoding the whole, for all golden
//! vocabularies: `fuzz_incremental [--edits N] [--seed N]`. Ends with 1 at the first difference, which it prints.

#[path = "../tests/vocabularies/mod.rs"]
mod vocabularies;

use std::process::ExitCode;

use vocabularies::edits::{compare, tokenizers};

fn main() -> ExitCode {
    let (mut edits, mut seed) = (100_000, 1);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().and_then(|v| v.parse().ok());
        match (&*name, value) {
            ("--edits", Some(n)) => edits = n,
            ("--seed", Some(n)) => seed = n as u64,
            _ => {
                eprintln!("usage: fuzz_incremental [--edits N] [--seed N]");
                return ExitCode::from(2);
            }
        }
    }
    let tokenizers = tokenizers();
    // A conversation is edited this often before the next vocabulary has its turn.
    let round = 500;
    let mut totals = vec![(0, 0, 0); tokenizers.len()];
    let mut done = 0;
    for i in 0.. {
        if done >= edits {
            break;
        }
        let (name, tokenizer) = &tokenizers[i % tokenizers.len()];
        let n = round.min(edits - done);
        match compare(tokenizer, seed.wrapping_add(i as u64), n) {
            Ok((all, encoded)) => {
                let total = &mut totals[i % tokenizers.len()];
                *total = (total.0 + n, total.1 + all, total.2 + encoded);
            }
            Err(difference) => {
                println!("{name}, seed {}: {difference}", seed.wrapping_add(i as u64));
                return ExitCode::FAILURE;
            }
        }
        done += n;
    }
    for ((name, _), (edits, all, encoded)) in tokenizers.iter().zip(totals) {
        let share = 100.0 * encoded as f64 / all.max(1) as f64;
        println!("{name}: {edits} edits equal; {share:.1} % of {all} bytes encoded");
    }
    println!("{done} edits, no difference");
    ExitCode::SUCCESS
}
