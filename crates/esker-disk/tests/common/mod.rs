//! The disks that this machine has, each under a name, for tests that hold for all of them.
#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::result_large_err, reason = "tests hand `Full` on")]

use std::io::Write;
use std::path::Path;

use esker_disk::{Arena, Backend, Completion, Disk, DiskOptions, FileId, Priority, Read, ReadId, Segment};

/// Past the test harness's capture: which disks a green run has covered must be seen.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Every real disk that can be started: io_uring and the worker pool, direct and buffered.
pub fn disks(reads_max: usize) -> Vec<(String, Box<dyn Disk>)> {
    let mut all: Vec<(String, Box<dyn Disk>)> = Vec::new();
    for backend in [Backend::Uring, Backend::Pool] {
        for direct in [true, false] {
            let options = DiskOptions { backend, direct, reads_max, workers: 8 };
            let name = format!("{backend:?}, {}", if direct { "direct" } else { "buffered" });
            match esker_disk::open_best(options) {
                Ok(disk) => all.push((name, disk)),
                Err(error) => say(&format!("{name} is not tested here: {}", chain(&error))),
            }
        }
    }
    assert!(!all.is_empty(), "no disk could be started");
    all
}

fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|source| format!(": {}", chain(source)));
    format!("{error}{}", cause.unwrap_or_default())
}

/// What `disk` does with `file`, in words.
pub fn access(disk: &dyn Disk, file: FileId) -> String {
    match disk.buffered_reason(file) {
        None => format!("direct, alignment {}", disk.alignment(file)),
        Some(reason) => format!("buffered ({reason})"),
    }
}

/// `len` bytes that differ from those of another seed and from their neighbours.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mix =
        |i: usize| (i as u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (0..len).map(|i| (mix(i) >> 56) as u8).collect()
}

/// One demand read of `len` bytes of `file` at `offset` into a buffer of its own.
pub fn read_of(disk: &dyn Disk, arena: &mut Arena, id: u64, file: FileId, offset: u64, len: usize) -> Read {
    let span = esker_disk::aligned_span(offset, len, disk.alignment(file));
    let buffer = arena.carve([span.len]).remove(0);
    let segments = Segment { file, offset, len, into: 0 }.into();
    Read { id: ReadId(id), priority: Priority::Demand, buffer, segments }
}

/// Submits and waits for one read.
pub fn read_one(disk: &mut dyn Disk, file: FileId, offset: u64, len: usize) -> Completion {
    let mut arena = Arena::new(len + 2 * 65536).unwrap();
    let read = read_of(disk, &mut arena, 1, file, offset, len);
    disk.submit(read).unwrap();
    let mut done = Vec::new();
    disk.wait(&mut done).unwrap();
    assert_eq!(done.len(), 1);
    done.remove(0)
}

/// A temporary folder in memory, if the machine has one: where direct I/O has no meaning.
pub fn folder_in_memory() -> Option<tempfile::TempDir> {
    tempfile::tempdir_in(Path::new("/dev/shm")).ok()
}
