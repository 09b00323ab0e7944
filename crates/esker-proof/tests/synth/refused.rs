//! What is refused, and that nothing is left.

use crate::common::{geometry, go_on, names, options};
use esker_proof::synth::{Geometry, Options, Recipe, SynthError, plan_size, write};
use std::ops::ControlFlow;

#[track_caller]
fn refused(geometry: &Geometry, options: &Options, expected: &str) {
    assert_eq!(plan_size(geometry, options).unwrap_err().to_string(), expected);
}

#[test]
fn sizes_that_make_no_model() {
    let tiny = geometry("tiny-qwen4exp");
    let defaults = options(Recipe::Q8_0);
    let layers = |n| Options { layers: Some(n), ..defaults.clone() };
    refused(&tiny, &layers(5), "layers is 5, expected 2 to 4 (layer 1 has the n-gram embedding)");
    refused(&tiny, &layers(1), "layers is 1, expected 2 to 4 (layer 1 has the n-gram embedding)");
    refused(&geometry("qwen3-30b-a3b"), &layers(0), "layers is 0, expected 1 to 48");
    refused(
        &tiny,
        &Options { ngram_rows: 7, ..defaults.clone() },
        "n-gram rows is 7, expected 128 to 4294967167",
    );
    let mut other = tiny.clone();
    other.experts.n_expert = 3;
    refused(&other, &defaults, "experts used is 4, expected at most 3 experts");
    other.experts.n_expert = u64::MAX;
    refused(&other, &defaults, "experts is 18446744073709551615, expected 1 to 2^24");
    let mut other = tiny.clone();
    other.n_embd = 260;
    refused(&other, &defaults, "n-gram heads is 8, expected a divisor of the embedding width 260");
    let mut other = tiny;
    (other.n_embd, other.experts.n_ff, other.experts.n_expert) = (1 << 24, 1 << 24, 1 << 24);
    assert!(matches!(plan_size(&other, &defaults), Err(SynthError::Write(_))));
}

#[test]
fn full_file_systems_and_existing_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut huge = geometry("tiny-qwen3moe");
    (huge.n_embd, huge.experts.n_ff, huge.experts.n_expert) = (1 << 20, 1 << 20, 1 << 12);
    let error = write(&huge, &options(Recipe::Q8_0), &path, &mut go_on).unwrap_err();
    let SynthError::NoSpace { needed, available, .. } = &error else { panic!("{error}") };
    assert!(needed > available && *needed > 50 << 50, "{error}");

    std::fs::write(&path, "theirs").unwrap();
    let tiny = geometry("tiny-qwen3moe");
    let keep = options(Recipe::Q8_0);
    let error = write(&tiny, &keep, &path, &mut go_on).unwrap_err();
    assert_eq!(error.to_string(), format!("`{}` exists", path.display()));
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    write(&tiny, &Options { overwrite: true, ..keep.clone() }, &path, &mut go_on).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 1 << 20);

    let nowhere = dir.path().join("no").join("m.gguf");
    let error = write(&tiny, &keep, &nowhere, &mut go_on).unwrap_err();
    assert!(matches!(error, SynthError::Directory { .. }), "{error}");
}

#[test]
fn breaking_off_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    for stop_at in [1, 2, 20, 50] {
        let mut report = 0;
        let result = write(&geometry("tiny-qwen3moe"), &options(Recipe::Q8_0), &path, &mut |_| {
            report += 1;
            if report == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(result, Err(SynthError::Cancelled)), "report {stop_at}");
        assert!(names(dir.path()).is_empty());
    }
}
