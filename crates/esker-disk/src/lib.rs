//! Reads into caller's buffers: io_uring, positioned reads, a simulated faulty disk.
