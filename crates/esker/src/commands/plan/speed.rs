//! Decode speed, from what one token moves and the bandwidths of this machine.

use super::bandwidth::{self, MemoryBandwidth};
use crate::directories;
use crate::output::{Console, Progress};
use esker_disk::probe::{self, BLOCK_BYTES_MAX, ProbeError, ProbeResult};
use esker_engine::Plan;
use esker_gguf::{Gguf, TensorInfo};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How long the disk is measured.
const PROBE_SECONDS: f64 = 0.7;

/// What one token of decoding moves. Sizes in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Traffic {
    /// Dense weights, every token.
    pub dense_bytes: u64,
    /// Experts, wherever they are.
    pub experts_bytes: u64,
    /// Share of the experts' bytes that is in memory if all experts are equally likely.
    pub uniform_hit_share: f64,
}

/// Bandwidths, and what follows.
#[derive(Serialize)]
pub struct Speed {
    pub memory: MemoryBandwidth,
    /// Null if no expert is read.
    pub disk: Option<DiskBandwidth>,
    /// Tokens per second with uniform routing; null if the disk could not be measured.
    pub uniform_tokens_per_s: Option<f64>,
    /// The same with every expert in memory.
    pub in_memory_tokens_per_s: f64,
}

/// Random reads of the size of an expert's parts.
#[derive(Serialize)]
pub struct DiskBandwidth {
    /// At the best depth.
    pub bytes_per_s: u64,
    /// Measured in an earlier run.
    pub kept: bool,
    pub probe: ProbeResult,
}

impl Traffic {
    pub fn of(plan: &Plan, uniform_hit_share: f64) -> Traffic {
        Traffic {
            dense_bytes: plan.dense_bytes,
            experts_bytes: plan.experts_per_token_bytes,
            uniform_hit_share,
        }
    }

    /// Tokens per second: the memory and the disk work at the same time, and the slower one decides.
    fn tokens_per_s(&self, hit_share: f64, memory_bytes_per_s: u64, disk_bytes_per_s: u64) -> f64 {
        let seconds = |bytes: f64, per_s: u64| if bytes > 0.0 { bytes / per_s as f64 } else { 0.0 };
        let memory = seconds((self.dense_bytes + self.experts_bytes) as f64, memory_bytes_per_s);
        let disk = seconds((1.0 - hit_share) * self.experts_bytes as f64, disk_bytes_per_s);
        1.0 / memory.max(disk).max(f64::MIN_POSITIVE)
    }
}

/// How experts are read.
#[derive(Debug, PartialEq, Eq)]
pub struct Reads {
    /// The file with the most of them.
    path: PathBuf,
    /// The largest read.
    block_bytes: u64,
}

impl Reads {
    /// `None` for a model without experts.
    pub fn of(gguf: &Gguf) -> Option<Reads> {
        let read_bytes = |t: &TensorInfo| match (t.expert_stack(), t.block()) {
            // One read for each expert's slice.
            (Some((_, bytes)), _) => Some(bytes),
            // Repacked: one for each expert, which is a row.
            (None, Some(layer)) if t.name == esker_packed::tensor_name(layer) => t.shape.first().copied(),
            _ => None,
        };
        let tensors: Vec<_> = gguf.tensors.iter().filter_map(|t| Some((t, read_bytes(t)?))).collect();
        let block_bytes = tensors.iter().map(|&(_, bytes)| bytes).max()?;
        let of_file =
            |file: usize| tensors.iter().filter(|(t, _)| t.file == file).map(|(t, _)| t.size).sum::<u64>();
        let file = (0..gguf.files.len()).max_by_key(|&file| of_file(file))?;
        Some(Reads { path: gguf.files[file].clone(), block_bytes })
    }
}

/// Measures, and computes the speed.
pub fn measure(console: &Console, traffic: Traffic, reads: Option<&Reads>, threads: usize) -> Speed {
    let memory = {
        let _spinner = Progress::spinner(console, "measuring the memory");
        bandwidth::memory(threads)
    };
    let all_fit = traffic.experts_bytes == 0 || traffic.uniform_hit_share >= 1.0;
    let disk = reads.filter(|_| !all_fit).and_then(|reads| {
        let _spinner = Progress::spinner(console, "measuring the disk");
        match disk(console, &reads.path, reads.block_bytes) {
            Ok(disk) => Some(disk),
            Err(error) => {
                console.warning(format_args!("the disk was not measured: {error}"));
                None
            }
        }
    });
    let speed = |hit_share, disk| traffic.tokens_per_s(hit_share, memory.bytes_per_s, disk);
    let uniform = match &disk {
        Some(disk) => Some(speed(traffic.uniform_hit_share, disk.bytes_per_s)),
        None => all_fit.then(|| speed(1.0, 1)),
    };
    Speed { memory, disk, uniform_tokens_per_s: uniform, in_memory_tokens_per_s: speed(1.0, 1) }
}

fn disk(console: &Console, path: &Path, block_bytes: u64) -> Result<DiskBandwidth, ProbeError> {
    let block = usize::try_from(block_bytes).unwrap_or(usize::MAX).clamp(1, BLOCK_BYTES_MAX);
    let (probe, kept) = match directories::cache() {
        Some(folder) => {
            let cached = probe::probe_cached(path, block, probe::MEMORY_BYTES, PROBE_SECONDS, &folder)?;
            if let Some(error) = cached.not_kept {
                let folder = folder.display();
                console.warning(format_args!("the disk's figures were not kept in `{folder}`: {error}"));
            }
            (cached.result, cached.from_cache)
        }
        None => (probe::probe(path, block, probe::MEMORY_BYTES, PROBE_SECONDS)?, false),
    };
    let best = probe.depths.iter().find(|d| d.depth == probe.best_depth);
    Ok(DiskBandwidth { bytes_per_s: best.map_or(0, |d| d.bytes_per_s).max(1), kept, probe })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_memory_and_disk_decides() {
        let traffic = Traffic { dense_bytes: 600, experts_bytes: 400, uniform_hit_share: 0.75 };
        let speed = |hit_share, disk| traffic.tokens_per_s(hit_share, 10_000, disk);
        assert_eq!(speed(0.75, 10), 0.1, "100 bytes at 10 a second");
        assert_eq!(speed(0.75, 100_000), 10.0, "1000 bytes at 10,000 a second");
        assert_eq!(speed(1.0, 1), 10.0, "nothing is read");
        let nothing = Traffic { dense_bytes: 0, experts_bytes: 0, uniform_hit_share: 1.0 };
        assert!(nothing.tokens_per_s(1.0, 1, 1).is_finite());
    }
}
