//! Several readings of one quantity.

use serde::{Deserialize, Serialize};

/// The middle of several readings, and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// By nearest rank: a value that was measured, the lower of the two in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one reading.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Spread { median: sorted[(sorted.len() - 1) / 2], min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_reading() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([7.0]).median, 7.0);
    }
}
