//! Normally distributed values by table: a random number of 12 bits picks one of 4096 quantiles.

use std::f64::consts::{FRAC_1_SQRT_2, PI};
use std::sync::LazyLock;

/// Bits that pick a value.
pub(super) const BITS: u32 = 12;

const N: usize = 1 << BITS;

/// The quantiles of the standard normal distribution at (i + 1/2) / 4096, scaled to a mean square of exactly 1.
///
/// `libm` computes them, so that they are the same on every platform.
pub(super) static QUANTILES: LazyLock<Box<[f32; N]>> = LazyLock::new(|| {
    let half: Vec<f64> = (0..N / 2).map(|i| upper_quantile(0.5 + (i as f64 + 0.5) / N as f64)).collect();
    let scale = (half.len() as f64 / half.iter().map(|x| x * x).sum::<f64>()).sqrt();
    let mut table = Box::new([0.0; N]);
    for (i, x) in half.iter().enumerate() {
        let x = (x * scale) as f32;
        table[N / 2 + i] = x;
        table[N / 2 - 1 - i] = -x;
    }
    table
});

/// The x whose distribution function is `p`, 0.5 < p < 1: Newton's method from 0, where the function is concave, so that
/// every step stays on one side.
fn upper_quantile(p: f64) -> f64 {
    let mut x = 0.0;
    for _ in 0..40 {
        let over = 0.5 * (1.0 + libm::erf(x * FRAC_1_SQRT_2)) - p;
        let density = libm::exp(-0.5 * x * x) / (2.0 * PI).sqrt();
        x -= over / density;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_normal_distribution() {
        let table = &**QUANTILES;
        assert!(table.is_sorted_by(|a, b| a < b));
        assert!((0..N).all(|i| table[i] == -table[N - 1 - i]));
        let mean_square = table.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / N as f64;
        assert!((mean_square - 1.0).abs() < 1e-6);
        // 84.13 % lie below one standard deviation, 97.72 % below two.
        let below = |x: f32| table.iter().filter(|&&q| q < x).count() as f64 / N as f64;
        assert!((below(1.0) - 0.8413).abs() < 5e-4 && (below(2.0) - 0.9772).abs() < 5e-4);
    }
}
