//! Streaming changes nothing: the bits of the logits are those of a model that is all in memory, for any budget, policy,
//! backend and number of threads.

use esker_engine::{
    Backend, Engine, EngineError, EngineOptions, KvType, Memory, Output, PolicyConfig, RebalanceConfig,
};
use esker_testkit::npz;
use std::path::{Path, PathBuf};

fn golden(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits").join(format!("{name}.{extension}"))
}

fn tokens(name: &str) -> Vec<u32> {
    npz::<i32>(&golden(name, "npz"), "tokens").expect("tokens").data.iter().map(|&t| t as u32).collect()
}

/// Tests share a process, so its size is not counted: budgets here are of the model alone.
fn base() -> EngineOptions {
    let process_bytes = Some(0);
    let context = Some(256);
    EngineOptions {
        threads: Some(2),
        context,
        kv_type: KvType::F32,
        process_bytes,
        ..EngineOptions::default()
    }
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
        let small = smallest(&path, &base());
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
        check("4 reads at a time", EngineOptions { reads_max: Some(4), ..tight.clone() });
        println!("{name:20} {n} configurations, 0 differing bits");
    }
}

/// A repacked file has the same experts at other places: the same bits, resident and streamed, with one read for each.
#[test]
fn repacked_files_give_the_same_bits() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["qwen3moe256-kmix", "qwen4exp"] {
        let path = golden(name, "gguf");
        let packed = dir.path().join(format!("{name}.gguf"));
        esker_lab::repack::pack(&path, &packed, esker_lab::IfExists::Refuse, &mut |_| {
            std::ops::ControlFlow::Continue(())
        })
        .expect("packed");
        let tokens = tokens(name);
        let half = tokens.len() / 2;
        let resident = EngineOptions { memory: Memory::Resident, ..base() };
        let reference = bits(&path, &resident, &tokens, half);
        assert!(bits(&packed, &resident, &tokens, half) == reference, "{name}: resident");
        let memory = Memory::Budget(smallest(&packed, &base()));
        assert!(
            bits(&packed, &EngineOptions { memory, ..base() }, &tokens, half) == reference,
            "{name}: streamed"
        );
    }
}

/// A flipped byte in a repacked file is noticed when its expert is read, twice, and ends the request with its name.
#[test]
fn damaged_experts_of_repacked_files_are_not_computed_with() {
    let dir = tempfile::tempdir().expect("a folder");
    let packed = dir.path().join("packed.gguf");
    esker_lab::repack::pack(&golden("qwen4exp", "gguf"), &packed, esker_lab::IfExists::Refuse, &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("packed");
    let gguf = esker_gguf::Gguf::open(&packed).expect("a GGUF");
    let tensor = gguf.tensor("blk.2.ffn_exps.packed").expect("the experts of layer 2");
    let mut bytes = std::fs::read(&packed).expect("the file");
    let stride = tensor.shape[0] as usize;
    for e in 0..tensor.shape[1] as usize {
        bytes[tensor.offset as usize + e * stride + 100] ^= 1;
    }
    std::fs::write(&packed, bytes).expect("written back");
    let memory = Memory::Budget(smallest(&packed, &base()));
    let mut engine = Engine::load(&packed, EngineOptions { memory, ..base() }).expect("loads");
    let mut session = engine.new_session();
    let error = engine.forward(&mut session, &[1, 2, 3], Output::Last).err().expect("refused").to_string();
    let whole = ["layer 2", "read twice", "packed.gguf", " bytes at offset ", "checksum", "expected"];
    assert!(whole.iter().all(|part| error.contains(part)), "{error}");
    assert!(engine.stats().expert_read_retries > 0, "it was read again before the request was given up");
    // The process and the engine live on; the session says that it is over.
    let error = engine.forward(&mut session, &[4], Output::Last).err().expect("refused").to_string();
    assert!(error.contains("begin a new one"), "{error}");
}

#[test]
fn truncated_and_replaced_files_end_the_request_with_their_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.gguf");
    for what in ["truncated", "rewritten"] {
        std::fs::copy(golden("qwen3moe", "gguf"), &path).expect("a copy");
        let memory = Memory::Budget(smallest(&path, &base()));
        let mut engine = Engine::load(&path, EngineOptions { memory, ..base() }).expect("loads");
        let mut session = engine.new_session();
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
        match what {
            "truncated" => file.set_len(300_000).expect("cut"),
            _ => {
                let bytes = std::fs::read(&path).expect("the file");
                std::thread::sleep(std::time::Duration::from_millis(20));
                std::fs::write(&path, &bytes).expect("the same bytes at another time");
            }
        }
        let error =
            engine.forward(&mut session, &[1, 2, 3], Output::Last).err().expect("refused").to_string();
        assert!(error.contains("model.gguf"), "{what}: {error}");
        println!("{what}: {error}");
    }
}

#[test]
fn budgets_are_refused_before_anything_is_read() {
    let path = golden("qwen3moe", "gguf");
    let error = Engine::load(&path, EngineOptions { memory: Memory::Budget(1 << 20), ..base() }).err();
    let error = error.expect("a MiB is too little").to_string();
    assert!(error.starts_with("a budget of 1048576 bytes is too small: the smallest that works"), "{error}");
    let error = Engine::load(&path, EngineOptions { memory: Memory::Budget(1 << 60), ..base() }).err();
    let error = error.expect("no machine has an exbibyte").to_string();
    assert!(error.contains("more than the"), "{error}");
}

/// Cache-aware routing sees residency, and residency must not depend on the disk: the same tokens twice.
#[test]
fn cache_aware_routing_is_deterministic_and_changes_picks() {
    let path = golden("qwen3moe", "gguf");
    let tokens = tokens("qwen3moe");
    let route_bias = esker_engine::RouteBiasOptions { lambda: 0.85, protect: 1 };
    // Room for about half of the experts.
    let memory = Memory::Budget(smallest(&path, &base()) + (1 << 20));
    let options = EngineOptions { memory, route_bias, ..base() };
    let first = bits(&path, &options, &tokens, 8);
    for backend in [Backend::Auto, Backend::Pool] {
        assert!(
            bits(&path, &EngineOptions { backend, ..options.clone() }, &tokens, 8) == first,
            "{backend:?}"
        );
    }
    let mut engine = Engine::load(&path, options).expect("loads");
    let mut session = engine.new_session();
    for token in &tokens {
        engine.forward(&mut session, &[*token], Output::Last).expect("a step");
    }
    let stats = engine.stats();
    assert!(stats.route_picks_changed > 0 && stats.route_picks_changed < stats.route_picks, "{stats:?}");
    assert!(stats.route_mass_moved > 0.0, "{stats:?}");
    assert!(stats.expert_hits > 0 && stats.expert_misses > 0, "{stats:?}");
}

/// Moves at every step, a tenth of the arena, for next to no reason.
const EAGER: RebalanceConfig =
    RebalanceConfig { steps: 1, share_percent: 10, ratio_percent: 100, deviations: 0 };

/// Slots that move between classes change no bit, take no more memory than planned, and with cache-aware routing move in
/// every run alike.
#[test]
fn slots_that_move_change_nothing() {
    let name = "qwen3moe256-kmix";
    let path = golden(name, "gguf");
    let tokens = tokens(name);
    let reference = bits(&path, &EngineOptions { memory: Memory::Resident, ..base() }, &tokens, 8);
    let run = |options: &EngineOptions| {
        let mut engine = Engine::load(&path, options.clone()).expect("loads");
        let mut bits = Vec::new();
        let mut divisions = Vec::new();
        for _ in 0..4 {
            let mut session = engine.new_session();
            bits.clear();
            for piece in std::iter::once(&tokens[..8]).chain(tokens[8..].chunks(1)) {
                let rows =
                    engine.forward(&mut session, piece, Output::All).expect("a pass").expect("all rows");
                bits.extend(rows.data().iter().map(|l| l.to_bits()));
                divisions.push(engine.stats().arena_classes);
            }
        }
        let planned = engine.plan().expect("a budget").classes.clone();
        assert!(planned.len() > 1, "{name} has experts of several sizes");
        let arena: u64 = planned.iter().map(|c| c.n_slots as u64 * c.slot_bytes).sum();
        for division in &divisions {
            let bytes: u64 = division.iter().map(|c| c.n_slots * c.slot_bytes).sum();
            assert!(bytes <= arena, "{bytes} bytes of slots in an arena of {arena}");
        }
        (bits, divisions, engine.stats().arena_moves)
    };
    let small = smallest(&path, &base());
    let mut moves_seen = [0, 0];
    for more in [256 << 10, 512 << 10, 1 << 20] {
        let options = EngineOptions { memory: Memory::Budget(small + more), rebalance: EAGER, ..base() };
        for options in [
            options.clone(),
            EngineOptions { backend: Backend::Pool, direct: false, ..options.clone() },
            EngineOptions { policy: PolicyConfig::by_name("s3-fifo").expect("listed"), ..options.clone() },
        ] {
            let (bits, _, moves) = run(&options);
            assert!(bits == reference, "{more} bytes more: other bits");
            moves_seen[0] += moves;
        }
        let (bits, _, moves) = run(&EngineOptions { rebalance: RebalanceConfig::OFF, ..options.clone() });
        assert!(bits == reference && moves == 0);

        let route_bias = esker_engine::RouteBiasOptions { lambda: 0.2, protect: 2 };
        let options = EngineOptions { route_bias, ..options };
        let (bits, divisions, moves) = run(&options);
        moves_seen[1] += moves;
        for backend in [Backend::Auto, Backend::Uring] {
            let again = run(&EngineOptions { backend, ..options.clone() });
            assert!(again == (bits.clone(), divisions.clone(), moves), "{backend:?}: another run");
        }
    }
    println!("{moves_seen:?} moves with routing that does not look, and that does");
    assert!(moves_seen.iter().all(|&moves| moves > 0), "{moves_seen:?}");
}

/// A dense model inside a budget: everything but the token embedding is read once.
#[test]
fn dense_models_take_a_budget_too() {
    let path = golden("llama", "gguf");
    let tokens = tokens("llama");
    let resident = bits(&path, &EngineOptions { memory: Memory::Resident, ..base() }, &tokens, 32);
    let memory = Memory::Budget(smallest(&path, &base()));
    assert!(bits(&path, &EngineOptions { memory, ..base() }, &tokens, 32) == resident);
}
