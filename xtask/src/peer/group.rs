//! A limit on the memory of one side, page cache that it causes included: a Linux control group.
//!
//! With version 1 of control groups a group is made below our own and the side's process moved into it before it loads
//! anything; with version 2 a process may not have groups beside it, so `systemd-run` is asked for a scope.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// No limit could be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupError {
    /// No control groups here.
    #[error("--memory-limit needs Linux control groups with the memory controller, and there are none here")]
    Unavailable,
    /// A file of the group cannot be written.
    #[error("cannot write `{}` to limit memory (more rights may be needed)", path.display())]
    Write { path: PathBuf, cause: std::io::Error },
}

/// A group with a limit; removed when dropped, by when its process must have ended.
pub(crate) enum MemoryGroup {
    /// A folder of ours in the memory controller's hierarchy.
    V1 { folder: PathBuf },
    /// A scope of systemd's, made with the process.
    Scope { limit_bytes: u64 },
}

impl MemoryGroup {
    /// A new group that no process is in yet.
    pub(crate) fn new(limit_bytes: u64) -> Result<MemoryGroup, GroupError> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let hierarchy = Path::new("/sys/fs/cgroup");
        match memory_v1(&own) {
            Some(own) => MemoryGroup::v1(&hierarchy.join("memory").join(own), limit_bytes),
            None if hierarchy.join("cgroup.controllers").exists() => Ok(MemoryGroup::Scope { limit_bytes }),
            None => Err(GroupError::Unavailable),
        }
    }

    fn v1(own: &Path, limit_bytes: u64) -> Result<MemoryGroup, GroupError> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = own.join(format!("esker-peer-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|cause| GroupError::Write { path: folder.clone(), cause })?;
        let group = MemoryGroup::V1 { folder: folder.clone() };
        write(&folder.join("memory.limit_in_bytes"), &limit_bytes.to_string())?;
        // Memory and swap together; absent where swap is not accounted.
        let _ = write(&folder.join("memory.memsw.limit_in_bytes"), &limit_bytes.to_string());
        Ok(group)
    }

    /// The command that runs `program` with the limit, as far as a command can.
    pub(crate) fn command(&self, program: &OsStr, arguments: &[OsString]) -> Command {
        match self {
            MemoryGroup::V1 { .. } => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            MemoryGroup::Scope { limit_bytes } => {
                let mut command = Command::new("systemd-run");
                command.args(["--user", "--scope", "--quiet", "--collect"]);
                command.arg(format!("--property=MemoryMax={limit_bytes}"));
                command.args(["--property=MemorySwapMax=0", "--"]).arg(program).args(arguments);
                command
            }
        }
    }

    /// Puts a process that has just started into the group.
    pub(crate) fn enter(&self, pid: u32) -> Result<(), GroupError> {
        match self {
            MemoryGroup::V1 { folder } => write(&folder.join("cgroup.procs"), &pid.to_string()),
            MemoryGroup::Scope { .. } => Ok(()),
        }
    }

    /// The most memory that the group of `pid` ever had, page cache included, in bytes.
    pub(crate) fn peak_bytes(&self, pid: u32) -> Option<u64> {
        let path = match self {
            MemoryGroup::V1 { folder } => folder.join("memory.max_usage_in_bytes"),
            MemoryGroup::Scope { .. } => {
                let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
                let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
                Path::new("/sys/fs/cgroup").join(path).join("memory.peak")
            }
        };
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let MemoryGroup::V1 { folder } = self {
            // What page cache is left moves to the group above; the kernel may still be taking the process down.
            for _ in 0..20 {
                let _ = std::fs::write(folder.join("memory.force_empty"), "0");
                if std::fs::remove_dir(&*folder).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            eprintln!("note: control group {} is still in use and stays", folder.display());
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), GroupError> {
    std::fs::write(path, text).map_err(|cause| GroupError::Write { path: path.to_owned(), cause })
}

/// Our group in the memory controller's hierarchy of version 1, relative to its root; `None` if that is not in use.
fn memory_v1(proc_cgroup: &str) -> Option<&str> {
    proc_cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|c| c == "memory").then(|| path.trim_start_matches('/'))
    })
}

/// The limit of the memory group that this process is in, in bytes, if it has one.
pub(crate) fn memory_limit() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let hierarchy = Path::new("/sys/fs/cgroup");
    let file = match memory_v1(&own) {
        Some(own) => hierarchy.join("memory").join(own).join("memory.limit_in_bytes"),
        None => {
            let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
            hierarchy.join(own).join("memory.max")
        }
    };
    // Without a limit there is `max`, or in version 1 a number beyond all memory.
    let limit = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit < 1 << 60).then_some(limit)
}

/// Bytes of a size such as `512M` or `2.5G` (binary multiples) or a plain number.
///
/// # Errors
/// In words, for the command line.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}` is no size; expected for example 512M or 2.5G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(expected()),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    let bytes = number * (1_u64 << shift) as f64;
    if !(1.0..9e15).contains(&bytes) {
        return Err(expected());
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2.5GiB"), Ok(5 << 29));
        assert_eq!(parse_size("4096"), Ok(4096));
        for wrong in ["", "G", "-1G", "1X", "NaN", "1e300G", "0"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_memory_hierarchy_is_found() {
        let v1 = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n";
        assert_eq!(memory_v1(v1), Some("a/b"));
        assert_eq!(memory_v1("0::/user.slice\n"), None);
        assert_eq!(memory_v1("4:memory_pressure:/x\n"), None);
    }

    #[test]
    fn a_scope_names_the_limit_before_the_program() {
        let group = MemoryGroup::Scope { limit_bytes: 1 << 30 };
        let command = group.command(OsStr::new("python"), &["driver.py".into()]);
        let line: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        assert_eq!(command.get_program(), "systemd-run");
        assert!(line.join(" ").ends_with("--property=MemorySwapMax=0 -- python driver.py"));
        assert!(line.contains(&"--property=MemoryMax=1073741824".into()));
    }
}
