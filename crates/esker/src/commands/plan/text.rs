//! The plan for people.

use super::Report;
use super::speed::{Speed, Traffic};
use crate::output::units::{bytes, percent, sentence, tokens_per_s};
use crate::output::{Align, HEADING, Table};
use crate::statistics::PlanFigures;
use esker_engine::{Plan, PlanLine};

/// Characters between the ends of the bar.
const BAR_WIDTH: usize = 72;
/// What the bar shows for memory that nothing uses.
const UNUSED: char = '.';
/// What the bar shows for a line that has no character of its own.
const OTHER: char = '+';

pub fn report(r: &Report<'_>) -> String {
    let mut out = format!("{HEADING}{}{HEADING:#}\n", r.name);
    let mut line = |label: &str, text: String| out += &format!("  {label:<15}{text}\n");
    let architecture = r.architecture.as_deref().unwrap_or("unknown");
    line("model", format!("{}, {}, {architecture}", r.path.display(), bytes(r.file_bytes)));
    line("memory", sentence(r.why.strip_prefix("memory: ").unwrap_or(&r.why)));
    line("context", format!("{} tokens", r.context));
    if let Some(traffic) = &r.traffic {
        line("a token needs", needs(traffic));
    }
    if let Some(enough) = &r.enough {
        line("needs at least", format!("`--memory {enough}`"));
    }
    if let Some(plan) = &r.plan {
        out += &budget(plan);
    }
    if let Some(memory) = &r.in_memory {
        out += &section("All in memory");
        out += &lines(&memory.lines, memory.total, None);
        if let Some(free) = memory.free_bytes {
            out += &format!("  {} are free\n", bytes(free));
        }
    }
    if let (Some(speed), Some(traffic)) = (&r.speed, &r.traffic) {
        out += &self::speed(speed, traffic);
    }
    out
}

fn needs(traffic: &Traffic) -> String {
    let dense = format!("{} of dense weights", bytes(traffic.dense_bytes));
    match traffic.experts_bytes {
        0 => dense,
        n => format!("{dense}, {} of experts", bytes(n)),
    }
}

fn budget(figures: &PlanFigures) -> String {
    let PlanFigures { plan, total, resident_share } = figures;
    let mut out = section("Budget");
    let unused = match () {
        () if plan.classes.is_empty() => "the model needs no more",
        () if *resident_share >= 1.0 => "all experts fit",
        () => "less than one slot",
    };
    out += &lines(&plan.lines, *total, Some((plan.budget, unused)));
    out += &format!("\n  [{}]\n", bar(plan));
    if plan.classes.is_empty() {
        return out;
    }
    out += &section("Experts");
    let names = ["one slot", "slots", "experts", "layers", "in memory"];
    let mut table = Table::new(names.map(|name| (name, Align::Right)));
    for class in &plan.classes {
        table.row([
            bytes(class.slot_bytes),
            class.n_slots.to_string(),
            class.n_experts.to_string(),
            class.n_layers.to_string(),
            percent(class.n_slots as u64, class.n_experts as u64),
        ]);
    }
    out += &table.render();
    if plan.classes.len() > 1 {
        out += &format!("  {:.1} % of all experts fit\n", 100.0 * resident_share);
    }
    out
}

/// Each line with its size and share; in a budget also with its character in the bar, and what is unused with the reason.
fn lines(lines: &[PlanLine], total: u64, budget: Option<(u64, &str)>) -> String {
    let mut header =
        vec![("name", Align::Left), ("size", Align::Right), ("share", Align::Right), ("what", Align::Left)];
    if budget.is_some() {
        header.insert(0, ("", Align::Left));
    }
    let mut table = Table::new(header);
    let whole = budget.map_or(total, |(budget, _)| budget);
    let mut row = |mark: Option<char>, name: &str, n: u64, what: &str| {
        let mut cells = vec![name.to_owned(), bytes(n), percent(n, whole), what.to_owned()];
        if budget.is_some() {
            cells.insert(0, mark.map(String::from).unwrap_or_default());
        }
        table.row(cells);
    };
    for line in lines.iter().filter(|line| line.bytes > 0) {
        row(Some(mark(line.name)), line.name, line.bytes, &line.what);
    }
    match budget {
        None => row(None, "total", total, ""),
        Some((budget, why)) => {
            if let Some(unused) = budget.checked_sub(total).filter(|&n| n > 0) {
                row(Some(UNUSED), "unused", unused, why);
            }
            row(None, "budget", budget, "");
        }
    }
    table.render()
}

/// A line's character in the bar.
fn mark(name: &str) -> char {
    match name {
        "process" => 'p',
        "dense_weights" => 'w',
        "sequence_state" => 's',
        "decode_scratch" => 'd',
        "prompt_scratch" => 'c',
        "snapshots" => 'k',
        "table_rows" => 't',
        "disk" => 'i',
        "expert_cache" => 'x',
        "expert_arena" => '#',
        _ => OTHER,
    }
}

/// The budget as [`BAR_WIDTH`] characters, each line by its share: where a line ends is rounded, not how long it is, so
/// that the sum is right.
fn bar(plan: &Plan) -> String {
    let mut bar = String::new();
    let mut end = 0u64;
    for line in &plan.lines {
        end = end.saturating_add(line.bytes);
        let cells = (end as f64 / plan.budget.max(1) as f64 * BAR_WIDTH as f64).round() as usize;
        let n = cells.min(BAR_WIDTH).saturating_sub(bar.len());
        bar.extend(std::iter::repeat_n(mark(line.name), n));
    }
    let unused = BAR_WIDTH - bar.len();
    bar.extend(std::iter::repeat_n(UNUSED, unused));
    bar
}

fn speed(speed: &Speed, traffic: &Traffic) -> String {
    let mut out = section("Speed to expect");
    let mut line = |label: &str, text: String| out += &format!("  {label:<15}{text}\n");
    let memory = &speed.memory;
    let threads =
        if memory.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", memory.threads) };
    line(
        "memory",
        format!(
            "{}/s, measured now: {threads}, {}",
            bytes(memory.bytes_per_s),
            bytes(memory.buffer_bytes as u64)
        ),
    );
    if let Some(disk) = &speed.disk {
        let when = if disk.kept { "earlier" } else { "now" };
        let (block, depth) = (bytes(disk.probe.block_bytes as u64), disk.probe.best_depth);
        let how = if disk.probe.direct { "" } else { "; by way of the page cache, so not the device's own" };
        let rate = bytes(disk.bytes_per_s);
        line("disk", format!("{rate}/s, measured {when}: random reads of {block}, {depth} at a time{how}"));
    }
    let at_most = tokens_per_s(speed.in_memory_tokens_per_s);
    match speed.uniform_tokens_per_s {
        _ if traffic.experts_bytes == 0 || traffic.uniform_hit_share >= 1.0 => {
            line("decode", format!("{at_most} at most: everything is in memory"));
        }
        Some(uniform) => {
            let share = 100.0 * traffic.uniform_hit_share;
            line(
                "decode",
                format!(
                    "{} with uniform routing: {share:.1} % of experts found in memory",
                    tokens_per_s(uniform)
                ),
            );
            line("", format!("{at_most} with every expert found in memory"));
        }
        None => line("decode", format!("{at_most} at most, with every expert found in memory")),
    }
    line("", "from bandwidths alone: computing takes time as well".to_owned());
    out
}

fn section(title: &str) -> String {
    format!("\n{HEADING}{title}{HEADING:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(budget: u64, lines: &[(&'static str, u64)]) -> Plan {
        let line = |&(name, bytes): &(&'static str, u64)| PlanLine { name, bytes, what: String::new() };
        Plan {
            budget,
            smallest_budget: 0,
            context: 1,
            chunk: 1,
            sessions: 1,
            lines: lines.iter().map(line).collect(),
            classes: Vec::new(),
            experts_per_token_bytes: 0,
            dense_bytes: 0,
        }
    }

    #[test]
    fn the_bar_is_as_long_as_the_budget() {
        let half = BAR_WIDTH / 2;
        let [p, arena, unused] = ["p".repeat(half), "#".repeat(half), ".".repeat(half)];
        assert_eq!(bar(&plan(100, &[("process", 50), ("expert_arena", 50)])), format!("{p}{arena}"));
        assert_eq!(bar(&plan(100, &[("process", 50)])), format!("{p}{unused}"));
        // Many lines too small for a character take the place that they have together.
        let small: Vec<_> = (0..1000).map(|_| ("disk", 1)).collect();
        assert_eq!(bar(&plan(2000, &small)), format!("{}{unused}", "i".repeat(half)));
        assert_eq!(bar(&plan(0, &[("new", 9)])), "+".repeat(BAR_WIDTH));
    }
}
