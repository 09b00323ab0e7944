//! Least frequently used with aging: counts halve at fixed intervals, so that what was popular long ago can
//! leave. Counts are kept for all experts, resident or not.

use super::{Policy, Use};
use crate::evict_queue::{Band, Place};
use crate::ids::ExpertNo;
use crate::score::{HalvingClock, Popularity, counts};

pub(crate) struct Lfu {
    clock: HalvingClock,
    popularity: Popularity,
    prompt_steps: u16,
}

impl Lfu {
    pub fn new(n_experts: usize, half_life_steps: u32, prompt_steps: u16) -> Lfu {
        Lfu {
            clock: HalvingClock::new(half_life_steps),
            popularity: Popularity::new(n_experts),
            prompt_steps,
        }
    }
}

impl Policy for Lfu {
    fn begin_step(&mut self) {
        self.clock.step();
    }

    fn wanted(&mut self, u: Use) {
        if counts(u.phase) {
            let unit = self.clock.unit();
            self.popularity.add(u.expert, unit.share(1, 1), unit.scale);
        }
    }

    fn prompt(&mut self, expert: ExpertNo, count: u32, n_tokens: u32) -> bool {
        let unit = self.clock.unit();
        let amount = unit.share(u64::from(self.prompt_steps) * u64::from(count), u64::from(n_tokens));
        self.popularity.add(expert, amount, unit.scale);
        true
    }

    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        Place { band: Band::First, key: self.popularity.key(expert, stamp) }
    }
}
