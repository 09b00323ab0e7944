//! From logits to a token: penalties, filters, temperature, a seeded draw.
//!
//! Filters run in the order top-k, typical, top-p, min-p, then temperature, as is usual in the field, so that settings
//! copied from elsewhere mean the same here. Ties always go to the lower id.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Sampling settings. The default is temperature 0.7, top-k 40, top-p 0.95, min-p 0.05, no penalties.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Sampling {
    /// 0 picks the likeliest token always (greedy).
    pub temperature: f32,
    /// Keep the `top_k` likeliest; 0 keeps all.
    pub top_k: usize,
    /// Keep the likeliest whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Drop what is less likely than this share of the likeliest; 0 drops nothing.
    pub min_p: f32,
    /// Locally typical sampling (arXiv:2202.00666): keep the tokens of the most typical surprise up to this sum; 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 is off (arXiv:1909.05858).
    pub repeat_penalty: f32,
    /// Subtracted from the logit of each recent token once.
    pub presence_penalty: f32,
    /// Subtracted from the logit of each recent token as often as it occurs.
    pub frequency_penalty: f32,
    /// How many recent tokens the penalties look at.
    pub penalty_last_n: usize,
    /// (token id, added to its logit); minus infinity forbids it.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draw. The same seed, settings and tokens give the same text.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A setting is out of its range.
#[derive(Debug, thiserror::Error)]
#[error("sampling setting `{name}` is {value}, expected {expected}")]
pub struct SamplingError {
    /// Field of [`Sampling`].
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Its range.
    pub expected: &'static str,
}

impl Sampling {
    /// The likeliest token, always.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    fn check(&self, n_vocab: usize) -> Result<(), SamplingError> {
        let ranges: [(&'static str, f32, bool, &'static str); 7] = [
            ("temperature", self.temperature, self.temperature >= 0.0, "0 or more"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "more than 0, at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "0 to 1"),
            (
                "typical_p",
                self.typical_p,
                self.typical_p > 0.0 && self.typical_p <= 1.0,
                "more than 0, at most 1",
            ),
            ("repeat_penalty", self.repeat_penalty, self.repeat_penalty > 0.0, "more than 0"),
            ("presence_penalty", self.presence_penalty, true, "a finite number"),
            ("frequency_penalty", self.frequency_penalty, true, "a finite number"),
        ];
        for (name, value, in_range, expected) in ranges {
            if !in_range || !value.is_finite() {
                return Err(SamplingError { name, value: value.to_string(), expected });
            }
        }
        match self.logit_bias.iter().find(|(id, bias)| *id as usize >= n_vocab || bias.is_nan()) {
            Some((id, bias)) => Err(SamplingError {
                name: "logit_bias",
                value: format!("{bias} for token {id}"),
                expected: "a number, for a token of the vocabulary",
            }),
            None => Ok(()),
        }
    }
}

/// A token with its logit, as one number: better ones are less, of equal ones the lower id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate(u64);

impl Candidate {
    fn new(id: u32, logit: f32) -> Candidate {
        let rank = !(flip(logit.to_bits() as i32) as u32 ^ 0x8000_0000);
        Candidate(u64::from(rank) << 32 | u64::from(id))
    }

    fn id(self) -> u32 {
        self.0 as u32
    }

    fn logit(self) -> f32 {
        f32::from_bits(flip((!((self.0 >> 32) as u32) ^ 0x8000_0000) as i32) as u32)
    }
}

/// Bits of a float to an integer of the same order ([`f32::total_cmp`]), and back.
fn flip(bits: i32) -> i32 {
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Candidates of a draw that are put in order at first, where no filter needs all of them in order.
const SORTED_FIRST: usize = 1024;

/// Draws tokens; keeps its buffers and its random stream.
pub struct Sampler {
    settings: Sampling,
    rng: ChaCha8Rng,
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
    /// Of the candidates, or by token.
    probabilities: Vec<f64>,
    counts: Vec<(u32, u32)>,
}

impl Sampler {
    /// # Errors
    /// If a setting is out of range.
    pub fn new(settings: Sampling, n_vocab: usize) -> Result<Sampler, SamplingError> {
        settings.check(n_vocab)?;
        Ok(Sampler {
            rng: ChaCha8Rng::seed_from_u64(settings.seed),
            settings,
            logits: Vec::with_capacity(n_vocab),
            candidates: Vec::with_capacity(n_vocab),
            probabilities: Vec::with_capacity(n_vocab),
            counts: Vec::new(),
        })
    }

    /// The next token after `recent` (the sequence so far, newest last), given `logits`, `[n_vocab]`.
    pub fn sample(&mut self, logits: &[f32], recent: &[u32]) -> u32 {
        self.sample_allowed(logits, recent, None).unwrap_or(0)
    }

    /// As [`sample`](Self::sample), among the tokens that `allowed` has a bit for: token `t` is bit `t % 32` of word
    /// `t / 32`, and what is beyond the end is not allowed. `None` if no token is left: none is allowed, or the bias
    /// forbids all that are.
    pub fn sample_allowed(&mut self, logits: &[f32], recent: &[u32], allowed: Option<&[u32]>) -> Option<u32> {
        let s = &self.settings;
        let penalised = s.repeat_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        for &(id, bias) in &s.logit_bias {
            self.logits[id as usize] += bias;
        }
        if penalised {
            self.penalise(recent);
        }
        if let Some(allowed) = allowed {
            for (word, logits) in self.logits.chunks_mut(32).enumerate() {
                let bits = allowed.get(word).copied().unwrap_or(0);
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if bits >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
        if self.settings.temperature == 0.0 {
            let best = argmax(&self.logits);
            return (self.logits[best as usize] > f32::NEG_INFINITY).then_some(best);
        }
        self.collect();
        if self.candidates.is_empty() {
            return None;
        }
        let s = &self.settings;
        let all = s.top_k == 0 && s.typical_p >= 1.0 && s.top_p >= 1.0 && s.min_p <= 0.0;
        Some(if all { self.draw_of_all() } else { self.draw_filtered() })
    }

    fn penalise(&mut self, recent: &[u32]) {
        let s = &self.settings;
        let window = &recent[recent.len().saturating_sub(s.penalty_last_n)..];
        self.counts.clear();
        for &id in window {
            match self.counts.iter_mut().find(|(seen, _)| *seen == id) {
                Some((_, n)) => *n += 1,
                None => self.counts.push((id, 1)),
            }
        }
        for &(id, n) in &self.counts {
            let Some(logit) = self.logits.get_mut(id as usize) else { continue };
            *logit = if *logit > 0.0 { *logit / s.repeat_penalty } else { *logit * s.repeat_penalty };
            *logit -= s.presence_penalty + s.frequency_penalty * n as f32;
        }
    }

    /// All tokens that are possible, in no order.
    fn collect(&mut self) {
        let possible = self.logits.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        self.candidates.clear();
        self.candidates.extend(possible.map(|(id, &logit)| Candidate::new(id as u32, logit)));
    }

    /// Leaves the candidates that all filters keep, best first. There must be one.
    fn filter(&mut self) {
        let (s, c, p) = (&self.settings, &mut self.candidates, &mut self.probabilities);
        if s.top_k > 0 && s.top_k < c.len() {
            c.select_nth_unstable(s.top_k - 1);
            c.truncate(s.top_k);
        }
        c.sort_unstable();
        if s.typical_p < 1.0 {
            fill_probabilities(c, 1.0, p);
            let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
            let mut order: Vec<usize> = (0..c.len()).collect();
            let surprise = |i: usize| (-p[i].ln() - entropy).abs();
            order.sort_by(|&a, &b| surprise(a).total_cmp(&surprise(b)).then(a.cmp(&b)));
            let n = reach(order.iter().map(|&i| p[i]), s.typical_p);
            let mut keep = order[..n].to_vec();
            keep.sort_unstable();
            *c = keep.iter().map(|&i| c[i]).collect();
        }
        if s.top_p < 1.0 {
            fill_probabilities(c, 1.0, p);
            let n = reach(p.iter().copied(), s.top_p);
            c.truncate(n);
        }
        if s.min_p > 0.0 {
            let least = c[0].logit() + s.min_p.ln();
            let n = c.iter().take_while(|c| c.logit() >= least).count();
            c.truncate(n.max(1));
        }
    }

    /// Uniform in [0, 1): 53 bits, so that every f64 of this grid is equally likely.
    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn draw_filtered(&mut self) -> u32 {
        self.filter();
        fill_probabilities(&self.candidates, self.settings.temperature, &mut self.probabilities);
        let mut left = self.uniform();
        for (p, candidate) in self.probabilities.iter().zip(&self.candidates) {
            left -= p;
            if left < 0.0 {
                return candidate.id();
            }
        }
        // Rounding can leave a rest: it belongs to the last token that is possible at all.
        let last = self.probabilities.iter().rposition(|&p| p > 0.0).unwrap_or(0);
        self.candidates[last].id()
    }

    /// A draw among all candidates, best first like that of filtered ones; only as many of them are put in order as it
    /// takes to get there. The sum is formed in the order of tokens.
    fn draw_of_all(&mut self) -> u32 {
        let temperature = f64::from(self.settings.temperature);
        let max = f64::from(self.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let weight = |&logit: &f32| match logit > f32::NEG_INFINITY {
            true => ((f64::from(logit) - max) / temperature).exp(),
            false => 0.0, // NaN too: no token that is drawn
        };
        self.probabilities.clear();
        self.probabilities.extend(self.logits.iter().map(weight));
        let mut left = self.uniform() * self.probabilities.iter().sum::<f64>();
        let (mut rest, mut at_a_time) = (&mut self.candidates[..], SORTED_FIRST);
        let mut last = None;
        while !rest.is_empty() {
            let n = at_a_time.min(rest.len());
            if n < rest.len() {
                rest.select_nth_unstable(n);
            }
            let (next, others) = rest.split_at_mut(n);
            next.sort_unstable();
            for candidate in next {
                let weight = self.probabilities[candidate.id() as usize];
                left -= weight;
                if left < 0.0 {
                    return candidate.id();
                }
                if weight > 0.0 || last.is_none() {
                    last = Some(candidate.id());
                }
            }
            (rest, at_a_time) = (others, 8 * at_a_time);
        }
        // As for filtered ones.
        last.expect("there is a candidate")
    }
}

/// The index of the largest; ties go to the lower one. NaN is less than everything, as a token that is never drawn; 0 if
/// there is nothing else.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        let is_first_number = logits[best].is_nan() && !logit.is_nan();
        if logit > logits[best] || is_first_number {
            best = i;
        }
    }
    best as u32
}

/// How many of `p` it takes to reach `sum`: at least one.
fn reach(p: impl Iterator<Item = f64>, sum: f32) -> usize {
    let mut total = 0.0;
    let mut n = 0;
    for p in p {
        total += p;
        n += 1;
        if total >= f64::from(sum) {
            break;
        }
    }
    n
}

/// Softmax of the candidates' logits at a temperature.
fn fill_probabilities(candidates: &[Candidate], temperature: f32, p: &mut Vec<f64>) {
    let max = f64::from(candidates.iter().map(|c| c.logit()).fold(f32::NEG_INFINITY, f32::max));
    p.clear();
    p.extend(candidates.iter().map(|c| ((f64::from(c.logit()) - max) / f64::from(temperature)).exp()));
    let sum: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(settings: Sampling) -> Sampler {
        Sampler::new(settings, 5).expect("settings in range")
    }

    fn off() -> Sampling {
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Sampling::default() }
    }

    const LOGITS: [f32; 5] = [1.0, 3.0, 3.0, -1.0, 0.0];

    fn kept(settings: Sampling) -> Vec<u32> {
        let mut s = sampler(settings);
        s.logits = LOGITS.to_vec();
        s.collect();
        s.filter();
        s.candidates.iter().map(|c| c.id()).collect()
    }

    #[test]
    fn greedy_takes_the_lower_of_equals() {
        assert_eq!(sampler(Sampling::greedy()).sample(&LOGITS, &[]), 1);
    }

    /// Greedy or drawn, a logit that is no number is a token that does not come.
    #[test]
    fn nan_is_never_taken() {
        let logits = [f32::NAN, -1.0, f32::NAN, 3.0, 3.0];
        assert_eq!(argmax(&logits), 3);
        assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(argmax(&[f32::NAN; 3]), 0);
        assert_eq!(sampler(Sampling::greedy()).sample_allowed(&logits, &[], None), Some(3));
        assert_eq!(sampler(Sampling::greedy()).sample_allowed(&[f32::NAN; 5], &[], None), None);
        let mut drawn = sampler(Sampling { seed: 3, ..off() });
        assert!((0..100).all(|_| [1, 3, 4].contains(&drawn.sample(&logits, &[]))));
    }

    #[test]
    fn candidates_are_in_order_and_come_back() {
        let logits = [f32::INFINITY, 7.5, 1e-40, 0.0, -0.0, -1e-40, -7.5, f32::MIN];
        for (i, &a) in logits.iter().enumerate() {
            let candidate = Candidate::new(i as u32, a);
            assert_eq!((candidate.id(), candidate.logit().to_bits()), (i as u32, a.to_bits()));
            assert!(logits[i + 1..].iter().all(|&b| candidate < Candidate::new(0, b)));
            assert!(candidate < Candidate::new(i as u32 + 1, a));
        }
    }

    /// Far more candidates than are put in order at first: the same draws as when all are.
    #[test]
    fn a_draw_of_all_is_that_of_a_filter_that_keeps_all() {
        let n = 20_000;
        let logits: Vec<f32> = (0..n).map(|i| ((i * 7919) % n) as f32 / n as f32 * 6.0).collect();
        let draws = |settings: Sampling| {
            let mut s = Sampler::new(settings, n).expect("settings in range");
            (0..50).map(|_| s.sample(&logits, &[])).collect::<Vec<_>>()
        };
        let kept = draws(Sampling { top_k: n, seed: 9, ..off() });
        assert_eq!(draws(Sampling { seed: 9, ..off() }), kept);
        let rank = |&id: &u32| logits.iter().filter(|&&l| l > logits[id as usize]).count();
        assert!(kept.iter().map(rank).any(|rank| rank > 9 * SORTED_FIRST), "some are far down");
    }

    #[test]
    fn filters_keep_what_their_definitions_say() {
        assert_eq!(kept(off()), [1, 2, 0, 4, 3]);
        assert_eq!(kept(Sampling { top_k: 3, ..off() }), [1, 2, 0]);
        // Probabilities: 0.454, 0.454, 0.061, 0.023, 0.008 (of logits 3, 3, 1, 0, -1).
        assert_eq!(kept(Sampling { top_p: 0.5, ..off() }), [1, 2]);
        assert_eq!(kept(Sampling { top_p: 0.40, ..off() }), [1]);
        assert_eq!(kept(Sampling { min_p: 0.1, ..off() }), [1, 2, 0]);
        // Entropy is 1.01 nats; surprises 0.79, 0.79, 2.79, ...: the two likeliest are the most typical.
        assert_eq!(kept(Sampling { typical_p: 0.8, ..off() }), [1, 2]);
    }

    #[test]
    fn penalties_and_bias() {
        let greedy = Sampling::greedy;
        let pick = |s: Sampling, recent: &[u32]| sampler(s).sample(&LOGITS, recent);
        assert_eq!(pick(Sampling { presence_penalty: 0.5, ..greedy() }, &[1]), 2);
        assert_eq!(pick(Sampling { repeat_penalty: 2.0, ..greedy() }, &[1]), 2);
        assert_eq!(pick(Sampling { frequency_penalty: 1.1, ..greedy() }, &[1, 1, 2, 2]), 0);
        assert_eq!(pick(Sampling { logit_bias: vec![(3, 10.0)], ..greedy() }, &[]), 3);
        let forbid = vec![(1, f32::NEG_INFINITY), (2, f32::NEG_INFINITY)];
        assert_eq!(pick(Sampling { logit_bias: forbid, ..greedy() }, &[]), 0);
        // Outside the window nothing is penalised.
        assert_eq!(pick(Sampling { presence_penalty: 5.0, penalty_last_n: 1, ..greedy() }, &[1, 4]), 1);
    }

    #[test]
    fn draws_follow_the_probabilities_and_the_seed() {
        let mut s = sampler(Sampling { seed: 7, ..off() });
        let mut counts = [0u32; 5];
        let n = 20_000;
        for _ in 0..n {
            counts[s.sample(&LOGITS, &[]) as usize] += 1;
        }
        let sum: f64 = LOGITS.iter().map(|l| f64::from(*l).exp()).sum();
        for (count, logit) in counts.iter().zip(LOGITS) {
            let p = f64::from(logit).exp() / sum;
            let sd = (p * (1.0 - p) / f64::from(n)).sqrt();
            let share = f64::from(*count) / f64::from(n);
            assert!((share - p).abs() < 5.0 * sd, "{share} for {p}");
        }
        let draw = |seed| {
            let mut s = sampler(Sampling { seed, ..off() });
            (0..32).map(|_| s.sample(&LOGITS, &[])).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn only_allowed_tokens_are_drawn() {
        let pick = |settings: Sampling, allowed: &[u32]| {
            sampler(settings).sample_allowed(&LOGITS, &[], Some(allowed))
        };
        assert_eq!(pick(Sampling::greedy(), &[0b01001]), Some(0));
        assert_eq!(pick(Sampling::greedy(), &[0b01000]), Some(3));
        assert_eq!(pick(Sampling::greedy(), &[0]), None);
        assert_eq!(pick(off(), &[0]), None);
        assert_eq!(pick(off(), &[]), None, "what is beyond the end is not allowed");
        let forbid = vec![(3, f32::NEG_INFINITY)];
        assert_eq!(pick(Sampling { logit_bias: forbid.clone(), ..off() }, &[0b01000]), None);
        assert_eq!(pick(Sampling { logit_bias: forbid, ..Sampling::greedy() }, &[0b01000]), None);
        // Filters look at allowed tokens only: top-k and top-p of what is left, not of everything.
        assert_eq!(pick(Sampling { top_k: 1, ..off() }, &[0b11000]), Some(4));
        assert_eq!(pick(Sampling { top_p: 0.5, ..off() }, &[0b11000]), Some(4));
        // A mask that allows everything changes no draw.
        let settings = Sampling { seed: 5, ..Sampling::default() };
        let (mut free, mut masked) = (sampler(settings.clone()), sampler(settings));
        for _ in 0..64 {
            assert_eq!(Some(free.sample(&LOGITS, &[])), masked.sample_allowed(&LOGITS, &[], Some(&[!0])));
        }
        let mut s = sampler(Sampling { seed: 1, ..off() });
        let mut counts = [0u32; 5];
        for _ in 0..1000 {
            counts[s.sample_allowed(&LOGITS, &[], Some(&[0b10101])).expect("some are allowed") as usize] += 1;
        }
        assert!(counts[1] == 0 && counts[3] == 0 && counts[2] > counts[0] && counts[4] > 0, "{counts:?}");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let err = Sampler::new(Sampling { top_p: 1.5, ..off() }, 5).err().expect("refused");
        assert_eq!(err.to_string(), "sampling setting `top_p` is 1.5, expected more than 0, at most 1");
        let err = Sampler::new(Sampling { logit_bias: vec![(5, 1.0)], ..off() }, 5).err().expect("refused");
        assert!(err.to_string().contains("token 5"), "{err}");
        assert!(Sampler::new(Sampling { temperature: f32::NAN, ..off() }, 5).is_err());
    }
}
