//! Lazy scores against the eager definition in big integers: every score of every expert, at every step.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::*;

/// All scores times `2^headroom`; halving is exact as long as no more than `headroom` halvings happen.
pub(crate) struct Eager {
    pub scaled: Vec<BigUint>,
    headroom: u64,
}

impl Eager {
    pub fn new(n: usize, headroom: u64) -> Eager {
        Eager { scaled: vec![BigUint::ZERO; n], headroom }
    }

    /// Literally: every score, at every step.
    pub fn halve_all(&mut self, times: u32) {
        for score in &mut self.scaled {
            *score >>= times;
        }
    }

    /// Drops what is below one and adds.
    pub fn add(&mut self, expert: usize, amount: u64) {
        let whole = &self.scaled[expert] >> self.headroom;
        self.scaled[expert] = (whole + amount) << self.headroom;
    }
}

fn check(n_steps: usize, mut step: impl FnMut() -> Unit, n_experts: usize, uses: &[(usize, usize, u64)]) {
    let units: Vec<Unit> = (0..n_steps).map(|_| step()).collect();
    let mut eager = Eager::new(n_experts, u64::from(units.last().map_or(0, |u| u.scale)));
    let mut lazy = Popularity::new(n_experts);
    let mut scale = 0;
    for (t, unit) in units.iter().enumerate() {
        eager.halve_all(unit.scale - scale);
        scale = unit.scale;
        for &(_, expert, numerator) in uses.iter().filter(|u| u.0 == t) {
            let amount = unit.share(numerator, 4);
            eager.add(expert, amount);
            lazy.add(expert as u32, amount, unit.scale);
        }
        for a in 0..n_experts {
            for b in 0..a {
                let expected = eager.scaled[a].cmp(&eager.scaled[b]);
                let actual = lazy.key(a as u32, 0).cmp(&lazy.key(b as u32, 0));
                assert_eq!(actual, expected, "step {t}, experts {a} and {b}");
                // Equal scores: the older stamp is evicted first.
                if expected.is_eq() {
                    assert!(lazy.key(a as u32, 1) < lazy.key(b as u32, 2));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn decay_is_the_eager_definition(
        decay in prop_oneof![Just(0.99), Just(0.9), Just(0.5), Just(0.3), 0.01..0.99999f64],
        uses in prop::collection::vec((0..200usize, 0..7usize, 1..9u64), 0..300),
    ) {
        let mut clock = DecayClock::new(decay);
        check(200, || { clock.step(); clock.unit() }, 7, &uses);
    }

    #[test]
    fn halving_is_the_eager_definition(
        period in 1..40u32,
        uses in prop::collection::vec((0..200usize, 0..7usize, 1..9u64), 0..300),
    ) {
        let mut clock = HalvingClock::new(period);
        check(200, || { clock.step(); clock.unit() }, 7, &uses);
    }
}

/// 20,000 steps at 0.9 multiply the unit by 10^915: an f64 would have had to be rescaled ten times.
#[test]
fn long_runs_need_no_rescaling() {
    let mut clock = DecayClock::new(0.9);
    let mut popularity = Popularity::new(3);
    for t in 0..20_000u64 {
        clock.step();
        let unit = clock.unit();
        popularity.add(0, unit.share(1, 1), unit.scale);
        if t % 2 == 0 {
            popularity.add(1, unit.share(1, 1), unit.scale);
        }
        if t == 0 {
            popularity.add(2, unit.share(1, 1), unit.scale);
        }
    }
    assert!(clock.unit().scale > 3000, "{}", clock.unit().scale);
    assert!(popularity.key(0, 0) > popularity.key(1, 0));
    assert!(popularity.key(1, 0) > popularity.key(2, 0));
    assert!(popularity.key(2, 0) > 0, "a use is never forgotten altogether");
}

/// The unit really is `decay^-t`, so that the option means what it says.
#[test]
fn the_unit_grows_by_the_inverse_of_the_decay() {
    for decay in [0.99, 0.9, 0.5, 0.123, 0.99999] {
        let mut clock = DecayClock::new(decay);
        for _ in 0..100 {
            clock.step();
        }
        let unit = clock.unit();
        let log2 = (unit.unit as f64 / f64::from(1 << UNIT_BITS)).log2() + f64::from(unit.scale);
        let expected = -100.0 * decay.log2();
        assert!((log2 - expected).abs() < 3e-6, "{decay}: {log2} against {expected}");
    }
}

#[test]
fn sums_saturate_instead_of_wrapping() {
    let mut popularity = Popularity::new(2);
    popularity.add(0, u64::MAX >> 1, 0);
    popularity.add(0, u64::MAX >> 1, 0);
    popularity.add(1, 1, 0);
    assert!(popularity.key(0, 0) > popularity.key(1, 0));
}
