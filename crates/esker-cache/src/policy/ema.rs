//! Exponential moving average of uses; see `score.rs` for its exact definition.

use super::{Policy, Use};
use crate::evict_queue::{Band, Place};
use crate::ids::ExpertNo;
use crate::score::{Average, counts};

pub(crate) struct Ema {
    average: Average,
}

impl Ema {
    pub fn new(n_experts: usize, decay: f64, prompt_steps: u16) -> Ema {
        Ema { average: Average::new(n_experts, decay, prompt_steps) }
    }
}

impl Policy for Ema {
    fn begin_step(&mut self) {
        self.average.step();
    }

    fn wanted(&mut self, u: Use) {
        if counts(u.phase) {
            self.average.credit(u.expert, 1, 1);
        }
    }

    fn prompt(&mut self, expert: ExpertNo, count: u32, n_tokens: u32) -> bool {
        self.average.credit_prompt(expert, count, n_tokens);
        true
    }

    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        Place { band: Band::First, key: self.average.key(expert, stamp) }
    }
}
