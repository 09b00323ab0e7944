use super::*;
use crate::causal_conv;

struct Case {
    taps: usize,
    dilation: usize,
    ch: usize,
}

const CASES: [Case; 5] = [
    Case { taps: 4, dilation: 1, ch: 130 },
    Case { taps: 4, dilation: 3, ch: 64 },
    Case { taps: 1, dilation: 1, ch: 5 },
    Case { taps: 3, dilation: 2, ch: 16 },
    Case { taps: 16, dilation: 1, ch: 17 },
];

impl Case {
    fn past(&self) -> usize {
        (self.taps - 1) * self.dilation
    }

    /// Runs `x` in pieces of `piece` tokens; returns the output followed by the history.
    fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        history: &[f32],
        kernel: &[f32],
        silu: bool,
        piece: usize,
    ) -> Vec<f32> {
        let mut history = history.to_vec();
        let mut out = vec![0.0; x.len()];
        for (x, out) in x.chunks(piece * self.ch).zip(out.chunks_mut(piece * self.ch)) {
            causal_conv(pool, x, &mut history, kernel, self.taps, self.dilation, self.ch, silu, out);
        }
        out.extend(history);
        out
    }
}

#[test]
fn convolution_matches_the_formula() {
    for case in CASES {
        let tokens = 23;
        let mut random = Random(case.ch as u64);
        let x = random.values(tokens * case.ch);
        let history = random.values(case.past() * case.ch);
        let kernel = random.values(case.ch * case.taps);
        let all: Vec<f32> = history.iter().chain(&x).copied().collect();
        for silu in [false, true] {
            let result =
                everywhere("causal_conv", |pool| case.run(pool, &x, &history, &kernel, silu, tokens));
            let (out, new_history) = result.split_at(x.len());
            assert_eq!(new_history, &all[tokens * case.ch..], "the history is the last rows");
            let mut expected = Vec::new();
            for t in 0..tokens {
                for c in 0..case.ch {
                    let sum: f64 = (0..case.taps)
                        .map(|j| {
                            f64::from(kernel[c * case.taps + j])
                                * f64::from(all[(t + j * case.dilation) * case.ch + c])
                        })
                        .sum();
                    expected.push(if silu { sum / (1.0 + (-sum).exp()) } else { sum });
                }
            }
            // `taps` roundings of sums up to `taps`; silu's slope is at most 1.1, its own error 6 roundings.
            let taps = case.taps as f64;
            assert_near("causal_conv", out, &expected, |_| (taps * taps * 1.1 + 6.0 * taps) * ROUNDING);
        }
    }
}

#[test]
fn any_split_gives_the_same_bits() {
    for case in CASES {
        let tokens = 131;
        let mut random = Random(3);
        let x = random.values(tokens * case.ch);
        let history = random.values(case.past() * case.ch);
        let kernel = random.values(case.ch * case.taps);
        let pool = Pool::new(2);
        let whole = case.run(&pool, &x, &history, &kernel, true, tokens);
        for piece in [1, 7, 64] {
            assert_eq!(whole, case.run(&pool, &x, &history, &kernel, true, piece), "pieces of {piece}");
        }
    }
}

/// Dilation 3, four taps: an impulse at token t reaches t, t + 3, t + 6 and t + 9 only.
#[test]
fn an_impulse_reaches_the_taps_only() {
    let case = Case { taps: 4, dilation: 3, ch: 2 };
    let kernel = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let mut x = vec![0.0; 20 * 2];
    x[5 * 2..6 * 2].fill(1.0);
    let out = case.run(&Pool::new(1), &x, &[0.0; 18], &kernel, false, 20);
    for t in 0..20 {
        let tap = [(5, 3), (8, 2), (11, 1), (14, 0)].iter().find(|(at, _)| *at == t);
        let expected = tap.map_or([0.0, 0.0], |&(_, j)| [kernel[j], kernel[4 + j]]);
        assert_eq!(out[t * 2..][..2], expected, "token {t}");
    }
}

#[test]
fn no_tokens_change_nothing() {
    let case = Case { taps: 4, dilation: 1, ch: 3 };
    let history = Random(1).values(9);
    let mut after = history.clone();
    causal_conv(&Pool::new(1), &[], &mut after, &[0.5; 12], case.taps, 1, case.ch, true, &mut []);
    assert_eq!(history, after);
}
