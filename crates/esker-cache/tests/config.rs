//! What is refused, and in which words.

mod driver;

use esker_cache::{
    CacheConfig, ClassConfig, ClassId, ConfigError, ExpertCache, PolicyConfig, ReadAheadConfig,
    RebalanceConfig, ResizeError, Visibility,
};

fn check(change: impl FnOnce(&mut CacheConfig), expected: &str) {
    let mut config = driver::config(2, 8, 2, 6);
    change(&mut config);
    let error = ExpertCache::new(config).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn layers_are_checked() {
    check(|c| c.layers.clear(), "`layers` has 0 entries, expected 1 to 65535");
    check(|c| c.layers[1].n_expert = 0, "layer 1: `n_expert` is 0, expected 1 to 65536");
    check(|c| c.layers[1].n_expert = 65_537, "layer 1: `n_expert` is 65537, expected 1 to 65536");
    check(|c| c.layers[0].top_k = 0, "layer 0: `top_k` is 0, expected 1 to `n_expert` = 8");
    check(|c| c.layers[0].top_k = 9, "layer 0: `top_k` is 9, expected 1 to `n_expert` = 8");
    check(|c| c.layers[0].class = ClassId(1), "layer 0: `class` is 1, but there are 1 classes");
    check(|c| c.layers[0].expert_bytes = 129, "layer 0: `expert_bytes` is 129, expected 1 to the slot's 128");
    check(|c| c.layers[0].expert_bytes = 0, "layer 0: `expert_bytes` is 0, expected 1 to the slot's 128");
    // A file that claims this must not make the cache allocate for it.
    check(
        |c| {
            c.layers[0].n_expert = 65_536;
            c.layers = vec![c.layers[0]; 65];
        },
        "4259840 experts in all layers, at most 4194304 are supported",
    );
}

#[test]
fn classes_are_checked() {
    check(|c| c.classes.clear(), "`classes` has 0 entries, expected 1 to 256");
    check(
        |c| c.classes[0].n_slots = 1,
        "class 0 has 1 slots, but one token needs 2 of them at once: the smallest that works is 2",
    );
    check(|c| c.classes.push(ClassConfig { slot_bytes: 1, n_slots: 9 }), "class 1 is used by no layer");
    check(
        |c| c.classes[0].n_slots = 4_194_305,
        "4194305 slots in all classes, at most 4194304 are supported",
    );
    check(|c| c.classes[0].slot_bytes = u64::MAX, "the slots up to class 0 have more than 2^64 bytes");
}

#[test]
fn rebalancing_is_checked_and_makes_room() {
    let expected = "`rebalance`: a share of 0 %, a ratio of 125 %; expected a share of 1 to 50 and a ratio of at least 100";
    check(|c| c.rebalance = RebalanceConfig { share_percent: 0, ..RebalanceConfig::ON }, expected);
    let expected = "`rebalance`: a share of 3 %, a ratio of 99 %; expected a share of 1 to 50 and a ratio of at least 100";
    check(|c| c.rebalance = RebalanceConfig { ratio_percent: 99, ..RebalanceConfig::ON }, expected);

    let mut config = driver::config(2, 40, 2, 6);
    config.layers[1].class = ClassId(1);
    config.classes.push(ClassConfig { slot_bytes: 300, n_slots: 5 });
    assert_eq!(config.arena_bytes(), 6 * 128 + 5 * 300);
    assert_eq!([0, 1].map(|class| config.slots_max(ClassId(class))), [6, 5], "off");
    config.rebalance = RebalanceConfig::ON;
    // 2268 bytes, of which two slots of the other class stay: 1668 for slots of 128, 2012 for slots of 300.
    assert_eq!([0, 1].map(|class| config.slots_max(ClassId(class))), [13, 6]);
    config.layers[0].n_expert = 9;
    assert_eq!(config.slots_max(ClassId(0)), 9, "no more than it has experts");
    config.layers[0].n_expert = 4;
    assert_eq!(config.slots_max(ClassId(0)), 6, "but those that it begins with");
}

#[test]
fn the_smallest_class_that_works_works() {
    let config = driver::config(2, 8, 2, 2);
    assert_eq!(config.slots_min(ClassId(0)), 2);
    let mut driver = driver::Driver::new(config);
    driver.begin(esker_cache::Phase::Decode);
    driver.use_experts(0, &[1, 2]);
    driver.use_experts(1, &[1, 2]);
}

#[test]
fn reads_are_checked() {
    check(|c| c.reads_max = 0, "`reads_max` is 0, expected 1 to 4096");
    check(|c| c.reads_max = 4097, "`reads_max` is 4097, expected 1 to 4096");
    check(
        |c| c.read_ahead.in_flight_max = 17,
        "`read_ahead.in_flight_max` is 17, expected at most `reads_max` = 16",
    );
    let window = "`read_ahead`: window 0, off below 0 %, on from 0 %; expected a window of at least 1 and off <= on <= 100";
    check(|c| c.read_ahead = ReadAheadConfig { window: 0, ..ReadAheadConfig::OFF }, window);
    let order = "`read_ahead`: window 1, off below 50 %, on from 40 %; expected a window of at least 1 and off <= on <= 100";
    check(
        |c| {
            c.read_ahead.off_below_percent = 50;
            c.read_ahead.on_from_percent = 40;
        },
        order,
    );
}

#[test]
fn policies_are_checked() {
    let ema = |decay| PolicyConfig::Ema { decay, prompt_steps: 0 };
    for decay in [0.0, 1.0, f64::NAN, -1.0, 0.009] {
        let expected = format!("policy `ema`: `decay` is {decay}, expected 0.01 to 0.99999");
        check(|c| c.policy = ema(decay), &expected);
    }
    check(
        |c| c.policy = PolicyConfig::Lfu { half_life_steps: 0, prompt_steps: 0 },
        "policy `lfu`: `half_life_steps` is 0, expected at least 1",
    );
    check(
        |c| c.policy = PolicyConfig::InverseRouterEma { decay: 0.9, prompt_steps: 0, depth: 0 },
        "policy `inverse-router-ema`: `depth` is 0, expected at least 1",
    );
    check(
        |c| {
            c.policy = PolicyConfig::NearPickEma { decay: 0.9, prompt_steps: 0, depth: 9, near_percent: 101 };
        },
        "policy `near-pick-ema`: `near_percent` is 101, expected at most 100 percent",
    );
    check(
        |c| c.policy = PolicyConfig::ProtectedLru { slowdown: 0 },
        "policy `protected-lru`: `slowdown` is 0, expected at least 1",
    );
    check(
        |c| c.policy = PolicyConfig::S3Fifo { small_percent: 0 },
        "policy `s3-fifo`: `small_percent` is 0, expected 1 to 99 percent",
    );
}

/// The future depends on the choices, so there is no bound to compute.
#[test]
fn the_clairvoyant_refuses_cache_aware_routing() {
    let mut config = driver::config(2, 8, 2, 6);
    config.policy = PolicyConfig::Clairvoyant;
    config.visibility = Visibility::Stepwise;
    assert_eq!(ExpertCache::new(config).err(), Some(ConfigError::ClairvoyantRouting));
}

#[test]
fn resizing_is_checked() {
    let mut cache = ExpertCache::new(driver::config(2, 8, 2, 6)).expect("valid");
    let mut actions = Vec::new();
    let class = ClassId(0);
    assert_eq!(
        cache.shrink(class, 1, &mut actions),
        Err(ResizeError::TooFewSlots { class: 0, asked: 1, slots_min: 2 })
    );
    assert_eq!(
        cache.grow(class, 7, &mut actions),
        Err(ResizeError::TooManySlots { class: 0, asked: 7, made: 6 })
    );
    assert_eq!(
        cache.shrink(ClassId(1), 3, &mut actions),
        Err(ResizeError::UnknownClass { class: 1, classes: 1 })
    );
    assert!(actions.is_empty());
}

/// Slots lie one after the other, class by class, inside the arena that the plan paid for.
#[test]
fn slots_fill_the_arena_without_overlap() {
    let mut config = driver::config(2, 8, 2, 6);
    config.layers[1].class = ClassId(1);
    config.classes.push(ClassConfig { slot_bytes: 100, n_slots: 3 });
    let arena_bytes: u64 = config.classes.iter().map(|c| c.slot_bytes * u64::from(c.n_slots)).sum();
    let cache = ExpertCache::new(config).expect("valid");
    let mut end = 0;
    for slot in 0..9 {
        let place = cache.slot_place(esker_cache::SlotId(slot));
        assert_eq!(place.offset_bytes, end);
        assert_eq!(
            (place.class, place.index),
            if slot < 6 { (ClassId(0), slot) } else { (ClassId(1), slot - 6) }
        );
        end += place.len_bytes;
    }
    assert_eq!(end, arena_bytes);
}
