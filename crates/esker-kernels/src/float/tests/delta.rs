use super::*;
use crate::{DeltaShape, HeadPairing, Strided, delta_net, l2_norm_in_place, softplus_decay};

struct Inputs {
    shape: DeltaShape,
    tokens: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
}

/// Inputs as a layer makes them: unit keys, scaled queries, decays from weak to strong, a used state.
fn inputs(shape: DeltaShape, tokens: usize) -> Inputs {
    let DeltaShape { n_k, n_v, d, .. } = shape;
    let mut random = Random((d * tokens) as u64);
    let pool = Pool::new(1);
    let mut q = random.values(tokens * n_k * d);
    l2_norm_in_place(&pool, &mut q, d, 1e-6, (d as f32).powf(-0.5));
    let mut k = random.values(tokens * n_k * d);
    l2_norm_in_place(&pool, &mut k, d, 1e-6, 1.0);
    let v = random.values(tokens * n_v * d);
    let decay = random.values(tokens * n_v).iter().map(|x| -(3.0 * x).exp() * 0.1).collect();
    let beta = random.values(tokens * n_v).iter().map(|x| 0.5 + 0.5 * x).collect();
    Inputs { shape, tokens, q, k, v, decay, beta, state: random.values(n_v * d * d) }
}

impl Inputs {
    /// Runs in pieces of `piece` tokens; returns the output followed by the state.
    fn run(&self, pool: &Pool, piece: usize) -> Vec<f32> {
        let DeltaShape { n_k, n_v, d, .. } = self.shape;
        let mut state = self.state.clone();
        let mut out = vec![0.0; self.v.len()];
        for from in (0..self.tokens).step_by(piece) {
            let n = piece.min(self.tokens - from);
            delta_net(
                pool,
                &self.q[from * n_k * d..],
                &self.k[from * n_k * d..],
                &self.v[from * n_v * d..],
                &self.decay[from * n_v..(from + n) * n_v],
                &self.beta[from * n_v..(from + n) * n_v],
                &mut state,
                &self.shape,
                &mut out[from * n_v * d..(from + n) * n_v * d],
            );
        }
        out.extend(state);
        out
    }

    fn key_head(&self, head: usize) -> usize {
        match self.shape.pairing {
            HeadPairing::Tiled => head % self.shape.n_k,
            HeadPairing::Grouped => head / (self.shape.n_v / self.shape.n_k),
        }
    }

    /// The chunked form in f64 (chunks of `c` tokens): a triangular solve instead of a recurrence. Output, then state
    /// in the layout of `run`.
    fn chunked(&self, c: usize) -> Vec<f64> {
        let DeltaShape { n_k, n_v, d, .. } = self.shape;
        let mut out = vec![0.0; self.tokens * n_v * d];
        let mut states = wide(&self.state);
        for head in 0..n_v {
            let state = &mut states[head * d * d..][..d * d]; // [value, key]
            for from in (0..self.tokens).step_by(c) {
                let n = c.min(self.tokens - from);
                let row = |x: &[f32], heads: usize, h: usize, i: usize| {
                    wide(&x[((from + i) * heads + h) * d..][..d])
                };
                let q: Vec<_> = (0..n).map(|i| row(&self.q, n_k, self.key_head(head), i)).collect();
                let k: Vec<_> = (0..n).map(|i| row(&self.k, n_k, self.key_head(head), i)).collect();
                let v: Vec<_> = (0..n).map(|i| row(&self.v, n_v, head, i)).collect();
                let beta: Vec<f64> = (0..n).map(|i| self.beta[(from + i) * n_v + head].into()).collect();
                let mut g = 0.0;
                let g: Vec<f64> = (0..n)
                    .map(|i| {
                        g += f64::from(self.decay[(from + i) * n_v + head]);
                        g
                    })
                    .collect();
                // Rows of (I + strictly_lower(diag(beta) K Kᵀ ⊙ E)) N = diag(beta) (V - exp(G) K S0), solved forward.
                let mut new: Vec<Vec<f64>> = Vec::new();
                for i in 0..n {
                    let mut rhs: Vec<f64> = (0..d)
                        .map(|c| beta[i] * (v[i][c] - g[i].exp() * dot(&k[i], &state[c * d..][..d])))
                        .collect();
                    for (j, solved) in new.iter().enumerate() {
                        let a = beta[i] * dot(&k[i], &k[j]) * (g[i] - g[j]).exp();
                        rhs.iter_mut().zip(solved).for_each(|(r, s)| *r -= a * s);
                    }
                    new.push(rhs);
                }
                for i in 0..n {
                    for c in 0..d {
                        let past = g[i].exp() * dot(&q[i], &state[c * d..][..d]);
                        let inside: f64 =
                            (0..=i).map(|j| dot(&q[i], &k[j]) * (g[i] - g[j]).exp() * new[j][c]).sum();
                        out[((from + i) * n_v + head) * d + c] = past + inside;
                    }
                }
                for c in 0..d {
                    for x in 0..d {
                        let inside: f64 = (0..n).map(|j| (g[n - 1] - g[j]).exp() * k[j][x] * new[j][c]).sum();
                        state[c * d + x] = g[n - 1].exp() * state[c * d + x] + inside;
                    }
                }
            }
        }
        out.extend(states);
        out
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

const TILED: DeltaShape = DeltaShape { n_k: 2, n_v: 6, d: 32, pairing: HeadPairing::Tiled };
const GROUPED: DeltaShape = DeltaShape { n_k: 2, n_v: 4, d: 19, pairing: HeadPairing::Grouped };

#[test]
fn the_recurrence_equals_the_chunked_form() {
    for (shape, tokens) in [(TILED, 45), (GROUPED, 20)] {
        let inputs = inputs(shape, tokens);
        let actual = everywhere("delta_net", |pool| inputs.run(pool, tokens));
        for c in [1, 7, 64] {
            // States stay of magnitude 1 to 2 (unit keys, beta below 1); an error made at one token is not amplified by
            // later ones, so it adds up over tokens: a dot product over d and three roundings each.
            let d = shape.d as f64;
            let bound = tokens as f64 * (d / 16.0 + 8.0) * 2.0 * d.sqrt() * ROUNDING;
            assert_near("delta_net", &actual, &inputs.chunked(c), |_| bound);
        }
    }
}

#[test]
fn any_split_gives_the_same_bits() {
    for (shape, tokens) in [(TILED, 130), (GROUPED, 70)] {
        let inputs = inputs(shape, tokens);
        let pool = Pool::new(2);
        let whole = inputs.run(&pool, tokens);
        for piece in [1, 7, 64] {
            assert_eq!(whole, inputs.run(&pool, piece), "pieces of {piece}");
        }
    }
}

#[test]
fn the_layers_real_shape_runs_alike() {
    let shape = DeltaShape { n_k: 16, n_v: 48, d: 128, pairing: HeadPairing::Tiled };
    let inputs = inputs(shape, 1);
    everywhere("delta_net 48 x 128", |pool| inputs.run(pool, 1));
}

#[test]
fn strided_rows_are_read_in_place() {
    let inputs = inputs(TILED, 9);
    let DeltaShape { n_k, n_v, d, .. } = TILED;
    let stride = (2 * n_k + n_v) * d;
    let mut rows = Vec::new();
    for t in 0..inputs.tokens {
        rows.extend_from_slice(&inputs.q[t * n_k * d..][..n_k * d]);
        rows.extend_from_slice(&inputs.k[t * n_k * d..][..n_k * d]);
        rows.extend_from_slice(&inputs.v[t * n_v * d..][..n_v * d]);
    }
    let part = |start: usize| Strided { data: &rows[start * d..], stride };
    let mut state = inputs.state.clone();
    let mut out = vec![0.0; inputs.v.len()];
    let pool = Pool::new(1);
    let (q, k, v) = (part(0), part(n_k), part(2 * n_k));
    delta_net(&pool, q, k, v, &inputs.decay, &inputs.beta, &mut state, &TILED, &mut out);
    out.extend(state);
    assert_eq!(out, inputs.run(&pool, 9));
}

#[test]
#[should_panic(expected = "v has 191 values, 1 rows need 192")]
fn short_rows_are_refused() {
    let inputs = inputs(TILED, 1);
    let (mut state, mut out) = (inputs.state.clone(), vec![0.0; 192]);
    let v = &inputs.v[1..];
    delta_net(
        &Pool::new(1),
        &inputs.q,
        &inputs.k,
        v,
        &inputs.decay,
        &inputs.beta,
        &mut state,
        &TILED,
        &mut out,
    );
}

#[test]
fn decay_is_a_softplus() {
    for n in [1, 16, 48, 50] {
        let mut random = Random(n as u64);
        let alpha: Vec<f32> = random.values(3 * n).iter().map(|x| x * 30.0).collect();
        let (bias, a) = (random.values(n), random.values(n).iter().map(|x| -x.exp()).collect::<Vec<_>>());
        let y = everywhere("softplus_decay", |pool| {
            let mut alpha = alpha.clone();
            softplus_decay(pool, &mut alpha, &bias, &a);
            alpha
        });
        let expected: Vec<f64> = (0..3 * n)
            .map(|i| f64::from(a[i % n]) * f64::from(alpha[i] + bias[i % n]).exp().ln_1p())
            .collect();
        assert_near("softplus_decay", &y, &expected, |i| expected[i].abs() * 6.0 * ROUNDING + 1e-37);
    }
}
