//! From times to verdicts: a pure function of an archive's raw part.
//!
//! Ratios are taken within a pair, whose two runs are neighbours in time, so that what else the machine does hits both.
//! The interval is the one for a median that needs no assumption about distributions: between the k-th smallest and the
//! k-th largest ratio, k as large as 95 % coverage allows (binomial order statistics).

use super::archive::{Phase, Raw, Run};
use super::side::Who;
use serde::{Deserialize, Serialize};

/// Least chance that the interval holds the true median.
const COVERAGE: f64 = 0.95;

/// Cores that others may keep busy. With more, a side whose threads wait for each other in a loop loses out of all
/// proportion, and the ratio says nothing about a machine of one's own.
pub(crate) const OTHERS_MAX: f64 = 0.25;

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Decode steps per second of a sequence that began with a prompt of so many tokens.
    Decode(usize),
    /// Prompt tokens per second of a prompt of so many tokens.
    Prefill(usize),
    /// Milliseconds from loading to the first token.
    FirstToken,
}

/// What is said about Esker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The interval lies above 1 and the median beyond the margin.
    Faster,
    /// The interval lies below 1 and the median beyond the margin.
    Slower,
    /// The interval lies within the margin.
    Equivalent,
    /// None of these, too few pairs for an interval, or others at work.
    Inconclusive,
}

/// One quantity, summed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// What was measured.
    pub(crate) quantity: Quantity,
    /// Median of Esker's readings.
    pub(crate) esker: f64,
    /// Median of llama.cpp's.
    pub(crate) llama_cpp: f64,
    /// Best reading of Esker's by the best of llama.cpp's, turned as `ratios` are: what disturbs makes nothing faster.
    pub(crate) best: f64,
    /// How many times as fast Esker was, pair by pair.
    pub(crate) ratios: Vec<f64>,
    /// Their median, least and largest.
    pub(crate) median: f64,
    /// See `median`.
    pub(crate) min: f64,
    /// See `median`.
    pub(crate) max: f64,
    /// Interval for the median, with its coverage; `None` with fewer than six pairs.
    pub(crate) interval: Option<Interval>,
    /// Readings of the last third over those of the first third, medians: a side against itself over time.
    pub(crate) drift_esker: Option<f64>,
    /// The same for llama.cpp.
    pub(crate) drift_llama_cpp: Option<f64>,
    /// Pairs in which both sides drew the same tokens; rounding may part them.
    pub(crate) same_tokens: Option<usize>,
    /// Bytes read from disks per token by Esker, median over pairs; `None` where the system does not tell, and for starts.
    #[serde(default)]
    pub(crate) read_esker: Option<f64>,
    /// The same for llama.cpp.
    #[serde(default)]
    pub(crate) read_llama_cpp: Option<f64>,
    /// Cores that others kept busy during half of the runs at least; `None` where the system does not tell.
    pub(crate) others: Option<f64>,
    /// The verdict.
    pub(crate) verdict: Verdict,
}

/// An interval for a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Its lower end.
    pub(crate) low: f64,
    /// Its upper end.
    pub(crate) high: f64,
    /// The chance that it holds the median.
    pub(crate) coverage: f64,
}

/// A quantity's readings in one pair.
#[derive(Clone, Copy)]
struct Pair {
    esker: f64,
    llama_cpp: f64,
    read: [Option<f64>; 2],
    others: [Option<f64>; 2],
}

/// All quantities that the archive has pairs for.
pub(crate) fn summarize(raw: &Raw) -> Vec<Line> {
    let margin = raw.settings.margin;
    let of_runs = |phase: Phase, length: usize, rate: &dyn Fn(&Run) -> f64| -> Vec<Pair> {
        let pair = |&(e, l): &(&Run, &Run)| Pair {
            esker: rate(e),
            llama_cpp: rate(l),
            read: [e.read_per_token(), l.read_per_token()],
            others: [e.others, l.others],
        };
        pairs(raw, phase, length).iter().map(pair).collect()
    };
    let mut lines = Vec::new();
    for &context in &raw.settings.context {
        let steps = |run: &Run| per_second(run.tokens.len().saturating_sub(1), run.decode_ms);
        let same = pairs(raw, Phase::Decode, context).iter().filter(|(e, l)| e.tokens == l.tokens).count();
        let pairs = of_runs(Phase::Decode, context, &steps);
        lines.extend(line(Quantity::Decode(context), &pairs, margin, Some(same)));
    }
    for &tokens in &raw.settings.prompt_tokens {
        let rate = |run: &Run| per_second(run.length, run.prompt_ms);
        let pairs = of_runs(Phase::Prefill, tokens, &rate);
        lines.extend(line(Quantity::Prefill(tokens), &pairs, margin, None));
    }
    let start = |pair: usize, who: Who| raw.starts.iter().find(|s| s.pair == Some(pair) && s.who == who);
    let starts = (0..raw.settings.starts.unwrap_or(raw.settings.pairs)).filter_map(|pair| {
        let (e, l) = (start(pair, Who::Esker)?, start(pair, Who::LlamaCpp)?);
        let others = [e.others, l.others];
        Some(Pair { esker: e.first_token_ms, llama_cpp: l.first_token_ms, read: [None; 2], others })
    });
    lines.extend(line(Quantity::FirstToken, &starts.collect::<Vec<_>>(), margin, None));
    lines
}

/// The two runs of each pair for `phase` with prompts of `length` tokens.
fn pairs(raw: &Raw, phase: Phase, length: usize) -> Vec<(&Run, &Run)> {
    let find = |pair: usize, who: Who| {
        raw.runs.iter().find(|run| {
            let is_for_it = run.phase == phase || run.phase == Phase::Both;
            run.pair == Some(pair) && run.who == who && run.length == length && is_for_it
        })
    };
    (0..raw.settings.pairs).filter_map(|pair| find(pair, Who::Esker).zip(find(pair, Who::LlamaCpp))).collect()
}

fn per_second(count: usize, milliseconds: f64) -> f64 {
    count as f64 / (milliseconds / 1e3)
}

/// `None` without pairs.
fn line(quantity: Quantity, pairs: &[Pair], margin: f64, same_tokens: Option<usize>) -> Option<Line> {
    if pairs.is_empty() {
        return None;
    }
    let less_is_better = quantity == Quantity::FirstToken;
    let ratio =
        |esker: f64, llama_cpp: f64| if less_is_better { llama_cpp / esker } else { esker / llama_cpp };
    let best_of = |values: &[f64]| {
        let sorted = sorted(values);
        if less_is_better { sorted[0] } else { sorted[sorted.len() - 1] }
    };
    let ratios: Vec<f64> = pairs.iter().map(|pair| ratio(pair.esker, pair.llama_cpp)).collect();
    let esker: Vec<f64> = pairs.iter().map(|pair| pair.esker).collect();
    let llama_cpp: Vec<f64> = pairs.iter().map(|pair| pair.llama_cpp).collect();
    let others: Vec<f64> = pairs.iter().flat_map(|pair| pair.others).flatten().collect();
    let others = (!others.is_empty()).then(|| median(&others));
    let read = [0, 1].map(|side| {
        let read: Option<Vec<f64>> = pairs.iter().map(|pair| pair.read[side]).collect();
        read.map(|read| median(&read))
    });
    let sorted = sorted(&ratios);
    let (middle, interval) = (median(&ratios), interval(&sorted));
    let alone = others.is_none_or(|cores| cores <= OTHERS_MAX);
    Some(Line {
        quantity,
        esker: median(&esker),
        llama_cpp: median(&llama_cpp),
        best: ratio(best_of(&esker), best_of(&llama_cpp)),
        median: middle,
        min: sorted[0],
        max: sorted[sorted.len() - 1],
        interval,
        drift_esker: drift(&esker),
        drift_llama_cpp: drift(&llama_cpp),
        same_tokens,
        read_esker: read[0],
        read_llama_cpp: read[1],
        others,
        verdict: if alone { verdict(middle, interval, margin) } else { Verdict::Inconclusive },
        ratios,
    })
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// By nearest rank: a value that was measured, the lower of the two in the middle.
fn median(values: &[f64]) -> f64 {
    sorted(values)[(values.len() - 1) / 2]
}

fn drift(values: &[f64]) -> Option<f64> {
    let third = values.len() / 3;
    (third > 0).then(|| median(&values[values.len() - third..]) / median(&values[..third]))
}

fn interval(sorted: &[f64]) -> Option<Interval> {
    let n = sorted.len();
    // Chance that at most k of n readings fall below the median, for growing k: each tail of the interval.
    let mut term = 0.5_f64.powi(i32::try_from(n).ok()?);
    let (mut tail, mut best) = (term, None);
    for k in 0..n / 2 {
        let coverage = 1.0 - 2.0 * tail;
        if coverage < COVERAGE {
            break;
        }
        best = Some(Interval { low: sorted[k], high: sorted[n - 1 - k], coverage });
        term *= (n - k) as f64 / (k + 1) as f64;
        tail += term;
    }
    best
}

fn verdict(median: f64, interval: Option<Interval>, margin: f64) -> Verdict {
    let (least, most) = (1.0 / (1.0 + margin), 1.0 + margin);
    match interval {
        Some(i) if i.low >= least && i.high <= most => Verdict::Equivalent,
        Some(i) if i.low > 1.0 && median > most => Verdict::Faster,
        Some(i) if i.high < 1.0 && median < least => Verdict::Slower,
        _ => Verdict::Inconclusive,
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
pub(crate) mod tests;
