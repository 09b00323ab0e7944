//! Options of every command that computes.

use crate::affinity::CpuList;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, value_parser};
use esker_engine::{Backend, EngineOptions, KvType, Memory, PolicyConfig, RouteBiasOptions};

/// How a model is loaded and run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Engine options")]
pub struct EngineArgs {
    /// Threads that compute [default: as many as there are physical cores]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Processors to run on, such as `0-3,8` [default: all that the program may use]
    ///
    /// For machines with efficiency cores or several memory nodes: keeps the program on the fast cores, or on those
    /// beside the memory. The default of `--threads` then counts these. Linux only.
    #[arg(long, value_name = "LIST")]
    pub cpu_mask: Option<CpuList>,
    /// Tokens that a sequence has room for [default: 4096, or what the model was trained for if that is less;
    /// `logits`: as many as are given]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 24))]
    pub context: Option<u32>,
    /// Tokens of a prompt that are processed at a time [default: 512; `logits`: 128]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 16))]
    pub chunk: Option<u32>,
    /// Number type of the KV cache [default: f16; `logits`: f32]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub kv_type: Option<KvTypeArg>,
    #[command(flatten)]
    pub memory: MemoryArgs,
}

/// What of the model is in memory, and how the rest is read. Only cache-aware routing changes a result.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Memory options")]
pub struct MemoryArgs {
    /// Memory that the program may take in all, such as `6G`; `all`: the whole model; `auto`: what is free
    ///
    /// K, M, G and T are units of 1024. Experts that do not fit stay on the disk and are read when they are needed.
    /// `auto` holds the whole model if it fits into what is free now, else takes a budget of what is free less a
    /// reserve. A budget that is too small is refused, with what would do.
    #[arg(short, long, value_name = "SIZE", value_parser = memory, default_value = "auto")]
    pub memory: Memory,
    /// Which experts stay in memory
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(policies()))]
    #[arg(default_value_t = EngineOptions::default().policy.name().to_owned())]
    pub policy: String,
    /// Do not read experts ahead that the next layer will probably choose
    #[arg(long)]
    pub no_read_ahead: bool,
    /// Prefer experts that are in memory: add this share of the range of a layer's router logits to theirs
    ///
    /// Cache-aware routing reads less and changes the text. 0 is off.
    #[arg(long, value_name = "X", value_parser = share, allow_negative_numbers = true)]
    #[arg(default_value_t = RouteBiasOptions::default().lambda)]
    pub route_bias: f32,
    /// With `--route-bias`: the first N experts of a token are chosen by the router alone
    #[arg(long, value_name = "N", default_value_t = RouteBiasOptions::default().protect)]
    pub route_protect: usize,
    /// What carries out the reads
    ///
    /// Changes speed only. A thread begins the disk's next transfer when one is done; io_uring waits until the thread
    /// that computes comes by. Measured on two cores, threads decode 8 % faster.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = IoArg::Auto)]
    pub io: IoArg,
    /// Read by way of the page cache of the system
    #[arg(long)]
    pub no_direct_io: bool,
    /// Transfers at the disk at a time, at most [default: what it is best at, measured once for a file]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    pub reads_max: Option<u16>,
}

/// Number type of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvTypeArg {
    /// Half the memory and bandwidth
    F16,
    /// Exact
    F32,
}

/// What carries out reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoArg {
    /// The faster of the two as measured: threads
    Auto,
    /// io_uring of Linux, or an error where the system has or permits none
    Uring,
    /// Threads, each with one transfer at a time
    Pool,
}

impl KvTypeArg {
    pub fn kv_type(self) -> KvType {
        match self {
            KvTypeArg::F16 => KvType::F16,
            KvTypeArg::F32 => KvType::F32,
        }
    }
}

impl EngineArgs {
    /// The engine's options; what was not given is taken from `defaults`.
    pub fn options(&self, defaults: EngineOptions) -> EngineOptions {
        let count = |n: u32| n as usize;
        EngineOptions {
            threads: self.threads.map(count).or(defaults.threads),
            context: self.context.map(count).or(defaults.context),
            chunk: self.chunk.map_or(defaults.chunk, count),
            kv_type: self.kv_type.map_or(defaults.kv_type, KvTypeArg::kv_type),
            memory: self.memory.memory,
            policy: PolicyConfig::by_name(&self.memory.policy)
                .expect("the parser accepts only names of policies"),
            read_ahead: !self.memory.no_read_ahead,
            route_bias: RouteBiasOptions {
                lambda: self.memory.route_bias,
                protect: self.memory.route_protect,
            },
            backend: match self.memory.io {
                IoArg::Auto => Backend::Auto,
                IoArg::Uring => Backend::Uring,
                IoArg::Pool => Backend::Pool,
            },
            direct: !self.memory.no_direct_io,
            reads_max: self.memory.reads_max,
            probe_folder: crate::directories::cache(),
            ..defaults
        }
    }
}

/// The name of a type as it is given on the command line.
pub fn kv_type_name(kv_type: KvType) -> &'static str {
    match kv_type {
        KvType::F16 => "f16",
        KvType::F32 => "f32",
    }
}

/// A value of `--memory` that is enough where a budget of `smallest` bytes would just do: `31M`, `12.4G`.
///
/// Part of a plan is what the process itself takes: it is measured, and differs a little from run to run.
pub fn memory_that_is_enough(smallest: u64) -> String {
    let bytes = smallest.saturating_add(2 << 20);
    match bytes.div_ceil(1 << 20) {
        mib @ ..10_240 => format!("{mib}M"),
        _ => {
            let tenths = bytes.saturating_mul(10).div_ceil(1 << 30);
            format!("{}.{}G", tenths / 10, tenths % 10)
        }
    }
}

/// Policies that need no knowledge of the future.
fn policies() -> Vec<&'static str> {
    PolicyConfig::NAMES.into_iter().filter(|name| *name != PolicyConfig::Clairvoyant.name()).collect()
}

fn memory(arg: &str) -> Result<Memory, String> {
    match arg {
        "auto" => Ok(Memory::Auto),
        "all" => Ok(Memory::Resident),
        size => bytes(size)
            .map(Memory::Budget)
            .ok_or_else(|| "expected `auto`, `all` or a size such as `6G`, `1.5GiB` or `800M`".to_owned()),
    }
}

fn share(arg: &str) -> Result<f32, String> {
    match arg.parse() {
        Ok(share) if (0.0..=10.0).contains(&share) => Ok(share),
        _ => Err("expected a number of 0 to 10".to_owned()),
    }
}

/// A size, for options that have one.
pub(super) fn size(arg: &str) -> Result<u64, String> {
    bytes(arg).ok_or_else(|| "expected a size such as `6G`, `1.5GiB` or `800M`".to_owned())
}

/// A positive number and a unit of 1024, in any case: `6G`, `1.5 GiB`, `1024`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[number.len()..].trim_start();
    let power = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(unit) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let bytes = number.parse::<f64>().ok()? * 1024f64.powi(power);
    // Above 2^53 not every number of bytes is a float; no machine has so much memory.
    (1.0..9e15).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_units_of_1024() {
        let check = |text: &str, expect: u64| assert_eq!(bytes(text), Some(expect), "{text}");
        check("6G", 6 << 30);
        check("1.5 GiB", 3 << 29);
        check("800mb", 800 << 20);
        check("2k", 2048);
        check("4096", 4096);
        for wrong in ["", "G", "6X", "-1G", "0", "1e3G", "inf", "nan", "6 G 7", "9999999T", "1..5G", "6iG"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_enough_is_more_than_the_smallest() {
        assert_eq!(memory_that_is_enough(29 << 20), "31M");
        assert_eq!(memory_that_is_enough(1), "3M");
        assert_eq!(memory_that_is_enough((123 << 30) / 10), "12.4G");
        for smallest in (0..1 << 36).step_by(123_456_789) {
            let enough = bytes(&memory_that_is_enough(smallest)).expect("a size");
            assert!((smallest + (2 << 20)..smallest + (128 << 20)).contains(&enough), "{smallest}: {enough}");
        }
    }

    #[test]
    fn memory_has_words_and_sizes() {
        assert_eq!(memory("auto"), Ok(Memory::Auto));
        assert_eq!(memory("all"), Ok(Memory::Resident));
        assert_eq!(memory("1G"), Ok(Memory::Budget(1 << 30)));
        assert!(memory("some").is_err());
    }

    #[test]
    fn every_policy_offered_exists() {
        for name in policies() {
            assert!(PolicyConfig::by_name(name).is_some(), "{name}");
        }
    }
}
