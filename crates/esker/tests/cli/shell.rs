//! `esker completions` and `esker man`.

use crate::support::{arg, directory, run, stdout};
use std::fs;

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&["completions", shell]);
        for word in ["detokenize", "template-arg", "kv-type", "color"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn manual_pages() {
    let page = stdout(&["man"]);
    assert!(page.contains(".TH esker 1") && page.contains("Exit codes"), "{page}");
    let directory = directory();
    let pages = directory.path().join("man1");
    stdout(&["man", arg(&pages)]);
    let mut names: Vec<String> = fs::read_dir(&pages)
        .expect("made")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    let expect = [
        "chat",
        "completions",
        "detokenize",
        "inspect",
        "logits",
        "man",
        "plan",
        "repack",
        "run",
        "tokenize",
    ];
    let expect: Vec<String> =
        expect.iter().map(|name| format!("esker-{name}.1")).chain(["esker.1".into()]).collect();
    assert_eq!(names, expect);
    let run = fs::read_to_string(pages.join("esker-run.1")).expect("written");
    assert!(run.contains("\\-\\-top\\-k") && run.contains("\\-\\-color"), "{run}");
}
