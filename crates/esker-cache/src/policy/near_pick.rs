//! Moving average of uses that also credits near picks: an expert ranked just below the chosen ones is likely
//! to be chosen soon, and a use count cannot know that.

use super::{Policy, Use};
use crate::evict_queue::{Band, Place};
use crate::ids::ExpertNo;
use crate::score::{Average, counts};

pub(crate) struct NearPickEma {
    average: Average,
    depth: u32,
    near_percent: u64,
}

impl NearPickEma {
    pub fn new(n_experts: usize, decay: f64, prompt_steps: u16, depth: u16, near_percent: u8) -> NearPickEma {
        NearPickEma {
            average: Average::new(n_experts, decay, prompt_steps),
            depth: depth.into(),
            near_percent: near_percent.into(),
        }
    }
}

impl Policy for NearPickEma {
    fn begin_step(&mut self) {
        self.average.step();
    }

    fn wanted(&mut self, u: Use) {
        if counts(u.phase) {
            self.average.credit(u.expert, 1, 1);
        }
    }

    fn near(&mut self, expert: ExpertNo, rank: u32) -> bool {
        let near = rank < self.depth;
        if near {
            self.average.credit(expert, self.near_percent, 100);
        }
        near
    }

    fn prompt(&mut self, expert: ExpertNo, count: u32, n_tokens: u32) -> bool {
        self.average.credit_prompt(expert, count, n_tokens);
        true
    }

    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        Place { band: Band::First, key: self.average.key(expert, stamp) }
    }
}
