//! Tables and the picture of archives of `peer speed`: Esker beside llama.cpp.

use super::svg::{Range, Ranges, Scale};
use super::tables::{link, mebibytes, model, names, table};
use super::{Named, speed::Archive};
use crate::peer::archive::FORMAT_1;
use crate::peer::side::Who;
use crate::peer::summary::{Line, Quantity};
use crate::peer::table::{quantity_name, reading, verdict_name};

/// An archive's lines.
fn lines(named: &Named<Archive>) -> impl Iterator<Item = (&Named<Archive>, &Line)> {
    named.archive.summary.iter().map(move |line| (named, line))
}

/// Whether all of the model was in memory.
fn is_resident(named: &&Named<Archive>) -> bool {
    named.archive.raw.settings.memory_limit.is_none()
}

/// What was measured, and how, where that has changed.
fn name(named: &Named<Archive>, line: &Line) -> String {
    let name = quantity_name(line.quantity);
    match line.quantity {
        Quantity::Decode(_) if named.archive.format == FORMAT_1 => format!("{name}, prompt anew"),
        _ => name,
    }
}

/// Both readings, the ratio and its range, pairs, verdict.
fn readings(line: &Line) -> [String; 7] {
    [
        reading(line.quantity, line.esker),
        reading(line.quantity, line.llama_cpp),
        format!("{:.2}", line.median),
        format!("{:.2}", line.min),
        format!("{:.2}", line.max),
        line.ratios.len().to_string(),
        verdict_name(line.verdict).to_owned(),
    ]
}

/// All in memory.
pub(super) fn speed(archives: &[Named<Archive>]) -> String {
    let head =
        ["model", "", "Esker", "llama.cpp", "ratio", "min", "max", "pairs", "Esker is", "threads", "archive"];
    let row = |(named, line): (&Named<Archive>, &Line)| {
        let mut row = vec![model(&named.archive.raw.model.name).to_owned(), name(named, line)];
        row.extend(readings(line));
        row.extend([named.archive.raw.settings.threads.to_string(), link(named)]);
        row
    };
    table(&head, archives.iter().filter(is_resident).flat_map(lines).map(row).collect())
}

/// The ratios of all archives.
pub(super) fn picture(archives: &[Named<Archive>]) -> Option<String> {
    let names = names(archives, |a| &a.raw.model.name);
    let rows = archives.iter().zip(&names).flat_map(|(named, model)| {
        let limit = named.archive.raw.settings.memory_limit;
        let limit = limit.map_or_else(String::new, |limit| format!(" in {} MiB", mebibytes(limit)));
        named.archive.summary.iter().map(move |line| Range {
            name: format!("{model}{limit}: {}", quantity_name(line.quantity)),
            value: line.median,
            min: line.min,
            max: line.max,
            kind: match line.quantity {
                Quantity::Decode(_) => 0,
                Quantity::Prefill(_) => 1,
                Quantity::FirstToken => 2,
            },
        })
    });
    let title = "Esker beside llama.cpp: how many times as fast";
    let x = "ratio, above 1 where Esker is faster; median and range over pairs";
    (!archives.is_empty())
        .then(|| Ranges { title, x, x_scale: Scale::Log, rows: rows.collect(), marks: &[1.0] }.svg())
}

/// Of a side, the process that needed most.
fn peak(named: &Named<Archive>, who: Who) -> Option<&crate::peer::archive::Memory> {
    named.archive.raw.memory.iter().filter(|m| m.who == who).max_by_key(|m| m.after.peak)
}

fn or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_owned(), mebibytes)
}

/// In less memory than the model has.
pub(super) fn streamed(archives: &[Named<Archive>]) -> String {
    let head = [
        "model",
        "memory, MiB",
        "",
        "Esker",
        "llama.cpp",
        "ratio",
        "min",
        "max",
        "pairs",
        "Esker is",
        "MB read per token: Esker",
        "llama.cpp",
        "group's peak, MiB: Esker",
        "llama.cpp",
        "kernel's read-ahead, KiB",
        "threads",
        "archive",
    ];
    let row = |(named, line): (&Named<Archive>, &Line)| {
        let raw = &named.archive.raw;
        let limit = raw.settings.memory_limit?;
        let read = |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), |b| format!("{:.1}", b / 1e6));
        let group = |who| or_unknown(peak(named, who).and_then(|memory| memory.group_peak));
        let mut row = vec![
            model(&raw.model.name).to_owned(),
            format!("{} of {}", mebibytes(limit), mebibytes(raw.model.bytes)),
            name(named, line),
        ];
        row.extend(readings(line));
        row.extend([read(line.read_esker), read(line.read_llama_cpp)]);
        row.extend([group(Who::Esker), group(Who::LlamaCpp)]);
        let ahead = raw.model.read_ahead_bytes;
        row.push(ahead.map_or_else(|| "?".to_owned(), |bytes| (bytes / 1024).to_string()));
        row.extend([raw.settings.threads.to_string(), link(named)]);
        Some(row)
    };
    table(&head, archives.iter().flat_map(lines).filter_map(row).collect())
}

/// Memory of both sides, without a limit.
pub(super) fn memory(archives: &[Named<Archive>]) -> String {
    let head = ["model", "Esker, MiB", "llama.cpp, MiB", "before loading", "before loading", "archive"];
    let row = |named: &Named<Archive>| {
        let (esker, llama_cpp) = (peak(named, Who::Esker)?, peak(named, Who::LlamaCpp)?);
        Some(vec![
            model(&named.archive.raw.model.name).to_owned(),
            or_unknown(esker.after.peak),
            or_unknown(llama_cpp.after.peak),
            or_unknown(esker.idle.peak),
            or_unknown(llama_cpp.idle.peak),
            link(named),
        ])
    };
    table(&head, archives.iter().filter(is_resident).filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::archive::{FORMAT, Memory, Phase};
    use crate::peer::side::Resident;
    use crate::peer::summary::{summarize, tests::seven};

    fn named(limit: Option<u64>, format: &str) -> Named<Archive> {
        let mut raw = seven();
        raw.settings.memory_limit = limit;
        raw.model.bytes = 40 << 20;
        raw.runs.iter_mut().for_each(|run| run.read_bytes = Some(6_000_000));
        if format == FORMAT_1 {
            raw.runs.iter_mut().for_each(|run| (run.phase, run.computed) = (Phase::Both, None));
        }
        raw.memory = [(Who::Esker, 9), (Who::LlamaCpp, 10)]
            .map(|(who, peak)| Memory {
                who,
                idle: Resident::default(),
                after: Resident::default(),
                group_peak: Some(peak << 20),
            })
            .to_vec();
        let archive = Archive { format: format.to_owned(), summary: summarize(&raw), raw };
        Named { folder: "f".to_owned(), file: "a.json".to_owned(), archive }
    }

    #[test]
    fn what_was_limited_has_a_table_of_its_own() {
        let both = [named(None, FORMAT), named(Some(10 << 20), FORMAT)];
        let (speed, streamed) = (speed(&both), streamed(&both));
        assert_eq!(speed, super::speed(&both[..1]));
        assert_eq!(streamed, super::streamed(&both[1..]));
        assert_eq!(super::streamed(&both[..1]), table(&[], vec![]));
        let decode = streamed.lines().find(|line| line.contains("decode at 128")).expect("a row");
        assert!(decode.contains("| m | 10 of 40 |"), "{decode}");
        // A turn of three tokens computes one before the first and one before each other.
        assert!(decode.contains("| 2.0 | 2.0 | 9 | 10 | 8192 |"), "{decode}");
        let start = streamed.lines().find(|line| line.contains("first token")).expect("a row");
        assert!(start.contains("| - | - | 9 | 10 |"), "{start}");
        assert_eq!(memory(&both).lines().count(), 3, "resident memory of what was not limited");
    }

    #[test]
    fn older_archives_say_how_they_decoded() {
        let (older, newer) = (speed(&[named(None, FORMAT_1)]), speed(&[named(None, FORMAT)]));
        assert!(older.contains("| decode at 128, prompt anew |") && !newer.contains("anew"), "{older}");
        assert!(older.contains("| prefill of 512 |"));
    }
}
