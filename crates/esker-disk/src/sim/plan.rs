//! What goes wrong, and when.

use crate::rng::Rng;

/// One thing that can happen to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device reports this error number (`EIO` from the rates).
    Io {
        /// The system's error number.
        errno: i32,
    },
    /// Fewer bytes arrive than were wanted, though the file has them.
    Short,
    /// One bit of the wanted bytes is wrong, and the read reports success: for checksums to find.
    WrongBytes,
    /// It completes so many ticks later than it would have.
    Delay {
        /// How many.
        ticks: u32,
    },
    /// It does not complete until [`super::SimControl::release_stalled`]. `read_now` is not affected.
    Stall,
    /// Its file is truncated (or extended) to so many bytes just before it is carried out.
    Truncate {
        /// Size of the file from then on.
        len: usize,
    },
    /// All bytes of its file are overwritten, in place, just before it is carried out.
    Rewrite,
}

/// How often faults happen by themselves: per 1000 reads, tried in the order of the fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// [`Fault::Io`] with `EIO`.
    pub io: u16,
    /// [`Fault::Short`].
    pub short: u16,
    /// [`Fault::WrongBytes`].
    pub wrong_bytes: u16,
    /// [`Fault::Stall`].
    pub stall: u16,
}

/// Everything that goes wrong in a simulation. The default is a disk that works.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Faults at random.
    pub rates: FaultRates,
    /// Every read takes 1 to `1 + delay_ticks_max` ticks.
    pub delay_ticks_max: u32,
    /// Whether a read may complete before one that was submitted earlier.
    pub reorder: bool,
    /// Faults of particular reads, by number; they replace what the rates would have given.
    pub at: Vec<(u64, Fault)>,
}

/// What a random number is for: streams that do not depend on each other, so that a change of the plan changes
/// as little as possible of the run.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Fate,
    Effect,
}

pub(super) fn rng_of(seed: u64, number: u64, purpose: Purpose) -> Rng {
    // The seed goes through the generator once, or neighbouring seeds would share their streams, shifted.
    let mixed = Rng::new(seed).next();
    Rng::new(mixed ^ number.wrapping_mul(2).wrapping_add(purpose as u64).rotate_left(32))
}

impl FaultPlan {
    /// The fault of read `number`, if any, and its delay in ticks.
    pub(super) fn fate(&self, seed: u64, number: u64) -> (Option<Fault>, u64) {
        let mut rng = rng_of(seed, number, Purpose::Fate);
        let delay = rng.below(u64::from(self.delay_ticks_max) + 1);
        let mut happens = |per_mille: u16| rng.below(1000) < u64::from(per_mille);
        let FaultRates { io, short, wrong_bytes, stall } = self.rates;
        let by_rate = [
            (happens(io), Fault::Io { errno: libc::EIO }),
            (happens(short), Fault::Short),
            (happens(wrong_bytes), Fault::WrongBytes),
            (happens(stall), Fault::Stall),
        ];
        let planned = self.at.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        match planned.or_else(|| by_rate.iter().find(|(happens, _)| *happens).map(|(_, fault)| *fault)) {
            Some(Fault::Delay { ticks }) => (Some(Fault::Delay { ticks }), delay + u64::from(ticks)),
            fault => (fault, delay),
        }
    }
}
