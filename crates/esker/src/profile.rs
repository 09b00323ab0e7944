//! Where the time of a run went, for `--profile`.

use crate::output::units::{bytes, percent, seconds};
use crate::output::{Align, HEADING, Table};
use esker_engine::{Op, OpTime, Phase, Profile};
use serde::Serialize;
use std::time::Duration;

/// Times by phase.
#[derive(Serialize)]
pub struct ProfileReport {
    prefill: PhaseReport,
    decode: PhaseReport,
}

/// Times of one phase: the operations and what is left make up `total_s`, sampling aside.
#[derive(Serialize)]
struct PhaseReport {
    tokens: u64,
    total_s: f64,
    ops: Vec<OpReport>,
    /// Between the operations.
    other_s: f64,
}

#[derive(Serialize)]
struct OpReport {
    op: &'static str,
    calls: u64,
    s: f64,
    weight_bytes: u64,
}

impl ProfileReport {
    /// What `profile` has counted.
    pub fn new(profile: &Profile) -> ProfileReport {
        ProfileReport {
            prefill: PhaseReport::new(profile, Phase::Prefill),
            decode: PhaseReport::new(profile, Phase::Decode),
        }
    }

    /// Tables for people, which may have styles.
    pub fn table(&self) -> String {
        let phases = [("prefill", &self.prefill), ("decode", &self.decode)];
        let tables = phases.into_iter().filter(|(_, phase)| phase.tokens > 0);
        tables.map(|(name, phase)| phase.table(name)).collect()
    }
}

impl PhaseReport {
    fn new(profile: &Profile, phase: Phase) -> PhaseReport {
        let passes = profile.passes(phase);
        let counted = Op::ALL.map(|op| (op, profile.of(phase, op)));
        let inside = counted.iter().filter(|(op, _)| *op != Op::Sampling);
        let known: Duration = inside.map(|(_, entry)| entry.time).sum();
        let ran = counted.into_iter().filter(|(_, entry)| entry.calls > 0);
        let ops = ran.map(|(op, OpTime { calls, time, weight_bytes })| OpReport {
            op: op.name(),
            calls,
            s: time.as_secs_f64(),
            weight_bytes,
        });
        PhaseReport {
            tokens: passes.tokens,
            total_s: passes.time.as_secs_f64(),
            ops: ops.collect(),
            other_s: passes.time.saturating_sub(known).as_secs_f64(),
        }
    }

    fn table(&self, name: &str) -> String {
        let per_token = |s: f64| format!("{:.1} µs", 1e6 * s / self.tokens as f64);
        let share = |s: f64| percent((1e9 * s) as u64, (1e9 * self.total_s) as u64);
        let header = [("", Align::Left), ("per token", Align::Right), ("share", Align::Right)];
        let more = [("calls", Align::Right), ("weights read", Align::Right)];
        let mut table = Table::new(header.into_iter().chain(more));
        for op in &self.ops {
            let rate = match op.weight_bytes {
                0 => String::new(),
                n => format!("{}/s", bytes((n as f64 / op.s) as u64)),
            };
            table.row([op.op.to_owned(), per_token(op.s), share(op.s), op.calls.to_string(), rate]);
        }
        table.row([
            "other".to_owned(),
            per_token(self.other_s),
            share(self.other_s),
            String::new(),
            String::new(),
        ]);
        let total = seconds(Duration::from_secs_f64(self.total_s));
        format!("{HEADING}{name}: {} tokens, {total}{HEADING:#}\n{}", self.tokens, table.render())
    }
}
