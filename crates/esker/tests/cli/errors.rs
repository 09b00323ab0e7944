//! Errors: message, cause, hint, exit code, and nothing on standard output.

use crate::support::{TINY, arg, assert_run, directory, esker, run, run_with, unknown_architecture};
use std::fs;

#[test]
fn missing_file() {
    assert_run!(run(&["run", "nofile.gguf", "-p", "x"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: cannot open `nofile.gguf`
      caused by: No such file or directory (os error 2)

    hint: MODEL is the path of a GGUF file; without it, a small demo model is used
    "#);
}

#[test]
fn missing_prompt_file() {
    assert_run!(run(&["run", TINY, "--file", "nofile.txt"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: cannot read `nofile.txt`
      caused by: No such file or directory (os error 2)
    "#);
}

#[test]
fn not_a_gguf() {
    let directory = directory();
    let path = directory.path().join("page.gguf");
    fs::write(&path, "<!DOCTYPE html><html></html>").expect("written");
    assert_run!(run(&["inspect", arg(&path)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/page.gguf` cannot be used
      caused by: starts with the bytes `<!DO`, expected `GGUF`

    hint: this looks like a web page saved in place of the file
    "#);
}

#[test]
fn truncated() {
    let directory = directory();
    let path = directory.path().join("half.gguf");
    let whole =
        fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/llama3.gguf")).expect("the tiny model");
    fs::write(&path, &whole[..400_000]).expect("written");
    assert_run!(run(&["run", arg(&path), "-p", "x"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/half.gguf` cannot be used
      caused by: tensor `blk.1.ffn_gate.weight` takes 32768 bytes from byte 374496, but the file ends at byte 400000: 7264 bytes are missing

    hint: the file is not complete: download or copy it again
    "#);
}

#[test]
fn directory_in_place_of_a_file() {
    assert_run!(run(&["inspect", "."]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `.` is not a regular file

    hint: it holds a model: `./llama3.gguf`
    "#);
}

#[test]
fn unknown_architecture_cannot_run() {
    let directory = directory();
    assert_run!(run(&["run", arg(&unknown_architecture(directory.path())), "-p", "x"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: architecture `nobody�[31m` is not supported (supported: llama, olmoe, qwen3moe, qwen3next, qwen35moe, qwen4exp)
      file: `[DIR]/nobody.gguf`

    hint: `esker inspect [DIR]/nobody.gguf` shows what the file holds
    "#);
}

#[test]
fn demo_model_of_the_environment_comes_first() {
    let directory = directory();
    fs::write(directory.path().join("esker-moe-64m-small.gguf"), "").expect("written");
    let output = esker(&["run", "-p", "x"]).env("ESKER_MODELS", directory.path()).output().expect("started");
    assert_run!(output, @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    note: using the demo model `[DIR]/esker-moe-64m-small.gguf`: for trying and testing, it knows nothing
    error: `[DIR]/esker-moe-64m-small.gguf` cannot be used
      caused by: the start of the file at byte 0 needs 4 bytes, but the file has only 0 more

    hint: the file is not complete: download or copy it again
    "#);
}

#[test]
fn token_ids() {
    assert_run!(run(&["detokenize", TINY, "1", "2", "x"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: line 1: `x` is not a token id
    "#);
    assert_run!(run(&["detokenize", TINY, "1", "512"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: token 512 at position 1 is not in the vocabulary of 512 tokens
    "#);
    assert_run!(run_with(&["logits", TINY, "--tokens", "-"], b"1\n2 # two\n-3\n"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: line 3: `-3` is not a token id
      in: standard input
    "#);
    assert_run!(run_with(&["logits", TINY, "--tokens", "-"], b"[1, 700]"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: token 700 at position 1 is not in the vocabulary of 512 tokens
      in: standard input
    "#);
    assert_run!(run_with(&["logits", TINY, "--tokens", "-"], b"# none\n"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: there are no tokens
      in: standard input
    "#);
}

#[test]
fn usage() {
    assert_run!(run(&["run", TINY, "-p", "x", "--top-p", "1.5"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `--top-p` is 1.5, expected more than 0, at most 1
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--temp", "-1"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `--temp` is -1, expected 0 or more
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--logit-bias", "7"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value '7' for '--logit-bias <ID=X>': expected a token id, `=` and a number, such as `198=-1.5`

    For more information, try '--help'.
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--logit-bias", "512=1"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `--logit-bias` is 1 for token 512, expected a number, for a token of the vocabulary
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--greedy", "--temp", "1"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: the argument '--greedy' cannot be used with '--temp <T>'

    Usage: esker run --prompt <TEXT> --greedy <MODEL>

    For more information, try '--help'.
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--threads", "0"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value '0' for '--threads <N>': 0 is not in 1..=1024

    For more information, try '--help'.
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--kv-type", "q8"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value 'q8' for '--kv-type <TYPE>'
      [possible values: f16, f32]

    For more information, try '--help'.
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--route-bias", "-1"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value '-1' for '--route-bias <X>': expected a number of 0 to 10

    For more information, try '--help'.
    "#);
    assert_run!(run(&["run", TINY, "-p", "x", "--memory", "6X"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value '6X' for '--memory <SIZE>': expected `auto`, `all` or a size such as `6G`, `1.5GiB` or `800M`

    For more information, try '--help'.
    "#);
    assert_run!(run(&["runn"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: unrecognized subcommand 'runn'

      tip: a similar subcommand exists: 'run'

    Usage: esker [OPTIONS] <COMMAND>

    For more information, try '--help'.
    "#);
}

#[test]
fn context_too_small() {
    assert_run!(run(&["run", TINY, "-p", "Hello, world", "-c", "4"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: a prompt of 9 tokens leaves no room in a context of 4

    hint: `--context N` makes room for more tokens
    "#);
    assert_run!(run_with(&["logits", TINY, "--tokens", "-", "-c", "2"], b"1 2 3"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: 3 tokens do not fit a context of 2

    hint: leave out `--context`: it becomes as long as the tokens
    "#);
}

#[test]
fn template_that_does_not_compile() {
    let directory = directory();
    let path = directory.path().join("template.jinja");
    fs::write(&path, "{% if %}").expect("written");
    assert_run!(run(&["run", TINY, "-p", "x", "--chat-template", arg(&path)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: chat template, line 1: syntax error: unexpected end of block
      file: `[DIR]/template.jinja`
    "#);
}

#[test]
fn output_that_cannot_be_written() {
    assert_run!(run_with(&["logits", TINY, "--tokens", "-", "--out", "nowhere/x.npy", "-q"], b"1"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: cannot write `nowhere/x.npy`
      caused by: No such file or directory (os error 2)
    "#);
}

#[test]
fn colours_only_where_they_are_wanted() {
    let error = |args: &[&str], no_color: bool| {
        let mut command = esker(args);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        String::from_utf8(command.output().expect("started").stderr).expect("UTF-8")
    };
    for args in [&["inspect", "nofile"][..], &["inspect", "--nonsense"]] {
        let with = |choice: &'static str| [args, &["--color", choice][..]].concat();
        assert!(!error(args, false).contains('\u{1b}'), "a pipe is not a terminal");
        assert!(error(&with("always"), false).starts_with("\u{1b}[1m\u{1b}[31merror"));
        assert!(
            error(&with("always"), true).contains('\u{1b}'),
            "an option is stronger than the environment"
        );
        assert!(!error(&with("never"), false).contains('\u{1b}'));
    }
}
