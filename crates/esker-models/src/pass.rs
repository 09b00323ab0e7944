//! One forward pass: what every block of every architecture is handed.

use crate::blocks::moe::{Grouping, RoutingMoved};
use crate::state::{LayerState, SequenceState};
use crate::store::{ExpertStore, StoreError, TableId};
use crate::usage::ExpertUse;
use esker_ops::{Ctx, Matrix, Op, Rows, SelectScratch, matmul};
use std::ops::Range;

/// Which tokens' logits a pass returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// None: a prompt's earlier chunks.
    None,
    /// The last token's, `[1, n_vocab]`.
    Last,
    /// Every token's, `[n_tokens, n_vocab]`.
    All,
}

impl Output {
    /// Rows of logits for a sequence that feeds `n_tokens`.
    pub fn n_rows(self, n_tokens: usize) -> usize {
        match self {
            Output::None => 0,
            Output::Last => n_tokens.min(1),
            Output::All => n_tokens,
        }
    }
}

/// One sequence's part of a pass: its rows are consecutive, those of the segments before it come first.
pub struct Segment<'a> {
    /// Tokens at positions `state.n_past..`; at least one.
    pub tokens: &'a [u32],
    /// What the sequence carries.
    pub state: &'a mut SequenceState,
    /// Which of its tokens' logits are wanted.
    pub output: Output,
}

/// Buffers that a model keeps from pass to pass, so that a decode step allocates nothing.
#[derive(Default)]
pub struct Scratch {
    grouping: Grouping,
    rows: Vec<u64>,
    select: SelectScratch,
    usage: ExpertUse,
}

impl Scratch {
    /// Memory held, bytes.
    pub fn bytes(&self) -> usize {
        self.grouping.bytes() + self.rows.capacity() * 8 + self.select.bytes() + self.usage.bytes()
    }

    /// Gives back what grows with the number of tokens.
    pub fn trim(&mut self) {
        self.grouping = Grouping::default();
        self.rows = Vec::new();
        self.select = SelectScratch::default();
    }

    /// Which experts passes have used.
    pub fn usage(&self) -> &ExpertUse {
        &self.usage
    }
}

/// What a pass runs with.
pub struct Pass<'a> {
    /// Threads and scratch memory.
    pub ctx: &'a Ctx,
    /// Experts and tables.
    pub store: &'a mut dyn ExpertStore,
    /// What cache-aware routing changed; summed up.
    pub moved: &'a mut RoutingMoved,
    /// Every sequence feeds one token.
    pub(crate) is_decode: bool,
    pub(crate) grouping: &'a mut Grouping,
    pub(crate) select: &'a mut SelectScratch,
    pub(crate) usage: &'a mut ExpertUse,
    table_rows: &'a mut Vec<u64>,
}

impl<'a> Pass<'a> {
    /// A pass over `segments`.
    pub fn new(
        ctx: &'a Ctx,
        store: &'a mut dyn ExpertStore,
        scratch: &'a mut Scratch,
        moved: &'a mut RoutingMoved,
        segments: &[Segment<'_>],
    ) -> Result<Pass<'a>, StoreError> {
        let is_decode = segments.iter().all(|s| s.tokens.len() == 1);
        store.begin_pass(n_rows(segments), is_decode)?;
        let Scratch { grouping, rows: table_rows, select, usage } = scratch;
        usage.begin_pass(store.layout());
        Ok(Pass { ctx, store, moved, is_decode, grouping, select, usage, table_rows })
    }

    /// The embedding of every segment's tokens, `[n_rows, n_cols]`.
    pub fn embed(&mut self, table: TableId, segments: &[Segment<'_>]) -> Result<Rows, StoreError> {
        self.table_rows(table, |rows| {
            rows.extend(segments.iter().flat_map(|s| s.tokens).map(|&id| u64::from(id)));
        })
    }

    /// The table rows that `fill` names, `[rows, n_cols]`.
    pub fn table_rows(
        &mut self,
        table: TableId,
        fill: impl FnOnce(&mut Vec<u64>),
    ) -> Result<Rows, StoreError> {
        let _timer = self.ctx.time(Op::Embed);
        self.table_rows.clear();
        fill(self.table_rows);
        let n_cols = self.store.layout().tables[table.0].n_cols;
        let mut out = self.ctx.rows(self.table_rows.len(), n_cols);
        self.store.rows(table, self.table_rows, out.data_mut())?;
        Ok(out)
    }
}

/// Rows of all segments.
pub(crate) fn n_rows(segments: &[Segment<'_>]) -> usize {
    segments.iter().map(|s| s.tokens.len()).sum()
}

/// The position in its sequence of every row.
pub(crate) fn positions(segments: &[Segment<'_>]) -> impl Iterator<Item = usize> {
    segments.iter().flat_map(|s| s.state.n_past..s.state.n_past + s.tokens.len())
}

/// Every segment with its rows.
pub(crate) fn with_rows<'s, 'a>(
    segments: &'s mut [Segment<'a>],
) -> impl Iterator<Item = (Range<usize>, &'s mut Segment<'a>)> {
    let mut end = 0;
    segments.iter_mut().map(move |segment| {
        let start = end;
        end += segment.tokens.len();
        (start..end, segment)
    })
}

/// Every segment's rows with the state of its layer `il`.
pub(crate) fn of_layer<'s>(
    segments: &'s mut [Segment<'_>],
    il: usize,
) -> impl Iterator<Item = (Range<usize>, &'s mut LayerState)> {
    with_rows(segments).map(move |(rows, segment)| (rows, &mut segment.state.layers[il]))
}

/// The pass is over: every sequence has consumed its tokens.
pub(crate) fn advance(segments: &mut [Segment<'_>]) {
    for segment in segments {
        segment.state.n_past += segment.tokens.len();
    }
}

/// The rows of `x` whose logits are asked for, in order; `None` if none are.
pub(crate) fn output_rows(ctx: &Ctx, x: Rows, segments: &[Segment<'_>]) -> Option<Rows> {
    let n = segments.iter().map(|s| s.output.n_rows(s.tokens.len())).sum();
    if n == 0 {
        return None;
    }
    if n == x.n_rows() {
        return Some(x);
    }
    let mut end = 0;
    let wanted = segments.iter().flat_map(move |s| {
        end += s.tokens.len();
        end - s.output.n_rows(s.tokens.len())..end
    });
    Some(esker_ops::gather_rows(ctx, &x, n, wanted))
}

/// The product with the output matrix: `[n_tokens, n_embd]`, normed, to `[n_tokens, n_vocab]`.
pub(crate) fn logits(ctx: &Ctx, output: &Matrix, x: &Rows) -> Rows {
    let _timer = ctx.time(Op::Output);
    matmul(ctx, output, x)
}
