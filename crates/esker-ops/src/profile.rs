//! Where the time of forward passes goes, operation by operation.
//!
//! Off by default; then an operation costs one look at a flag. Operations may contain others (the shared expert its
//! products): time counts for the outermost one that is timed, so that the parts add up.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// What time is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Rows of the embedding and of other tables.
    Embed,
    /// Norms of rows and of heads.
    Norm,
    /// Products with dense weights, unless they are part of something below.
    Matmul,
    /// Rotary position embedding.
    Rope,
    /// Storing keys and values.
    KvStore,
    /// Scores, softmax and sum over values.
    Attention,
    /// Choice of the blocks that sparse attention looks at.
    Indexer,
    /// The gated delta rule.
    DeltaNet,
    /// Short convolutions.
    Conv,
    /// Mixing of residual streams.
    Streams,
    /// Activations, gates, sums.
    Elementwise,
    /// Router logits, softmax and top-k.
    Router,
    /// Gate and up matrices of routed experts, and their activation.
    ExpertsUp,
    /// Down matrices of routed experts.
    ExpertsDown,
    /// The weighted sum of the experts' results.
    ExpertsSum,
    /// The expert that every token uses.
    SharedExpert,
    /// Asking the store for experts, prediction included.
    Request,
    /// Waiting until experts are in memory.
    Wait,
    /// The product with the output matrix.
    Output,
    /// Drawing tokens.
    Sampling,
}

impl Op {
    /// All, in the order in which they are shown.
    pub const ALL: [Op; 20] = [
        Op::Embed,
        Op::Norm,
        Op::Matmul,
        Op::Rope,
        Op::KvStore,
        Op::Attention,
        Op::Indexer,
        Op::DeltaNet,
        Op::Conv,
        Op::Streams,
        Op::Elementwise,
        Op::Router,
        Op::ExpertsUp,
        Op::ExpertsDown,
        Op::ExpertsSum,
        Op::SharedExpert,
        Op::Request,
        Op::Wait,
        Op::Output,
        Op::Sampling,
    ];

    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Embed => "embed",
            Op::Norm => "norm",
            Op::Matmul => "matmul",
            Op::Rope => "rope",
            Op::KvStore => "kv_store",
            Op::Attention => "attention",
            Op::Indexer => "indexer",
            Op::DeltaNet => "delta_net",
            Op::Conv => "conv",
            Op::Streams => "streams",
            Op::Elementwise => "elementwise",
            Op::Router => "router",
            Op::ExpertsUp => "experts_up",
            Op::ExpertsDown => "experts_down",
            Op::ExpertsSum => "experts_sum",
            Op::SharedExpert => "shared_expert",
            Op::Request => "request",
            Op::Wait => "wait",
            Op::Output => "output",
            Op::Sampling => "sampling",
        }
    }
}

/// Which table time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Passes over several tokens.
    Prefill,
    /// Passes over one token for each sequence.
    Decode,
}

/// What was counted for one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTime {
    /// Times it ran.
    pub calls: u64,
    /// How long in all.
    pub time: Duration,
    /// Bytes of weights that products read, each matrix once per product.
    pub weight_bytes: u64,
}

/// All passes of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTime {
    /// Tokens that went through.
    pub tokens: u64,
    /// How long in all: operations, and what is between them.
    pub time: Duration,
}

/// Times of all operations. Part of a [`crate::Ctx`].
pub struct Profile {
    on: Cell<bool>,
    phase: Cell<Phase>,
    open: Cell<Option<Op>>,
    passes: [Cell<PassTime>; 2],
    tables: [[Cell<OpTime>; Op::ALL.len()]; 2],
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            on: Cell::new(false),
            phase: Cell::new(Phase::Prefill),
            open: Cell::new(None),
            passes: std::array::from_fn(|_| Cell::default()),
            tables: std::array::from_fn(|_| std::array::from_fn(|_| Cell::default())),
        }
    }
}

impl Profile {
    /// Begins to count.
    pub fn turn_on(&self) {
        self.on.set(true);
    }

    /// True if time is counted.
    pub fn is_on(&self) -> bool {
        self.on.get()
    }

    /// What follows belongs to `phase`.
    pub fn begin(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Adds a pass over `tokens` tokens to the phase at hand.
    pub fn end_pass(&self, tokens: usize, time: Duration) {
        let cell = &self.passes[self.phase.get() as usize];
        let PassTime { tokens: before, time: so_far } = cell.get();
        cell.set(PassTime { tokens: before + tokens as u64, time: so_far + time });
    }

    /// All passes of `phase`.
    pub fn passes(&self, phase: Phase) -> PassTime {
        self.passes[phase as usize].get()
    }

    /// What was counted for `op` in `phase`.
    pub fn of(&self, phase: Phase, op: Op) -> OpTime {
        self.tables[phase as usize][op as usize].get()
    }

    /// Counts the time until the timer is dropped for `op`, unless an outer one counts it already.
    pub fn time(&self, op: Op) -> OpTimer<'_> {
        let start = (self.on.get() && self.open.get().is_none()).then(Instant::now);
        if start.is_some() {
            self.open.set(Some(op));
        }
        OpTimer { profile: self, start }
    }

    /// Counts weights for the operation that is being timed.
    pub fn read_weights(&self, bytes: usize) {
        if let Some(op) = self.open.get() {
            self.change(op, |entry| entry.weight_bytes += bytes as u64);
        }
    }

    fn change(&self, op: Op, f: impl FnOnce(&mut OpTime)) {
        let cell = &self.tables[self.phase.get() as usize][op as usize];
        let mut entry = cell.get();
        f(&mut entry);
        cell.set(entry);
    }
}

/// Ends the time of an operation when dropped.
pub struct OpTimer<'a> {
    profile: &'a Profile,
    start: Option<Instant>,
}

impl Drop for OpTimer<'_> {
    fn drop(&mut self) {
        let Some(start) = self.start else { return };
        let Some(op) = self.profile.open.take() else { return };
        self.profile.change(op, |entry| {
            entry.calls += 1;
            entry.time += start.elapsed();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_order() {
        for (i, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, i);
        }
    }

    #[test]
    fn the_outer_operation_counts() {
        let profile = Profile::default();
        drop(profile.time(Op::Norm));
        assert_eq!(profile.of(Phase::Prefill, Op::Norm), OpTime::default(), "off by default");
        profile.turn_on();
        profile.begin(Phase::Decode);
        {
            let _outer = profile.time(Op::SharedExpert);
            let _inner = profile.time(Op::Matmul);
            profile.read_weights(10);
        }
        drop(profile.time(Op::Matmul));
        let shared = profile.of(Phase::Decode, Op::SharedExpert);
        assert_eq!((shared.calls, shared.weight_bytes), (1, 10));
        let matmul = profile.of(Phase::Decode, Op::Matmul);
        assert_eq!((matmul.calls, matmul.weight_bytes), (1, 0));
        assert_eq!(profile.of(Phase::Prefill, Op::Matmul), OpTime::default());
    }
}
