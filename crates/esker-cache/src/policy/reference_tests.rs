//! Every policy in the cache against a naive version of it: lists that are scanned, scores that are all
//! decayed at every step, a future that is searched. Hits and contents must agree after every want.

use std::collections::VecDeque;

use super::*;
use crate::score::tests::Eager;
use crate::score::{DecayClock, HalvingClock, Unit};
use crate::simulation::Rng;
use crate::{
    Action, CacheConfig, ClassConfig, ClassId, ExpertCache, ExpertId, LayerConfig, ReadAheadConfig, Residency,
};

const N_LAYERS: usize = 4;
const N_EXPERT: usize = 24;
const TOP_K: usize = 3;
const N_STEPS: usize = 300;
/// Layers 0 and 1 share a class, layers 2 and 3 another one.
const N_SLOTS: [usize; 2] = [20, 9];

/// `[step][layer]`: the router's ranking, of which the first `TOP_K` are used.
type Trace = Vec<Vec<Vec<u16>>>;

/// Skewed, and drifting, so that policies differ.
fn trace(seed: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let mut offset = [0u16; N_LAYERS];
    let mut layer_ranking = |layer: usize| {
        if rng.chance(3) {
            offset[layer] = rng.below(N_EXPERT as u64) as u16;
        }
        let mut left: Vec<u16> = (0..N_EXPERT as u16).collect();
        let mut ranking = Vec::new();
        while let Some(n) = (left.len() as u64).checked_sub(1) {
            let index = rng.below(n + 1).min(rng.below(n + 1)).min(rng.below(n + 1));
            ranking.push((left.remove(index as usize) + offset[layer]) % N_EXPERT as u16);
        }
        ranking
    };
    (0..N_STEPS).map(|_| (0..N_LAYERS).map(&mut layer_ranking).collect()).collect()
}

fn number(layer: usize, index: u16) -> usize {
    layer * N_EXPERT + usize::from(index)
}

/// A policy as one would write it down.
trait Naive {
    fn begin_step(&mut self) {}
    fn wanted(&mut self, _expert: usize, _rank: usize, _resident: bool) {}
    fn near(&mut self, _expert: usize, _rank: usize) {}
    fn loaded(&mut self, _expert: usize) {}
    fn evicted(&mut self, _expert: usize) {}
    /// One of `candidates`, all of them of `class`.
    fn victim(&mut self, candidates: &[usize], class: usize, now: &Now) -> usize;
}

/// What is known about the time of an eviction.
struct Now<'a> {
    trace: &'a Trace,
    step: usize,
    layer: usize,
    /// When each expert was wanted last.
    last_use: &'a [u64],
}

struct Lru;
impl Naive for Lru {
    fn victim(&mut self, candidates: &[usize], _class: usize, now: &Now) -> usize {
        *candidates.iter().min_by_key(|&&e| now.last_use[e]).expect("not empty")
    }
}

/// All scoring policies: what differs is the unit's clock and what is credited.
struct Scores {
    clock: Box<dyn FnMut() -> Unit>,
    unit: Unit,
    scale: u32,
    scores: Eager,
    /// Share of the unit, as (numerator, denominator), by rank and by whether the expert was chosen.
    credit: fn(usize, bool) -> (u64, u64),
}

impl Scores {
    fn new(mut clock: Box<dyn FnMut() -> Unit>, credit: fn(usize, bool) -> (u64, u64)) -> Box<Scores> {
        let unit = clock();
        // Enough bits below the point for all halvings of the run: decays of 0.3 halve less than twice a step.
        let scores = Eager::new(N_LAYERS * N_EXPERT, 2 * N_STEPS as u64 + 2);
        Box::new(Scores { clock, unit, scale: 0, scores, credit })
    }

    fn decaying(decay: f64, credit: fn(usize, bool) -> (u64, u64)) -> Box<Scores> {
        let mut clock = DecayClock::new(decay);
        Scores::new(
            Box::new(move || {
                let unit = clock.unit();
                clock.step();
                unit
            }),
            credit,
        )
    }

    fn add(&mut self, expert: usize, (numerator, denominator): (u64, u64)) {
        // No credit is not a use: nothing is dropped either.
        if numerator > 0 {
            self.scores.add(expert, self.unit.share(numerator, denominator));
        }
    }
}

impl Naive for Scores {
    fn begin_step(&mut self) {
        self.unit = (self.clock)();
        self.scores.halve_all(self.unit.scale - self.scale);
        self.scale = self.unit.scale;
    }
    fn wanted(&mut self, expert: usize, rank: usize, _resident: bool) {
        self.add(expert, (self.credit)(rank, true));
    }
    fn near(&mut self, expert: usize, rank: usize) {
        self.add(expert, (self.credit)(rank, false));
    }
    fn victim(&mut self, candidates: &[usize], _class: usize, now: &Now) -> usize {
        let key = |&e: &usize| (self.scores.scaled[e].clone(), now.last_use[e]);
        *candidates.iter().min_by_key(|e| key(e)).expect("not empty")
    }
}

struct ProtectedLru {
    is_protected: Vec<bool>,
    slowdown: u64,
}
impl Naive for ProtectedLru {
    fn wanted(&mut self, expert: usize, _rank: usize, resident: bool) {
        self.is_protected[expert] |= resident;
    }
    fn evicted(&mut self, expert: usize) {
        self.is_protected[expert] = false;
    }
    fn victim(&mut self, candidates: &[usize], _class: usize, now: &Now) -> usize {
        let present = now.last_use.iter().max().expect("not empty");
        let slowdown = |e: usize| if self.is_protected[e] { 1 } else { self.slowdown };
        // Among equals the one on probation goes.
        let age = |&&e: &&usize| ((present - now.last_use[e]) * slowdown(e), !self.is_protected[e]);
        *candidates.iter().max_by_key(age).expect("not empty")
    }
}

struct S3Fifo {
    small: [VecDeque<usize>; 2],
    main: [VecDeque<usize>; 2],
    ghosts: [VecDeque<usize>; 2],
    uses: Vec<u32>,
    percent: usize,
}
impl S3Fifo {
    fn n_small_max(&self, class: usize) -> usize {
        (N_SLOTS[class] * self.percent / 100).max(1)
    }
}
impl Naive for S3Fifo {
    fn wanted(&mut self, expert: usize, _rank: usize, resident: bool) {
        if resident {
            self.uses[expert] = (self.uses[expert] + 1).min(3);
        }
    }
    fn loaded(&mut self, expert: usize) {
        let class = expert / N_EXPERT / 2;
        self.uses[expert] = 0;
        if let Some(i) = self.ghosts[class].iter().position(|&e| e == expert) {
            // The ghost's place in the queue stays taken until it would have left.
            self.ghosts[class][i] = usize::MAX;
            self.main[class].push_back(expert);
        } else {
            self.small[class].push_back(expert);
        }
    }
    fn victim(&mut self, candidates: &[usize], class: usize, _now: &Now) -> usize {
        let may_go = |e: &usize| candidates.contains(e);
        loop {
            let small = self.small[class].iter().position(may_go);
            let main = self.main[class].iter().position(may_go);
            let full = self.small[class].len() >= self.n_small_max(class);
            if if full { small.is_some() } else { main.is_none() } {
                let e = self.small[class].remove(small.expect("one of them has a candidate")).expect("found");
                if self.uses[e] > 1 {
                    self.uses[e] = 0;
                    self.main[class].push_back(e);
                } else {
                    self.ghosts[class].push_back(e);
                    if self.ghosts[class].len() > N_SLOTS[class] - self.n_small_max(class) {
                        self.ghosts[class].pop_front();
                    }
                    return e;
                }
            } else {
                let e = self.main[class].remove(main.expect("one of them has a candidate")).expect("found");
                if self.uses[e] == 0 {
                    return e;
                }
                self.uses[e] -= 1;
                self.main[class].push_back(e);
            }
        }
    }
}

struct Belady;

/// When the layer's expert is wanted after `step` (or in it, if the layer is still to come).
fn next_use(trace: &Trace, step: usize, layer_done: bool, layer: usize, index: u16) -> Option<usize> {
    let first = step + usize::from(layer_done);
    (first..trace.len()).find(|&s| trace[s][layer][..TOP_K].contains(&index)).map(|s| s * N_LAYERS + layer)
}

impl Naive for Belady {
    fn victim(&mut self, candidates: &[usize], _class: usize, now: &Now) -> usize {
        let when = |&e: &usize| {
            let (layer, index) = (e / N_EXPERT, (e % N_EXPERT) as u16);
            next_use(now.trace, now.step, layer <= now.layer, layer, index).unwrap_or(usize::MAX)
        };
        let farthest = |e: &&usize| (when(e), std::cmp::Reverse(now.last_use[**e]));
        *candidates.iter().max_by_key(farthest).expect("not empty")
    }
}

fn naive(policy: PolicyConfig) -> Box<dyn Naive> {
    match policy {
        PolicyConfig::Lru => Box::new(Lru),
        PolicyConfig::Lfu { half_life_steps, .. } => {
            let mut clock = HalvingClock::new(half_life_steps);
            let tick = move || {
                let unit = clock.unit();
                clock.step();
                unit
            };
            Scores::new(Box::new(tick), |_, chosen| (u64::from(chosen), 1))
        }
        PolicyConfig::Ema { decay, .. } => Scores::decaying(decay, |_, chosen| (u64::from(chosen), 1)),
        PolicyConfig::NearPickEma { decay, depth: 9, near_percent: 30, .. } => {
            Scores::decaying(decay, |rank, chosen| match (chosen, rank < 9) {
                (true, _) => (1, 1),
                (false, true) => (30, 100),
                (false, false) => (0, 1),
            })
        }
        PolicyConfig::InverseRouterEma { decay, depth: 7, .. } => {
            Scores::decaying(decay, |rank, _| (u64::from(rank < 7), rank as u64 + 1))
        }
        PolicyConfig::ProtectedLru { slowdown } => Box::new(ProtectedLru {
            is_protected: vec![false; N_LAYERS * N_EXPERT],
            slowdown: slowdown.into(),
        }),
        PolicyConfig::S3Fifo { small_percent } => Box::new(S3Fifo {
            small: Default::default(),
            main: Default::default(),
            ghosts: Default::default(),
            uses: vec![0; N_LAYERS * N_EXPERT],
            percent: small_percent.into(),
        }),
        PolicyConfig::Clairvoyant => Box::new(Belady),
        other => panic!("no naive version of {other:?}"),
    }
}

/// Runs the trace through the naive version: hits of each want, and the contents after it.
fn run_naive(policy: PolicyConfig, trace: &Trace) -> Vec<(usize, Vec<bool>)> {
    let mut naive = naive(policy);
    let mut resident = vec![false; N_LAYERS * N_EXPERT];
    let mut last_use = vec![0; N_LAYERS * N_EXPERT];
    let mut n_uses = 0;
    let mut log = Vec::new();
    for (step, layers) in trace.iter().enumerate() {
        naive.begin_step();
        for (layer, ranking) in layers.iter().enumerate() {
            let class = layer / 2;
            let chosen: Vec<usize> = ranking[..TOP_K].iter().map(|&i| number(layer, i)).collect();
            let hits = chosen.iter().filter(|&&e| resident[e]).count();
            for (rank, &e) in chosen.iter().enumerate() {
                n_uses += 1;
                last_use[e] = n_uses;
                naive.wanted(e, rank, resident[e]);
            }
            for &e in &chosen {
                if resident[e] {
                    continue;
                }
                let of_class = 2 * class * N_EXPERT..2 * (class + 1) * N_EXPERT;
                if of_class.clone().filter(|&e| resident[e]).count() == N_SLOTS[class] {
                    let candidates: Vec<usize> =
                        of_class.filter(|&e| resident[e] && !chosen.contains(&e)).collect();
                    let now = Now { trace, step, layer, last_use: &last_use };
                    let victim = naive.victim(&candidates, class, &now);
                    naive.evicted(victim);
                    resident[victim] = false;
                }
                resident[e] = true;
                naive.loaded(e);
            }
            for (rank, &index) in ranking.iter().enumerate().skip(TOP_K) {
                naive.near(number(layer, index), rank);
            }
            log.push((hits, resident.clone()));
        }
    }
    log
}

/// The same with the cache, on a disk that needs no time.
fn run_cache(policy: PolicyConfig, trace: &Trace) -> Vec<(usize, Vec<bool>)> {
    let layer = |class| LayerConfig {
        n_expert: N_EXPERT as u32,
        top_k: TOP_K as u32,
        class: ClassId(class),
        expert_bytes: 1,
    };
    let classes = N_SLOTS.map(|n| ClassConfig { slot_bytes: 1, n_slots: n as u32 });
    let mut config =
        CacheConfig::new(vec![layer(0), layer(0), layer(1), layer(1)], classes.to_vec(), TOP_K as u16);
    config.read_ahead = ReadAheadConfig::OFF;
    config.policy = policy;
    let mut cache = ExpertCache::new(config).expect("valid");
    let mut actions = Vec::new();
    let mut log = Vec::new();
    for (step, layers) in trace.iter().enumerate() {
        cache.begin_step(Phase::Decode, &mut actions);
        for (layer, ranking) in layers.iter().enumerate() {
            let il = layer as u16;
            for &index in &ranking[..TOP_K] {
                let when = next_use(trace, step, true, layer, index);
                cache.set_next_use(il, index, when.map_or(u64::MAX, |when| when as u64));
            }
            let before = cache.counters().decode.hits;
            cache.want(il, &ranking[..TOP_K], &mut actions);
            let hits = (cache.counters().decode.hits - before) as usize;
            for action in std::mem::take(&mut actions) {
                if let Action::Read { read, .. } = action {
                    cache.read_done(read, true, &mut actions);
                }
            }
            for &index in &ranking[..TOP_K] {
                cache.release(il, index, &mut actions);
            }
            actions.clear();
            cache.near_picks(il, ranking);
            let is_resident = |e: usize| {
                let id = ExpertId { layer: (e / N_EXPERT) as u16, index: (e % N_EXPERT) as u16 };
                matches!(cache.residency(id), Residency::Resident(_))
            };
            log.push((hits, (0..N_LAYERS * N_EXPERT).map(is_resident).collect()));
        }
    }
    log
}

fn check(policy: PolicyConfig) {
    for seed in 0..6 {
        let trace = trace(seed);
        let (expected, actual) = (run_naive(policy, &trace), run_cache(policy, &trace));
        for (i, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
            let (step, layer) = (i / N_LAYERS, i % N_LAYERS);
            assert_eq!(actual, expected, "{policy:?}, seed {seed}, step {step}, layer {layer}");
        }
        assert_eq!(actual.len(), N_STEPS * N_LAYERS);
    }
}

#[test]
fn lru() {
    check(PolicyConfig::Lru);
}

#[test]
fn lfu() {
    for half_life_steps in [1, 7, 1000] {
        check(PolicyConfig::Lfu { half_life_steps, prompt_steps: 0 });
    }
}

/// 0.9 and below outgrow any fixed-width number within the run.
#[test]
fn ema() {
    for decay in [0.999, 0.99, 0.9, 0.5, 0.3] {
        check(PolicyConfig::Ema { decay, prompt_steps: 0 });
    }
}

#[test]
fn near_pick_ema() {
    for decay in [0.99, 0.9, 0.3] {
        check(PolicyConfig::NearPickEma { decay, prompt_steps: 0, depth: 9, near_percent: 30 });
    }
}

#[test]
fn inverse_router_ema() {
    for decay in [0.99, 0.9, 0.3] {
        check(PolicyConfig::InverseRouterEma { decay, prompt_steps: 0, depth: 7 });
    }
}

#[test]
fn protected_lru() {
    for slowdown in [1, 2, 5, 255] {
        check(PolicyConfig::ProtectedLru { slowdown });
    }
}

#[test]
fn s3_fifo() {
    for small_percent in [5, 10, 50, 90] {
        check(PolicyConfig::S3Fifo { small_percent });
    }
}

#[test]
fn clairvoyant() {
    check(PolicyConfig::Clairvoyant);
}

/// The bound is one.
#[test]
fn nobody_beats_the_clairvoyant() {
    let hits = |policy, trace: &Trace| run_cache(policy, trace).iter().map(|want| want.0).sum::<usize>();
    for seed in 0..6 {
        let trace = trace(seed);
        let bound = hits(PolicyConfig::Clairvoyant, &trace);
        for name in PolicyConfig::NAMES {
            let policy = PolicyConfig::by_name(name).expect("listed");
            assert!(hits(policy, &trace) <= bound, "{name} beats the bound, seed {seed}");
        }
    }
}
