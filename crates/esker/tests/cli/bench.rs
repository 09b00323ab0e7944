//! `esker bench`.

use crate::support::{arg, assert_run, directory, esker, interrupt, json, names, run};
use std::fs;

#[test]
fn lists() {
    assert_run!(run(&["bench", "synth", "--list", "--quant", "iq3"]), @r#"
    exit code: 0
    --- stdout ---
    Geometries, with `--quant iq3`
      name                architecture  layers  experts  used      file  one expert  a token's experts     dense
      qwen3-30b-a3b       qwen3moe          48      128     8  13.8 GiB    2.13 MiB            819 MiB   847 MiB
      qwen3-next-80b      qwen3next         48      512    10  35.8 GiB    1.42 MiB            682 MiB  1.47 GiB
      qwen3.8-flash-next  qwen4exp          48      512    10  56.8 GiB    2.22 MiB           1.04 GiB  2.99 GiB
      tiny-qwen3moe       qwen3moe           4        8     2  3.57 MiB    91.0 KiB            728 KiB   659 KiB
      tiny-qwen3next      qwen3next          4       16     4  2.51 MiB    22.8 KiB            364 KiB  1.01 MiB
      tiny-qwen4exp       qwen4exp           4       16     4  38.6 MiB    34.1 KiB            546 KiB  2.03 MiB

    Recipes
      q4_k  Experts Q4_K, down projections Q6_K; dense Q4_K, values and output Q6_K
      q2_0  Experts Q2_0; everything else Q8_0
      iq3   Experts IQ3_S, down projections IQ4_NL; dense Q5_K, embedding and tables IQ4_XS
      q8_0  Everything Q8_0
      f16   Everything F16
    --- stderr ---
    "#);
    let list = json(&["bench", "synth", "--list", "--json"]);
    let geometries = list["geometries"].as_array().expect("a list");
    assert_eq!(geometries[0]["geometry"], "qwen3-30b-a3b");
    assert_eq!(list["recipes"].as_array().expect("a list").len(), 5);
}

#[test]
fn a_model_that_runs() {
    let directory = directory();
    let path = directory.path().join("synth.gguf");
    let synth = ["bench", "synth", "tiny-qwen3next", arg(&path)];
    assert_run!(run(&synth), @r#"
    exit code: 0
    --- stdout ---
    [DIR]/synth.gguf: random weights, geometry of tiny-qwen3next
      parameters    4.69 M in 73 tensors, 4 layers
      size          2.81 MiB, 5.01 bits per weight
      experts       64 of 29.0 KiB each, 1.81 MiB
      tables        72.0 KiB
      dense weights 935 KiB
      a token needs all dense weights, 464 KiB of experts
      types         F32 102 KiB, Q5_0 704 KiB, Q8_0 68.0 KiB, Q4_K 1.81 MiB, Q6_K 131 KiB
    --- stderr ---
    written in [TIME], [SPEED]
    note: routing is nearly uniform: cache hit rates are those of the worst case
    "#);
    let first = fs::read(&path).expect("written");
    assert_run!(run(&synth), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/synth.gguf` exists

    hint: `--force` puts the result in its place
    "#);

    let report = json(&[&synth[..], &["--force", "--seed", "1", "--json", "-q"]].concat());
    assert_eq!(report["file_bytes"], first.len());
    assert!(fs::read(&path).expect("written") != first, "another seed gives other weights");
    let report = json(&[&synth[..], &["--force", "--layers", "2", "--quant", "q2_0", "--json"]].concat());
    assert_eq!((&report["n_layers"], &report["quant"]), (&2.into(), &"q2_0".into()));
    assert_eq!(report["file_bytes"], fs::metadata(&path).expect("written").len());
    assert_eq!(names(directory.path()), ["synth.gguf"]);

    let run = json(&["run", arg(&path), "-p", "x", "-n", "4", "--ignore-eos", "--temp", "1", "--json"]);
    assert_eq!(run["stats"]["generated_tokens"], 4);
    let plan = json(&["plan", arg(&path), "--no-measure", "--json"]);
    assert_eq!(plan["traffic"]["experts_bytes"], report["experts_per_token_bytes"]);
}

#[test]
fn refused() {
    let directory = directory();
    let path = directory.path().join("synth.gguf");
    let synth = |geometry, args: &[&str]| run(&[&["bench", "synth", geometry, arg(&path)], args].concat());
    assert_run!(synth("tiny-qwen3moe", &["--layers", "9"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `--layers` is 9, expected 1 to 4
    "#);
    assert_run!(synth("tiny-qwen3moe", &["--ngram-rows", "1000"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `--ngram-rows` was given, but `tiny-qwen3moe` has no n-gram table
    "#);
    assert_run!(synth("tiny-qwen4exp", &["--ngram-rows", "7"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `--ngram-rows` is 7, expected 128 to 4294967167
    "#);
    assert_run!(synth("qwen", &[]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value 'qwen' for '[GEOMETRY]'
      [possible values: qwen3-30b-a3b, qwen3-next-80b, qwen3.8-flash-next, tiny-qwen3moe, tiny-qwen3next, tiny-qwen4exp]

      tip: a similar value exists: 'qwen3-30b-a3b'

    For more information, try '--help'.
    "#);
    assert_run!(run(&["bench", "synth", "tiny-qwen3moe"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: the following required arguments were not provided:
      <OUT>

    Usage: esker bench synth <GEOMETRY> <OUT>

    For more information, try '--help'.
    "#);
    assert_run!(synth("tiny-qwen3moe", &["--list"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: the argument '[GEOMETRY]' cannot be used with '--list'

    Usage: esker bench synth <GEOMETRY> <OUT>

    For more information, try '--help'.
    "#);
    assert!(names(directory.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn interrupted_without_a_trace() {
    let directory = directory();
    let path = directory.path().join("synth.gguf");
    // Seconds of work, of which little is done.
    let synth = ["bench", "synth", "qwen3-30b-a3b", arg(&path), "--layers", "4", "--quant", "q8_0", "-v"];
    let output = interrupt(esker(&synth));
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
    assert!(names(directory.path()).is_empty());
}
