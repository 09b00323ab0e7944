//! `Ctx`: what every operation needs besides its operands.

use crate::matmul::Roundings;
use crate::profile::{Op, OpTimer, Profile};
use crate::rows::{FreeList, Rows};
use esker_kernels::AttnScratch;
use esker_kernels::pool::Pool;
use std::cell::RefCell;
use std::rc::Rc;

/// Called with (tensor name as in GGUF graphs, layer, value) at the points that parity tests and traces look at.
pub type ProbeFn = Box<dyn FnMut(&'static str, usize, &Rows)>;

/// Scratch memory of a context, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScratchUse {
    /// Held now.
    pub now: usize,
    /// The most that was held since the last [`Ctx::trim_scratch`].
    pub peak: usize,
}

/// Thread pool, scratch memory and probe of one engine. Owned by one thread.
pub struct Ctx {
    pub(crate) pool: Pool,
    pub(crate) free: Rc<RefCell<FreeList>>,
    /// The activations at hand, rounded.
    pub(crate) acts: RefCell<Roundings>,
    /// The same for the experts' hidden activations, rounded while the layer's input is still in use.
    pub(crate) hidden_acts: RefCell<Roundings>,
    row_numbers: RefCell<Rc<Vec<u32>>>,
    pub(crate) attn: RefCell<AttnScratch>,
    probe: RefCell<Option<ProbeFn>>,
    profile: Profile,
}

impl Ctx {
    /// A context whose operations run on `threads` threads (the calling one counts as one).
    pub fn new(threads: usize) -> Ctx {
        Ctx::with(Pool::new(threads), FreeList::default())
    }

    /// A context whose operations compute nothing and leave zeros, but take the scratch memory that those of
    /// [`Ctx::new`] would: for a memory plan. Memory is reserved and hardly touched.
    pub fn idle(threads: usize) -> Ctx {
        Ctx::with(Pool::idle(threads), FreeList { idle: true, ..FreeList::default() })
    }

    fn with(pool: Pool, free: FreeList) -> Ctx {
        Ctx {
            pool,
            free: Rc::new(RefCell::new(free)),
            acts: RefCell::default(),
            hidden_acts: RefCell::default(),
            row_numbers: RefCell::default(),
            attn: RefCell::new(AttnScratch::new()),
            probe: RefCell::new(None),
            profile: Profile::default(),
        }
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The pool, for work that is no operation on rows.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where time goes.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Counts the time until the timer is dropped for `op`; see [`Profile::time`].
    pub fn time(&self, op: Op) -> OpTimer<'_> {
        self.profile.time(op)
    }

    /// Rows with unspecified contents.
    pub fn rows(&self, n_rows: usize, n_cols: usize) -> Rows {
        Rows::take(&self.free, n_rows, n_cols)
    }

    /// Rows of zeros.
    pub fn zeros(&self, n_rows: usize, n_cols: usize) -> Rows {
        let mut rows = self.rows(n_rows, n_cols);
        rows.data_mut().fill(0.0);
        rows
    }

    /// `0..n` and possibly more: selections of consecutive rows are slices of it.
    pub(crate) fn row_numbers(&self, n: usize) -> Rc<Vec<u32>> {
        let mut numbers = self.row_numbers.borrow_mut();
        if numbers.len() < n {
            *numbers = Rc::new((0..u32::try_from(n).expect("rows are counted in u32")).collect());
        }
        numbers.clone()
    }

    /// Installs the function that sees intermediate values; `None` removes it.
    pub fn set_probe(&self, probe: Option<ProbeFn>) {
        *self.probe.borrow_mut() = probe;
    }

    /// Shows `value` to the probe, if there is one.
    pub fn probe(&self, name: &'static str, layer: usize, value: &Rows) {
        if let Some(probe) = self.probe.borrow_mut().as_mut() {
            probe(name, layer, value);
        }
    }

    /// Scratch memory held in free and used rows and in the activation and attention buffers.
    pub fn scratch(&self) -> ScratchUse {
        let list = self.free.borrow();
        let extra = self.acts.borrow().bytes()
            + self.hidden_acts.borrow().bytes()
            + self.attn.borrow().bytes()
            + self.row_numbers.borrow().len() * size_of::<u32>();
        ScratchUse { now: list.bytes + extra, peak: list.bytes_peak + extra }
    }

    /// Gives free scratch memory back to the allocator: called when a prompt has been processed.
    pub fn trim_scratch(&self) {
        let mut list = self.free.borrow_mut();
        let freed: usize = list.buffers.iter().map(|b| b.len() * size_of::<f32>()).sum();
        list.buffers = Vec::new();
        list.bytes -= freed;
        list.bytes_peak = list.bytes;
        *self.acts.borrow_mut() = Roundings::default();
        *self.hidden_acts.borrow_mut() = Roundings::default();
        *self.row_numbers.borrow_mut() = Rc::default();
        *self.attn.borrow_mut() = AttnScratch::new();
    }
}
