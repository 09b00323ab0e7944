//! The expert map: residency, use of late, reads and lookups, as the store and the passes have them.

use esker_engine::{BatchItem, Engine, EngineError, EngineOptions, ExpertMap, KvType, Memory, Output};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits").join(format!("{name}.gguf"))
}

fn base() -> EngineOptions {
    EngineOptions {
        threads: Some(2),
        context: Some(256),
        kv_type: KvType::F32,
        process_bytes: Some(0),
        sessions: 2,
        ..EngineOptions::default()
    }
}

fn smallest(path: &Path) -> u64 {
    match Engine::load(path, EngineOptions { memory: Memory::Budget(1), ..base() }).map(|_| ()) {
        Err(EngineError::Budget { smallest_budget, .. }) => smallest_budget,
        other => panic!("a budget of one byte is refused, not {other:?}"),
    }
}

fn resident(map: &ExpertMap) -> u32 {
    map.resident.iter().map(|word| word.count_ones()).sum()
}

#[test]
fn a_streamed_model_shows_what_is_there_and_what_was_read() {
    for name in ["qwen3moe", "mixtral", "qwen4exp"] {
        let path = golden(name);
        let memory = Memory::Budget(smallest(&path) + (64 << 10));
        let mut engine = Engine::load(&path, EngineOptions { memory, ..base() }).expect("loads");
        let n_slots: usize = engine.plan().expect("a plan").classes.iter().map(|c| c.n_slots).sum();
        let mut map = ExpertMap::default();
        engine.expert_map(&mut map);
        assert_eq!(
            (resident(&map), map.just_read.len(), map.all_resident),
            (0, 0, false),
            "{name}: nothing yet"
        );
        assert!(map.hot.iter().all(|&h| h == 0));
        assert_eq!(map.hot.len(), map.n_layer * map.n_expert);
        assert_eq!(map.resident.len(), map.n_layer * map.n_expert.div_ceil(64));

        let (mut a, mut b) = (engine.new_session(), engine.new_session());
        let mut reads = 0;
        for token in 0..40u32 {
            let mut items = [
                BatchItem { session: &mut a, tokens: &[token], output: Output::Last },
                BatchItem { session: &mut b, tokens: &[token + 3], output: Output::Last },
            ];
            engine.forward_batch(&mut items).expect("a pass");
            engine.expert_map(&mut map);
            reads += map.just_read.len();
            assert!(resident(&map) as usize <= n_slots, "{name}: no more than there are slots");
            for &(il, e) in &map.just_read {
                assert!((il as usize) < map.n_layer && (e as usize) < map.n_expert, "{name}");
            }
        }
        let stats = engine.stats();
        assert!(reads > 0 && reads as u64 <= stats.expert_reads, "{name}: {reads} of {}", stats.expert_reads);
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        assert_eq!(sum(&map.hits), stats.expert_hits, "{name}");
        assert_eq!(sum(&map.read_ahead_hits), stats.expert_read_ahead_hits, "{name}");
        assert_eq!(sum(&map.misses), stats.expert_misses, "{name}");
        for layer in &stats.layers {
            assert!(map.misses[layer.layer] + map.hits[layer.layer] > 0, "{name}: every layer looked up");
        }
        assert!(map.hot.iter().any(|&h| h > 0), "{name}: some are hot");
        engine.expert_map(&mut map);
        assert!(map.just_read.is_empty(), "{name}: read reads are forgotten");
    }
}

#[test]
fn a_model_in_memory_is_all_there() {
    let mut engine = Engine::load(&golden("qwen3moe"), EngineOptions { memory: Memory::Resident, ..base() })
        .expect("loads");
    let mut session = engine.new_session();
    let mut map = ExpertMap::default();
    for _ in 0..60 {
        engine.forward(&mut session, &[5], Output::None).expect("a pass");
    }
    engine.expert_map(&mut map);
    assert!(map.all_resident && map.just_read.is_empty());
    assert_eq!(resident(&map) as usize, map.n_layer * map.n_expert);
    assert!(map.hits.iter().all(|&h| h > 0) && map.misses.iter().all(|&m| m == 0));
    assert!(map.hot.iter().any(|&h| h > 200), "the same token uses much the same experts");
}

#[test]
fn a_model_without_experts_has_an_empty_map() {
    let mut engine =
        Engine::load(&golden("llama"), EngineOptions { memory: Memory::Resident, ..base() }).expect("loads");
    let mut map = ExpertMap { just_read: vec![(1, 1)], ..ExpertMap::default() };
    engine.expert_map(&mut map);
    assert_eq!((map.n_layer, map.n_expert, map.all_resident), (engine.n_layer(), 0, true));
    assert!(map.resident.is_empty() && map.hot.is_empty() && map.just_read.is_empty());
}
