//! GGUF files: metadata and tensor directory, read from hostile input and written.

#![forbid(unsafe_code)]
