//! Splitting an output over the pool: each task gets elements that no other task touches.

use crate::Pool;
use crate::disjoint::Disjoint;

/// Elements that make a task worth handing to another thread when each costs about one load and one store.
pub(super) const GRAIN_MOVE: usize = 16 * 1024;
/// As [`GRAIN_MOVE`], when each element costs an exponential or a division.
pub(super) const GRAIN_EXP: usize = 4 * 1024;

/// Calls `f(first_row, rows)` on consecutive rows of `out`, together covering it; a task has at least
/// `grain` elements.
pub(super) fn for_rows<T: Send>(
    pool: &Pool,
    out: &mut [T],
    row_len: usize,
    grain: usize,
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    let n_rows = out.len() / row_len;
    debug_assert_eq!(n_rows * row_len, out.len());
    let out = Disjoint::new(out);
    pool.run(n_rows, (grain / row_len).max(1), &|rows| {
        // SAFETY: the pool's ranges do not overlap.
        let part = unsafe { out.part(rows.start * row_len..rows.end * row_len) };
        f(rows.start, part);
    });
}

/// As [`for_rows`] for operations without rows: `f(first_element, elements)`.
pub(super) fn for_elements(pool: &Pool, out: &mut [f32], grain: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    // Cuts fall on cache lines of the slice; elementwise results do not depend on where.
    const UNIT: usize = 256;
    let len = out.len();
    let out = Disjoint::new(out);
    pool.run(len.div_ceil(UNIT), grain / UNIT, &|units| {
        let range = units.start * UNIT..(units.end * UNIT).min(len);
        let first = range.start;
        // SAFETY: the pool's ranges do not overlap, so neither do these.
        f(first, unsafe { out.part(range) });
    });
}
