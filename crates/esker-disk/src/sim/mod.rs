//! A disk that exists only in memory and misbehaves on purpose, the same way for the same seed.
//!
//! For tests of everything above a disk: what the engine does when reads fail, come late, come out of order or
//! never. No threads and no clock: time is a count of ticks, which `poll` and `wait` advance. Read number `n`
//! (from 0, in order of `submit` and `read_now` together) meets a fate that depends on the seed and `n` alone,
//! so a failure is reproduced by its seed. Idea: TigerBeetle's simulated storage.

mod plan;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use plan::{Fault, FaultPlan, FaultRates};

use crate::queue::{check_bytes, check_read};
use crate::rng::Rng;
use crate::{
    Check, Completion, Disk, FileChange, FileId, FileIdentity, Full, OpenError, Priority, Read, ReadError,
    ReadId, ReadStats, WaitError, aligned_span,
};

/// What the buffer of a failed read is filled with, so that computing on it shows.
const JUNK: u8 = 0xa5;

/// How to simulate.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Decides everything that is random.
    pub seed: u64,
    /// Most reads in flight; at least 1.
    pub reads_max: usize,
    /// What [`Disk::alignment`] says; 1 simulates a buffered disk. A power of two.
    pub alignment: usize,
    /// What goes wrong.
    pub plan: FaultPlan,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions { seed: 0, reads_max: 64, alignment: 512, plan: FaultPlan::default() }
    }
}

/// The simulated disk.
#[derive(Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    description: String,
    alignment: usize,
}

/// The hand of the test in a simulated disk that somebody else owns.
#[derive(Debug, Clone)]
pub struct SimControl {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    options: SimOptions,
    files: Vec<SimFile>,
    /// By [`FileId`]: which file, and its identity at opening.
    opened: Vec<(usize, FileIdentity)>,
    in_flight: Vec<SimRead>,
    now: u64,
    last_due: u64,
    count: u64,
}

#[derive(Debug)]
struct SimFile {
    path: Arc<Path>,
    bytes: Vec<u8>,
    /// Counts writes; stands for the modification time.
    version: i64,
    /// Counts what was put under the name; stands for the inode.
    inode: u64,
}

#[derive(Debug)]
struct SimRead {
    read: Read,
    check: Option<Check>,
    number: u64,
    fault: Option<Fault>,
    /// The tick at which it completes; `None` while it is stalled.
    due: Option<u64>,
}

impl SimDisk {
    /// A disk without files, and the control of it.
    /// # Panics
    /// If an option is outside its range.
    pub fn new(options: SimOptions) -> (SimDisk, SimControl) {
        assert!(options.reads_max > 0, "reads_max must be at least 1");
        assert!(options.alignment.is_power_of_two(), "alignment must be a power of two");
        let description = format!("simulated disk, seed {}", options.seed);
        let alignment = options.alignment;
        let state = State {
            options,
            files: Vec::new(),
            opened: Vec::new(),
            in_flight: Vec::new(),
            now: 0,
            last_due: 0,
            count: 0,
        };
        let state = Arc::new(Mutex::new(state));
        (SimDisk { state: Arc::clone(&state), description, alignment }, SimControl { state })
    }
}

impl SimControl {
    /// Puts a file under a name, replacing what had the name (a reader that has it open keeps the old one).
    pub fn put(&self, path: impl Into<PathBuf>, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        let path: Arc<Path> = Arc::from(path.into());
        let inode = state.files.len() as u64 + 1;
        state.files.push(SimFile { path, bytes, version: 0, inode });
    }

    /// Writes other bytes into the file of that name, in place.
    /// # Panics
    /// If there is none.
    pub fn write(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        let file = state.named(path.as_ref()).expect("no file of that name");
        state.files[file].write(bytes);
    }

    /// Cuts the file of that name to `len` bytes, or extends it with zeros.
    /// # Panics
    /// If there is none.
    pub fn truncate(&self, path: impl AsRef<Path>, len: usize) {
        let mut state = lock(&self.state);
        let file = state.named(path.as_ref()).expect("no file of that name");
        state.files[file].truncate(len);
    }

    /// Lets the stalled reads complete from the next tick on. Returns how many there were.
    pub fn release_stalled(&self) -> usize {
        let mut state = lock(&self.state);
        let due = Some(state.now + 1);
        let stalled = state.in_flight.iter_mut().filter(|read| read.due.is_none());
        stalled.map(|read| read.due = due).count()
    }

    /// Reads that the disk has met so far, refused ones not counted.
    pub fn reads(&self) -> u64 {
        lock(&self.state).count
    }

    /// Ticks so far.
    pub fn now(&self) -> u64 {
        lock(&self.state).now
    }
}

/// A test that panicked while holding the lock has failed already; the others need not.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimFile {
    fn identity(&self) -> FileIdentity {
        let size = self.bytes.len() as u64;
        FileIdentity { device: 0, inode: self.inode, size, modified_s: self.version, modified_ns: 0 }
    }

    fn write(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
        self.version += 1;
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.resize(len, 0);
        self.version += 1;
    }

    /// Copies what exists of `offset..` into `into`; returns how much that was.
    fn copy(&self, offset: u64, into: &mut [u8]) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let got = into.len().min(self.bytes.len() - start);
        into[..got].copy_from_slice(&self.bytes[start..start + got]);
        got
    }
}

impl State {
    fn named(&self, path: &Path) -> Option<usize> {
        self.files.iter().rposition(|file| *file.path == *path)
    }

    /// # Panics
    /// If `file` is not of this disk.
    fn file(&self, file: FileId) -> &SimFile {
        let (index, _) = *self.opened.get(file.index()).expect("the file was not opened by this disk");
        &self.files[index]
    }

    fn check_content(&self, file: FileId) -> Result<(), ReadError> {
        let (was, now) = (self.opened[file.index()].1, self.file(file).identity());
        let what = if was.size != now.size {
            FileChange::Size { was: was.size, now: now.size }
        } else if was != now {
            FileChange::Written
        } else {
            return Ok(());
        };
        Err(ReadError::Changed { file: Arc::clone(&self.file(file).path), what })
    }

    /// Truncates or rewrites the file that a read is from, if that is its fate.
    fn strike_file(&mut self, file: FileId, fault: Option<Fault>, rng: &mut Rng) {
        let (index, _) = self.opened[file.index()];
        let target = &mut self.files[index];
        match fault {
            Some(Fault::Truncate { len }) => target.truncate(len),
            Some(Fault::Rewrite) => {
                let mask = rng.next() as u8 | 1;
                let bytes = target.bytes.iter().map(|byte| byte ^ mask).collect();
                target.write(bytes);
            }
            _ => {}
        }
    }

    /// Fills `into` from `offset` on, `len` bytes of it from `skip` on being wanted.
    fn fill(
        &self,
        file: FileId,
        (offset, len): (u64, usize),
        (from, skip): (u64, usize),
        into: &mut [u8],
        (fault, rng): (Option<Fault>, &mut Rng),
    ) -> Result<usize, ReadError> {
        let source = self.file(file);
        let path = || Arc::clone(&source.path);
        self.check_content(file)?;
        let mut got = source.copy(from, into);
        match fault {
            Some(Fault::Io { errno }) => {
                let source = std::io::Error::from_raw_os_error(errno);
                return Err(ReadError::Io { file: path(), offset, len, source });
            }
            Some(Fault::Short) => got = got.min(skip + rng.below(len as u64) as usize),
            Some(Fault::WrongBytes) => into[skip + rng.below(len as u64) as usize] ^= 1 << rng.below(8),
            _ => {}
        }
        if got < skip + len {
            return Err(ReadError::Short { file: path(), offset, len, got: got.saturating_sub(skip) });
        }
        Ok(got)
    }

    /// Carries one read out, at its tick.
    fn complete(&mut self, sim: SimRead) -> Completion {
        let SimRead { mut read, check, number, fault, .. } = sim;
        let mut rng = plan::rng_of(self.options.seed, number, plan::Purpose::Effect);
        let target = rng.below(read.segments.len() as u64) as usize;
        self.strike_file(read.segments[target].file, fault, &mut rng);
        let mut stats = ReadStats::default();
        let mut result = Ok(());
        for (i, segment) in read.segments.iter().enumerate() {
            let span = aligned_span(segment.offset, segment.len, self.options.alignment);
            let into = &mut read.buffer[segment.into..segment.into + span.len];
            let (wanted, whole) = ((segment.offset, segment.len), (span.offset, span.skip));
            let fate = (fault.filter(|_| i == target), &mut rng);
            match self.fill(segment.file, wanted, whole, into, fate) {
                Ok(got) => {
                    stats.bytes += got as u64;
                    stats.wanted_bytes += segment.len as u64;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if let (Ok(()), Some(check)) = (&result, &check) {
            result = check_bytes(&read, check, &self.file(read.segments[0].file).path);
        }
        if result.is_err() {
            read.buffer.fill(JUNK);
        }
        Completion { id: read.id, buffer: read.buffer, result: result.map(|()| stats) }
    }

    /// Completes what is due, demand before read-ahead.
    fn take_due(&mut self, done: &mut Vec<Completion>) {
        let now = self.now;
        let due = |read: &SimRead| read.due.is_some_and(|due| due <= now);
        self.in_flight.sort_by_key(|sim| (!due(sim), sim.due, sim.read.priority as u8, sim.number));
        let count = self.in_flight.iter().take_while(|sim| due(sim)).count();
        let ready: Vec<SimRead> = self.in_flight.drain(..count).collect();
        done.extend(ready.into_iter().map(|sim| self.complete(sim)));
    }

    /// Position of a read that a real disk would not have started yet: one that is due later than the next tick.
    fn not_started(&self, id: ReadId) -> Option<usize> {
        let soon = self.now + 1;
        self.in_flight.iter().position(|sim| sim.read.id == id && sim.due.is_some_and(|due| due > soon))
    }
}

impl Disk for SimDisk {
    fn open(&mut self, path: &Path) -> Result<FileId, OpenError> {
        let mut state = lock(&self.state);
        let absent = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let file =
            state.named(path).ok_or_else(|| OpenError::Open { path: path.into(), source: absent() })?;
        let identity = state.files[file].identity();
        state.opened.push((file, identity));
        Ok(FileId(state.opened.len() as u32 - 1))
    }

    fn alignment(&self, file: FileId) -> usize {
        lock(&self.state).file(file);
        self.alignment
    }

    fn buffered_reason(&self, file: FileId) -> Option<&str> {
        lock(&self.state).file(file);
        (self.alignment == 1).then_some("simulated as buffered")
    }

    fn identity(&self, file: FileId) -> FileIdentity {
        let state = lock(&self.state);
        state.file(file);
        state.opened[file.index()].1
    }

    fn check(&mut self, file: FileId) -> Result<(), ReadError> {
        let state = lock(&self.state);
        state.check_content(file)?;
        let opened = state.file(file);
        match state.named(&opened.path) {
            Some(now) if now == state.opened[file.index()].0 => Ok(()),
            _ => Err(ReadError::Changed { file: Arc::clone(&opened.path), what: FileChange::Replaced }),
        }
    }

    fn submit_checked(&mut self, read: Read, check: Option<Check>) -> Result<(), Full> {
        let mut state = lock(&self.state);
        if state.in_flight.len() == state.options.reads_max {
            return Err(Full(read));
        }
        check_read(&read, |file| {
            state.file(file);
            self.alignment
        });
        let number = state.count;
        state.count += 1;
        let (fault, delay) = state.options.plan.fate(state.options.seed, number);
        let mut due = state.now + 1 + delay;
        if !state.options.plan.reorder {
            due = due.max(state.last_due);
            state.last_due = due;
        }
        let due = (fault != Some(Fault::Stall)).then_some(due);
        state.in_flight.push(SimRead { read, check, number, fault, due });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        let mut state = lock(&self.state);
        state.now += 1;
        state.take_due(done);
    }

    fn wait(&mut self, done: &mut Vec<Completion>) -> Result<(), WaitError> {
        let mut state = lock(&self.state);
        let in_flight = state.in_flight.len();
        if in_flight == 0 {
            return Err(WaitError::NothingInFlight);
        }
        match state.in_flight.iter().filter_map(|sim| sim.due).min() {
            Some(due) => {
                state.now = due.max(state.now + 1);
                state.take_due(done);
                Ok(())
            }
            None => Err(WaitError::Stalled { waited: Duration::ZERO, in_flight }),
        }
    }

    fn in_flight(&self) -> usize {
        lock(&self.state).in_flight.len()
    }

    fn promote(&mut self, id: ReadId) -> bool {
        let mut state = lock(&self.state);
        let Some(at) = state.not_started(id) else { return false };
        let soon = state.now + 1;
        let sim = &mut state.in_flight[at];
        let waiting = sim.read.priority == Priority::ReadAhead;
        if waiting {
            (sim.read.priority, sim.due) = (Priority::Demand, Some(soon));
        }
        waiting
    }

    fn cancel(&mut self, id: ReadId) -> Option<Read> {
        let mut state = lock(&self.state);
        state.not_started(id).map(|at| state.in_flight.remove(at).read)
    }

    fn read_now(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let mut state = lock(&self.state);
        let number = state.count;
        state.count += 1;
        if into.is_empty() {
            return Ok(());
        }
        let (fault, _) = state.options.plan.fate(state.options.seed, number);
        let mut rng = plan::rng_of(state.options.seed, number, plan::Purpose::Effect);
        state.file(file);
        state.strike_file(file, fault, &mut rng);
        let result = state.fill(file, (offset, into.len()), (offset, 0), into, (fault, &mut rng));
        if result.is_err() {
            into.fill(JUNK);
        }
        result.map(|_| ())
    }

    fn description(&self) -> &str {
        &self.description
    }
}

#[cfg(test)]
mod tests;
