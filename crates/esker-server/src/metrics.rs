//! Counters and histograms, and their text for Prometheus.
//!
//! Source of the format: Prometheus' text exposition format 0.0.4.

use crate::owner::{Health, Shared};
use esker_engine::ArenaClass;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of a histogram's buckets, seconds.
const BOUNDS_S: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Times by how long they were.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One more than the bounds: what is longer than all.
    buckets: [AtomicU64; BOUNDS_S.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, time: Duration) {
        let s = time.as_secs_f64();
        let bucket = BOUNDS_S.iter().position(|bound| s <= *bound).unwrap_or(BOUNDS_S.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "histogram", help);
        let mut count = 0;
        for (i, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            match BOUNDS_S.get(i) {
                Some(bound) => line(out, format_args!("{name}_bucket{{le=\"{bound}\"}} {count}")),
                None => line(out, format_args!("{name}_bucket{{le=\"+Inf\"}} {count}")),
            }
        }
        line(out, format_args!("{name}_sum {}", self.sum_us.load(Relaxed) as f64 / 1e6));
        line(out, format_args!("{name}_count {count}"));
    }
}

/// What is counted over the life of a service.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By route and status.
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub refused: Counter,
    pub cancelled: Counter,
    pub failed_passes: Counter,
    pub passes: Counter,
    pub prompt_tokens: Counter,
    pub cached_tokens: Counter,
    pub generated_tokens: Counter,
    pub first_token: Histogram,
    pub between_tokens: Histogram,
}

impl Metrics {
    /// Counts a response. Routes are a fixed set, so clients cannot make this grow.
    pub fn responded(&self, route: &'static str, status: u16) {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        *responses.entry((route, status)).or_default() += 1;
    }

    /// The text that Prometheus reads.
    pub fn text(&self, shared: &Shared) -> String {
        let mut out = String::with_capacity(8 << 10);
        head(&mut out, "esker_http_responses_total", "counter", "Responses by route and status.");
        for ((route, status), n) in &*self.responses.lock().unwrap_or_else(PoisonError::into_inner) {
            line(
                &mut out,
                format_args!("esker_http_responses_total{{route=\"{route}\",status=\"{status}\"}} {n}"),
            );
        }
        let snapshot = shared.status.snapshot();
        let stats = &snapshot.stats;
        let counters: [(&str, &str, u64); 17] = [
            (
                "esker_requests_refused_total",
                "Requests refused because the queue was full.",
                self.refused.get(),
            ),
            ("esker_sequences_cancelled_total", "Sequences whose client went away.", self.cancelled.get()),
            ("esker_passes_total", "Passes through the model.", self.passes.get()),
            ("esker_passes_failed_total", "Passes that failed.", self.failed_passes.get()),
            ("esker_prompt_tokens_total", "Prompt tokens of finished sequences.", self.prompt_tokens.get()),
            (
                "esker_cached_tokens_total",
                "Of these, tokens that were not computed again.",
                self.cached_tokens.get(),
            ),
            ("esker_generated_tokens_total", "Tokens drawn.", self.generated_tokens.get()),
            ("esker_expert_hits_total", "Experts that were in memory when needed.", stats.expert_hits),
            (
                "esker_expert_read_ahead_hits_total",
                "Experts read ahead in time.",
                stats.expert_read_ahead_hits,
            ),
            ("esker_expert_misses_total", "Experts that had to be waited for.", stats.expert_misses),
            (
                "esker_expert_bytes_read_total",
                "Bytes of experts read from the disk.",
                stats.expert_bytes_read,
            ),
            ("esker_expert_wasted_bytes_total", "Bytes read ahead in vain.", stats.expert_wasted_bytes),
            ("esker_expert_evictions_total", "Experts that lost their slot.", stats.expert_evictions),
            ("esker_row_bytes_read_total", "Bytes of table rows read from the disk.", stats.row_bytes_read),
            (
                "esker_arena_moves_total",
                "Times that slots of one size gave way to slots of another.",
                stats.arena_moves,
            ),
            (
                "esker_arena_moved_bytes_total",
                "Bytes of the slots that came by that.",
                stats.arena_moved_bytes,
            ),
            (
                "esker_arena_shrinks_total",
                "Times that the arena was made smaller because memory ran low.",
                stats.arena_shrinks,
            ),
        ];
        for (name, help, value) in counters {
            head(&mut out, name, "counter", help);
            line(&mut out, format_args!("{name} {value}"));
        }
        let busy = snapshot.slots.iter().filter(|s| s.phase.name() != "idle").count();
        let ready = u64::from(shared.status.health() == Health::Ready);
        let gauges: [(&str, &str, f64); 8] = [
            ("esker_ready", "1 if tokens can be made.", ready as f64),
            ("esker_slots", "Sequences that can be computed at once.", snapshot.slots.len() as f64),
            ("esker_slots_busy", "Sequences that are being computed.", busy as f64),
            ("esker_queue_waiting", "Sequences that wait for a slot.", shared.queue.waiting() as f64),
            (
                "esker_memory_bytes",
                "Memory of the process (proportional set size).",
                stats.memory_bytes as f64,
            ),
            ("esker_memory_peak_bytes", "The most that was ever resident.", stats.peak_memory_bytes as f64),
            ("esker_decode_tokens_per_second", "Speed of decoding, of late.", snapshot.decode_tokens_per_s),
            ("esker_prefill_tokens_per_second", "Speed of prompts, of late.", snapshot.prefill_tokens_per_s),
        ];
        for (name, help, value) in gauges {
            head(&mut out, name, "gauge", help);
            line(&mut out, format_args!("{name} {value}"));
        }
        arena_slots(&mut out, &stats.arena_classes);
        self.first_token.write(
            &mut out,
            "esker_time_to_first_token_seconds",
            "From a request to its first token.",
        );
        self.between_tokens.write(
            &mut out,
            "esker_time_between_tokens_seconds",
            "Between tokens of a sequence.",
        );
        out
    }
}

/// How the arena is divided: sizes are told apart by a label. No two classes have the same.
fn arena_slots(out: &mut String, classes: &[ArenaClass]) {
    let name = "esker_arena_slots";
    head(out, name, "gauge", "Slots of experts in memory, by the bytes of one.");
    for ArenaClass { slot_bytes, n_slots } in classes {
        line(out, format_args!("{name}{{slot_bytes=\"{slot_bytes}\"}} {n_slots}"));
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::default();
        for ms in [1, 2, 40, 500_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut out = String::new();
        histogram.write(&mut out, "t", "help");
        for expected in [
            "t_bucket{le=\"0.001\"} 1",
            "t_bucket{le=\"0.05\"} 3",
            "t_bucket{le=\"120\"} 3",
            "t_bucket{le=\"+Inf\"} 4",
            "t_sum 500.043",
            "t_count 4",
        ] {
            assert!(out.lines().any(|line| line == expected), "{expected} in\n{out}");
        }
    }

    #[test]
    fn slots_of_each_size_are_a_series() {
        let class = |slot_bytes, n_slots| ArenaClass { slot_bytes, n_slots };
        let mut out = String::new();
        arena_slots(&mut out, &[class(4096, 7), class(8192, 2)]);
        let series: Vec<&str> = out.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            ["esker_arena_slots{slot_bytes=\"4096\"} 7", "esker_arena_slots{slot_bytes=\"8192\"} 2"]
        );
    }
}
