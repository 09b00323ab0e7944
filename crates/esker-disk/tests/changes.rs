//! The world moves under an open file, and disks go away with reads in flight: errors, never wrong bytes.

mod common;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use common::{bytes, disks, read_of, read_one, say};
use esker_disk::{Arena, FileChange, Full, OpenError, ReadError, WaitError};

const BYTES: usize = 4_000_000;

/// Coarse clocks (kernels before 6.13) may give two writes within a tick the same time.
fn let_the_clock_move() {
    std::thread::sleep(Duration::from_millis(20));
}

fn assert_changed(name: &str, result: Result<impl std::fmt::Debug, ReadError>, expect: FileChange) {
    match result {
        Err(ReadError::Changed { what, .. }) => assert_eq!(what, expect, "{name}"),
        other => panic!("{name}: expected {expect:?}, got {other:?}"),
    }
}

#[test]
fn a_file_truncated_during_the_run() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mut disk) in disks(8) {
        let path = dir.path().join("f");
        std::fs::write(&path, bytes(1, BYTES)).unwrap();
        let file = disk.open(&path).unwrap();
        read_one(disk.as_mut(), file, 0, 100_000).result.unwrap();

        OpenOptions::new().write(true).open(&path).unwrap().set_len(150_000).unwrap();
        let cut = FileChange::Size { was: BYTES as u64, now: 150_000 };
        assert_changed(&name, read_one(disk.as_mut(), file, 3_000_000, 100_000).result, cut);
        assert_changed(&name, read_one(disk.as_mut(), file, 140_000, 100_000).result, cut);
        assert_changed(&name, read_one(disk.as_mut(), file, 0, 100_000).result, cut);
        let mut row = [0; 1000];
        assert_changed(&name, disk.read_now(file, 3_000_000, &mut row), cut);
        assert_changed(&name, disk.check(file), cut);

        let file = disk.open(&path).unwrap();
        read_one(disk.as_mut(), file, 0, 150_000).result.unwrap();
    }
}

#[test]
fn a_file_rewritten_in_place() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mut disk) in disks(8) {
        let path = dir.path().join("f");
        std::fs::write(&path, bytes(1, BYTES)).unwrap();
        let file = disk.open(&path).unwrap();
        read_one(disk.as_mut(), file, 0, 100_000).result.unwrap();
        let_the_clock_move();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(&bytes(2, 1000)).unwrap();
        writer.sync_all().unwrap();
        assert_changed(&name, read_one(disk.as_mut(), file, 0, 100_000).result, FileChange::Written);
    }
}

#[test]
fn a_file_whose_name_was_given_to_another_is_read_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mut disk) in disks(8) {
        let path = dir.path().join("f");
        let old = bytes(1, BYTES);
        std::fs::write(&path, &old).unwrap();
        let file = disk.open(&path).unwrap();
        disk.check(file).unwrap();
        std::fs::write(dir.path().join("new"), bytes(2, BYTES)).unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();

        let mut whole = vec![0; BYTES];
        disk.read_now(file, 0, &mut whole).unwrap();
        assert!(whole == old, "{name}");
        read_one(disk.as_mut(), file, 1234, 100_000).result.unwrap();
        assert_changed(&name, disk.check(file), FileChange::Replaced);
        std::fs::remove_file(&path).unwrap();
        assert_changed(&name, disk.check(file), FileChange::Removed);
    }
}

#[test]
fn ranges_beyond_the_end_are_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, bytes(1, 10_000)).unwrap();
    for (name, mut disk) in disks(8) {
        let file = disk.open(&path).unwrap();
        for (offset, expect) in [(9_990, 10), (10_000, 0), (1 << 40, 0)] {
            let completion = read_one(disk.as_mut(), file, offset, 100);
            let short = |result: &Result<_, ReadError>| matches!(result, Err(ReadError::Short { got, .. }) if *got == expect);
            assert!(short(&completion.result.map(|_| ())), "{name}, offset {offset}");
            let now = disk.read_now(file, offset, &mut [0; 100]);
            assert!(short(&now), "{name}, offset {offset}: {now:?}");
        }
        let message = disk.read_now(file, 9_990, &mut [0; 100]).unwrap_err().to_string();
        let expect = format!("`{}` has only 10 of the 100 bytes wanted at offset 9990", path.display());
        assert_eq!(message, expect);
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let dir = tempfile::tempdir().unwrap();
    for (_, mut disk) in disks(8) {
        let absent = disk.open(&dir.path().join("absent")).unwrap_err();
        assert_eq!(absent.to_string(), format!("cannot open `{}`", dir.path().join("absent").display()));
        assert!(matches!(disk.open(dir.path()), Err(OpenError::NotAFile { .. })));
        assert!(matches!(disk.open(Path::new("/dev/null")), Err(OpenError::NotAFile { .. })));
    }
}

#[test]
fn a_full_disk_gives_the_read_back_and_an_idle_one_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, bytes(1, BYTES)).unwrap();
    for (name, mut disk) in disks(3) {
        let mut done = Vec::new();
        assert!(matches!(disk.wait(&mut done), Err(WaitError::NothingInFlight)), "{name}");
        let file = disk.open(&path).unwrap();
        let mut arena = Arena::new(16 << 20).unwrap();
        for id in 0..3 {
            let read = read_of(disk.as_ref(), &mut arena, id, file, id, 1_000_000);
            disk.submit(read).unwrap();
        }
        let fourth = read_of(disk.as_ref(), &mut arena, 3, file, 3, 1_000_000);
        let Err(Full(fourth)) = disk.submit(fourth) else { panic!("{name}: accepted a fourth read") };
        assert_eq!(disk.in_flight(), 3);
        disk.wait(&mut done).unwrap();
        disk.submit(fourth).unwrap();
        while disk.in_flight() > 0 {
            disk.wait(&mut done).unwrap();
        }
        let mut ids: Vec<u64> = done.iter().map(|d| d.id.0).collect();
        ids.sort();
        assert_eq!(ids, [0, 1, 2, 3], "{name}");
        assert!(done.iter().all(|d| d.result.is_ok()), "{name}");
    }
}

#[test]
fn dropping_a_disk_with_reads_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    File::create(&path).unwrap().write_all(&bytes(1, 8_000_000)).unwrap();
    let before = mapped_kib();
    for round in 0..10 {
        for (name, mut disk) in disks(64) {
            esker_disk::page_cache::drop_page_cache(&path).unwrap();
            let file = disk.open(&path).unwrap();
            let mut arena = Arena::new(72 << 20).unwrap();
            let mut neighbour = arena.carve([4096]).remove(0);
            neighbour.fill(round);
            for id in 0..64 {
                let read = read_of(disk.as_ref(), &mut arena, id, file, id * 4096 + 1, 1_000_000);
                disk.submit(read).unwrap();
            }
            let mut done = Vec::new();
            if round % 2 == 0 {
                disk.wait(&mut done).unwrap();
            }
            drop(disk);
            assert!(done.iter().all(|d| d.result.is_ok()), "{name}");
            assert!(neighbour.iter().all(|&byte| byte == round), "{name}");
        }
    }
    let grown = mapped_kib().saturating_sub(before);
    say(&format!("after 10 rounds of dropping disks: {grown} KiB more address space"));
    // An arena of 72 MiB per disk and round: had they leaked, this would be gigabytes.
    assert!(grown < 1 << 20, "{grown} KiB leaked");
}

/// Address space of this process in KiB; 0 where the system does not tell.
fn mapped_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    line.map_or(0, |kib| kib.parse().unwrap())
}
