//! Summaries of made-up readings.

use super::*;
use crate::peer::archive::{ModelFile, Phase, Settings, Start};
use crate::peer::machine::Machine;
use crate::peer::protocol::Facts;

fn raw(pairs: usize) -> Raw {
    let facts = Facts { version: "v".to_owned(), isa: "i".to_owned() };
    Raw {
        command: vec![],
        started: 0,
        ended: 1,
        load_average: [None, Some(0.5)],
        machine: Machine::here(),
        commit: None,
        esker: facts.clone(),
        llama_cpp: facts,
        model: ModelFile {
            name: "m.gguf".to_owned(),
            bytes: 1,
            sha256: vec![],
            read_ahead_bytes: Some(8 << 20),
        },
        settings: Settings {
            threads: 2,
            pairs,
            warm_ups: 1,
            starts: None,
            prompt_tokens: vec![512],
            context: vec![128],
            generate: 3,
            capacity: 1024,
            memory_limit: None,
            esker_memory: None,
            margin: 0.05,
        },
        prompt_ids: vec![1],
        runs: vec![],
        starts: vec![],
        memory: vec![],
    }
}

fn run(pair: Option<usize>, who: Who, length: usize, prompt_ms: f64, decode_ms: f64) -> Run {
    Run {
        pair,
        who,
        phase: if length == 128 { Phase::Decode } else { Phase::Prefill },
        length,
        computed: Some(if length == 128 { 1 } else { length }),
        prompt_ms,
        decode_ms,
        tokens: vec![1, 2, 3],
        read_bytes: None,
        others: Some(0.1),
    }
}

/// Seven pairs in which Esker decodes 1.5 times and prefills half as fast, and starts in a quarter of the time.
pub(crate) fn seven() -> Raw {
    let mut raw = raw(7);
    for who in [Who::Esker, Who::LlamaCpp] {
        // A warm-up that would turn every figure round if it counted.
        raw.runs.push(run(None, who, 128, if who == Who::Esker { 1e9 } else { 1e-9 }, 1e9));
    }
    for pair in 0..7 {
        let noise = 1.0 + 0.01 * pair as f64;
        raw.runs.push(run(Some(pair), Who::Esker, 128, 1.0, 20.0 * noise));
        raw.runs.push(run(Some(pair), Who::LlamaCpp, 128, 1.0, 30.0 * noise));
        raw.runs.push(run(Some(pair), Who::LlamaCpp, 512, 256.0 * noise, 0.0));
        raw.runs.push(run(Some(pair), Who::Esker, 512, 512.0 * noise, 0.0));
        for (who, ms) in [(Who::Esker, 100.0), (Who::LlamaCpp, 400.0)] {
            let first_token_ms = ms * noise;
            raw.starts.push(Start {
                pair: Some(pair),
                who,
                cached: Some(1.0),
                load_ms: 1.0,
                first_token_ms,
                others: None,
            });
        }
    }
    raw
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-12
}

#[test]
fn rates_ratios_and_verdicts() {
    let lines = summarize(&seven());
    let [decode, prefill, first] = &lines[..] else { panic!("three quantities: {lines:?}") };

    assert_eq!(decode.quantity, Quantity::Decode(128));
    assert!(decode.ratios.iter().all(|&r| close(r, 1.5)), "two steps for three tokens on both sides");
    // Rates fall as noise grows: the median of seven is the fourth, noise 1.03.
    assert!(close(decode.esker, 2.0 / (0.020 * 1.03)), "{}", decode.esker);
    assert_eq!((decode.verdict, decode.same_tokens), (Verdict::Faster, Some(7)));
    // The first third is pairs 0 and 1, of which the lower rate is noise 1.01; the last is 5 and 6, noise 1.06.
    assert!(close(decode.drift_esker.expect("enough readings"), 1.01 / 1.06));

    assert_eq!((prefill.quantity, prefill.verdict), (Quantity::Prefill(512), Verdict::Slower));
    assert!(close(prefill.median, 0.5) && close(prefill.llama_cpp, 512.0 / (0.256 * 1.03)));

    // Best are the readings without noise.
    assert!(close(decode.best, 1.5) && close(prefill.best, 0.5) && close(first.best, 4.0));

    assert_eq!((first.quantity, first.verdict), (Quantity::FirstToken, Verdict::Faster));
    assert!(close(first.median, 4.0), "less time is faster: {}", first.median);
}

#[test]
fn a_run_without_its_partner_is_no_pair() {
    let mut raw = seven();
    raw.runs.retain(|run| !(run.pair == Some(3) && run.who == Who::LlamaCpp));
    let lines = summarize(&raw);
    assert_eq!(lines[0].ratios.len(), 6);
    raw.runs.retain(|run| run.pair.is_none());
    let lines = summarize(&raw);
    assert_eq!(lines.len(), 1, "only starts are left: warm-ups never count");
}

#[test]
fn a_turn_and_a_prompt_of_one_length_are_told_apart() {
    let mut raw = seven();
    raw.settings.prompt_tokens = vec![128];
    assert_eq!(summarize(&raw).len(), 2, "turns have no prefill to be timed");
    let mut older = seven();
    older.settings.prompt_tokens = vec![128, 512];
    older.runs.iter_mut().for_each(|run| (run.phase, run.computed) = (Phase::Both, None));
    let quantities: Vec<Quantity> = summarize(&older).iter().map(|line| line.quantity).collect();
    let all = [Quantity::Decode(128), Quantity::Prefill(128), Quantity::Prefill(512), Quantity::FirstToken];
    assert_eq!(quantities, all, "older runs were both");
}

#[test]
fn bytes_read_are_per_token_that_was_computed() {
    let mut raw = seven();
    assert_eq!((summarize(&raw)[0].read_esker, summarize(&raw)[1].read_llama_cpp), (None, None));
    raw.runs.iter_mut().for_each(|run| run.read_bytes = Some(600 * (run.pair.unwrap_or(0) as u64 + 1)));
    let lines = summarize(&raw);
    // The fourth of seven; in a turn of three tokens one was computed before the first and one before each other.
    assert_eq!((lines[0].read_esker, lines[0].read_llama_cpp), (Some(800.0), Some(800.0)));
    assert_eq!(lines[1].read_esker, Some(2400.0 / 514.0));
    raw.runs.iter_mut().find(|run| run.pair == Some(2)).expect("a run").read_bytes = None;
    assert_eq!(summarize(&raw)[0].read_esker, None, "all pairs or none");
}

#[test]
fn nothing_is_said_about_a_busy_machine() {
    let mut raw = seven();
    raw.runs.iter_mut().filter(|run| run.length == 128).for_each(|run| run.others = Some(0.5));
    let lines = summarize(&raw);
    assert_eq!((lines[0].verdict, lines[0].others), (Verdict::Inconclusive, Some(0.5)));
    assert_eq!(lines[0].median, summarize(&seven())[0].median, "the ratio is told all the same");
    assert_eq!((lines[1].verdict, lines[1].others), (Verdict::Slower, Some(0.1)));
    assert_eq!((lines[2].verdict, lines[2].others), (Verdict::Faster, None), "not every system tells");
}

#[test]
fn the_best_are_chosen_on_each_side_for_itself() {
    let mut raw = seven();
    let of = |raw: &mut Raw, pair, who, ms| {
        let run = raw.runs.iter_mut().find(|r| r.pair == Some(pair) && r.who == who && r.length == 128);
        run.expect("a run").decode_ms = ms;
    };
    of(&mut raw, 2, Who::Esker, 10.0);
    of(&mut raw, 5, Who::LlamaCpp, 40.0);
    raw.starts.iter_mut().find(|s| s.pair == Some(4) && s.who == Who::Esker).expect("one").first_token_ms =
        50.0;
    let lines = summarize(&raw);
    assert!(close(lines[0].best, 3.0), "10 ms against 30 ms: {}", lines[0].best);
    assert!(close(lines[2].best, 8.0), "50 ms against 400 ms: {}", lines[2].best);
}

#[test]
fn different_tokens_are_counted() {
    let mut raw = seven();
    raw.runs.iter_mut().find(|r| r.pair == Some(0) && r.who == Who::Esker).expect("a run").tokens[2] = 9;
    assert_eq!(summarize(&raw)[0].same_tokens, Some(6));
}

#[test]
fn intervals_cover_what_they_say() {
    let up_to = |n: usize| (1..=n).map(|i| i as f64).collect::<Vec<_>>();
    assert_eq!(interval(&up_to(5)), None, "five readings reach 93.75 %");
    let six = interval(&up_to(6)).expect("96.875 %");
    assert_eq!((six.low, six.high, six.coverage), (1.0, 6.0, 0.96875));
    let nine = interval(&up_to(9)).expect("an interval");
    assert_eq!((nine.low, nine.high), (2.0, 8.0), "one reading may be left out at either end");
    assert!(close(nine.coverage, 1.0 - 2.0 * 10.0 / 512.0));
    assert_eq!(interval(&[]), None);
}

#[test]
fn verdicts_at_their_edges() {
    let of = |low: f64, median: f64, high: f64| {
        verdict(median, Some(Interval { low, high, coverage: 0.98 }), 0.05)
    };
    assert_eq!(of(1.01, 1.2, 1.3), Verdict::Faster);
    assert_eq!(of(0.99, 1.2, 1.3), Verdict::Inconclusive, "1 is inside");
    assert_eq!(of(1.01, 1.04, 1.3), Verdict::Inconclusive, "faster, but perhaps by less than the margin");
    assert_eq!(of(0.7, 0.8, 0.99), Verdict::Slower);
    assert_eq!(of(0.7, 0.8, 1.0), Verdict::Inconclusive);
    assert_eq!(of(0.96, 1.0, 1.05), Verdict::Equivalent);
    assert_eq!(of(1.001, 1.02, 1.04), Verdict::Equivalent, "certainly faster, certainly by little");
    assert_eq!(of(0.95, 1.0, 1.05), Verdict::Inconclusive, "0.95 is below 1 / 1.05");
    assert_eq!(verdict(2.0, None, 0.05), Verdict::Inconclusive, "too few pairs");
    assert_eq!(of(f64::NAN, f64::NAN, f64::NAN), Verdict::Inconclusive);
}

#[test]
fn an_archive_gives_the_same_summary_when_it_is_read_again() {
    let mut raw = seven();
    raw.runs.iter_mut().for_each(|run| run.decode_ms = (run.decode_ms / 7.0).sqrt() / 3.0);
    let summary = summarize(&raw);
    let archive = super::super::archive::Archive {
        format: super::super::archive::FORMAT.to_owned(),
        raw,
        summary: summary.clone(),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a/speed.json");
    super::super::archive::write(&path, &archive).expect("written");
    let again = super::super::archive::read(&path).expect("read");
    assert_eq!(again, archive);
    assert_eq!(summarize(&again.raw), summary);
    assert!(super::super::archive::write(&path, &archive).is_err(), "archives are never overwritten");
}
