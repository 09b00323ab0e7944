use super::*;
use crate::{l2_norm_columns_in_place, l2_norm_in_place, rms_norm, rms_norm_in_place, row_dots};

/// Relative error of a canonical sum of `n` products of one sign, and of what is computed from it by a few more
/// roundings: a lane adds `n / 16` times, the tree 4 times.
fn bound(n: usize) -> f64 {
    ((n / 16 + 1 + 4) as f64 + 5.0) * ROUNDING
}

#[test]
fn rms_norm_matches_the_formula() {
    for n in LENGTHS {
        let (rows, groups, eps) = (6, 3, 1e-6);
        let mut random = Random(n as u64);
        let x: Vec<f32> = random.values(rows * n).iter().map(|x| x * 3.0).collect();
        let gamma = random.values(groups * n);
        let y = everywhere("rms_norm", |pool| {
            let mut out = vec![0.0; x.len()];
            rms_norm(pool, &x, &gamma, n, eps, &mut out);
            out
        });
        let in_place = everywhere("rms_norm_in_place", |pool| {
            let mut x = x.clone();
            rms_norm_in_place(pool, &mut x, &gamma, n, eps);
            x
        });
        assert_eq!(y, in_place);
        let expected: Vec<f64> = (0..rows * n)
            .map(|i| {
                let row = wide(&x[i / n * n..][..n]);
                let mean = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
                row[i % n] / (mean + f64::from(eps)).sqrt() * f64::from(gamma[i % (groups * n)])
            })
            .collect();
        assert_near("rms_norm", &y, &expected, |i| expected[i].abs() * bound(n));
    }
}

#[test]
fn rows_do_not_depend_on_their_neighbours() {
    let (n, rows) = (100, 7);
    let x = Random(1).values(n * rows);
    let gamma = Random(2).values(n);
    let norm = |x: &[f32]| {
        let mut out = vec![0.0; x.len()];
        rms_norm(&Pool::new(1), x, &gamma, n, 1e-6, &mut out);
        out
    };
    let alone: Vec<f32> = x.chunks(n).flat_map(norm).collect();
    assert_eq!(alone, norm(&x));
}

#[test]
fn l2_norm_matches_the_formula() {
    for n in LENGTHS {
        let (rows, eps, scale) = (5, 1e-6, 0.088_388_35);
        let mut x = Random(n as u64).values(rows * n);
        x[..n].fill(0.0);
        let y = everywhere("l2_norm", |pool| {
            let mut x = x.clone();
            l2_norm_in_place(pool, &mut x, n, eps, scale);
            x
        });
        let expected: Vec<f64> = (0..rows * n)
            .map(|i| {
                let sum: f64 = wide(&x[i / n * n..][..n]).iter().map(|x| x * x).sum();
                f64::from(x[i]) / (sum + f64::from(eps)).sqrt() * f64::from(scale)
            })
            .collect();
        assert_near("l2_norm", &y, &expected, |i| expected[i].abs() * bound(n));
        assert_eq!(&y[..n], vec![0.0; n], "a zero row stays zero");
    }
}

#[test]
fn l2_norm_of_columns_touches_only_them() {
    let (tokens, stride, n) = (3, 50, 8);
    let x = Random(3).values(tokens * stride);
    let y = everywhere("l2_norm_columns", |pool| {
        let mut x = x.clone();
        l2_norm_columns_in_place(pool, &mut x, stride, 4..28, n, 1e-6, 2.0);
        x
    });
    for t in 0..tokens {
        let (x, y) = (&x[t * stride..][..stride], &y[t * stride..][..stride]);
        assert_eq!((&y[..4], &y[28..]), (&x[..4], &x[28..]));
        let mut columns = x[4..28].to_vec();
        l2_norm_in_place(&Pool::new(1), &mut columns, n, 1e-6, 2.0);
        assert_eq!(y[4..28], columns);
    }
}

#[test]
fn row_dots_are_canonical() {
    for n in LENGTHS {
        let (a, b) = (Random(4).values(4 * n), Random(5).values(4 * n));
        let y = everywhere("row_dots", |pool| {
            let mut out = vec![0.0; 4];
            row_dots(pool, &a, &b, n, &mut out);
            out
        });
        for (r, y) in y.iter().enumerate() {
            assert_eq!(y.to_bits(), crate::lanes::dot(&a[r * n..][..n], &b[r * n..][..n]).to_bits());
        }
    }
}

#[test]
#[should_panic(expected = "not whole rows of 16")]
fn ragged_rows_are_refused() {
    rms_norm_in_place(&Pool::new(1), &mut [0.0; 17], &[1.0; 16], 16, 1e-6);
}
