//! Which processors the program runs on, for `--cpu-mask`.

use crate::failure::Failure;

/// Processors by number, as the system counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

/// Largest number of a processor that a mask can name: what the system's own masks hold.
const CPU_MAX: usize = 1023;

impl std::str::FromStr for CpuList {
    type Err = String;

    /// `0-3,8`: numbers and ranges.
    fn from_str(text: &str) -> Result<CpuList, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| *n <= CPU_MAX);
            match number(first).zip(number(last)) {
                Some((first, last)) if first <= last => cpus.extend(first..=last),
                _ => return Err(format!("expected numbers and ranges of 0 to {CPU_MAX}, such as `0-3,8`")),
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(CpuList(cpus))
    }
}

impl CpuList {
    /// Keeps this thread, and all that it starts from now on, on these processors.
    ///
    /// # Errors
    /// If none of them exists or may be used, or the system has no such thing.
    #[cfg(target_os = "linux")]
    pub fn apply(&self) -> Result<(), Failure> {
        let mut set = rustix::thread::CpuSet::new();
        self.0.iter().for_each(|&cpu| set.set(cpu));
        rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
            let error = std::io::Error::from(error);
            Failure::new(format_args!(
                "the program cannot be kept on the processors of `--cpu-mask`: {error}"
            ))
            .hint("`lscpu` lists the processors, `taskset -p $$` those that may be used".to_owned())
        })
    }

    /// As on Linux.
    #[cfg(not(target_os = "linux"))]
    pub fn apply(&self) -> Result<(), Failure> {
        Err(Failure::new("`--cpu-mask` needs Linux")
            .hint("`--threads` sets how many threads compute".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let check = |text: &str, expect: &[usize]| assert_eq!(text.parse(), Ok(CpuList(expect.to_vec())));
        check("0", &[0]);
        check("0-3,8", &[0, 1, 2, 3, 8]);
        check("5, 1-2,2", &[1, 2, 5]);
        for wrong in ["", "a", "3-1", "1-", "-1", "0-1024", "1;2", "99999999999999999999"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_stay_where_they_are_put() {
        // On a thread of its own: the other tests keep their processors.
        std::thread::spawn(|| {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            let first = (0..=CPU_MAX).find(|&cpu| allowed.is_set(cpu)).unwrap();
            CpuList(vec![first]).apply().unwrap();
            let now = std::thread::spawn(|| rustix::thread::sched_getaffinity(None).unwrap()).join().unwrap();
            assert_eq!((now.count(), now.is_set(first)), (1, true));
            assert!(CpuList(vec![CPU_MAX]).apply().is_err());
        })
        .join()
        .unwrap();
    }
}
