//! Prompts: more experts than slots, and what they leave for decode.

mod driver;

use driver::{Driver, config, reads};
use esker_cache::{Action, Phase, PolicyConfig};

fn resident(driver: &Driver, layer: u16) -> Vec<u16> {
    let mask = driver.mask(layer);
    (0..mask.len() as u16).filter(|&i| mask[usize::from(i)]).collect()
}

/// Each needed expert is read once, reads run ahead of compute, and no more are pinned than there are slots.
#[test]
fn a_prompt_may_want_more_experts_than_there_are_slots() {
    let mut driver = Driver::new(config(1, 100, 4, 10));
    driver.begin(Phase::Prefill);
    let all: Vec<u16> = (0..100).collect();
    let first = driver.want(0, &all);
    assert_eq!(reads(&first).len(), 10, "as many as there are slots");
    driver.complete(0, true);
    let next = driver.call(|cache, actions| cache.release(0, 0, actions));
    assert_eq!(reads(&next), [(0, 10)], "a released slot goes to the next");
    driver.complete_all();
    driver.release(0, &(1..11).collect::<Vec<u16>>());
    while driver.cache.counters().reads < 100 {
        let before: Vec<u16> = driver.in_flight.iter().map(|r| r.1.index).collect();
        driver.complete_all();
        driver.release(0, &before);
    }
    assert_eq!(driver.cache.counters().reads, 100);
    assert_eq!(driver.cache.counters().prefill.misses, 100);
    assert_eq!(driver.cache.counters().decode.total(), 0);
}

/// Marks must be renewed on every prompt of a conversation, not only set on the first.
#[test]
fn what_decode_used_last_survives_every_prompt() {
    for name in PolicyConfig::NAMES {
        let mut config = config(2, 64, 2, 24);
        config.policy = PolicyConfig::by_name(name).expect("listed");
        config.prompt_slots = 6;
        let mut driver = Driver::new(config);
        for turn in 0..3u16 {
            // 18 experts fit beside the prompt's six slots: what decode used in this turn.
            driver.begin(Phase::Decode);
            let used: Vec<u16> = (0..18).map(|i| turn * 18 + i).collect();
            for pair in used.chunks(2) {
                driver.use_experts(0, pair);
            }
            // Policies differ in what they have let go before.
            let before = resident(&driver, 0);
            let used: Vec<u16> = used.into_iter().filter(|e| before.contains(e)).collect();
            assert!(used.len() >= 9, "{name}, turn {turn}: {before:?}");
            for _chunk in 0..2 {
                driver.begin(Phase::Prefill);
                let all: Vec<u16> = (0..64).collect();
                driver.use_many(1, &all);
                let kept = resident(&driver, 0);
                assert!(used.iter().all(|e| kept.contains(e)), "{name}, turn {turn}: kept {kept:?}");
            }
        }
        assert_eq!(driver.cache.counters().hot_evictions, 0, "{name}");
    }
}

/// Without decode before it a prompt may use everything.
#[test]
fn a_first_prompt_uses_all_slots() {
    let mut driver = Driver::new(config(1, 64, 2, 24));
    driver.begin(Phase::Prefill);
    driver.use_many(0, &(0..64).collect::<Vec<u16>>());
    assert_eq!(resident(&driver, 0).len(), 24);
}

/// The defined fallback: when nothing but marked slots is left, a token's worth of them may go, and the rest of
/// the prompt waits for releases instead.
#[test]
fn marked_slots_go_when_nothing_else_is_left() {
    let mut config = config(1, 64, 2, 8);
    config.prompt_slots = 2;
    let mut driver = Driver::new(config);
    driver.begin(Phase::Decode);
    for pair in (0..8).collect::<Vec<u16>>().chunks(2) {
        driver.use_experts(0, pair);
    }
    driver.begin(Phase::Prefill);
    // Memory runs short: the two unmarked slots go first.
    driver.call(|cache, actions| cache.shrink(esker_cache::ClassId(0), 6, actions).expect("allowed"));
    assert_eq!(resident(&driver, 0), [2, 3, 4, 5, 6, 7]);
    let actions = driver.want(0, &[20, 21, 22, 23]);
    assert_eq!(reads(&actions).len(), 2, "top_k, and no more");
    assert_eq!(resident(&driver, 0), [4, 5, 6, 7], "the policy's order among the marked");
    assert_eq!(driver.cache.counters().hot_evictions, 2);
    driver.complete_all();
    driver.release(0, &[20, 21]);
    driver.complete_all();
    driver.release(0, &[22, 23]);
    assert_eq!(resident(&driver, 0).iter().filter(|&&e| e < 8).count(), 4);
}

/// A hit of a prompt is a hit, and does not make the expert the prompt's.
#[test]
fn a_prompt_uses_what_is_there() {
    let mut driver = Driver::new(config(1, 64, 2, 24));
    driver.begin(Phase::Decode);
    driver.use_experts(0, &[5, 6]);
    driver.begin(Phase::Prefill);
    driver.use_many(0, &(0..20).collect::<Vec<u16>>());
    assert_eq!(driver.cache.counters().prefill.hits, 2);
    assert_eq!(driver.cache.counters().prefill.misses, 18);
}

/// The ring keeps what the prompt uses most, for the decode that follows.
#[test]
fn counts_of_a_prompt_decide_what_it_leaves() {
    for name in ["lfu", "ema", "near-pick-ema", "inverse-router-ema"] {
        let mut config = config(1, 64, 2, 16);
        config.policy = PolicyConfig::by_name(name).expect("listed");
        config.prompt_slots = 4;
        let mut driver = Driver::new(config);
        driver.begin(Phase::Prefill);
        // Experts 0, 4, 8, ... are used by many tokens.
        let counts: Vec<(u16, u32)> = (0..64).map(|e| (e, if e % 4 == 0 { 90 } else { 3 })).collect();
        driver.cache.prompt_counts(0, 100, &counts);
        driver.use_many(0, &(0..64).collect::<Vec<u16>>());
        let kept = resident(&driver, 0);
        let popular = kept.iter().filter(|&&e| e % 4 == 0).count();
        assert!(popular >= 12, "{name}: {kept:?}");
    }
}

#[test]
fn shrinking_gives_back_free_slots_first_and_then_the_coldest() {
    let mut driver = Driver::new(config(1, 64, 2, 8));
    driver.begin(Phase::Decode);
    for pair in [[0, 1], [2, 3], [4, 5]] {
        driver.use_experts(0, &pair);
    }
    let class = esker_cache::ClassId(0);
    let shrink = |driver: &mut Driver, n| {
        driver.call(|cache, actions| cache.shrink(class, n, actions).expect("allowed"))
    };
    assert_eq!(shrink(&mut driver, 6).len(), 2);
    assert_eq!(resident(&driver, 0).len(), 6, "two slots were free");
    shrink(&mut driver, 4);
    assert_eq!(resident(&driver, 0), [2, 3, 4, 5]);
    // What is in use goes when it is released.
    driver.want(0, &[2, 3]);
    let actions = shrink(&mut driver, 2);
    assert_eq!(actions.len(), 2);
    assert_eq!(resident(&driver, 0), [2, 3]);
    driver.want(0, &[6]);
    assert_eq!(driver.in_flight.len(), 0, "no slot until one is released");
    driver.release(0, &[2]);
    assert_eq!(driver.in_flight.len(), 1);
    driver.complete_all();
    driver.release(0, &[3, 6]);
    let grown = driver.call(|cache, actions| cache.grow(class, 8, actions).expect("allowed"));
    assert_eq!(grown.iter().filter(|a| matches!(a, Action::Restore { .. })).count(), 6);
    driver.use_many(0, &(10..18).collect::<Vec<u16>>());
    assert_eq!(resident(&driver, 0).len(), 8);
}

#[test]
fn abandoning_ends_every_want() {
    let mut driver = Driver::new(config(1, 64, 2, 4));
    driver.begin(Phase::Prefill);
    driver.want(0, &[0, 1, 2, 3, 4, 5]);
    driver.complete(0, true);
    let actions = driver.call(|cache, actions| cache.abandon(actions));
    let failed = actions.iter().filter(|a| matches!(a, Action::Fail { .. })).count();
    assert_eq!(failed, 5, "one was ready, which only loses its pin");
    driver.complete_all();
    assert!(driver.cache.is_quiet());
    assert_eq!(driver.cache.counters().wants_abandoned, 5);
    assert_eq!(resident(&driver, 0), [0, 1, 2, 3], "what was under way arrives and stays");
}
