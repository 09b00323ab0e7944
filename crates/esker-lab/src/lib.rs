//! The lab: files in, files out. What makes a model smaller or quicker to read without running it.
//!
//! - [`repack`]: experts one after the other, a page each, so that one expert is one read; and back.
//!
//! What this is not: inference. Nothing here computes with weights.
#![forbid(unsafe_code)]

mod output;
mod progress;
pub mod repack;

pub use output::{IfExists, OutputError};
pub use progress::{Progress, Stage};
