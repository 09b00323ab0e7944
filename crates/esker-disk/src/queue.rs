//! Which part of which read goes to the device next, and when a read is complete.
//!
//! A read is split into one **part** per segment, so that the three slices of one expert can be at the device at
//! the same time. Demand reads go before read-ahead, each kind in order of arrival. Pure bookkeeping: no I/O,
//! no threads, no allocation after `new`. Shared by the io_uring disk and the worker pool, which differ only in
//! how they carry a part out.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::file::Files;
use crate::read::SEGMENTS_MAX;
use crate::{
    Check, Completion, FileId, Full, Mismatch, Priority, Read, ReadError, ReadId, ReadStats, Span,
    aligned_span,
};

/// One segment of a read, ready to be transferred.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Position of its read in the queue's table.
    slot: u32,
    /// Position of the segment in the read.
    segment: u32,
    pub(crate) file: FileId,
    /// First byte and length of what was asked for.
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// What to transfer.
    pub(crate) span: Span,
    /// Alignment that a transfer of this file may start at.
    align: usize,
    /// Where the span goes: `span.len` bytes that belong to this part alone until `Queue::finish`.
    pub(crate) into: *mut u8,
}

// SAFETY: `into` points into the buffer of the read, which the queue keeps until the part is finished and which
// nobody else accesses meanwhile; which thread writes there does not matter.
unsafe impl Send for Part {}

/// What follows after a transfer delivered some bytes of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The wanted bytes are there. What is missing of the span lies beyond the end of the file.
    Complete,
    /// Transfer again, from this byte of the span.
    Again(usize),
    /// The file ends before the wanted bytes do; so many of them exist.
    Short(usize),
}

impl Part {
    /// Where the part is in a table of `reads_max * SEGMENTS_MAX`.
    pub(crate) fn index(&self) -> usize {
        self.slot as usize * SEGMENTS_MAX + self.segment as usize
    }

    /// `done` bytes of the span were there, and a transfer from there on gave `got` more.
    pub(crate) fn progress(&self, done: usize, got: usize) -> Progress {
        let total = done + got;
        if total >= self.span.skip + self.len {
            return Progress::Complete;
        }
        // A direct transfer can only go on at a block boundary; what ends inside a block is the end of the file.
        match total - total % self.align {
            resume if resume > done => Progress::Again(resume),
            _ => Progress::Short(total.saturating_sub(self.span.skip)),
        }
    }
}

/// All reads that a disk has accepted and not handed back.
#[derive(Debug)]
pub(crate) struct Queue {
    slots: Box<[Option<Active>]>,
    free: Vec<u32>,
    /// Slots of reads with parts that were not issued, per priority.
    waiting: [VecDeque<u32>; 2],
    done: Vec<Completion>,
}

/// A read between `push` and its completion.
#[derive(Debug)]
struct Active {
    read: Read,
    check: Option<Check>,
    spans: [(Span, usize); SEGMENTS_MAX],
    /// Segments given out by `next`, from the first on.
    issued: usize,
    /// Parts given out and not finished.
    open: usize,
    bytes: u64,
    error: Option<ReadError>,
}

/// A read all of whose parts are finished: on its way to its completion, still in flight and nobody's but the holder's.
#[derive(Debug)]
#[must_use = "the read is in flight until `Queue::complete`"]
pub(crate) struct Arrived {
    slot: u32,
    active: Active,
}

impl Arrived {
    /// Whether `check` has anything to do.
    pub(crate) fn is_to_check(&self) -> bool {
        self.active.error.is_none() && self.active.check.is_some()
    }

    /// The file of the first segment.
    pub(crate) fn file(&self) -> FileId {
        self.active.read.segments[0].file
    }

    /// Looks at the bytes, if that was asked for and they arrived. Takes time: not to be called under a lock.
    /// `path` is that of the first segment's file.
    pub(crate) fn check(&mut self, path: &Arc<Path>) {
        if let (None, Some(check)) = (&self.active.error, &self.active.check) {
            self.active.error = check_bytes(&self.active.read, check, path).err();
        }
    }
}

/// Looks at the bytes of a read that have all arrived. `path` is that of the first segment's file.
///
/// A verifier that panics must not take its read along: it would be in flight for ever. What state the verifier is in
/// afterwards is its own affair; here only the read and its bytes are lent to it, both unchangeable.
pub(crate) fn check_bytes(read: &Read, check: &Check, path: &Arc<Path>) -> Result<(), ReadError> {
    let verify = || check.verifier.verify(check.key, &read.buffer);
    let outcome = catch_unwind(AssertUnwindSafe(verify));
    if let Ok(Ok(())) = outcome {
        return Ok(());
    }
    let (file, offset) = (Arc::clone(path), read.segments[0].offset);
    let len = read.segments.iter().map(|s| s.len).sum();
    Err(match outcome {
        Ok(Err(Mismatch { found, expected })) => ReadError::Checksum { file, offset, len, found, expected },
        _ => ReadError::CheckPanicked { file, offset, len },
    })
}

impl Queue {
    /// Room for `reads_max` reads, done ones that were not taken included.
    pub(crate) fn new(reads_max: usize) -> Queue {
        let count = u32::try_from(reads_max).expect("reads_max is checked when the disk is started");
        Queue {
            slots: (0..reads_max).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            waiting: [VecDeque::with_capacity(reads_max), VecDeque::with_capacity(reads_max)],
            done: Vec::with_capacity(reads_max),
        }
    }

    /// Reads accepted and not handed back by `take_done`.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.done.len()
    }

    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Accepts a read, or completes it at once if it reaches beyond the end of a file.
    /// # Panics
    /// See `check_read`.
    #[expect(clippy::result_large_err, reason = "boxing the read would allocate on the submit path")]
    pub(crate) fn push(&mut self, read: Read, check: Option<Check>, files: &Files) -> Result<(), Full> {
        if self.in_flight() == self.slots.len() {
            return Err(Full(read));
        }
        let spans = check_read(&read, |file| files.get(file).align());
        let beyond = read.segments.iter().find_map(|s| files.get(s.file).beyond_end(s.offset, s.len));
        if let Some(error) = beyond {
            self.done.push(Completion { id: read.id, buffer: read.buffer, result: Err(error) });
            return Ok(());
        }
        let slot = self.free.pop().expect("in_flight < slots, so a slot is free");
        self.waiting[read.priority as usize].push_back(slot);
        let active = Active { read, check, spans, issued: 0, open: 0, bytes: 0, error: None };
        self.slots[slot as usize] = Some(active);
        Ok(())
    }

    /// The part to transfer next. Its bytes belong to the caller until `finish`.
    pub(crate) fn next(&mut self) -> Option<Part> {
        let waiting = self.waiting.iter_mut().find(|queue| !queue.is_empty())?;
        let slot = *waiting.front()?;
        let active = self.slots[slot as usize].as_mut().expect("a waiting slot holds a read");
        let segment = active.issued;
        active.issued += 1;
        active.open += 1;
        if active.issued == active.read.segments.len() {
            waiting.pop_front();
        }
        let (wanted, (span, align)) = (active.read.segments[segment], active.spans[segment]);
        Some(Part {
            slot,
            segment: segment as u32,
            file: wanted.file,
            offset: wanted.offset,
            len: wanted.len,
            span,
            align,
            // In bounds: check_read compared into + span.len with the buffer.
            into: active.read.buffer.start().wrapping_add(wanted.into),
        })
    }

    /// Takes a part back: `Ok` with the bytes transferred, or why it failed. If it was the read's last, gives the read
    /// out, to be checked if need be and handed to `complete`.
    ///
    /// After a failure the parts of the read that were not given out yet will not be.
    pub(crate) fn finish(&mut self, part: &Part, result: Result<usize, ReadError>) -> Option<Arrived> {
        let active = self.slots[part.slot as usize].as_mut().expect("a part in flight has its read");
        active.open -= 1;
        match result {
            Ok(bytes) => active.bytes += bytes as u64,
            Err(error) => {
                if active.issued < active.read.segments.len() {
                    active.issued = active.read.segments.len();
                    self.waiting[active.read.priority as usize].retain(|&slot| slot != part.slot);
                }
                active.error.get_or_insert(error);
            }
        }
        if active.open > 0 || active.issued < active.read.segments.len() {
            return None;
        }
        // Its place stays taken until it is completed.
        let active = self.slots[part.slot as usize].take()?;
        Some(Arrived { slot: part.slot, active })
    }

    /// The read is over.
    pub(crate) fn complete(&mut self, arrived: Arrived) {
        let Arrived { slot, active: Active { read, bytes, error, .. } } = arrived;
        self.free.push(slot);
        let wanted_bytes = read.segments.iter().map(|s| s.len as u64).sum();
        let result = error.map_or(Ok(ReadStats { bytes, wanted_bytes }), Err);
        self.done.push(Completion { id: read.id, buffer: read.buffer, result });
    }

    /// Moves all completions to the end of `into`.
    pub(crate) fn take_done(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }

    /// Makes a waiting read-ahead a demand read, behind the demand reads that wait already.
    /// False if no such read-ahead waits: it is unknown, or all at the device, or done.
    pub(crate) fn promote(&mut self, id: ReadId) -> bool {
        let ahead = &mut self.waiting[Priority::ReadAhead as usize];
        let Some(at) = position(ahead, &self.slots, id) else { return false };
        let slot = ahead.remove(at).expect("position is inside the queue");
        self.waiting[Priority::Demand as usize].push_back(slot);
        let active = self.slots[slot as usize].as_mut().expect("a waiting slot holds a read");
        active.read.priority = Priority::Demand;
        true
    }

    /// Takes a read back of which nothing was given out yet.
    pub(crate) fn cancel(&mut self, id: ReadId) -> Option<Read> {
        for priority in [Priority::ReadAhead, Priority::Demand] {
            let waiting = &mut self.waiting[priority as usize];
            let Some(at) = position(waiting, &self.slots, id) else { continue };
            let slot = waiting[at];
            if self.slots[slot as usize].as_ref().is_some_and(|active| active.issued == 0) {
                waiting.remove(at);
                return Some(self.release(slot).read);
            }
        }
        None
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn first_buffer(&self) -> Option<&crate::Buffer> {
        self.slots.iter().flatten().map(|active| &active.read.buffer).next()
    }

    fn release(&mut self, slot: u32) -> Active {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("only a slot that holds a read is released")
    }
}

fn position(waiting: &VecDeque<u32>, slots: &[Option<Active>], id: ReadId) -> Option<usize> {
    waiting.iter().position(|&slot| slots[slot as usize].as_ref().is_some_and(|active| active.read.id == id))
}

/// Returns the span and the alignment of each segment.
/// # Panics
/// If the read has no segment, a segment is empty, misaligned or beyond the buffer, or two overlap: a caller
/// that asks for this would compute on bytes that are not what it thinks, so it is a bug, found here.
pub(crate) fn check_read(read: &Read, align_of: impl Fn(FileId) -> usize) -> [(Span, usize); SEGMENTS_MAX] {
    let mut spans = [(Span { offset: 0, len: 0, skip: 0 }, 1); SEGMENTS_MAX];
    let (id, room) = (read.id, read.buffer.len());
    assert!(!read.segments.is_empty(), "{id:?} has no segment");
    for (i, segment) in read.segments.iter().enumerate() {
        let align = align_of(segment.file);
        let span = aligned_span(segment.offset, segment.len, align);
        assert!(segment.len > 0, "{id:?}: segment {i} is empty");
        assert!(segment.into % align == 0, "{id:?}: segment {i} goes to {}, align {align}", segment.into);
        assert!(
            segment.into <= room && span.len <= room - segment.into,
            "{id:?}: segment {i} puts {} bytes at {} of a buffer of {room}",
            span.len,
            segment.into,
        );
        let end = segment.into + span.len;
        for (other, (other_span, _)) in read.segments[..i].iter().zip(&spans) {
            let apart = end <= other.into || other.into + other_span.len <= segment.into;
            assert!(apart, "{id:?}: segment {i} overlaps another in the buffer");
        }
        spans[i] = (span, align);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Segment, SmallSegments};

    struct Fixture {
        files: Files,
        file: FileId,
        arena: Arena,
        _dir: tempfile::TempDir,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), [0; 10_000]).unwrap();
        let mut files = Files::default();
        let file = files.open(&dir.path().join("f"), false).unwrap();
        Fixture { files, file, arena: Arena::new(1 << 20).unwrap(), _dir: dir }
    }

    impl Fixture {
        fn read(&mut self, id: u64, priority: Priority, parts: usize) -> Read {
            let segment = |i| Segment { file: self.file, offset: i as u64 * 10, len: 10, into: i * 10 };
            let segments = (0..parts).map(segment).collect();
            Read { id: ReadId(id), priority, buffer: self.arena.carve([4096]).remove(0), segments }
        }
    }

    fn failure() -> ReadError {
        let file = std::sync::Arc::from(std::path::Path::new("f"));
        ReadError::Short { file, offset: 0, len: 1, got: 0 }
    }

    /// As a disk does: what has arrived is checked and completed.
    fn finish(queue: &mut Queue, part: &Part, result: Result<usize, ReadError>) {
        if let Some(mut arrived) = queue.finish(part, result) {
            arrived.check(&Arc::from(Path::new("f")));
            queue.complete(arrived);
        }
    }

    fn taken(queue: &mut Queue) -> Vec<Completion> {
        let mut done = Vec::new();
        queue.take_done(&mut done);
        done
    }

    #[test]
    fn demand_overtakes_read_ahead_and_promotion_follows_demand() {
        let mut f = fixture();
        let mut queue = Queue::new(8);
        for (id, priority) in [
            (1, Priority::ReadAhead),
            (2, Priority::ReadAhead),
            (3, Priority::Demand),
            (4, Priority::ReadAhead),
            (5, Priority::Demand),
        ] {
            queue.push(f.read(id, priority, 1), None, &f.files).unwrap();
        }
        assert!(queue.promote(ReadId(4)));
        assert!(!queue.promote(ReadId(3)), "already demand");
        assert!(!queue.promote(ReadId(99)));
        let mut order = Vec::new();
        while let Some(part) = queue.next() {
            finish(&mut queue, &part, Ok(10));
            order.extend(taken(&mut queue).iter().map(|c| c.id.0));
        }
        assert_eq!(order, [3, 5, 4, 1, 2]);
        assert_eq!(queue.in_flight(), 0);
    }

    #[test]
    fn a_read_completes_once_all_its_parts_have_in_any_order() {
        let mut f = fixture();
        let mut queue = Queue::new(2);
        queue.push(f.read(1, Priority::Demand, 3), None, &f.files).unwrap();
        let parts: Vec<Part> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(parts.len(), 3);
        finish(&mut queue, &parts[2], Ok(10));
        finish(&mut queue, &parts[0], Ok(12));
        assert!(!queue.has_done());
        finish(&mut queue, &parts[1], Ok(10));
        let done = taken(&mut queue);
        assert_eq!(done[0].result.as_ref().unwrap(), &ReadStats { bytes: 32, wanted_bytes: 30 });
    }

    #[test]
    fn a_failed_part_ends_the_read_but_not_before_its_open_parts() {
        let mut f = fixture();
        let mut queue = Queue::new(2);
        queue.push(f.read(1, Priority::Demand, 4), None, &f.files).unwrap();
        let (first, second) = (queue.next().unwrap(), queue.next().unwrap());
        finish(&mut queue, &first, Err(failure()));
        assert!(queue.next().is_none(), "parts three and four are not issued any more");
        assert!(!queue.has_done(), "the second part still writes into the buffer");
        finish(&mut queue, &second, Ok(10));
        assert!(taken(&mut queue)[0].result.is_err());
        assert_eq!(queue.in_flight(), 0);
    }

    #[derive(Debug)]
    struct Sum;

    /// `key` is what the first thirty bytes of the buffer should add up to.
    impl crate::Verify for Sum {
        fn verify(&self, key: u64, buffer: &[u8]) -> Result<(), Mismatch> {
            let found = buffer[..30].iter().map(|&b| u64::from(b)).sum();
            if found == key { Ok(()) } else { Err(Mismatch { found, expected: key }) }
        }
    }

    #[test]
    fn a_read_that_arrived_is_in_flight_until_it_was_checked() {
        let mut f = fixture();
        let mut queue = Queue::new(1);
        for (key, first, good) in [(0, Ok(10), true), (1, Ok(10), false), (1, Err(failure()), false)] {
            let check = Check { verifier: Arc::new(Sum), key };
            queue.push(f.read(1, Priority::Demand, 3), Some(check), &f.files).unwrap();
            let failed = first.is_err();
            let mut parts = [first, Ok(10), Ok(10)].into_iter();
            let mut arrived = None;
            while arrived.is_none() {
                let part = queue.next().unwrap();
                arrived = queue.finish(&part, parts.next().unwrap());
            }
            assert_eq!((queue.in_flight(), queue.has_done()), (1, false));
            assert!(queue.cancel(ReadId(1)).is_none() && !queue.promote(ReadId(1)));
            assert!(
                queue.push(f.read(2, Priority::Demand, 1), None, &f.files).is_err(),
                "its place is taken"
            );
            let mut arrived = arrived.unwrap();
            assert_eq!(arrived.is_to_check(), !failed, "there is nothing to check in a read that failed");
            arrived.check(&Arc::from(Path::new("g")));
            queue.complete(arrived);
            let result = taken(&mut queue).remove(0).result;
            assert_eq!(result.is_ok(), good);
            if !good && !failed {
                let text = result.unwrap_err().to_string();
                let expect = "the 30 bytes at offset 0 of `g` have checksum 0000000000000000, expected 0000000000000001";
                assert_eq!(text, expect);
            }
            assert_eq!(queue.in_flight(), 0);
        }
    }

    #[test]
    fn the_limit_counts_completions_that_were_not_taken() {
        let mut f = fixture();
        let mut queue = Queue::new(1);
        queue.push(f.read(1, Priority::Demand, 1), None, &f.files).unwrap();
        let part = queue.next().unwrap();
        finish(&mut queue, &part, Ok(10));
        let Full(back) = queue.push(f.read(2, Priority::Demand, 1), None, &f.files).unwrap_err();
        assert_eq!(back.id, ReadId(2));
        taken(&mut queue);
        queue.push(back, None, &f.files).unwrap();
    }

    #[test]
    fn only_what_was_not_issued_can_be_cancelled() {
        let mut f = fixture();
        let mut queue = Queue::new(4);
        queue.push(f.read(1, Priority::ReadAhead, 2), None, &f.files).unwrap();
        queue.push(f.read(2, Priority::ReadAhead, 2), None, &f.files).unwrap();
        queue.next().unwrap();
        assert!(queue.cancel(ReadId(1)).is_none(), "its first part is out");
        assert_eq!(queue.cancel(ReadId(2)).unwrap().id, ReadId(2));
        assert!(queue.cancel(ReadId(2)).is_none());
        assert_eq!(queue.in_flight(), 1);
    }

    #[test]
    fn a_range_beyond_the_file_fails_without_io() {
        let mut f = fixture();
        let mut queue = Queue::new(4);
        for offset in [9_995, 10_000, u64::MAX - 5] {
            let mut read = f.read(1, Priority::Demand, 1);
            read.segments = SmallSegments::from(Segment { file: f.file, offset, len: 10, into: 0 });
            if offset > 1 << 60 {
                // Saturated: the span is what fits below u64::MAX.
                assert_eq!(aligned_span(offset, 10, 1).len, 5);
            }
            queue.push(read, None, &f.files).unwrap();
            assert!(queue.next().is_none());
            let result = taken(&mut queue).remove(0).result;
            let expect = if offset == 9_995 { 5 } else { 0 };
            assert!(matches!(result, Err(ReadError::Short { got, .. }) if got == expect), "{result:?}");
        }
    }

    #[test]
    fn wrong_segments_are_bugs() {
        let segments: [&[(usize, usize)]; 5] =
            [&[], &[(0, 0)], &[(4090, 10)], &[(usize::MAX, 1)], &[(0, 10), (9, 10)]];
        for wrong in segments {
            let mut f = fixture();
            let mut read = f.read(1, Priority::Demand, 1);
            let segment = |&(into, len): &(usize, usize)| Segment { file: f.file, offset: 0, len, into };
            read.segments = wrong.iter().map(segment).collect();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check_read(&read, |_| 1)));
            assert!(caught.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn progress_resumes_at_blocks_and_ends_at_the_end_of_the_file() {
        let mut f = fixture();
        let mut queue = Queue::new(1);
        queue.push(f.read(1, Priority::Demand, 1), None, &f.files).unwrap();
        let mut part = queue.next().unwrap();
        part.span = Span { offset: 0, len: 2048, skip: 100 };
        part.len = 1500; // wanted up to 1600
        part.align = 512;
        assert_eq!(part.progress(0, 2048), Progress::Complete);
        assert_eq!(part.progress(0, 1600), Progress::Complete);
        assert_eq!(part.progress(0, 1599), Progress::Again(1536));
        assert_eq!(part.progress(1536, 63), Progress::Short(1499));
        assert_eq!(part.progress(0, 300), Progress::Short(200));
        assert_eq!(part.progress(0, 50), Progress::Short(0));
        part.align = 1;
        assert_eq!(part.progress(0, 300), Progress::Again(300));
        assert_eq!(part.progress(300, 0), Progress::Short(200));
    }
}
