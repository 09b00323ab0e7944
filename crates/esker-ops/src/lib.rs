//! Rows, matrices and one function per model operation, placed on the host.
#![forbid(unsafe_code)]
