//! Dot products against weight rows: `out[t, r] = Σ_i w[r, i] · x[t, i]`, weights of any type.
//!
//! What this is not: a general matrix product. Weights are rows of quantized blocks as they lie in the file, one dot
//! product per (row, token); activations are prepared once by [`act`](crate::act).
//!
//! Meaning: `scalar` is the definition. The variants for an instruction set return the same bits for any split of
//! rows and tokens, because each element is one dot product in one canonical order.
//!
//! Reading order: [`matmul`] here, `scalar`, then `simd` (the operations of an instruction set), `kinds` (what a
//! type's codes are, in those operations) and `drive` (the loops that join them).

mod decoded;
mod drive;
mod kinds;
mod scalar;
mod simd;
#[cfg(test)]
mod tests;

pub use crate::act::{ActBuf, ActFormat, Acts, act_format};
pub use crate::isa::{Isa, IsaUnavailable, UnknownIsa, active, force_isa};

use crate::pool::Pool;
use esker_quant::GgmlType;
use std::marker::PhantomData;

/// `[n_rows, n_cols]` weights: `n_rows` rows of whole blocks of `ty`, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Element type.
    pub ty: GgmlType,
    /// Rows: outputs.
    pub n_rows: usize,
    /// Elements per row: inputs.
    pub n_cols: usize,
    /// The rows.
    pub bytes: &'a [u8],
}

impl<'a> Weights<'a> {
    /// Wraps bytes whose length has been checked when they were loaded.
    ///
    /// # Panics
    /// If `bytes` is not exactly `n_rows` rows of `n_cols` elements.
    pub fn new(ty: GgmlType, n_rows: usize, n_cols: usize, bytes: &'a [u8]) -> Weights<'a> {
        let weights = Weights { ty, n_rows, n_cols, bytes };
        weights.row_bytes();
        weights
    }

    /// Bytes per row, checked.
    fn row_bytes(&self) -> usize {
        let row = self.ty.row_bytes(self.n_cols);
        let bytes = row.and_then(|row| row.checked_mul(self.n_rows));
        let (ty, n_rows, n_cols) = (self.ty, self.n_rows, self.n_cols);
        assert_eq!(bytes, Some(self.bytes.len()), "bytes of {n_rows} rows of {n_cols} {ty}");
        row.expect("checked")
    }
}

/// One product of a [`matmul`] call.
pub struct Job<'a> {
    /// The weights.
    pub weights: Weights<'a>,
    /// Activations in the weights' [`act_format`], rows as long as the weights'.
    pub acts: Acts<'a>,
    /// Which rows of `acts`, in which order; all of them if `None`.
    pub tokens: Option<&'a [u32]>,
    /// `[n_tokens, n_rows]`, overwritten.
    pub out: &'a mut [f32],
}

/// Computes all jobs in one round of the pool.
///
/// The work is split over the weight rows of all jobs into ranges of some tens of microseconds. Allocates nothing.
/// Every output element is one canonical dot product, so its bits depend on neither the split nor the other jobs.
///
/// # Panics
/// If a job's shapes do not fit each other, the activations are in another format than [`act_format`] says, or a
/// token index is out of range.
pub fn matmul(pool: &Pool, jobs: &mut [Job<'_>]) {
    matmul_with(active(), pool, jobs);
}

/// [`matmul`] with a given variant.
pub(crate) fn matmul_with(isa: Isa, pool: &Pool, jobs: &mut [Job<'_>]) {
    jobs.iter().for_each(Job::check);
    let cost = jobs.iter().map(|job| job.by_ref().cost()).fold(0usize, usize::saturating_add);
    // Enough units for an even share, but none so small that handing it out would count.
    let unit_cost = (cost / (4 * pool.threads())).clamp(UNIT_COST_MIN, UNIT_COST_MAX);
    let n_units = jobs.iter().map(|job| job.by_ref().units(pool, unit_cost).count).sum();
    let n_jobs = jobs.len();
    let jobs = JobsPtr { start: jobs.as_mut_ptr().cast(), jobs: PhantomData };
    pool.run(n_units, 1, &|range| {
        // The units of all jobs are numbered through; find those of `range` job by job.
        let mut first = 0;
        for j in 0..n_jobs {
            // SAFETY: `j` is in range, and the jobs are borrowed by the caller for as long as the round lasts.
            let (job, out) = unsafe { jobs.get(j) };
            let units = job.units(pool, unit_cost);
            let start = range.start.clamp(first, first + units.count) - first;
            let end = range.end.clamp(first, first + units.count) - first;
            if start < end {
                let rows = start * units.rows..(end * units.rows).min(job.weights.n_rows);
                // The rows of one unit at a time: that many stay in the cache while the tokens pass.
                for start in rows.clone().step_by(units.rows) {
                    let end = rows.end.min(start + units.rows);
                    run_rows(isa, &job.rows(out, start, end));
                }
            }
            first += units.count;
        }
    });
}

/// True for types that an instruction set has a kernel for; the others are decoded to f32 first.
fn has_kernel(ty: GgmlType) -> bool {
    use GgmlType::{BF16, F16, F32};
    matches!(ty, F32 | F16 | BF16) || act_format(ty) != ActFormat::F32
}

/// Computes one range of rows.
fn run_rows(isa: Isa, rows: &Rows<'_>) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => simd::avx512::run(simd::avx512::Avx512::detect().expect("is available"), rows),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => {
            simd::avx2::vnni::run(simd::avx2::Avx2::<true>::detect().expect("is available"), rows)
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => simd::avx2::plain::run(simd::avx2::Avx2::<false>::detect().expect("is available"), rows),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => match simd::neon::Neon::<true>::detect() {
            Some(s) => simd::neon::dot::run(s, rows),
            None => simd::neon::plain::run(simd::neon::Neon::<false>::detect().expect("is available"), rows),
        },
        _ => scalar::run(rows),
    }
}

/// `array::map` that ends up inside its caller. The standard one is not always inlined, and what it calls is then
/// compiled without the target features: so slow that it shows in whole products.
#[inline(always)]
fn each<T: Copy, U: Copy, const N: usize>(from: [T; N], f: impl Fn(T) -> U) -> [U; N] {
    let mut out = [f(from[0]); N];
    for i in 1..N {
        out[i] = f(from[i]);
    }
    out
}

/// A job's work in pieces of equal cost.
#[derive(Clone, Copy)]
struct Units {
    /// Weight rows per unit.
    rows: usize,
    count: usize,
}

/// Cost of a unit, in products of a weight and an activation: some 3 to 30 µs.
const UNIT_COST_MIN: usize = 128 * 1024;
const UNIT_COST_MAX: usize = 512 * 1024;
/// What decoding a weight of a type without a kernel costs, in products.
const DECODING_COST: usize = 16;
/// Weight bytes per unit: they stay in the second-level cache while the tokens pass.
const UNIT_BYTES: usize = 128 * 1024;

/// The fields of a [`Job`] that all threads read.
struct JobRef<'a> {
    weights: &'a Weights<'a>,
    acts: Acts<'a>,
    tokens: Option<&'a [u32]>,
}

struct JobsPtr<'a> {
    start: *mut Job<'static>,
    jobs: PhantomData<&'a mut [Job<'a>]>,
}

// SAFETY: the threads of a round read the jobs' fields and write disjoint parts of the outputs (`Rows::put`).
unsafe impl Sync for JobsPtr<'_> {}

impl JobsPtr<'_> {
    /// Job `j` and where its output starts.
    ///
    /// # Safety
    /// `j` must be in range, and the jobs must outlive the result.
    unsafe fn get<'b>(&self, j: usize) -> (JobRef<'b>, *mut f32) {
        // SAFETY: in range, says the caller; nobody writes the fields during a round. The output's address is read
        // from the reference without making a second reference to the output.
        unsafe {
            let job = self.start.add(j);
            let weights = &*(&raw const (*job).weights).cast::<Weights<'b>>();
            let out = (&raw const (*job).out).cast::<*mut [f32]>().read();
            (JobRef { weights, acts: (*job).acts, tokens: (*job).tokens }, out.cast())
        }
    }
}

impl Job<'_> {
    fn check(&self) {
        self.weights.row_bytes();
        let (ty, n_cols) = (self.weights.ty, self.weights.n_cols);
        assert_eq!(self.acts.n_cols(), n_cols, "activation length must match the weight row");
        assert_eq!(self.acts.format(), act_format(ty), "activation format of {ty} weights");
        let n_tokens = match self.tokens {
            None => self.acts.n_tokens(),
            Some(tokens) => {
                let in_range = |&t: &u32| (t as usize) < self.acts.n_tokens();
                assert!(tokens.iter().all(in_range), "token index out of {} rows", self.acts.n_tokens());
                tokens.len()
            }
        };
        assert_eq!(
            self.out.len(),
            n_tokens * self.weights.n_rows,
            "[{n_tokens}, {}] outputs",
            self.weights.n_rows
        );
    }

    fn by_ref(&self) -> JobRef<'_> {
        JobRef { weights: &self.weights, acts: self.acts, tokens: self.tokens }
    }
}

impl<'a> JobRef<'a> {
    fn n_tokens(&self) -> usize {
        self.tokens.map_or(self.acts.n_tokens(), <[u32]>::len)
    }

    /// In products.
    fn cost(&self) -> usize {
        self.weights.n_rows.saturating_mul(self.row_cost())
    }

    fn row_cost(&self) -> usize {
        let per_weight = self.n_tokens() + if has_kernel(self.weights.ty) { 0 } else { DECODING_COST };
        self.weights.n_cols.max(1).saturating_mul(per_weight)
    }

    fn units(&self, pool: &Pool, unit_cost: usize) -> Units {
        let n_rows = self.weights.n_rows;
        if self.n_tokens() == 0 || n_rows == 0 {
            return Units { rows: 1, count: 0 };
        }
        let row_bytes = (self.weights.bytes.len() / n_rows).max(1);
        // With many tokens a unit is long even if it has few rows. Some are wanted all the same, unless threads would
        // go without work: activations are used by all rows of a unit when they have been loaded.
        let shared = 16.min(n_rows.div_ceil(4 * pool.threads()));
        let rows = (unit_cost / self.row_cost()).min(UNIT_BYTES / row_bytes).max(shared);
        // Whole cache lines of output where that is no great change.
        let rows = if rows >= 16 { rows / 16 * 16 } else { rows };
        Units { rows, count: n_rows.div_ceil(rows) }
    }

    fn rows(&self, out: *mut f32, start: usize, end: usize) -> Rows<'a> {
        let row_bytes = self.weights.bytes.len() / self.weights.n_rows;
        Rows {
            ty: self.weights.ty,
            n_cols: self.weights.n_cols,
            n_rows: end - start,
            row_bytes,
            bytes: &self.weights.bytes[start * row_bytes..end * row_bytes],
            acts: self.acts,
            tokens: self.tokens,
            out,
            out_start: start,
            out_stride: self.weights.n_rows,
        }
    }
}

/// Some rows of one job: what a kernel works on. Shapes have been checked.
pub(crate) struct Rows<'a> {
    ty: GgmlType,
    n_cols: usize,
    n_rows: usize,
    row_bytes: usize,
    bytes: &'a [u8],
    acts: Acts<'a>,
    tokens: Option<&'a [u32]>,
    out: *mut f32,
    out_start: usize,
    out_stride: usize,
}

impl<'a> Rows<'a> {
    /// Tokens of the job.
    #[inline(always)]
    fn n_tokens(&self) -> usize {
        self.tokens.map_or(self.acts.n_tokens(), <[u32]>::len)
    }

    /// The activation row of the job's token `t`.
    #[inline(always)]
    fn act_row(&self, t: usize) -> usize {
        self.tokens.map_or(t, |tokens| tokens[t] as usize)
    }

    /// What `get` has for the activation rows of the tokens `token` to `token + N - 1`.
    #[inline(always)]
    fn of_tile<T: Copy, const N: usize>(&self, token: usize, get: impl Fn(usize) -> T) -> [T; N] {
        let mut out = [get(self.act_row(token)); N];
        for (i, out) in out.iter_mut().enumerate().skip(1) {
            *out = get(self.act_row(token + i));
        }
        out
    }

    /// The bytes of row `r`.
    #[inline(always)]
    fn row(&self, r: usize) -> &'a [u8] {
        &self.bytes[r * self.row_bytes..][..self.row_bytes]
    }

    /// Writes the result of row `r` for token `t`.
    #[inline(always)]
    fn put(&self, t: usize, r: usize, value: f32) {
        assert!(t < self.n_tokens() && r < self.n_rows);
        // SAFETY: the output has `n_tokens * out_stride` elements (`Job::check`) and `out_start + r` is one of the
        // job's rows; rows belong to one unit, and a unit to one thread.
        unsafe { *self.out.add(t * self.out_stride + self.out_start + r) = value };
    }
}
