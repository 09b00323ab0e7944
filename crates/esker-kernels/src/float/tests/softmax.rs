use super::*;
use crate::{log_sum_exp, softmax_rows};

#[test]
fn softmax_matches_the_formula() {
    for n in LENGTHS {
        let rows = 4;
        let x: Vec<f32> = Random(n as u64).values(rows * n).iter().map(|x| x * 20.0).collect();
        let y = everywhere("softmax", |pool| {
            let mut x = x.clone();
            softmax_rows(pool, &mut x, n);
            x
        });
        let mut expected = Vec::new();
        for row in x.chunks(n) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let e: Vec<f64> = row.iter().map(|x| (f64::from(*x) - f64::from(max)).exp()).collect();
            let sum: f64 = e.iter().sum();
            expected.extend(e.iter().map(|e| e / sum));
        }
        // The argument x - max is rounded before exp: its error is up to |x - max| half ulps of 1.
        let bound = (40.0 + 2.0 + (n / 16 + 5) as f64 + 3.0) * ROUNDING;
        assert_near("softmax", &y, &expected, |i| expected[i] * bound + 1e-38);
        assert!(y.chunks(n).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-4));
    }
}

#[test]
fn softmax_edges() {
    let inf = f32::INFINITY;
    let soft = |x: &[f32]| {
        everywhere("softmax", |pool| {
            let mut x = x.to_vec();
            softmax_rows(pool, &mut x, 3);
            x
        })
    };
    assert_eq!(soft(&[5.0, -inf, 5.0]), [0.5, 0.0, 0.5]);
    assert_eq!(soft(&[1e30, -1e30, 0.0]), [1.0, 0.0, 0.0]);
    for broken in [[f32::NAN, 0.0, 1.0], [-inf; 3], [inf, 0.0, 0.0]] {
        assert!(soft(&broken).iter().any(|x| x.is_nan()), "{broken:?}");
    }
}

#[test]
fn log_sum_exp_matches_the_formula() {
    for n in LENGTHS {
        let x: Vec<f32> = Random(n as u64).values(n).iter().map(|x| x * 30.0).collect();
        let direct = x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        assert!((log_sum_exp(&x) - direct).abs() < 1e-13 * 30.0, "{n}");
    }
    assert_eq!(log_sum_exp(&[7.25]), 7.25);
    assert!((log_sum_exp(&[1000.0; 4]) - (1000.0 + 4f64.ln())).abs() < 1e-12);
    assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
    assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f64::NEG_INFINITY);
    assert_eq!(log_sum_exp(&[0.0, f32::INFINITY]), f64::INFINITY);
    assert!(log_sum_exp(&[0.0, f32::NAN]).is_nan());
}
