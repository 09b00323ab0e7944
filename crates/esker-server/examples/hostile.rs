//! Sends thousands of malformed and hostile requests to a running service and checks what comes back.
//!
//! `cargo run --release -p esker-server --example hostile -- --url 127.0.0.1:8080 --model NAME --cases 10000`
//!
//! Every case follows from its seed, so that a failure can be repeated with `--first SEED --cases 1`. Start the service
//! with short `--body-timeout` and `--header-timeout`, since some cases never send what they promise. Between the cases
//! an ordinary request is made, whose answer has to stay the same.

#[allow(dead_code)]
#[path = "../tests/service/cases.rs"]
mod cases;
#[allow(dead_code)]
#[path = "../tests/service/client.rs"]
mod client;

use clap::Parser;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

#[derive(Parser)]
struct Args {
    /// Address of the service
    #[arg(long, default_value = "127.0.0.1:8080")]
    url: SocketAddr,
    /// Name of its model
    #[arg(long)]
    model: String,
    /// Cases
    #[arg(long, default_value_t = 10_000)]
    cases: u64,
    /// Seed of the first
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Cases at a time
    #[arg(long, default_value_t = 8)]
    clients: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let begun = Instant::now();
    let expected = ordinary(&args);
    let next = AtomicU64::new(args.first);
    let (failed, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..args.clients {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= args.first + args.cases {
                        return;
                    }
                    let case = cases::case(seed, &args.model);
                    if let Err(e) = cases::check(args.url, &case) {
                        failed.fetch_add(1, Relaxed);
                        println!("case {seed}: {e}\n  {}", case.describe());
                    }
                    if seed.is_multiple_of(200) && ordinary(&args) != expected {
                        lost.fetch_add(1, Relaxed);
                        println!("after case {seed} an ordinary request has another answer");
                    }
                }
            });
        }
    });
    let same = ordinary(&args) == expected;
    let (failed, lost) = (failed.into_inner(), lost.into_inner());
    println!(
        "{} cases in {:.0} s: {failed} failed, {lost} ordinary requests harmed, the answer at the end is {}",
        args.cases,
        begun.elapsed().as_secs_f64(),
        if same { "the same" } else { "another" }
    );
    if failed == 0 && lost == 0 && same { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The answer to a request that is in order. A full queue is no harm.
fn ordinary(args: &Args) -> Option<Value> {
    let body = json!({
        "model": args.model,
        "messages": [{"role": "user", "content": "Hello, who are you?"}],
        "temperature": 0,
        "max_tokens": 8,
    });
    loop {
        let mut response = client::post(args.url, "/v1/chat/completions", &body).ok()?;
        match response.status {
            200 => return Some(response.json()["choices"][0]["message"].clone()),
            429 => std::thread::sleep(std::time::Duration::from_millis(200)),
            _ => return None,
        }
    }
}
