//! What of an archive is shown.

use super::svg::{Lines, Range, Ranges, Scale, Series};
use super::{Archives, GrowthArchive, KernelsArchive, Named, StreamArchive};
use crate::bench::record::Run;
use crate::bench::spread::Spread;
use crate::peer::machine::Machine;

const NONE: &str = "Nothing measured yet.\n";

/// A table in Markdown; `NONE` without rows. The first column is to the left.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return NONE.to_owned();
    }
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rule: Vec<String> = (0..head.len()).map(|c| if c == 0 { ":--" } else { "--:" }.to_owned()).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(&head) + &line(&rule) + &body
}

pub(super) fn model(name: &str) -> &str {
    name.strip_suffix(".gguf").unwrap_or(name)
}

pub(super) fn link<T>(named: &Named<T>) -> String {
    format!("[{0}]({1}/{0})", named.file, named.folder)
}

fn spread(spread: &Spread, scale: f64, digits: usize) -> String {
    let cell = |v: f64| format!("{:.digits$}", v * scale);
    format!("{} ({} to {})", cell(spread.median), cell(spread.min), cell(spread.max))
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

/// Names of series; two of one model get their files' names too.
pub(super) fn names<T>(archives: &[Named<T>], model_of: impl Fn(&T) -> &str) -> Vec<String> {
    let of = |named: &Named<T>| model(model_of(&named.archive)).to_owned();
    let all: Vec<String> = archives.iter().map(of).collect();
    let is_double = |name: &String| all.iter().filter(|&other| other == name).count() > 1;
    let name = |(name, named): (&String, &Named<T>)| match is_double(name) {
        true => named.file.trim_end_matches(".json").to_owned(),
        false => name.clone(),
    };
    all.iter().zip(archives).map(name).collect()
}

/// Experts on disk.
pub(super) fn stream(archives: &[Named<StreamArchive>]) -> String {
    let head = [
        "model",
        "memory, MiB",
        "experts resident",
        "tokens/s",
        "MB read per token",
        "MB/s reached",
        "disk, MB/s",
        "few buffers, MB/s",
        "disk, ms",
        "computation, ms",
        "step, ms",
        "of the roofline",
        "rounds",
        "archive",
    ];
    let row = |named: &Named<StreamArchive>| {
        let (raw, summary) = (&named.archive.raw, &named.archive.summary);
        let group = if raw.settings.group_limit.is_some() { " (enforced)" } else { "" };
        vec![
            model(&raw.model.name).to_owned(),
            format!("{} of {}{group}", mebibytes(raw.settings.memory), mebibytes(raw.model.bytes)),
            format!("{:.0} %", raw.resident_share * 100.0),
            spread(&summary.tokens_per_s, 1.0, 2),
            format!("{:.1}", summary.bytes_per_token.median / 1e6),
            format!("{:.0}", summary.reached_mb_s.median),
            format!("{:.0}", summary.disk_mb_s.median),
            format!("{:.0}", summary.few_buffers_mb_s.median),
            format!("{:.2}", summary.disk_ms.median),
            format!("{:.2}", summary.compute_ms.median),
            format!("{:.2}", summary.step_ms.median),
            format!("{} %", spread(&summary.share, 100.0, 0)),
            raw.rounds.len().to_string(),
            link(named),
        ]
    };
    table(&head, archives.iter().map(row).collect())
}

/// Shares of the roofline.
pub(super) fn stream_picture(archives: &[Named<StreamArchive>]) -> Option<String> {
    let names = names(archives, |a| &a.raw.model.name);
    let rows = archives.iter().zip(names).map(|(named, name)| {
        let Spread { median, min, max } = named.archive.summary.share;
        Range { name, value: median * 100.0, min: min * 100.0, max: max * 100.0, kind: 0 }
    });
    let title = "Decoding with experts on disk: share of the roofline";
    let x = "per cent; median and range over rounds";
    (!archives.is_empty()).then(|| {
        Ranges { title, x, x_scale: Scale::Linear, rows: rows.collect(), marks: &[90.0, 100.0] }.svg()
    })
}

/// Times over the context.
pub(super) fn growth(archives: &[Named<GrowthArchive>]) -> String {
    let head = [
        "model",
        "context",
        "ms per token",
        "of it attention",
        "by the first",
        "prefill, s",
        "tokens/s",
        "time per token by the first",
        "archive",
    ];
    let rows = archives.iter().flat_map(|named| {
        let summary = &named.archive.summary;
        summary.decode.iter().zip(&summary.prefill).map(move |(decode, prefill)| {
            vec![
                model(&named.archive.raw.model.name).to_owned(),
                decode.context.to_string(),
                spread(&decode.step_ms, 1.0, 2),
                format!("{:.2}", decode.attention_ms),
                format!("{:.2}", decode.growth),
                format!("{:.2}", prefill.seconds),
                format!("{:.1}", prefill.tokens as f64 / prefill.seconds),
                format!("{:.2}", prefill.growth),
                link(named),
            ]
        })
    });
    table(&head, rows.collect())
}

/// Decode steps over the context.
pub(super) fn decode_picture(archives: &[Named<GrowthArchive>]) -> Option<String> {
    let series = archives.iter().zip(names(archives, |a| &a.raw.model.name)).map(|(named, name)| {
        let points = named.archive.summary.decode.iter().map(|p| (p.context as f64, p.step_ms.median));
        Series { name, points: points.collect(), dots: true }
    });
    let lines = Lines {
        title: "A decode step over the length of the context",
        x: "tokens before it",
        y: "ms",
        x_scale: Scale::Log,
        series: series.collect(),
    };
    (!archives.is_empty()).then(|| lines.svg())
}

/// Prefill over the length of the prompt.
pub(super) fn prefill_picture(archives: &[Named<GrowthArchive>]) -> Option<String> {
    let series = archives.iter().zip(names(archives, |a| &a.raw.model.name)).map(|(named, name)| {
        let (mut tokens, mut seconds) = (0.0, 0.0);
        let sums = named.archive.raw.chunks.iter().map(|chunk| {
            tokens += chunk.tokens as f64;
            seconds += chunk.ms / 1e3;
            (tokens, seconds)
        });
        Series { name, points: std::iter::once((0.0, 0.0)).chain(sums).collect(), dots: false }
    });
    let lines = Lines {
        title: "Prefill over the length of the prompt",
        x: "tokens",
        y: "s",
        x_scale: Scale::Linear,
        series: series.collect(),
    };
    (!archives.is_empty()).then(|| lines.svg())
}

/// Products on the best instruction set of each archive.
pub(super) fn products(archives: &[Named<KernelsArchive>]) -> String {
    let head = [
        "weights",
        "columns",
        "1 token, GB/s",
        "of reading",
        "from a cache, GB/s",
        "64 tokens, GFLOP/s",
        "of the most",
        "instructions",
        "threads",
        "archive",
    ];
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let rows = archives.iter().flat_map(|named| {
        let KernelsArchive { run, raw, summary, .. } = &named.archive;
        let best = raw.products.first().map(|product| &product.isa);
        let of_best = raw.products.iter().zip(summary).filter(move |(product, _)| Some(&product.isa) == best);
        of_best.map(move |(product, shares)| {
            vec![
                product.ty.clone(),
                product.cols.to_string(),
                format!("{:.1}", product.one_gb_s),
                percent(shares.read),
                format!("{:.1}", product.cached_gb_s),
                format!("{:.0}", product.many_gflop_s),
                shares.compute.map_or_else(|| "-".to_owned(), percent),
                product.isa.clone(),
                run.threads.to_string(),
                link(named),
            ]
        })
    });
    table(&head, rows.collect())
}

/// Operations on the best instruction set of each archive.
pub(super) fn operations(archives: &[Named<KernelsArchive>]) -> String {
    let head = ["operation", "of", "µs", "GB/s", "instructions", "threads", "archive"];
    let rows = archives.iter().flat_map(|named| {
        let KernelsArchive { run, raw, .. } = &named.archive;
        let best = raw.operations.first().map(|operation| &operation.isa);
        raw.operations.iter().filter(move |o| Some(&o.isa) == best).map(move |operation| {
            vec![
                operation.name.clone(),
                operation.size.clone(),
                format!("{:.2}", operation.us),
                format!("{:.1}", operation.gb_s()),
                operation.isa.clone(),
                run.threads.to_string(),
                link(named),
            ]
        })
    });
    table(&head, rows.collect())
}

/// One token's products: shares of the memory's bandwidth.
pub(super) fn kernels_picture(archives: &[Named<KernelsArchive>]) -> Option<String> {
    let rows = archives.iter().enumerate().flat_map(|(kind, named)| {
        let KernelsArchive { run, raw, summary, .. } = &named.archive;
        let best = raw.products.first().map(|product| &product.isa);
        let of_best = raw.products.iter().zip(summary).filter(move |(product, _)| Some(&product.isa) == best);
        of_best.map(move |(product, shares)| {
            let value = shares.read * 100.0;
            let name = format!("{}, {} columns, {} threads", product.ty, product.cols, run.threads);
            Range { name, value, min: value, max: value, kind }
        })
    });
    let title = "Weights times one token: share of the rate of reading the same bytes";
    let ranges =
        Ranges { title, x: "per cent", x_scale: Scale::Linear, rows: rows.collect(), marks: &[100.0] };
    (!archives.is_empty()).then(|| ranges.svg())
}

/// What an archive comes from.
struct Origin {
    link: String,
    started: u64,
    commit: Option<String>,
    machine: Machine,
    threads: usize,
    isa: String,
    peer: String,
}

/// All archives, and what they come from.
pub(super) fn archives(all: &Archives) -> String {
    let head =
        ["archive", "date", "commit", "processor", "cores", "kernel", "threads", "Esker uses", "llama.cpp"];
    let bench = |link: String, run: &Run| Origin {
        link,
        started: run.started,
        commit: run.commit.clone(),
        machine: run.machine.clone(),
        threads: run.threads,
        isa: run.isa.clone(),
        peer: String::new(),
    };
    let speed = all.speed.iter().map(|named| {
        let raw = &named.archive.raw;
        Origin {
            link: link(named),
            started: raw.started,
            commit: raw.commit.clone(),
            machine: raw.machine.clone(),
            threads: raw.settings.threads,
            isa: raw.esker.isa.clone(),
            peer: raw.llama_cpp.version.clone(),
        }
    });
    let stream = all.stream.iter().map(|named| bench(link(named), &named.archive.run));
    let growth = all.growth.iter().map(|named| bench(link(named), &named.archive.run));
    let kernels = all.kernels.iter().map(|named| bench(link(named), &named.archive.run));
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let mut rows: Vec<Vec<String>> = speed
        .chain(stream)
        .chain(growth)
        .chain(kernels)
        .map(|origin| {
            vec![
                origin.link,
                date(origin.started),
                or_unknown(origin.commit),
                or_unknown(origin.machine.cpu),
                origin.machine.cores.to_string(),
                or_unknown(origin.machine.kernel),
                origin.threads.to_string(),
                origin.isa,
                origin.peer,
            ]
        })
        .collect();
    rows.sort();
    table(&head, rows)
}

/// The day of a moment in seconds since 1970 (Gregorian calendar, UTC).
fn date(unix_time: u64) -> String {
    // Counted from 1 March of year 0, so that a leap day is the last of its year; 400 years have 146,097 days.
    let days = unix_time / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(951_868_800), "2000-03-01");
        assert_eq!(date(1_798_761_599), "2026-12-31");
    }

    #[test]
    fn tables_have_a_rule_under_their_head() {
        let rows = vec![vec!["x".to_owned(), "1".to_owned()]];
        assert_eq!(table(&["a", "b"], rows), "| a | b |\n| :-- | --: |\n| x | 1 |\n");
        assert_eq!(table(&["a"], vec![]), NONE);
    }
}
