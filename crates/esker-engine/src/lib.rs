//! Memory plan, sessions, prefill and decode, sampling.
//!
//! This crate joins a model (`esker-models`) with where its weights are and with text. Start at [`Engine`].

mod arena;
mod batch;
mod cached;
mod checksums;
mod dense;
mod engine;
mod guard;
mod load;
mod logprobs;
mod map;
mod options;
mod plan;
mod prefix;
mod resident;
mod sampler;
mod session;
mod slots;
mod snapshots;
mod stats;
mod stop;
mod tables;
mod vocabulary;

pub use batch::BatchItem;
pub use cached::RouteBiasOptions;
pub use engine::{Engine, Event, Finish, GenerateOptions, Generation, GenerationStats};
pub use esker_cache::{PolicyConfig, RebalanceConfig};
pub use esker_disk::Backend;
pub use esker_models::Output;
pub use esker_ops::{KvType, Op, OpTime, PassTime, Phase, Profile, Rows};
pub use load::{EngineError, PlanReport, default_threads, plan};
pub use logprobs::{Logprob, Logprobs, logprobs};
pub use map::ExpertMap;
pub use options::{DEFAULT_CONTEXT, EngineOptions, Memory, READS_MAX, SESSIONS_MAX};
pub use plan::{ClassPlan, Plan, PlanLine};
pub use sampler::{Sampler, Sampling, SamplingError, argmax};
pub use session::Session;
pub use snapshots::SnapshotStats;
pub use stats::{ArenaClass, LayerStats, Stats};
pub use stop::StopScanner;
pub use vocabulary::{VocabularyError, tokenizer};
