//! What was counted while a model ran, for `--stats`, `/stats` and `--json`.
//!
//! The counters and their names are the engine's; here is what follows from them. `docs/stats.md` describes all
//! names, and a test holds it to that.

use crate::output::units::{bytes, percent, seconds};
use crate::output::{Align, HEADING, Table};
use esker_engine::{Engine, GenerationStats, Plan, Stats};
use serde::Serialize;
use std::time::Duration;

/// What a model was busy with: the whole that counters are parts of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Tokens that went through the model: of prompts, without what was reused, and decode steps.
    pub tokens: usize,
    /// Prefill and decode.
    pub time: Duration,
}

impl Work {
    /// Adds a generation, after which the session holds `session_tokens`.
    pub fn add(&mut self, stats: &GenerationStats, session_tokens: usize) {
        self.tokens += session_tokens.saturating_sub(stats.reused_tokens);
        self.time += stats.prefill_time + stats.decode_time;
    }
}

/// Counters since the model was loaded. Shares are of 1, and null where there is no whole.
#[derive(Serialize)]
pub struct Statistics {
    #[serde(flatten)]
    counted: Stats,
    expert_hit_rate: Option<f64>,
    decode_expert_hit_rate: Option<f64>,
    bytes_read_per_token: Option<f64>,
    wait_share: Option<f64>,
    plan: Option<PlanFigures>,
}

/// A plan, with sums. Null if all of the model is in memory.
#[derive(Clone, Serialize)]
pub struct PlanFigures {
    #[serde(flatten)]
    pub plan: Plan,
    /// Sum of the lines.
    pub total: u64,
    /// Share of the experts that fit in the arena.
    pub resident_share: f64,
}

impl From<&Plan> for PlanFigures {
    fn from(plan: &Plan) -> PlanFigures {
        PlanFigures { total: plan.total(), resident_share: plan.resident_share(), plan: plan.clone() }
    }
}

impl Statistics {
    /// What `engine` counted doing `work`.
    pub fn new(engine: &Engine, work: Work) -> Statistics {
        Statistics::of(engine.stats(), engine.plan(), work)
    }

    fn of(counted: Stats, plan: Option<&Plan>, work: Work) -> Statistics {
        let s = &counted;
        let lookups = [s.expert_hits, s.expert_read_ahead_hits, s.expert_misses];
        let decode = [s.decode_expert_hits, s.decode_expert_read_ahead_hits, s.decode_expert_misses];
        let read = (s.expert_bytes_read + s.row_bytes_read) as f64;
        Statistics {
            expert_hit_rate: hit_rate(lookups),
            decode_expert_hit_rate: hit_rate(decode),
            bytes_read_per_token: plan.and_then(|_| ratio(read, work.tokens as f64)),
            wait_share: plan.and_then(|_| ratio(s.wait_s, work.time.as_secs_f64())),
            plan: plan.map(PlanFigures::from),
            counted,
        }
    }

    /// A table for people, which may have styles. `by_layer` adds a line for each layer.
    pub fn table(&self, by_layer: bool) -> String {
        let mut out = format!("{HEADING}statistics{HEADING:#}\n");
        for (label, text) in self.lines() {
            out += &format!("  {label:<20}{text}\n");
        }
        if by_layer && !self.counted.layers.is_empty() {
            out += &self.layers();
        }
        out
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let s = &self.counted;
        let mut lines = Vec::new();
        if self.expert_hit_rate.is_some() {
            let all = [s.expert_hits, s.expert_read_ahead_hits, s.expert_misses];
            lines.push(("experts looked up", lookups(all)));
            let decode = [s.decode_expert_hits, s.decode_expert_read_ahead_hits, s.decode_expert_misses];
            if decode.iter().sum::<u64>() > 0 {
                lines.push(("while decoding", lookups(decode)));
            }
        }
        if let Some(plan) = &self.plan {
            let each = self
                .bytes_read_per_token
                .map_or(String::new(), |n| format!("; {} per token", bytes(n as u64)));
            let (experts, rows) = (bytes(s.expert_bytes_read), bytes(s.row_bytes_read));
            lines.push((
                "read",
                format!("{experts} of experts in {} reads, {rows} of rows{each}", s.expert_reads),
            ));
            let share =
                self.wait_share.map_or(String::new(), |share| format!(", {} of the time", share_text(share)));
            lines
                .push(("waited for reads", format!("{}{share}", seconds(Duration::from_secs_f64(s.wait_s)))));
            lines.push(("reads in flight", format!("at most {}", s.reads_in_flight_max)));
            lines.push(("evicted", format!("{} experts", s.expert_evictions)));
            let (precision, recall) = (share_text(s.read_ahead_precision), share_text(s.read_ahead_recall));
            lines.push((
                "read ahead",
                format!(
                    "{precision} of the predicted experts were wanted, {recall} of the wanted predicted; {} for nothing",
                    bytes(s.expert_wasted_bytes)
                ),
            ));
            if s.read_ahead_turned_off > 0 {
                lines.push(("", format!("turned itself off {}", times(s.read_ahead_turned_off))));
            }
            if s.expert_read_retries > 0 {
                lines.push(("read errors", format!("{} reads were repeated", s.expert_read_retries)));
            }
            if s.route_picks > 0 {
                lines.push((
                    "cache-aware routing",
                    format!(
                        "{} of {} picks changed",
                        percent(s.route_picks_changed, s.route_picks),
                        s.route_picks
                    ),
                ));
            }
            if s.arena_shrinks > 0 {
                let shrinks = times(s.arena_shrinks);
                lines.push(("memory ran low", format!("the arena was made smaller {shrinks}")));
            }
            if s.arena_classes.len() > 1 {
                lines.push(("slots of experts", division(s)));
            }
            let (total, budget) = (bytes(plan.total), bytes(plan.plan.budget));
            let share = share_text(plan.resident_share);
            lines.push(("memory planned", format!("{total} of {budget}, with {share} of the experts")));
        }
        if self.plan.is_none() {
            lines.push(("model", "all in memory: nothing was read on demand".to_owned()));
        }
        let (now, peak) = (bytes(s.memory_bytes), bytes(s.peak_memory_bytes));
        lines.push(("memory measured", format!("{now}, at most {peak}")));
        lines
    }

    fn layers(&self) -> String {
        let names = ["layer", "lookups", "hits", "read-ahead hits", "misses", "in time"];
        let mut table = Table::new(names.map(|name| (name, Align::Right)));
        for layer in &self.counted.layers {
            let counts = [layer.expert_hits, layer.expert_read_ahead_hits, layer.expert_misses];
            let all: u64 = counts.iter().sum();
            let [hits, ahead, misses] = counts.map(|n| n.to_string());
            let in_time = percent(counts[0] + counts[1], all);
            table.row([layer.layer.to_string(), all.to_string(), hits, ahead, misses, in_time]);
        }
        table.render()
    }
}

/// (hits + read-ahead hits) / lookups.
fn hit_rate([hits, ahead, misses]: [u64; 3]) -> Option<f64> {
    ratio((hits + ahead) as f64, (hits + ahead + misses) as f64)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn lookups(counts: [u64; 3]) -> String {
    let [hits, ahead, misses] = counts;
    let all = counts.iter().sum();
    let in_time = percent(hits + ahead, all);
    format!("{all}, {in_time} in time: {hits} hits, {ahead} read-ahead hits, {misses} misses")
}

/// How the arena is divided among sizes of experts now, and what was moved since the beginning.
fn division(s: &Stats) -> String {
    let classes =
        s.arena_classes.iter().map(|class| format!("{} of {}", class.n_slots, bytes(class.slot_bytes)));
    let mut text = classes.collect::<Vec<_>>().join(", ");
    if s.arena_moves > 0 {
        text +=
            &format!("; {} moved to another size in {}", bytes(s.arena_moved_bytes), moves(s.arena_moves));
    }
    text
}

fn moves(n: u64) -> String {
    format!("{n} move{}", if n == 1 { "" } else { "s" })
}

fn share_text(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn times(n: u64) -> String {
    format!("{n} time{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_engine::{ArenaClass, ClassPlan, PlanLine};

    fn plan() -> Plan {
        Plan {
            budget: 1000,
            smallest_budget: 600,
            context: 64,
            chunk: 16,
            sessions: 1,
            lines: vec![
                PlanLine { name: "process", bytes: 500, what: "program".into() },
                PlanLine { name: "expert_arena", bytes: 400, what: "slots".into() },
            ],
            classes: vec![ClassPlan { slot_bytes: 100, n_slots: 4, n_experts: 16, n_layers: 2 }],
            experts_per_token_bytes: 300,
            dense_bytes: 50,
        }
    }

    #[test]
    fn rates_follow_from_counts() {
        let counted = Stats {
            expert_hits: 6,
            expert_read_ahead_hits: 3,
            expert_misses: 1,
            decode_expert_hits: 1,
            decode_expert_misses: 1,
            expert_bytes_read: 90,
            row_bytes_read: 10,
            wait_s: 0.5,
            ..Stats::default()
        };
        let work = Work { tokens: 4, time: Duration::from_secs(2) };
        let value = serde_json::to_value(Statistics::of(counted, Some(&plan()), work)).expect("JSON");
        let check = |name: &str, expect: f64| assert_eq!(value[name], expect, "{name}");
        check("expert_hit_rate", 0.9);
        check("decode_expert_hit_rate", 0.5);
        check("bytes_read_per_token", 25.0);
        check("wait_share", 0.25);
        assert_eq!(value["plan"]["total"], 900);
        assert_eq!(value["plan"]["resident_share"], 0.25);
        assert_eq!(value["plan"]["lines"][1]["name"], "expert_arena");
    }

    #[test]
    fn without_a_whole_there_is_no_share() {
        let of = |plan: Option<&Plan>| {
            serde_json::to_value(Statistics::of(Stats::default(), plan, Work::default())).expect("JSON")
        };
        for name in ["expert_hit_rate", "decode_expert_hit_rate", "bytes_read_per_token", "wait_share"] {
            assert!(of(None)[name].is_null() && of(Some(&plan()))[name].is_null(), "{name}");
        }
        assert!(of(None)["plan"].is_null());
    }

    #[test]
    fn the_division_is_shown_where_there_is_one() {
        let shown = |counted: Stats| {
            let lines = Statistics::of(counted, Some(&plan()), Work::default()).lines();
            lines.into_iter().find(|(label, _)| *label == "slots of experts").map(|(_, text)| text)
        };
        let class = |slot_bytes, n_slots| ArenaClass { slot_bytes, n_slots };
        let one = Stats { arena_classes: vec![class(100, 4)], ..Stats::default() };
        assert_eq!(shown(one), None);
        let two = vec![class(1 << 20, 31), class(2 << 20, 12)];
        let planned = Stats { arena_classes: two, ..Stats::default() };
        assert_eq!(shown(planned.clone()).as_deref(), Some("31 of 1.00 MiB, 12 of 2.00 MiB"));
        let moved = Stats { arena_moves: 1, arena_moved_bytes: 4 << 20, ..planned.clone() };
        let expect = "31 of 1.00 MiB, 12 of 2.00 MiB; 4.00 MiB moved to another size in 1 move";
        assert_eq!(shown(moved).as_deref(), Some(expect));
        let more = Stats { arena_moves: 3, arena_moved_bytes: 9 << 20, ..planned };
        assert!(
            shown(more).is_some_and(|text| text.ends_with("; 9.00 MiB moved to another size in 3 moves"))
        );
    }
}
