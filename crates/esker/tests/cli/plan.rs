//! `esker plan`.

use crate::support::{TINY, assert_run, directory, esker, json, little_memory, run, shown};
use serde_json::Value;

/// `esker plan` for the demo model in little memory.
fn small<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["plan", "--context", "64", "--threads", "2", "--memory", little_memory()], args].concat()
}

fn measured(args: &[&str], cache: &std::path::Path) -> Value {
    let output = esker(args).env("XDG_CACHE_HOME", cache).output().expect("the program starts");
    assert!(output.status.success(), "{}", shown(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn in_a_budget() {
    assert_run!(run(&small(&["--no-measure"])), sizes, @r#"
    exit code: 0
    --- stdout ---
    Qwen4Exp-Tiny-MoE
      model          [DEMO], [SIZE], qwen4exp
      memory         budget of [SIZE] as asked for
      context        64 tokens
      a token needs [SIZE] of dense weights, [SIZE] of experts
      needs at least `--memory [SIZE]`

    Budget
         name                size    share  what
      p  process [SIZE] [SHARE]  program, metadata and vocabulary, as measured
      w  dense_weights [SIZE] [SHARE]  every token reads them
      s  sequence_state [SIZE] [SHARE]  keys, values, recurrent states for 64 tokens
      d  decode_scratch [SIZE] [SHARE]  activations of one token, sampler
      c  prompt_scratch [SIZE] [SHARE]  activations of 64 tokens, while a prompt runs
      t  table_rows [SIZE] [SHARE]  row cache and read buffers of embedding tables
      i  disk [SIZE] [SHARE]  buffer of unaligned reads
      x  expert_cache [SIZE] [SHARE]  tables of the cache itself
      #  expert_arena [SIZE] [SHARE]  slots of routed experts
      .  unused [SIZE] [SHARE]  less than one slot
         budget [SIZE] [SHARE]

      [BAR]

    Experts
      one slot  slots  experts  layers  in memory
     [SIZE] [SLOTS] 512 8 [SHARE]
    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    "#);
}

#[test]
fn all_in_memory() {
    assert_run!(run(&["plan", TINY, "--no-measure", "--threads", "2"]), sizes, @r#"
    exit code: 0
    --- stdout ---
    llama3
      model          llama3.gguf, [SIZE], llama
      memory         all of the model; [SIZE] are free
      context        4096 tokens
      a token needs [SIZE] of dense weights
      needs at least `--memory [SIZE]`

    All in memory
      name                size    share  what
      model_file [SIZE] [SHARE]  weights and metadata, mapped: the system may drop and read them again
      process [SIZE] [SHARE]  program, metadata and vocabulary, as measured
      sequence_state [SIZE] [SHARE]  keys, values, recurrent states for 4096 tokens
      decode_scratch [SIZE] [SHARE]  activations of one token, sampler
      prompt_scratch [SIZE] [SHARE]  activations of 512 tokens, while a prompt runs
      total [SIZE] [SHARE]
     [SIZE] are free
    --- stderr ---
    "#);
}

/// Each session has its states, its logits and its sampler; snapshots are a line of their own.
#[test]
fn sessions_and_snapshots() {
    let plan = |args: &[&str]| json(&small(&[&["--no-measure", "--json"], args].concat()))["plan"].take();
    let line = |plan: &Value, name: &str| {
        let lines = plan["lines"].as_array().expect("lines");
        lines.iter().find(|l| l["name"] == name).map_or(0, |l| l["bytes"].as_u64().expect("bytes"))
    };
    let (one, three) = (plan(&[]), plan(&["--sessions", "3", "--snapshots", "2M"]));
    assert_eq!((&one["sessions"], &three["sessions"]), (&1.into(), &3.into()));
    assert_eq!(line(&three, "sequence_state"), 3 * line(&one, "sequence_state"));
    assert!(line(&three, "decode_scratch") > 2 * line(&one, "decode_scratch"));
    assert!(line(&three, "prompt_scratch") > line(&one, "prompt_scratch"));
    assert_eq!((line(&one, "snapshots"), line(&three, "snapshots")), (0, 2 << 20));
    assert!(three["total"].as_u64() <= three["budget"].as_u64(), "{three}");
    let text = String::from_utf8(run(&small(&["--no-measure", "--sessions", "3"])).stdout).expect("UTF-8");
    assert!(text.contains("for 64 tokens in each of 3 sessions"), "{text}");
    let refused = run(&small(&["--no-measure", "--sessions", "2", "--route-bias", "0.5"]));
    let message = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(message.contains("`--sessions` is 2, expected 1 with cache-aware routing"), "{message}");
}

#[test]
fn errors_are_those_of_running() {
    for memory in ["1M", "1000T"] {
        let options = ["--threads", "2", "--context", "64", "--memory", memory];
        let plan = run(&[&["plan"], &options[..]].concat());
        let run = run(&[&["run", "-p", "x"], &options[..]].concat());
        assert_eq!((plan.status.code(), run.status.code()), (Some(1), Some(1)));
        assert!(plan.stdout.is_empty());
        // Sizes differ a little, since what the process takes is measured.
        let words = |output: &std::process::Output| {
            let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
            text.replace(|c: char| c.is_ascii_digit() || c == '.', "")
        };
        assert_eq!(words(&plan), words(&run));
    }
    assert_run!(run(&["plan", "nofile.gguf"]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: cannot open `nofile.gguf`
      caused by: No such file or directory (os error 2)

    hint: MODEL is the path of a GGUF file; without it, a small demo model is used
    "#);
}

/// What is planned is what runs.
#[test]
fn running_has_the_same_plan() {
    let mut plan = json(&small(&["--no-measure", "--json"]))["plan"].take();
    let run = [&["run", "-p", "x", "-n", "1", "--json"], &small(&[])[1..]].concat();
    let mut run = json(&run)["stats"]["plan"].take();
    for value in [&mut plan, &mut run] {
        assert!(value["total"].as_u64() <= value["budget"].as_u64(), "{value}");
        // What the process takes is measured, and what it leaves is the arena's.
        for name in ["smallest_budget", "total", "resident_share"] {
            value[name].take();
        }
        value["classes"][0]["n_slots"].take();
        let lines = value["lines"].as_array_mut().expect("lines");
        lines.retain(|line| !["process", "expert_arena"].contains(&line["name"].as_str().expect("a name")));
    }
    assert_eq!(plan, run);
}

#[test]
fn what_is_said_to_be_enough_is_enough() {
    let all = json(&["plan", "--no-measure", "--json", "--context", "64"]);
    assert!(
        all["plan"].is_null() && all["in_memory"]["total"].as_u64() > all["file_bytes"].as_u64(),
        "{all}"
    );
    let enough = all["enough"].as_str().expect("a size").to_owned();
    let small = json(&["plan", "--no-measure", "--json", "--context", "64", "--memory", &enough]);
    assert!(small["in_memory"].is_null() && small["plan"]["resident_share"].as_f64() < Some(1.0), "{small}");
    assert_eq!(small["traffic"]["dense_bytes"], all["traffic"]["dense_bytes"]);
}

#[test]
fn speed_follows_from_what_is_measured() {
    let cache = directory();
    let first = measured(&small(&["--json"]), cache.path());
    let n = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is a number: {first}"));
    let (speed, traffic, plan) = (&first["speed"], &first["traffic"], &first["plan"]);
    assert_eq!(traffic["dense_bytes"], plan["dense_bytes"]);
    assert_eq!(traffic["uniform_hit_share"], plan["resident_share"]);
    let experts = n(&traffic["experts_bytes"]);
    let memory = (n(&traffic["dense_bytes"]) + experts) / n(&speed["memory"]["bytes_per_s"]);
    let disk = (1.0 - n(&plan["resident_share"])) * experts / n(&speed["disk"]["bytes_per_s"]);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * a, "{a} and {b}: {first}");
    near(n(&speed["in_memory_tokens_per_s"]), 1.0 / memory);
    near(n(&speed["uniform_tokens_per_s"]), 1.0 / memory.max(disk));
    // An expert's largest part: 128 x 256 weights of IQ4_NL, 18 bytes for 32 of them.
    assert_eq!(speed["disk"]["probe"]["block_bytes"], 128 * 256 / 32 * 18);
    assert_eq!(speed["disk"]["kept"], false);
    assert_eq!(speed["memory"]["threads"], 2);

    let second = measured(&small(&["--json"]), cache.path());
    assert_eq!(second["speed"]["disk"]["kept"], true);
    assert_eq!(second["speed"]["disk"]["probe"], speed["disk"]["probe"]);

    let dense = measured(&["plan", TINY, "--json"], cache.path());
    assert!(dense["speed"]["disk"].is_null(), "a dense model reads nothing");
    assert_eq!(dense["speed"]["uniform_tokens_per_s"], dense["speed"]["in_memory_tokens_per_s"]);
}
