//! However a header lies, reading it takes no more memory than a small multiple of the file.
//!
//! A counting allocator, so a program of its own.

#[path = "gguf/common.rs"]
#[allow(dead_code)]
mod common;

use common::{ARRAY, Raw, STRING, U8};
use esker_gguf::{Header, ParseError};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the bytes that this thread holds, and the most it held since `measure` began.
struct Counting;

thread_local! {
    // Constants without destructors: using them does not allocate.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches only thread-locals that
// need no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // The system may hold both while it copies.
        count(new_size as isize);
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allowed per byte of file. The shortest keys come near 20, but their number is limited, to some 20 MB;
/// everything else stays below 12, see `the_smallest_entries_take_a_small_multiple`.
const RATIO: usize = 24;
/// For messages and for rounding of tiny allocations.
const SLACK_BYTES: usize = 4096;

/// Reads, and returns the most bytes held meanwhile; the result is dropped afterwards.
fn measure(bytes: &[u8]) -> (Result<Header, ParseError>, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = Header::read(bytes, bytes.len() as u64);
    (result, (PEAK.get() - before) as usize)
}

#[track_caller]
fn check(bytes: &[u8]) -> Result<Header, ParseError> {
    let (result, peak) = measure(bytes);
    assert!(peak <= RATIO * bytes.len() + SLACK_BYTES, "{peak} bytes held for {} of file", bytes.len());
    result
}

/// Values of all kinds, nested arrays, tensors.
fn base() -> Vec<u8> {
    let raw = Raw::start(3, 2, 6).key("name", STRING).string("größe".as_bytes());
    let raw = (0..7u32).filter(|&ty| ty != 6).fold(raw.key("all", ARRAY).array(ARRAY, 6), |raw, ty| {
        raw.array(ty, 8).bytes(&[1; 32][..8 << (ty / 2)])
    });
    raw.key("tokens", ARRAY)
        .array(STRING, 4)
        .string(b"a")
        .string(b"")
        .string("ü".as_bytes())
        .string(&[b'x'; 50])
        .key("flags", ARRAY)
        .array(7, 9)
        .bytes(&[1; 9])
        .key("wide", ARRAY)
        .array(12, 4)
        .bytes(&[2; 32])
        .key("deep", ARRAY)
        .array(ARRAY, 1)
        .array(ARRAY, 1)
        .array(U8, 2)
        .bytes(&[1, 2])
        .tensor("token_embd.weight", &[32, 2], 8, 0)
        .tensor("blk.0.ffn_up_exps.weight", &[4, 2, 3], 0, 96)
        .data(96 + 96)
        .0
}

#[test]
fn every_flipped_bit_stays_within_bounds() {
    let base = base();
    let whole = check(&base).expect("the base reads");
    assert_eq!((whole.metadata.len(), whole.tensors.len()), (6, 2));
    let (mut refused, mut read) = (0, 0);
    for bit in 0..whole.data_offset as usize * 8 {
        let mut bytes = base.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match check(&bytes) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1000 && read > 1000, "both outcomes must occur: {refused} refused, {read} read");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Extreme numbers where counts and lengths are, and anything elsewhere.
    #[test]
    fn overwritten_bytes_stay_within_bounds(
        edits in proptest::collection::vec(
            (any::<proptest::sample::Index>(), prop_oneof![
                any::<u64>(),
                (0u32..64).prop_map(|n| 1 << n),
                (0u32..64).prop_map(|n| u64::MAX >> n),
            ], 1usize..9),
            1..4,
        ),
        len in any::<proptest::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = base();
        for (at, number, width) in edits {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        }
        if cut {
            bytes.truncate(len.index(bytes.len()));
        }
        let _ = check(&bytes);
    }
}

/// The entries that are largest in memory for their bytes in the file.
#[test]
fn the_smallest_entries_take_a_small_multiple() {
    let repeat = |raw: Raw, n: usize, element: &dyn Fn(Raw, usize) -> Raw| (0..n).fold(raw, element);
    let keys = repeat(Raw::start(3, 0, 60_000), 60_000, &|raw, i| {
        raw.string(&[0x21 + (i % 94) as u8, 0x21 + (i / 94 % 94) as u8, 0x21 + (i / 8836) as u8])
            .u32(0)
            .bytes(&[1])
    });
    let strings = Raw::start(3, 0, 1).key("k", ARRAY).array(STRING, 100_000).bytes(&[0; 800_000]);
    let arrays =
        repeat(Raw::start(3, 0, 1).key("k", ARRAY).array(ARRAY, 60_000), 60_000, &|raw, _| raw.array(U8, 0));
    let string_arrays =
        repeat(Raw::start(3, 0, 1).key("k", ARRAY).array(ARRAY, 60_000), 60_000, &|raw, _| {
            raw.array(STRING, 0)
        });
    let numbers = Raw::start(3, 0, 1).key("k", ARRAY).array(U8, 1_000_000).bytes(&[7; 1_000_000]);
    let text = Raw::start(3, 0, 1).key("k", STRING).u64(1_000_000).bytes(&[b'x'; 1_000_000]);
    let start = Raw::start(3, 30_000, 1).key("general.alignment", U8).bytes(&[1]);
    let tensors = repeat(start, 30_000, &|raw, i| raw.tensor(&i.to_string(), &[1], 24, i as u64));
    let tensors = tensors.bytes(&[0; 30_000]);
    for (what, raw, ratio_max) in [
        ("keys", keys, 20.0),
        ("empty strings", strings, 12.0),
        ("empty arrays", arrays, 12.0),
        ("empty arrays of strings", string_arrays, 12.0),
        ("numbers", numbers, 12.0),
        ("text", text, 12.0),
        ("tensors", tensors, 12.0),
    ] {
        let (result, peak) = measure(&raw.0);
        let ratio = peak as f64 / raw.0.len() as f64;
        eprintln!("{what}: {peak} bytes held for {} of file, {ratio:.1} times", raw.0.len());
        result.unwrap();
        assert!(ratio <= ratio_max, "{what}: {ratio}");
    }
}
