//! Routed experts: `down_e(silu(gate_e x) ⊙ (up_e x))` for the tokens routed to each.

use crate::matmul::Inputs;
use crate::{Ctx, Op, Rows};
use arrayvec::ArrayVec;
use esker_kernels::act::act_format;
use esker_kernels::matmul::{self as kernel, Job, Weights};
use esker_quant::GgmlType;

/// Experts that are computed in one pool round; more take more rounds. Covers the ten of a token of the largest model
/// known here with room to spare.
pub const EXPERTS_PER_ROUND: usize = 32;

/// The three matrices of one expert, wherever they are.
#[derive(Clone, Copy)]
pub struct ExpertWeights<'a> {
    /// `[n_ff, n_embd]`
    pub gate: Weights<'a>,
    /// `[n_ff, n_embd]`
    pub up: Weights<'a>,
    /// `[n_embd, n_ff]`
    pub down: Weights<'a>,
}

/// One expert and what it is applied to.
#[derive(Clone, Copy)]
pub struct ExpertCall<'a> {
    /// Its matrices.
    pub weights: ExpertWeights<'a>,
    /// Rows of the input that are routed to it.
    pub tokens: &'a [u32],
    /// For each of `tokens`, the row of the output that its result goes to.
    pub out_rows: &'a [u32],
}

/// The layer's input, rounded once for all of its experts.
pub struct ExpertInput<'a> {
    ctx: &'a Ctx,
    inputs: Inputs<'a>,
    pairs_max: usize,
}

/// Rounds `x` (`[n_tokens, n_embd]`) as the gate and up matrices of types `tys` ask for and lends it to `body`, which will
/// ask for at most `pairs_max` results at a time.
///
/// Inside `body` only [`ExpertInput::swiglu`] and elementwise operations may be used: the context's activation
/// buffers are taken.
pub fn with_expert_input<R>(
    ctx: &Ctx,
    x: &Rows,
    tys: &[GgmlType],
    pairs_max: usize,
    body: impl FnOnce(&ExpertInput<'_>) -> R,
) -> R {
    let timer = ctx.time(Op::ExpertsUp);
    let mut bufs = ctx.acts.borrow_mut();
    let inputs = Inputs::new(ctx, &mut bufs, tys.iter().map(|&ty| act_format(ty)), x.data(), x.n_cols());
    drop(timer);
    body(&ExpertInput { ctx, inputs, pairs_max })
}

impl ExpertInput<'_> {
    /// Computes `calls` (at most [`EXPERTS_PER_ROUND`], with at most `pairs_max` tokens in all); each result goes to its own rows of `out`, `[.., n_embd]`, so
    /// that the order in which experts become ready cannot change a bit of the sum that is formed later.
    pub fn swiglu(&self, calls: &[ExpertCall<'_>], out: &mut Rows) {
        let Some(first) = calls.first() else { return };
        assert!(calls.len() <= EXPERTS_PER_ROUND, "{} experts in one round", calls.len());
        let n_ff = first.weights.gate.n_rows;
        let n_embd = first.weights.down.n_rows;
        assert_eq!(out.n_cols(), n_embd, "expert results are rows of n_embd");
        let n_pairs: usize = calls.iter().map(|c| c.tokens.len()).sum();
        assert!(n_pairs <= self.pairs_max, "{n_pairs} pairs in a round made for {}", self.pairs_max);
        // Always the same shapes, whatever the routing: so that scratch memory can be planned.
        let timer = self.ctx.time(Op::ExpertsUp);
        let mut gate = self.ctx.rows(self.pairs_max, n_ff);
        let mut up = self.ctx.rows(self.pairs_max, n_ff);
        {
            let mut jobs: ArrayVec<Job<'_>, { 2 * EXPERTS_PER_ROUND }> = ArrayVec::new();
            let (mut gate_rest, mut up_rest) = (gate.data_mut(), up.data_mut());
            for call in calls {
                let n = call.tokens.len() * n_ff;
                let (gate_out, rest) = gate_rest.split_at_mut(n);
                gate_rest = rest;
                let (up_out, rest) = up_rest.split_at_mut(n);
                up_rest = rest;
                for (weights, out) in [(call.weights.gate, gate_out), (call.weights.up, up_out)] {
                    self.ctx.profile().read_weights(weights.bytes.len());
                    let acts = self.inputs.get(act_format(weights.ty));
                    jobs.push(Job { weights, acts, tokens: Some(call.tokens), out });
                }
            }
            kernel::matmul(&self.ctx.pool, &mut jobs);
        }
        let mut hidden = up;
        let used = n_pairs * n_ff;
        esker_kernels::silu_mul_in_place(
            &self.ctx.pool,
            &mut hidden.data_mut()[..used],
            &gate.data()[..used],
        );
        drop(gate);
        drop(timer);
        let _timer = self.ctx.time(Op::ExpertsDown);
        let mut bufs = self.ctx.hidden_acts.borrow_mut();
        let formats = calls.iter().map(|c| act_format(c.weights.down.ty));
        let inputs = Inputs::new(self.ctx, &mut bufs, formats, &hidden.data()[..used], n_ff);
        let mut down = self.ctx.rows(self.pairs_max, n_embd);
        let rows = self.ctx.row_numbers(self.pairs_max);
        {
            let mut jobs: ArrayVec<Job<'_>, EXPERTS_PER_ROUND> = ArrayVec::new();
            let mut down_rest = down.data_mut();
            let mut first_row = 0;
            for call in calls {
                let n = call.tokens.len();
                let (out, rest) = down_rest.split_at_mut(n * n_embd);
                down_rest = rest;
                let acts = inputs.get(act_format(call.weights.down.ty));
                self.ctx.profile().read_weights(call.weights.down.bytes.len());
                let tokens = Some(&rows[first_row..first_row + n]);
                jobs.push(Job { weights: call.weights.down, acts, tokens, out });
                first_row += n;
            }
            kernel::matmul(&self.ctx.pool, &mut jobs);
        }
        let to: ArrayVec<&[u32], EXPERTS_PER_ROUND> = calls.iter().map(|call| call.out_rows).collect();
        esker_kernels::scatter_rows(&self.ctx.pool, down.data(), &to, out.data_mut(), n_embd);
    }
}
