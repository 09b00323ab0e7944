//! Prefix reuse: what a session or a snapshot has is not computed again, and the bits are those of computing it.

mod fixtures;

use esker_disk::sim::{FaultPlan, FaultRates, SimDisk, SimOptions};
use esker_engine::{Engine, EngineOptions, GenerateOptions, KvType, Memory, Output, Sampling, Session};
use fixtures::{MODELS, bits, golden_tokens, model, smallest_budget};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether it is one of the models whose states can be cut anywhere.
fn is_list(name: &str) -> bool {
    !name.starts_with("qwen3next") && !name.starts_with("qwen35") && !name.starts_with("qwen4")
}

const CHUNK: usize = 16;

fn base() -> EngineOptions {
    EngineOptions {
        threads: Some(2),
        context: Some(256),
        chunk: CHUNK,
        kv_type: KvType::F32,
        memory: Memory::Resident,
        process_bytes: Some(0),
        snapshot_bytes: 64 << 20,
        ..EngineOptions::default()
    }
}

fn load(name: &str, options: EngineOptions) -> Engine {
    fixtures::load(&model(name), options)
}

fn tokens(name: &str) -> Vec<u32> {
    let all = golden_tokens(name);
    let n_vocab = all.iter().max().expect("some") + 1;
    // Long enough for several chunks.
    (0..120).map(|i| (all[i % all.len()] + (i / all.len()) as u32 * 7) % n_vocab).collect()
}

/// Logit bits of the tokens from `from` on, fed in chunks and then one at a time, by a session that has those before.
fn feed(engine: &mut Engine, session: &mut Session, tokens: &[u32]) -> Vec<u32> {
    let mut all = Vec::new();
    let left = &tokens[session.tokens().len()..];
    let prompt = left.len() - left.len().min(3);
    for piece in left[..prompt].chunks(CHUNK).chain(left[prompt..].chunks(1)) {
        let rows = engine.forward(session, piece, Output::All).expect("a pass").expect("all rows");
        all.extend(bits(rows.data()));
    }
    all
}

fn fresh(engine: &mut Engine, tokens: &[u32]) -> Vec<u32> {
    let mut session = engine.new_session();
    feed(engine, &mut session, tokens)
}

/// Reuses what there is, feeds the rest, and returns (tokens reused, bits that differ from a fresh run).
fn reuse(engine: &mut Engine, session: &mut Session, tokens: &[u32], expected: &[u32]) -> (usize, usize) {
    let reused = engine.reuse_prefix(session, tokens);
    assert!(reused < tokens.len() && session.tokens() == &tokens[..reused]);
    let got = feed(engine, session, tokens);
    let own = &expected[expected.len() - got.len()..];
    assert_eq!(got.len() / engine.n_vocab(), tokens.len() - reused);
    (reused, got.iter().zip(own).filter(|(a, b)| a != b).count())
}

/// `tokens` up to `at`, then others.
fn edited(tokens: &[u32], at: usize, n: usize) -> Vec<u32> {
    let n_vocab = tokens.iter().max().expect("some") + 1;
    let other = |i: usize| (tokens[i] + 1 + i as u32 % 3) % n_vocab;
    (0..at + n).map(|i| if i < at { tokens[i] } else { other(i) }).collect()
}

#[test]
fn bits_after_reuse_are_those_of_a_fresh_run() {
    println!("{:24} {:>6} {:>14} {:>10}", "model", "runs", "tokens reused", "differing");
    for name in MODELS {
        let kv_types = if name.len() > 10 { vec![KvType::F32] } else { vec![KvType::F32, KvType::F16] };
        for kv_type in kv_types {
            let tokens = tokens(name);
            let mut plain = load(name, EngineOptions { kv_type, snapshot_bytes: 0, ..base() });
            let mut engine = load(name, EngineOptions { kv_type, ..base() });
            let first = &tokens[..74];
            let mut session = engine.new_session();
            feed(&mut engine, &mut session, first);
            engine.keep_snapshot(&session);
            let (mut runs, mut total, mut differing) = (0, 0, 0);
            // Another session goes on from chunk boundaries or the end, or, where states can be cut, from anywhere.
            for at in [1, 15, 16, 17, 33, 48, 63, 64, 65, 73, 74] {
                let second = edited(&tokens, at, 12);
                let expected = fresh(&mut plain, &second);
                let mut other = engine.new_session();
                let (reused, wrong) = reuse(&mut engine, &mut other, &second, &expected);
                let least = match at {
                    _ if is_list(name) => at,
                    74 => 74,
                    // The last tokens of `first` were fed one at a time: no chunk ended there.
                    at => at.min(64) / CHUNK * CHUNK,
                };
                assert_eq!(reused, least, "{name}: parting at {at}");
                assert_eq!(wrong, 0, "{name} {kv_type:?}: parting at {at}");
                // The first session parts from itself.
                let (reused, wrong) = reuse(&mut engine, &mut session, &second, &expected);
                assert!(reused >= least, "{name}: its own prefix of {reused}, parting at {at}");
                assert_eq!(wrong, 0, "{name} {kv_type:?}: parting from itself at {at}");
                runs += 2;
                total += 2 * reused;
                differing += wrong;
            }
            // The same again: all but the last token is there, and the logits of that are computed.
            let expected = fresh(&mut plain, first);
            let mut other = engine.new_session();
            let (reused, wrong) = reuse(&mut engine, &mut other, first, &expected);
            assert_eq!((reused, wrong), (if is_list(name) { 73 } else { 64 }, 0), "{name}: the same again");
            println!(
                "{:24} {:>6} {:>14} {:>10}",
                format!("{name} {kv_type:?}"),
                runs + 1,
                total + reused,
                differing + wrong
            );
        }
    }
}

/// A store on disk, found by another engine.
#[test]
fn snapshots_on_disk_outlive_the_engine() {
    println!("{:24} {:>14} {:>10}", "model", "tokens reused", "differing");
    for name in MODELS {
        let dir = tempfile::tempdir().expect("a folder");
        let options = EngineOptions { snapshot_dir: Some(dir.path().join("snapshots")), ..base() };
        let tokens = tokens(name);
        {
            let mut engine = load(name, options.clone());
            let mut session = engine.new_session();
            feed(&mut engine, &mut session, &tokens[..90]);
            engine.keep_snapshot(&session);
        }
        let mut plain = load(name, EngineOptions { snapshot_bytes: 0, ..base() });
        // A small budget in memory is no matter: files are read straight into the session.
        let mut engine =
            load(name, EngineOptions { snapshot_bytes: 4096, context: Some(200), ..options.clone() });
        assert!(engine.notes().iter().all(|n| !n.contains("snapshots")), "{:?}", engine.notes());
        let (mut total, mut differing) = (0, 0);
        for (at, n) in [(90, 20), (50, 10), (16, 3)] {
            let second = edited(&tokens, at, n);
            let expected = fresh(&mut plain, &second);
            let mut session = engine.new_session();
            let (reused, wrong) = reuse(&mut engine, &mut session, &second, &expected);
            let least = if is_list(name) || at == 90 { at } else { at / CHUNK * CHUNK };
            assert_eq!((reused, wrong), (least, 0), "{name}: parting at {at}");
            total += reused;
            differing += wrong;
        }
        let stats = engine.snapshot_stats();
        assert_eq!((stats.hits, stats.tokens_reused, stats.damaged_files), (3, total as u64, 0), "{name}");
        println!("{name:24} {total:>14} {differing:>10}");
        // Other types, other snapshots; and back.
        drop(engine);
        let mut other = load(name, EngineOptions { kv_type: KvType::F16, ..options.clone() });
        let mut session = other.new_session();
        assert_eq!(other.reuse_prefix(&mut session, &tokens), 0, "{name}: keys of another type");
        drop(other);
        let mut engine = load(name, options);
        let mut session = engine.new_session();
        assert!(engine.reuse_prefix(&mut session, &tokens) >= 80, "{name}: still there");
    }
}

/// Random conversations in a budget that holds a few: the bits stay right and the budget is kept.
#[test]
fn any_mixture_of_conversations_in_a_small_budget() {
    for name in ["mixtral", "qwen3next", "qwen4exp"] {
        let tokens = tokens(name);
        let dir = tempfile::tempdir().expect("a folder");
        let mut plain = load(name, EngineOptions { snapshot_bytes: 0, ..base() });
        for snapshot_dir in [None, Some(dir.path().to_owned())] {
            let (snapshot_bytes, snapshot_dir_bytes) = (400_000, 900_000);
            let mut engine =
                load(name, EngineOptions { snapshot_bytes, snapshot_dir, snapshot_dir_bytes, ..base() });
            let mut sessions: Vec<Session> = (0..2).map(|_| engine.new_session()).collect();
            let mut seed = 9u64;
            let mut below = |n: usize| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 33) as usize) % n
            };
            let mut reused_in_all = 0;
            for round in 0..60 {
                let text = edited(&tokens, 1 + below(80), 1 + below(30));
                let expected = fresh(&mut plain, &text);
                let session = &mut sessions[below(2)];
                let (reused, wrong) = reuse(&mut engine, session, &text, &expected);
                assert_eq!(wrong, 0, "{name}, round {round}");
                reused_in_all += reused;
                if below(2) == 0 {
                    engine.keep_snapshot(session);
                }
                let stats = engine.snapshot_stats();
                assert!(stats.bytes <= snapshot_bytes, "{name}, round {round}: {stats:?}");
                assert!(stats.disk_bytes <= snapshot_dir_bytes, "{name}, round {round}: {stats:?}");
            }
            engine.flush_snapshots();
            let stats = engine.snapshot_stats();
            println!("{name}: {reused_in_all} tokens reused, {stats:?}");
            assert!(reused_in_all > 500 && stats.hits > 5 && stats.damaged_files == 0, "{name}: {stats:?}");
        }
        let on_disk: u64 =
            files(dir.path(), "snapshot").iter().map(|f| f.metadata().expect("a file").len()).sum();
        assert!(on_disk > 0 && on_disk <= 900_000, "{name}: {on_disk} bytes on disk");
    }
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path());
    entries.filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
}

/// What was used last stays.
#[test]
fn the_longest_unused_goes_first() {
    let name = "qwen35moe";
    let tokens = tokens(name);
    let texts: Vec<Vec<u32>> = (0..6).map(|i| edited(&tokens, i, 30 - i)).collect();
    let size = {
        let mut engine = load(name, base());
        let mut session = engine.new_session();
        feed(&mut engine, &mut session, &texts[0]);
        engine.snapshot_stats().bytes
    };
    let mut engine = load(name, EngineOptions { snapshot_bytes: 4 * size, ..base() });
    let mut session = engine.new_session();
    let has = |engine: &mut Engine, i: usize| {
        let mut other = engine.new_session();
        engine.reuse_prefix(&mut other, &texts[i]) >= 16
    };
    for text in &texts[..3] {
        engine.reuse_prefix(&mut session, &[0]);
        feed(&mut engine, &mut session, text);
    }
    assert!((0..3).all(|i| has(&mut engine, i)), "three fit");
    assert!(has(&mut engine, 0), "used again, before the others come");
    for text in &texts[3..] {
        engine.reuse_prefix(&mut session, &[0]);
        feed(&mut engine, &mut session, text);
    }
    let kept: Vec<bool> = (0..6).map(|i| has(&mut engine, i)).collect();
    assert!(kept[0] && kept[5] && !kept[1], "{kept:?}");
}

#[test]
fn damaged_files_are_deleted_and_others_left_alone() {
    let name = "qwen4exp";
    let tokens = tokens(name);
    let mut plain = load(name, EngineOptions { snapshot_bytes: 0, ..base() });
    let text = edited(&tokens, 64, 8);
    let expected = fresh(&mut plain, &text);
    let write = |dir: &Path| {
        let mut engine = load(name, EngineOptions { snapshot_dir: Some(dir.to_owned()), ..base() });
        let mut session = engine.new_session();
        feed(&mut engine, &mut session, &tokens[..70]);
    };
    let sizes = {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path());
        let mut files = files(dir.path(), "snapshot");
        files.sort();
        assert_eq!(files.len(), 4, "chunks of 16 in 67 tokens of a prompt");
        files.iter().map(|f| f.metadata().expect("a file").len() as usize).collect::<Vec<_>>()
    };
    let mut shortest = usize::MAX;
    for file in 0..4 {
        // In every part of the file: magic, hashes, sizes, tokens, checksum, positions, end; then cut short or longer.
        let flips = [3, 20, 40, 70, 90, 100, 130, 150, 500, sizes[file] / 2, sizes[file] - 5];
        for damage in flips.into_iter().map(Some).chain([None]) {
            let dir = tempfile::tempdir().expect("a folder");
            write(dir.path());
            std::fs::write(dir.path().join("notes.txt"), "mine").expect("written");
            std::fs::write(dir.path().join("not-ours.snapshot"), "mine").expect("written");
            let mut all = files(dir.path(), "snapshot");
            all.retain(|p| !p.ends_with("not-ours.snapshot"));
            all.sort();
            let mut bytes = std::fs::read(&all[file]).expect("a file");
            match damage {
                Some(at) => bytes[at] ^= 0x40,
                None if file % 2 == 0 => bytes.truncate(bytes.len() - 1),
                None => bytes.push(0),
            }
            std::fs::write(&all[file], bytes).expect("written");
            let half = all[file].with_extension("snapshot-part");
            std::fs::write(&half, "half a file").expect("written");

            let options = EngineOptions { snapshot_dir: Some(dir.path().to_owned()), ..base() };
            let mut engine = load(name, options);
            assert!(!half.exists(), "what was half-written is gone");
            let mut session = engine.new_session();
            let (reused, wrong) = reuse(&mut engine, &mut session, &text, &expected);
            assert_eq!(wrong, 0, "file {file}, {damage:?}");
            assert!(reused < 64 || damage.is_some(), "file {file}, {damage:?}: {reused}");
            shortest = shortest.min(reused);
            engine.flush_snapshots();
            let stats = engine.snapshot_stats();
            // The end of a chunk that is only passed through is not read, and so not missed.
            assert!(stats.damaged_files > 0 || reused == 64, "file {file}, {damage:?}: {stats:?}");
            assert!(dir.path().join("notes.txt").exists() && dir.path().join("not-ours.snapshot").exists());
            // By now everything was computed and written anew.
            drop(engine);
            let mut engine =
                load(name, EngineOptions { snapshot_dir: Some(dir.path().to_owned()), ..base() });
            let mut session = engine.new_session();
            assert_eq!(engine.reuse_prefix(&mut session, &text), 64, "file {file}, {damage:?}");
        }
    }
    assert_eq!(shortest, 0, "without its first file nothing is left of a conversation");
}

/// A folder is used by one process at a time; the other does without, and says so.
#[test]
fn a_folder_in_use_is_noted() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = EngineOptions { snapshot_dir: Some(dir.path().to_owned()), ..base() };
    let first = load("llama", options.clone());
    let mut second = load("llama", options.clone());
    let is_note =
        |n: &String| n.starts_with("snapshots are kept in memory only") && n.contains("another process");
    assert!(second.notes().iter().any(is_note), "{:?}", second.notes());
    let tokens = tokens("llama");
    let mut session = second.new_session();
    feed(&mut second, &mut session, &tokens);
    assert!(second.snapshot_stats().snapshots > 0 && second.snapshot_stats().disk_bytes == 0);
    drop(first);
    assert!(!load("llama", options).notes().iter().any(is_note), "free again");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let engine = load("llama", EngineOptions { snapshot_dir: Some(file), ..base() });
    assert!(engine.notes().iter().any(|n| n.contains("cannot use the folder")), "{:?}", engine.notes());
}

/// A disk that takes nothing is counted, and memory goes on.
#[test]
fn what_cannot_be_written_stays_in_memory() {
    let parent = tempfile::tempdir().expect("a folder");
    let dir = parent.path().join("snapshots");
    let mut engine = load("qwen4exp", EngineOptions { snapshot_dir: Some(dir.clone()), ..base() });
    std::fs::remove_dir_all(&dir).expect("removed");
    let tokens = tokens("qwen4exp");
    let mut session = engine.new_session();
    feed(&mut engine, &mut session, &tokens[..70]);
    engine.flush_snapshots();
    let stats = engine.snapshot_stats();
    assert_eq!((stats.write_errors, stats.snapshots, stats.disk_bytes), (4, 4, 0), "{stats:?}");
    let mut other = engine.new_session();
    assert_eq!(engine.reuse_prefix(&mut other, &tokens), 64);
}

/// The part of [`a_killed_process_leaves_a_clean_folder`] that is killed; without the variable it does nothing.
#[test]
fn child_that_keeps_snapshots_until_it_is_killed() {
    let Some(dir) = std::env::var_os("ESKER_TEST_SNAPSHOTS") else { return };
    let options = EngineOptions { snapshot_dir: Some(dir.into()), snapshot_dir_bytes: 4 << 20, ..base() };
    let mut engine = load("qwen4exp", options);
    let tokens = tokens("qwen4exp");
    println!("begun");
    for i in 0.. {
        let mut session = engine.new_session();
        feed(&mut engine, &mut session, &edited(&tokens, 1 + i % 60, 40));
        engine.keep_snapshot(&session);
    }
}

#[test]
fn a_killed_process_leaves_a_clean_folder() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().expect("a folder");
    let tokens = tokens("qwen4exp");
    let mut plain = load("qwen4exp", EngineOptions { snapshot_bytes: 0, ..base() });
    let text = edited(&tokens, 40, 40);
    let expected = fresh(&mut plain, &text);
    let (mut half_written, mut reused_in_all) = (0, 0);
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child_that_keeps_snapshots_until_it_is_killed", "--nocapture"])
            .env("ESKER_TEST_SNAPSHOTS", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let begun = out.lines().map_while(Result::ok).any(|line| line.contains("begun"));
        assert!(begun, "the child works");
        std::thread::sleep(Duration::from_millis(60 + 37 * round));
        child.kill().expect("killed"); // SIGKILL
        child.wait().expect("gone");
        half_written += files(dir.path(), "snapshot-part").len();

        let options = EngineOptions { snapshot_dir: Some(dir.path().to_owned()), ..base() };
        let mut engine = load("qwen4exp", options);
        assert!(files(dir.path(), "snapshot-part").is_empty(), "round {round}: nothing half-written is left");
        let mut session = engine.new_session();
        let (reused, wrong) = reuse(&mut engine, &mut session, &text, &expected);
        assert_eq!(wrong, 0, "round {round}");
        assert_eq!(engine.snapshot_stats().damaged_files, 0, "round {round}: whole files only");
        reused_in_all += reused;
    }
    println!(
        "12 kills: {half_written} files were half-written, {reused_in_all} tokens reused, 0 differing bits"
    );
    assert!(reused_in_all > 0, "something had been kept");
}

/// A session whose pass failed is repaired, from a snapshot if there is one.
#[test]
fn broken_sessions_are_repaired() {
    for (name, rate) in [("qwen3moe", 60), ("qwen4exp", 15)] {
        let path = model(name);
        let smallest = smallest_budget(&path, &base());
        let tokens = tokens(name);
        let mut plain = load(name, EngineOptions { snapshot_bytes: 0, ..base() });
        let expected = fresh(&mut plain, &tokens);
        let rates = FaultRates { io: rate, ..FaultRates::default() };
        let plan = FaultPlan { rates, ..FaultPlan::default() };
        let bytes_of_file = std::fs::read(&path).expect("the model");
        // With some seeds loading fails already.
        let engines = (0..200).filter_map(|seed| {
            let options = EngineOptions { memory: Memory::Budget(smallest), ..base() };
            let sim = SimOptions { seed, plan: plan.clone(), ..SimOptions::default() };
            let (disk, control) = SimDisk::new(sim);
            control.put(&path, bytes_of_file.clone());
            Engine::load_with_disk(&path, options, Box::new(disk)).ok()
        });
        let (mut loaded, mut repaired) = (0, 0);
        for mut engine in engines.take(8) {
            loaded += 1;
            let mut session = engine.new_session();
            let mut failures = 0;
            // Chunk after chunk, with a new attempt from what is left after every failure.
            while session.tokens().len() < tokens.len() {
                let from = session.tokens().len();
                let piece = &tokens[from..(from + CHUNK).min(tokens.len())];
                match engine.forward(&mut session, piece, Output::All) {
                    Ok(rows) => {
                        let rows = rows.expect("all rows");
                        let own = &expected[from * rows.n_cols()..][..rows.data().len()];
                        assert_eq!(bits(rows.data()), own, "{name}: from {from}");
                    }
                    Err(error) => {
                        assert!(error.to_string().contains("cannot read"), "{name}: {error}");
                        failures += 1;
                        assert!(failures < 500, "{name}: no end in sight");
                        assert!(engine.forward(&mut session, piece, Output::None).is_err(), "it is broken");
                        let reused = engine.reuse_prefix(&mut session, &tokens);
                        assert_eq!(reused, from / CHUNK * CHUNK, "{name}: the last chunk is there");
                        repaired += 1;
                    }
                }
            }
        }
        println!("{name}: {loaded} engines, {repaired} repairs");
        assert!(repaired > 0, "{name}: something failed");
    }
}

/// The second turn of a conversation of 2000 tokens computes its new tokens only, also after a restart.
#[test]
fn a_second_turn_computes_its_new_tokens_only() {
    let path = esker_testkit::small_model();
    let dir = tempfile::tempdir().expect("a folder");
    let options = EngineOptions {
        context: Some(2304),
        chunk: 256,
        kv_type: KvType::F16,
        snapshot_bytes: 256 << 20,
        snapshot_dir: Some(dir.path().to_owned()),
        ..base()
    };
    let load = |options: EngineOptions| Engine::load(&path, options).expect("loads");
    let answer = GenerateOptions {
        max_tokens: Some(24),
        sampling: Sampling { seed: 11, ..Sampling::default() },
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let generate = |engine: &mut Engine, session: &mut Session, prompt: &[u32]| {
        engine.generate(session, prompt, &answer, &mut |_| ControlFlow::Continue(())).expect("a generation")
    };
    let first: Vec<u32> = (0..2000).map(|i| (i * i * 31 + i * 17) % 8000).collect();
    let mut engine = load(options.clone());
    let mut session = engine.new_session();
    let turn = generate(&mut engine, &mut session, &first);
    let mut second = first.clone();
    second.extend_from_slice(&turn.tokens);
    second.extend((0..50).map(|i| i * 91 % 8000));

    let mut plain = load(EngineOptions { snapshot_bytes: 0, snapshot_dir: None, ..options.clone() });
    let mut alone = plain.new_session();
    let fresh = generate(&mut plain, &mut alone, &second);
    assert_eq!(fresh.stats.reused_tokens, 0);
    let logits = |engine: &mut Engine, session: &mut Session| {
        bits(engine.forward(session, &[7], Output::Last).expect("a pass").expect("logits").data())
    };
    let expected = logits(&mut plain, &mut alone);

    // The last token that was drawn has not been fed: it and the 50 new ones are computed.
    let had = second.len() - 51;
    let mut other = engine.new_session();
    for (what, session) in [("the same session", &mut session), ("another session", &mut other)] {
        let turn = generate(&mut engine, session, &second);
        assert_eq!(turn.stats.reused_tokens, had, "{what}");
        assert_eq!(turn.tokens, fresh.tokens, "{what}");
        assert!(logits(&mut engine, session) == expected, "{what}: the bits of the logits");
    }
    let again = generate(&mut engine, &mut session, &first);
    assert_eq!(
        again.stats.reused_tokens, 1792,
        "the last chunk before the end: at least a token is computed"
    );
    drop((engine, session, other));

    let mut engine = load(options);
    let mut session = engine.new_session();
    let turn = generate(&mut engine, &mut session, &second);
    assert_eq!(turn.stats.reused_tokens, had, "after a restart");
    assert_eq!(turn.tokens, fresh.tokens);
    assert!(logits(&mut engine, &mut session) == expected, "after a restart: the bits of the logits");
}
