//! Logits of tiny random-weight models against those of other software, for every architecture.
//!
//! F32 files: transformers in float32 (`logits`). Files with quantized experts: llama.cpp, which rounds activations as
//! we do (`logits`), and transformers on the decoded weights (`logits_dequant`).

use esker_engine::{Engine, EngineOptions, KvType, Output};
use esker_testkit::{Array, npz};
use std::path::{Path, PathBuf};

fn golden(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits").join(format!("{name}.{extension}"))
}

fn engine(path: &Path, threads: usize) -> Engine {
    let options = EngineOptions { threads: Some(threads), kv_type: KvType::F32, ..EngineOptions::default() };
    Engine::load(path, options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Logits of all tokens, fed in pieces of `chunk`.
fn logits(engine: &mut Engine, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut session = engine.new_session();
    let mut all = Vec::new();
    for piece in tokens.chunks(chunk) {
        let rows = engine.forward(&mut session, piece, Output::All).expect("a pass over golden tokens");
        all.extend_from_slice(rows.expect("all rows were asked for").data());
    }
    all
}

struct Difference {
    max: f32,
    median: f32,
    top1: usize,
    n: usize,
}

/// Per position: the largest difference over the vocabulary, and whether the largest logit is the same.
fn compare(actual: &[f32], expected: &Array<f32>) -> Difference {
    let n = expected.shape[0];
    let n_vocab = expected.shape[1];
    assert_eq!(actual.len(), expected.data.len());
    let mut per_position = Vec::new();
    let mut top1 = 0;
    for t in 0..n {
        let (a, e) = (&actual[t * n_vocab..][..n_vocab], expected.row(t));
        // A NaN must fail, so it counts as an infinite difference.
        let d =
            a.iter().zip(e).map(|(a, e)| (a - e).abs()).map(|d| if d.is_nan() { f32::INFINITY } else { d });
        per_position.push(d.fold(0.0, f32::max));
        top1 += usize::from(esker_engine::argmax(a) == esker_engine::argmax(e));
    }
    per_position.sort_by(f32::total_cmp);
    Difference { max: per_position[n - 1], median: per_position[n / 2], top1, n }
}

fn check(name: &str, array: &str, max: f32, median: f32, top1_misses: usize) {
    let tokens: Vec<u32> =
        npz::<i32>(&golden(name, "npz"), "tokens").expect("tokens").data.iter().map(|&t| t as u32).collect();
    let expected = npz::<f32>(&golden(name, "npz"), array).expect("logits");
    let mut engine = engine(&golden(name, "gguf"), 2);
    let one_shot = logits(&mut engine, &tokens, tokens.len());
    let d = compare(&one_shot, &expected);
    println!("{name:24} {array:16} max {:.1e} median {:.1e} top-1 {}/{}", d.max, d.median, d.top1, d.n);
    assert!(d.max <= max, "{name} {array}: max difference {} > {max}", d.max);
    assert!(d.median <= median, "{name} {array}: median difference {} > {median}", d.median);
    assert!(d.n - d.top1 <= top1_misses, "{name} {array}: top-1 equal at {} of {}", d.top1, d.n);
}

#[test]
fn f32_models_equal_transformers() {
    for name in [
        "llama",
        "llama3",
        "mixtral",
        "olmoe",
        "qwen3moe",
        "qwen3next",
        "qwen35moe",
        "qwen4exp",
        "qwen4exp-dense",
    ] {
        // float32 noise of the reference itself is below 1e-4.
        check(name, "logits", 2e-4, 2e-4, 0);
    }
}

/// The same model with block selection switched off differs by 0.39: `qwen4exp` above would notice.
#[test]
fn block_selection_is_active_in_the_fixture() {
    let path = golden("qwen4exp", "npz");
    let dense = npz::<f32>(&path, "logits_dense").expect("logits_dense");
    let sparse = npz::<f32>(&path, "logits").expect("logits");
    let d = compare(&sparse.data, &dense);
    assert!(d.max > 0.1, "the fixture tells sparse from dense attention");
}

#[test]
fn quantized_experts_equal_llama_cpp() {
    for (name, max, median) in [
        ("qwen3moe-q8_0", 3e-4, 2e-5),
        ("qwen3moe-q4_0", 2e-5, 5e-6),
        ("qwen3moe-iq4_nl", 2e-5, 5e-6),
        // llama.cpp's own results, batch against token by token, differ by 2.2e-3 here.
        ("qwen3moe-q2_0", 3e-3, 5e-6),
        ("qwen4exp-dense-q8_0", 2e-5, 5e-6),
        ("qwen4exp-dense-q4_0", 2e-5, 5e-6),
        ("qwen4exp-dense-iq4_nl", 2e-5, 5e-6),
        ("qwen4exp-dense-q2_0", 3e-5, 5e-6),
        // Almost every tensor has another type here; llama.cpp also rounds activations to 16 bits against F16 and BF16
        // weights, which we do not.
        ("qwen3moe256-kmix", 0.2, 0.15),
    ] {
        check(name, "logits", max, median, 0);
        // Against arithmetic that does not round activations: rounding can flip a chosen expert, and at such a position a
        // logit moves by about 0.1. The bounds are the distance between the two references.
        check(name, "logits_dequant", 0.2, 0.15, 1);
    }
}

/// The numerics contract: the bits do not depend on how the tokens are cut or how many threads there are.
#[test]
fn logits_do_not_depend_on_chunks_or_threads() {
    for name in [
        "mixtral",
        "llama3",
        "olmoe",
        "qwen3moe256-kmix",
        "qwen3moe-q2_0",
        "qwen3next",
        "qwen35moe",
        "qwen4exp",
    ] {
        let tokens: Vec<u32> = npz::<i32>(&golden(name, "npz"), "tokens")
            .expect("tokens")
            .data
            .iter()
            .map(|&t| t as u32)
            .collect();
        let bits = |threads, chunk| -> Vec<u32> {
            let logits = logits(&mut engine(&golden(name, "gguf"), threads), &tokens, chunk);
            logits.iter().map(|l| l.to_bits()).collect()
        };
        let one_shot = bits(1, tokens.len());
        assert!(one_shot.iter().all(|b| f32::from_bits(*b).is_finite()), "{name}");
        for threads in [1, 2, 3] {
            for chunk in [1, 7, 64, 512] {
                let differing = bits(threads, chunk).iter().zip(&one_shot).filter(|(a, b)| a != b).count();
                assert_eq!(differing, 0, "{name}: {threads} threads, chunks of {chunk}");
            }
        }
    }
}
