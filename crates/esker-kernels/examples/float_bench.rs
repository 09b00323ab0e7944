//! Speed of the float operations at the sizes of a large model, on each instruction set of this machine.
//!
//! `cargo run --release -p esker-kernels --example float_bench [threads] [seconds per line] [instruction sets...]`
//!
//! Isolated: one operation at a time, inputs in memory or cache as in a decode step; GB/s counts the bytes that the
//! operation must read and write once. The checksum covers every result bit: it must not change from one instruction
//! set to the next, nor with the number of threads.

use std::hint::black_box;
use std::time::{Duration, Instant};

use esker_kernels::isa::force_isa;
use esker_kernels::{
    AttnScratch, AttnShape, DeltaShape, HeadPairing, Isa, Kv, KvMut, Pool, Visible, attend, causal_conv,
    delta_net, indexer_scores, kv_store, rms_norm, select_blocks, sigmoid_mul_in_place, silu_mul,
    softmax_rows, top_k,
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(1, |a| a.parse().expect("the number of threads"));
    let seconds = arguments.next().map_or(0.2, |a| a.parse().expect("seconds per line"));
    let asked: Vec<Isa> = arguments.map(|a| a.parse().expect("an instruction set")).collect();
    let pool = Pool::new(threads);
    for isa in Isa::available().filter(|isa| asked.is_empty() || asked.contains(isa)) {
        force_isa(isa).expect("it is available");
        let mut bench = Bench { time: Duration::from_secs_f64(seconds), checksum: 0xcbf2_9ce4_8422_2325 };
        println!("{isa}, {threads} threads");
        rows(&pool, &mut bench);
        attention(&pool, &mut bench);
        recurrence(&pool, &mut bench);
        selection(&pool, &mut bench);
        println!("  checksum {:016x}", bench.checksum);
    }
}

struct Bench {
    time: Duration,
    checksum: u64,
}

impl Bench {
    /// Runs `f` once for the checksum of what it returns, then as long as a line takes, and prints the best time.
    fn line(&mut self, name: &str, bytes: usize, mut f: impl FnMut() -> u64) {
        let first = f();
        for byte in first.to_le_bytes() {
            self.checksum = (self.checksum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let start = Instant::now();
        let mut best = f64::INFINITY;
        while start.elapsed() < self.time {
            let run = Instant::now();
            black_box(f());
            best = best.min(run.elapsed().as_secs_f64());
        }
        println!("  {name:<44} {:>11.2} us {:>8.2} GB/s", best * 1e6, bytes as f64 / best / 1e9);
    }
}

/// Cheap enough not to count: every 61st value.
fn digest(x: &[f32]) -> u64 {
    x.iter()
        .step_by(61)
        .fold(0, |h: u64, x| h.rotate_left(5).wrapping_mul(31).wrapping_add(u64::from(x.to_bits())))
}

fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn rows(pool: &Pool, bench: &mut Bench) {
    let (tokens, n) = (64, 10240);
    let (x, y) = (values(tokens * n, 1), values(tokens * n, 2));
    let gamma = values(n, 3);
    let mut out = vec![0.0; tokens * n];
    let moved = tokens * n * 4;
    bench.line("rms_norm 64 x 4 x 2560", 2 * moved, || {
        rms_norm(pool, &x, &gamma, 2560, 1e-6, &mut out);
        digest(&out)
    });
    bench.line("rms_norm 4 x 2560 (one token)", 2 * n * 4, || {
        rms_norm(pool, &x[..n], &gamma, 2560, 1e-6, &mut out[..n]);
        digest(&out[..n])
    });
    bench.line("silu_mul 64 x 10240", 3 * moved, || {
        silu_mul(pool, &x, &y, &mut out);
        digest(&out)
    });
    out.copy_from_slice(&y);
    bench.line("sigmoid_mul 6144 (one token)", 3 * 6144 * 4, || {
        out[..6144].copy_from_slice(&y[..6144]);
        sigmoid_mul_in_place(pool, &mut out[..6144], &x[..6144]);
        digest(&out[..6144])
    });
    bench.line("softmax 1280 x 512", 2 * moved, || {
        out.copy_from_slice(&x);
        softmax_rows(pool, &mut out, 512);
        digest(&out)
    });
}

fn attention(pool: &Pool, bench: &mut Bench) {
    let capacity = 4096 + 64;
    let shape =
        AttnShape { n_head: 24, n_head_kv: 2, head_dim: 256, head_dim_v: 256, capacity, scale: 0.0625 };
    let k = values(2 * capacity * 256, 4);
    let v = values(2 * capacity * 256, 5);
    let q = values(64 * 24 * 256, 6);
    let (mut k16, mut v16) = (vec![0u16; k.len()], vec![0u16; v.len()]);
    bench.line("kv_store f16, 4160 x 2 x 256", k.len() * 6, || {
        kv_store(pool, &k, KvMut::F16(&mut k16), 2, capacity, 256, 0);
        u64::from(k16[12345])
    });
    kv_store(pool, &v, KvMut::F16(&mut v16), 2, capacity, 256, 0);
    let mut scratch = AttnScratch::new();
    scratch.reserve(&shape, pool.threads());
    let mut out = vec![0.0; q.len()];
    let one = Visible::Causal { first_position: 4095 };
    let read = 2 * 2 * 4096 * 256;
    bench.line("attend f16, 24/2 x 256, ctx 4096, 1 token", read * 2, || {
        attend(pool, &q[..6144], Kv::F16(&k16), Kv::F16(&v16), &shape, one, &mut scratch, &mut out[..6144]);
        digest(&out[..6144])
    });
    bench.line("attend f32, 24/2 x 256, ctx 4096, 1 token", read * 4, || {
        attend(pool, &q[..6144], Kv::F32(&k), Kv::F32(&v), &shape, one, &mut scratch, &mut out[..6144]);
        digest(&out[..6144])
    });
    let many = Visible::Causal { first_position: 4096 };
    bench.line("attend f16, 24/2 x 256, ctx 4096, 64 tokens", read * 2, || {
        attend(pool, &q, Kv::F16(&k16), Kv::F16(&v16), &shape, many, &mut scratch, &mut out);
        digest(&out)
    });
    let alone = AttnShape { n_head: 4, n_head_kv: 4, head_dim: 128, head_dim_v: 128, capacity, scale: 0.088 };
    bench.line("attend f16, 4/4 x 128, ctx 4096, 1 token", read * 2, || {
        attend(pool, &q[..512], Kv::F16(&k16), Kv::F16(&v16), &alone, one, &mut scratch, &mut out[..512]);
        digest(&out[..512])
    });
}

fn recurrence(pool: &Pool, bench: &mut Bench) {
    let shape = DeltaShape { n_k: 16, n_v: 48, d: 128, pairing: HeadPairing::Tiled };
    let tokens = 64;
    let unit = |n: usize, seed| values(n, seed).iter().map(|x| x * 0.15).collect::<Vec<_>>();
    let (q, k) = (unit(tokens * 2048, 7), unit(tokens * 2048, 8));
    let v = values(tokens * 6144, 9);
    let decay: Vec<f32> = values(tokens * 48, 10).iter().map(|x| -x.abs()).collect();
    let beta: Vec<f32> = values(tokens * 48, 11).iter().map(|x| x.abs()).collect();
    let mut state = vec![0.0; 48 * 128 * 128];
    let mut out = vec![0.0; tokens * 6144];
    let moved = 2 * state.len() * 4;
    for n in [1, tokens] {
        bench.line(&format!("delta_net 48 x 128, {n} tokens"), moved, || {
            let (decay, beta, out) = (&decay[..n * 48], &beta[..n * 48], &mut out[..n * 6144]);
            delta_net(pool, &q, &k, &v, decay, beta, &mut state, &shape, out);
            digest(out)
        });
        state.fill(0.0);
    }
    let x = values(tokens * 10240, 12);
    let kernel = values(10240 * 4, 13);
    let mut history = vec![0.0; 3 * 10240];
    let mut out = vec![0.0; tokens * 10240];
    for n in [1, tokens] {
        bench.line(&format!("causal_conv 10240 x 4 taps, {n} tokens"), 2 * n * 10240 * 4, || {
            let (x, out) = (&x[..n * 10240], &mut out[..n * 10240]);
            causal_conv(pool, x, &mut history, &kernel, 4, 1, 10240, true, out);
            digest(out)
        });
        history.fill(0.0);
    }
}

fn selection(pool: &Pool, bench: &mut Bench) {
    let blocks = 8192;
    let (iq, keys) = (values(4 * 128, 14), values(blocks * 128, 15));
    let mut keys16 = vec![0; keys.len()];
    kv_store(pool, &keys, KvMut::F16(&mut keys16), 1, blocks, 128, 0);
    let mut scores = vec![0.0; blocks];
    bench.line("indexer_scores f16, 4 x 128, 8192 blocks", keys16.len() * 2, || {
        indexer_scores(pool, &iq, Kv::F16(&keys16), 4, 128, &mut scores);
        digest(&scores)
    });
    let mut chosen = [0; 512];
    bench.line("select_blocks 512 of 8192", blocks * 4, || {
        select_blocks(&scores, 512, &mut chosen);
        u64::from(chosen[300])
    });
    bench.line("top_k 10 of 512", 512 * 4, || {
        top_k(&keys[..512], 10, &mut chosen);
        u64::from(chosen[9])
    });
}
