//! An arena of more addresses than memory. Alone in its process: it measures what the process takes.
#![cfg(target_os = "linux")]

use std::sync::{Mutex, PoisonError};

use esker_disk::{Arena, Buffer, memory};

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What the process takes; `None` where the system does not tell.
fn resident() -> Option<u64> {
    memory::footprint().map(|f| f.anonymous)
}

/// What it takes more than it did.
fn more_than(before: u64) -> u64 {
    resident().expect("it could be read before").saturating_sub(before)
}

/// Slots of two sizes, as odd as those of experts, that take turns: the process never takes more than those in use.
#[test]
fn slots_that_change_places_take_no_more_memory() {
    const SIZES: [usize; 2] = [1_384_448, 2_981_888];
    const BUDGET: usize = 96 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let n_most = SIZES.map(|size| BUDGET / size);
    let sizes = || (0..2).flat_map(|class| std::iter::repeat_n(SIZES[class], n_most[class]));
    let Ok(mut arena) = Arena::sparse(Arena::bytes_for(sizes())) else {
        return eprintln!("this system accounts strictly, nothing tested");
    };
    let _ = arena.advise_huge_pages();
    let mut slots: Vec<(bool, Buffer)> = arena.carve(sizes()).into_iter().map(|b| (false, b)).collect();
    slots.iter().for_each(|(_, b)| drop(b.advise_huge_pages(false)));
    let Some(before) = resident() else {
        return eprintln!("this system does not tell what a process takes, nothing tested");
    };
    let (mut dice, mut most) = (1u64, 0);
    for round in 0..40 {
        // Some go, whichever; then as many come as there is room for.
        let mut roll = |n: usize| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) as usize % n
        };
        for (live, buffer) in &mut slots {
            if *live && roll(4) == 0 {
                buffer.release_pages().unwrap();
                let _ = buffer.advise_huge_pages(false);
                *live = false;
            }
        }
        let mut taken: usize = slots.iter().filter(|s| s.0).map(|s| s.1.len()).sum();
        for _ in 0..200 {
            let n = slots.len();
            let (live, buffer) = &mut slots[roll(n)];
            if !*live && taken + buffer.len() <= BUDGET {
                let _ = buffer.advise_huge_pages(true);
                buffer.fill(round + 1);
                (*live, taken) = (true, taken + buffer.len());
            }
        }
        let process = more_than(before);
        assert!(process as usize <= taken + (1 << 20), "round {round}: {process} bytes for {taken}");
        most = most.max(taken);
    }
    assert!(most > BUDGET * 9 / 10, "at most {most} bytes were in use");
}

/// More addresses than any machine has memory, of which little is used at a time.
#[test]
fn a_sparse_arena_takes_what_is_written_and_gives_it_back() {
    const LEN: usize = 3 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut arena = match Arena::sparse(1 << 44) {
        Ok(arena) => arena,
        Err(error) => return eprintln!("this system accounts strictly, nothing tested: {error}"),
    };
    assert!(arena.lock().is_err(), "16 TiB cannot be locked");
    // Buffers side by side, every other one in use: huge pages must not reach into the others.
    let buffers = arena.carve(vec![LEN; 16]);
    let _ = arena.advise_huge_pages();
    let (mut live, mut out): (Vec<_>, Vec<_>) =
        buffers.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    out.iter().for_each(|(_, b)| drop(b.advise_huge_pages(false)));
    let Some(before) = resident() else {
        return eprintln!("this system does not tell what a process takes, nothing tested");
    };
    live.iter_mut().for_each(|(i, b)| b.fill(*i as u8 + 1));
    let taken = more_than(before);
    assert!((8 * LEN as u64..8 * LEN as u64 + (2 << 20)).contains(&taken), "{taken} bytes for {}", 8 * LEN);
    // They change places.
    for (_, b) in &mut live {
        b.release_pages().unwrap();
        let _ = b.advise_huge_pages(false);
    }
    let left = more_than(before);
    assert!(left < 2 << 20, "{left} bytes are still taken");
    for (i, b) in &mut out {
        let _ = b.advise_huge_pages(true);
        b.fill(*i as u8 + 1);
    }
    let taken = more_than(before);
    assert!((8 * LEN as u64..8 * LEN as u64 + (2 << 20)).contains(&taken), "{taken} bytes for {}", 8 * LEN);
    assert!(live.iter().all(|(_, b)| b[0] == 0 && b[LEN - 1] == 0));
    assert!(out.iter().all(|(i, b)| b.iter().all(|&byte| byte == *i as u8 + 1)));
}
