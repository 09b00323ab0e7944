//! Moving average in which the credit is the inverse of the router's rank: 1 for the first, 1/2 for the
//! second, and so on past the chosen ones. An expert at the edge of the choice comes and goes; one that
//! leads the ranking stays.

use super::{Policy, Use};
use crate::evict_queue::{Band, Place};
use crate::ids::ExpertNo;
use crate::score::{Average, counts};

pub(crate) struct InverseRouterEma {
    average: Average,
    depth: u32,
}

impl InverseRouterEma {
    pub fn new(n_experts: usize, decay: f64, prompt_steps: u16, depth: u16) -> InverseRouterEma {
        InverseRouterEma { average: Average::new(n_experts, decay, prompt_steps), depth: depth.into() }
    }

    fn credit(&mut self, expert: ExpertNo, rank: u32) -> bool {
        let credited = rank < self.depth;
        if credited {
            self.average.credit(expert, 1, u64::from(rank) + 1);
        }
        credited
    }
}

impl Policy for InverseRouterEma {
    fn begin_step(&mut self) {
        self.average.step();
    }

    fn wanted(&mut self, u: Use) {
        if counts(u.phase) {
            self.credit(u.expert, u.rank);
        }
    }

    fn near(&mut self, expert: ExpertNo, rank: u32) -> bool {
        self.credit(expert, rank)
    }

    fn prompt(&mut self, expert: ExpertNo, count: u32, n_tokens: u32) -> bool {
        self.average.credit_prompt(expert, count, n_tokens);
        true
    }

    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        Place { band: Band::First, key: self.average.key(expert, stamp) }
    }
}
