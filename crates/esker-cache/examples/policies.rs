//! Hit rates of all policies, and what a decode step costs, on a synthetic router trace.
//!
//! What is modelled: 48 layers of 512 experts, 10 used. The logit of an expert is its general popularity
//! (Zipf, another order in each layer), plus a bonus if it belongs to the document's topic, plus noise of
//! which a part persists from token to token. What is not: any particular model. The order of policies on a
//! real model is what the replayer is for; this shows that they work, and how much there is to win.
//!
//! What is timed: the calls of the cache alone, all of them, for one decoded token on a disk that needs no
//! time (so that every miss is also a completion and an eviction within the step).
//!
//! `cargo run --release -p esker-cache --example policies -- [--tokens 600] [--slots 2500] [--seed 1]`

#[path = "../tests/dice/mod.rs"]
mod dice;

use std::time::{Duration, Instant};

use dice::Rng;
use esker_cache::{
    Action, CacheConfig, ClassConfig, ClassId, ExpertCache, LayerConfig, Phase, PolicyConfig,
    ReadAheadConfig, ReadId,
};

#[derive(Clone, Copy)]
struct Shape {
    n_layers: usize,
    n_expert: usize,
    top_k: usize,
    /// Ranks that are kept of each token, for near picks.
    depth: usize,
    n_tokens: usize,
    /// Tokens that fill the cache and are not counted.
    n_warm_up: usize,
}

/// `[token][layer][rank]`
struct Trace {
    shape: Shape,
    ranked: Vec<u16>,
}

impl Trace {
    fn ranked(&self, token: usize, layer: usize) -> &[u16] {
        &self.ranked[(token * self.shape.n_layers + layer) * self.shape.depth..][..self.shape.depth]
    }

    fn synthetic(shape: Shape, seed: u64) -> Trace {
        let mut rng = Rng::new(seed);
        let n = shape.n_expert;
        // An expert's popularity: -0.5 * ln(its place in a random order of the layer).
        let popularity: Vec<Vec<f32>> = (0..shape.n_layers)
            .map(|_| {
                let mut places: Vec<usize> = (0..n).collect();
                for i in (1..n).rev() {
                    places.swap(i, rng.below(i as u64 + 1) as usize);
                }
                places.into_iter().map(|place| -0.5 * ((place + 1) as f32).ln()).collect()
            })
            .collect();
        let mut topic = vec![vec![0.0f32; n]; shape.n_layers];
        let mut noise = vec![vec![0.0f32; n]; shape.n_layers];
        let mut ranked = Vec::with_capacity(shape.n_tokens * shape.n_layers * shape.depth);
        let mut order: Vec<u16> = Vec::new();
        for token in 0..shape.n_tokens {
            let new_document = token % 150 == 0;
            for layer in 0..shape.n_layers {
                if new_document {
                    topic[layer].fill_with(|| if rng.chance(8) { 1.5 } else { 0.0 });
                }
                for x in &mut noise[layer] {
                    // A sum of uniforms is normal enough.
                    let fresh = (0..3).map(|_| rng.unit() as f32 - 0.5).sum::<f32>() * 2.0;
                    *x = 0.6 * *x + 0.8 * fresh;
                }
                let logit = |e: &u16| {
                    let e = usize::from(*e);
                    popularity[layer][e] + topic[layer][e] + noise[layer][e]
                };
                let falling = |a: &u16, b: &u16| logit(b).total_cmp(&logit(a));
                order.clear();
                order.extend(0..n as u16);
                order.select_nth_unstable_by(shape.depth - 1, falling);
                order[..shape.depth].sort_by(falling);
                ranked.extend_from_slice(&order[..shape.depth]);
            }
        }
        Trace { shape, ranked }
    }

    /// For each pick of the trace, when the same expert is picked next.
    fn next_uses(&self) -> Vec<u64> {
        let Shape { n_layers, n_expert, top_k, n_tokens, .. } = self.shape;
        let mut next = vec![u64::MAX; n_layers * n_expert];
        let mut next_uses = vec![0; n_tokens * n_layers * top_k];
        for token in (0..n_tokens).rev() {
            for layer in (0..n_layers).rev() {
                for (rank, &e) in self.ranked(token, layer)[..top_k].iter().enumerate() {
                    let next = &mut next[layer * n_expert + usize::from(e)];
                    next_uses[(token * n_layers + layer) * top_k + rank] = *next;
                    *next = (token * n_layers + layer) as u64;
                }
            }
        }
        next_uses
    }
}

fn config(shape: Shape, n_slots: u32, policy: PolicyConfig) -> CacheConfig {
    let layer = LayerConfig {
        n_expert: shape.n_expert as u32,
        top_k: shape.top_k as u32,
        class: ClassId(0),
        expert_bytes: 1_382_400,
    };
    let class = ClassConfig { slot_bytes: 1_384_448, n_slots };
    let mut config = CacheConfig::new(vec![layer; shape.n_layers], vec![class], 16);
    config.read_ahead = ReadAheadConfig::OFF;
    config.policy = policy;
    config
}

struct Outcome {
    hit_rate: f64,
    read_ahead_rate: f64,
    misses_per_token: f64,
    /// Of a token's calls. The median: on a busy machine the mean measures the others.
    step_median: Duration,
    step_fastest: Duration,
    /// Of all reads in order: changes when a decision does, so that a faster cache is seen to decide alike.
    checksum: u64,
}

struct Run<'a> {
    trace: &'a Trace,
    cache: ExpertCache,
    actions: Vec<Action>,
    reads: Vec<ReadId>,
    checksum: u64,
}

impl Run<'_> {
    fn take_reads(&mut self) {
        for action in self.actions.drain(..) {
            if let Action::Read { read, expert, slot, .. } = action {
                self.reads.push(read);
                let word = u64::from(expert.layer) << 48 | u64::from(expert.index) << 32 | u64::from(slot.0);
                self.checksum = (self.checksum ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(17);
            }
        }
    }

    fn complete(&mut self, n: usize) {
        for _ in 0..n {
            if self.reads.is_empty() {
                return;
            }
            let read = self.reads.remove(0);
            self.cache.read_done(read, true, &mut self.actions);
            self.take_reads();
        }
    }

    /// One decoded token; `predicted` of each layer, if there is read-ahead.
    fn token(&mut self, token: usize, predicted: &[Vec<u16>]) {
        let shape = self.trace.shape;
        self.cache.begin_step(Phase::Decode, &mut self.actions);
        for layer in 0..shape.n_layers {
            let ranked = self.trace.ranked(token, layer);
            let il = layer as u16;
            self.cache.want(il, &ranked[..shape.top_k], &mut self.actions);
            if let Some(predicted) = predicted.get(layer + 1) {
                self.cache.read_ahead(il + 1, predicted, &mut self.actions);
            }
            self.take_reads();
            // Demand completes; of what is read ahead, six reads while the layer computes.
            let n_demand = self.reads.len();
            self.complete(n_demand + if predicted.is_empty() { usize::MAX - n_demand } else { 6 });
            for &e in &ranked[..shape.top_k] {
                self.cache.release(il, e, &mut self.actions);
            }
            self.take_reads();
            self.cache.near_picks(il, ranked);
        }
    }
}

fn run(trace: &Trace, config: CacheConfig, accuracy_percent: Option<u64>) -> Outcome {
    let shape = trace.shape;
    let next_uses = (config.policy == PolicyConfig::Clairvoyant).then(|| trace.next_uses());
    let mut run = Run {
        trace,
        cache: ExpertCache::new(config).expect("valid"),
        actions: Vec::with_capacity(4096),
        reads: Vec::with_capacity(4096),
        checksum: 0,
    };
    let mut rng = Rng::new(99);
    let mut times = Vec::new();
    let mut before = *run.cache.counters();
    for token in 0..shape.n_tokens {
        if token == shape.n_warm_up {
            before = *run.cache.counters();
        }
        if let Some(next_uses) = &next_uses {
            for layer in 0..shape.n_layers {
                for (rank, &e) in trace.ranked(token, layer)[..shape.top_k].iter().enumerate() {
                    let when = next_uses[(token * shape.n_layers + layer) * shape.top_k + rank];
                    run.cache.set_next_use(layer as u16, e, when);
                }
            }
        }
        let mut predicted = Vec::new();
        if let Some(accuracy) = accuracy_percent {
            predicted.extend((0..shape.n_layers).map(|layer| {
                let ranked = trace.ranked(token, layer);
                let n_near = (shape.depth - shape.top_k) as u64;
                // A wrong guess is a near one.
                let near = |rng: &mut Rng| ranked[shape.top_k + rng.below(n_near) as usize];
                let picks = ranked[..shape.top_k].iter();
                picks.map(|&e| if rng.chance(accuracy) { e } else { near(&mut rng) }).collect::<Vec<u16>>()
            }));
        }
        let start = Instant::now();
        run.token(token, &predicted);
        if token >= shape.n_warm_up {
            times.push(start.elapsed());
        }
    }
    run.cache.check().expect("consistent");
    let c = run.cache.counters();
    let lookups = (c.decode.total() - before.decode.total()) as f64;
    times.sort();
    Outcome {
        hit_rate: (c.decode.hits - before.decode.hits) as f64 / lookups,
        read_ahead_rate: (c.decode.read_ahead_hits - before.decode.read_ahead_hits) as f64 / lookups,
        misses_per_token: (c.decode.misses - before.decode.misses) as f64 / times.len() as f64,
        step_median: times[times.len() / 2],
        step_fastest: times[0],
        checksum: run.checksum,
    }
}

fn print(name: &str, n_slots: u32, o: &Outcome) {
    println!(
        "{name:<20} {n_slots:>6} {:>7.2} {:>7.2} {:>9.1} {:>9.1} {:>9.1}  {:016x}",
        o.hit_rate * 100.0,
        o.read_ahead_rate * 100.0,
        o.misses_per_token,
        o.step_median.as_secs_f64() * 1e6,
        o.step_fastest.as_secs_f64() * 1e6,
        o.checksum
    );
}

fn table(trace: &Trace, sizes: &[u32]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    println!("policy                slots  hits %  ahead % miss/token  median µs   best µs  decisions");
    for &n_slots in sizes {
        let usual = |name| (name, PolicyConfig::by_name(name).expect("listed"));
        let mut policies: Vec<(&str, PolicyConfig)> = PolicyConfig::NAMES.into_iter().map(usual).collect();
        policies.insert(0, ("ema, decay 0.9", PolicyConfig::Ema { decay: 0.9, prompt_steps: 32 }));
        policies.insert(0, ("ema, decay 0.8", PolicyConfig::Ema { decay: 0.8, prompt_steps: 32 }));
        for (name, policy) in policies {
            let outcome = run(trace, config(trace.shape, n_slots, policy), None);
            print(name, n_slots, &outcome);
            outcomes.push(outcome);
        }
    }
    println!("\nwith read-ahead of the next layer, LRU; the share of right predictions in the name");
    for &n_slots in sizes {
        for accuracy in [90, 60, 30, 10] {
            let mut config = config(trace.shape, n_slots, PolicyConfig::Lru);
            config.read_ahead =
                CacheConfig::new(config.layers.clone(), config.classes.clone(), 16).read_ahead;
            let outcome = run(trace, config, Some(accuracy));
            print(&format!("read-ahead {accuracy} %"), n_slots, &outcome);
            outcomes.push(outcome);
        }
    }
    outcomes
}

fn main() {
    let mut sizes = vec![];
    let (mut n_tokens, mut seed) = (600, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--tokens", Some(value @ 10..)) => n_tokens = value as usize,
            ("--slots", Some(value)) => sizes.push(value as u32),
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: policies [--tokens N, at least 10] [--slots N]... [--seed S]");
                std::process::exit(2);
            }
        }
    }
    if sizes.is_empty() {
        sizes = vec![2_500, 600, 6_000, 12_000, 24_576];
    }
    let shape =
        Shape { n_layers: 48, n_expert: 512, top_k: 10, depth: 24, n_tokens, n_warm_up: n_tokens / 3 };
    let trace = Trace::synthetic(shape, seed);
    println!("{} layers x {} experts, {} used, {n_tokens} tokens, seed {seed}", 48, 512, 10);
    table(&trace, &sizes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoke() {
        let shape = Shape { n_layers: 4, n_expert: 64, top_k: 4, depth: 12, n_tokens: 60, n_warm_up: 20 };
        let trace = Trace::synthetic(shape, 1);
        let outcomes = table(&trace, &[60]);
        let [policies @ .., _, _, _, _] = &outcomes[..] else { panic!("four read-ahead lines") };
        let bound = policies.last().expect("the clairvoyant comes last");
        for outcome in policies {
            assert!(outcome.hit_rate > 0.2 && outcome.hit_rate <= bound.hit_rate, "{}", outcome.hit_rate);
        }
        assert!(outcomes[policies.len()].read_ahead_rate > 0.1, "good predictions help");
    }
}
