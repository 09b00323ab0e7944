//! What the numbers were measured on.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The machine. What the system does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) cpu: Option<String>,
    /// Its instruction set extensions, as the kernel lists them.
    pub(crate) cpu_flags: Option<String>,
    /// Physical cores that this process may use.
    pub(crate) cores: usize,
    /// Logical ones.
    pub(crate) logical_cores: usize,
    /// Memory in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// The kernel's release.
    pub(crate) kernel: Option<String>,
    /// `linux-x86_64` and the like.
    pub(crate) platform: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).ok();
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        Machine {
            cpu: field(&cpuinfo, "model name"),
            cpu_flags: field(&cpuinfo, "flags").or_else(|| field(&cpuinfo, "Features")),
            cores: esker_engine::default_threads(),
            logical_cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: text("/proc/meminfo").and_then(|t| kilobytes(&field(&t, "MemTotal")?)),
            kernel: text("/proc/sys/kernel/osrelease").map(|t| t.trim().to_owned()),
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Processor time that was spent, in ticks of the kernel's clock for such counts, 100 per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProcessorTime {
    at: Instant,
    /// By everything on the machine, and by what runs it.
    all: u64,
    /// By one process.
    own: u64,
}

impl ProcessorTime {
    /// Up to now; `own` counts process `pid`. `None` where there is no `/proc`.
    pub(crate) fn now(pid: u32) -> Option<ProcessorTime> {
        let all = busy_ticks(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let own = process_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(ProcessorTime { at: Instant::now(), all, own })
    }

    /// Cores that everything but the process kept busy since then, on average.
    pub(crate) fn others_until(self, later: ProcessorTime) -> f64 {
        let others = (later.all.saturating_sub(self.all)).saturating_sub(later.own.saturating_sub(self.own));
        others as f64 / 100.0 / (later.at - self.at).as_secs_f64()
    }
}

/// User, nice, system, irq, softirq and steal of the first line of `/proc/stat`: neither idle nor waiting (proc(5)).
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks = fields.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    (ticks.len() >= 8).then(|| [0, 1, 2, 5, 6, 7].iter().map(|&i| ticks[i]).sum())
}

/// `utime` and `stime` of `/proc/PID/stat`, whose second field is a name in parentheses that may hold anything.
fn process_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

/// Runnable processes over the last minute, as `uptime` tells it. More than one per core beside us makes times useless.
pub(crate) fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Bytes that the kernel reads ahead on the device of `file`, where a mapped file is read in order; page faults of a process
/// that does not ask for anything else are answered with reads of up to this size.
#[cfg(target_os = "linux")]
pub(crate) fn read_ahead(file: &Path) -> Option<u64> {
    use std::os::linux::fs::MetadataExt;
    let device = std::fs::metadata(file).ok()?.st_dev();
    // As glibc's `gnu_dev_major` and `gnu_dev_minor` take it apart.
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    let kilobytes = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok()?;
    kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Only Linux tells.
#[cfg(not(target_os = "linux"))]
pub(crate) fn read_ahead(_file: &Path) -> Option<u64> {
    None
}

/// The command line of this process. Of files only the names are kept: where they lie on a machine is nobody's business.
pub(crate) fn command() -> Vec<String> {
    std::env::args().map(|argument| without_folders(&argument)).collect()
}

fn without_folders(argument: &str) -> String {
    let (flag, value) = match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value),
        _ => (String::new(), argument),
    };
    let name = value.rsplit(std::path::is_separator).find(|part| !part.is_empty()).unwrap_or(value);
    flag + name
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())
}

/// What `ESKER_COMMIT` says, for programs that were carried to another machine; otherwise the checked-out commit, with
/// `-dirty` after it if files differ from it.
pub(crate) fn commit(workspace: &Path) -> Option<String> {
    let said = std::env::var("ESKER_COMMIT").ok().filter(|said| !said.is_empty());
    said.or_else(|| checked_out(workspace))
}

fn checked_out(workspace: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(workspace)
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let output = output.ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Processor: fast\nflags\t\t: avx2 fma\n";
        assert_eq!(field(cpuinfo, "model name").as_deref(), Some("A Processor: fast"));
        assert_eq!(field(cpuinfo, "flags").as_deref(), Some("avx2 fma"));
        assert_eq!(field(cpuinfo, "name"), None);
        assert_eq!(kilobytes("16 kB"), Some(16384));
        assert_eq!(kilobytes("16 MB"), None);
    }

    #[test]
    fn what_others_take() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 1 1 1 1\n"), Some(63));
        assert_eq!(busy_ticks("cpu  1 2 4\n"), None);
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 70 5 0 0 20 0 1 0 1 1 1";
        assert_eq!(process_ticks(stat), Some(75));
        let at = Instant::now();
        let before = ProcessorTime { at, all: 1000, own: 75 };
        let after = ProcessorTime { at: at + std::time::Duration::from_secs(2), all: 1400, own: 275 };
        assert_eq!(before.others_until(after), 1.0);
    }

    #[test]
    fn command_lines_have_no_folders() {
        let kept = ["peer", "--model", "512,2048", "--gen=64", ""];
        assert!(kept.iter().all(|argument| without_folders(argument) == *argument));
        assert_eq!(without_folders("/some/where/m.gguf"), "m.gguf");
        assert_eq!(without_folders("--json=/some/where/a.json"), "--json=a.json");
        assert_eq!(without_folders("some/folder/"), "folder");
    }

    #[test]
    fn without_sources_there_is_no_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(checked_out(&folder.path().join("none")), None);
        assert_eq!(checked_out(folder.path()), None, "no repository");
    }

    #[test]
    fn read_ahead_is_of_whole_pages() {
        assert_eq!(read_ahead(Path::new("no/such/file")), None);
        if let Some(bytes) = read_ahead(Path::new(env!("CARGO_MANIFEST_DIR"))) {
            assert_eq!(bytes % 4096, 0, "{bytes}");
        }
    }

    #[test]
    fn this_machine_has_cores() {
        let here = Machine::here();
        assert!(here.cores >= 1 && here.cores <= here.logical_cores, "{here:?}");
    }
}
