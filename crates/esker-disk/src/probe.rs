//! Which queue depth a device is best at, measured: random reads of one size at several depths.
//!
//! A second of probing, kept in a small file so that it is done once per file and block size. Random, because
//! experts are; of the size that experts have, because the best depth depends on it; into memory that is much larger
//! than a processor's own caches, because an arena of experts is (into the same few buffers, again and again, some disks
//! read a quarter faster: virtual ones copy). Where reads are buffered the figures are those of the page cache and say so
//! ([`ProbeResult::direct`]).

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::rng::Rng;
use crate::{
    Arena, ArenaError, Backend, Buffer, Completion, Disk, DiskOptions, FileId, FileIdentity, Full, OpenError,
    Priority, Read, ReadError, ReadId, Segment, SmallSegments, StartError, WaitError, aligned_span,
    open_best,
};

/// The depths that are tried.
pub const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// A depth is as good as the best one if it reaches this share of its throughput: a shallower queue gives a
/// demand read less to wait behind.
const GOOD_ENOUGH_PERCENT: u128 = 95;

/// Largest block in bytes: at least 32 of them are in memory at a time.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Memory that is larger than second-level caches, and than what one core gets of a third-level one.
pub const MEMORY_BYTES: usize = 64 << 20;

/// Bump when the method changes, so that older results are measured anew.
const METHOD: u32 = 2;

/// What a device does with random reads of one size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Size of each read.
    pub block_bytes: usize,
    /// Whether reads went past the page cache. If not, the figures are not the device's.
    pub direct: bool,
    /// What carried the reads out.
    pub disk: String,
    /// One line per depth of [`DEPTHS`].
    pub depths: Vec<DepthResult>,
    /// The shallowest depth within 5 % of the best throughput.
    pub best_depth: usize,
}

/// What one depth gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthResult {
    /// Reads in flight.
    pub depth: usize,
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// Reads per second, rounded.
    pub iops: u64,
}

/// Bytes that [`probe`] takes for its buffers: of `memory` as many blocks as fit, and one for each read in flight.
pub fn probe_bytes(block_bytes: usize, memory: usize) -> usize {
    let depth_max = DEPTHS[DEPTHS.len() - 1];
    let block = block_bytes.min(BLOCK_BYTES_MAX) + 2 * 4096;
    block * depth_max.max(memory / block)
}

/// Measures for about `seconds` in total (at least one round of reads per depth, whatever that takes). Reads go to
/// `memory` bytes in turn, best [`MEMORY_BYTES`] or more; but there are always as many buffers as reads in flight.
/// # Errors
/// If the block size is not possible, the file is smaller than a block, or reading fails.
pub fn probe(
    path: &Path,
    block_bytes: usize,
    memory: usize,
    seconds: f64,
) -> Result<ProbeResult, ProbeError> {
    if !(1..=BLOCK_BYTES_MAX).contains(&block_bytes) {
        return Err(ProbeError::BlockSize { block_bytes });
    }
    let depth_max = DEPTHS[DEPTHS.len() - 1];
    // With threads, as experts are read unless something else is asked for.
    let backend = Backend::Pool;
    let options = DiskOptions { backend, reads_max: depth_max, workers: depth_max, ..DiskOptions::default() };
    let mut disk = open_best(options)?;
    let file = disk.open(path)?;
    let (size, align) = (disk.identity(file).size, disk.alignment(file));
    if size < block_bytes as u64 {
        return Err(ProbeError::FileTooSmall { path: path.into(), size, block_bytes });
    }
    // Starts are aligned, so nothing is read beyond the block but its rounding.
    let buffer_bytes = aligned_span(0, block_bytes, align).len;
    let n_buffers = memory / Arena::bytes_for([buffer_bytes]);
    let sizes = vec![buffer_bytes; n_buffers.max(depth_max)];
    let mut arena = Arena::new(Arena::bytes_for(sizes.iter().copied()))?;
    // Looking up thousands of small pages per read would hide what the device can do. Advice, where it is taken.
    let _ = arena.advise_huge_pages();
    let mut buffers = arena.carve(sizes);
    let starts = (size - block_bytes as u64) / align as u64 + 1;
    let mut blocks = Blocks { file, block_bytes, align, starts, rng: Rng::new(size ^ block_bytes as u64) };
    // Written once, so that no depth pays for the first touch of its buffers.
    buffers.iter_mut().for_each(|buffer| buffer.fill(0));

    let limit = Duration::try_from_secs_f64(seconds / DEPTHS.len() as f64).unwrap_or(Duration::ZERO);
    let mut depths = Vec::with_capacity(DEPTHS.len());
    for depth in DEPTHS {
        depths.push(measure(disk.as_mut(), &mut blocks, &mut buffers, n_buffers.max(depth), depth, limit)?);
    }
    let best = depths.iter().map(|d| d.bytes_per_s).max().unwrap_or(0);
    let good = depths.iter().find(|d| is_good(d, best));
    Ok(ProbeResult {
        block_bytes,
        direct: disk.is_direct(file),
        disk: disk.description().into(),
        best_depth: good.expect("the best depth is as good as itself").depth,
        depths,
    })
}

fn is_good(depth: &DepthResult, best_bytes_per_s: u64) -> bool {
    u128::from(depth.bytes_per_s) * 100 >= u128::from(best_bytes_per_s) * GOOD_ENOUGH_PERCENT
}

/// Random blocks of a file.
struct Blocks {
    file: FileId,
    block_bytes: usize,
    align: usize,
    /// How many aligned offsets a block can start at.
    starts: u64,
    rng: Rng,
}

impl Blocks {
    fn read(&mut self, id: u64, buffer: Buffer) -> Read {
        let offset = self.rng.below(self.starts) * self.align as u64;
        let segment = Segment { file: self.file, offset, len: self.block_bytes, into: 0 };
        let segments = SmallSegments::from(segment);
        Read { id: ReadId(id), priority: Priority::Demand, buffer, segments }
    }
}

/// Keeps `depth` reads in flight for `limit`, at least `depth` of them in all, `n_buffers` in turn.
fn measure(
    disk: &mut dyn Disk,
    blocks: &mut Blocks,
    buffers: &mut Vec<Buffer>,
    n_buffers: usize,
    depth: usize,
    limit: Duration,
) -> Result<DepthResult, ProbeError> {
    let mut turn: VecDeque<Buffer> = buffers.drain(..n_buffers).collect();
    let started = Instant::now();
    let (mut submitted, mut completed, mut done) = (0, 0, Vec::new());
    loop {
        while disk.in_flight() < depth && (submitted < depth as u64 || started.elapsed() < limit) {
            let buffer = turn.pop_front().expect("there are at least as many buffers as reads in flight");
            if let Err(Full(read)) = disk.submit(blocks.read(submitted, buffer)) {
                turn.push_front(read.buffer);
                break;
            }
            submitted += 1;
        }
        if completed == submitted {
            break;
        }
        disk.wait(&mut done)?;
        for Completion { buffer, result, .. } in done.drain(..) {
            turn.push_back(buffer);
            result?;
            completed += 1;
        }
    }
    buffers.extend(turn);
    let seconds = started.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
    let iops = completed as f64 / seconds;
    let bytes_per_s = (iops * blocks.block_bytes as f64).round() as u64;
    Ok(DepthResult { depth, bytes_per_s, iops: iops.round() as u64 })
}

/// A result, and where it came from.
#[derive(Debug)]
pub struct Cached {
    /// The figures.
    pub result: ProbeResult,
    /// Whether they were kept from an earlier run.
    pub from_cache: bool,
    /// Why they could not be kept for the next run, if so. Not a reason to fail this one.
    pub not_kept: Option<std::io::Error>,
}

/// As [`probe`], unless `folder` has a result for this file (device, inode, size, modification time) and block size that
/// was measured with at least as much memory.
///
/// `folder` is created if needed. A file in it that cannot be read or understood is measured anew and replaced.
/// # Errors
/// As [`probe`].
pub fn probe_cached(
    path: &Path,
    block_bytes: usize,
    memory: usize,
    seconds: f64,
    folder: &Path,
) -> Result<Cached, ProbeError> {
    let open_failed = |source| OpenError::Open { path: path.into(), source };
    let identity = FileIdentity::of(path).map_err(open_failed)?;
    let name = format!("disk-probe-{:x}-{:x}-{block_bytes}.json", identity.device, identity.inode);
    let kept = folder.join(name);
    if let Some(result) = load(&kept, identity, block_bytes, memory) {
        return Ok(Cached { result, from_cache: true, not_kept: None });
    }
    let result = probe(path, block_bytes, memory, seconds)?;
    let not_kept = keep(&kept, &Kept { method: METHOD, identity, memory, result: result.clone() }).err();
    Ok(Cached { result, from_cache: false, not_kept })
}

/// What the file in the cache folder holds, as JSON.
#[derive(Serialize, Deserialize)]
struct Kept {
    method: u32,
    identity: FileIdentity,
    memory: usize,
    result: ProbeResult,
}

fn load(path: &Path, identity: FileIdentity, block_bytes: usize, memory: usize) -> Option<ProbeResult> {
    const BYTES_MAX: u64 = 64 << 10;
    if std::fs::metadata(path).ok()?.len() > BYTES_MAX {
        return None;
    }
    let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let ProbeResult { depths, best_depth, .. } = &kept.result;
    let is_whole = depths.iter().map(|d| d.depth).eq(DEPTHS)
        && depths.iter().all(|d| d.bytes_per_s > 0)
        && DEPTHS.contains(best_depth);
    let fits = kept.method == METHOD
        && kept.identity == identity
        && kept.memory >= memory
        && kept.result.block_bytes == block_bytes;
    (is_whole && fits).then_some(kept.result)
}

/// Written beside and renamed, so that a reader never sees half of it.
fn keep(path: &Path, kept: &Kept) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    let result = std::fs::File::create(&unfinished)
        .and_then(|mut file| {
            file.write_all(&serde_json::to_vec_pretty(kept)?)?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&unfinished, path));
    if result.is_err() {
        let _ = std::fs::remove_file(&unfinished); // it may not exist; the first error is what matters
    }
    result
}

/// Why probing failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The block size is not possible.
    #[error("block size {block_bytes}, expected 1 to {BLOCK_BYTES_MAX} bytes")]
    BlockSize {
        /// What was asked for.
        block_bytes: usize,
    },
    /// The file does not have one block.
    #[error("`{}` has {size} bytes, probing with blocks of {block_bytes} needs at least that many", path.display())]
    FileTooSmall {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// What was asked for.
        block_bytes: usize,
    },
    /// No memory for the blocks.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// No disk.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The file could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The disk did not answer.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        (dir, path)
    }

    #[test]
    fn every_depth_is_measured_and_the_best_is_near_the_top() {
        let (_dir, path) = file_of(3_000_000);
        let result = probe(&path, 65_536, 3 << 20, 0.1).unwrap();
        assert!(result.depths.iter().map(|d| d.depth).eq(DEPTHS));
        assert!(result.depths.iter().all(|d| d.iops > 0 && d.bytes_per_s / 65_536 <= d.iops + 1));
        let top = result.depths.iter().map(|d| d.bytes_per_s).max().unwrap();
        let good = result.depths.iter().position(|d| is_good(d, top)).unwrap();
        assert_eq!(result.best_depth, DEPTHS[good]);
    }

    #[test]
    fn impossible_probes_are_refused() {
        let (_dir, path) = file_of(5000);
        assert!(matches!(probe(&path, 0, 0, 0.1), Err(ProbeError::BlockSize { .. })));
        assert!(matches!(probe(&path, usize::MAX, 0, 0.1), Err(ProbeError::BlockSize { .. })));
        assert!(matches!(probe(&path, 5001, 0, 0.1), Err(ProbeError::FileTooSmall { size: 5000, .. })));
        probe(&path, 5000, 0, 0.0).unwrap(); // exactly one block, no time: one round
        probe(&path, 5000, 0, f64::NAN).unwrap();
    }

    #[test]
    fn results_are_kept_per_file_identity_and_damage_is_measured_anew() {
        let (dir, path) = file_of(100_000);
        let folder = dir.path().join("cache");
        let again = || probe_cached(&path, 4096, 1 << 20, 0.01, &folder).unwrap();
        let first = again();
        assert!(!first.from_cache && first.not_kept.is_none());
        assert!(probe_cached(&path, 4096, 1 << 10, 0.01, &folder).unwrap().from_cache, "less memory");
        assert!(!probe_cached(&path, 4096, 2 << 20, 0.01, &folder).unwrap().from_cache, "more memory");
        let first = again();
        let second = again();
        assert!(second.from_cache);
        assert_eq!(second.result, first.result);

        let kept = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let text = std::fs::read_to_string(&kept).unwrap();
        for damaged in
            [text[..text.len() / 2].to_string(), text.replace("\"best_depth\": ", "\"best_depth\": 1000")]
        {
            std::fs::write(&kept, damaged).unwrap();
            assert!(!again().from_cache);
            assert!(again().from_cache);
        }
        std::fs::write(&path, vec![1; 100_001]).unwrap();
        assert!(!again().from_cache, "another size is another file");
    }

    #[test]
    fn a_folder_that_cannot_be_written_does_not_fail_the_probe() {
        let (dir, path) = file_of(100_000);
        let cached = probe_cached(&path, 4096, 1 << 20, 0.01, &dir.path().join("f/not-a-folder")).unwrap();
        assert!(cached.not_kept.is_some());
    }
}
