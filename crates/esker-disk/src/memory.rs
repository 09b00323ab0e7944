//! Facts about memory: what the machine and the container leave, and what this process takes.
//!
//! Facts only; what to do about them is the memory plan's business. They come from `/proc` and the cgroup file
//! systems, so except for [`page_faults`] every function returns `None` where the system is not Linux (or
//! `/proc` is hidden): there is no comparable source, and a guess would break the promise of the budget.
//! Sources: proc(5) (`meminfo`, `smaps_rollup`, `status`, `mountinfo`, `cgroup`), the kernel's
//! admin-guide/cgroup-v2 and cgroup-v1/memory.

use std::path::{Path, PathBuf};

/// What can be allocated without swapping or being killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// The smallest of the machine's and every enclosing cgroup's.
    pub bytes: u64,
    /// The machine's: `MemAvailable`, free memory plus caches that can be dropped.
    pub machine_bytes: u64,
    /// Memory of the machine: `MemTotal`.
    pub machine_total_bytes: u64,
    /// The cgroup that leaves the least, if any has a limit.
    pub cgroup: Option<CgroupLimit>,
}

/// A cgroup with a limit on memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Its folder.
    pub path: PathBuf,
    /// `memory.max` or `memory.high` (v2), whichever is smaller; `memory.limit_in_bytes` (v1).
    pub limit_bytes: u64,
    /// What its processes use, without page cache that was not touched lately, which the kernel drops first.
    pub used_bytes: u64,
}

impl CgroupLimit {
    /// What its limit leaves.
    pub fn available_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

/// Memory that this process takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Proportional set size: pages shared with other processes count by their share. The figure that budgets
    /// are compared with.
    pub pss: u64,
    /// Resident set size: shared pages count in full.
    pub rss: u64,
    /// Of `rss`: memory without a file behind it (arena, heap, stacks).
    pub anonymous: u64,
    /// Memory kept from being swapped out.
    pub locked: u64,
    /// Swapped out. Not 0 means that the budget was wrong.
    pub swap: u64,
}

/// Page faults of this process since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFaults {
    /// Served without a device: first touches, pages that were cached.
    pub minor: u64,
    /// Waited for a device: swap, or a mapped file that was not cached.
    pub major: u64,
}

/// What this process can still allocate.
pub fn available() -> Option<Available> {
    available_under(Path::new("/"))
}

/// The machine's part of [`available`] alone ([`Available::machine_bytes`]), without allocating: for looks during a run.
pub fn machine_available_bytes() -> Option<u64> {
    use std::io::Read;
    let mut text = [0; 4096];
    let n = std::fs::File::open("/proc/meminfo").ok()?.read(&mut text).ok()?;
    kilobytes(std::str::from_utf8(&text[..n]).ok()?, "MemAvailable")
}

/// What this process takes now. Costs the kernel a walk over all its pages: about 10 ms per resident GiB in
/// small pages.
pub fn footprint() -> Option<Footprint> {
    parse_footprint(&read(Path::new("/proc/self/smaps_rollup"))?)
}

/// Bytes of this process's program and libraries that are mapped and not resident: what running more of the code can
/// still add to the footprint.
pub fn untouched_program_bytes() -> Option<u64> {
    Some(parse_untouched_program(&read(Path::new("/proc/self/smaps"))?))
}

fn parse_untouched_program(smaps: &str) -> u64 {
    let mut counted = false;
    let mut untouched = 0;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            // A mapping's header: address range, permissions, offset, device, inode, path. Programs and libraries are
            // what has executable mappings; their read-only data belongs to them.
            let permissions = words.next().unwrap_or_default();
            let path = words.nth(3).unwrap_or_default();
            counted = path.starts_with('/') && (permissions.contains('x') || is_program(path));
        } else if counted {
            let bytes = words.next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024);
            match first {
                "Size:" => untouched += bytes,
                "Rss:" => untouched = untouched.saturating_sub(bytes),
                _ => {}
            }
        }
    }
    untouched
}

/// The running program itself.
fn is_program(path: &str) -> bool {
    std::env::current_exe().is_ok_and(|exe| exe == Path::new(path))
}

/// Makes large freed blocks go back to the system at once (glibc's malloc otherwise keeps more and more of them, having
/// seen them freed): what a memory plan releases has to leave the process. Elsewhere it does nothing.
pub fn return_freed_memory() {
    crate::sys::fix_malloc_thresholds();
}

/// Makes threads that start from now on share one heap (glibc's malloc otherwise gives each its own, and what one
/// thread allocates and another frees leaves ever more holes in them): for services, whose memory must not creep.
/// Elsewhere it does nothing.
pub fn share_heap() {
    crate::sys::share_heap();
}

/// The most that was ever resident of this process (`VmHWM`), in bytes.
pub fn peak_resident_bytes() -> Option<u64> {
    kilobytes(&read(Path::new("/proc/self/status"))?, "VmHWM")
}

/// Page faults so far, on any Unix.
pub fn page_faults() -> Option<PageFaults> {
    crate::sys::page_faults().map(|(minor, major)| PageFaults { minor, major })
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes of a `Name:   123 kB` line.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn parse_footprint(rollup: &str) -> Option<Footprint> {
    Some(Footprint {
        pss: kilobytes(rollup, "Pss")?,
        rss: kilobytes(rollup, "Rss")?,
        anonymous: kilobytes(rollup, "Anonymous")?,
        locked: kilobytes(rollup, "Locked")?,
        swap: kilobytes(rollup, "Swap")?,
    })
}

/// As [`available`], with every path taken below `root`.
fn available_under(root: &Path) -> Option<Available> {
    let meminfo = read(&root.join("proc/meminfo"))?;
    let machine_bytes = kilobytes(&meminfo, "MemAvailable")?;
    let cgroup = cgroup_folders(root)
        .into_iter()
        .flat_map(|group| group.limits())
        .min_by_key(CgroupLimit::available_bytes);
    Some(Available {
        bytes: cgroup.as_ref().map_or(machine_bytes, |group| group.available_bytes().min(machine_bytes)),
        machine_bytes,
        machine_total_bytes: kilobytes(&meminfo, "MemTotal")?,
        cgroup,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The folder of the process's memory cgroup, and where its hierarchy begins.
#[derive(Debug, PartialEq, Eq)]
struct CgroupFolder {
    version: Version,
    mount: PathBuf,
    folder: PathBuf,
}

/// Finds the process's cgroups that can limit memory: at most one per mounted hierarchy.
fn cgroup_folders(root: &Path) -> Vec<CgroupFolder> {
    let (Some(groups), Some(mounts)) =
        (read(&root.join("proc/self/cgroup")), read(&root.join("proc/self/mountinfo")))
    else {
        return Vec::new();
    };
    let folder_of = |mount: &str| {
        let (version, within, mount) = parse_mount(mount)?;
        let path = groups.lines().find_map(|line| parse_group(line, version))?;
        // A mount can show only a part of the hierarchy (a container's); what is outside cannot be seen.
        let below = Path::new(path).strip_prefix(within).unwrap_or(Path::new(""));
        let climbs = below.components().any(|part| part == std::path::Component::ParentDir);
        let mount = root.join(mount.strip_prefix('/')?);
        let folder = if climbs { mount.clone() } else { mount.join(below) };
        Some(CgroupFolder { version, mount, folder })
    };
    mounts.lines().filter_map(folder_of).collect()
}

/// Of a line of `mountinfo` that mounts memory cgroups: (version, root within the hierarchy, mount point).
fn parse_mount(line: &str) -> Option<(Version, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (within, mount) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let version = match (after.next()?, after.nth(1)?) {
        ("cgroup2", _) => Version::V2,
        ("cgroup", options) if options.split(',').any(|option| option == "memory") => Version::V1,
        _ => return None,
    };
    Some((version, within, mount))
}

/// Of a line of `cgroup` (`id:controllers:path`) for that version: the path.
fn parse_group(line: &str, version: Version) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let wanted = match version {
        Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
        Version::V2 => controllers.is_empty(),
    };
    wanted.then_some(path)
}

impl CgroupFolder {
    /// The limits of the folder and of everything above it: all of them hold.
    fn limits(&self) -> Vec<CgroupLimit> {
        let folders = self.folder.ancestors().take_while(|folder| folder.starts_with(&self.mount));
        folders.filter_map(|folder| self.limit_of(folder)).collect()
    }

    fn limit_of(&self, folder: &Path) -> Option<CgroupLimit> {
        let (limits, usage, inactive): (&[&str], _, _) = match self.version {
            Version::V1 => (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_inactive_file "),
            Version::V2 => (&["memory.max", "memory.high"], "memory.current", "inactive_file "),
        };
        let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
        // "max" is no number; version 1 says "no limit" by one that no machine has.
        let limit_bytes =
            limits.iter().filter_map(|name| number(name)).filter(|&limit| limit < 1 << 62).min()?;
        let inactive_bytes = read(&folder.join("memory.stat"))
            .and_then(|stat| stat.lines().find_map(|line| line.strip_prefix(inactive)?.parse::<u64>().ok()));
        let used_bytes = number(usage)?.saturating_sub(inactive_bytes.unwrap_or(0));
        Some(CgroupLimit { path: folder.into(), limit_bytes, used_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24651484 kB\nMemFree:  100 kB\nMemAvailable:    8000000 kB\n";

    /// A file system root with these files.
    fn root_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn untouched_program_is_size_less_resident_of_code() {
        let smaps = "\
55d0-55e0 r-xp 00001000 fe:00 77 /usr/bin/tool\nSize:  100 kB\nRss:  40 kB\nVmFlags: rd ex\n\
55e0-55f0 rw-p 00002000 fe:00 77 /usr/bin/tool\nSize:  8 kB\nRss:  8 kB\n\
7f00-7f10 r--s 00000000 fe:00 99 /models/a.gguf\nSize:  9000 kB\nRss:  0 kB\n\
7f10-7f20 r-xp 00000000 fe:00 78 /lib/libc.so\nSize:  50 kB\nRss:  50 kB\n\
7f20-7f30 rw-p 00000000 00:00 0 \nSize:  500 kB\nRss:  0 kB\n\
7fff-8000 r-xp 00000000 00:00 0 [vdso]\nSize:  8 kB\nRss:  0 kB\n";
        assert_eq!(parse_untouched_program(smaps), 60 << 10);
        assert_eq!(parse_untouched_program("nonsense\nSize:\n"), 0);
    }

    #[test]
    fn without_cgroups_the_machine_decides() {
        let root = root_with(&[("proc/meminfo", MEMINFO)]);
        let available = available_under(root.path()).unwrap();
        assert_eq!(available.bytes, 8_000_000 * 1024);
        assert_eq!(available.machine_total_bytes, 24_651_484 * 1024);
        assert_eq!(available.cgroup, None);
        assert_eq!(available_under(Path::new("/no/such/root")), None);
    }

    #[test]
    fn version_2_takes_the_tightest_level_and_ignores_droppable_cache() {
        let root = root_with(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/user.slice/app.scope\n"),
            (
                "proc/self/mountinfo",
                "24 1 0:22 / /proc rw - proc proc rw\n35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/user.slice/memory.max", "6000000\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "5000000\n"),
            ("sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 1500000\n"),
            ("sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/app.scope/memory.high", "9000000\n"),
            ("sys/fs/cgroup/user.slice/app.scope/memory.current", "100\n"),
        ]);
        let available = available_under(root.path()).unwrap();
        let group = available.cgroup.unwrap();
        assert_eq!(group.path, root.path().join("sys/fs/cgroup/user.slice"));
        assert_eq!((group.limit_bytes, group.used_bytes), (6_000_000, 3_500_000));
        assert_eq!(available.bytes, 2_500_000);
    }

    #[test]
    fn version_1_inside_a_container_sees_only_its_own_mount() {
        let root = root_with(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "5:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n"),
            (
                "proc/self/mountinfo",
                "36 35 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n"),
        ]);
        let available = available_under(root.path()).unwrap();
        assert_eq!(available.bytes, 2_000_000 - 400_000);
    }

    #[test]
    fn absent_limits_and_odd_files_are_no_limits() {
        let root = root_with(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "nonsense\n4:memory:/../..\n"),
            ("proc/self/mountinfo", "nonsense - x\n36 35 0:31 / /cg rw - cgroup cgroup rw,memory\n"),
            ("cg/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory.usage_in_bytes", "500000\n"),
        ]);
        let available = available_under(root.path()).unwrap();
        assert_eq!(available.cgroup, None);
        assert_eq!(available.bytes, available.machine_bytes);
    }

    #[test]
    fn rollup_fields_are_not_confused_with_their_longer_names() {
        let text = "5576-7ffe ---p 0 00:00 0 [rollup]\nRss: 1756 kB\nPss: 267 kB\nPss_Dirty: 108 kB\n\
                    Anonymous: 108 kB\nSwap: 3 kB\nSwapPss: 2 kB\nLocked: 8 kB\n";
        let expect = Footprint {
            pss: 267 << 10,
            rss: 1756 << 10,
            anonymous: 108 << 10,
            locked: 8 << 10,
            swap: 3 << 10,
        };
        assert_eq!(parse_footprint(text), Some(expect));
        assert_eq!(parse_footprint("Rss: many kB"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_grows_by_what_it_touches() {
        const BYTES: usize = 32 << 20;
        let before = footprint().unwrap();
        let faults_before = page_faults().unwrap();
        let mut buffer = crate::Arena::new(BYTES).unwrap().carve([BYTES]).remove(0);
        buffer.fill(1);
        let after = footprint().unwrap();
        // Other tests run beside this one, so only a lower bound with some room holds.
        assert!(after.anonymous >= before.anonymous + BYTES as u64 * 3 / 4, "{before:?} {after:?}");
        assert!(peak_resident_bytes().unwrap() >= BYTES as u64);
        assert!(page_faults().unwrap().minor > faults_before.minor);
        let available = available().unwrap();
        assert!(0 < available.bytes && available.bytes <= available.machine_total_bytes);
    }
}
