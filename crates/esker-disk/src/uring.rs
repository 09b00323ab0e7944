//! The disk on io_uring: reads are handed to the kernel by a ring in shared memory and complete in another.
//!
//! No threads of ours: up to [`DiskOptions::workers`] segments are at the device, the rest wait in the queue,
//! where demand reads overtake. Not here: anything but reads. Sources: io_uring(7), io_uring_enter(2),
//! io_uring_register(2). Needs Linux 5.6 (`IORING_OP_READ`); files are registered where the kernel can
//! (5.19), an arena on request.
//!
//! # Why the kernel never writes into memory that somebody else uses
//! The buffer of a read is owned by the queue from `submit` until its completion was seen, and only its
//! completion gives it out again. Dropping the disk waits for the segments at the device; if one does not come
//! back in [`STALL_LIMIT`], the queue is leaked, and with it the buffer and (through its `Arc`) the mapping.
//! `mem::forget` of the disk leaks them as well.

use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use crate::arena::Mapping;
use crate::disk::STALL_LIMIT;
use crate::file::Files;
use crate::positioned::{Bounce, TRANSFER_MAX};
use crate::queue::{Part, Progress, Queue};
use crate::read::SEGMENTS_MAX;
use crate::{
    Arena, Check, Completion, Disk, DiskOptions, FileId, FileIdentity, Full, OpenError, Read, ReadError,
    ReadId, RegisterError, StartError, WaitError, sys,
};

/// Files that can be registered with the ring; later ones are read by descriptor, which costs a lookup.
const FIXED_FILES: usize = 256;

/// Largest piece of an arena that the kernel registers as one buffer.
const FIXED_BUFFER_BYTES: usize = 1 << 30;

/// How often a transfer that the kernel put off (`EAGAIN`, `EINTR`) or dropped because the thread that had
/// submitted it ended (`ECANCELED`) is tried again before that is an error.
const RETRIES_MAX: u32 = 64;

/// Reads through io_uring.
pub struct UringDisk {
    ring: IoUring,
    queue: ManuallyDrop<Queue>,
    /// What is at the device, by [`Part::index`], which is also the `user_data` of its ring entries.
    at_device: Box<[Option<Transfer>]>,
    count_at_device: usize,
    depth: usize,
    files: Files,
    /// Per file, whether it has the entry of its own index in the ring's file table.
    fixed_files: Vec<bool>,
    can_fix_files: bool,
    registered: Option<Arc<Mapping>>,
    /// Why the kernel refused to take entries, for the next `wait`.
    refused: Option<io::Error>,
    bounce: Bounce,
    direct: bool,
    description: String,
    stall_limit: Duration,
}

/// A part and how far it is.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    part: Part,
    done: usize,
    retries: u32,
}

impl UringDisk {
    /// Sets the ring up and tries it.
    /// # Errors
    /// If an option is out of range, memory is refused, or the kernel has no io_uring, lacks the read operation,
    /// or forbids it to this process.
    pub fn start(options: &DiskOptions) -> Result<UringDisk, StartError> {
        options.check()?;
        let depth = options.workers;
        // At most `depth` entries exist at a time, so neither ring can overflow.
        let ring = IoUring::new(depth.next_power_of_two() as u32)
            .map_err(|source| StartError::Uring { what: "the kernel refuses io_uring_setup", source })?;
        try_ring(&ring)?;
        let can_fix_files = ring.submitter().register_files_sparse(FIXED_FILES as u32).is_ok();
        Ok(UringDisk {
            ring,
            queue: ManuallyDrop::new(Queue::new(options.reads_max)),
            at_device: vec![None; options.reads_max * SEGMENTS_MAX].into_boxed_slice(),
            count_at_device: 0,
            depth,
            files: Files::default(),
            fixed_files: Vec::new(),
            can_fix_files,
            registered: None,
            refused: None,
            bounce: Bounce::new().map_err(|source| StartError::Memory { source })?,
            direct: options.direct,
            description: format!("io_uring, depth {depth}"),
            stall_limit: STALL_LIMIT,
        })
    }

    /// Moves waiting parts to the ring while the device may have more.
    fn issue(&mut self) {
        while self.count_at_device < self.depth
            && let Some(part) = self.queue.next()
        {
            self.count_at_device += 1;
            self.push(Transfer { part, done: 0, retries: 0 });
        }
    }

    /// Puts what is left of a transfer into the ring.
    fn push(&mut self, transfer: Transfer) {
        let Transfer { part, done, .. } = transfer;
        let into = part.into.wrapping_add(done);
        let len = (part.span.len - done).min(TRANSFER_MAX);
        let offset = part.span.offset + done as u64;
        let file = self.files.get(part.file);
        let entry = match (self.fixed_files[part.file.index()], self.fixed_buffer(into, len)) {
            (true, Some(buffer)) => {
                let file = types::Fixed(part.file.0);
                opcode::ReadFixed::new(file, into, len as u32, buffer).offset(offset).build()
            }
            (false, Some(buffer)) => {
                opcode::ReadFixed::new(types::Fd(file.fd()), into, len as u32, buffer).offset(offset).build()
            }
            (true, None) => {
                opcode::Read::new(types::Fixed(part.file.0), into, len as u32).offset(offset).build()
            }
            (false, None) => opcode::Read::new(types::Fd(file.fd()), into, len as u32).offset(offset).build(),
        };
        // A buffered read of cached pages would be copied inside io_uring_enter, blocking the submitter.
        let buffered = file.buffered_reason().is_some();
        let flags = if buffered { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        let entry = entry.flags(flags).user_data(part.index() as u64);
        self.at_device[part.index()] = Some(transfer);
        // SAFETY: into..into + len is inside the buffer of a read that the queue owns until `finish`, which is
        // called only after the completion of this entry was seen; see the module's header for dropping. The
        // descriptor stays open as long as `files`, which is dropped after that.
        unsafe { self.ring.submission().push(&entry) }.expect("at most `depth` entries exist at a time");
    }

    /// Which registered buffer holds the whole range, if any.
    fn fixed_buffer(&self, into: *mut u8, len: usize) -> Option<u16> {
        let mapping = self.registered.as_ref()?;
        let first = (into as usize).checked_sub(mapping.start.as_ptr() as usize)?;
        let last = first + len - 1;
        let index = first / FIXED_BUFFER_BYTES;
        (last < mapping.len && last / FIXED_BUFFER_BYTES == index).then_some(index as u16)
    }

    /// Gives new entries to the kernel and, with `wait`, sleeps until a completion is there or time is up.
    fn enter(&mut self, wait: Option<Duration>) {
        let result = match wait {
            None if self.ring.submission().is_empty() => return,
            None => self.ring.submit(),
            Some(limit) if self.ring.params().is_feature_ext_arg() => {
                let limit = types::Timespec::from(limit);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))
            }
            // Before Linux 5.11 there is no way to bound the wait.
            Some(_) => self.ring.submit_and_wait(1),
        };
        match result {
            Ok(_) => {}
            // Time is up, a signal, or the kernel is short of memory for now: what it did not take stays in
            // the ring for the next call.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) => {}
            Err(error) => self.refused = Some(error),
        }
    }

    /// Takes what has completed out of the ring.
    fn reap(&mut self) {
        loop {
            let Some(entry) = self.ring.completion().next() else { return };
            self.advance(entry.user_data() as usize, entry.result());
        }
    }

    /// One transfer came back with a byte count or a negated error number.
    fn advance(&mut self, index: usize, result: i32) {
        let transfer = self.at_device[index].take().expect("a completion belongs to an entry at the device");
        let Transfer { part, done, retries } = transfer;
        let file = Arc::clone(self.files.get(part.file));
        let outcome = match usize::try_from(result) {
            Ok(got) => match part.progress(done, got) {
                Progress::Again(done) => return self.push(Transfer { done, ..transfer }),
                Progress::Short(got) => Err(file.short(part.offset, part.len, got)),
                Progress::Complete => file.check_content().map(|()| {
                    file.forget_cached(part.span.offset, part.span.len);
                    done + got
                }),
            },
            Err(_) => match -result {
                libc::EINTR | libc::EAGAIN | libc::ECANCELED if retries < RETRIES_MAX => {
                    return self.push(Transfer { retries: retries + 1, ..transfer });
                }
                errno => Err(file.io_error(part.offset, part.len, io::Error::from_raw_os_error(errno))),
            },
        };
        self.count_at_device -= 1;
        if let Some(mut arrived) = self.queue.finish(&part, outcome) {
            // Nobody else is there to do it. What is at the device goes on meanwhile.
            arrived.check(self.files.get(arrived.file()).path());
            self.queue.complete(arrived);
        }
    }

    /// Waits until nothing is at the device; false if that takes longer than [`STALL_LIMIT`]
    /// or the kernel refuses to go on.
    fn drain(&mut self) -> bool {
        let started = Instant::now();
        self.refused = None;
        while self.count_at_device > 0 {
            let rest = self.stall_limit.saturating_sub(started.elapsed());
            if rest.is_zero() || self.refused.is_some() {
                return false;
            }
            self.enter(Some(rest));
            self.reap();
        }
        true
    }
}

/// Whether the kernel knows the read operation and lets this process use the ring.
fn try_ring(ring: &IoUring) -> Result<(), StartError> {
    let refused = |what| move |source| StartError::Uring { what, source };
    let mut probe = io_uring::Probe::new();
    let submitter = ring.submitter();
    submitter.register_probe(&mut probe).map_err(refused("the kernel does not list its operations"))?;
    if !probe.is_supported(opcode::Read::CODE) {
        let source = io::Error::from(io::ErrorKind::Unsupported);
        return Err(refused("the kernel lacks the read operation")(source));
    }
    // With nothing to submit this only shows whether the call is permitted: a seccomp filter can allow
    // io_uring_setup and forbid this.
    submitter.submit().map_err(refused("the kernel refuses io_uring_enter"))?;
    Ok(())
}

impl Disk for UringDisk {
    fn open(&mut self, path: &Path) -> Result<FileId, OpenError> {
        let file = self.files.open(path, self.direct)?;
        let fd = self.files.get(file).fd();
        let fixed = self.can_fix_files
            && file.index() < FIXED_FILES
            && self.ring.submitter().register_files_update(file.0, &[fd]).is_ok();
        self.fixed_files.push(fixed);
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
        self.queue.push(read, check, &self.files)?;
        self.issue();
        self.enter(None);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.reap();
        self.issue();
        self.enter(None);
        self.queue.take_done(done);
    }

    fn wait(&mut self, done: &mut Vec<Completion>) -> Result<(), WaitError> {
        let (started, before) = (Instant::now(), done.len());
        loop {
            self.poll(done);
            if done.len() > before {
                return Ok(());
            }
            let in_flight = self.queue.in_flight();
            if in_flight == 0 {
                return Err(WaitError::NothingInFlight);
            }
            if let Some(source) = self.refused.take() {
                return Err(WaitError::Backend { source });
            }
            let waited = started.elapsed();
            let rest = self.stall_limit.saturating_sub(waited);
            if rest.is_zero() {
                return Err(WaitError::Stalled { waited, in_flight });
            }
            self.enter(Some(rest));
        }
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn promote(&mut self, id: ReadId) -> bool {
        self.queue.promote(id)
    }

    fn cancel(&mut self, id: ReadId) -> Option<Read> {
        self.queue.cancel(id)
    }

    fn read_now(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.bounce.read(self.files.get(file), offset, into)
    }

    fn register(&mut self, arena: &Arena) -> Result<(), RegisterError> {
        let mapping = arena.mapping();
        if mapping.is_sparse {
            return Err(RegisterError::Sparse { bytes: mapping.len });
        }
        let mut registered = mapping.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if *registered || self.registered.is_some() {
            return Err(RegisterError::Taken);
        }
        let pieces: Vec<libc::iovec> = (0..mapping.len)
            .step_by(FIXED_BUFFER_BYTES)
            .map(|offset| libc::iovec {
                iov_base: mapping.start.as_ptr().wrapping_add(offset).cast(),
                iov_len: FIXED_BUFFER_BYTES.min(mapping.len - offset),
            })
            .collect();
        // SAFETY: the pieces are our mapping, which `self.registered` keeps alive until they are unregistered.
        // Pinning changes no contents, and the flag keeps buffers from detaching pinned pages.
        unsafe { self.ring.submitter().register_buffers(&pieces) }.map_err(|source| {
            RegisterError::Refused { bytes: mapping.len, limit: sys::memlock_limit(), source }
        })?;
        *registered = true;
        self.registered = Some(Arc::clone(mapping));
        Ok(())
    }

    fn unregister(&mut self) {
        // Entries that name a registered buffer must be gone. If the device does not answer, it stays.
        if self.registered.is_none() || !self.drain() {
            return;
        }
        if self.ring.submitter().unregister_buffers().is_ok()
            && let Some(mapping) = self.registered.take()
        {
            *mapping.registered.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }
    }

    fn description(&self) -> &str {
        &self.description
    }
}

impl Drop for UringDisk {
    fn drop(&mut self) {
        if self.drain() {
            self.unregister();
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.queue) };
        }
        // Otherwise the kernel may still write into buffers of the queue: leaked, see the module's header.
    }
}

impl std::fmt::Debug for UringDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringDisk").field("description", &self.description).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
