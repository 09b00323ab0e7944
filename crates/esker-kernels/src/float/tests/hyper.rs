use super::*;
use crate::{hc_combine, hc_mix_mean};

#[test]
fn streams_mix_and_combine() {
    for (tokens, hc, n) in [(1, 4, 2560), (5, 4, 33), (3, 2, 16), (2, 1, 7)] {
        let mut random = Random(n as u64);
        let (x, gate) = (random.values(tokens * hc * n), random.values(tokens * hc * n));
        let (y, w) = (random.values(tokens * n), random.values(tokens * hc));
        let mixed = everywhere("hc_mix_mean", |pool| {
            let mut out = vec![0.0; tokens * n];
            hc_mix_mean(pool, &x, &gate, hc, n, &mut out);
            out
        });
        for (i, mixed) in mixed.iter().enumerate() {
            let (t, column) = (i / n, i % n);
            let at = |s: usize| (t * hc + s) * n + column;
            let sum = (0..hc).fold(0.0f32, |sum, s| x[at(s)].mul_add(gate[at(s)], sum));
            assert_eq!(*mixed, sum * (1.0 / hc as f32));
        }
        let combined = everywhere("hc_combine", |pool| {
            let mut r = x.clone();
            hc_combine(pool, &mut r, &y, &w, hc, n);
            r
        });
        for (i, combined) in combined.iter().enumerate() {
            let (t, s, column) = (i / n / hc, i / n % hc, i % n);
            assert_eq!(*combined, w[t * hc + s].mul_add(y[t * n + column], x[i]));
        }
    }
}
