//! Reads whose bytes are looked at before they count as good.

mod common;

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{bytes, disks, read_of};
use esker_disk::sim::{Fault, FaultPlan, SimDisk, SimOptions};
use esker_disk::{
    Arena, Backend, Check, Completion, Disk, DiskOptions, Mismatch, ReadError, ReadId, Verify, open_best,
};

const LEN: usize = 40_000;

/// Compares with the file's contents from the offset on that is the key.
#[derive(Debug)]
struct Contents(Vec<u8>);

impl Verify for Contents {
    fn verify(&self, key: u64, buffer: &[u8]) -> Result<(), Mismatch> {
        let expected = &self.0[key as usize..][..LEN];
        let sum = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, &b| sum.rotate_left(7) ^ u64::from(b));
        let (found, right) = (sum(&buffer[..LEN]), sum(expected));
        if buffer[..LEN] == *expected { Ok(()) } else { Err(Mismatch { found, expected: right }) }
    }
}

/// Reads `count` ranges at multiples of 4096, checked against `verifier`, and returns them by id.
fn read_checked(disk: &mut dyn Disk, path: &Path, count: u64, verifier: &Arc<dyn Verify>) -> Vec<Completion> {
    let file = disk.open(path).unwrap();
    let mut arena = Arena::new(count as usize * (LEN + 8192)).unwrap();
    for id in 0..count {
        let read = read_of(disk, &mut arena, id, file, id * 4096, LEN);
        let check = Check { verifier: Arc::clone(verifier), key: id * 4096 };
        disk.submit_checked(read, Some(check)).unwrap();
    }
    let mut done = Vec::new();
    while disk.in_flight() > 0 {
        disk.wait(&mut done).unwrap();
    }
    done.sort_by_key(|c| c.id);
    done
}

/// On every disk: right bytes pass, and of wrong ones the error says all that a message needs.
#[test]
fn wrong_bytes_end_in_an_error_that_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let good = bytes(5, 200_000);
    let mut damaged = good.clone();
    damaged[3 * 4096 + LEN - 1] ^= 4; // in the last byte of read 3, and inside some after it
    std::fs::write(&path, &damaged).unwrap();
    let (sim, control) = SimDisk::new(SimOptions { alignment: 4096, ..SimOptions::default() });
    control.put(&path, damaged);
    let mut all = disks(16);
    all.push(("simulated".to_owned(), Box::new(sim)));
    let verifier: Arc<dyn Verify> = Arc::new(Contents(good));
    for (name, mut disk) in all {
        let done = read_checked(&mut *disk, &path, 16, &verifier);
        assert_eq!(done.len(), 16, "{name}");
        for completion in done {
            let id = completion.id.0;
            let is_hit = (3..=12).contains(&id);
            match completion.result {
                Ok(stats) => assert!(!is_hit && stats.wanted_bytes == LEN as u64, "{name}: read {id}"),
                Err(ReadError::Checksum { file, offset, len, found, expected }) => {
                    assert!(is_hit && found != expected, "{name}: read {id}");
                    assert_eq!((&*file, offset, len), (&*path, id * 4096, LEN), "{name}");
                }
                Err(other) => panic!("{name}: read {id}: {other}"),
            }
        }
    }
}

/// A byte that is wrong once, on its way, is found, and the same read again is right.
#[test]
fn a_second_attempt_may_be_right() {
    let plan = FaultPlan { at: vec![(1, Fault::WrongBytes)], ..FaultPlan::default() };
    let (mut disk, control) = SimDisk::new(SimOptions { plan, ..SimOptions::default() });
    let good = bytes(6, 100_000);
    control.put("f", good.clone());
    let verifier: Arc<dyn Verify> = Arc::new(Contents(good));
    for expect in [[true, false, true], [true, true, true]] {
        let done = read_checked(&mut disk, Path::new("f"), 3, &verifier);
        assert!(done.iter().map(|c| c.result.is_ok()).eq(expect));
    }
}

/// Says which thread it is called on, and returns when it is told to.
#[derive(Debug)]
struct Slow {
    called: Mutex<Sender<String>>,
    go: Mutex<Receiver<()>>,
}

impl Verify for Slow {
    fn verify(&self, _key: u64, _buffer: &[u8]) -> Result<(), Mismatch> {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.called.lock().unwrap().send(name).unwrap();
        self.go.lock().unwrap().recv_timeout(Duration::from_secs(20)).expect("told to go on");
        Ok(())
    }
}

/// In the pool a check keeps nobody but one worker: polling returns, and other reads go on.
#[test]
fn the_pool_checks_on_the_threads_that_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    std::fs::write(&path, bytes(7, 100_000)).unwrap();
    // Even if there is but one place at the device.
    let options = DiskOptions { backend: Backend::Pool, workers: 1, reads_max: 4, ..DiskOptions::default() };
    let mut disk = open_best(options).unwrap();
    let file = disk.open(&path).unwrap();
    let ((called, was_called), (go, may_go)) = (channel(), channel());
    let slow = Arc::new(Slow { called: Mutex::new(called), go: Mutex::new(may_go) });
    let mut arena = Arena::new(1 << 20).unwrap();
    let read = read_of(&*disk, &mut arena, 0, file, 0, LEN);
    disk.submit_checked(read, Some(Check { verifier: slow, key: 0 })).unwrap();
    let thread = was_called.recv_timeout(Duration::from_secs(20)).expect("the check begins by itself");
    assert!(thread.starts_with("disk-"), "checked on thread {thread:?}");

    let mut done = Vec::new();
    disk.poll(&mut done);
    assert!(done.is_empty() && disk.in_flight() == 1, "not complete before it was checked");
    for id in 1..4 {
        let read = read_of(&*disk, &mut arena, id, file, id * 4096, LEN);
        disk.submit(read).unwrap();
        disk.wait(&mut done).unwrap();
    }
    assert!(done.iter().map(|c| c.id.0).eq(1..4), "others overtake it");
    assert!(disk.cancel(ReadId(0)).is_none(), "it cannot be taken back");

    go.send(()).unwrap();
    disk.wait(&mut done).unwrap();
    assert!(done[3].id == ReadId(0) && done[3].result.is_ok());
}

/// Panics at one key.
#[derive(Debug)]
struct Panics(u64);

impl Verify for Panics {
    fn verify(&self, key: u64, _buffer: &[u8]) -> Result<(), Mismatch> {
        assert_ne!(key, self.0, "this panic is part of the test");
        Ok(())
    }
}

/// On every disk: a read whose check panics completes, with an error, and the others go on, as does the disk.
#[test]
fn a_check_that_panics_ends_its_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let contents = bytes(8, 100_000);
    std::fs::write(&path, &contents).unwrap();
    let (sim, control) = SimDisk::new(SimOptions { alignment: 4096, ..SimOptions::default() });
    control.put(&path, contents);
    let mut all = disks(8);
    all.push(("simulated".to_owned(), Box::new(sim)));
    let one = DiskOptions { backend: Backend::Pool, workers: 1, reads_max: 8, ..DiskOptions::default() };
    all.push(("one worker".to_owned(), open_best(one).unwrap()));
    let verifier: Arc<dyn Verify> = Arc::new(Panics(2 * 4096));
    for (name, mut disk) in all {
        for _ in 0..4 {
            let done = read_checked(&mut *disk, &path, 6, &verifier);
            assert_eq!(done.len(), 6, "{name}");
            for completion in done {
                match completion.result {
                    Ok(_) => assert_ne!(completion.id.0, 2, "{name}"),
                    Err(ReadError::CheckPanicked { file, offset, len }) => {
                        assert_eq!(
                            (completion.id.0, &*file, offset, len),
                            (2, &*path, 2 * 4096, LEN),
                            "{name}"
                        );
                    }
                    Err(other) => panic!("{name}: read {}: {other}", completion.id.0),
                }
            }
        }
        let started = std::time::Instant::now();
        drop(disk);
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: waits for a worker that is gone");
    }
}
