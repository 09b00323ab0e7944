//! A limit on the memory of one side, page cache that it causes included: a Linux control group.
//!
//! With version 1 of control groups a group is made below our own and the side's process moved into it before it loads
//! anything. With version 2 a process may not have groups beside it but at the root, so there the group is made if we may
//! do so; else `systemd-run` is asked for a scope.

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
    /// A folder of ours at the root of the one hierarchy of version 2.
    V2 { folder: PathBuf },
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
            None if hierarchy.join("cgroup.controllers").exists() => {
                Ok(MemoryGroup::v2(hierarchy, limit_bytes).unwrap_or_else(|why| {
                    eprintln!("note: {why}: asking systemd-run");
                    MemoryGroup::Scope { limit_bytes }
                }))
            }
            None => Err(GroupError::Unavailable),
        }
    }

    fn v1(own: &Path, limit_bytes: u64) -> Result<MemoryGroup, GroupError> {
        let folder = new_folder(own)?;
        let group = MemoryGroup::V1 { folder: folder.clone() };
        write(&folder.join("memory.limit_in_bytes"), &limit_bytes.to_string())?;
        // Memory and swap together; absent where swap is not accounted.
        let _ = write(&folder.join("memory.memsw.limit_in_bytes"), &limit_bytes.to_string());
        Ok(group)
    }

    fn v2(root: &Path, limit_bytes: u64) -> Result<MemoryGroup, GroupError> {
        write(&root.join("cgroup.subtree_control"), "+memory")?;
        let folder = new_folder(root)?;
        let group = MemoryGroup::V2 { folder: folder.clone() };
        write(&folder.join("memory.max"), &limit_bytes.to_string())?;
        // Absent where there is no swap.
        let _ = write(&folder.join("memory.swap.max"), "0");
        Ok(group)
    }

    /// The command that runs `program` with the limit, as far as a command can.
    pub(crate) fn command(&self, program: &OsStr, arguments: &[OsString]) -> Command {
        match self {
            MemoryGroup::V1 { .. } | MemoryGroup::V2 { .. } => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            MemoryGroup::Scope { limit_bytes } => {
                let mut command = Command::new("systemd-run");
                if !is_root() {
                    command.arg("--user");
                }
                command.args(["--scope", "--quiet", "--collect"]);
                command.arg(format!("--property=MemoryMax={limit_bytes}"));
                command.args(["--property=MemorySwapMax=0", "--"]).arg(program).args(arguments);
                command
            }
        }
    }

    /// Puts a process that has just started into the group.
    pub(crate) fn enter(&self, pid: u32) -> Result<(), GroupError> {
        match self {
            MemoryGroup::V1 { folder } | MemoryGroup::V2 { folder } => {
                write(&folder.join("cgroup.procs"), &pid.to_string())
            }
            MemoryGroup::Scope { .. } => Ok(()),
        }
    }

    /// The most memory that the group of `pid` ever had, page cache included, in bytes.
    pub(crate) fn peak_bytes(&self, pid: u32) -> Option<u64> {
        let path = match self {
            MemoryGroup::V1 { folder } => folder.join("memory.max_usage_in_bytes"),
            MemoryGroup::V2 { folder } => folder.join("memory.peak"),
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
        let is_v1 = matches!(self, MemoryGroup::V1 { .. });
        if let MemoryGroup::V1 { folder } | MemoryGroup::V2 { folder } = self {
            // What page cache is left moves to the group above; the kernel may still be taking the process down.
            for _ in 0..20 {
                if is_v1 {
                    let _ = std::fs::write(folder.join("memory.force_empty"), "0");
                }
                if std::fs::remove_dir(&*folder).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            eprintln!("note: control group {} is still in use and stays", folder.display());
        }
    }
}

/// A folder in `parent`, and so a group, of a name that no other run of this program takes.
fn new_folder(parent: &Path) -> Result<PathBuf, GroupError> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = parent.join(format!("esker-peer-{}-{number}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|cause| GroupError::Write { path: folder.clone(), cause })?;
    Ok(folder)
}

/// Whether this process is the superuser's: only others have a systemd of their own to ask.
#[cfg(unix)]
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
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
    fn a_group_of_version_2_is_a_folder_with_its_limit() {
        // A plain folder in the hierarchy's place: the kernel would make the files, here writing does.
        let root = tempfile::tempdir().expect("a folder");
        let group = MemoryGroup::v2(root.path(), 1 << 30).expect("made");
        let MemoryGroup::V2 { folder } = &group else { panic!("a group of version 2") };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        assert_eq!((read("memory.max"), read("memory.swap.max")), ("1073741824".to_owned(), "0".to_owned()));
        group.enter(77).expect("entered");
        assert_eq!(read("cgroup.procs"), "77");
        std::fs::write(folder.join("memory.peak"), "4096\n").expect("written");
        assert_eq!(group.peak_bytes(77), Some(4096));
        for file in ["memory.max", "memory.swap.max", "cgroup.procs", "memory.peak"] {
            std::fs::remove_file(folder.join(file)).expect(file);
        }
        let folder = folder.clone();
        drop(group);
        assert!(!folder.exists(), "gone with its last use");
        assert!(MemoryGroup::v2(&root.path().join("none"), 1).is_err());
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
