//! How fast this machine reads its memory, measured.

use serde::Serialize;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Far more than caches hold, little enough for any machine that runs a model.
const BUFFER_BYTES: usize = 256 << 20;
/// How long reading is timed.
const DURATION: Duration = Duration::from_millis(200);
/// Numbers that are summed side by side: some vectors' worth, so that additions do not wait for each other.
const LANES: usize = 32;

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryBandwidth {
    /// All threads together.
    pub bytes_per_s: u64,
    pub threads: usize,
    pub buffer_bytes: usize,
}

/// Sums a buffer with `threads` threads, over and over.
pub fn memory(threads: usize) -> MemoryBandwidth {
    measure(threads, BUFFER_BYTES, DURATION)
}

fn measure(threads: usize, buffer_bytes: usize, duration: Duration) -> MemoryBandwidth {
    let words = buffer_bytes / size_of::<u64>() / threads;
    let per_thread = || {
        // Written, since pages that never were are all the same one.
        let buffer: Vec<u64> = (0..words as u64).collect();
        let started = Instant::now();
        let mut passes = 0u64;
        while passes == 0 || started.elapsed() < duration {
            black_box(sum(black_box(&buffer)));
            passes += 1;
        }
        let bytes = passes as f64 * size_of_val(&buffer[..]) as f64;
        bytes / started.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    };
    let rate: f64 = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(per_thread)).collect();
        running.into_iter().map(|thread| thread.join().expect("summing does not panic")).sum()
    });
    let buffer_bytes = words * threads * size_of::<u64>();
    MemoryBandwidth { bytes_per_s: rate as u64, threads, buffer_bytes }
}

fn sum(buffer: &[u64]) -> u64 {
    let (chunks, rest) = buffer.as_chunks::<LANES>();
    let mut sums = [0u64; LANES];
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        for n in [0, 1, LANES as u64, 1000] {
            assert_eq!(sum(&(0..n).collect::<Vec<_>>()), n * n.saturating_sub(1) / 2);
        }
    }

    #[test]
    fn a_rate_is_that_of_all_threads() {
        let found = measure(2, 1 << 20, Duration::from_millis(5));
        assert_eq!((found.threads, found.buffer_bytes), (2, 1 << 20));
        // Slower than any machine, faster than any: a rate per thread, or in other units, would be outside.
        assert!((10 << 20..10 << 40).contains(&found.bytes_per_s), "{found:?}");
    }
}
