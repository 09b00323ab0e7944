//! How a model is loaded and run.

use crate::cached::RouteBiasOptions;
use esker_cache::{PolicyConfig, RebalanceConfig};
use esker_disk::Backend;
use esker_ops::KvType;
use std::path::PathBuf;

/// How much memory the process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All in memory if it fits into what is free now, else a budget of what is free less a reserve.
    Auto,
    /// All in memory, mapped from the file.
    Resident,
    /// So many bytes in all; experts that do not fit stay on disk.
    Budget(u64),
}

/// How a model is loaded and run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads that compute; `None`: as many as there are physical cores.
    pub threads: Option<usize>,
    /// Tokens that a session has room for; `None`: [`DEFAULT_CONTEXT`], or what the model was trained for if less.
    pub context: Option<usize>,
    /// Prompt tokens per pass. Changes no bit of the result.
    pub chunk: usize,
    /// Type of keys and values.
    pub kv_type: KvType,
    /// How much memory the process may take.
    pub memory: Memory,
    /// Which experts stay in memory. Changes no bit of the result while `route_bias` is off.
    pub policy: PolicyConfig,
    /// Read experts ahead that the next layer's router will probably choose.
    pub read_ahead: bool,
    /// When slots of one size are given up for slots of another, in models whose experts differ in size.
    pub rebalance: RebalanceConfig,
    /// Cache-aware routing.
    pub route_bias: RouteBiasOptions,
    /// What carries reads out; `Auto`: threads, which decode faster than io_uring does.
    pub backend: Backend,
    /// Read past the page cache where the file system allows it.
    pub direct: bool,
    /// Most reads of experts in flight; `None`: the depth that the disk is best at, see `probe_folder`.
    pub reads_max: Option<u16>,
    /// Where measurements of disks are kept from run to run. With `None` nothing is measured, and [`READS_MAX`] is used.
    pub probe_folder: Option<PathBuf>,
    /// What the rest of the process counts for in the budget; `None`: what it takes when the model is loaded. For programs
    /// that hold several engines, or are to have the same arena at every start.
    pub process_bytes: Option<u64>,
    /// Plan for logits of every token of a pass.
    pub all_logits: bool,
    /// Sessions that are planned for, 1 to [`SESSIONS_MAX`]: so many may exist and take part in one pass.
    pub sessions: usize,
    /// Memory for snapshots of sessions, see [`Engine::keep_snapshot`](crate::Engine::keep_snapshot); 0: none are kept.
    pub snapshot_bytes: u64,
    /// Where snapshots are kept from run to run. With `None` they are gone with the engine.
    pub snapshot_dir: Option<PathBuf>,
    /// What the files of `snapshot_dir` may take in all; the longest unused go first.
    pub snapshot_dir_bytes: u64,
}

/// Most sessions of one engine.
pub const SESSIONS_MAX: usize = 64;

/// Context of a session unless another is asked for.
pub const DEFAULT_CONTEXT: usize = 4096;

/// Reads in flight where the disk has not been measured.
pub const READS_MAX: u16 = 16;

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            threads: None,
            context: None,
            chunk: 512,
            kv_type: KvType::F16,
            memory: Memory::Auto,
            policy: PolicyConfig::by_name("protected-lru").expect("the default policy exists"),
            read_ahead: true,
            rebalance: RebalanceConfig::ON,
            route_bias: RouteBiasOptions::default(),
            backend: Backend::Auto,
            direct: true,
            reads_max: None,
            probe_folder: None,
            process_bytes: None,
            all_logits: false,
            sessions: 1,
            snapshot_bytes: 0,
            snapshot_dir: None,
            snapshot_dir_bytes: 8 << 30,
        }
    }
}
