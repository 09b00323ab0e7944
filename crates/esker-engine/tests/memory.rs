//! Memory is what the plan says: no allocation in a decode step, a prompt's scratch memory leaves the process.

use esker_disk::memory;
use esker_engine::{Engine, EngineError, EngineOptions, KvType, Memory, Output};
use esker_testkit::small_model;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits").join(format!("{name}.gguf"))
}

fn base() -> EngineOptions {
    EngineOptions {
        threads: Some(2),
        context: Some(1024),
        process_bytes: Some(0),
        ..EngineOptions::default()
    }
}

fn smallest(path: &Path, options: &EngineOptions) -> u64 {
    match Engine::load(path, EngineOptions { memory: Memory::Budget(1), ..options.clone() }).map(|_| ()) {
        Err(EngineError::Budget { smallest_budget, .. }) => smallest_budget,
        other => panic!("a budget of one byte is refused, not {other:?}"),
    }
}

#[test]
fn a_decode_step_allocates_nothing_after_warm_up() {
    let dir = tempfile::tempdir().expect("a folder");
    // Experts with checksums: they are checked as they come.
    let packed = dir.path().join("packed.gguf");
    esker_lab::repack::pack(&golden("qwen3moe256-kmix"), &packed, esker_lab::IfExists::Refuse, &mut |_| {
        ControlFlow::Continue(())
    })
    .expect("packed");
    let names = ["llama", "mixtral", "olmoe", "qwen3moe256-kmix", "qwen3next", "qwen35moe", "qwen4exp"];
    for path in names.into_iter().map(golden).chain([packed]) {
        let name = path.display();
        let small = Memory::Budget(smallest(&path, &base()));
        for (memory, kv_type) in
            [(Memory::Resident, KvType::F32), (Memory::Resident, KvType::F16), (small, KvType::F16)]
        {
            let mut engine = Engine::load(&path, EngineOptions { memory, kv_type, ..base() }).expect("loads");
            let mut session = engine.new_session();
            let mut step = |token: u32| {
                engine.forward(&mut session, &[token % 96], Output::Last).expect("a step");
            };
            // Past one block of attention (256 positions), so that every buffer has been seen.
            (0..300).for_each(&mut step);
            let counted = allocation_counter::measure(|| (300..364).for_each(&mut step));
            assert_eq!(counted.count_total, 0, "{name}, {memory:?}, {kv_type:?}: allocations in 64 steps");
        }
    }
}

/// Three readings of the process: before a prompt, at its last chunk, and after it. What is taken in between is at least
/// most of what the plan says, and most of it is gone afterwards.
#[test]
fn a_prompts_scratch_memory_leaves_the_process() {
    let Some(read) = memory::footprint().map(|_| || memory::footprint().expect("read before").anonymous)
    else {
        eprintln!("skipped: this system does not say what a process takes");
        return;
    };
    let path = small_model();
    let options = EngineOptions { chunk: 512, memory: Memory::Budget(100 << 20), ..base() };
    let mut engine = Engine::load(&path, options).expect("loads");
    let planned = engine
        .plan()
        .expect("a budget has a plan")
        .lines
        .iter()
        .find(|l| l.name == "prompt_scratch")
        .expect("a line")
        .bytes;
    let mut session = engine.new_session();
    let tokens: Vec<u32> = (0..1000).map(|i| i * 37 % 8000).collect();
    // The state and the arena are touched by a first prompt; a second session measures the scratch alone.
    engine.prefill(&mut session, &tokens, |_| ControlFlow::Continue(())).expect("a prompt");
    drop(session);
    let mut session = engine.new_session();
    let before = read();
    let mut during = 0;
    engine
        .prefill(&mut session, &tokens, |_| {
            during = during.max(read());
            ControlFlow::Continue(())
        })
        .expect("a prompt");
    let after = read();
    println!("before {before}, during {during}, after {after}, planned scratch {planned}");
    let (taken, kept) = (during.saturating_sub(before), after.saturating_sub(before));
    assert!(taken * 2 > planned, "{taken} bytes taken, {planned} planned: the reading sees the scratch");
    assert!(taken - kept.min(taken) > planned / 2, "{kept} of {taken} bytes still there after the prompt");
}
