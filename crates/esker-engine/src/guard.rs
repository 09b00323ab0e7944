//! Watches the machine's memory during a run: rather a smaller arena than swap.

use esker_disk::memory;

/// Passes between two looks.
const PASSES: u32 = 32;

/// Decides when memory has run low.
#[derive(Debug)]
pub(crate) struct Guard {
    passes: u32,
    floor: u64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// Below the floor: give memory back.
    Low {
        available: u64,
        floor: u64,
    },
}

impl Guard {
    /// The floor is a twentieth of the machine's memory, at most 1 GiB: half of what an automatic budget leaves free.
    pub(crate) fn new() -> Guard {
        let floor = memory::available().map_or(0, |a| (a.machine_total_bytes / 20).min(1 << 30));
        Guard { passes: 0, floor }
    }

    /// Looks now and then. The machine's memory counts, not a control group's: a group that is as large as the budget
    /// is meant to be full.
    pub(crate) fn look(&mut self) -> Verdict {
        self.passes += 1;
        if !self.passes.is_multiple_of(PASSES) || self.floor == 0 {
            return Verdict::Fine;
        }
        judge(memory::machine_available_bytes(), self.floor)
    }
}

fn judge(available: Option<u64>, floor: u64) -> Verdict {
    match available {
        Some(available) if available < floor => Verdict::Low { available, floor },
        _ => Verdict::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_memory_is_noticed() {
        assert_eq!(judge(Some(99), 100), Verdict::Low { available: 99, floor: 100 });
        assert_eq!(judge(Some(100), 100), Verdict::Fine);
        assert_eq!(judge(None, 100), Verdict::Fine, "where nobody says, nothing is done");
    }
}
