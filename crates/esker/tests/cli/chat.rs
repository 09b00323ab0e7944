//! `esker chat` with a pipe for a user.

use crate::support::{arg, assert_run, directory, run_with, shown};
use std::fs;
use std::process::Output;

fn chat(args: &[&str], input: &str) -> Output {
    run_with(&[&["chat", "--greedy", "-n", "8"], args].concat(), input.as_bytes())
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", shown(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn turns_reuse_what_the_model_has_seen() {
    assert_run!(chat(&[], "Hello\n/stats\nAnd you?\n/stats\n"), sizes, @r#"
    exit code: 0
    --- stdout ---
    <tool_call>
    {"name": "convert_
    Sakura, ruthless,
    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    note: stopped at `--max-tokens`, the answer is not complete
    prompt: 9 tokens in [TIME], [SPEED]; text: 8 tokens in [TIME], [SPEED]; stopped at `--max-tokens`
    context: 16 of 4096 tokens
    memory: all of the model; [SIZE] are free
    statistics
      model               all in memory: nothing was read on demand
      memory measured [SIZE], at most [SIZE]
    note: stopped at `--max-tokens`, the answer is not complete
    prompt: 30 tokens (16 reused) in [TIME], [SPEED]; text: 8 tokens in [TIME], [SPEED]; stopped at `--max-tokens`
    context: 37 of 4096 tokens
    memory: all of the model; [SIZE] are free
    statistics
      model               all in memory: nothing was read on demand
      memory measured [SIZE], at most [SIZE]
    "#);
}

#[test]
fn commands() {
    assert_run!(chat(&["--seed", "7"], "/help\n/set\n/set top-k 3\n/clear\n/exit\nnever read\n"), @r#"
    exit code: 0
    --- stdout ---

    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
      /help              show this list
      /clear             forget the conversation, but not the system message
      /system [TEXT]     set the system message, or remove it, and forget the conversation
      /save FILE         write the conversation to a new JSON file
      /load FILE         go on with a conversation that was saved
      /set [NAME VALUE]  change a setting, or show them all
      /regenerate        drop the last answer and draw another
      /undo              drop the last message and its answer
      /stats             show the speed of the last answer, and what was counted since the start
      /exit              leave; /quit and Ctrl-D as well
    Enter sends; Alt-Enter, or Enter after a backslash, begins a new line; """ begins and ends a block
    Ctrl-C ends an answer; Ctrl-D leaves
      temp               0
      top-k              40
      top-p              0.95
      min-p              0.05
      typical-p          1
      repeat-penalty     1
      presence-penalty   0
      frequency-penalty  0
      penalty-last-n     64
      seed               7
      max-tokens         8
    "#);
    assert_run!(chat(&[], "/set top-p 2\nnever read\n"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    error: `top-p` is 2, expected more than 0, at most 1
    "#);
    assert_run!(chat(&[], "/regenerate\n"), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    error: there is no answer yet
    "#);
}

/// The same conversation, said in other ways.
#[test]
fn messages_of_several_lines() {
    let expect = text(&chat(&["-q"], "one\\\ntwo\n"));
    assert_eq!(text(&chat(&["-q"], "\"\"\"\none\ntwo\n\"\"\"\n")), expect);
    assert_ne!(text(&chat(&["-q"], "one\ntwo\n")), expect);
    let slash = text(&chat(&["-q"], "\"\"\"/etc\"\"\"\n"));
    assert_eq!(text(&chat(&["-q"], "//etc\n")), slash);
}

#[test]
fn system_messages() {
    let expect = text(&chat(&["-q", "--system", "You sell fish."], "Hello\n"));
    assert_eq!(text(&chat(&["-q"], "/system You sell fish.\nHello\n")), expect);
    let without = text(&chat(&["-q"], "Hello\n"));
    assert_eq!(text(&chat(&["-q", "--system", "You sell fish."], "/system\nHello\n")), without);
}

#[test]
fn saved_and_loaded() {
    let directory = directory();
    let path = directory.path().join("chat.json");
    let path = arg(&path);
    let both = text(&chat(&["-q"], "Hello\nAnd you?\n"));
    let first = text(&chat(&["-q"], &format!("Hello\n/save {path}\n")));
    let saved = fs::read_to_string(path).expect("saved");
    let answer = first.trim_end_matches('\n');
    let expect = serde_json::json!({ "messages": [
        { "role": "user", "content": "Hello" },
        { "role": "assistant", "content": answer },
    ] });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&saved).expect("JSON"), expect);
    let second = text(&chat(&["-q", "--load", path], "And you?\n"));
    assert_eq!(format!("{first}{second}"), both);

    assert_run!(chat(&["-q"], &format!("/save {path}\n")), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/chat.json` exists, and is not this conversation's file
    "#);
    fs::write(path, "{}").expect("written");
    assert_run!(chat(&["-q", "--load", path], ""), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/chat.json` is not a saved conversation
      caused by: missing field `messages` at line 1 column 2
    "#);
}

#[test]
fn another_answer_has_another_seed() {
    let args = ["chat", "-q", "--temp", "1.5", "--top-p", "1", "--min-p", "0", "--seed", "1", "-n", "12"];
    let run = |input: &str| text(&run_with(&args, input.as_bytes()));
    let answers = run("Hello\n/regenerate\n");
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(run("Hello\n/regenerate\n"), answers);
    assert!(lines.len() >= 2 && lines[0] != lines[lines.len() - 1], "{answers}");
    assert_eq!(run("Hello\n/undo\n/set seed 1\nHello\n").lines().next(), Some(lines[0]));
}
