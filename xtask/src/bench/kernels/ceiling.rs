//! What the machine can do at most: how fast these threads read memory, and how many products they add up per second
//! with everything in registers.
#![expect(unsafe_code, reason = "functions of an instruction set are called after it was found to be there")]

use super::{Bench, BenchError};
use esker_kernels::Pool;
use esker_kernels::isa::{Isa, force_isa};
use serde::{Deserialize, Serialize};
use std::hint::black_box;

/// What one instruction set can do on all threads; `None` where it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ceiling {
    /// Instruction set.
    pub(crate) isa: String,
    /// Multiplications and additions of f32, fused, in 10⁹ per second.
    pub(crate) fma_gflop_s: Option<f64>,
    /// The same of integers of 8 bits, summed in 32.
    pub(crate) int8_gop_s: Option<f64>,
}

/// Reads all of `bytes` on all threads, each of which goes through several places at a time if `streams` is more than 1:
/// what prefetches sees that as work for more than one.
pub(super) fn read_all(pool: &Pool, bytes: &[u8], streams: usize) {
    const PART: usize = 256 << 10;
    pool.run(bytes.len().div_ceil(PART), 1, &|range| {
        let part = &bytes[range.start * PART..(range.end * PART).min(bytes.len())];
        // Sixteen sums, or the additions would be the limit.
        let mut sums = [0u64; 16];
        let mut add = |line: &[u8; 128]| {
            for (sum, v) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                *sum ^= u64::from_ne_bytes(*v);
            }
        };
        let lines = part.as_chunks::<128>().0;
        let each = lines.len() / streams;
        for i in 0..each {
            (0..streams).for_each(|stream| add(&lines[stream * each + i]));
        }
        lines[each * streams..].iter().for_each(add);
        black_box(sums);
    });
}

/// A loop of so many turns; returns the operations of a turn.
type Loop = fn(usize) -> usize;

/// What each instruction set can do.
///
/// # Errors
/// If one is not available.
pub(super) fn compute(bench: &Bench<'_>) -> Result<Vec<Ceiling>, BenchError> {
    let mut ceilings = Vec::new();
    for &isa in bench.isas {
        // Fails if it is not there; what follows relies on it.
        force_isa(isa)?;
        let (fma, int8) = loops(isa);
        let rate = |turn: Loop| {
            let (threads, turns) = (bench.pool.threads(), if bench.smoke { 100 } else { 100_000 });
            let per_turn = turn(1);
            let seconds = bench.best(false, || {
                bench.pool.run(threads, 1, &|range| {
                    for _ in range {
                        black_box(turn(black_box(turns)));
                    }
                });
            });
            (threads * turns * per_turn) as f64 / seconds / 1e9
        };
        ceilings.push(Ceiling {
            isa: isa.name().to_owned(),
            fma_gflop_s: fma.map(rate),
            int8_gop_s: int8.map(rate),
        });
    }
    Ok(ceilings)
}

/// Loops for f32 and for integers. Only for an instruction set that this processor has.
fn loops(isa: Isa) -> (Option<Loop>, Option<Loop>) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => (
            // SAFETY: the caller has found the instruction set to be available.
            Some(|turns| unsafe { x86::fma_avx512(turns) }),
            // SAFETY: as above.
            Some(|turns| unsafe { x86::int8_avx512(turns) }),
        ),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => (
            // SAFETY: as above.
            Some(|turns| unsafe { x86::fma_avx2(turns) }),
            // SAFETY: as above.
            Some(|turns| unsafe { x86::int8_avxvnni(turns) }),
        ),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => (
            // SAFETY: as above.
            Some(|turns| unsafe { x86::fma_avx2(turns) }),
            // SAFETY: as above.
            Some(|turns| unsafe { x86::int8_avx2(turns) }),
        ),
        #[cfg(target_arch = "aarch64")]
        // SAFETY: Advanced SIMD is part of the architecture.
        Isa::Neon => (Some(|turns| unsafe { arm::fma_neon(turns) }), None),
        // Plain code has no ceiling of its own: it depends on what the compiler makes of it.
        _ => (None, None),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Sums that do not wait for each other: two units with a latency of 4 to 5 need ten.
    const SUMS: usize = 12;

    #[target_feature(enable = "avx512f")]
    pub(super) fn fma_avx512(turns: usize) -> usize {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [a; SUMS];
        for _ in 0..turns {
            sums.iter_mut().for_each(|sum| *sum = _mm512_fmadd_ps(*sum, a, b));
        }
        black_box(sums);
        2 * 16 * SUMS
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) fn int8_avx512(turns: usize) -> usize {
        let (a, b) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(5)));
        let mut sums = [a; SUMS];
        for _ in 0..turns {
            sums.iter_mut().for_each(|sum| *sum = _mm512_dpbusd_epi32(*sum, a, b));
        }
        black_box(sums);
        2 * 64 * SUMS
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fma_avx2(turns: usize) -> usize {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [a; SUMS];
        for _ in 0..turns {
            sums.iter_mut().for_each(|sum| *sum = _mm256_fmadd_ps(*sum, a, b));
        }
        black_box(sums);
        2 * 8 * SUMS
    }

    #[target_feature(enable = "avx2,avxvnni")]
    pub(super) fn int8_avxvnni(turns: usize) -> usize {
        let (a, b) = (_mm256_set1_epi8(black_box(3)), _mm256_set1_epi8(black_box(5)));
        let mut sums = [a; SUMS];
        for _ in 0..turns {
            sums.iter_mut().for_each(|sum| *sum = _mm256_dpbusd_avx_epi32(*sum, a, b));
        }
        black_box(sums);
        2 * 32 * SUMS
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn int8_avx2(turns: usize) -> usize {
        // Six pairs, so that sums and factors are in registers; a factor changes each turn, or its products were
        // computed once.
        const SUMS: usize = 6;
        let one = _mm256_set1_epi16(1);
        let mut a = _mm256_set1_epi8(black_box(3));
        let b: [__m256i; SUMS] = std::array::from_fn(|i| _mm256_set1_epi8(black_box(i as i8)));
        let mut sums = [a; SUMS];
        for _ in 0..turns {
            a = _mm256_add_epi8(a, one);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one));
            }
        }
        black_box(sums);
        2 * 32 * SUMS
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;
    use std::hint::black_box;

    /// Sums that do not wait for each other.
    const SUMS: usize = 16;

    #[target_feature(enable = "neon")]
    pub(super) fn fma_neon(turns: usize) -> usize {
        let (a, b) = (vdupq_n_f32(black_box(0.999)), vdupq_n_f32(black_box(0.001)));
        let mut sums = [a; SUMS];
        for _ in 0..turns {
            sums.iter_mut().for_each(|sum| *sum = vfmaq_f32(b, *sum, a));
        }
        black_box(sums);
        2 * 4 * SUMS
    }
}
