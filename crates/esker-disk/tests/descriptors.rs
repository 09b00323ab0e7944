//! Running out of file descriptors. Alone in its process, because the limit is the process's.

mod common;

use common::{bytes, disks, read_one};
use esker_disk::{Backend, DiskOptions, OpenError, open_best};

#[test]
fn running_out_of_descriptors_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, bytes(1, 10_000)).unwrap();
    let mut all = disks(4);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for reads and writes during both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.min(100);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    for (name, disk) in &mut all {
        let mut files = Vec::new();
        let error = loop {
            match disk.open(&path) {
                Ok(file) => files.push(file),
                Err(error) => break error,
            }
            assert!(files.len() <= 100, "{name}: the limit does not hold");
        };
        assert!(matches!(error, OpenError::NoDescriptors { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains("all file descriptors are in use"), "{name}: {error}");
        // What is open works on.
        let last = *files.last().unwrap_or_else(|| panic!("{name}: could not open even one file"));
        read_one(disk.as_mut(), last, 1, 9_999).result.unwrap();
        if cfg!(target_os = "linux") {
            falls_back_where_a_ring_is_refused();
        }
        limit.rlim_cur += 50; // room for the next disk's files
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    }
}

/// A ring needs a descriptor too, so none can be had now.
fn falls_back_where_a_ring_is_refused() {
    let uring = open_best(DiskOptions { backend: Backend::Uring, ..DiskOptions::default() });
    let refused = "io_uring is not available: the kernel refuses io_uring_setup";
    assert_eq!(uring.err().map(|error| error.to_string()).as_deref(), Some(refused));
    let auto = open_best(DiskOptions::default()).unwrap();
    let expect = "16 positioned-read workers (io_uring: the kernel refuses io_uring_setup: ";
    assert!(auto.description().starts_with(expect), "{}", auto.description());
}
