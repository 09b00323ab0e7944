use super::*;
use crate::{RopeStyle, rope};

#[test]
fn pairs_rotate_and_the_tail_stays() {
    for (heads, dim, n_rot) in [(3, 256, 64), (2, 128, 128), (1, 10, 6), (2, 70, 66), (2, 8, 0)] {
        let (tokens, half) = (5, n_rot / 2);
        let x = Random(dim as u64).values(tokens * heads * dim);
        let angle = |i: usize| (i / half.max(1) + 100) as f64 * 0.37f64.powf((i % half.max(1)) as f64 / 7.0);
        let cos: Vec<f32> = (0..tokens * half).map(|i| angle(i).cos() as f32).collect();
        let sin: Vec<f32> = (0..tokens * half).map(|i| angle(i).sin() as f32).collect();
        for style in [RopeStyle::HalfSplit, RopeStyle::Interleaved] {
            let y = everywhere("rope", |pool| {
                let mut x = x.clone();
                rope(pool, &mut x, heads, dim, n_rot, &cos, &sin, style);
                x
            });
            let mut expected = wide(&x);
            for row in 0..tokens * heads {
                for i in 0..half {
                    let (a, b) = match style {
                        RopeStyle::HalfSplit => (i, i + half),
                        RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                    };
                    let (a, b) = (row * dim + a, row * dim + b);
                    let angle = row / heads * half + i;
                    let (c, s) = (f64::from(cos[angle]), f64::from(sin[angle]));
                    (expected[a], expected[b]) = (
                        f64::from(x[a]) * c - f64::from(x[b]) * s,
                        f64::from(x[b]) * c + f64::from(x[a]) * s,
                    );
                }
            }
            // One rounded product and one fma, of magnitudes up to 1 and 2.
            assert_near("rope", &y, &expected, |_| 3.0 * ROUNDING);
            for (row, (x, y)) in x.chunks(dim).zip(y.chunks(dim)).enumerate() {
                assert_eq!(x[n_rot..], y[n_rot..], "the tail of row {row}");
            }
        }
    }
}

#[test]
fn rotating_back_returns() {
    let (cos, sin) = ([0.6f32; 8], [0.8f32; 8]);
    let x = Random(1).values(16);
    let mut y = x.clone();
    rope(&Pool::new(1), &mut y, 1, 16, 16, &cos, &sin, RopeStyle::HalfSplit);
    rope(&Pool::new(1), &mut y, 1, 16, 16, &cos, &sin.map(|s| -s), RopeStyle::HalfSplit);
    assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-6));
}
