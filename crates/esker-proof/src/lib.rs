//! Proof: what speed and quality claims rest on.
//!
//! - [`synth`]: files with random weights and the geometry of a real model, to measure speed without the real weights.
//!
//! What this is not: part of running a model. Nothing here is linked into the engine.
#![forbid(unsafe_code)]

pub mod synth;
