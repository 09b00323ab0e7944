//! Submitting, polling and waiting allocate nothing once warm. Alone in its process: it counts every thread's.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use std::sync::Arc;

use common::{bytes, disks, say};
use esker_disk::{Arena, Check, Mismatch, Priority, Read, ReadId, Segment, Verify, aligned_span};

/// Finds the reads wrong whose key is a multiple of eight.
#[derive(Debug)]
struct EveryEighth;

impl Verify for EveryEighth {
    fn verify(&self, key: u64, buffer: &[u8]) -> Result<(), Mismatch> {
        let found = buffer.iter().map(|&b| u64::from(b)).sum();
        if key.is_multiple_of(8) { Err(Mismatch { found, expected: key }) } else { Ok(()) }
    }
}

struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::SeqCst) {
            ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_disk_does_not_allocate() {
    const READS: usize = 16;
    const LEN: usize = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, bytes(1, 4_000_000)).unwrap();
    let verifier: Arc<dyn Verify> = Arc::new(EveryEighth);
    for (name, mut disk) in disks(READS) {
        let file = disk.open(&path).unwrap();
        let align = disk.alignment(file);
        let room = 3 * (LEN + 2 * 4096);
        let mut buffers = Arena::new(READS * (room + 4096)).unwrap().carve(vec![room; READS]);
        let (mut done, mut row, mut failed) = (Vec::with_capacity(READS), vec![0; 3000], 0);
        let mut round = |from: u64| {
            for id in 0..READS as u64 {
                let segment = |part: u64| {
                    let into = (part as usize * (LEN + 4096)).next_multiple_of(4096);
                    let segment =
                        Segment { file, offset: from + id * 101 + part * 1_000_000, len: LEN, into };
                    assert!(into + aligned_span(segment.offset, LEN, align).len <= room);
                    segment
                };
                let priority = if id % 2 == 0 { Priority::Demand } else { Priority::ReadAhead };
                let buffer = buffers.pop().expect("a buffer for each read");
                let read = Read { id: ReadId(id), priority, buffer, segments: (0..3).map(segment).collect() };
                let check = (id % 2 == 0).then(|| Check { verifier: Arc::clone(&verifier), key: id });
                assert!(disk.submit_checked(read, check).is_ok());
            }
            disk.promote(ReadId(15));
            while disk.in_flight() > 0 {
                disk.poll(&mut done);
                if disk.in_flight() > 0 {
                    disk.wait(&mut done).expect("reads are in flight");
                }
                for completion in done.drain(..) {
                    failed += usize::from(completion.result.is_err());
                    buffers.push(completion.buffer);
                }
            }
            // Failures that the world causes are on the path too.
            assert!(disk.read_now(file, 77, &mut row).is_ok());
            assert!(disk.read_now(file, 4_000_000, &mut row).is_err());
        };
        round(0);
        COUNTING.store(true, Ordering::SeqCst);
        (1..20).for_each(&mut round);
        COUNTING.store(false, Ordering::SeqCst);
        let count = ALLOCATIONS.swap(0, Ordering::SeqCst);
        say(&format!("{name}: {count} allocations in {} reads", 19 * READS));
        assert_eq!((count, failed), (0, 20 * READS / 8), "{name}");
    }
}
