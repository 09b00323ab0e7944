//! `esker logits`.

use crate::support::{TINY, arg, directory, run_with, shown};
use std::fs;
use std::process::Output;

const TOKENS: &[u8] = b"[1, 2, 3, 300, 5, 6, 7, 511, 0, 10, 11]";
const N: usize = 11;

fn logits(args: &[&str]) -> Output {
    let output = run_with(&[&["logits", TINY, "--tokens", "-"], args].concat(), TOKENS);
    assert!(output.status.success(), "{}", shown(&output));
    output
}

fn array(bytes: &[u8]) -> (Vec<u64>, Vec<f32>) {
    let npy = npyz::NpyFile::new(bytes).expect("a header");
    (npy.shape().to_vec(), npy.into_vec().expect("f32"))
}

#[test]
fn shape_and_values_do_not_depend_on_how_tokens_are_fed() {
    let whole = logits(&[]).stdout;
    let (shape, values) = array(&whole);
    assert_eq!(shape, [N as u64, 512]);
    assert!(values.iter().all(|v| v.is_finite()));
    for args in [&["--step"][..], &["--chunk", "3"], &["--threads", "1"], &["--context", "64"]] {
        assert!(logits(args).stdout == whole, "{args:?}");
    }
    assert!(logits(&["--kv-type", "f16"]).stdout != whole, "f16 rounds keys and values");
}

#[test]
fn file_and_summary() {
    let directory = directory();
    let path = directory.path().join("logits.npy");
    let output = logits(&["--out", arg(&path), "--json", "--quiet"]);
    assert_eq!(fs::read(&path).expect("written"), logits(&[]).stdout);
    assert!(output.stderr.is_empty(), "{}", shown(&output));
    let (_, values) = array(&fs::read(&path).expect("written"));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["shape"], serde_json::json!([N, 512]));
    assert_eq!(summary["kv_type"], "f32");

    let tokens: Vec<usize> = serde_json::from_slice(TOKENS).expect("a list");
    let rows: Vec<&[f32]> = values.chunks(512).collect();
    let argmax = |row: &[f32]| (0..512).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
    let expect: Vec<usize> = rows.iter().map(|row| argmax(row).expect("512 logits")).collect();
    assert_eq!(summary["argmax"], serde_json::json!(expect));
    let nll = |row: &[f32], token: usize| {
        row.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln() - f64::from(row[token])
    };
    let mean = (1..N).map(|t| nll(rows[t - 1], tokens[t])).sum::<f64>() / (N - 1) as f64;
    let found = summary["nll_mean_nats"].as_f64().expect("a number");
    assert!((found - mean).abs() < 1e-9, "{found} and {mean}");
}
