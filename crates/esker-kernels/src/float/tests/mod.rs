//! One suite per operation. Each case goes through [`everywhere`]: the same bits on every instruction set and for
//! every number of threads; then one result is compared with a plain f64 reference, within a derived bound.

mod attention;
mod conv;
mod delta;
mod elementwise;
mod hyper;
mod indexer;
mod kv;
mod math;
mod norm;
mod rope;
mod select;
mod softmax;

use super::multiversion::with_isa;
use crate::isa::Isa;
use crate::pool::Pool;

/// Row lengths around the lane count, its multiples and the task sizes.
const LENGTHS: [usize; 12] = [1, 2, 15, 16, 17, 31, 32, 48, 100, 128, 257, 2560];

/// Runs `f` on every available instruction set with 1, 2 and 3 threads and checks that all results have the bits of
/// the scalar definition on one thread, which it returns. NaN equals NaN.
fn everywhere(what: &str, f: impl Fn(&Pool) -> Vec<f32>) -> Vec<f32> {
    thread_local! {
        static POOLS: [Pool; 3] = [1, 2, 3].map(Pool::new);
    }
    POOLS.with(|pools| {
        let expected = with_isa(Isa::Scalar, || f(&pools[0]));
        for isa in Isa::available() {
            for pool in pools {
                let actual = with_isa(isa, || f(pool));
                let case = format!("{what} on {isa} with {} threads", pool.threads());
                assert_eq!(actual.len(), expected.len(), "{case}");
                for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
                    assert!(
                        a.to_bits() == e.to_bits() || (a.is_nan() && e.is_nan()),
                        "{case}: [{i}] is {a}, not {e}"
                    );
                }
            }
        }
        expected
    })
}

/// Asserts `|actual - expected| <= bound` for each element.
fn assert_near(what: &str, actual: &[f32], expected: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(a) - e).abs();
        assert!(
            error <= bound(i),
            "{what}: [{i}] is {a}, expected {e}, error {error:e} above {:e}",
            bound(i)
        );
    }
}

/// Half an ulp of 1: the relative error of one rounding.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// Seeded values without a pattern (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `-1..1`.
    fn value(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}
