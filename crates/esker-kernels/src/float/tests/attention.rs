use super::*;
use crate::{AttnScratch, AttnShape, Kv, KvMut, Visible, attend, f16_to_f32, kv_store};

struct Case {
    shape: AttnShape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    k16: Vec<u16>,
    v16: Vec<u16>,
}

fn case(
    n_head: usize,
    n_head_kv: usize,
    head_dim: usize,
    head_dim_v: usize,
    capacity: usize,
    tokens: usize,
) -> Case {
    let scale = (head_dim as f32).powf(-0.5);
    let shape = AttnShape { n_head, n_head_kv, head_dim, head_dim_v, capacity, scale };
    let mut random = Random((head_dim * capacity) as u64);
    let q = random.values(tokens * n_head * head_dim).iter().map(|x| x * 4.0).collect();
    let mut k = random.values(n_head_kv * capacity * head_dim);
    let mut v = random.values(n_head_kv * capacity * head_dim_v);
    let narrow = |x: &mut Vec<f32>| {
        let mut halves = vec![0; x.len()];
        kv_store(&Pool::new(1), x, KvMut::F16(&mut halves), 1, x.len(), 1, 0);
        *x = halves.iter().map(|&h| f16_to_f32(h)).collect();
        halves
    };
    let (k16, v16) = (narrow(&mut k), narrow(&mut v));
    Case { shape, q, k, v, k16, v16 }
}

impl Case {
    fn q_of(&self, tokens: std::ops::Range<usize>) -> &[f32] {
        let width = self.shape.n_head * self.shape.head_dim;
        &self.q[tokens.start * width..tokens.end * width]
    }

    fn run(&self, pool: &Pool, q: &[f32], visible: Visible<'_>, half: bool) -> Vec<f32> {
        let (k, v) = if half {
            (Kv::F16(&self.k16), Kv::F16(&self.v16))
        } else {
            (Kv::F32(&self.k), Kv::F32(&self.v))
        };
        let tokens = q.len() / (self.shape.n_head * self.shape.head_dim);
        let mut out = vec![f32::NAN; tokens * self.shape.n_head * self.shape.head_dim_v];
        attend(pool, q, k, v, &self.shape, visible, &mut AttnScratch::new(), &mut out);
        out
    }

    /// The formula in f64 for query `t` seeing `positions`.
    fn reference(&self, t: usize, positions: &[u32]) -> Vec<f64> {
        let AttnShape { n_head, n_head_kv, head_dim, head_dim_v, capacity, scale } = self.shape;
        let mut out = Vec::new();
        for h in 0..n_head {
            let kv = h / (n_head / n_head_kv);
            let q = wide(&self.q[(t * n_head + h) * head_dim..][..head_dim]);
            let row = |x: &[f32], d: usize, p: u32| wide(&x[(kv * capacity + p as usize) * d..][..d]);
            let scores: Vec<f64> = positions
                .iter()
                .map(|&p| {
                    let k = row(&self.k, head_dim, p);
                    q.iter().zip(&k).map(|(q, k)| q * k).sum::<f64>() * f64::from(scale)
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut sums = vec![0.0; head_dim_v];
            for (&p, w) in positions.iter().zip(weights) {
                let v = row(&self.v, head_dim_v, p);
                sums.iter_mut().zip(v).for_each(|(s, v)| *s += w / sum * v);
            }
            out.extend(sums);
        }
        out
    }
}

/// Scores are below 8 sqrt(d): each carries the rounding of a canonical dot product of that magnitude, which the
/// exponential turns into a relative error of the weights; the values, up to 1, are added one by one.
fn bound(shape: &AttnShape, visible: usize) -> f64 {
    let d = shape.head_dim as f64;
    let score = 4.0 * d * f64::from(shape.scale) * (d / 16.0 + 8.0) * ROUNDING;
    2.0 * score + (256.0 + visible as f64 / 16.0 + 20.0) * ROUNDING
}

#[test]
fn attention_matches_the_formula() {
    // Groups of 1, 5, 12 and 20 heads; ragged head sizes; one block, an exact block, several blocks.
    let cases = [
        (24, 2, 64, 64, 700, 3, 0),
        (5, 1, 20, 37, 300, 2, 255),
        (3, 3, 16, 80, 256, 4, 100),
        (20, 1, 32, 16, 1100, 1, 1099),
        (4, 2, 128, 128, 40, 40, 0),
    ];
    for (n_head, n_kv, d, dv, capacity, tokens, first) in cases {
        let case = case(n_head, n_kv, d, dv, capacity, tokens);
        let visible = Visible::Causal { first_position: first };
        let out = everywhere("attend", |pool| case.run(pool, &case.q, visible, false));
        let half = everywhere("attend f16", |pool| case.run(pool, &case.q, visible, true));
        assert_eq!(out, half, "halves are widened exactly");
        for t in 0..tokens {
            let positions: Vec<u32> = (0..(first + t + 1) as u32).collect();
            let expected = case.reference(t, &positions);
            let bound = bound(&case.shape, positions.len());
            assert_near("attend", &out[t * n_head * dv..][..n_head * dv], &expected, |_| bound);
        }
    }
}

#[test]
fn lists_of_all_positions_equal_causal() {
    let case = case(6, 2, 32, 32, 600, 5);
    let first = 400;
    let mut offsets = vec![0];
    let mut positions = Vec::new();
    for t in 0..5 {
        positions.extend(0..(first + t + 1) as u32);
        offsets.push(positions.len() as u32);
    }
    for threads in [1, 2, 3] {
        let pool = Pool::new(threads);
        let causal = case.run(&pool, &case.q, Visible::Causal { first_position: first }, true);
        let lists = Visible::Lists { offsets: &offsets, positions: &positions };
        assert_eq!(causal, case.run(&pool, &case.q, lists, true));
    }
}

#[test]
fn lists_select_positions() {
    let case = case(4, 1, 16, 16, 2000, 4);
    let mut random = Random(5);
    let mut offsets = vec![0u32];
    let mut positions = Vec::new();
    // None, one, a block and a bit, several blocks.
    for n in [0, 1, 300, 1500] {
        let mut chosen: Vec<u32> = (0..2000).collect();
        while chosen.len() > n {
            chosen.remove(random.below(chosen.len()));
        }
        positions.extend(chosen);
        offsets.push(positions.len() as u32);
    }
    let visible = Visible::Lists { offsets: &offsets, positions: &positions };
    let out = everywhere("attend lists", |pool| case.run(pool, &case.q, visible, false));
    assert_eq!(out[..64], [0.0; 64], "a query that sees nothing");
    for t in 1..4 {
        let list = &positions[offsets[t] as usize..offsets[t + 1] as usize];
        let bound = bound(&case.shape, list.len());
        assert_near("attend lists", &out[t * 64..][..64], &case.reference(t, list), |_| bound);
    }
}

#[test]
fn a_query_alone_equals_itself_in_a_batch() {
    let (tokens, first) = (60, 1000);
    let case = case(6, 2, 48, 32, 1100, tokens);
    for threads in [1, 3] {
        let pool = Pool::new(threads);
        let batch = case.run(&pool, &case.q, Visible::Causal { first_position: first }, true);
        let width = 6 * 32;
        for t in [0, 1, 23, 24, 59] {
            let alone =
                case.run(&pool, case.q_of(t..t + 1), Visible::Causal { first_position: first + t }, true);
            assert_eq!(alone, batch[t * width..][..width], "query {t} of {tokens} with {threads} threads");
        }
        let pieces: Vec<f32> = (0..tokens)
            .step_by(7)
            .flat_map(|t| {
                let piece = case.q_of(t..tokens.min(t + 7));
                case.run(&pool, piece, Visible::Causal { first_position: first + t }, true)
            })
            .collect();
        assert_eq!(pieces, batch);
    }
}

/// More blocks than partial results are kept for: several rounds, in both halves of a query.
#[test]
fn a_long_context_takes_several_rounds() {
    let capacity = 300 * 256 + 17;
    let case = case(2, 1, 4, 4, capacity, 1);
    let visible = Visible::Causal { first_position: capacity - 1 };
    let (one, two) = (Pool::new(1), Pool::new(2));
    let alone = case.run(&one, &case.q, visible, true);
    assert_eq!(alone, case.run(&two, &case.q, visible, true));
    let mut scratch = AttnScratch::new();
    scratch.reserve(&case.shape, two.threads());
    let mut out = vec![0.0; 8];
    attend(
        &two,
        &case.q,
        Kv::F16(&case.k16),
        Kv::F16(&case.v16),
        &case.shape,
        visible,
        &mut scratch,
        &mut out,
    );
    assert_eq!(alone, out);
}

#[test]
#[should_panic(expected = "beyond the capacity")]
fn queries_beyond_the_capacity_are_refused() {
    let case = case(1, 1, 4, 4, 8, 2);
    case.run(&Pool::new(1), &case.q, Visible::Causal { first_position: 7 }, false);
}
