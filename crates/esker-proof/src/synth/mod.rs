//! Random-weight model files with the geometry of a real model.
//!
//! What such a file is good for: speed, memory and disk traffic, which depend on shapes, types and sizes only. What it is
//! *not* good for: anything about text, and what depends on how real models choose their experts.
//!
//! - **Cache hit rates are those of the worst case.** The router is random and every token has a residual of its own, so a
//!   token shares with the one before it as many experts as chance has it (k of n), in every layer: a hit rate measured
//!   here is about the share of experts that fit. Trained models reuse experts far more.
//! - A token's experts are decided by its id nearly alone, so text that repeats itself is easy on a cache. Greedy decoding
//!   does that; draw tokens at temperature 1 instead.
//! - Read-ahead guesses well, because random layers change the residual little by little. How well it guesses with real
//!   weights has to be measured there.
//!
//! Weights are written as blocks, never encoded from floats: random codes under scales that make each matrix's standard
//! deviation `1 / sqrt(row length)`, with mean zero, so that activations keep their size from layer to layer; what mixes
//! tokens adds a tenth of that. The same geometry, options and seed give the same bytes on every machine.
//!
//! Start at [`write()`]; [`plan_size`] says beforehand how large a file becomes. Geometries are from the models' published
//! configurations; see [`Geometry::named`].

mod error;
mod fill;
mod geometry;
mod keys;
mod ngram;
mod normal;
mod random;
mod recipe;
mod size;
mod tensors;
mod vocabulary;
mod write;

pub use error::SynthError;
pub use geometry::{
    AttentionGeometry, DeltaGeometry, ExpertGeometry, Family, Geometry, HyperGeometry, IndexGeometry,
    NgramGeometry, VocabularyGeometry,
};
pub use recipe::Recipe;
pub use size::{SizePlan, plan_size};
pub use write::{Options, Progress, write};
