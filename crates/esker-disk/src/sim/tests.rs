//! Each fault does what it says, and a seed says everything.

use super::*;
use crate::{Arena, Segment, SmallSegments};

const FILE_BYTES: usize = 20_000;

struct Bench {
    disk: SimDisk,
    control: SimControl,
    file: FileId,
    arena: Arena,
}

fn contents() -> Vec<u8> {
    (0..FILE_BYTES).map(|i| (i * 31 / 7) as u8).collect()
}

fn bench(plan: FaultPlan) -> Bench {
    let (mut disk, control) = SimDisk::new(SimOptions { seed: 7, plan, ..SimOptions::default() });
    control.put("f", contents());
    let file = disk.open(Path::new("f")).unwrap();
    Bench { disk, control, file, arena: Arena::new(64 << 20).unwrap() }
}

fn at(faults: &[(u64, Fault)]) -> FaultPlan {
    FaultPlan { at: faults.to_vec(), ..FaultPlan::default() }
}

impl Bench {
    fn submit(&mut self, id: u64, priority: Priority) {
        let segment = Segment { file: self.file, offset: 1000 + id, len: 3000, into: 512 };
        let buffer = self.arena.carve([8192]).remove(0);
        let segments = SmallSegments::from(segment);
        self.disk.submit(Read { id: ReadId(id), priority, buffer, segments }).unwrap();
    }

    /// Waits for everything; returns it in order of completion.
    fn finish(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        while self.disk.in_flight() > 0 {
            self.disk.wait(&mut done).unwrap();
        }
        done
    }

    fn is_right(&self, done: &Completion) -> bool {
        let (offset, skip) = (1000 + done.id.0 as usize, (1000 + done.id.0 as usize) % 512);
        done.buffer[512 + skip..][..3000] == contents()[offset..][..3000]
    }
}

#[test]
fn a_disk_without_faults_reads_in_order() {
    let mut b = bench(FaultPlan::default());
    (0..10).for_each(|id| b.submit(id, Priority::Demand));
    let done = b.finish();
    assert!(done.iter().all(|d| d.result.is_ok() && b.is_right(d)));
    assert!(done.iter().map(|d| d.id.0).eq(0..10));
}

#[test]
fn failed_reads_leave_junk_and_wrong_bytes_do_not_tell() {
    let eio = Fault::Io { errno: libc::EIO };
    let mut b = bench(at(&[(0, eio), (1, Fault::Short), (2, Fault::WrongBytes)]));
    (0..4).for_each(|id| b.submit(id, Priority::Demand));
    let done = b.finish();
    assert!(
        matches!(&done[0].result, Err(ReadError::Io { source, .. }) if source.raw_os_error() == Some(libc::EIO))
    );
    assert!(matches!(&done[1].result, Err(ReadError::Short { got, .. }) if *got < 3000));
    assert!(done[0].buffer.iter().all(|&byte| byte == JUNK));
    assert!(done[2].result.is_ok() && !b.is_right(&done[2]));
    assert!(done[3].result.is_ok() && b.is_right(&done[3]));
}

#[test]
fn a_stalled_read_waits_for_its_release() {
    let mut b = bench(at(&[(0, Fault::Stall)]));
    (0..2).for_each(|id| b.submit(id, Priority::Demand));
    let mut done = Vec::new();
    b.disk.wait(&mut done).unwrap();
    assert_eq!(done.pop().unwrap().id, ReadId(1));
    assert!(matches!(b.disk.wait(&mut done), Err(WaitError::Stalled { in_flight: 1, .. })));
    (0..100).for_each(|_| b.disk.poll(&mut done));
    assert!(done.is_empty());
    assert_eq!(b.control.release_stalled(), 1);
    b.disk.poll(&mut done);
    assert!(b.is_right(&done[0]));
    assert!(matches!(b.disk.wait(&mut done), Err(WaitError::NothingInFlight)));
}

#[test]
fn a_file_that_changes_fails_every_read_from_then_on() {
    let mut b = bench(at(&[(1, Fault::Truncate { len: 2000 })]));
    (0..3).for_each(|id| b.submit(id, Priority::Demand));
    let done = b.finish();
    assert!(done[0].result.is_ok());
    let cut = FileChange::Size { was: FILE_BYTES as u64, now: 2000 };
    for late in &done[1..] {
        assert!(matches!(&late.result, Err(ReadError::Changed { what, .. }) if *what == cut), "{late:?}");
    }
    let mut row = [0; 10];
    assert!(matches!(b.disk.read_now(b.file, 0, &mut row), Err(ReadError::Changed { .. })));

    let mut b = bench(at(&[(0, Fault::Rewrite)]));
    b.submit(0, Priority::Demand);
    let written = FileChange::Written;
    assert!(matches!(&b.finish()[0].result, Err(ReadError::Changed { what, .. }) if *what == written));
}

#[test]
fn a_new_file_under_the_name_leaves_the_open_one() {
    let mut b = bench(FaultPlan::default());
    b.disk.check(b.file).unwrap();
    b.control.put("f", vec![0; 50]);
    b.submit(0, Priority::Demand);
    let done = b.finish();
    assert!(done[0].result.is_ok() && b.is_right(&done[0]));
    let replaced = FileChange::Replaced;
    assert!(matches!(b.disk.check(b.file), Err(ReadError::Changed { what, .. }) if what == replaced));
}

#[test]
fn demand_goes_first_among_what_is_due_and_a_promoted_read_hurries() {
    let mut b = bench(at(&[(0, Fault::Delay { ticks: 50 }), (1, Fault::Delay { ticks: 50 })]));
    b.disk.state.lock().unwrap().options.plan.reorder = true;
    b.submit(0, Priority::ReadAhead);
    b.submit(1, Priority::ReadAhead);
    b.submit(2, Priority::ReadAhead);
    b.submit(3, Priority::Demand);
    assert!(b.disk.promote(ReadId(1)));
    assert!(!b.disk.promote(ReadId(3)));
    let done = b.finish();
    assert!(done.iter().map(|d| d.id.0).eq([1, 3, 2, 0]), "{done:?}");
}

#[test]
fn the_limit_and_cancelling() {
    let mut b = bench(at(&[(0, Fault::Delay { ticks: 5 })]));
    b.disk.state.lock().unwrap().options.reads_max = 1;
    b.submit(0, Priority::ReadAhead);
    let segments = SmallSegments::from(Segment { file: b.file, offset: 0, len: 1, into: 0 });
    let buffer = b.arena.carve([4096]).remove(0);
    let read = Read { id: ReadId(1), priority: Priority::Demand, buffer, segments };
    let Full(read) = b.disk.submit(read).unwrap_err();
    assert_eq!(b.disk.cancel(ReadId(0)).unwrap().id, ReadId(0));
    b.disk.submit(read).unwrap();
    assert_eq!(b.finish().len(), 1);
}

/// Everything that a run shows, as text.
fn history(seed: u64) -> String {
    let rates = FaultRates { io: 100, short: 100, wrong_bytes: 100, stall: 50 };
    let plan = FaultPlan { rates, delay_ticks_max: 9, reorder: true, at: Vec::new() };
    let mut b = bench(plan);
    b.disk.state.lock().unwrap().options.seed = seed;
    let (mut text, mut done) = (String::new(), Vec::new());
    for id in 0..200 {
        if b.disk.in_flight() < 20 {
            b.submit(id, if id % 3 == 0 { Priority::ReadAhead } else { Priority::Demand });
        }
        b.disk.poll(&mut done);
        for d in done.drain(..) {
            text += &format!("{} {:?} {}\n", d.id.0, d.result, b.is_right(&d));
        }
        if id % 50 == 49 {
            b.control.release_stalled();
        }
    }
    text
}

#[test]
fn the_seed_decides_everything() {
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
    // All kinds of outcome occur, so the comparison means something.
    let text = history(1);
    for outcome in ["Io {", "Short {", "Ok(", " true\n", " false\n"] {
        assert!(text.contains(outcome), "no {outcome:?} in\n{text}");
    }
}
