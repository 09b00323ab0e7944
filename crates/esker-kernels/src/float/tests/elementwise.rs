use super::*;
use crate::{
    add_in_place, add_scaled_rows, scatter_rows, sigmoid, sigmoid_mul_in_place, sigmoid_scaled_in_place,
    silu_mul, silu_mul_in_place, silu_scaled_in_place, split_halves, weighted_sum_rows,
};

/// Lengths beyond one task too.
const SIZES: [usize; 8] = [0, 1, 16, 255, 257, 1000, 5003, 40_001];

/// Applies `f` to a copy of `y`.
fn changed(what: &str, y: &[f32], f: impl Fn(&Pool, &mut [f32])) -> Vec<f32> {
    everywhere(what, |pool| {
        let mut y = y.to_vec();
        f(pool, &mut y);
        y
    })
}

fn sigmoid_f64(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

#[test]
fn elementwise_operations_match_their_formulas() {
    for n in SIZES {
        let mut random = Random(n as u64);
        let y = random.values(n);
        let x: Vec<f32> = random.values(n).iter().map(|x| x * 12.0).collect();
        let (yw, xw) = (wide(&y), wide(&x));
        let silu = |x: f32| f64::from(x) * sigmoid_f64(x);
        let check = |what: &str, actual: &[f32], expected: Vec<f64>, roundings: f64| {
            assert_near(what, actual, &expected, |i| expected[i].abs() * roundings * ROUNDING);
        };

        let sum = changed("add", &y, |pool, y| add_in_place(pool, y, &x));
        check("add", &sum, (0..n).map(|i| yw[i] + xw[i]).collect(), 1.0);

        let gated = changed("silu_mul", &y, |pool, out| silu_mul(pool, &x, &y, out));
        check("silu_mul", &gated, (0..n).map(|i| silu(x[i]) * yw[i]).collect(), 7.0);
        let gated_in_place = changed("silu_mul_in_place", &y, |pool, y| silu_mul_in_place(pool, y, &x));
        assert_eq!(gated, gated_in_place);

        let gated = changed("sigmoid_mul", &y, |pool, y| sigmoid_mul_in_place(pool, y, &x));
        check("sigmoid_mul", &gated, (0..n).map(|i| sigmoid_f64(x[i]) * yw[i]).collect(), 6.0);
        assert!(gated.iter().zip(&x).zip(&y).all(|((g, &x), y)| g.to_bits() == (y * sigmoid(x)).to_bits()));

        let scaled = changed("silu_scaled", &x, |pool, x| silu_scaled_in_place(pool, x, 0.25));
        check("silu_scaled", &scaled, x.iter().map(|x| silu(x * 0.25)).collect(), 6.0);
        let scaled = changed("sigmoid_scaled", &x, |pool, x| sigmoid_scaled_in_place(pool, x, 0.25, 2.0));
        check("sigmoid_scaled", &scaled, x.iter().map(|x| 2.0 * sigmoid_f64(x * 0.25)).collect(), 6.0);
    }
}

#[test]
fn scaled_rows_are_added_with_one_rounding() {
    let (rows, n) = (9, 1001);
    let mut random = Random(7);
    let (y, x, w) = (random.values(rows * n), random.values(rows * n), random.values(rows));
    let sum = changed("add_scaled_rows", &y, |pool, y| add_scaled_rows(pool, y, &x, &w, n));
    for i in 0..rows * n {
        assert_eq!(sum[i].to_bits(), w[i / n].mul_add(x[i], y[i]).to_bits());
    }
}

#[test]
fn halves_are_split() {
    let (rows, n) = (5, 130);
    let x = Random(8).values(rows * 2 * n);
    let both = everywhere("split_halves", |pool| {
        let mut both = vec![0.0; x.len()];
        let (first, second) = both.split_at_mut(rows * n);
        split_halves(pool, &x, n, first, second);
        both
    });
    for r in 0..rows {
        for i in 0..n {
            assert_eq!(both[r * n + i], x[r * 2 * n + i]);
            assert_eq!(both[(rows + r) * n + i], x[r * 2 * n + n + i]);
        }
    }
}

#[test]
fn experts_are_summed_in_rank_order() {
    for (tokens, k, n) in [(1, 10, 2560), (3, 4, 70), (2, 1, 16), (2, 0, 5)] {
        let mut random = Random(9);
        let (rows, w, before) =
            (random.values(tokens * k * n), random.values(tokens * k), random.values(tokens * n));
        let y = changed("weighted_sum_rows", &before, |pool, y| weighted_sum_rows(pool, &rows, &w, y, n));
        for (i, y) in y.iter().enumerate() {
            let (t, column) = (i / n, i % n);
            let sum =
                (0..k).fold(before[i], |sum, r| w[t * k + r].mul_add(rows[(t * k + r) * n + column], sum));
            assert_eq!(y.to_bits(), sum.to_bits());
        }
    }
}

#[test]
fn scattered_rows_are_where_they_should_be() {
    for (n, n_out) in [(1, 5), (100, 9), (300, 64), (2048, 200)] {
        let mut random = Random(n as u64);
        let rows = random.values(n * (n_out + 2));
        // Every second place, last first, in lists of three lengths; the first and last row go to the same place.
        let mut to: Vec<u32> = (0..n_out as u32).step_by(2).rev().collect();
        to.push(to[0]);
        let lists = [&to[..1], &[], &to[1..]];
        let before = random.values(n * n_out);
        let after = changed("scatter_rows", &before, |pool, out| scatter_rows(pool, &rows, &lists, out, n));
        for (place, after) in after.chunks_exact(n).enumerate() {
            let expected = match to.iter().rposition(|&t| t as usize == place) {
                Some(row) => &rows[row * n..][..n],
                None => &before[place * n..][..n],
            };
            assert_eq!(after, expected);
        }
    }
}
