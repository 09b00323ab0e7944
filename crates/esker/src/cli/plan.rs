//! Arguments of `esker plan`.

use super::EngineArgs;
use super::engine::size;
use clap::{Args, value_parser};
use esker_engine::SESSIONS_MAX;
use std::path::PathBuf;

/// Show whether a model fits, how memory is laid out, and what speed to expect
///
/// Plans what `esker run` with the same options would do, from the header of the file: no weights are read. The
/// speed follows from bandwidths that are measured: of the memory, for a fraction of a second, and of the disk, with
/// random reads as large as those of experts, once for a file.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct PlanArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// Measure nothing, and leave the speed out
    #[arg(long)]
    pub no_measure: bool,
    /// Print one JSON object on standard output; sizes are in bytes
    #[arg(long)]
    pub json: bool,
    /// Sequences that are computed at a time, such as the slots of a service
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=SESSIONS_MAX as i64), default_value_t = 1)]
    pub sessions: u8,
    /// Memory for states of prefixes that conversations share, such as `500M`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub snapshots: Option<u64>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const AFTER_HELP: &str = "\
Speed:
  A token moves its dense weights and its experts through memory, and reads
  the experts that are not there. The time is that of the slower of the two,
  at the bandwidths measured. `uniform routing` takes all experts to be
  equally likely, so that the share of reads is that of the experts that do
  not fit: with random weights it is about right, trained models reuse
  experts and do better. `every expert in memory` is the other end. Neither
  counts the time to compute, nor keys and values of a long context.

Examples:
  esker plan model.gguf
  esker plan model.gguf --memory 6G --context 16384
  esker plan model.gguf --memory 6G --json | jq .plan.smallest_budget

Measurements of disks are kept in `$XDG_CACHE_HOME/esker` (~/.cache/esker),
in small files `disk-probe-*.json`; what is removed is measured anew.";
