//! An arena of more addresses than memory. Alone in its process: it measures what the process takes.
#![cfg(target_os = "linux")]

use esker_disk::{Arena, memory};

/// More addresses than any machine has memory, of which little is used at a time.
#[test]
fn a_sparse_arena_takes_what_is_written_and_gives_it_back() {
    const LEN: usize = 3 << 20;
    let resident = || memory::footprint().map_or(0, |f| f.anonymous);
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
    let before = resident();
    live.iter_mut().for_each(|(i, b)| b.fill(*i as u8 + 1));
    let taken = resident() - before;
    assert!((8 * LEN as u64..8 * LEN as u64 + (2 << 20)).contains(&taken), "{taken} bytes for {}", 8 * LEN);
    // They change places.
    for (_, b) in &mut live {
        b.release_pages().unwrap();
        let _ = b.advise_huge_pages(false);
    }
    let left = resident().saturating_sub(before);
    assert!(left < 2 << 20, "{left} bytes are still taken");
    for (i, b) in &mut out {
        let _ = b.advise_huge_pages(true);
        b.fill(*i as u8 + 1);
    }
    let taken = resident() - before;
    assert!((8 * LEN as u64..8 * LEN as u64 + (2 << 20)).contains(&taken), "{taken} bytes for {}", 8 * LEN);
    assert!(live.iter().all(|(_, b)| b[0] == 0 && b[LEN - 1] == 0));
    assert!(out.iter().all(|(i, b)| b.iter().all(|&byte| byte == *i as u8 + 1)));
}
