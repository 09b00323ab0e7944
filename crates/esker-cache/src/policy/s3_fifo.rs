//! S3-FIFO: "FIFO queues are all you need for cache eviction" (Yang et al., SOSP 2023, algorithm 1).
//!
//! New experts enter the small queue. When it holds its share, its oldest leaves: into the main queue if it
//! was used more than once meanwhile, else out, and its name into the ghost list. An expert read again while
//! its name is there enters the main queue at once. The main queue gives its oldest another round for each
//! use, up to three. Uses are decode's: a prompt passes through without a mark.
//!
//! The ghost list needs no list: an expert remembers the how-manieth it was to leave the small queue, and is a
//! ghost as long as no more than the main queue's share have left since.

use super::{Policy, Use};
use crate::evict_queue::{Band, EvictQueue, Place};
use crate::ids::{ExpertNo, Phase};
use crate::layout::Layout;

const USES_MAX: u8 = 3;

#[derive(Clone, Copy, Default)]
struct Resident {
    /// Place in its queue.
    entered: u64,
    uses: u8,
    in_main: bool,
}

struct Class {
    n_small: u32,
    n_small_max: u32,
    n_ghosts_max: u64,
    /// Experts that left the small queue for good so far.
    n_dropped: u64,
}

pub(crate) struct S3Fifo {
    residents: Vec<Resident>,
    /// Value of `n_dropped` when the expert became a ghost; 0: it is none.
    ghost: Vec<u64>,
    classes: Vec<Class>,
    entries: u64,
    small_percent: u8,
}

impl S3Fifo {
    pub fn new(layout: &Layout, n_slots: &[u32], small_percent: u8) -> S3Fifo {
        let n = layout.n_experts();
        let mut policy = S3Fifo {
            residents: vec![Resident::default(); n],
            ghost: vec![0; n],
            classes: Vec::new(),
            entries: 0,
            small_percent,
        };
        for (class, &n_slots) in n_slots.iter().enumerate() {
            policy.classes.push(Class { n_small: 0, n_small_max: 0, n_ghosts_max: 0, n_dropped: 0 });
            policy.resized(class, n_slots);
        }
        policy
    }

    fn enter(&mut self, expert: ExpertNo, uses: u8, in_main: bool) {
        self.entries += 1;
        self.residents[expert as usize] = Resident { entered: self.entries, uses, in_main };
    }

    fn requeue(&mut self, expert: ExpertNo, class: usize, uses: u8, queue: &mut EvictQueue) {
        self.enter(expert, uses, true);
        let place = self.place(expert, 0);
        queue.replace(class, expert, place);
    }
}

impl Policy for S3Fifo {
    fn wanted(&mut self, u: Use) {
        if u.has_slot && u.phase == Phase::Decode {
            let uses = &mut self.residents[u.expert as usize].uses;
            *uses = (*uses + 1).min(USES_MAX);
        }
    }

    fn loaded(&mut self, expert: ExpertNo, class: usize) {
        let c = &mut self.classes[class];
        let left = std::mem::take(&mut self.ghost[expert as usize]);
        let is_ghost = left != 0 && c.n_dropped - left < c.n_ghosts_max;
        c.n_small += u32::from(!is_ghost);
        self.enter(expert, 0, is_ghost);
    }

    fn evicted(&mut self, expert: ExpertNo, class: usize) {
        if !self.residents[expert as usize].in_main {
            let c = &mut self.classes[class];
            c.n_small -= 1;
            c.n_dropped += 1;
            self.ghost[expert as usize] = c.n_dropped;
        }
    }

    fn resized(&mut self, class: usize, n_slots: u32) {
        let n_small_max = (u64::from(n_slots) * u64::from(self.small_percent) / 100).max(1) as u32;
        let c = &mut self.classes[class];
        c.n_small_max = n_small_max;
        c.n_ghosts_max = u64::from(n_slots - n_small_max.min(n_slots)).max(1);
    }

    fn place(&self, expert: ExpertNo, _stamp: u64) -> Place {
        let r = self.residents[expert as usize];
        Place { band: if r.in_main { Band::Second } else { Band::First }, key: u128::from(r.entered) }
    }

    fn victim(&mut self, class: usize, queue: &mut EvictQueue) -> Option<ExpertNo> {
        loop {
            let small = queue.first(class, Band::First);
            let main = queue.first(class, Band::Second);
            let c = &mut self.classes[class];
            // The other queue serves when the chosen one has nobody that may go now.
            let from_small = if c.n_small >= c.n_small_max { small.is_some() } else { main.is_none() };
            if from_small {
                let expert = small?;
                if self.residents[expert as usize].uses <= 1 {
                    return Some(expert);
                }
                c.n_small -= 1;
                self.requeue(expert, class, 0, queue);
            } else {
                let expert = main?;
                let uses = self.residents[expert as usize].uses;
                if uses == 0 {
                    return Some(expert);
                }
                self.requeue(expert, class, uses - 1, queue);
            }
        }
    }
}
