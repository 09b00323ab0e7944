//! Results as text.

use super::archive::{Archive, Memory};
use super::side::Who;
use super::summary::{Line, OTHERS_MAX, Quantity, Verdict};
use std::fmt::Write;

/// Columns as wide as their widest cell; the first to the left, the others to the right, the last one ragged.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| Some(r.get(c)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            match c {
                0 => line += &format!("{cell}{pad}"),
                c if c + 1 == n => line += &format!("  {cell}"),
                _ => line += &format!("  {pad}{cell}"),
            }
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// A speed comparison.
pub(crate) fn speed(archive: &Archive, lines: &[Line]) -> String {
    let raw = &archive.raw;
    let settings = &raw.settings;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}, threads: {}, pairs: {}", raw.model.name, settings.threads, settings.pairs);
    let _ = writeln!(out, "Esker:     {} ({})", raw.esker.version, raw.esker.isa);
    let _ = writeln!(out, "llama.cpp: {} ({})", raw.llama_cpp.version, raw.llama_cpp.isa);
    let load = |l: Option<f64>| l.map_or_else(|| "?".to_owned(), |l| format!("{l:.1}"));
    let [before, after] = raw.load_average.map(load);
    let cpu = raw.machine.cpu.as_deref().unwrap_or("unknown processor");
    let _ =
        writeln!(out, "{cpu}, {} cores, load average {before} before and {after} after\n", raw.machine.cores);

    let head = ["", "Esker", "llama.cpp", "ratio", "min", "max", "interval", "best", "Esker is"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(lines.iter().map(row));
    out += &columns(&rows);
    let _ = writeln!(
        out,
        "ratio: median over pairs, above 1 where Esker is better; best: best reading of either side; equivalent: within {:.0} %",
        settings.margin * 100.0
    );
    for line in lines {
        if let Some(cores) = line.others.filter(|&cores| cores > OTHERS_MAX) {
            let name = quantity_name(line.quantity);
            let _ = writeln!(
                out,
                "{name}: others kept {cores:.1} cores busy meanwhile: no verdict, and little meaning"
            );
        }
    }
    if settings.memory_limit.is_some() {
        for line in lines {
            if let (Some(esker), Some(llama_cpp)) = (line.read_esker, line.read_llama_cpp) {
                let name = quantity_name(line.quantity);
                let (esker, llama_cpp) = (esker / 1e6, llama_cpp / 1e6);
                let _ =
                    writeln!(out, "{name}: MB read per token: Esker {esker:.1}, llama.cpp {llama_cpp:.1}");
            }
        }
    }
    for line in lines.iter().filter(|l| l.same_tokens.is_some_and(|n| n < l.ratios.len())) {
        let (same, of) = (line.same_tokens.unwrap_or(0), line.ratios.len());
        let _ =
            writeln!(out, "{}: the same tokens drawn in {same} of {of} pairs", quantity_name(line.quantity));
    }
    for line in lines {
        let moved = |d: Option<f64>| d.filter(|d| (d - 1.0).abs() > settings.margin);
        for (who, drift) in [("Esker", moved(line.drift_esker)), ("llama.cpp", moved(line.drift_llama_cpp))] {
            if let Some(drift) = drift {
                let change = (drift - 1.0) * 100.0;
                let _ = writeln!(
                    out,
                    "{}: {who} against itself, last third to first: {change:+.0} %",
                    quantity_name(line.quantity)
                );
            }
        }
    }
    let _ = writeln!(out, "\n{}", columns(&memory_rows(&raw.memory)).trim_end());
    out
}

/// What was measured, in words.
pub(crate) fn quantity_name(quantity: Quantity) -> String {
    match quantity {
        Quantity::Decode(n) => format!("decode at {n}"),
        Quantity::Prefill(n) => format!("prefill of {n}"),
        Quantity::FirstToken => "load to first token".to_owned(),
    }
}

/// A reading with its unit.
pub(crate) fn reading(quantity: Quantity, value: f64) -> String {
    let unit = match quantity {
        Quantity::Decode(_) | Quantity::Prefill(_) => "tok/s",
        Quantity::FirstToken => "ms",
    };
    // Streamed models give fractions of a token per second.
    let digits = if value < 10.0 { 2 } else { 1 };
    format!("{value:.digits$} {unit}")
}

/// The verdict in a word.
pub(crate) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Equivalent => "equivalent",
        Verdict::Inconclusive => "inconclusive",
    }
}

fn row(line: &Line) -> Vec<String> {
    let interval = line.interval.map_or_else(
        || "too few pairs".to_owned(),
        |i| format!("{:.2} to {:.2} ({:.1} %)", i.low, i.high, i.coverage * 100.0),
    );
    vec![
        quantity_name(line.quantity),
        reading(line.quantity, line.esker),
        reading(line.quantity, line.llama_cpp),
        format!("{:.2}", line.median),
        format!("{:.2}", line.min),
        format!("{:.2}", line.max),
        interval,
        format!("{:.2}", line.best),
        verdict_name(line.verdict).to_owned(),
    ]
}

fn memory_rows(memory: &[Memory]) -> Vec<Vec<String>> {
    let head = ["memory, MiB", "peak", "before loading", "allocated after", "mapped after", "group's peak"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mebibytes = |b: Option<u64>| {
        b.map_or_else(|| "-".to_owned(), |b| format!("{:.1}", b as f64 / f64::from(1 << 20)))
    };
    for who in [Who::Esker, Who::LlamaCpp] {
        // Of several processes of a side, the one that needed most.
        if let Some(most) = memory.iter().filter(|m| m.who == who).max_by_key(|m| m.after.peak) {
            rows.push(vec![
                who.name().to_owned(),
                mebibytes(most.after.peak),
                mebibytes(most.idle.peak),
                mebibytes(most.after.anonymous),
                mebibytes(most.after.file),
                mebibytes(most.group_peak),
            ]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::side::Resident;
    use crate::peer::summary::Interval;

    #[test]
    fn cells_line_up() {
        let rows = [["", "a", "end"], ["日本", "10", "x"], ["b", "7.25", ""]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|r| r.iter().map(|c| (*c).to_owned()).collect()).collect();
        assert_eq!(columns(&rows), "       a  end\n日本    10  x\nb   7.25\n");
        assert_eq!(columns(&[]), "");
    }

    #[test]
    fn a_line_says_its_verdict_and_its_interval() {
        let line = Line {
            quantity: Quantity::Decode(128),
            esker: 100.04,
            llama_cpp: 50.0,
            best: 2.2,
            ratios: vec![2.0; 7],
            median: 2.0,
            min: 1.9,
            max: 2.1,
            interval: Some(Interval { low: 1.9, high: 2.1, coverage: 0.984_375 }),
            drift_esker: None,
            drift_llama_cpp: None,
            same_tokens: Some(7),
            read_esker: None,
            read_llama_cpp: None,
            others: None,
            verdict: Verdict::Faster,
        };
        let cells = row(&line);
        assert_eq!(cells[0], "decode at 128");
        assert_eq!(cells[1], "100.0 tok/s");
        assert_eq!(reading(Quantity::Decode(128), 0.197), "0.20 tok/s");
        assert_eq!(cells[6], "1.90 to 2.10 (98.4 %)");
        assert_eq!(cells[7..], ["2.20", "faster"]);
        let few = Line { interval: None, verdict: Verdict::Inconclusive, ..line };
        assert_eq!(row(&few)[6..], ["too few pairs", "2.20", "inconclusive"]);
    }

    #[test]
    fn memory_shows_the_largest_process_of_each_side() {
        let of = |who, peak: u64| Memory {
            who,
            idle: Resident::default(),
            after: Resident { peak: Some(peak << 20), ..Resident::default() },
            group_peak: None,
        };
        let rows = memory_rows(&[of(Who::Esker, 10), of(Who::Esker, 30), of(Who::LlamaCpp, 20)]);
        assert_eq!(rows.len(), 3);
        assert_eq!((&*rows[1][1], &*rows[2][1], &*rows[2][2]), ("30.0", "20.0", "-"));
    }
}
