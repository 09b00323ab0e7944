//! Operations on floats, at the sizes that a decode step of a large sparse model has.

use super::{Bench, BenchError, checksum};
use esker_engine::{Sampler, Sampling};
use esker_kernels::isa::{Isa, force_isa};
use esker_kernels::{
    AttnScratch, AttnShape, DeltaShape, HeadPairing, Kv, Pool, RopeStyle, Visible, attend, causal_conv,
    delta_net, f32_to_f16, hc_mix_mean, indexer_scores, l2_norm_in_place, rms_norm, rope, silu_mul,
    softmax_rows, top_k,
};
use serde::{Deserialize, Serialize};

/// One operation on one instruction set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// What it does.
    pub(crate) name: String,
    /// Of what.
    pub(crate) size: String,
    /// Instruction set.
    pub(crate) isa: String,
    /// How long it takes.
    pub(crate) us: f64,
    /// Bytes that it has to read.
    pub(crate) bytes: usize,
    /// Of its first output.
    pub(crate) checksum: String,
}

impl Operation {
    /// GB read per second.
    pub(crate) fn gb_s(&self) -> f64 {
        self.bytes as f64 / self.us / 1e3
    }
}

/// Runs an operation once; the output goes to the vector, which is given back at the next pass.
type Pass = Box<dyn FnMut(&Pool, &mut Vec<f32>)>;

/// What is measured.
struct Case {
    name: &'static str,
    size: String,
    bytes: usize,
    /// A pass from the beginning, with states of its own.
    start: Box<dyn Fn() -> Pass>,
}

impl Case {
    fn new(
        name: &'static str,
        size: impl Into<String>,
        bytes: usize,
        start: impl Fn() -> Pass + 'static,
    ) -> Case {
        Case { name, size: size.into(), bytes, start: Box::new(start) }
    }
}

/// All operations on all instruction sets.
///
/// # Errors
/// If an instruction set is not available.
pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Operation>, BenchError> {
    let mut operations = Vec::new();
    for Case { name, size, bytes, start } in cases(bench.smoke) {
        for &isa in bench.isas {
            force_isa(isa)?;
            let (mut pass, mut out) = (start(), Vec::new());
            pass(bench.pool, &mut out);
            let checksum = checksum(&out);
            let seconds = bench.best(isa == Isa::Scalar && bytes > 1 << 20, || pass(bench.pool, &mut out));
            let (name, size, isa) = (name.to_owned(), size.clone(), isa.name().to_owned());
            operations.push(Operation { name, size, isa, us: seconds * 1e6, bytes, checksum });
        }
    }
    Ok(operations)
}

/// Values between -2 and 2 that look random.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    (0..n).map(next).collect()
}

fn cases(smoke: bool) -> Vec<Case> {
    let contexts = if smoke { vec![64, 300] } else { vec![1024, 8192, 32_768] };
    let mut cases: Vec<Case> = contexts.iter().map(|&n| attention(n, None)).collect();
    // Blocks that sparse attention would choose: one of sixteen in the longest context.
    cases.push(attention(contexts[contexts.len() - 1], Some(16)));
    cases.push(indexer(if smoke { 16 } else { 1024 }));
    cases.extend([delta(if smoke { 2 } else { 32 }), convolution(), norm(), head_norm(), rotation()]);
    cases.extend([streams(), activation(), softmax(512), experts()]);
    let n_vocab = if smoke { 1000 } else { 248_320 };
    cases.push(sampler("sampler, greedy", n_vocab, Sampling::greedy()));
    cases.push(sampler("sampler, usual filters", n_vocab, Sampling::default()));
    let all = Sampling { top_k: 0, top_p: 1.0, min_p: 0.0, ..Sampling::default() };
    cases.push(sampler("sampler, no filters", n_vocab, all));
    cases
}

/// One token's attention over `n` positions in f16, or over every `every`th block of 64 of them.
fn attention(n: usize, every: Option<usize>) -> Case {
    const SHAPE: (usize, usize, usize) = (32, 4, 128);
    let (n_head, n_head_kv, d) = SHAPE;
    let chosen: Option<Vec<u32>> =
        every.map(|every| (0..n as u32).filter(|p| p / 64 % every as u32 == 0).collect());
    let visible = chosen.as_ref().map_or(n, Vec::len);
    let name = if every.is_some() { "attention, listed" } else { "attention" };
    let size = match every {
        Some(_) => format!("{visible} of {n} positions"),
        None => format!("{n} positions"),
    };
    Case::new(name, size, 2 * 2 * n_head_kv * visible * d, move || {
        let half = |seed| values(n_head_kv * n * d, seed).into_iter().map(f32_to_f16).collect::<Vec<u16>>();
        let (q, k, v) = (values(n_head * d, 1), half(2), half(3));
        let scale = 1.0 / (d as f32).sqrt();
        let shape = AttnShape { n_head, n_head_kv, head_dim: d, head_dim_v: d, capacity: n, scale };
        let (mut scratch, chosen) = (AttnScratch::new(), chosen.clone());
        let offsets = [0, visible as u32];
        Box::new(move |pool, out| {
            out.resize(n_head * d, 0.0);
            let visible = match &chosen {
                Some(positions) => Visible::Lists { offsets: &offsets, positions },
                None => Visible::Causal { first_position: n - 1 },
            };
            attend(pool, &q, Kv::F16(&k), Kv::F16(&v), &shape, visible, &mut scratch, out);
        })
    })
}

/// Scores of the blocks that sparse attention chooses from.
fn indexer(n_blocks: usize) -> Case {
    let (n_heads, d) = (8, 128);
    Case::new("indexer", format!("{n_blocks} blocks"), 2 * n_blocks * d, move || {
        let iq = values(n_heads * d, 4);
        let keys: Vec<u16> = values(n_blocks * d, 5).into_iter().map(f32_to_f16).collect();
        Box::new(move |pool, out| {
            out.resize(n_blocks, 0.0);
            indexer_scores(pool, &iq, Kv::F16(&keys), n_heads, d, out);
        })
    })
}

fn delta(n_v: usize) -> Case {
    let (n_k, d) = (n_v / 2, 128);
    let shape = DeltaShape { n_k, n_v, d, pairing: HeadPairing::Grouped };
    Case::new("delta net", format!("{n_v} heads of {d}"), 4 * n_v * d * d, move || {
        let small = |n, seed| values(n, seed).into_iter().map(|x| x * 0.05).collect::<Vec<f32>>();
        let (q, k, v) = (small(n_k * d, 6), small(n_k * d, 7), small(n_v * d, 8));
        let (decay, beta) = (vec![-0.1; n_v], vec![0.5; n_v]);
        let mut state = small(n_v * d * d, 9);
        Box::new(move |pool, out| {
            out.resize(n_v * d, 0.0);
            delta_net(pool, &q[..], &k[..], &v[..], &decay, &beta, &mut state, &shape, out);
        })
    })
}

fn convolution() -> Case {
    let (ch, taps) = (8192, 4);
    Case::new("convolution", format!("{ch} channels, {taps} taps"), 4 * ch * (2 * taps), move || {
        let (x, kernel) = (values(ch, 10), values(ch * taps, 11));
        let mut history = values((taps - 1) * ch, 12);
        Box::new(move |pool, out| {
            out.resize(ch, 0.0);
            causal_conv(pool, &x, &mut history, &kernel, taps, 1, ch, true, out);
        })
    })
}

fn norm() -> Case {
    let n = 2048;
    Case::new("RMS norm", format!("{n}"), 8 * n, move || {
        let (x, gamma) = (values(n, 13), values(n, 14));
        Box::new(move |pool, out| {
            out.resize(n, 0.0);
            rms_norm(pool, &x, &gamma, n, 1e-6, out);
        })
    })
}

fn head_norm() -> Case {
    let (rows, n) = (32, 128);
    Case::new("L2 norm", format!("{rows} of {n}"), 4 * rows * n, move || {
        in_place(values(rows * n, 15), move |pool, x| l2_norm_in_place(pool, x, n, 1e-6, 1.0))
    })
}

fn rotation() -> Case {
    let (heads, d) = (32, 128);
    Case::new("rope", format!("{heads} of {d}"), 4 * heads * d, move || {
        let (sin, cos): (Vec<f32>, Vec<f32>) =
            (0..d / 2).map(|i| ((i * i % 101) as f32 / 101.0, 1.0 - (i % 7) as f32 / 7.0)).unzip();
        in_place(values(heads * d, 16), move |pool, x| {
            rope(pool, x, heads, d, d, &cos, &sin, RopeStyle::HalfSplit);
        })
    })
}

fn streams() -> Case {
    let (hc, n) = (4, 2048);
    Case::new("streams' mean", format!("{hc} of {n}"), 8 * hc * n, move || {
        let (x, gate) = (values(hc * n, 17), values(hc * n, 18));
        Box::new(move |pool, out| {
            out.resize(n, 0.0);
            hc_mix_mean(pool, &x, &gate, hc, n, out);
        })
    })
}

fn activation() -> Case {
    let n = 8 * 768;
    Case::new("SwiGLU", format!("{n}"), 8 * n, move || {
        let (gate, up) = (values(n, 19), values(n, 20));
        Box::new(move |pool, out| {
            out.resize(n, 0.0);
            silu_mul(pool, &gate, &up, out);
        })
    })
}

fn softmax(n: usize) -> Case {
    Case::new("softmax", format!("{n}"), 4 * n, move || {
        in_place(values(n, 21), move |pool, x| softmax_rows(pool, x, n))
    })
}

/// The choice of a router.
fn experts() -> Case {
    let (n, k) = (512, 10);
    Case::new("top-k", format!("{k} of {n}"), 4 * n, move || {
        let (row, mut chosen) = (values(n, 22), [0u32; 10]);
        Box::new(move |_, out| {
            top_k(&row, k, &mut chosen);
            out.clear();
            out.extend(chosen.map(|e| e as f32));
        })
    })
}

fn sampler(name: &'static str, n_vocab: usize, sampling: Sampling) -> Case {
    Case::new(name, format!("{n_vocab} logits"), 4 * n_vocab, move || {
        let logits: Vec<f32> = values(n_vocab, 23).into_iter().map(|x| 5.0 * x).collect();
        let mut sampler = Sampler::new(sampling.clone(), n_vocab).expect("settings in their ranges");
        Box::new(move |_, out| {
            out.clear();
            out.push(sampler.sample(&logits, &[]) as f32);
        })
    })
}

/// An operation that replaces its input; a pass goes on from the output of the one before.
fn in_place(x: Vec<f32>, mut f: impl FnMut(&Pool, &mut [f32]) + 'static) -> Pass {
    Box::new(move |pool, out| {
        if out.is_empty() {
            out.extend_from_slice(&x);
        }
        f(pool, out);
    })
}
