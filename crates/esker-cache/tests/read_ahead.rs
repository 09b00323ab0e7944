//! Read-ahead: after demand, best ranks first, never in a prompt, and only while it pays.

mod driver;

use driver::{Driver, config, reads, ready};
use esker_cache::{Action, CacheConfig, Lookups, Phase, PolicyConfig, Priority, ReadAheadConfig, Visibility};

fn ahead(n_layers: usize, n_slots: u32) -> CacheConfig {
    let mut config = config(n_layers, 64, 2, n_slots);
    config.read_ahead = ReadAheadConfig {
        per_layer_max: 4,
        in_flight_max: 2,
        demand_max: 0,
        window: 8,
        off_below_percent: 25,
        on_from_percent: 50,
    };
    config
}

#[test]
fn demand_comes_first_and_then_the_best_ranks() {
    let mut driver = Driver::new(ahead(3, 32));
    driver.begin(Phase::Decode);
    driver.want(0, &[0, 1]);
    assert_eq!(reads(&driver.read_ahead(1, &[9, 8, 7])), [], "layer 0 waits");
    assert_eq!(reads(&driver.complete(0, true)), [], "layer 0 still waits");
    let actions = driver.complete(0, true);
    assert_eq!(reads(&actions), [(1, 9), (1, 8)], "idle: two at a time, best first");
    let rank = |a: &Action| match a {
        Action::Read { priority: Priority::ReadAhead { rank }, .. } => Some(*rank),
        _ => None,
    };
    assert_eq!(actions.iter().filter_map(rank).collect::<Vec<u16>>(), [0, 1]);
    // Layer 1 needs something else, too: it does not queue behind read-ahead.
    let actions = driver.want(1, &[9, 50]);
    assert_eq!(reads(&actions), [(1, 50)]);
    assert!(actions.iter().any(|a| matches!(a, Action::Promote { .. })), "9 is waited for now");
}

#[test]
fn read_ahead_may_begin_behind_the_last_demand_reads() {
    let mut config = ahead(3, 32);
    config.read_ahead.demand_max = 1;
    let mut driver = Driver::new(config);
    driver.begin(Phase::Decode);
    driver.want(0, &[0, 1]);
    assert_eq!(reads(&driver.read_ahead(1, &[9, 8, 7])), [], "two demand reads");
    assert_eq!(reads(&driver.complete(0, true)), [(1, 9), (1, 8)], "one demand read");
}

#[test]
fn the_three_outcomes_are_told_apart() {
    let mut driver = Driver::new(ahead(2, 32));
    driver.begin(Phase::Decode);
    driver.use_experts(1, &[30, 31]);
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[40, 41]);
    assert_eq!(driver.in_flight.len(), 2);
    driver.complete(0, true); // 40 has arrived, 41 has not
    driver.want(1, &[30, 40, 41, 42]);
    let expected = Lookups { hits: 1, read_ahead_hits: 1, misses: 2 + 2 };
    assert_eq!(driver.cache.counters().decode, expected);
    assert_eq!(driver.cache.layer_counters()[1].decode, expected);
    assert_eq!(driver.cache.layer_counters()[0].decode, Lookups::default());
    assert_eq!(driver.cache.counters().read_ahead.late, 1);
    driver.complete_all();
    driver.release(1, &[30, 40, 41, 42]);
}

/// It was resident when the token started: a plain hit.
#[test]
fn a_prediction_used_a_token_later_is_a_hit() {
    let mut driver = Driver::new(ahead(2, 32));
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[40]);
    driver.complete_all();
    driver.begin(Phase::Decode);
    driver.want(1, &[40]);
    assert_eq!(driver.cache.counters().decode, Lookups { hits: 1, read_ahead_hits: 0, misses: 0 });
    assert_eq!(driver.cache.counters().read_ahead.used_later, 1);
}

#[test]
fn unused_reads_are_counted_as_wasted_bytes_when_they_are_evicted() {
    let mut driver = Driver::new(ahead(2, 8));
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[40, 41]);
    driver.complete_all();
    driver.begin(Phase::Decode);
    assert_eq!(driver.cache.counters().wasted_bytes, 0);
    for pair in (0..16).collect::<Vec<u16>>().chunks(2) {
        driver.use_experts(0, pair);
    }
    assert_eq!(driver.cache.counters().read_ahead.wasted, 2);
    assert_eq!(driver.cache.counters().wasted_bytes, 200);
}

#[test]
fn a_prompt_reads_nothing_ahead() {
    let mut driver = Driver::new(ahead(2, 32));
    driver.begin(Phase::Prefill);
    assert_eq!(driver.read_ahead(1, &[1, 2]), []);
    driver.begin(Phase::Decode);
    assert_eq!(reads(&driver.read_ahead(1, &[1, 2])).len(), 2);
}

/// What has not been read when its layer comes is not read any more.
#[test]
fn late_predictions_are_dropped() {
    let mut driver = Driver::new(ahead(2, 32));
    driver.begin(Phase::Decode);
    driver.want(0, &[0, 1]);
    driver.read_ahead(1, &[9, 8]);
    driver.want(1, &[9, 3]);
    driver.complete_all();
    driver.release(0, &[0, 1]);
    driver.release(1, &[9, 3]);
    let read: Vec<(u16, u16)> = reads(&driver.actions);
    assert_eq!(read, [(0, 0), (0, 1), (1, 9), (1, 3)], "8 was not needed");
    assert_eq!(driver.cache.counters().read_ahead.dropped, 2);
}

/// A predicted expert that is there must still be there when its layer comes.
#[test]
fn predicted_experts_are_not_evicted_before_their_layer() {
    for visibility in [Visibility::Live, Visibility::Stepwise] {
        let mut config = ahead(3, 16);
        config.visibility = visibility;
        let mut driver = Driver::new(config);
        driver.begin(Phase::Decode);
        driver.use_experts(2, &[20, 21]);
        // The least recently used, and next in line to go:
        driver.begin(Phase::Decode);
        for pair in (0..14).collect::<Vec<u16>>().chunks(2) {
            driver.use_experts(0, pair);
        }
        driver.begin(Phase::Decode);
        driver.read_ahead(2, &[20, 21]);
        for pair in (30..36).collect::<Vec<u16>>().chunks(2) {
            driver.use_experts(1, pair);
        }
        assert!(driver.is_resident(2, 20) && driver.is_resident(2, 21), "{visibility:?}");
        assert_eq!(ready(&driver.want(2, &[20, 21])), [20, 21]);
    }
}

/// Predictions never take more than a quarter of the slots, nor any that two layers need to overlap.
#[test]
fn predictions_leave_slots_for_demand() {
    for (n_slots, expected) in [(4, 0), (5, 1), (8, 2), (40, 4)] {
        let mut config = ahead(2, n_slots);
        config.read_ahead.in_flight_max = 16;
        let mut driver = Driver::new(config);
        driver.begin(Phase::Decode);
        driver.read_ahead(1, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(driver.in_flight.len(), expected, "{n_slots} slots");
    }
}

/// One token: layer 0 is used, layer 1 predicted and then used.
fn token(driver: &mut Driver, t: u16, right: bool) {
    driver.begin(Phase::Decode);
    let next = [(2 * t) % 60, (2 * t + 1) % 60];
    driver.use_experts(0, &next);
    driver.read_ahead(1, if right { &next } else { &[61, 62, 63] });
    driver.complete_all();
    driver.use_experts(1, &next);
}

#[test]
fn it_turns_itself_off_when_it_does_not_pay_and_on_again_when_it_would() {
    for visibility in [Visibility::Live, Visibility::Stepwise] {
        let mut config = ahead(2, 16);
        config.visibility = visibility;
        let mut driver = Driver::new(config);
        for t in 0..20 {
            token(&mut driver, t, true);
        }
        assert!(driver.cache.reads_ahead());
        let counters = *driver.cache.counters();
        assert_eq!(counters.read_ahead.candidates_wanted, counters.read_ahead.candidates);
        assert_eq!(counters.decode.read_ahead_hits, 40);
        for t in 0..40 {
            token(&mut driver, t, false);
        }
        assert!(!driver.cache.reads_ahead(), "{visibility:?}");
        let issued = driver.cache.counters().read_ahead.issued;
        for t in 0..7 {
            token(&mut driver, t, false);
        }
        assert_eq!(driver.cache.counters().read_ahead.issued, issued, "off means off");
        for t in 0..20 {
            token(&mut driver, t, true);
        }
        assert!(driver.cache.reads_ahead(), "{visibility:?}");
        let ahead = driver.cache.counters().read_ahead;
        assert_eq!((ahead.turned_off, ahead.turned_on), (1, 1));
        assert!(ahead.issued > issued);
    }
}

/// Between the two thresholds it stays as it is.
#[test]
fn the_thresholds_differ() {
    let mut driver = Driver::new(ahead(2, 16));
    let mixed = |driver: &mut Driver, n| {
        // A third of the missing predictions is right: above 25 %, below 50 %.
        for t in 0..n {
            token(driver, t, t % 2 == 0);
            driver.begin(Phase::Decode);
            driver.use_experts(0, &[(2 * t) % 60]);
        }
    };
    mixed(&mut driver, 40);
    assert_eq!(driver.cache.counters().read_ahead.turned_off, 0);
}

/// Precision and recall are those of the predictions, whatever was read.
#[test]
fn accuracy_is_counted() {
    let mut driver = Driver::new(ahead(2, 32));
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[1, 2, 3, 4, 5]); // the fifth is beyond per_layer_max
    driver.complete_all();
    driver.use_experts(1, &[2, 4, 5]);
    let ahead = driver.cache.counters().read_ahead;
    assert_eq!((ahead.predicted, ahead.predicted_wanted, ahead.predicted_lookups), (4, 2, 3));
}

/// Nobody waits for a failed read-ahead, so nobody hears of it.
#[test]
fn a_failed_read_ahead_is_forgotten() {
    let mut driver = Driver::new(ahead(2, 32));
    driver.begin(Phase::Decode);
    driver.read_ahead(1, &[40]);
    assert_eq!(driver.complete(0, false), []);
    assert_eq!(driver.cache.counters().read_ahead.failed, 1);
    driver.want(1, &[40]);
    assert_eq!(driver.complete(0, false).len(), 1, "a demand read is tried again");
    assert_eq!(ready(&driver.complete(0, true)), [40]);
}

/// Every policy works with it.
#[test]
fn read_ahead_hits_occur_with_every_policy() {
    for name in PolicyConfig::NAMES {
        let mut config = ahead(2, 16);
        config.policy = PolicyConfig::by_name(name).expect("listed");
        let mut driver = Driver::new(config);
        for t in 0..30 {
            token(&mut driver, t, true);
        }
        assert_eq!(driver.cache.counters().decode.read_ahead_hits, 60, "{name}");
    }
}
