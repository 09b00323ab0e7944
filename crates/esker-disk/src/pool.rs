//! The disk of threads that each do one positioned read at a time.
//!
//! At most [`DiskOptions::workers`] of them are at the device. One that checks what it has read is not, so there are some more
//! threads once a check was asked for: the device is not to be idle meanwhile.
//!
//! Needs nothing of the system but pread(2), and finds the next transfer without the thread that computes: where that
//! one is busy, io_uring's completions wait for it. The price is a thread for each transfer, and a lock to hand work over
//! (held for bookkeeping only, never during a read or a check of what was read).

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::disk::STALL_LIMIT;
use crate::file::Files;
use crate::positioned::{Bounce, transfer};
use crate::queue::Queue;
use crate::{
    Check, Completion, Disk, DiskOptions, FileId, FileIdentity, Full, OpenError, Read, ReadError, ReadId,
    StartError, WaitError,
};

/// A worker needs a few hundred bytes of stack beyond what the standard library takes.
const WORKER_STACK_BYTES: usize = 128 << 10;

/// A pool of threads doing positioned reads.
///
/// Dropping it lets reads that are at the device finish and forgets the others. Should a worker not come back
/// from the kernel in [`STALL_LIMIT`], it is left behind together with the buffer that it reads into.
#[derive(Debug)]
pub struct PoolDisk {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Threads that take the places of those that check.
    has_spares: bool,
    depth: usize,
    /// The same files as the workers have; here so that looking at one takes no lock.
    files: Files,
    bounce: Bounce,
    direct: bool,
    description: String,
    stall_limit: Duration,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when there may be a part to read, or on stopping.
    work: Condvar,
    /// Signalled when a read completed, or a worker ended.
    done: Condvar,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    files: Files,
    stopping: bool,
    /// Threads that there are.
    workers: usize,
    /// Parts that are being read, at most `depth`.
    at_device: usize,
    depth: usize,
}

impl Shared {
    /// A poisoned lock means that a thread panicked inside a bookkeeping step: a bug, said on stderr by then. The others go
    /// on all the same. At worst a read does not complete, and `wait` reports that.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolDisk {
    /// Starts the workers.
    /// # Errors
    /// If an option is out of range, or the system refuses a thread or memory.
    pub fn start(options: &DiskOptions) -> Result<PoolDisk, StartError> {
        options.check()?;
        let bounce = Bounce::new().map_err(|source| StartError::Memory { source })?;
        let state = State {
            queue: Queue::new(options.reads_max),
            files: Files::default(),
            stopping: false,
            workers: 0,
            at_device: 0,
            depth: options.workers,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), done: Condvar::new() });
        let mut disk = PoolDisk {
            shared,
            workers: Vec::with_capacity(options.workers + spares(options.workers)),
            has_spares: false,
            depth: options.workers,
            files: Files::default(),
            bounce,
            direct: options.direct,
            description: format!("{} positioned-read workers", options.workers),
            stall_limit: STALL_LIMIT,
        };
        for _ in 0..options.workers {
            disk.add_worker().map_err(|source| StartError::Worker { source })?;
        }
        Ok(disk)
    }

    fn add_worker(&mut self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let name = format!("disk-{}", self.workers.len());
        let builder = std::thread::Builder::new().name(name).stack_size(WORKER_STACK_BYTES);
        // Counted first, so that dropping waits for those that exist.
        self.shared.lock().workers += 1;
        match builder.spawn(move || work(&shared)) {
            Ok(worker) => self.workers.push(worker),
            Err(error) => {
                self.shared.lock().workers -= 1;
                return Err(error);
            }
        }
        Ok(())
    }

    pub(crate) fn append_description(&mut self, why: &str) {
        self.description.push_str(why);
    }
}

/// Threads beyond those at the device. A check takes a fraction of the time of a read.
fn spares(depth: usize) -> usize {
    1 + depth / 4
}

/// A worker that there is, until it is dropped: also if the worker panics, or the disk's drop would wait for it in vain.
struct Present<'a>(&'a Shared);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.0.done.notify_one();
    }
}

/// A worker's life.
fn work(shared: &Shared) {
    // Before the lock is taken, so that it is dropped when the lock is free.
    let _present = Present(shared);
    let mut state = shared.lock();
    while !state.stopping {
        let may_read = state.at_device < state.depth;
        let Some(part) = may_read.then(|| state.queue.next()).flatten() else {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.at_device += 1;
        let file = Arc::clone(state.files.get(part.file));
        drop(state);
        // SAFETY: the part is fresh from the queue and finished only below.
        let result = unsafe { transfer(&file, &part) };
        state = shared.lock();
        state.at_device -= 1;
        if let Some(mut arrived) = state.queue.finish(&part, result) {
            if arrived.is_to_check() {
                // Another takes this one's place at the device, and whoever computes goes on computing.
                let file = Arc::clone(state.files.get(arrived.file()));
                drop(state);
                shared.work.notify_one();
                arrived.check(file.path());
                state = shared.lock();
            }
            state.queue.complete(arrived);
        }
        if state.queue.has_done() {
            shared.done.notify_one();
        }
    }
}

impl Disk for PoolDisk {
    fn open(&mut self, path: &Path) -> Result<FileId, OpenError> {
        let file = self.files.open(path, self.direct)?;
        self.shared.lock().files = self.files.clone();
        Ok(file)
    }

    fn alignment(&self, file: FileId) -> usize {
        self.files.get(file).align()
    }

    fn buffered_reason(&self, file: FileId) -> Option<&str> {
        self.files.get(file).buffered_reason()
    }

    fn identity(&self, file: FileId) -> FileIdentity {
        self.files.get(file).identity()
    }

    fn check(&mut self, file: FileId) -> Result<(), ReadError> {
        self.files.get(file).check_name()
    }

    fn submit_checked(&mut self, read: Read, check: Option<Check>) -> Result<(), Full> {
        if check.is_some() && !std::mem::replace(&mut self.has_spares, true) {
            // Once in the life of the disk. Without them reads are slower and nothing else changes.
            let _ = (0..spares(self.depth)).try_for_each(|_| self.add_worker());
        }
        let parts = read.segments.len();
        self.shared.lock().queue.push(read, check, &self.files)?;
        (0..parts).for_each(|_| self.shared.work.notify_one());
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.shared.lock().queue.take_done(done);
    }

    fn wait(&mut self, done: &mut Vec<Completion>) -> Result<(), WaitError> {
        let started = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if state.queue.has_done() {
                state.queue.take_done(done);
                return Ok(());
            }
            let (in_flight, waited) = (state.queue.in_flight(), started.elapsed());
            if in_flight == 0 {
                return Err(WaitError::NothingInFlight);
            }
            let Some(rest) = self.stall_limit.checked_sub(waited).filter(|rest| !rest.is_zero()) else {
                return Err(WaitError::Stalled { waited, in_flight });
            };
            state = self.shared.done.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn in_flight(&self) -> usize {
        self.shared.lock().queue.in_flight()
    }

    fn promote(&mut self, id: ReadId) -> bool {
        self.shared.lock().queue.promote(id)
    }

    fn cancel(&mut self, id: ReadId) -> Option<Read> {
        self.shared.lock().queue.cancel(id)
    }

    fn read_now(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.bounce.read(self.files.get(file), offset, into)
    }

    fn description(&self) -> &str {
        &self.description
    }
}

impl Drop for PoolDisk {
    fn drop(&mut self) {
        let started = Instant::now();
        let mut state = self.shared.lock();
        state.stopping = true;
        self.shared.work.notify_all();
        while state.workers > 0 {
            let Some(rest) = self.stall_limit.checked_sub(started.elapsed()).filter(|rest| !rest.is_zero())
            else {
                return; // left behind: each worker holds the shared state, hence its buffer, until it returns
            };
            state = self.shared.done.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so on stderr already.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Priority, Segment, SmallSegments};

    /// A pool none of whose workers ever comes back: `workers` are said to exist.
    fn without_workers(workers: usize) -> PoolDisk {
        let options = DiskOptions { workers: 1, ..DiskOptions::default() };
        let mut disk = PoolDisk::start(&options).unwrap();
        disk.stall_limit = Duration::from_millis(50);
        let mut state = disk.shared.lock();
        state.stopping = true;
        disk.shared.work.notify_all();
        while state.workers > 0 {
            state = disk.shared.done.wait(state).unwrap();
        }
        (state.stopping, state.workers) = (false, workers);
        drop(state);
        disk
    }

    #[test]
    fn a_pool_that_does_not_answer_is_reported_and_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), [0; 4096]).unwrap();
        let mut disk = without_workers(1);
        let file = disk.open(&dir.path().join("f")).unwrap();
        let buffer = Arena::new(4096).unwrap().carve([4096]).remove(0);
        let segments = SmallSegments::from(Segment { file, offset: 0, len: 4096, into: 0 });
        disk.submit(Read { id: ReadId(1), priority: Priority::Demand, buffer, segments }).unwrap();
        let mut done = Vec::new();
        assert!(matches!(disk.wait(&mut done), Err(WaitError::Stalled { in_flight: 1, .. })));
        assert!(done.is_empty());
        let started = Instant::now();
        drop(disk);
        assert!(
            (50..5000).contains(&started.elapsed().as_millis()),
            "waits for its workers, but not for ever"
        );
    }
}
