//! Many clients at once against a running service: errors, times to the first token and between tokens, memory over time.
//!
//! `cargo run --release -p esker-server --example load -- --url 127.0.0.1:8080 --model NAME --clients 64 --minutes 10`
//!
//! Every client sends one request after the other, without a pause: chats of different lengths, some that go on, some
//! that are dropped half-way. Status 429 is no error; the client waits as it is told. What is measured is what a client
//! sees. Memory is the service's own figure (`esker_memory_bytes` of `/metrics`) and, with `--pid`, the resident set of
//! the process; growth is judged from the end of `--warm-up` on.

#[allow(dead_code)]
#[path = "../tests/service/cases.rs"]
mod cases;
#[allow(dead_code)]
#[path = "../tests/service/client.rs"]
mod client;

use cases::Random;
use clap::Parser;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Args {
    /// Address of the service
    #[arg(long, default_value = "127.0.0.1:8080")]
    url: SocketAddr,
    /// Name of its model
    #[arg(long)]
    model: String,
    /// Clients at a time
    #[arg(long, default_value_t = 64)]
    clients: u64,
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Minutes after which memory is not to grow any more
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Process of the service, to read its resident set
    #[arg(long)]
    pid: Option<u32>,
    /// Seed of the requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What all clients have seen.
#[derive(Default)]
struct Seen {
    answers: u64,
    dropped: u64,
    refused: u64,
    tokens: u64,
    errors: BTreeMap<String, u64>,
    first_token_ms: Vec<f32>,
    between_tokens_ms: Vec<f32>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(args.minutes * 60.0);
    let seen = Mutex::new(Seen::default());
    let over = AtomicBool::new(false);
    let mut memory = Vec::new();
    std::thread::scope(|scope| {
        for i in 0..args.clients {
            let (args, seen, over) = (&args, &seen, &over);
            scope.spawn(move || {
                let mut random = Random::new(args.seed.wrapping_mul(1000) + i);
                while !over.load(Relaxed) {
                    one(args, &mut random, seen);
                }
            });
        }
        let show_every = (args.minutes / 40.0).max(0.05);
        let mut shown = 0.0;
        while Instant::now() < end {
            std::thread::sleep(SAMPLE.min(end.saturating_duration_since(Instant::now())));
            let minutes = begun.elapsed().as_secs_f64() / 60.0;
            let (own, resident) = (own_memory(&args), args.pid.and_then(resident));
            memory.push((minutes, own, resident));
            if minutes < shown + show_every {
                continue;
            }
            shown = minutes;
            let seen = seen.lock().expect("no client panics");
            let mib =
                |bytes: Option<f64>| bytes.map_or("-".to_owned(), |b| format!("{:.1} MiB", b / 1048576.0));
            println!(
                "{minutes:6.2} min: {} answers, {} dropped, {} refused, {} errors; memory {}, resident {}",
                seen.answers,
                seen.dropped,
                seen.refused,
                seen.errors.values().sum::<u64>(),
                mib(own),
                mib(resident)
            );
        }
        over.store(true, Relaxed);
    });
    report(&args, begun.elapsed(), seen.into_inner().expect("no client panics"), &memory)
}

/// One request.
fn one(args: &Args, random: &mut Random, seen: &Mutex<Seen>) {
    let words = ["lake", "river", "stone", "ice", "north", "hill", "wind", "bird", "gravel", "winter"];
    let text = |random: &mut Random, n: usize| -> String {
        (0..n).map(|_| words[random.below(words.len())]).collect::<Vec<_>>().join(" ")
    };
    let lengths = [5, 20, 80, 200];
    let length = lengths[random.below(lengths.len())];
    let mut messages = vec![json!({"role": "user", "content": text(random, length)})];
    if random.below(3) == 0 {
        messages.push(json!({"role": "assistant", "content": text(random, 20)}));
        messages.push(json!({"role": "user", "content": text(random, 10)}));
    }
    let max_tokens = [4, 16, 64, 128][random.below(4)];
    let mut body = json!({"model": args.model, "messages": messages, "max_tokens": max_tokens, "stream": true,
        "temperature": 1, "seed": random.next() >> 1});
    let path = match random.below(4) {
        0 => {
            body["max_tokens"] = max_tokens.into();
            if let Some(fields) = body.as_object_mut() {
                fields.remove("seed");
            }
            "/v1/messages"
        }
        _ => "/v1/chat/completions",
    };
    let drop_after = (random.below(10) == 0).then(|| 1 + random.below(10));
    let asked = Instant::now();
    let error = |what: String| {
        *seen.lock().expect("no client panics").errors.entry(what).or_default() += 1;
    };
    let mut response = match client::post(args.url, path, &body) {
        Ok(response) => response,
        Err(e) => return error(format!("connection: {}", e.kind())),
    };
    match response.status {
        200 => {}
        429 => {
            let wait = response.header("retry-after").and_then(|s| s.parse().ok());
            seen.lock().expect("no client panics").refused += 1;
            let Some(wait) = wait else { return error("429 without Retry-After".to_owned()) };
            return std::thread::sleep(Duration::from_secs(wait));
        }
        status => {
            let body: Value =
                serde_json::from_slice(&response.bytes().unwrap_or_default()).unwrap_or_default();
            return error(format!("status {status}: {}", body["error"]["message"]));
        }
    }
    let mut times = Vec::new();
    let mut finished = false;
    for event in response.events() {
        let text = event.data.contains("\"content\":\"") || event.data.contains("_delta\",\"text\"");
        let reasoning = event.data.contains("reasoning_content") || event.data.contains("thinking_delta");
        let start = event.data.contains("\"role\":\"assistant\"");
        if (text || reasoning) && !start {
            times.push(Instant::now());
        }
        if event.data.contains("\"error\"") {
            return error(format!("in the stream: {:.200}", event.data));
        }
        finished |= event.data == "[DONE]" || event.name == "message_stop";
        if drop_after.is_some_and(|n| times.len() >= n) {
            seen.lock().expect("no client panics").dropped += 1;
            return;
        }
    }
    if !finished {
        return error("a stream ended early".to_owned());
    }
    let ms = |a: Instant, b: Instant| (b - a).as_secs_f32() * 1000.0;
    let mut seen = seen.lock().expect("no client panics");
    seen.answers += 1;
    seen.tokens += times.len() as u64;
    if let Some(first) = times.first() {
        seen.first_token_ms.push(ms(asked, *first));
    }
    let between: Vec<f32> = times.windows(2).map(|w| ms(w[0], w[1])).collect();
    seen.between_tokens_ms.extend(between);
}

/// The service's own figure.
fn own_memory(args: &Args) -> Option<f64> {
    let text = client::get(args.url, "/metrics").ok()?.text();
    text.lines().find_map(|line| line.strip_prefix("esker_memory_bytes ")?.parse().ok())
}

/// The resident set of a process, bytes.
fn resident(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn report(
    args: &Args,
    time: Duration,
    mut seen: Seen,
    memory: &[(f64, Option<f64>, Option<f64>)],
) -> ExitCode {
    let s = time.as_secs_f64();
    println!("\n{} clients, {:.1} minutes", args.clients, s / 60.0);
    println!(
        "answers {}, dropped by the client {}, refused with 429 {}",
        seen.answers, seen.dropped, seen.refused
    );
    println!("tokens {}, {:.1} a second", seen.tokens, seen.tokens as f64 / s);
    for (what, values) in [
        ("time to first token", &mut seen.first_token_ms),
        ("time between tokens", &mut seen.between_tokens_ms),
    ] {
        values.sort_unstable_by(f32::total_cmp);
        let at =
            |p: f64| values.get(((values.len() as f64 * p) as usize).min(values.len().saturating_sub(1)));
        let ms = |p: f64| at(p).map_or("-".to_owned(), |v| format!("{v:.1} ms"));
        println!("{what}: p50 {}, p95 {}, p99 {}, most {}", ms(0.5), ms(0.95), ms(0.99), ms(1.0));
    }
    let mut good = true;
    for (name, pick) in [("memory", 1), ("resident", 2)] {
        let later: Vec<f64> = memory
            .iter()
            .filter(|(minutes, _, _)| *minutes >= args.warm_up)
            .filter_map(|(_, own, resident)| if pick == 1 { *own } else { *resident })
            .collect();
        if later.len() < 6 {
            continue;
        }
        // Scratch memory of prompts comes and goes, so that single figures scatter: means, and the range without the
        // outermost twentieths.
        let third = later.len() / 3;
        let of = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_unstable_by(f64::total_cmp);
            let n = values.len();
            (values.iter().sum::<f64>() / n as f64, values[n / 20], values[n - 1 - n / 20])
        };
        let (first, last) = (of(&later[..third]), of(&later[later.len() - third..]));
        let growth = 100.0 * (last.0 / first.0 - 1.0);
        let mib = |(mean, low, high): (f64, f64, f64)| {
            let [mean, low, high] = [mean, low, high].map(|bytes| bytes / 1048576.0);
            format!("{mean:.1} MiB ({low:.1} to {high:.1})")
        };
        println!("{name} after the warm-up: {}, then {}: {growth:+.2} %", mib(first), mib(last));
        good &= growth < 1.0;
    }
    for (what, n) in &seen.errors {
        println!("error, {n} times: {what}");
    }
    if seen.errors.is_empty() && good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
