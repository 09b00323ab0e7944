//! What cache-aware routing may see, and that two runs of a prompt make the same choices.
//!
//! Real systems have read the live map twice within a decision, counted reads in flight as resident, and used
//! a built-in expert count on a pruned model; each is a test here.

mod dice;
mod driver;

use dice::Rng;
use driver::{Driver, config, ready};
use esker_cache::{
    Action, CacheConfig, ClassConfig, ClassId, ExpertCache, ExpertId, Phase, PolicyConfig, Priority,
    ReadAheadConfig, ReadId, RebalanceConfig, Residency, Visibility,
};

#[test]
fn a_read_in_flight_is_not_residency() {
    let mut driver = Driver::new(config(1, 4, 2, 4));
    driver.begin(Phase::Decode);
    driver.want(0, &[1, 2]);
    assert_eq!(driver.mask(0), [false; 4]);
    driver.complete(0, true);
    assert_eq!(driver.mask(0), [false, true, false, false]);
}

#[test]
fn a_failed_read_is_never_residency() {
    let mut driver = Driver::new(config(1, 4, 2, 4));
    driver.begin(Phase::Decode);
    driver.want(0, &[1]);
    driver.complete(0, false);
    assert_eq!(driver.mask(0), [false; 4]);
    let actions = driver.complete(0, false);
    assert!(matches!(actions[..], [Action::Fail { expert: ExpertId { layer: 0, index: 1 }, .. }]));
    assert_eq!(driver.mask(0), [false; 4]);
}

#[test]
fn what_routing_sees_changes_only_between_steps() {
    let mut config = config(1, 4, 2, 2);
    config.visibility = Visibility::Stepwise;
    let mut driver = Driver::new(config);
    driver.begin(Phase::Decode);
    driver.use_experts(0, &[0, 1]);
    assert!(driver.is_resident(0, 0));
    assert_eq!(driver.mask(0), [false; 4], "completed in this step");
    driver.begin(Phase::Decode);
    assert_eq!(driver.mask(0), [true, true, false, false]);
    driver.use_experts(0, &[2, 3]);
    assert!(!driver.is_resident(0, 0));
    assert_eq!(driver.mask(0), [true, true, false, false], "evicted in this step");
    driver.begin(Phase::Decode);
    assert_eq!(driver.mask(0), [false, false, true, true]);
}

/// With lambda = 0 routing cannot see the map, so nothing is waited for.
#[test]
fn a_live_map_waits_for_nothing() {
    let mut config = config(2, 8, 2, 16);
    config.read_ahead = read_ahead();
    let mut driver = Driver::new(config);
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[3]);
    assert_eq!(driver.in_flight.len(), 1);
    driver.begin(Phase::Decode);
    assert_eq!(driver.in_flight.len(), 1);
}

#[test]
#[should_panic(expected = "only when no read is queued or in flight")]
fn a_stepwise_map_waits_for_reads() {
    let mut config = config(2, 8, 2, 16);
    config.visibility = Visibility::Stepwise;
    config.read_ahead = read_ahead();
    let mut driver = Driver::new(config);
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[3]);
    driver.begin(Phase::Decode);
}

/// A file pruned to 256 of 512 experts has 256.
#[test]
#[should_panic(expected = "layer 0 has 256 experts")]
fn a_mask_has_the_files_number_of_experts() {
    let driver = Driver::new(config(1, 256, 8, 64));
    driver.cache.resident_mask(0, &mut [false; 512]);
}

#[test]
fn layers_may_differ_in_their_number_of_experts() {
    let mut config = config(2, 256, 8, 64);
    config.layers[1].n_expert = 100;
    let mut driver = Driver::new(config);
    driver.begin(Phase::Decode);
    driver.use_experts(0, &[255]);
    driver.use_experts(1, &[99]);
    assert_eq!(driver.mask(0).iter().rposition(|&bit| bit), Some(255));
    assert_eq!(driver.mask(1).iter().rposition(|&bit| bit), Some(99));
}

fn read_ahead() -> ReadAheadConfig {
    ReadAheadConfig {
        per_layer_max: 6,
        in_flight_max: 4,
        demand_max: 0,
        window: 40,
        off_below_percent: 20,
        on_from_percent: 30,
    }
}

/// What a run decided: the contents of all slots at the start of each step, and each want.
#[derive(Debug, Default, PartialEq)]
struct Decisions {
    contents: Vec<Vec<Option<u32>>>,
    wants: Vec<Vec<u16>>,
    /// Slots of each class at the start of each step.
    division: Vec<Vec<u32>>,
}

/// An engine that routes by the mask it is shown, on a disk with a temper of its own.
struct Engine {
    cache: ExpertCache,
    /// Timing: which read completes next, which expert is released next, when.
    timing: Rng,
    in_flight: Vec<(ReadId, ExpertId, Priority)>,
    /// Experts whose last read failed.
    failed: Vec<ExpertId>,
    held: Vec<u16>,
    n_awaited: usize,
    decisions: Decisions,
}

impl Engine {
    fn take(&mut self, actions: &[Action]) {
        for action in actions {
            match *action {
                Action::Read { read, expert, priority, .. } => self.in_flight.push((read, expert, priority)),
                Action::Ready { expert, .. } => {
                    self.held.push(expert.index);
                    self.n_awaited -= 1;
                }
                _ => {}
            }
        }
    }

    fn complete_one(&mut self) {
        let index = self.timing.below(self.in_flight.len() as u64) as usize;
        let (read, expert, priority) = self.in_flight.swap_remove(index);
        // Bad luck is part of timing, as long as the second attempt works.
        let again = self.failed.iter().position(|&e| e == expert).map(|i| self.failed.swap_remove(i));
        let ok = priority != Priority::Demand || again.is_some() || self.timing.chance(90);
        if !ok {
            self.failed.push(expert);
        }
        let mut actions = Vec::new();
        self.cache.read_done(read, ok, &mut actions);
        self.take(&actions);
    }

    fn release_one(&mut self, layer: u16) {
        let index = self.timing.below(self.held.len() as u64) as usize;
        let expert = self.held.swap_remove(index);
        let mut actions = Vec::new();
        self.cache.release(layer, expert, &mut actions);
        self.take(&actions);
    }

    /// Wants experts, predicts the next layer's, computes in whatever order.
    fn run_layer(&mut self, layer: u16, experts: Vec<u16>, predicted: Option<Vec<u16>>) {
        let mut actions = Vec::new();
        self.n_awaited += experts.len();
        self.cache.want(layer, &experts, &mut actions);
        if let Some(predicted) = predicted {
            self.cache.read_ahead(layer + 1, &predicted, &mut actions);
        }
        self.take(&actions);
        self.decisions.wants.push(experts);
        while self.n_awaited + self.held.len() > 0 {
            let may_complete = !self.in_flight.is_empty();
            if may_complete && (self.held.is_empty() || self.timing.chance(50)) {
                self.complete_one();
            } else {
                self.release_one(layer);
            }
        }
        while !self.in_flight.is_empty() && self.timing.chance(60) {
            self.complete_one();
        }
    }

    fn begin(&mut self, phase: Phase) {
        while !self.cache.is_quiet() {
            self.complete_one();
        }
        let mut actions = Vec::new();
        self.cache.begin_step(phase, &mut actions);
        let mut next = 0;
        while let Some(&action) = actions.get(next) {
            next += 1;
            if let Action::Retire { slot } = action {
                self.cache.given_back(slot, &mut actions);
            }
        }
        self.take(&actions);
        self.cache.check().expect("consistent");
        let classes = || (0..self.cache.config().classes.len() as u8).map(ClassId);
        self.decisions.division.push(classes().map(|class| self.cache.n_slots(class)).collect());
        let n_slots: u32 = classes().map(|class| self.cache.config().slots_max(class)).sum();
        let mut contents = vec![None; n_slots as usize];
        for (layer, l) in self.cache.config().layers.iter().enumerate() {
            for index in 0..l.n_expert as u16 {
                let id = ExpertId { layer: layer as u16, index };
                if let Residency::Resident(slot) = self.cache.residency(id) {
                    contents[slot.0 as usize] = Some(layer as u32 * 1000 + u32::from(index));
                }
            }
        }
        self.decisions.contents.push(contents);
    }

    /// Ranks by random logits, with a bonus for what is shown as resident, but the first from raw ones.
    fn route(&self, router: &mut Rng, layer: u16) -> (Vec<u16>, Vec<u16>) {
        let l = self.cache.config().layers[usize::from(layer)];
        let mut mask = vec![false; l.n_expert as usize];
        self.cache.resident_mask(layer, &mut mask);
        let logits: Vec<u64> =
            (0..l.n_expert).map(|e| router.below(1000) + 400 / (1 + u64::from(e) % 7)).collect();
        let mut ranked: Vec<u16> = (0..l.n_expert as u16).collect();
        ranked.sort_by_key(|&e| std::cmp::Reverse(logits[usize::from(e)]));
        let bonus = |e: &u16| logits[usize::from(*e)] + 300 * u64::from(mask[usize::from(*e)]);
        let mut picks = ranked.clone();
        picks[1..].sort_by_key(|e| std::cmp::Reverse(bonus(e)));
        picks.truncate(l.top_k as usize);
        (picks, ranked)
    }
}

fn run(config: CacheConfig, timing_seed: u64, router_seed: u64) -> Decisions {
    let mut router = Rng::new(router_seed);
    let mut engine = Engine {
        cache: ExpertCache::new(config).expect("valid"),
        timing: Rng::new(timing_seed),
        in_flight: Vec::new(),
        failed: Vec::new(),
        held: Vec::new(),
        n_awaited: 0,
        decisions: Decisions::default(),
    };
    let n_layers = engine.cache.config().layers.len() as u16;
    for step in 0..60 {
        let prefill = step % 20 < 2;
        engine.begin(if prefill { Phase::Prefill } else { Phase::Decode });
        for layer in 0..n_layers {
            let (mut experts, ranked) = engine.route(&mut router, layer);
            let predicted = (!prefill && layer + 1 < n_layers).then(|| {
                let accuracy = if step > 40 { 0 } else { 80 };
                let (guess, _) = engine.route(&mut router.clone(), layer + 1);
                guess.into_iter().map(|e| if router.chance(accuracy) { e } else { 0 }).collect()
            });
            if prefill {
                let counts: Vec<(u16, u32)> = ranked.iter().map(|&e| (e, u32::from(e) % 9)).collect();
                engine.cache.prompt_counts(layer, 8, &counts);
                experts = ranked[..ranked.len() * 3 / 4].to_vec();
            }
            engine.run_layer(layer, experts, predicted);
            if !prefill {
                engine.cache.near_picks(layer, &ranked[..8]);
            }
        }
    }
    engine.decisions
}

fn stepwise(policy: PolicyConfig, n_slots: u32, reads_max: u16) -> CacheConfig {
    let mut config = config(4, 30, 3, n_slots);
    config.visibility = Visibility::Stepwise;
    config.policy = policy;
    config.reads_max = reads_max;
    config.prompt_slots = 5;
    config.read_ahead = read_ahead();
    config.read_ahead.in_flight_max = reads_max.min(3);
    config
}

/// The promise of cache-aware routing: the same prompt gives the same tokens.
#[test]
fn decisions_do_not_depend_on_the_disk() {
    for name in PolicyConfig::NAMES {
        let policy = PolicyConfig::by_name(name).expect("listed");
        if policy == PolicyConfig::Clairvoyant {
            continue;
        }
        for (n_slots, reads_max) in [(3, 1), (8, 2), (24, 4), (40, 16), (200, 8)] {
            for router_seed in 0..3 {
                let config = stepwise(policy, n_slots, reads_max);
                let expected = run(config.clone(), 1, router_seed);
                for timing_seed in 2..6 {
                    let actual = run(config.clone(), timing_seed, router_seed);
                    assert!(actual == expected, "{name}, {n_slots} slots, {reads_max} reads, {timing_seed}");
                }
            }
        }
    }
}

/// The same with two classes among which slots move: when they move, and which, is part of what is the same.
#[test]
fn moves_between_classes_do_not_depend_on_the_disk() {
    for name in PolicyConfig::NAMES {
        let policy = PolicyConfig::by_name(name).expect("listed");
        if policy == PolicyConfig::Clairvoyant {
            continue;
        }
        let mut n_divisions = 0;
        for router_seed in 0..4 {
            let mut config = stepwise(policy, 30, 4);
            config.classes.push(ClassConfig { slot_bytes: 300, n_slots: 12 });
            for layer in 2..4 {
                config.layers[layer].class = ClassId(1);
            }
            config.rebalance =
                RebalanceConfig { steps: 2, share_percent: 10, ratio_percent: 100, deviations: 0 };
            let expected = run(config.clone(), 1, router_seed);
            for timing_seed in 2..6 {
                let actual = run(config.clone(), timing_seed, router_seed);
                assert!(actual == expected, "{name}, {timing_seed}");
            }
            let mut divisions = expected.division;
            divisions.dedup();
            n_divisions += divisions.len();
        }
        assert!(n_divisions > 8, "{name}: only {n_divisions} divisions in 4 runs");
    }
}

/// The test above would notice: with a live map the same engine does depend on the disk.
#[test]
fn decisions_on_a_live_map_depend_on_the_disk() {
    let mut config = stepwise(PolicyConfig::Lru, 40, 4);
    config.visibility = Visibility::Live;
    let runs: Vec<Decisions> = (1..6).map(|timing_seed| run(config.clone(), timing_seed, 0)).collect();
    assert!(runs.iter().any(|r| *r != runs[0]));
}

/// Without read-ahead and without prompts, hits and misses do not depend on the disk even with a live map, so
/// that a trace of wants alone replays to the same counts.
#[test]
fn decode_counts_follow_from_the_wants_alone() {
    for name in PolicyConfig::NAMES {
        let mut counts = Vec::new();
        for timing_seed in 0..4 {
            let mut config = config(4, 30, 3, 40);
            config.policy = PolicyConfig::by_name(name).expect("listed");
            config.reads_max = 2;
            let mut engine = Engine {
                cache: ExpertCache::new(config).expect("valid"),
                timing: Rng::new(timing_seed),
                in_flight: Vec::new(),
                failed: Vec::new(),
                held: Vec::new(),
                n_awaited: 0,
                decisions: Decisions::default(),
            };
            let mut router = Rng::new(7);
            for _ in 0..50 {
                engine.cache.begin_step(Phase::Decode, &mut Vec::new());
                for layer in 0..4 {
                    let experts = dice::distinct(&mut router, 30, 3);
                    engine.run_layer(layer, experts, None);
                }
            }
            counts.push((engine.cache.counters().decode, engine.cache.layer_counters().to_vec()));
        }
        assert!(counts.iter().all(|c| *c == counts[0]), "{name}: {counts:?}");
    }
}

/// Each want is answered once, also when two sessions want the same expert.
#[test]
fn sessions_that_share_an_expert_both_hold_it() {
    let mut driver = Driver::new(config(1, 4, 2, 2));
    driver.begin(Phase::Decode);
    driver.want(0, &[1]);
    driver.want(0, &[1]);
    assert_eq!(ready(&driver.complete(0, true)), [1, 1]);
    driver.release(0, &[1]);
    driver.use_experts(0, &[2]);
    driver.want(0, &[3]);
    driver.complete_all();
    assert!(driver.is_resident(0, 1), "one session still holds it");
}
