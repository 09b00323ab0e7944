//! One suite for every type and every instruction set of this machine.

use super::*;
use crate::testdata::{Golden, Rng, random_weights};
use proptest::prelude::*;

/// Types that matrices can have.
fn types() -> Vec<GgmlType> {
    GgmlType::all().collect()
}

struct Case {
    ty: GgmlType,
    n_rows: usize,
    n_cols: usize,
    n_acts: usize,
    tokens: Option<Vec<u32>>,
    weights: Vec<u8>,
    x: Vec<f32>,
}

impl Case {
    /// `n_blocks` counts the larger of weight and activation block.
    fn new(seed: u64, ty: GgmlType, n_rows: usize, n_blocks: usize, n_tokens: usize, subset: bool) -> Case {
        let mut rng = Rng::new(seed);
        let n_cols = n_blocks * ty.block_elems().max(act_format(ty).block_elems()).max(8);
        let n_acts = if subset { n_tokens + 3 } else { n_tokens };
        let tokens = subset.then(|| (0..n_tokens).map(|_| rng.below(n_acts) as u32).collect());
        let weights = random_weights(&mut rng, ty, n_rows, n_cols);
        let x = (0..n_acts * n_cols).map(|_| rng.normal()).collect();
        Case { ty, n_rows, n_cols, n_acts, tokens, weights, x }
    }

    fn n_tokens(&self) -> usize {
        self.tokens.as_ref().map_or(self.n_acts, Vec::len)
    }

    fn run(&self, isa: Isa, pool: &Pool) -> Vec<f32> {
        let mut buf = ActBuf::new();
        let acts = buf.prepare(pool, act_format(self.ty), &self.x, self.n_cols);
        let mut out = vec![f32::NAN; self.n_tokens() * self.n_rows];
        let weights = Weights::new(self.ty, self.n_rows, self.n_cols, &self.weights);
        let job = Job { weights, acts, tokens: self.tokens.as_deref(), out: &mut out };
        matmul_with(isa, pool, &mut [job]);
        out
    }

    /// The f64 value of each element and the limit of its error.
    fn exact(&self) -> Vec<(f64, f64)> {
        let pool = Pool::new(1);
        let mut buf = ActBuf::new();
        let acts = buf.prepare(&pool, act_format(self.ty), &self.x, self.n_cols);
        let row_bytes = self.weights.len() / self.n_rows;
        let rows: Vec<_> = (self.weights.chunks_exact(row_bytes))
            .map(|row| {
                let mut w = vec![0.0f32; self.n_cols];
                esker_quant::decode(self.ty, row, &mut w).unwrap();
                (w, scalar::magnitudes(self.ty, row))
            })
            .collect();
        let mut out = Vec::new();
        let mut x = vec![0.0f32; self.n_cols];
        for t in 0..self.n_tokens() {
            let row = self.tokens.as_ref().map_or(t, |tokens| tokens[t] as usize);
            acts.decode_row(row, &mut x);
            for (w, magnitudes) in &rows {
                let value = w.iter().zip(&x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                let magnitude = magnitudes.iter().zip(&x).map(|(m, &x)| m * f64::from(x).abs()).sum();
                out.push((value, tolerance(self.n_cols, magnitude)));
            }
        }
        out
    }
}

/// Derived, not tuned: every rounding loses at most half an epsilon of the sum of magnitudes. On the way to one element
/// there are at most `n / 16` in a lane (F32; fewer in the others), 4 in the tree, 4 for the decoded weight (scale,
/// code, minimum, difference), 2 for the decoded activation, 2 for scale products, 3 for the minima's own sum. The last
/// term is for results near zero, where a rounding loses up to half the smallest subnormal.
fn tolerance(n_cols: usize, magnitude: f64) -> f64 {
    let roundings = (n_cols / 16 + 16) as f64;
    roundings * (f64::from(f32::EPSILON) / 2.0 * 1.001 * magnitude + 2f64.powi(-149))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn check(case: &Case) {
    let single = Pool::new(1);
    let expected = case.run(Isa::Scalar, &single);
    for (i, ((exact, limit), &actual)) in case.exact().into_iter().zip(&expected).enumerate() {
        let error = (f64::from(actual) - exact).abs();
        assert!(error <= limit, "{} element {i}: {actual} for {exact}, limit {limit:e}", case.ty);
    }
    for isa in Isa::available() {
        let actual = case.run(isa, &single);
        for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
            let at = (i / case.n_rows, i % case.n_rows);
            assert!(a.to_bits() == e.to_bits(), "{isa} {} (token, row) {at:?}: {a:e} for {e:e}", case.ty);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every type, with each case: bits equal to the definition, the definition near the exact value.
    #[test]
    fn every_isa_matches_scalar(
        seed: u64,
        n_rows in 1usize..7,
        n_blocks in 1usize..40,
        n_tokens in 1usize..22,
        subset: bool,
    ) {
        for ty in types() {
            let n_blocks = if act_format(ty) == ActFormat::Q8x256 { n_blocks.div_ceil(8) } else { n_blocks };
            check(&Case::new(seed, ty, n_rows, n_blocks, n_tokens, subset));
        }
    }
}

/// Rows unpacked for many tokens: several panels of short rows, rows longer than a panel, and than any panel.
#[test]
fn many_tokens() {
    for ty in types() {
        let per_256 = if act_format(ty) == ActFormat::Q8x256 { 1 } else { 8 };
        for (n_rows, n_blocks, n_tokens) in [(70, 1, 9), (37, 3, 13), (11, 8, 20), (3, 33, 15), (2, 65, 8)] {
            check(&Case::new(n_rows as u64, ty, n_rows, n_blocks * per_256, n_tokens, n_tokens % 2 == 0));
        }
    }
}

#[test]
fn which_isas_ran() {
    let names: Vec<_> = Isa::available().map(Isa::name).collect();
    eprintln!("kernel variants tested on this machine: {}", names.join(", "));
    assert_eq!(names.last(), Some(&"scalar"));
}

/// Everything at the ends of its range: -128 weights, all-ones codes, activations at ±127.
#[test]
fn extreme_codes() {
    for ty in types() {
        if matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 | GgmlType::F64) {
            continue; // all ones is no number
        }
        for fill in [0x00u8, 0xff, 0x80, 0x7f, 0x0f, 0xf0] {
            for sign in [1.0, -1.0] {
                let mut case = Case::new(1, ty, 2, 3, 5, false);
                let scales = case.weights.clone();
                case.weights.fill(fill);
                for (block, scale) in
                    case.weights.chunks_exact_mut(ty.block_bytes()).zip(scales.chunks_exact(ty.block_bytes()))
                {
                    keep_scales(ty, block, scale);
                }
                case.x.fill(sign);
                check(&case);
            }
        }
    }
}

/// Copies the float scales of a random block into one with constant codes.
fn keep_scales(ty: GgmlType, block: &mut [u8], random: &[u8]) {
    use GgmlType::*;
    let range = match ty {
        Q2_K => 80..84,
        Q3_K => 108..110,
        Q6_K => 208..210,
        TQ1_0 => 52..54,
        TQ2_0 => 64..66,
        IQ1_M => 48..56,
        MXFP4 => 0..1,
        I8 | I16 | I32 | I64 => return,
        _ => 0..4,
    };
    block[range.clone()].copy_from_slice(&random[range]);
}

/// Rows so short that kernels take several at a time, in numbers that leave a rest; tiles of all sizes.
#[test]
fn short_rows() {
    for ty in types() {
        for n_blocks in 1..=9 {
            for (n_rows, n_tokens) in [(70, 1), (37, 2), (21, 15)] {
                check(&Case::new(n_blocks as u64, ty, n_rows, n_blocks, n_tokens, n_tokens == 15));
            }
        }
    }
}

/// Rows longer than what kernels keep aside for the scales of a row.
#[test]
fn long_rows() {
    for ty in types() {
        let block = ty.block_elems().max(act_format(ty).block_elems());
        check(&Case::new(5, ty, 2, 17_152_usize.div_ceil(block.max(8)), 3, false));
    }
}

#[test]
fn threads_and_jobs_do_not_change_bits() {
    for ty in [GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::F16, GgmlType::TQ2_0] {
        let cases: Vec<Case> = (0..5u64)
            .map(|i| {
                Case::new(i, ty, 1 + 37 * i as usize, 2 + i as usize, 1 + (i % 3) as usize * 20, i % 2 == 1)
            })
            .collect();
        let single = Pool::new(1);
        let expected: Vec<_> = cases.iter().map(|case| bits(&case.run(active(), &single))).collect();
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let mut bufs: Vec<ActBuf> = cases.iter().map(|_| ActBuf::new()).collect();
            let mut outs: Vec<_> =
                cases.iter().map(|case| vec![f32::NAN; case.n_tokens() * case.n_rows]).collect();
            let mut jobs: Vec<Job> = Vec::new();
            for ((case, buf), out) in cases.iter().zip(&mut bufs).zip(&mut outs) {
                let acts = buf.prepare(&pool, act_format(ty), &case.x, case.n_cols);
                let weights = Weights::new(ty, case.n_rows, case.n_cols, &case.weights);
                jobs.push(Job { weights, acts, tokens: case.tokens.as_deref(), out });
            }
            matmul(&pool, &mut jobs);
            drop(jobs);
            let actual: Vec<_> = outs.iter().map(|out| bits(out)).collect();
            assert_eq!(actual, expected, "{ty}, {threads} threads");
        }
    }
}

/// An element is the same alone, among other rows, and among any number of tokens.
#[test]
fn neighbours_do_not_change_bits() {
    for ty in types() {
        let all = Case::new(11, ty, 9, 3, 13, false);
        let expected = all.run(active(), &Pool::new(1));
        let row_bytes = all.weights.len() / all.n_rows;
        for (t, r) in [(0, 0), (4, 8), (12, 3)] {
            let one = Case {
                ty,
                n_rows: 1,
                n_cols: all.n_cols,
                n_acts: 1,
                tokens: None,
                weights: all.weights[r * row_bytes..][..row_bytes].to_vec(),
                x: all.x[t * all.n_cols..][..all.n_cols].to_vec(),
            };
            let actual = one.run(active(), &Pool::new(1));
            assert_eq!(actual[0].to_bits(), expected[t * all.n_rows + r].to_bits(), "{ty}");
        }
    }
}

#[test]
fn empty_jobs_are_nothing() {
    let pool = Pool::new(2);
    matmul(&pool, &mut []);
    let x = [1.0f32; 64];
    let mut buf = ActBuf::new();
    let acts = buf.prepare(&pool, ActFormat::F32, &x, 32);
    let none = Weights::new(GgmlType::F32, 0, 32, &[]);
    let bytes = [0; 128];
    let one = Weights::new(GgmlType::F32, 1, 32, &bytes);
    matmul(
        &pool,
        &mut [
            Job { weights: none, acts, tokens: None, out: &mut [] },
            Job { weights: one, acts, tokens: Some(&[]), out: &mut [] },
        ],
    );
}

#[test]
#[should_panic(expected = "activation format of Q8_0")]
fn wrong_format_is_refused() {
    let pool = Pool::new(1);
    let mut buf = ActBuf::new();
    let x = [1.0f32; 32];
    let acts = buf.prepare(&pool, ActFormat::F32, &x, 32);
    let weights = Weights::new(GgmlType::Q8_0, 1, 32, &[0; 34]);
    matmul(&pool, &mut [Job { weights, acts, tokens: None, out: &mut [0.0] }]);
}

/// Values that llama.cpp encoded, against its decoded values multiplied in f64.
#[test]
fn golden_dot_products() {
    let mut golden = Golden::open();
    let x: Vec<f32> = golden.array("act");
    for ty in types() {
        use GgmlType::*;
        if matches!(ty, F32 | F16 | BF16 | F64 | I8 | I16 | I32 | I64 | Q8_1 | Q8_K) {
            continue; // no golden rows
        }
        let name = ty.name().to_lowercase();
        let weights: Vec<u8> = golden.array(&format!("{name}_enc"));
        // Q4_1 and Q5_1: ggml rounds the sum in Q8_1 to half precision, but `dot` uses the codes themselves.
        let which = if act_format(ty) == ActFormat::F32 { "dot_f32" } else { "dot" };
        let expected: Vec<f64> = golden.array(&format!("{name}_{which}"));
        let case = Case { ty, n_rows: 64, n_cols: 512, n_acts: 4, tokens: None, weights, x: x.clone() };
        let limits = case.exact();
        for isa in Isa::available() {
            let actual = case.run(isa, &Pool::new(1));
            for t in 0..4 {
                for r in 0..64 {
                    let (actual, expected) = (f64::from(actual[t * 64 + r]), expected[r * 4 + t]);
                    let (_, limit) = limits[t * 64 + r];
                    assert!(
                        (actual - expected).abs() <= limit,
                        "{isa} {ty} row {r} act {t}: {actual} for {expected}"
                    );
                }
            }
        }
    }
}
