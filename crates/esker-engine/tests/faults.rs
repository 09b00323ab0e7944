//! A disk that fails: every request ends with the right bits or with an error that names the file, and the engine lives
//! on. The disk is simulated, so a failure is reproduced by its seed.

use esker_disk::sim::{Fault, FaultPlan, FaultRates, SimControl, SimDisk, SimOptions};
use esker_engine::{Engine, EngineError, EngineOptions, KvType, Memory, Output};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits").join(format!("{name}.gguf"))
}

fn base() -> EngineOptions {
    let (process_bytes, kv_type) = (Some(0), KvType::F32);
    EngineOptions { threads: Some(2), context: Some(64), kv_type, process_bytes, ..EngineOptions::default() }
}

fn smallest(path: &Path) -> u64 {
    match Engine::load(path, EngineOptions { memory: Memory::Budget(1), ..base() }).map(|_| ()) {
        Err(EngineError::Budget { smallest_budget, .. }) => smallest_budget,
        other => panic!("a budget of one byte is refused, not {other:?}"),
    }
}

/// A prompt of eight tokens, then single ones; the logits' bits, or the error.
fn answer(engine: &mut Engine) -> Result<Vec<u32>, EngineError> {
    let tokens: Vec<u32> = (0..24).map(|i| i * 31 % 90).collect();
    let mut session = engine.new_session();
    let mut bits = Vec::new();
    for piece in std::iter::once(&tokens[..8]).chain(tokens[8..].chunks(1)) {
        let rows = engine.forward(&mut session, piece, Output::Last)?.expect("logits were asked for");
        bits.extend(rows.data().iter().map(|l| l.to_bits()));
    }
    Ok(bits)
}

#[test]
fn faults_end_in_the_right_bits_or_in_an_error() {
    let (mut right, mut failed, mut refused) = (0, 0, 0);
    for name in ["qwen3moe", "qwen4exp"] {
        let path = golden(name);
        let bytes = std::fs::read(&path).expect("the model");
        let reference = {
            let options = EngineOptions { memory: Memory::Resident, ..base() };
            answer(&mut Engine::load(&path, options).expect("loads")).expect("a sound file")
        };
        let options = EngineOptions { memory: Memory::Budget(smallest(&path)), ..base() };
        for seed in 0..40 {
            // From a disk that only reorders to one that fails every tenth read.
            let rate = [0, 5, 30, 100][seed as usize % 4];
            let rates = FaultRates { io: rate, short: rate, ..FaultRates::default() };
            let plan = FaultPlan { rates, delay_ticks_max: 5, reorder: true, ..FaultPlan::default() };
            let (disk, control) = SimDisk::new(SimOptions { seed, plan, ..SimOptions::default() });
            control.put(&path, bytes.clone());
            let mut engine = match Engine::load_with_disk(&path, options.clone(), Box::new(disk)) {
                Ok(engine) => engine,
                Err(error) => {
                    assert!(rate > 0, "{name} seed {seed}: {error}");
                    refused += 1;
                    continue;
                }
            };
            for _ in 0..3 {
                match answer(&mut engine) {
                    Ok(bits) => {
                        assert!(bits == reference, "{name} seed {seed}: other bits");
                        right += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(rate > 0 && text.contains(".gguf"), "{name} seed {seed}: {text}");
                        failed += 1;
                    }
                }
            }
        }
    }
    println!("{right} answers right, {failed} ended with an error, {refused} loads refused");
    assert!(right > 60 && failed > 0 && refused > 0, "{right} right, {failed} failed, {refused} refused");
}

/// Bytes that arrive wrong once are noticed in a file with checksums, and read again: the same bits.
#[test]
fn wrong_bytes_of_repacked_experts_are_read_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("packed.gguf");
    esker_lab::repack::pack(&golden("qwen3moe"), &path, esker_lab::IfExists::Refuse, &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("packed");
    let bytes = std::fs::read(&path).expect("the file");
    let options = EngineOptions { memory: Memory::Budget(smallest(&path)), ..base() };
    let load = |at: Vec<(u64, Fault)>| -> (Engine, SimControl) {
        let plan = FaultPlan { at, ..FaultPlan::default() };
        let (disk, control) = SimDisk::new(SimOptions { plan, ..SimOptions::default() });
        control.put(&path, bytes.clone());
        (Engine::load_with_disk(&path, options.clone(), Box::new(disk)).expect("loads"), control)
    };
    let (mut engine, control) = load(Vec::new());
    let loaded = control.reads();
    let right = answer(&mut engine).expect("a sound disk");
    // The prompt's eight rows of the embedding, which have no checksums, come first; then experts, layer by layer.
    let first = loaded + 8;
    let (mut retried, mut same) = (0, 0);
    for read in first..first + 24 {
        let (mut engine, _control) = load(vec![(read, Fault::WrongBytes)]);
        assert!(answer(&mut engine).expect("read again") == right, "read {read}: other bits");
        match engine.stats().expert_read_retries {
            // The bit that fell over was one of the padding between two parts.
            0 => same += 1,
            n => retried += n,
        }
    }
    println!("{retried} reads repeated, {same} with a wrong bit in the padding");
    assert!(retried >= 20, "{retried} of 24 wrong reads were noticed");
    // Wrong twice: the request ends, and says where.
    let (mut engine, _control) = load((first..first + 400).map(|read| (read, Fault::WrongBytes)).collect());
    let error = answer(&mut engine).expect_err("wrong twice").to_string();
    assert!(error.contains("packed.gguf") && error.contains("checksum"), "{error}");
}
