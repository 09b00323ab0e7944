//! Several sequences in one pass: the bits of each are those that it has alone, and memory is what was planned.

mod fixtures;

use esker_engine::{
    BatchItem, Engine, EngineError, EngineOptions, KvType, Memory, Output, RouteBiasOptions, Session,
};
use fixtures::{MODELS, bits, golden_tokens, load, model, smallest_budget};

fn base() -> EngineOptions {
    EngineOptions {
        threads: Some(2),
        context: Some(128),
        chunk: 16,
        kv_type: KvType::F32,
        process_bytes: Some(0),
        sessions: 3,
        ..EngineOptions::default()
    }
}

/// Three sequences of the fixture's tokens: as they are, backwards, and another mixture.
fn sequences(name: &str) -> [Vec<u32>; 3] {
    let tokens = golden_tokens(name);
    let n_vocab = tokens.iter().max().expect("some") + 1;
    let mixed = tokens.iter().enumerate().map(|(i, t)| (t * 7 + i as u32 * 3) % n_vocab).collect();
    let backwards = tokens.iter().rev().copied().collect();
    [tokens, backwards, mixed].map(|t: Vec<u32>| t[..t.len().min(96)].to_vec())
}

/// Logit bits of every token of a sequence alone.
fn alone(engine: &mut Engine, tokens: &[u32]) -> Vec<u32> {
    let mut session = engine.new_session();
    let rows = engine.forward(&mut session, tokens, Output::All).expect("a pass").expect("all rows");
    bits(rows.data())
}

/// A small deterministic generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Feeds the sequences in passes of a drawn mixture of chunks, single tokens and absence, and counts the logits whose bits
/// are not those of `expected`.
fn differing(engine: &mut Engine, tokens: &[Vec<u32>; 3], expected: &[Vec<u32>; 3], seed: u64) -> usize {
    let mut dice = Dice(seed);
    let n_vocab = engine.n_vocab();
    let mut sessions: Vec<Session> = (0..3).map(|_| engine.new_session()).collect();
    let mut differing = 0;
    while (0..3).any(|i| sessions[i].tokens().len() < tokens[i].len()) {
        let mut room = engine.rows_max();
        let mut items = Vec::new();
        for (i, session) in sessions.iter_mut().enumerate() {
            let left = &tokens[i][session.tokens().len()..];
            let n = match dice.below(4) {
                0 => 0,
                1 => 1 + dice.below(12),
                _ => 1,
            };
            let n = n.min(left.len()).min(room);
            room -= n;
            let output = [Output::All, Output::Last, Output::None][dice.below(3)];
            items.push(BatchItem { session, tokens: &left[..n], output });
        }
        let fed: Vec<(usize, Output)> = items.iter().map(|item| (item.tokens.len(), item.output)).collect();
        let logits = engine.forward_batch(&mut items).expect("a pass");
        assert_eq!(logits.len(), 3);
        for (i, ((n, output), logits)) in fed.into_iter().zip(logits).enumerate() {
            let n_rows = match output {
                Output::All => n,
                Output::Last => n.min(1),
                Output::None => 0,
            };
            assert_eq!(logits.as_ref().map_or(0, |l| l.n_rows()), n_rows, "rows of what was asked for");
            let Some(rows) = logits else { continue };
            let end = sessions[i].tokens().len() * n_vocab;
            let own = &expected[i][end - rows.data().len()..end];
            differing += bits(rows.data()).iter().zip(own).filter(|(a, b)| a != b).count();
        }
    }
    differing
}

#[test]
fn bits_are_those_of_each_sequence_alone() {
    println!("{:24} {:>10} {:>8} {:>10}", "model", "budgets", "passes", "differing");
    for name in MODELS {
        let path = model(name);
        let tokens = sequences(name);
        let mut resident = load(&path, EngineOptions { memory: Memory::Resident, ..base() });
        let expected = [0, 1, 2].map(|i| alone(&mut resident, &tokens[i]));
        drop(resident);
        let small = smallest_budget(&path, &base());
        let budgets =
            [Memory::Budget(small), Memory::Budget(small + (256 << 10)), Memory::Budget(small + (64 << 20))];
        let mut total = 0;
        for (i, memory) in budgets.into_iter().chain([Memory::Resident]).enumerate() {
            for (threads, kv_type) in [(1, KvType::F32), (2, KvType::F32), (3, KvType::F32)] {
                let options = EngineOptions { memory, threads: Some(threads), kv_type, ..base() };
                let mut engine = load(&path, options);
                for seed in 0..3 {
                    let n = differing(&mut engine, &tokens, &expected, seed * 31 + i as u64);
                    assert_eq!(n, 0, "{name}: {memory:?}, {threads} threads, seed {seed}");
                    total += n;
                }
            }
        }
        println!("{name:24} {:>10} {:>8} {total:>10}", 4, 4 * 3 * 3);
    }
}

/// Half-precision keys and values too: alone in the same type.
#[test]
fn half_precision_bits_are_those_of_each_sequence_alone() {
    for name in ["mixtral", "qwen3moe256-kmix", "qwen35moe", "qwen4exp"] {
        let path = model(name);
        let tokens = sequences(name);
        let options = EngineOptions { memory: Memory::Resident, kv_type: KvType::F16, ..base() };
        let mut engine = load(&path, options);
        let expected = [0, 1, 2].map(|i| alone(&mut engine, &tokens[i]));
        assert_eq!(differing(&mut engine, &tokens, &expected, 5), 0, "{name}");
    }
}

/// Scratch memory of any mixture of passes stays within the lines of the plan.
#[test]
fn scratch_memory_is_within_the_plan() {
    for name in MODELS {
        let path = model(name);
        let tokens = sequences(name);
        for chunk in [1, 8, 48] {
            let options = EngineOptions { chunk, ..base() };
            let memory = Memory::Budget(smallest_budget(&path, &options));
            let mut engine = load(&path, EngineOptions { memory, ..options });
            let line = |name| {
                let plan = engine.plan().expect("a budget has a plan");
                plan.lines.iter().find(|l| l.name == name).map_or(0, |l| l.bytes as usize)
            };
            let sampler = 3 * 20 * engine.n_vocab();
            let planned = line("decode_scratch") - sampler + line("prompt_scratch");
            for seed in 0..4 {
                // Which logits are asked for is drawn as well; all of a chunk's is more than the plan has.
                let mut dice = Dice(seed);
                let mut sessions: Vec<Session> = (0..3).map(|_| engine.new_session()).collect();
                let mut most = 0;
                while (0..3).any(|i| sessions[i].tokens().len() < tokens[i].len()) {
                    let mut room = engine.rows_max();
                    let mut items = Vec::new();
                    for (i, session) in sessions.iter_mut().enumerate() {
                        let left = &tokens[i][session.tokens().len()..];
                        let n = [0, 1, 1 + dice.below(60)][dice.below(3)].min(left.len()).min(room);
                        room -= n;
                        let output = [Output::Last, Output::None][dice.below(2)];
                        items.push(BatchItem { session, tokens: &left[..n], output });
                    }
                    engine.forward_batch(&mut items).expect("a pass");
                    most = most.max(engine.scratch_bytes().1);
                }
                assert!(
                    most <= planned,
                    "{name}, chunk {chunk}, seed {seed}: {most} bytes, planned {planned}"
                );
            }
        }
    }
}

/// Sequences that want the same experts share them: lookups are those of one, and no expert is read twice in a pass.
#[test]
fn experts_are_looked_up_once_for_all_sequences() {
    for name in ["mixtral", "olmoe", "qwen3moe", "qwen3next", "qwen4exp"] {
        let path = model(name);
        let tokens = &sequences(name)[0];
        let lookups = |sessions: usize| {
            let options = EngineOptions { sessions, read_ahead: false, ..base() };
            let memory = Memory::Budget(smallest_budget(&path, &options));
            let mut engine = load(&path, EngineOptions { memory, ..options });
            let mut all: Vec<Session> = (0..sessions).map(|_| engine.new_session()).collect();
            for token in &tokens[..24] {
                let mut items: Vec<BatchItem<'_>> = all
                    .iter_mut()
                    .map(|session| BatchItem {
                        session,
                        tokens: std::slice::from_ref(token),
                        output: Output::Last,
                    })
                    .collect();
                engine.forward_batch(&mut items).expect("a pass");
            }
            let stats = engine.stats();
            assert_eq!(
                (stats.decode_steps, stats.prefill_steps),
                (24, 0),
                "{name}: tokens of sequences are decode"
            );
            (stats.expert_hits + stats.expert_misses, stats.expert_reads)
        };
        let (one, three) = (lookups(1), lookups(3));
        assert_eq!(one.0, three.0, "{name}: lookups");
        assert!(three.1 > 0 && three.1 <= three.0, "{name}: {} reads for {} lookups", three.1, three.0);
    }
}

/// A decode step of several sequences allocates nothing where the caller keeps the list of results.
#[test]
fn a_decode_step_of_several_sequences_allocates_nothing() {
    for name in ["llama", "olmoe", "qwen3moe256-kmix", "qwen3next", "qwen4exp"] {
        let path = model(name);
        let options = EngineOptions { context: Some(512), ..base() };
        let small = Memory::Budget(smallest_budget(&path, &options));
        for memory in [Memory::Resident, small] {
            let mut engine = load(&path, EngineOptions { memory, ..options.clone() });
            let [mut a, mut b, mut c] = [0, 1, 2].map(|_| engine.new_session());
            let mut logits = Vec::with_capacity(3);
            let mut step = |token: u32| {
                logits.clear();
                let tokens = [token % 96, (token * 5 + 1) % 96, (token * 11 + 2) % 96];
                let item = |session, at: usize| BatchItem {
                    session,
                    tokens: &tokens[at..at + 1],
                    output: Output::Last,
                };
                let mut items = [item(&mut a, 0), item(&mut b, 1), item(&mut c, 2)];
                engine.forward_batch_into(&mut items, &mut logits).expect("a step");
            };
            (0..300).for_each(&mut step);
            let counted = allocation_counter::measure(|| (300..332).for_each(&mut step));
            assert_eq!(counted.count_total, 0, "{name}, {memory:?}: allocations in 32 steps");
        }
    }
}

#[test]
fn what_was_not_planned_for_is_refused() {
    let path = model("qwen3moe");
    let mut engine = load(&path, EngineOptions { memory: Memory::Resident, sessions: 2, ..base() });
    let mut sessions: Vec<Session> = (0..3).map(|_| engine.new_session()).collect();
    let tokens = [1; 17];
    let mut pass = |lengths: &[usize]| {
        let mut items: Vec<BatchItem<'_>> = sessions
            .iter_mut()
            .zip(lengths)
            .map(|(session, &n)| BatchItem { session, tokens: &tokens[..n], output: Output::None })
            .collect();
        engine.forward_batch(&mut items).map(|_| ()).map_err(|e| e.to_string())
    };
    let error = pass(&[1, 1, 1]).expect_err("three sessions");
    assert_eq!(
        error,
        "a pass of 3 token(s) of 3 session(s), expected at most 16 of 2: more were not planned for"
    );
    assert!(pass(&[16, 1]).is_err(), "17 tokens");
    assert!(pass(&[15, 1]).is_ok(), "a refused pass broke no session");
    let refused = |options| Engine::load(&path, options).err().expect("refused").to_string();
    let error = refused(EngineOptions { sessions: 0, ..base() });
    assert_eq!(error, "option `sessions` is 0, expected 1 to 64");
    let route_bias = RouteBiasOptions { lambda: 0.5, protect: 1 };
    let error = refused(EngineOptions { sessions: 2, route_bias, ..base() });
    assert!(error.starts_with("option `sessions` is 2, expected 1 with cache-aware routing"), "{error}");
}

/// One item that is refused leaves every session as it was.
#[test]
fn a_refused_item_breaks_nobody() {
    let mut engine = load(&model("qwen4exp"), EngineOptions { memory: Memory::Resident, ..base() });
    let [mut a, mut b] = [0, 1].map(|_| engine.new_session());
    let mut items = [
        BatchItem { session: &mut a, tokens: &[1, 2], output: Output::Last },
        BatchItem { session: &mut b, tokens: &[1 << 20], output: Output::Last },
    ];
    assert!(matches!(engine.forward_batch(&mut items), Err(EngineError::TokenRange { .. })));
    assert!(a.tokens().is_empty());
    assert!(engine.forward(&mut a, &[1, 2], Output::Last).is_ok());
}

/// A read that fails ends the pass for every session that takes part in it, and for no other.
#[test]
fn a_failed_read_breaks_those_who_took_part() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.gguf");
    std::fs::copy(model("qwen3moe"), &path).expect("a copy");
    let memory = Memory::Budget(smallest_budget(&path, &base()));
    let mut engine = load(&path, EngineOptions { memory, ..base() });
    let [mut a, mut b, mut c] = [0, 1, 2].map(|_| engine.new_session());
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    file.set_len(300_000).expect("cut");
    let mut items = [
        BatchItem { session: &mut a, tokens: &[1, 2, 3], output: Output::Last },
        BatchItem { session: &mut b, tokens: &[4], output: Output::Last },
        BatchItem { session: &mut c, tokens: &[], output: Output::Last },
    ];
    let error = engine.forward_batch(&mut items).map(|_| ()).expect_err("the experts are gone").to_string();
    assert!(error.contains("model.gguf"), "{error}");
    let is_broken = |engine: &mut Engine, session: &mut Session| {
        matches!(engine.forward(session, &[1], Output::None), Err(EngineError::BrokenSession))
    };
    assert!(is_broken(&mut engine, &mut a) && is_broken(&mut engine, &mut b));
    assert!(!is_broken(&mut engine, &mut c), "it had no tokens in the pass");
    // Nothing was kept of them: they begin anew.
    assert_eq!(engine.reuse_prefix(&mut a, &[1, 2, 3]), 0);
    assert!(!is_broken(&mut engine, &mut a), "repaired");
}
