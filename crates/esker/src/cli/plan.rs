//! Arguments of `esker plan`.

use super::EngineArgs;
use super::engine::size;
use clap::{Args, value_parser};
use esker_engine::SESSIONS_MAX;
use std::path::PathBuf;

/// Show whether a model fits, how memory is laid out, and what speed to expect
///
/// Plans what `esker run` with the same options would do, from the header of the file: the model is not loaded, and
/// nothing is computed. The speed follows from bandwidths that are measured: of the memory, for a fraction of a second,
/// and of the disk, with random reads of the model's file as large as those of experts, once for a file.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct PlanArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// Do not measure memory and disk, and leave the speed out
    #[arg(long)]
    pub no_measure: bool,
    /// Print one JSON object on standard output; sizes are in bytes
    #[arg(long)]
    pub json: bool,
    /// Sequences that are computed at a time: `--slots` of `esker serve`
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=SESSIONS_MAX as i64), default_value_t = 1)]
    pub sessions: u8,
    /// Memory for snapshots of conversations, such as `64M`: `--snapshot-memory` of `esker serve`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub snapshots: Option<u64>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const AFTER_HELP: &str = "\
Memory:
  `needs at least` is the smallest `--memory` that works with these options.
  A budget has lines for all that the process takes; the bar shows them by
  their characters. What is left is the arena, for experts: a slot holds one,
  and experts of one size share their slots. Where there are several sizes,
  the arena is divided as the plan says to begin with, and slots move to the
  size that needs them most while text is made. A model that is all in memory
  has no budget: its file is mapped, and the system may drop parts of it.

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
