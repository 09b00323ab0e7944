use super::*;

/// The document's folder, as `bench plot` takes it; `None` before anything was measured.
fn published() -> Option<PathBuf> {
    let folder = crate::workspace().join("docs/performance");
    if !folder.exists() {
        eprintln!("skipped: {} is not there", folder.display());
    }
    folder.exists().then_some(folder)
}

#[test]
fn the_document_says_what_the_archives_say() {
    let Some(folder) = published() else { return };
    let drawn = Archives::of_folder(&folder).expect("archives that hold together").draw();
    for (name, picture) in &drawn.pictures {
        let there = std::fs::read_to_string(folder.join(name)).expect(name);
        assert!(there == *picture, "{name} is not what the archives give: run `cargo xtask bench plot`");
    }
    let document = folder.with_extension("md");
    let text = std::fs::read_to_string(&document).expect("the document");
    let again = document::filled(&text, &drawn.tables, &document).expect("all markers");
    assert!(again == text, "the tables are not what the archives give: run `cargo xtask bench plot`");
}

#[test]
fn archives_that_are_not_fit_are_refused() {
    let add = |text: &str| Archives::default().add(Path::new("a.json"), text.as_bytes()).unwrap_err();
    assert!(matches!(add("{"), PlotError::Contents { .. }));
    assert!(matches!(add(r#"{"format": "x/1"}"#), PlotError::Format { .. }));
    assert!(matches!(add(r#"{"format": "esker-bench-stream/2"}"#), PlotError::Contents { .. }));
    let of = |argument: &str, summary: &str| {
        format!(
            r#"{{"format": "esker-bench-growth/1", "run": {{"command": ["xtask", "{argument}"], "started": 0, "ended": 1,
            "load_average": [null, null], "machine": {{"cpu": null, "cpu_flags": null, "cores": 1, "logical_cores": 1,
            "memory_bytes": null, "kernel": null, "platform": "p"}}, "commit": null, "version": "0", "isa": "scalar",
            "threads": 1}}, "raw": {{"model": {{"name": "m.gguf", "bytes": 1, "architecture": "a", "layers": 1}},
            "chunk": 1, "kv": "f16", "chunks": [], "marks": []}}, "summary": {{"decode": [{summary}], "prefill": []}}}}"#
        )
    };
    let mut fit = Archives::default();
    fit.add(Path::new("a.json"), of("bench", "").as_bytes()).expect("fit");
    assert!(fit.draw().tables.iter().any(|(name, table)| *name == "archives" && table.contains("a.json")));
    assert!(matches!(add(&of("/home/me/m.gguf", "")), PlotError::Folders { .. }));
    let point = r#"{"context": 1, "step_ms": {"median": 1.0, "min": 1.0, "max": 1.0}, "attention_ms": 0.0, "growth": 1.0}"#;
    assert!(matches!(add(&of("bench", point)), PlotError::Summary { .. }));
}

#[test]
fn a_folder_is_drawn_the_same_each_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("performance");
    let plot = || run(&PlotArguments { archives: vec![], out: out.clone() }).expect("drawn");
    plot();
    let document = std::fs::read_to_string(out.with_extension("md")).expect("a document");
    assert_eq!(document.matches("Nothing measured yet.").count(), 8);
    plot();
    assert_eq!(std::fs::read_to_string(out.with_extension("md")).expect("a document"), document);
}
