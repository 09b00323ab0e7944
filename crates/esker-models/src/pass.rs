//! One forward pass: what every block of every architecture is handed.

use crate::blocks::moe::{Grouping, RoutingMoved};
use crate::store::{ExpertStore, StoreError, TableId};
use esker_ops::{Ctx, Matrix, Op, Rows, matmul};

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

/// Buffers that a model keeps from pass to pass, so that a decode step allocates nothing.
#[derive(Default)]
pub struct Scratch {
    grouping: Grouping,
    rows: Vec<u64>,
}

/// What a pass runs with.
pub struct Pass<'a> {
    /// Threads and scratch memory.
    pub ctx: &'a Ctx,
    /// Experts and tables.
    pub store: &'a mut dyn ExpertStore,
    /// What cache-aware routing changed; summed up.
    pub moved: &'a mut RoutingMoved,
    pub(crate) grouping: &'a mut Grouping,
    table_rows: &'a mut Vec<u64>,
}

impl<'a> Pass<'a> {
    /// A pass over `n_tokens` tokens.
    pub fn new(
        ctx: &'a Ctx,
        store: &'a mut dyn ExpertStore,
        scratch: &'a mut Scratch,
        moved: &'a mut RoutingMoved,
        n_tokens: usize,
    ) -> Result<Pass<'a>, StoreError> {
        store.begin_pass(n_tokens)?;
        Ok(Pass { ctx, store, moved, grouping: &mut scratch.grouping, table_rows: &mut scratch.rows })
    }

    /// Row `ids[t]` of a table for each token: `[n_tokens, n_cols]`.
    pub fn embed(&mut self, table: TableId, ids: &[u32]) -> Result<Rows, StoreError> {
        self.table_rows(table, |rows| rows.extend(ids.iter().map(|&id| u64::from(id))))
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

/// The rows of `x` whose logits are asked for; `None` if none are.
pub(crate) fn output_rows(ctx: &Ctx, x: Rows, output: Output) -> Option<Rows> {
    match output {
        Output::None => None,
        Output::All => Some(x),
        Output::Last if x.n_rows() == 1 => Some(x),
        Output::Last => Some(esker_ops::gather_rows(ctx, &x, &[x.n_rows() - 1])),
    }
}

/// The product with the output matrix: `[n_tokens, n_embd]`, normed, to `[n_tokens, n_vocab]`.
pub(crate) fn logits(ctx: &Ctx, output: &Matrix, x: &Rows) -> Rows {
    let _timer = ctx.time(Op::Output);
    matmul(ctx, output, x)
}
