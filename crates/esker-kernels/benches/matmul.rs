//! Speed of the matrix products, per weight type and instruction set, next to the memory's read bandwidth.
//!
//! What is isolated: `matmul` alone. Activations are prepared beforehand. Matrix times vector runs over weights that
//! are much larger than the caches (default 256 MiB in all, cut into matrices of 2 MiB, default 2048 columns), so its GB/s are to be
//! compared with the line `read`: how fast the same threads sum the same bytes. `cached` is the same over 512 KiB, again
//! and again: what the instructions alone allow. Matrix times 64 tokens counts two
//! operations per weight and token. `act` is the time to prepare 64 tokens of activations.
//!
//! With one thread, times are CPU times of that thread, so that other programs disturb less; else wall times.
//!
//! The checksum is the sum of all outputs of one pass: it must be the same for every instruction set.
//!
//! `cargo bench -p esker-kernels --bench matmul -- [--smoke] [--threads N] [--mib N] [--cols N] [--isa NAME] [TYPE...]`

use esker_kernels::Pool;
use esker_kernels::matmul::{ActBuf, ActFormat, Isa, Job, Weights, act_format, active, force_isa, matmul};
use esker_quant::GgmlType;
use std::hint::black_box;
use std::time::{Duration, Instant};

const N_TOKENS: usize = 64;

/// What to measure; see [`parse`].
pub struct Options {
    smoke: bool,
    threads: usize,
    mib: usize,
    cols: usize,
    isas: Vec<Isa>,
    types: Vec<GgmlType>,
}

fn main() {
    match parse(std::env::args().skip(1)) {
        Ok(options) => run(&options),
        Err(message) => {
            eprintln!("{message}");
            std::process::exit(2);
        }
    }
}

/// Prints the table; panics if two instruction sets disagree.
pub fn run(options: &Options) {
    let pool = Pool::new(options.threads);
    println!("threads {}, instruction set by default {}", pool.threads(), active());
    let bytes = if options.smoke { 1 << 18 } else { options.mib << 20 };
    let data: Vec<u64> = (0..bytes as u64 / 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let read = read_bandwidth(&pool, &data, options.smoke);
    println!("read     {read:6.1} GB/s");
    println!(
        "{:8} {:7} {:>9} {:>7} {:>7} {:>9} {:>8}  checksum",
        "type", "isa", "1 token", "of read", "cached", "64 tokens", "act"
    );
    println!("{:8} {:7} {:>9} {:>7} {:>7} {:>9} {:>8}", "", "", "GB/s", "%", "GB/s", "GFLOP/s", "us");
    for &ty in &options.types {
        if !options.cols.is_multiple_of(ty.block_elems()) {
            continue;
        }
        let mut sums = Vec::new();
        for &isa in &options.isas {
            force_isa(isa).expect("only available ones are listed");
            sums.push(bench_type(&pool, ty, isa, bytes, read, options));
        }
        assert!(
            sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()),
            "{ty}: checksums differ: {sums:?}"
        );
    }
}

/// Reads the command line.
pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        smoke: false,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        mib: 256,
        cols: 2048,
        isas: Isa::available().collect(),
        types: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--bench" => (), // added by cargo
            "--smoke" => options.smoke = true,
            "--threads" => options.threads = value()?.parse().map_err(|e| format!("--threads: {e}"))?,
            "--mib" => options.mib = value()?.parse().map_err(|e| format!("--mib: {e}"))?,
            "--cols" => options.cols = value()?.parse().map_err(|e| format!("--cols: {e}"))?,
            "--isa" => {
                let isa: Isa = value()?.parse().map_err(|e| format!("--isa: {e}"))?;
                options.isas = vec![isa];
            }
            name => options.types.push(GgmlType::from_name(name).ok_or(format!("unknown type `{name}`"))?),
        }
    }
    if let Some(isa) = options.isas.iter().find(|isa| !isa.is_available()) {
        return Err(format!("{isa} is not available here"));
    }
    if options.cols == 0 || !options.cols.is_multiple_of(32) {
        return Err(format!("--cols is {}, expected a multiple of 32", options.cols));
    }
    if options.types.is_empty() {
        let skip = |ty: &GgmlType| {
            matches!(ty, GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64 | GgmlType::F64)
        };
        options.types = GgmlType::all().filter(|ty| !skip(ty)).collect();
    }
    Ok(options)
}

/// GB/s at which the pool's threads can read `data`, best of several passes.
fn read_bandwidth(pool: &Pool, data: &[u64], smoke: bool) -> f64 {
    let seconds = best(pool, smoke, || {
        pool.run(data.len(), 1 << 15, &|range| {
            // Sixteen sums, or the additions would be the limit.
            let mut sums = [0u64; 16];
            for part in data[range].as_chunks::<16>().0 {
                for (sum, v) in sums.iter_mut().zip(part) {
                    *sum ^= v;
                }
            }
            black_box(sums);
        });
    });
    size_of_val(data) as f64 / seconds / 1e9
}

fn bench_type(pool: &Pool, ty: GgmlType, isa: Isa, bytes: usize, read: f64, options: &Options) -> f64 {
    let (n_cols, smoke) = (options.cols, options.smoke);
    let row_bytes = ty.row_bytes(n_cols).expect("256 is a multiple of every block");
    // About 2 MiB each, like one expert's matrix.
    let n_rows = if smoke { 24 } else { ((2 << 20) / row_bytes).max(16) / 16 * 16 };
    let n_cached = n_rows.min((512 << 10) / row_bytes);
    let n_matrices = (bytes / (n_rows * row_bytes)).max(1);
    let matrices: Vec<Vec<u8>> = (0..n_matrices).map(|i| weights(ty, n_rows * row_bytes, i as u64)).collect();
    let x: Vec<f32> = (0..N_TOKENS * n_cols).map(|i| ((i * 37 % 1001) as f32 - 500.0) / 250.0).collect();
    let mut buf = ActBuf::new();
    let format = act_format(ty);

    let mut out = vec![0.0f32; n_rows * N_TOKENS];
    let mut checksum = 0.0;
    let (one, cached) = {
        let acts = buf.prepare(pool, format, &x[..n_cols], n_cols);
        let mut pass = |sum: &mut f64| {
            for bytes in &matrices {
                let weights = Weights::new(ty, n_rows, n_cols, bytes);
                let out = &mut out[..n_rows];
                matmul(pool, &mut [Job { weights, acts, tokens: None, out: &mut *out }]);
                *sum += out.iter().map(|&v| f64::from(v)).sum::<f64>();
            }
        };
        pass(&mut checksum);
        let one = best(pool, smoke || isa == Isa::Scalar, || pass(&mut 0.0));
        let weights = Weights::new(ty, n_cached, n_cols, &matrices[0][..n_cached * row_bytes]);
        let cached = best(pool, smoke || isa == Isa::Scalar, || {
            for _ in 0..8 {
                matmul(pool, &mut [Job { weights, acts, tokens: None, out: &mut out[..n_cached] }]);
            }
        });
        (one, cached / 8.0)
    };
    let prepare = best(pool, smoke, || {
        black_box(buf.prepare(pool, format, &x, n_cols));
    });
    let many = {
        let acts = buf.prepare(pool, format, &x, n_cols);
        let mut pass = || {
            let weights = Weights::new(ty, n_rows, n_cols, &matrices[0]);
            matmul(pool, &mut [Job { weights, acts, tokens: None, out: &mut out }]);
        };
        pass();
        best(pool, smoke || isa == Isa::Scalar, pass)
    };
    checksum += out.iter().map(|&v| f64::from(v)).sum::<f64>();

    let gb_s = (n_matrices * n_rows * row_bytes) as f64 / one / 1e9;
    let cached = (n_cached * row_bytes) as f64 / cached / 1e9;
    let gflop_s = 2.0 * (n_rows * n_cols * N_TOKENS) as f64 / many / 1e9;
    let prepare = if format == ActFormat::F32 { 0.0 } else { prepare * 1e6 };
    println!(
        "{:8} {:7} {gb_s:9.2} {:7.0} {cached:7.2} {gflop_s:9.1} {prepare:8.1}  {checksum:e}",
        ty.name(),
        isa.name(),
        gb_s / read * 100.0
    );
    checksum
}

/// Random codes with scales of a sensible size.
fn weights(ty: GgmlType, n_bytes: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; n_bytes];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for part in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    // Clearing one bit in every second byte of a float makes it finite, wherever the scales are in the block; codes
    // lose a little of their randomness.
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for at in (0..block.len()).rev() {
            block[at] &= 0xbf;
        }
        if ty == GgmlType::MXFP4 {
            block[0] = 120 + block[0] % 8;
        }
        if ty == GgmlType::Q8_K || ty == GgmlType::F32 {
            for at in (3..block.len().min(4)).rev() {
                block[at] = 0x3f;
            }
        }
        if ty == GgmlType::BF16 {
            block[1] = 0x3f;
        }
    }
    bytes
}

/// Seconds since some moment: of this thread's CPU time if `cpu` (where the system tells), else of real time.
fn now(cpu: bool) -> f64 {
    #[cfg(unix)]
    {
        let clock = if cpu { libc::CLOCK_THREAD_CPUTIME_ID } else { libc::CLOCK_MONOTONIC };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the result.
        let rc = unsafe { libc::clock_gettime(clock, &mut time) };
        assert_eq!(rc, 0, "clock_gettime");
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
    #[cfg(not(unix))]
    {
        let _ = cpu;
        std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64()
    }
}

/// Seconds of the fastest of several passes (one in a smoke run).
fn best(pool: &Pool, once: bool, mut pass: impl FnMut()) -> f64 {
    let cpu = pool.threads() == 1;
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for i in 0..200 {
        let start = now(cpu);
        pass();
        best = best.min(now(cpu) - start);
        if once || (i >= 2 && begin.elapsed() > Duration::from_millis(400)) {
            break;
        }
    }
    best
}
