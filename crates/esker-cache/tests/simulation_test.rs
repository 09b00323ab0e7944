//! Simulated histories, and proof that the model that watches them would notice.

mod simulation;

use esker_cache::{Action, Priority, SlotId};
use simulation::{Model, Simulation, Tally, Violation};

/// Histories of one run of the test suite; `examples/simulate.rs` runs as many as one likes.
const SEEDS: u64 = 300;
const CALLS_PER_SEED: u64 = 400;

fn run(seed: u64, tamper: Option<fn(&mut Vec<Action>, &Model)>) -> (Result<(), Violation>, Tally) {
    let mut simulation = Simulation::new(seed);
    simulation.tamper = tamper;
    (simulation.run(CALLS_PER_SEED), simulation.tally())
}

#[test]
fn promises_hold_in_simulated_histories() {
    let mut sum = Tally::default();
    for seed in 0..SEEDS {
        let (outcome, tally) = run(seed, None);
        if let Err(violation) = outcome {
            panic!(
                "seed {seed}: {violation}\nagain: cargo run -p esker-cache --example simulate -- \
                 --steps 1 --each {CALLS_PER_SEED} --seed {seed}"
            );
        }
        sum.add(&tally);
    }
    // What is never reached is not tested.
    let reached = [
        ("hits", sum.hits),
        ("read-ahead hits", sum.read_ahead_hits),
        ("misses", sum.misses),
        ("late reads", sum.late),
        ("evictions", sum.evictions),
        ("hot evictions", sum.hot_evictions),
        ("held evictions", sum.held_evictions),
        ("waits for a slot", sum.slot_waits),
        ("retries", sum.retries),
        ("failures", sum.fails),
        ("abandoned wants", sum.abandoned),
        ("retired slots", sum.retired),
        ("restored slots", sum.restored),
        ("moves between classes", sum.moves),
        ("read-ahead turned off", sum.turned_off),
        ("read-ahead turned on", sum.turned_on),
    ];
    for (what, count) in reached {
        assert!(count > 0, "no {what} in {SEEDS} histories: {sum:?}");
    }
}

/// Runs histories with a fault planted in the cache's answers until the model objects.
fn is_noticed(tamper: fn(&mut Vec<Action>, &Model)) -> String {
    for seed in 0..SEEDS {
        if let (Err(violation), _) = run(seed, Some(tamper)) {
            return violation.to_string();
        }
    }
    panic!("the model did not notice");
}

#[test]
fn the_model_notices_a_read_into_a_pinned_slot() {
    let message = is_noticed(|actions, model| {
        for action in actions {
            if let Action::Read { slot, .. } = action
                && let Some(pinned) = model.pinned_slot(model.slot_class(*slot))
            {
                *slot = pinned;
            }
        }
    });
    assert!(message.contains("pinned"), "{message}");
}

#[test]
fn the_model_notices_a_lost_answer() {
    let message = is_noticed(|actions, _| actions.retain(|a| !matches!(a, Action::Ready { .. })));
    assert!(message.contains("never ended"), "{message}");
}

#[test]
fn the_model_notices_a_second_answer() {
    let message = is_noticed(|actions, _| {
        if let Some(&ready) = actions.iter().find(|a| matches!(a, Action::Ready { .. })) {
            actions.push(ready);
        }
    });
    assert!(message.contains("nobody waits"), "{message}");
}

#[test]
fn the_model_notices_the_wrong_slot() {
    let message = is_noticed(|actions, _| {
        for action in actions {
            if let Action::Ready { slot, .. } = action {
                *slot = SlotId(slot.0 ^ 1);
            }
        }
    });
    assert!(message.contains("is ready in"), "{message}");
}

#[test]
fn the_model_notices_a_second_read_of_an_expert() {
    let message = is_noticed(|actions, _| {
        if let Some(&read) = actions.iter().find(|a| matches!(a, Action::Read { .. })) {
            actions.push(read);
        }
    });
    assert!(message.contains("twice") || message.contains("reads_max"), "{message}");
}

#[test]
fn the_model_notices_read_ahead_before_demand() {
    let message = is_noticed(|actions, _| {
        for action in actions {
            if let Action::Read { priority, .. } = action {
                *priority = Priority::ReadAhead { rank: 0 };
            }
        }
    });
    assert!(message.contains("read ahead"), "{message}");
}

#[test]
fn the_model_notices_a_slot_that_is_used_after_it_was_retired() {
    let message = is_noticed(|actions, _| actions.retain(|a| !matches!(a, Action::Restore { .. })));
    assert!(message.contains("retired"), "{message}");
}

#[test]
fn the_model_notices_a_slot_that_takes_no_part_in_the_division() {
    let message = is_noticed(|actions, model| {
        // A slot that was given back comes into use although nothing was to be restored.
        if !actions.iter().any(|a| matches!(a, Action::Restore { .. }))
            && let Some(slot) = model.slot_given_back()
        {
            actions.push(Action::Restore { slot });
        }
    });
    assert!(message.contains("is restored: "), "{message}");
}

/// The state after a sequence of calls is a function of the sequence.
#[test]
fn a_recorded_history_replays_to_the_same_actions() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        simulation.recording = Some((Vec::new(), Vec::new()));
        simulation.run(300).expect("covered by the test above");
        let (events, expected) = simulation.recording.take().expect("recorded");
        let mut again = esker_cache::ExpertCache::new(simulation.cache.config().clone()).expect("valid");
        let mut actions = Vec::new();
        for event in &events {
            // A refused resize was refused before.
            let _ = again.apply(event.borrow(), &mut actions);
        }
        assert_eq!(actions, expected, "seed {seed}");
        assert_eq!(again.counters(), simulation.cache.counters(), "seed {seed}");
    }
}
