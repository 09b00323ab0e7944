//! Dividing the arena anew among size classes: by hand, and what it is worth.

mod demand;
mod driver;

use demand::{Demand, best_fixed, config, decode};
use driver::Driver;
use esker_cache::{
    Action, ClassConfig, ClassId, ExpertId, Phase, PolicyConfig, RebalanceConfig, Residency, ResizeError,
    SlotId,
};

const A: ClassId = ClassId(0);
const B: ClassId = ClassId(1);

/// Two layers of 40 experts: the first of class A with 8 slots of 128 bytes, the other of class B with 8 of 256.
fn two_classes(rebalance: RebalanceConfig) -> Driver {
    let mut config = driver::config(2, 40, 2, 8);
    config.layers[1].class = B;
    config.layers[1].expert_bytes = 250;
    config.classes.push(ClassConfig { slot_bytes: 256, n_slots: 8 });
    config.rebalance = rebalance;
    Driver::new(config)
}

/// Moves at every step, a quarter of the arena, whatever little was counted.
const EAGER: RebalanceConfig =
    RebalanceConfig { steps: 1, share_percent: 25, ratio_percent: 100, deviations: 0 };

fn retired(actions: &[Action]) -> Vec<SlotId> {
    let retired = |a: &Action| if let Action::Retire { slot } = *a { Some(slot) } else { None };
    actions.iter().filter_map(retired).collect()
}

fn restored(actions: &[Action]) -> usize {
    actions.iter().filter(|a| matches!(a, Action::Restore { .. })).count()
}

/// Class B goes round ten experts in eight slots, so that it always wants what it has just lost; class A has its two.
fn ask_for_more_of_b(driver: &mut Driver, steps: u16) {
    for _ in 0..steps {
        driver.begin(Phase::Decode);
        let step = driver.cache.counters().decode_steps as u16;
        driver.use_experts(0, &[1, 2]);
        driver.use_experts(1, &[2 * step % 10, (2 * step + 1) % 10]);
    }
}

/// The slots of A go as they can be spared, those of B come as memory is given back, and not one earlier.
#[test]
fn slots_come_only_when_others_have_gone() {
    let mut driver = two_classes(EAGER);
    // Five steps fill both, a sixth asks for what B has lost. A's slots are all in use: eight experts of A are pinned.
    driver.begin(Phase::Decode);
    driver.use_many(0, &[10, 11, 12, 13, 14, 15]);
    ask_for_more_of_b(&mut driver, 6);
    driver.want(0, &[1, 2, 10, 11, 12, 13, 14, 15]);
    driver.complete_all();
    driver.actions.clear();

    driver.begin(Phase::Decode);
    // A quarter of 3072 bytes: three slots of B for six of A.
    assert_eq!((driver.cache.n_slots_planned(A), driver.cache.n_slots_planned(B)), (2, 11));
    assert_eq!((driver.cache.n_slots(A), driver.cache.n_slots(B)), (8, 8), "all of A's are pinned");
    assert_eq!(driver.cache.counters().moves, 1);
    driver.release(0, &[10, 11, 12]);
    let gone = retired(&driver.actions);
    assert_eq!((gone.len(), restored(&driver.actions)), (3, 0));
    assert_eq!((driver.cache.n_slots(A), driver.cache.n_slots(B)), (5, 8));

    let give_back = |driver: &mut Driver, slot| driver.call(|cache, actions| cache.given_back(slot, actions));
    assert_eq!(restored(&give_back(&mut driver, gone[0])), 0, "128 bytes are no slot of B");
    assert_eq!(restored(&give_back(&mut driver, gone[0])), 0, "said twice");
    assert_eq!(restored(&give_back(&mut driver, gone[1])), 1);
    assert_eq!(driver.cache.n_slots(B), 9);
    driver.actions.clear();
    driver.release(0, &[13, 14, 15, 1, 2]);
    let gone = retired(&driver.actions);
    assert_eq!(gone.len(), 3, "two stay");
    for slot in gone {
        give_back(&mut driver, slot);
    }
    // The slot of which the system has said nothing counts.
    assert_eq!((driver.cache.n_slots(A), driver.cache.n_slots(B)), (2, 10));
}

/// What a shrink has taken for the rest of the machine stays taken.
#[test]
fn a_move_does_not_undo_a_shrink() {
    let mut driver = two_classes(EAGER);
    ask_for_more_of_b(&mut driver, 3);
    for (class, n_slots) in [(A, 7), (B, 7)] {
        let actions = driver.call(|cache, actions| cache.shrink(class, n_slots, actions).expect("possible"));
        for slot in retired(&actions) {
            driver.call(|cache, actions| cache.given_back(slot, actions));
        }
    }
    let bytes = |driver: &Driver| driver.cache.n_slots(A) * 128 + driver.cache.n_slots(B) * 256;
    let left = bytes(&driver);
    assert_eq!(left, 3072 - 128 - 256);
    for _ in 0..200 {
        driver.actions.clear();
        ask_for_more_of_b(&mut driver, 1);
        for slot in retired(&driver.actions.clone()) {
            driver.call(|cache, actions| cache.given_back(slot, actions));
        }
        assert!(bytes(&driver) <= left, "{} bytes of {left}", bytes(&driver));
    }
    assert!(driver.cache.counters().moves > 0 && driver.cache.n_slots(B) > 7);

    // Growing takes no more than there is: B has what A had.
    let grow = |driver: &mut Driver, class, n_slots| {
        let mut result = Ok(());
        driver.call(|cache, actions| result = cache.grow(class, n_slots, actions));
        result
    };
    let (a, b) = (driver.cache.n_slots_planned(A), driver.cache.n_slots_planned(B));
    let too_much = ResizeError::TooManyBytes {
        class: 0,
        asked: a + 4,
        bytes: u64::from((a + 4) * 128 + b * 256),
        arena: 3072,
    };
    assert_eq!(grow(&mut driver, A, a + 4), Err(too_much));
    assert_eq!(grow(&mut driver, A, a + 1), Ok(()));
}

/// The experts of a slot that goes are on disk before the step begins, and a class keeps what a token needs.
#[test]
fn what_goes_is_gone_when_the_step_begins() {
    let mut driver = two_classes(EAGER);
    let residents = |driver: &Driver| -> Vec<(u16, SlotId)> {
        let slot_of = |index| match driver.cache.residency(ExpertId { layer: 0, index }) {
            Residency::Resident(slot) => Some((index, slot)),
            _ => None,
        };
        (0..40).filter_map(slot_of).collect()
    };
    // A is full, and nothing of it is pinned.
    driver.begin(Phase::Decode);
    driver.use_many(0, &[10, 11, 12, 13, 14, 15]);
    ask_for_more_of_b(&mut driver, 6);
    let before = residents(&driver);
    assert_eq!((before.len(), driver.cache.counters().moves), (8, 0));
    driver.actions.clear();

    driver.begin(Phase::Decode);
    assert!(driver.cache.counters().moves > 0);
    let gone = retired(&driver.actions);
    assert_eq!(gone.len(), 6);
    let (went, stay): (Vec<_>, Vec<_>) = before.into_iter().partition(|(_, slot)| gone.contains(slot));
    assert_eq!(went.len(), 6, "every slot that went had an expert");
    assert!(went.iter().all(|&(index, _)| !driver.is_resident(0, index)));
    assert_eq!(residents(&driver), stay, "the others are where they were");

    for slot in gone {
        driver.call(|cache, actions| cache.given_back(slot, actions));
    }
    ask_for_more_of_b(&mut driver, 60);
    assert_eq!(driver.cache.n_slots_planned(A), 2, "a token needs two");
}

const N_TOKENS: usize = 3_000;

/// The figures of `examples/division.rs`, held to.
#[test]
fn skewed_demand_moves_slots_and_hits_more() {
    for policy in ["lru", "protected-lru"] {
        let policy = PolicyConfig::by_name(policy).expect("listed");
        for (slot_bytes, n_popular, points) in
            [([100, 100], [8, 40], 7.0), ([100, 200], [8, 40], 1.5), ([100, 200], [40, 8], 17.0)]
        {
            let demand = Demand { slot_bytes, n_popular };
            let n_slots = [160, 160];
            let run =
                |rebalance| decode(config(&demand, n_slots, policy, rebalance), N_TOKENS, 5, |_| demand);
            let (fixed, moving) = (run(RebalanceConfig::OFF), run(RebalanceConfig::ON));
            let best = best_fixed(demand, n_slots, policy, N_TOKENS, 5);
            let more = 100.0 * (moving.hit_rate() - fixed.hit_rate());
            println!(
                "{}, {slot_bytes:?} {n_popular:?}: {more:.1} points more, {:?} slots, {} moves, {:.0} bytes a token, \
                 fixed {:.0}, best fixed {:.0}",
                policy.name(),
                moving.n_slots,
                moving.moves,
                moving.bytes_per_token,
                fixed.bytes_per_token,
                best.bytes_per_token
            );
            assert!(more >= points, "only {more:.2} points more");
            assert!(moving.bytes_per_token <= 0.9 * fixed.bytes_per_token);
            assert!(
                moving.bytes_per_token <= 1.06 * best.bytes_per_token,
                "far from the best fixed division"
            );
            assert!(moving.moves < 60, "{} moves", moving.moves);
        }
    }
}

#[test]
fn even_demand_stays_put() {
    let mut moves = 0;
    for seed in 0..10 {
        for (policy, slot_bytes) in [("lru", [100, 100]), ("lru", [100, 200]), ("protected-lru", [130, 100])]
        {
            let policy = PolicyConfig::by_name(policy).expect("listed");
            let demand = Demand { slot_bytes, n_popular: [24, 24] };
            let config = config(&demand, [160, 160], policy, RebalanceConfig::ON);
            moves += decode(config, N_TOKENS, seed, |_| demand).moves;
        }
    }
    println!("{moves} moves in 30 runs of {N_TOKENS} tokens");
    assert!(moves <= 3, "{moves} moves in 30 runs");
}

/// The division follows when the demand turns round, and does not go to and fro afterwards.
#[test]
fn demand_that_changes_is_followed() {
    let policy = PolicyConfig::Lru;
    let at = |n_popular| Demand { slot_bytes: [100, 100], n_popular };
    let before = at([8, 40]);
    // The last half begins when the demand has turned.
    let (n_tokens, turn_at) = (8_000, 2_000);
    let demand_of = |token| if token < turn_at { before } else { at([40, 8]) };
    let run =
        |n_tokens, rebalance| decode(config(&before, [160, 160], policy, rebalance), n_tokens, 3, demand_of);
    let [a, b] = run(turn_at, RebalanceConfig::ON).n_slots;
    assert!(a < 110 && b > 210, "{a} + {b} slots before");
    let outcome = run(n_tokens, RebalanceConfig::ON);
    let [x, y] = outcome.n_slots;
    println!("{a} + {b} slots before, {x} + {y} after, {} moves", outcome.moves);
    assert!(x > 210 && y < 110, "{x} + {y} slots after");
    assert!(outcome.moves < 100, "{} moves", outcome.moves);
    let fixed = run(n_tokens, RebalanceConfig::OFF);
    assert!(outcome.hit_rate() > fixed.hit_rate() + 0.05, "{} and {}", outcome.hit_rate(), fixed.hit_rate());
}
