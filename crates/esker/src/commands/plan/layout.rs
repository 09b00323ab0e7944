//! A model that would be all in memory: what that takes, and what less would do.

use esker_disk::memory;
use esker_engine::{EngineError, EngineOptions, Memory, Plan, PlanLine};
use serde::Serialize;
use std::path::Path;

/// Lines of a plan that a model needs as well that is mapped from its file: nothing of it is streamed.
const ALWAYS: [&str; 5] = ["process", "sequence_state", "decode_scratch", "prompt_scratch", "snapshots"];

/// How a model would be run in a large budget.
pub enum Streamed {
    Fits(Box<Plan>),
    /// Not even so.
    TooLarge {
        smallest_budget: u64,
    },
}

impl Streamed {
    pub fn smallest_budget(&self) -> u64 {
        match self {
            Streamed::Fits(plan) => plan.smallest_budget,
            Streamed::TooLarge { smallest_budget } => *smallest_budget,
        }
    }
}

/// Plans the model at `path` for a budget that it fits into, or for most of what is free if that is less. `None` if that
/// is gone meanwhile.
///
/// # Errors
/// As planning has, except that the model does not fit.
pub fn if_streamed(
    path: &Path,
    options: &EngineOptions,
    file_bytes: u64,
) -> Result<Option<Streamed>, EngineError> {
    let ample = file_bytes.saturating_mul(2).saturating_add(1 << 30);
    // Where the system does not say what is free, a budget is not held against it either.
    let budget = free_bytes().map_or(ample, |free| ample.min(free / 4 * 3));
    let options = EngineOptions { memory: Memory::Budget(budget), ..options.clone() };
    match esker_engine::plan(path, &options) {
        Ok(report) => Ok(report.plan.map(|plan| Streamed::Fits(Box::new(plan)))),
        Err(EngineError::Budget { smallest_budget, .. }) => Ok(Some(Streamed::TooLarge { smallest_budget })),
        Err(EngineError::BudgetUnavailable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What can be had without swapping, if the system says so.
fn free_bytes() -> Option<u64> {
    Some(memory::available()?.bytes)
}

/// What a model takes that is all in memory.
#[derive(Serialize)]
pub struct InMemory {
    pub lines: Vec<PlanLine>,
    pub total: u64,
    pub free_bytes: Option<u64>,
}

impl InMemory {
    /// The file, and what `streamed` says about the rest.
    pub fn new(file_bytes: u64, streamed: Option<&Streamed>) -> InMemory {
        let what = "weights and metadata, mapped: the system may drop and read them again".to_owned();
        let mut lines = vec![PlanLine { name: "model_file", bytes: file_bytes, what }];
        if let Some(Streamed::Fits(plan)) = streamed {
            lines.extend(plan.lines.iter().filter(|line| ALWAYS.contains(&line.name)).cloned());
        }
        InMemory { total: lines.iter().map(|line| line.bytes).sum(), lines, free_bytes: free_bytes() }
    }
}
