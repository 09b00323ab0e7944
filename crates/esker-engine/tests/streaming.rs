//! Streaming changes nothing: the bits of the logits are those of a model that is all in memory, for any budget, policy,
//! backend and number of threads.

use esker_engine::{Backend, Engine, EngineError, EngineOptions, KvType, Memory, Output, PolicyConfig};
use esker_testkit::npz;
use std::path::{Path, PathBuf};

fn golden(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits").join(format!("{name}.{extension}"))
}

fn tokens(name: &str) -> Vec<u32> {
    npz::<i32>(&golden(name, "npz"), "tokens").expect("tokens").data.iter().map(|&t| t as u32).collect()
}

fn base() -> EngineOptions {
    EngineOptions { threads: Some(2), context: Some(256), kv_type: KvType::F32, ..EngineOptions::default() }
}

/// Logit bits of a prompt of `prompt` tokens in chunks, then the other tokens one at a time.
fn bits(path: &Path, options: &EngineOptions, tokens: &[u32], prompt: usize) -> Vec<u32> {
    let mut engine =
        Engine::load(path, options.clone()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut session = engine.new_session();
    let mut bits = Vec::new();
    let pieces = tokens[..prompt].chunks(options.chunk.max(1)).chain(tokens[prompt..].chunks(1));
    for piece in pieces {
        let rows = engine.forward(&mut session, piece, Output::All).expect("a pass").expect("all rows");
        bits.extend(rows.data().iter().map(|l| l.to_bits()));
    }
    bits
}

/// The smallest budget that works, from the refusal of a budget that does not.
fn smallest(path: &Path, options: &EngineOptions) -> u64 {
    let options = EngineOptions { memory: Memory::Budget(1), ..options.clone() };
    match Engine::load(path, options).map(|_| ()) {
        Err(EngineError::Budget { smallest_budget, .. }) => smallest_budget,
        other => panic!("a budget of one byte is refused with a plan, not {other:?}"),
    }
}

#[test]
fn bits_do_not_depend_on_how_experts_are_kept() {
    for name in
        ["mixtral", "olmoe", "qwen3moe-q2_0", "qwen3moe256-kmix", "qwen3next", "qwen35moe", "qwen4exp"]
    {
        let path = golden(name, "gguf");
        let tokens = tokens(name);
        let reference =
            bits(&path, &EngineOptions { memory: Memory::Resident, ..base() }, &tokens, tokens.len() / 2);
        let mut n = 0;
        let mut check = |what: &str, options: EngineOptions| {
            let differing = bits(&path, &options, &tokens, tokens.len() / 2)
                .iter()
                .zip(&reference)
                .filter(|(a, b)| a != b)
                .count();
            assert_eq!(differing, 0, "{name}: {what}");
            n += 1;
        };
        // The process grows a little between two measurements of it.
        let small = smallest(&path, &base()) + (4 << 20);
        for budget in [small, small + (64 << 10), small + (1 << 20), small + (64 << 20)] {
            let memory = Memory::Budget(budget);
            check(&format!("budget {budget}"), EngineOptions { memory, ..base() });
        }
        let tight = EngineOptions { memory: Memory::Budget(small), ..base() };
        for policy in PolicyConfig::NAMES.iter().filter(|name| **name != "clairvoyant") {
            let policy = PolicyConfig::by_name(policy).expect("listed");
            check(policy.name(), EngineOptions { policy, ..tight.clone() });
        }
        for threads in [1, 3] {
            check(&format!("{threads} threads"), EngineOptions { threads: Some(threads), ..tight.clone() });
        }
        for (backend, direct) in
            [(Backend::Pool, true), (Backend::Pool, false), (Backend::Auto, true), (Backend::Auto, false)]
        {
            check(
                &format!("{backend:?} direct {direct}"),
                EngineOptions { backend, direct, ..tight.clone() },
            );
        }
        check("no read-ahead", EngineOptions { read_ahead: false, ..tight.clone() });
        check("chunks of 5", EngineOptions { chunk: 5, ..tight.clone() });
        check("4 reads at a time", EngineOptions { reads_max: 4, ..tight.clone() });
        println!("{name:20} {n} configurations, 0 differing bits");
    }
}
