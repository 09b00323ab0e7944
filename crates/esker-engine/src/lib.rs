//! Memory plan, sessions, prefill and decode, sampling.
//!
//! This crate joins a model (`esker-models`) with where its weights are and with text. Start at [`Engine`].

mod engine;
mod load;
mod resident;
mod sampler;
mod session;
mod stop;
mod vocabulary;

pub use engine::{Engine, Event, Finish, GenerateOptions, Generation, GenerationStats};
pub use esker_models::Output;
pub use esker_ops::{KvType, Rows};
pub use load::{DEFAULT_CONTEXT, EngineError, EngineOptions, default_threads};
pub use sampler::{Sampler, Sampling, SamplingError, argmax};
pub use session::Session;
pub use stop::StopScanner;
pub use vocabulary::{VocabularyError, tokenizer};
