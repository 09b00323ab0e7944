//! `esker run`.

use crate::support::{TINY, arg, assert_run, directory, esker, json, run, run_with, stdout};
use serde_json::json;
use std::fs;
use std::io::Read;
use std::process::Stdio;

const PROMPT: &str = "Once upon a time";

#[test]
fn text_and_speed() {
    assert_run!(run(&["run", "-p", PROMPT, "-n", "12", "--greedy"]), @r#"
    exit code: 0
    --- stdout ---
     there was a sixty gynecologist named
    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    prompt: 4 tokens in [TIME], [SPEED]; text: 12 tokens in [TIME], [SPEED]
    "#);
}

#[test]
fn greedy_is_the_same_always() {
    let run = |extra: &[&str]| {
        let mut value = json(&[&["run", "-p", PROMPT, "-n", "12", "--greedy", "--json"], extra].concat());
        assert_eq!(value["finish"], "max_tokens");
        assert_eq!(value["stats"]["prompt_tokens"], 4);
        assert_eq!(value["stats"]["generated_tokens"], 12);
        for rate in ["prefill_tokens_per_s", "decode_tokens_per_s", "load_s", "prefill_s", "decode_s"] {
            assert!(value["stats"][rate].as_f64().is_some_and(|v| v > 0.0), "{rate}");
        }
        value["stats"].take();
        value["sampling"]["seed"].take();
        value
    };
    let first = run(&[]);
    assert_eq!(run(&["--threads", "1"]), first);
    assert_eq!(run(&["--chunk", "1"]), first);
    let text = stdout(&["run", "-p", PROMPT, "-n", "12", "--greedy"]);
    assert_eq!(Some(text.trim_end_matches('\n')), first["text"].as_str());
}

#[test]
fn a_seed_repeats_a_draw() {
    let text =
        |seed: &str| json(&["run", TINY, "-p", "a", "-n", "16", "--ignore-eos", "--json", "--seed", seed]);
    assert_eq!(text("7")["tokens"], text("7")["tokens"]);
    assert_ne!(text("7")["tokens"], text("8")["tokens"]);
    let random = json(&["run", TINY, "-p", "a", "-n", "16", "--ignore-eos", "--json"]);
    let seed = random["sampling"]["seed"].to_string();
    assert_eq!(text(&seed)["tokens"], random["tokens"]);
}

#[test]
fn prompts_from_elsewhere() {
    let directory = directory();
    let path = directory.path().join("prompt.txt");
    fs::write(&path, format!("{PROMPT}\n")).expect("written");
    let args = ["run", "-q", "-n", "3", "--greedy"];
    let expect = stdout(&[&args[..], &["-p", PROMPT]].concat());
    assert_eq!(stdout(&[&args[..], &["--file", arg(&path)]].concat()), expect);
    for input in [&b"Once upon a time\r\n"[..], b"Once upon a time"] {
        assert_eq!(String::from_utf8_lossy(&run_with(&args, input).stdout), expect);
    }
    let output = run_with(&args, b"\xff");
    assert!(output.status.success() && output.stderr.is_empty(), "warnings are quiet, too");
}

/// An empty prompt begins with the BOS token: the demo model does not ask for one, but has one.
#[test]
fn nothing_can_be_continued() {
    let value = json(&["run", "-p", "", "-n", "2", "--greedy", "--json"]);
    assert_eq!(value["stats"]["prompt_tokens"], 1);
}

#[test]
fn chat_template_is_used() {
    let expect =
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    let options = ["-n", "4", "--greedy", "--json"];
    let raw = json(&[&["run", "-p", expect, "--special"], &options[..]].concat());
    let chat = json(&[&["run", "-p", "Hello", "--system", "Be brief."], &options[..]].concat());
    assert_eq!(chat["tokens"], raw["tokens"]);
    assert_eq!(chat["stats"]["prompt_tokens"], raw["stats"]["prompt_tokens"]);
    let plain = json(&[&["run", "-p", expect], &options[..]].concat());
    assert_ne!(
        plain["stats"]["prompt_tokens"], raw["stats"]["prompt_tokens"],
        "control tokens are text by default"
    );

    let thinking =
        json(&[&["run", "-p", "Hello", "--template-arg", "enable_thinking=false"], &options[..]].concat());
    let expect = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let raw = json(&[&["run", "-p", expect, "--special"], &options[..]].concat());
    assert_eq!(thinking["tokens"], raw["tokens"]);
}

/// The tiny model has no template.
#[test]
fn chatml_stands_in() {
    assert_run!(run(&["run", TINY, "--chat", "-p", "x", "-n", "0"]), @r#"
    exit code: 0
    --- stdout ---

    --- stderr ---
    warning: the file has no chat template (`tokenizer.chat_template`); using ChatML
    prompt: 9 tokens in [TIME], [SPEED]; text: 0 tokens in [TIME]
    "#);
}

#[test]
fn stop_texts_and_biases() {
    let options = ["--greedy", "--json", "-n", "12"];
    let value = json(&[&["run", "-p", PROMPT], &options[..]].concat());
    let text = value["text"].as_str().expect("text");
    let word = text.split(' ').nth(3).expect("four words");
    let stopped = json(&[&["run", "-p", PROMPT, "--stop", word], &options[..]].concat());
    assert_eq!(stopped["finish"], "stop_string");
    assert_eq!(stopped["text"].as_str(), text.split(word).next());

    let first = value["tokens"][0].to_string();
    let forbidden =
        json(&[&["run", "-p", PROMPT, "--logit-bias", &format!("{first}=-inf")], &options[..]].concat());
    assert_ne!(forbidden["tokens"][0], value["tokens"][0]);
    let forced = json(&[&["run", "-p", PROMPT, "--logit-bias", "42=+1000"], &options[..]].concat());
    assert_eq!(forced["tokens"], json!(vec![42; 12]));
}

/// Streaming changes nothing: the smallest budget that works gives the tokens of a model that is all in memory.
#[test]
fn a_budget_changes_speed_only() {
    let options = ["run", "-p", PROMPT, "-n", "12", "--greedy", "--json", "--context", "64"];
    let refused = run(&[&options[..], &["--memory", "1M"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).expect("UTF-8");
    let (_, hint) = error.split_once("hint: `--memory ").expect("a hint");
    let (smallest, _) = hint.split_once('`').expect("a size");
    let of = |memory: &str| json(&[&options[..], &["--memory", memory]].concat())["tokens"].take();
    assert_eq!(of(smallest), of("all"));
}

/// `head` has what it wants: that is no error.
#[test]
fn the_reader_may_go() {
    let mut child = esker(&["run", "-p", PROMPT, "--ignore-eos", "-q"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 8]).expect("text");
    drop(stdout);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(unix)]
#[test]
fn interrupted_after_the_current_token() {
    for extra in [&[][..], &["--json"]] {
        let mut child =
            esker(&[&["run", "-p", PROMPT, "--ignore-eos", "--show-special", "-v"], extra].concat())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("started");
        // Loaded, and listening: the detail about the prompt is the last line before.
        let mut stderr = child.stderr.take().expect("a pipe");
        let mut seen = String::new();
        while !seen.contains("seed ") {
            let mut byte = [0];
            stderr.read_exact(&mut byte).expect("a line about the prompt");
            seen.push(char::from(byte[0]));
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(killed.expect("kill exists").success());
        let output = child.wait_with_output().expect("ended");
        assert_eq!(output.status.code(), Some(130));
        let text = String::from_utf8(output.stdout).expect("whole characters");
        assert!(text.ends_with('\n'), "{text}");
        if !extra.is_empty() {
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(value["finish"], "cancelled");
        }
    }
}
