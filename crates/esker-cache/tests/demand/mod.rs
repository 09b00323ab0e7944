//! Decoding with a demand that differs, or does not, between two size classes: what dividing the arena anew is worth.
//!
//! The layers of one class choose their experts from few, those of the other from many. Every miss is read at once; there is
//! no read-ahead, so that only what is kept in memory counts.
#![allow(dead_code, reason = "each user takes a part of it")]

#[path = "../dice/mod.rs"]
mod dice;

use dice::Rng;
use esker_cache::{
    Action, CacheConfig, ClassConfig, ClassId, ExpertCache, LayerConfig, Lookups, Phase, PolicyConfig,
    ReadAheadConfig, RebalanceConfig,
};

/// Layers of each class, experts of each layer, experts used.
pub const N_LAYERS: usize = 8;
pub const N_EXPERT: u16 = 64;
pub const TOP_K: u32 = 4;

/// What the two classes ask for.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Bytes of a slot.
    pub slot_bytes: [u64; 2],
    /// Experts of a layer that are popular: nine picks of ten are of these.
    pub n_popular: [u16; 2],
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Over the last half of the tokens.
    pub lookups: Lookups,
    /// Bytes read for a token of the last half.
    pub bytes_per_token: f64,
    pub moves: u64,
    /// Slots of each class in the end.
    pub n_slots: [u32; 2],
}

impl Outcome {
    pub fn hit_rate(&self) -> f64 {
        self.lookups.combined_hit_rate()
    }
}

pub fn config(
    demand: &Demand,
    n_slots: [u32; 2],
    policy: PolicyConfig,
    rebalance: RebalanceConfig,
) -> CacheConfig {
    let layer = |class: usize| LayerConfig {
        n_expert: N_EXPERT.into(),
        top_k: TOP_K,
        class: ClassId(class as u8),
        expert_bytes: demand.slot_bytes[class],
    };
    let class = |class: usize| ClassConfig { slot_bytes: demand.slot_bytes[class], n_slots: n_slots[class] };
    let layers = (0..2 * N_LAYERS).map(|il| layer(il % 2)).collect();
    let mut config = CacheConfig::new(layers, vec![class(0), class(1)], 8);
    config.read_ahead = ReadAheadConfig::OFF;
    config.policy = policy;
    config.rebalance = rebalance;
    config
}

/// A layer's picks: distinct, popular ones first in the order of the dice.
fn picks(rng: &mut Rng, layer: usize, n_popular: u16) -> Vec<u16> {
    let mut picks = Vec::new();
    while picks.len() < TOP_K as usize {
        let n = if rng.chance(90) { n_popular } else { N_EXPERT };
        // Every layer has other favourites.
        let expert = (rng.below(u64::from(n)) as u16 + 7 * layer as u16) % N_EXPERT;
        if !picks.contains(&expert) {
            picks.push(expert);
        }
    }
    picks
}

/// Decodes `n_tokens` tokens; `demand_of` says what each asks for.
pub fn decode(
    config: CacheConfig,
    n_tokens: usize,
    seed: u64,
    demand_of: impl Fn(usize) -> Demand,
) -> Outcome {
    let mut cache = ExpertCache::new(config).expect("valid");
    let mut rng = Rng::new(seed);
    let (mut actions, mut ready) = (Vec::new(), Vec::new());
    let arena = cache.config().arena_bytes();
    let n_slots = |cache: &ExpertCache| [0, 1].map(|class| cache.n_slots(ClassId(class)));
    let mut before = *cache.counters();
    for token in 0..n_tokens {
        if token == n_tokens / 2 {
            before = *cache.counters();
        }
        let demand = demand_of(token);
        cache.begin_step(Phase::Decode, &mut actions);
        carry_out(&mut cache, &mut actions, &mut ready);
        for layer in 0..2 * N_LAYERS {
            let experts = picks(&mut rng, layer, demand.n_popular[layer % 2]);
            cache.want(layer as u16, &experts, &mut actions);
            carry_out(&mut cache, &mut actions, &mut ready);
            assert_eq!(ready.len(), experts.len());
            for expert in ready.drain(..) {
                cache.release(layer as u16, expert, &mut actions);
            }
            carry_out(&mut cache, &mut actions, &mut ready);
        }
        let bytes: u64 = n_slots(&cache).iter().zip(demand.slot_bytes).map(|(&n, b)| u64::from(n) * b).sum();
        assert!(bytes <= arena, "token {token}: {bytes} bytes in slots of an arena of {arena}");
    }
    cache.check().expect("consistent");
    let c = cache.counters();
    Outcome {
        lookups: Lookups {
            hits: c.decode.hits - before.decode.hits,
            read_ahead_hits: 0,
            misses: c.decode.misses - before.decode.misses,
        },
        bytes_per_token: (c.bytes_read - before.bytes_read) as f64 / (n_tokens - n_tokens / 2) as f64,
        moves: c.moves,
        n_slots: n_slots(&cache),
    }
}

/// A disk and a system that take no time.
fn carry_out(cache: &mut ExpertCache, actions: &mut Vec<Action>, ready: &mut Vec<u16>) {
    let mut next = 0;
    while let Some(&action) = actions.get(next) {
        next += 1;
        match action {
            Action::Read { read, .. } => cache.read_done(read, true, actions),
            Action::Ready { expert, .. } => ready.push(expert.index),
            Action::Retire { slot } => cache.given_back(slot, actions),
            Action::Promote { .. } | Action::Fail { .. } | Action::Restore { .. } => {}
        }
    }
    actions.clear();
}

/// The best of fixed divisions of the same arena into about `n_steps` parts, by bytes read.
pub fn best_fixed(
    demand: Demand,
    n_slots: [u32; 2],
    policy: PolicyConfig,
    n_tokens: usize,
    seed: u64,
) -> Outcome {
    let [a, b] = demand.slot_bytes;
    let arena = u64::from(n_slots[0]) * a + u64::from(n_slots[1]) * b;
    let outcomes = (1..20).filter_map(|part| {
        let first = (arena * part / 20 / a) as u32;
        let second = ((arena - u64::from(first) * a) / b) as u32;
        (first >= TOP_K && second >= TOP_K).then(|| {
            decode(config(&demand, [first, second], policy, RebalanceConfig::OFF), n_tokens, seed, |_| demand)
        })
    });
    outcomes.min_by(|x, y| x.bytes_per_token.total_cmp(&y.bytes_per_token)).expect("some division works")
}
