//! No allocation after construction: two hundred tokens and a prompt with every policy.

mod dice;
mod driver;

use dice::Rng;
use esker_cache::{
    Action, CacheConfig, ClassConfig, ClassId, ExpertCache, Phase, PolicyConfig, ReadAheadConfig, ReadId,
    RebalanceConfig, SlotId, Visibility,
};

const N_LAYERS: u16 = 6;
const N_EXPERT: u64 = 64;
const TOP_K: usize = 4;

struct Engine {
    cache: ExpertCache,
    actions: Vec<Action>,
    in_flight: Vec<ReadId>,
    ready: Vec<u16>,
    retired: Vec<SlotId>,
}

impl Engine {
    fn new(config: CacheConfig) -> Engine {
        Engine {
            cache: ExpertCache::new(config).expect("valid"),
            // The caller's lists, large enough.
            actions: Vec::with_capacity(1000),
            in_flight: Vec::with_capacity(1000),
            ready: Vec::with_capacity(1000),
            retired: Vec::with_capacity(1000),
        }
    }

    fn take_actions(&mut self) {
        loop {
            for action in self.actions.drain(..) {
                match action {
                    Action::Read { read, .. } => self.in_flight.push(read),
                    Action::Ready { expert, .. } => self.ready.push(expert.index),
                    Action::Retire { slot } => self.retired.push(slot),
                    _ => {}
                }
            }
            let Some(slot) = self.retired.pop() else { return };
            self.cache.given_back(slot, &mut self.actions);
        }
    }

    /// Two hundred steps, some of them prompts. Returns the number of allocations.
    fn run(&mut self) -> u64 {
        let mut rng = Rng::new(3);
        let info = allocation_counter::measure(|| {
            for t in 0..200 {
                let phase = if t % 50 == 49 { Phase::Prefill } else { Phase::Decode };
                self.step(phase, &mut rng);
            }
        });
        info.count_total
    }

    fn layer(&mut self, layer: u16, experts: &[u16], predicted: &[u16]) {
        self.cache.want(layer, experts, &mut self.actions);
        if layer + 1 < N_LAYERS {
            self.cache.read_ahead(layer + 1, predicted, &mut self.actions);
        }
        let mut n_done = 0;
        self.take_actions();
        while n_done < experts.len() {
            if let Some(expert) = self.ready.pop() {
                self.cache.release(layer, expert, &mut self.actions);
                n_done += 1;
            } else {
                let read = self.in_flight.remove(0);
                self.cache.read_done(read, true, &mut self.actions);
            }
            self.take_actions();
        }
        self.cache.near_picks(layer, predicted);
    }

    fn step(&mut self, phase: Phase, rng: &mut Rng) {
        while let Some(read) = self.in_flight.pop() {
            self.cache.read_done(read, true, &mut self.actions);
            self.take_actions();
        }
        self.cache.begin_step(phase, &mut self.actions);
        self.take_actions();
        for layer in 0..N_LAYERS {
            let first = rng.below(N_EXPERT).min(rng.below(N_EXPERT)) as u16;
            let mut experts = [0; TOP_K];
            for (i, e) in experts.iter_mut().enumerate() {
                *e = (first + 7 * i as u16) % N_EXPERT as u16;
            }
            let mut all = [0; N_EXPERT as usize];
            for (i, e) in all.iter_mut().enumerate() {
                *e = i as u16;
            }
            match phase {
                Phase::Decode => self.layer(layer, &experts, &experts),
                Phase::Prefill => self.layer(layer, &all, &experts),
            }
        }
    }
}

fn config(policy: PolicyConfig, visibility: Visibility) -> CacheConfig {
    let mut config = driver::config(N_LAYERS.into(), N_EXPERT as u32, TOP_K as u32, 60);
    config.policy = policy;
    config.visibility = visibility;
    config.read_ahead = ReadAheadConfig {
        per_layer_max: 6,
        in_flight_max: 4,
        demand_max: 0,
        window: 50,
        off_below_percent: 30,
        on_from_percent: 60,
    };
    config
}

#[test]
fn nothing_is_allocated_after_construction() {
    for name in PolicyConfig::NAMES {
        let policy = PolicyConfig::by_name(name).expect("listed");
        for visibility in [Visibility::Live, Visibility::Stepwise] {
            if policy == PolicyConfig::Clairvoyant && visibility == Visibility::Stepwise {
                continue;
            }
            let mut engine = Engine::new(config(policy, visibility));
            assert_eq!(engine.run(), 0, "{name}, {visibility:?}");
            assert!(engine.cache.counters().evictions > 1000, "{name}: too little happened");
        }
    }
    // The counter counts.
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
}

/// Two classes, and slots that go to and fro between them.
#[test]
fn moving_slots_allocates_nothing() {
    for visibility in [Visibility::Live, Visibility::Stepwise] {
        let mut config = config(PolicyConfig::Lru, visibility);
        config.classes.push(ClassConfig { slot_bytes: 256, n_slots: 60 });
        config.layers[3..].iter_mut().for_each(|layer| layer.class = ClassId(1));
        config.rebalance = RebalanceConfig { steps: 1, share_percent: 10, ratio_percent: 100, deviations: 0 };
        let mut engine = Engine::new(config);
        assert_eq!(engine.run(), 0, "{visibility:?}");
        let moves = engine.cache.counters().moves;
        println!("{visibility:?}: {moves} moves");
        assert!(moves > 0, "{visibility:?}: nothing moved");
    }
}
