//! What was counted: `--stats`, `/stats`, `run --json`, and their description.

use crate::support::{TINY, assert_run, json, little_memory, run, run_with};
use serde_json::Value;
use std::path::Path;

/// `esker run` of the demo model in little memory, so that experts are read.
fn streamed<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let options =
        ["run", "-p", "Once upon a time", "--greedy", "--context", "64", "--threads", "2", "--memory"];
    [&options[..], &[little_memory()], args].concat()
}

fn stats() -> Value {
    json(&streamed(&["-n", "8", "--json"]))["stats"].take()
}

#[test]
fn counts_agree() {
    let stats = stats();
    let n = |name: &str| stats[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", stats[name]));
    let sum = |name: &str| {
        let layers = stats["layers"].as_array().expect("layers");
        layers.iter().map(|layer| layer[name].as_f64().expect("a count")).sum::<f64>()
    };
    for name in ["expert_hits", "expert_read_ahead_hits", "expert_misses"] {
        assert_eq!(sum(name), n(name), "{name}");
        assert!(n(&format!("decode_{name}")) <= n(name), "{name}");
    }
    assert!(n("expert_misses") > 0.0 && n("expert_bytes_read") > 0.0, "{stats}");
    let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * a.abs(), "{a} and {b}");
    let in_time = n("expert_hits") + n("expert_read_ahead_hits");
    near(n("expert_hit_rate"), in_time / (in_time + n("expert_misses")));
    let decode = n("decode_expert_hits") + n("decode_expert_read_ahead_hits");
    near(n("decode_expert_hit_rate"), decode / (decode + n("decode_expert_misses")));
    assert_eq!([n("prefill_steps"), n("decode_steps")], [1.0, 7.0]);
    let tokens = n("prompt_tokens") + n("decode_steps");
    near(n("bytes_read_per_token"), (n("expert_bytes_read") + n("row_bytes_read")) / tokens);
    near(n("wait_share"), n("wait_s") / (n("prefill_s") + n("decode_s")));
    let plan = &stats["plan"];
    let budget = plan["budget"].as_u64().expect("bytes");
    assert_eq!(format!("{}M", budget >> 20), little_memory());
    let lines = plan["lines"].as_array().expect("lines");
    let total: u64 = lines.iter().map(|line| line["bytes"].as_u64().expect("bytes")).sum();
    assert!(plan["total"] == total && total <= budget, "{plan}");
}

#[test]
fn nothing_is_counted_where_nothing_is_read() {
    let stats = &json(&["run", TINY, "-p", "a", "-n", "2", "--json"])["stats"];
    for name in ["expert_hit_rate", "decode_expert_hit_rate", "bytes_read_per_token", "wait_share", "plan"] {
        assert!(stats[name].is_null(), "{name}");
    }
    assert_eq!(stats["expert_misses"], 0);
}

#[test]
fn tables() {
    assert_run!(run(&streamed(&["-n", "2", "--stats", "-v", "--io", "pool", "--no-direct-io", "--reads-max", "8"])), numbers, @r#"
    exit code: [N]
    --- stdout ---
     there was
    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    loaded Qwen4Exp-Tiny-MoE (qwen4exp) in [TIME]: [N] threads, context of [N] tokens
    memory: budget of [N] as asked for; disk: [N] positioned-read workers, through the page cache (as asked), [N] transfers at a time as asked for
    memory plan: [N] of [N], room for [N] of the experts
     [N]  program, metadata and vocabulary, as measured
     [N]  every token reads them
     [N]  keys, values, recurrent states for [N] tokens
     [N]  activations of one token, sampler
     [N]  activations of [N] tokens, while a prompt runs
     [N]  row cache and read buffers of embedding tables
     [N]  buffer of unaligned reads
     [N]  tables of the cache itself
     [N]  slots of routed experts
    prompt of [N] tokens, seed [N]
    prompt: [N] tokens in [TIME], [SPEED]; text: [N] tokens in [TIME], [SPEED]
    stopped at `--max-tokens`
    statistics
      experts looked up [N], [N] in time: [N] hits, [N] read-ahead hits, [N] misses
      while decoding [N], [N] in time: [N] hits, [N] read-ahead hits, [N] misses
      read [N] of experts in [N] reads, [N] of rows; [N] per token
      waited for reads    [TIME], [N] of the time
      reads in flight     at most [N]
      evicted [N] experts
      read ahead [N] of the predicted experts were wanted, [N] of the wanted predicted; [N] for nothing
      memory planned [N] of [N], with [N] of the experts
      memory measured [N], at most [N]
      layer  lookups  hits  read-ahead hits  misses  in time
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
     [N] [N] [N] [N] [N] [N]
    "#);
    assert_run!(run_with(&["chat", TINY, "--greedy", "-n", "2", "--stats"], b"x\n/stats\ny\n"), numbers, @r#"
    exit code: [N]
    --- stdout ---
    allic
     ml
    --- stderr ---
    warning: the file has no chat template (`tokenizer.chat_template`); using ChatML
    note: stopped at `--max-tokens`, the answer is not complete
    prompt: [N] tokens in [TIME], [SPEED]; text: [N] tokens in [TIME], [SPEED]; stopped at `--max-tokens`
    context: [N] of [N] tokens
    memory: all of the model; [N] are free
    statistics
      model               all in memory: nothing was read on demand
      memory measured [N], at most [N]
    note: stopped at `--max-tokens`, the answer is not complete
    statistics
      model               all in memory: nothing was read on demand
      memory measured [N], at most [N]
    "#);
    let quiet = run(&["run", TINY, "-p", "x", "-n", "1", "--stats", "-q"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}

/// Every name is described, in its place, and nothing else is.
#[test]
fn the_description_is_complete() {
    let mut names = Vec::new();
    collect(&stats(), "", &mut names);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stats.md");
    let text = std::fs::read_to_string(path).expect("the description");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<(&str, &str)> = rows
        .map(|row| {
            let (name, rest) = row.split_once("` | ").expect("a name");
            (name, rest.split_once(" | ").expect("a unit").0)
        })
        .collect();
    let described: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(described, names);
    for (name, unit) in rows {
        let last = name.rsplit(['.', '_']).next().unwrap_or_default();
        let expect = match last {
            _ if name.ends_with("_per_s") => "1/s",
            "bytes" | "budget" => "bytes",
            "s" => "s",
            "tokens" => "tokens",
            "hits" | "misses" => "lookups",
            "rate" | "share" => "share",
            _ => unit,
        };
        assert_eq!(unit, expect, "{name}");
    }
}

/// Paths of all leaves: `layers[].layer`.
fn collect(value: &Value, path: &str, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                collect(value, &format!("{path}{dot}{name}"), names);
            }
        }
        Value::Array(items) => collect(&items[0], &format!("{path}[]"), names),
        _ => names.push(path.to_owned()),
    }
}
