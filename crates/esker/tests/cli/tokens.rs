//! `esker tokenize` and `esker detokenize`.

use crate::support::{TINY, arg, assert_run, directory, json, run, run_with, stdout};
use serde_json::json;
use std::fs;

const TEXT: &str = "Hello, wörld!\n\n\tdef f(x):  # 日本語 👩‍👩‍👧\r\n";

#[test]
fn ids_and_pieces() {
    assert_run!(run(&["tokenize", TINY, "Hello, <|im_end|>wörld"]), @r#"
    exit code: 0
    --- stdout ---
    39 320 75 78 11 220 27 91 350 62 455 91 29 86 127 114 81 75 67
    --- stderr ---
    "#);
    assert_run!(run(&["tokenize", TINY, "a <|im_end|>ö", "--special", "--pieces"]), @r#"
    exit code: 0
    --- stdout ---
     64  `a`
    220  ` `
    505  `<|im_end|>`
    127  `\xc3`
    114  `\xb6`
    --- stderr ---
    "#);
    assert_run!(run(&["tokenize", TINY, "the the", "--json"]), @r#"
    exit code: 0
    --- stdout ---
    {"tokens":[83,267,275],"pieces":["t","he"," the"],"count":3}
    --- stderr ---
    "#);
}

/// A single argument is a text, unless it names a model.
#[test]
fn one_argument() {
    let of_demo = stdout(&["tokenize", "Hello, world"]);
    assert_eq!(stdout(&["tokenize", "-q", "Hello, world"]), of_demo);
    let output = run_with(&["tokenize", TINY], b"Hello, world");
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout(&["tokenize", TINY, "Hello, world"]));
}

#[test]
fn what_was_tokenized_comes_back() {
    for model in [&[][..], &[TINY]] {
        let tokens = run_with(&[&["tokenize", "--file", "-"], model].concat(), TEXT.as_bytes());
        let back = run_with(&[&["detokenize"], model].concat(), &tokens.stdout);
        assert_eq!(String::from_utf8_lossy(&back.stdout), TEXT);
    }
    let ids = stdout(&["tokenize", TINY, "a<|im_end|>b", "--special"]);
    let ids: Vec<&str> = ids.split_whitespace().collect();
    assert_eq!(stdout(&[&["detokenize", TINY], &ids[..]].concat()), "ab");
    assert_eq!(stdout(&[&["detokenize", TINY, "--special"], &ids[..]].concat()), "a<|im_end|>b");
}

/// The whole file counts here, its last newline included.
#[test]
fn files_and_pipes() {
    let directory = directory();
    let path = directory.path().join("text.txt");
    fs::write(&path, "Hello\n").expect("written");
    let of_file = stdout(&["tokenize", TINY, "--file", arg(&path)]);
    assert_eq!(of_file, stdout(&["tokenize", TINY, "Hello\n"]));
    let output = run_with(&["tokenize", TINY, "--json"], b"a\xffb");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["tokens"], json(&["tokenize", TINY, "a\u{fffd}b", "--json"])["tokens"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("warning: the text is not UTF-8"));
    assert_eq!(json(&["tokenize", TINY, "", "--json", "--no-bos"])["tokens"], json!([]));
}
