//! Whatever carries a read out, the bytes are those of the file.

mod common;

use std::cell::RefCell;
use std::path::PathBuf;

use common::{access, bytes, disks, folder_in_memory, say};
use esker_disk::sim::{FaultPlan, SimDisk, SimOptions};
use esker_disk::{
    Arena, Buffer, Disk, FileId, Priority, Read, ReadId, SEGMENTS_MAX, Segment, SmallSegments, aligned_span,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A tail within a block, whole blocks, less than a block, one byte.
const SIZES: [usize; 4] = [1_500_123, 262_144, 700, 1];
const READS_MAX: usize = 24;
const ROOM_BYTES: usize = 1 << 18;

struct Subject {
    name: String,
    disk: Box<dyn Disk>,
    files: Vec<FileId>,
    buffers: Vec<Buffer>,
    /// Kept because the disk may have it registered.
    _arena: Arena,
}

/// A read as generated: segments of (file, start and end as shares of the file), priority, gap in the buffer.
type Wish = (Vec<(usize, u16, u16)>, bool, usize);

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let segment = (0..SIZES.len(), any::<u16>(), any::<u16>());
    let read = (prop::collection::vec(segment, 1..=SEGMENTS_MAX), any::<bool>(), 0usize..3);
    prop::collection::vec(read, 1..=READS_MAX)
}

/// The range of a file between two shares of it, at least a byte and at most a share of the buffer.
fn range(file: usize, a: u16, b: u16) -> (usize, usize) {
    let at = |share: u16| SIZES[file] * share as usize / 65536;
    let (start, end) = (at(a.min(b)), at(a.max(b)) + 1);
    let start = if a.is_multiple_of(8) { SIZES[file] - 1 - (SIZES[file] - 1).min(a as usize) } else { start }; // near the tail
    let end = end.clamp(start + 1, SIZES[file]);
    (start, (end - start).min(ROOM_BYTES / SEGMENTS_MAX - 3 * 4096))
}

fn subjects(folders: &[(&str, PathBuf)], contents: &[Vec<u8>]) -> Vec<Subject> {
    let mut all = Vec::new();
    let mut add = |name: String, mut disk: Box<dyn Disk>, paths: Vec<PathBuf>, register: bool| {
        let files: Vec<FileId> = paths.iter().map(|path| disk.open(path).unwrap()).collect();
        let mut arena = Arena::new(READS_MAX * ROOM_BYTES).unwrap();
        if register && let Err(error) = disk.register(&arena) {
            return say(&format!("{name}: registered memory is not tested here: {error}"));
        }
        say(&format!("{name}: {}; {}", disk.description(), access(disk.as_ref(), files[0])));
        let buffers = arena.carve([ROOM_BYTES; READS_MAX]);
        all.push(Subject { name, disk, files, buffers, _arena: arena });
    };
    for (place, folder) in folders {
        let paths = || (0..SIZES.len()).map(|i| folder.join(format!("f{i}"))).collect();
        for register in [false, true] {
            for (name, disk) in disks(READS_MAX) {
                if !register || name.starts_with("Uring") {
                    let kind = if register { ", registered" } else { "" };
                    add(format!("{name}{kind}, {place}"), disk, paths(), register);
                }
            }
        }
    }
    for alignment in [1, 512, 4096] {
        let plan = FaultPlan { delay_ticks_max: 20, reorder: true, ..FaultPlan::default() };
        let (disk, control) = SimDisk::new(SimOptions { seed: 3, reads_max: READS_MAX, alignment, plan });
        let paths: Vec<PathBuf> = (0..SIZES.len()).map(|i| format!("f{i}").into()).collect();
        paths.iter().zip(contents).for_each(|(path, bytes)| control.put(path, bytes.clone()));
        add(format!("simulated, alignment {alignment}"), Box::new(disk), paths, false);
    }
    all
}

/// Puts the segments one after the other, each span where its file's alignment allows.
fn place(subject: &Subject, wish: &Wish) -> SmallSegments {
    let mut into = 0;
    let place_one = |&(file, a, b): &(usize, u16, u16)| {
        let (offset, len) = range(file, a, b);
        let file = subject.files[file];
        let align = subject.disk.alignment(file);
        into = (into + wish.2).next_multiple_of(align);
        let segment = Segment { file, offset: offset as u64, len, into };
        into += aligned_span(offset as u64, len, align).len;
        segment
    };
    wish.0.iter().map(place_one).collect()
}

fn check_reads(subject: &mut Subject, wishes: &[Wish], contents: &[Vec<u8>]) -> Result<(), TestCaseError> {
    for (id, wish) in wishes.iter().enumerate() {
        let segments = place(subject, wish);
        let priority = if wish.1 { Priority::ReadAhead } else { Priority::Demand };
        let mut buffer = subject.buffers.pop().expect("a buffer for each read");
        buffer.fill(0xee);
        subject.disk.submit(Read { id: ReadId(id as u64), priority, buffer, segments }).unwrap();
    }
    let mut done = Vec::new();
    while subject.disk.in_flight() > 0 {
        subject.disk.poll(&mut done);
        if subject.disk.in_flight() > 0 {
            subject.disk.wait(&mut done).unwrap();
        }
    }
    prop_assert_eq!(done.len(), wishes.len());
    for completion in &done {
        let wish = &wishes[completion.id.0 as usize];
        let stats = completion.result.as_ref().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut wanted_bytes = 0;
        for (segment, &(file, ..)) in place(subject, wish).iter().zip(&wish.0) {
            let span = aligned_span(segment.offset, segment.len, subject.disk.alignment(segment.file));
            let got = &completion.buffer[segment.into + span.skip..][..segment.len];
            let expect = &contents[file][segment.offset as usize..][..segment.len];
            prop_assert!(got == expect, "{}: {:?} of file {}", subject.name, segment, file);
            wanted_bytes += segment.len as u64;
        }
        prop_assert_eq!(stats.wanted_bytes, wanted_bytes);
        prop_assert!(stats.bytes >= wanted_bytes);
    }
    subject.buffers.extend(done.into_iter().map(|completion| completion.buffer));
    Ok(())
}

fn check_read_now(subject: &mut Subject, wish: &Wish, contents: &[Vec<u8>]) -> Result<(), TestCaseError> {
    for &(file, a, b) in &wish.0 {
        let (offset, len) = range(file, a, b);
        // Every alignment of the destination, since some go straight to it and others are copied.
        let mut room = vec![0u8; len + 4096];
        let shift = if wish.1 { a as usize % 4096 } else { offset % 4096 };
        let shift = (shift + 4096 - room.as_ptr() as usize % 4096) % 4096;
        let into = &mut room[shift..shift + len];
        subject.disk.read_now(subject.files[file], offset as u64, into).unwrap();
        let expect = &contents[file][offset..offset + len];
        prop_assert!(into == expect, "{}: read_now {len} at {offset} of file {file}", subject.name);
    }
    Ok(())
}

#[test]
fn every_disk_gives_the_bytes_of_the_file() {
    let contents: Vec<Vec<u8>> = SIZES.iter().enumerate().map(|(i, &len)| bytes(i as u64, len)).collect();
    let on_disk = tempfile::tempdir().unwrap();
    let in_memory = folder_in_memory();
    let mut folders = vec![("temporary folder", on_disk.path().to_path_buf())];
    folders.extend(in_memory.iter().map(|folder| ("in memory", folder.path().to_path_buf())));
    for (_, folder) in &folders {
        for (i, bytes) in contents.iter().enumerate() {
            std::fs::write(folder.join(format!("f{i}")), bytes).unwrap();
        }
    }
    let subjects = RefCell::new(subjects(&folders, &contents));
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&wishes(), |wishes| {
        for subject in subjects.borrow_mut().iter_mut() {
            check_reads(subject, &wishes, &contents)?;
            check_read_now(subject, &wishes[0], &contents)?;
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn large_unaligned_read_now_and_nothing_left_in_the_page_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let contents = bytes(9, 2 * esker_disk::BOUNCE_BYTES + 12_345);
    std::fs::write(&path, &contents).unwrap();
    for (name, mut disk) in disks(4) {
        esker_disk::page_cache::drop_page_cache(&path).unwrap();
        let file = disk.open(&path).unwrap();
        let mut into = vec![0; contents.len() - 77];
        disk.read_now(file, 77, &mut into).unwrap();
        assert!(into == contents[77..], "{name}");
        let completion = common::read_one(disk.as_mut(), file, 5, 3_000_000);
        completion.result.unwrap();
        let cached = esker_disk::page_cache::resident_pages(&path).unwrap();
        say(&format!("{name}: {} of {} pages cached after reading", cached.resident, cached.total));
        let in_memory = disk.buffered_reason(file).is_some_and(|reason| reason.contains("in memory"));
        assert!(in_memory || cached.resident * 20 <= cached.total, "{name}: {cached:?}");
    }
}
