//! Which class gets bytes of which other: a function of what was counted.
//!
//! A byte is worth to a class what it would spare of reads. Of a class with slots of `b` bytes, `n` misses would have been
//! spared by `r` slots more (its reach), so a byte of slots is worth `n * b / (r * b)` bytes not read: `n / r`. Where that is
//! equal for all classes, no division reads less; for equal demand it is equal whatever the sizes of slots.

use crate::config::RebalanceConfig;

/// What a decision sees of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassDemand {
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Slots in use.
    pub n_slots: u32,
    /// Fewest that work.
    pub slots_min: u32,
    /// Most that there are.
    pub slots_max: u32,
    /// Slots that a share of the arena makes, at least one.
    pub reach: u32,
    /// Misses that `reach` slots more would have spared.
    pub near_misses: u64,
}

impl ClassDemand {
    /// Bytes not read for a byte of slots more.
    fn worth(&self) -> f64 {
        self.near_misses as f64 / f64::from(self.reach)
    }

    /// Square of the standard deviation of `worth`, for misses that come independently of each other.
    fn variance(&self) -> f64 {
        self.worth() / f64::from(self.reach)
    }
}

/// `n_from` slots of class `from` go, and `n_to` of class `to` come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: usize,
    pub to: usize,
    pub n_from: u32,
    pub n_to: u32,
}

/// Whether to move about `share_bytes`, and between which classes: from the one to which they are worth least to the one to
/// which they are worth most. `unused` bytes belong to nobody.
pub(crate) fn decide(
    config: &RebalanceConfig,
    share_bytes: u64,
    unused: u64,
    classes: &[ClassDemand],
) -> Option<Move> {
    // The first of equals, so that the answer does not depend on anything else.
    let by_worth = |&a: &usize, &b: &usize| classes[a].worth().total_cmp(&classes[b].worth()).then(b.cmp(&a));
    let may_get = (0..classes.len()).filter(|&c| classes[c].n_slots < classes[c].slots_max);
    let to = may_get.max_by(by_worth)?;
    let may_give = (0..classes.len()).filter(|&c| c != to && classes[c].n_slots > classes[c].slots_min);
    let from = may_give.min_by(|&a, &b| classes[a].worth().total_cmp(&classes[b].worth()))?;

    let (getting, giving) = (&classes[to], &classes[from]);
    let more = getting.worth() - giving.worth();
    let deviations = f64::from(config.deviations);
    let is_chance = more * more <= deviations * deviations * (getting.variance() + giving.variance());
    if more <= 0.0 || is_chance || getting.worth() * 100.0 < giving.worth() * f64::from(config.ratio_percent)
    {
        return None;
    }

    let n_give_max = giving.n_slots - giving.slots_min;
    let bytes_max = unused.saturating_add(u64::from(n_give_max) * giving.slot_bytes);
    let n_wanted =
        (share_bytes / getting.slot_bytes).max(1).min(u64::from(getting.slots_max - getting.n_slots));
    let n_to = n_wanted.min(bytes_max / getting.slot_bytes);
    if n_to == 0 {
        return None;
    }
    let n_from = (n_to * getting.slot_bytes).saturating_sub(unused).div_ceil(giving.slot_bytes);
    // Both are at most differences of slot counts.
    Some(Move { from, to, n_from: n_from as u32, n_to: n_to as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: RebalanceConfig = RebalanceConfig { deviations: 4, ..RebalanceConfig::ON };

    fn class(slot_bytes: u64, n_slots: u32, near_misses: u64) -> ClassDemand {
        let reach = (3_000 / slot_bytes).max(1) as u32;
        ClassDemand { slot_bytes, n_slots, slots_min: 4, slots_max: 1_000, reach, near_misses }
    }

    #[test]
    fn bytes_go_where_they_spare_more() {
        // 30 slots of 100 bytes are as much as 15 of 200.
        let classes = [class(100, 500, 40), class(200, 250, 400)];
        assert_eq!(decide(&CONFIG, 3_000, 0, &classes), Some(Move { from: 0, to: 1, n_from: 30, n_to: 15 }));
        let classes = [class(100, 500, 800), class(200, 250, 100)];
        assert_eq!(decide(&CONFIG, 3_000, 0, &classes), Some(Move { from: 1, to: 0, n_from: 15, n_to: 30 }));
        // Bytes of nobody are used first.
        assert_eq!(
            decide(&CONFIG, 3_000, 150, &classes),
            Some(Move { from: 1, to: 0, n_from: 15, n_to: 30 }),
            "2850 bytes are 15 slots all the same"
        );
        assert_eq!(decide(&CONFIG, 3_000, 9_000, &classes).map(|m| m.n_from), Some(0));
    }

    #[test]
    fn equal_demand_and_chance_move_nothing() {
        // As many misses for each slot of reach: 30 slots and 15.
        assert_eq!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 4_000), class(200, 250, 2_000)]), None);
        // A tenth more is not worth a move, however sure it is.
        assert_eq!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 44_000), class(200, 250, 20_000)]), None);
        // Twice as much is not enough if it is 8 to 4.
        assert_eq!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 8), class(100, 500, 4)]), None);
        assert!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 80), class(100, 500, 40)]).is_none());
        assert!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 800), class(100, 500, 400)]).is_some());
        assert_eq!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 0), class(100, 500, 0)]), None);
        assert_eq!(decide(&CONFIG, 3_000, 0, &[class(100, 500, 1_000)]), None, "nobody to give");
    }

    #[test]
    fn limits_are_kept() {
        let classes = [class(100, 7, 0), class(200, 250, 1_000)];
        assert_eq!(decide(&CONFIG, 3_000, 0, &classes), Some(Move { from: 0, to: 1, n_from: 2, n_to: 1 }));
        let classes = [class(100, 4, 0), class(200, 250, 1_000)];
        assert_eq!(decide(&CONFIG, 3_000, 500, &classes), None, "nobody may give");
        let classes = [class(100, 500, 0), class(200, 999, 1_000)];
        assert_eq!(decide(&CONFIG, 3_000, 0, &classes), Some(Move { from: 0, to: 1, n_from: 2, n_to: 1 }));
        let classes = [class(100, 500, 0), class(200, 1_000, 1_000)];
        assert_eq!(decide(&CONFIG, 3_000, 0, &classes), None, "it has all that there are");
        let classes = [class(100, 500, 0), class(9_000, 20, 1_000), class(10, 500, 500)];
        assert_eq!(decide(&CONFIG, 3_000, 0, &classes), Some(Move { from: 0, to: 1, n_from: 90, n_to: 1 }));
    }

    fn any_class() -> impl Strategy<Value = ClassDemand> {
        (1u64..100_000, 1u32..20, 0u32..2_000, 0u32..2_000, 1u32..100, 0u64..5_000).prop_map(
            |(slot_bytes, slots_min, more, spare, reach, near_misses)| {
                let n_slots = slots_min + more;
                ClassDemand { slot_bytes, n_slots, slots_min, slots_max: n_slots + spare, reach, near_misses }
            },
        )
    }

    proptest! {
        #[test]
        fn a_move_is_never_of_more_than_there_is(
            classes in prop::collection::vec(any_class(), 1..5),
            share_bytes in 0u64..1_000_000,
            unused in 0u64..200_000,
        ) {
            let config = RebalanceConfig { steps: 1, share_percent: 1, ratio_percent: 100, deviations: 0 };
            if let Some(Move { from, to, n_from, n_to }) = decide(&config, share_bytes, unused, &classes) {
                let (giving, getting) = (&classes[from], &classes[to]);
                prop_assert!(from != to && n_to > 0);
                prop_assert!(giving.n_slots - n_from >= giving.slots_min);
                prop_assert!(getting.n_slots + n_to <= getting.slots_max);
                let (freed, used) = (u64::from(n_from) * giving.slot_bytes, u64::from(n_to) * getting.slot_bytes);
                prop_assert!(used <= unused + freed, "{used} of {unused} + {freed}");
                prop_assert!(n_from == 0 || used > unused + freed - giving.slot_bytes, "one slot less would do");
                prop_assert!(getting.worth() > giving.worth());
                let is_no_better = |x: &ClassDemand| x.worth() <= getting.worth() || x.n_slots == x.slots_max;
                prop_assert!(classes.iter().all(is_no_better));
            }
        }
    }
}
