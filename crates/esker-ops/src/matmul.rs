//! Products of activations with weight matrices.

use crate::{Ctx, Matrix, Op, Rows};
use arrayvec::ArrayVec;
use esker_kernels::act::{ActBuf, ActFormat, Acts, act_format};
use esker_kernels::matmul::{self as kernel, Job};

/// `x · wᵀ`: `[n_tokens, n_in]` by `[n_out, n_in]` gives `[n_tokens, n_out]`.
pub fn matmul(ctx: &Ctx, w: &Matrix, x: &Rows) -> Rows {
    let [out] = matmul_many(ctx, [w], x);
    out
}

/// Several products of the same activations in one pool round; the activations are rounded once per format.
pub fn matmul_many<const N: usize>(ctx: &Ctx, ws: [&Matrix; N], x: &Rows) -> [Rows; N] {
    let _timer = ctx.time(Op::Matmul);
    for w in ws {
        assert_eq!(
            w.n_cols(),
            x.n_cols(),
            "weights [{}, {}] times rows of {}",
            w.n_rows(),
            w.n_cols(),
            x.n_cols()
        );
    }
    let mut outs = ws.map(|w| ctx.rows(x.n_rows(), w.n_rows()));
    let mut bufs = ctx.acts.borrow_mut();
    let inputs = Inputs::new(ctx, &mut bufs, ws.iter().map(|w| act_format(w.ty())), x.data(), x.n_cols());
    let mut jobs: ArrayVec<Job<'_>, N> = ArrayVec::new();
    for (w, out) in ws.iter().zip(&mut outs) {
        let acts = inputs.get(act_format(w.ty()));
        ctx.profile().read_weights(w.weights().bytes.len());
        jobs.push(Job { weights: w.weights(), acts, tokens: None, out: out.data_mut() });
    }
    kernel::matmul(&ctx.pool, &mut jobs);
    drop(jobs);
    outs
}

/// Memory for one set of activations in each format.
#[derive(Default)]
pub(crate) struct Roundings {
    f32: ActBuf,
    q8x32: ActBuf,
    q8x256: ActBuf,
}

impl Roundings {
    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.f32.bytes() + self.q8x32.bytes() + self.q8x256.bytes()
    }
}

/// Activations in each format that the weights at hand ask for.
pub(crate) struct Inputs<'a> {
    f32: Option<Acts<'a>>,
    q8x32: Option<Acts<'a>>,
    q8x256: Option<Acts<'a>>,
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(
        ctx: &Ctx,
        bufs: &'a mut Roundings,
        formats: impl Iterator<Item = ActFormat> + Clone,
        x: &'a [f32],
        n_cols: usize,
    ) -> Inputs<'a> {
        let prepare = |buf: &'a mut ActBuf, format| {
            formats.clone().any(|f| f == format).then(|| buf.prepare(&ctx.pool, format, x, n_cols))
        };
        Inputs {
            f32: prepare(&mut bufs.f32, ActFormat::F32),
            q8x32: prepare(&mut bufs.q8x32, ActFormat::Q8x32),
            q8x256: prepare(&mut bufs.q8x256, ActFormat::Q8x256),
        }
    }

    pub(crate) fn get(&self, format: ActFormat) -> Acts<'a> {
        let acts = match format {
            ActFormat::F32 => self.f32,
            ActFormat::Q8x32 => self.q8x32,
            ActFormat::Q8x256 => self.q8x256,
        };
        acts.expect("prepared for every format of the jobs")
    }
}
