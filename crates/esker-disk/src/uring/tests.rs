//! What only a ring can get wrong: reads that never complete, threads that end, memory that is registered.
//!
//! A read of an empty pipe is held up until somebody writes, like one of a device that does not answer.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

use super::*;
use crate::file::OpenFile;
use crate::{Arena, Buffer, Priority, ReleaseError, Segment, SmallSegments};

/// A disk, or a word on stderr that this machine has no io_uring.
fn start(depth: usize) -> Option<UringDisk> {
    match UringDisk::start(&DiskOptions { workers: depth, ..DiskOptions::default() }) {
        Ok(disk) => Some(disk),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "io_uring is not tested here: {error}");
            None
        }
    }
}

/// (write end, file that reads from the other)
fn held_up(disk: &mut UringDisk, align: usize) -> (File, FileId) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, which the two files then own.
    let (read, write) = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    disk.fixed_files.push(false);
    (write, disk.files.push(OpenFile::pretend(read, 1 << 20, align)))
}

fn buffers(count: usize) -> Vec<Buffer> {
    Arena::new(count * 4096).unwrap().carve(vec![4096; count])
}

fn read(id: u64, file: FileId, buffer: Buffer) -> Read {
    let segments = SmallSegments::from(Segment { file, offset: 0, len: 512, into: 0 });
    Read { id: ReadId(id), priority: Priority::Demand, buffer, segments }
}

#[test]
fn a_device_that_does_not_answer_is_reported_and_its_buffer_is_never_reused() {
    let Some(mut disk) = start(4) else { return };
    disk.stall_limit = Duration::from_millis(50);
    let (_write, file) = held_up(&mut disk, 512);
    let mut buffers = buffers(2);
    let mut neighbour = buffers.pop().unwrap();
    neighbour.fill(7);
    disk.submit(read(1, file, buffers.pop().unwrap())).unwrap();
    let mut done = Vec::new();
    assert!(matches!(disk.wait(&mut done), Err(WaitError::Stalled { in_flight: 1, .. })));
    let mapping = Arc::downgrade(&disk_mapping(&disk));
    let started = Instant::now();
    drop(disk);
    assert!(started.elapsed() < Duration::from_secs(5), "dropping does not hang");
    drop(neighbour);
    assert!(mapping.upgrade().is_some(), "the kernel may still write there, so it stays mapped");
}

/// The mapping that the first read in flight goes to.
fn disk_mapping(disk: &UringDisk) -> Arc<Mapping> {
    Arc::clone(disk.queue.first_buffer().expect("a read is in flight").mapping())
}

#[test]
fn a_read_survives_the_thread_that_submitted_it() {
    let Some(mut disk) = start(4) else { return };
    let (mut write, file) = held_up(&mut disk, 512);
    let mut buffers = buffers(1);
    let mut disk = std::thread::spawn(move || {
        disk.submit(read(1, file, buffers.pop().unwrap())).unwrap();
        disk
    })
    .join()
    .unwrap();
    std::thread::sleep(Duration::from_millis(20)); // for the kernel to cancel what that thread left
    let mut done = Vec::new();
    disk.poll(&mut done);
    write.write_all(&[5; 4096]).unwrap();
    disk.wait(&mut done).unwrap();
    // A pipe does not have the size it is said to have, so the read is not accepted; but it was carried out.
    assert!(matches!(done[0].result, Err(ReadError::Changed { .. })), "{:?}", done[0].result);
    assert_eq!(done[0].buffer[..512], [5; 512]);
}

#[test]
fn no_more_than_the_depth_is_at_the_device() {
    let Some(mut disk) = start(2) else { return };
    let (mut write, file) = held_up(&mut disk, 512);
    for (id, buffer) in buffers(5).into_iter().enumerate() {
        disk.submit(read(id as u64, file, buffer)).unwrap();
    }
    assert_eq!((disk.count_at_device, disk.in_flight()), (2, 5));
    assert!(disk.cancel(ReadId(0)).is_none(), "it is at the device");
    assert_eq!(disk.cancel(ReadId(4)).unwrap().id, ReadId(4));
    write.write_all(&[0; 4096]).unwrap();
    let mut done = Vec::new();
    while disk.in_flight() > 0 {
        disk.wait(&mut done).unwrap();
        assert!(disk.count_at_device <= 2);
    }
    assert_eq!(done.len(), 4);
}

#[test]
fn a_registered_arena_is_read_into_and_keeps_its_pages_until_unregistered() {
    let Some(mut disk) = start(4) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), [9; 8192]).unwrap();
    let file = disk.open(&dir.path().join("f")).unwrap();
    let mut arena = Arena::new(1 << 20).unwrap();
    if let Err(error) = disk.register(&arena) {
        let _ = writeln!(std::io::stderr(), "registered memory is not tested here: {error}");
        return;
    }
    assert!(matches!(disk.register(&arena), Err(RegisterError::Taken)));
    let buffer = arena.carve([4096]).remove(0);
    assert_eq!(disk.fixed_buffer(buffer.start(), 4096), Some(0));
    assert_eq!(disk.fixed_buffer(buffer.start(), (1 << 20) + 1), None);
    let foreign = buffers(1).remove(0);
    assert_eq!(disk.fixed_buffer(foreign.start(), 4096), None);

    disk.submit(read(1, file, buffer)).unwrap();
    disk.submit(read(2, file, foreign)).unwrap();
    let mut done = Vec::new();
    while disk.in_flight() > 0 {
        disk.wait(&mut done).unwrap();
    }
    assert!(done.iter().all(|d| d.result.is_ok() && d.buffer[..512] == [9; 512]));
    let mut buffer = done.into_iter().find(|d| d.id == ReadId(1)).unwrap().buffer;
    assert!(matches!(buffer.release_pages(), Err(ReleaseError::Registered)));
    disk.unregister();
    buffer.release_pages().unwrap();
    // The pages were replaced: a read has to find the new ones.
    disk.submit(read(3, file, buffer)).unwrap();
    let mut done = Vec::new();
    disk.wait(&mut done).unwrap();
    assert_eq!(done[0].buffer[..512], [9; 512]);
    disk.register(&arena).unwrap();
    drop(disk);
    done[0].buffer.release_pages().unwrap();
}

#[test]
fn ranges_across_pieces_of_an_arena_are_read_unregistered() {
    let Some(mut disk) = start(4) else { return };
    let arena = Arena::new(2 * FIXED_BUFFER_BYTES + 4096).unwrap();
    disk.registered = Some(Arc::clone(arena.mapping())); // the arithmetic alone: nothing is pinned
    let at = |offset: usize| arena.mapping().start.as_ptr().wrapping_add(offset);
    assert_eq!(disk.fixed_buffer(at(0), FIXED_BUFFER_BYTES), Some(0));
    assert_eq!(disk.fixed_buffer(at(4096), FIXED_BUFFER_BYTES), None);
    assert_eq!(disk.fixed_buffer(at(FIXED_BUFFER_BYTES), 4096), Some(1));
    assert_eq!(disk.fixed_buffer(at(2 * FIXED_BUFFER_BYTES), 4096), Some(2));
    assert_eq!(disk.fixed_buffer(at(2 * FIXED_BUFFER_BYTES), 4097), None);
    disk.registered = None;
}

#[test]
fn a_transfer_that_stops_half_way_goes_on_behind_what_is_there() {
    let Some(mut disk) = start(4) else { return };
    let (mut write, file) = held_up(&mut disk, 1);
    disk.submit(read(1, file, buffers(1).remove(0))).unwrap();
    let mut done = Vec::new();
    for (value, count) in [(1, 100), (2, 412)] {
        assert!(done.is_empty());
        write.write_all(&vec![value; count]).unwrap();
        // Until the kernel has the next part of it, or all is done.
        while disk.at_device.iter().flatten().any(|t| t.done == (value as usize - 1) * 100) {
            disk.enter(Some(Duration::from_millis(100)));
            disk.poll(&mut done);
        }
    }
    assert_eq!(done[0].buffer[..100], [1; 100]);
    assert_eq!(done[0].buffer[100..512], [2; 412]);
    assert_eq!(done[0].buffer[512], 0);
}

#[test]
fn an_error_of_the_system_names_file_and_range() {
    let Some(mut disk) = start(4) else { return };
    let unreadable = tempfile::tempfile().unwrap();
    unreadable.set_len(4096).unwrap();
    let unreadable = write_only(&unreadable);
    disk.fixed_files.push(false);
    let file = disk.files.push(OpenFile::pretend(unreadable, 4096, 512));
    disk.submit(read(1, file, buffers(1).remove(0))).unwrap();
    let mut done = Vec::new();
    disk.wait(&mut done).unwrap();
    let error = done.remove(0).result.unwrap_err();
    assert_eq!(error.to_string(), "cannot read 512 bytes at offset 0 of `pretended`");
    assert!(matches!(error, ReadError::Io { source, .. } if source.raw_os_error() == Some(libc::EBADF)));
}

/// The same file through a descriptor that cannot be read from.
fn write_only(file: &File) -> File {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    File::options().write(true).open(path).unwrap()
}
