//! The document around the tables.

use super::PlotError;
use std::path::Path;

/// The tables, in the order of a new document, with what stands above each.
const SECTIONS: [(&str, &str, &str, &[&str]); 8] = [
    (
        "speed",
        "Beside llama.cpp",
        "`cargo xtask peer speed`: the same file, token ids and number of threads, in alternating pairs. The ratio is above 1 where Esker is better: median over pairs, least and largest. Decode goes on with one sequence per side in turns, so the context is longer by what was generated; older archives, which say `prompt anew`, gave the whole prompt again in each pair.",
        &["speed.svg"],
    ),
    (
        "streamed",
        "Streamed, beside llama.cpp",
        "`cargo xtask peer speed --memory-limit`: each side in a memory group of its own that is smaller than the model, page cache included. Esker reads experts from the disk, llama.cpp maps the file and leaves weights as they are in it (`--no-repack`), so that the kernel can drop pages. Bytes are those that the kernel read from the disk for a side, per token that went through the model; of a mapped file they depend on the kernel's read-ahead (`read_ahead_kb`).",
        &[],
    ),
    (
        "memory",
        "Memory beside llama.cpp",
        "The most that each side ever had resident, over its whole life.",
        &[],
    ),
    (
        "stream",
        "Experts on disk",
        "`cargo xtask bench stream`: decode steps against the longer of two times: the disk's for the bytes that were read, at the best rate that it gave just before and after, and that of all computations. The disk's rate is measured into memory that is larger than caches, as the arena is; beside it is what it gives into a few buffers again and again, as disk benchmarks commonly read, which a program that keeps what it reads cannot reach where the disk is virtual and copies.",
        &["stream.svg"],
    ),
    (
        "growth",
        "Growth with the context",
        "`cargo xtask bench growth`: all weights in memory, one sequence.",
        &["growth-decode.svg", "growth-prefill.svg"],
    ),
    (
        "kernels",
        "Products with weights",
        "`cargo xtask bench kernels`, the best instruction set: one token against reading the same bytes on the same threads, 64 tokens against multiplying and adding in registers, of f32 or of integers of 8 bits as the type's products are.",
        &["kernels.svg"],
    ),
    ("operations", "Operations on floats", "The same command; sizes of a decode step.", &[]),
    ("archives", "Archives", "What was measured, untouched; every number above is computed from these.", &[]),
];

fn markers(name: &str) -> (String, String) {
    (format!("<!-- bench:{name} -->"), format!("<!-- /bench:{name} -->"))
}

/// A new document for the pictures of `folder`.
pub(super) fn skeleton(folder: &Path) -> String {
    let folder = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut text =
        "# Performance\n\nTables and pictures are made by `cargo xtask bench plot` of the archives in \
        this folder; text outside of the markers is not touched by it.\n"
            .to_owned();
    for (name, title, about, pictures) in SECTIONS {
        let (begin, end) = markers(name);
        text += &format!("\n## {title}\n\n{about}\n\n");
        for picture in pictures {
            text += &format!("![{title}]({folder}/{picture})\n\n");
        }
        text += &format!("{begin}\n{end}\n");
    }
    text
}

/// `text` with the tables between their markers.
///
/// # Errors
/// If markers are missing or out of order.
pub(super) fn filled(
    text: &str,
    tables: &[(&'static str, String)],
    path: &Path,
) -> Result<String, PlotError> {
    let mut text = text.to_owned();
    for (name, table) in tables {
        let (begin, end) = markers(name);
        let place = text.find(&begin).map(|at| at + begin.len());
        let place = place.and_then(|from| Some(from..from + text[from..].find(&end)?));
        let Some(place) = place else {
            return Err(PlotError::Markers { path: path.to_owned(), begin, end });
        };
        text.replace_range(place, &format!("\n{table}"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_tables_and_nothing_else() {
        let path = Path::new("d.md");
        let tables = SECTIONS.map(|(name, ..)| (name, format!("| {name} |\n")));
        let once = filled(&skeleton(Path::new("docs/performance")), &tables, path).expect("has all markers");
        assert!(once.contains("<!-- bench:growth -->\n| growth |\n<!-- /bench:growth -->\n"));
        assert!(once.contains("](performance/stream.svg)"));
        let edited = once.replace("one sequence.", "one sequence. A remark.");
        let twice = filled(&edited, &tables, path).expect("still has them");
        assert_eq!(twice, edited);
        let broken = edited.replace("<!-- /bench:memory -->", "");
        let refused = filled(&broken, &tables, path).expect_err("a marker is gone").to_string();
        assert!(refused.contains("<!-- /bench:memory -->"), "{refused}");
    }
}
