//! Model architectures, one file each.
#![forbid(unsafe_code)]
