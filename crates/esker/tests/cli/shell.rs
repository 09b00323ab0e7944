//! `esker completions` and `esker man`.

use crate::support::{arg, directory, names, run, stdout};
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
    let expect = [
        "esker-bench-synth.1",
        "esker-bench.1",
        "esker-chat.1",
        "esker-completions.1",
        "esker-detokenize.1",
        "esker-inspect.1",
        "esker-logits.1",
        "esker-man.1",
        "esker-plan.1",
        "esker-repack.1",
        "esker-run.1",
        "esker-serve.1",
        "esker-tokenize.1",
        "esker.1",
    ];
    assert_eq!(names(&pages), expect);
    let run = fs::read_to_string(pages.join("esker-run.1")).expect("written");
    assert!(run.contains("\\-\\-top\\-k") && run.contains("\\-\\-color"), "{run}");
}
