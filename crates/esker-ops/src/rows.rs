//! `Rows`: activations of several tokens.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The buffers that are free for reuse. Owned by [`crate::Ctx`]; every [`Rows`] gives its buffer back when dropped, so
/// that a decode step allocates nothing once its shapes have been seen.
#[derive(Default)]
pub(crate) struct FreeList {
    pub(crate) buffers: Vec<Vec<f32>>,
    /// Bytes of all buffers made and not yet trimmed, in use or free.
    pub(crate) bytes: usize,
    pub(crate) bytes_peak: usize,
    /// Nothing is computed: buffers stay zero.
    pub(crate) idle: bool,
}

/// `[n_rows, n_cols]` activations in f32, row-major: one row per token (or per token and head, stream, rank).
pub struct Rows {
    buffer: Vec<f32>,
    n_rows: usize,
    n_cols: usize,
    home: Rc<RefCell<FreeList>>,
}

impl Rows {
    /// Contents are unspecified (NaN in debug builds): whoever takes the rows writes all of them.
    pub(crate) fn take(home: &Rc<RefCell<FreeList>>, n_rows: usize, n_cols: usize) -> Rows {
        let need = n_rows.checked_mul(n_cols).expect("activation sizes come from checked model shapes");
        let mut list = home.borrow_mut();
        // Best fit, at most twice the need: a decode step must not walk off with a prefill buffer.
        let fit = list
            .buffers
            .iter()
            .enumerate()
            .filter(|(_, b)| b.len() >= need && b.len() <= need.saturating_mul(2).max(1024))
            .min_by_key(|(_, b)| b.len())
            .map(|(i, _)| i);
        let mut buffer = match fit {
            Some(i) => list.buffers.swap_remove(i),
            None => {
                list.bytes += need * size_of::<f32>();
                list.bytes_peak = list.bytes_peak.max(list.bytes);
                vec![0.0; need]
            }
        };
        if cfg!(debug_assertions) && !list.idle {
            buffer[..need].fill(f32::NAN);
        }
        Rows { buffer, n_rows, n_cols, home: home.clone() }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements per row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// All elements, row after row.
    pub fn data(&self) -> &[f32] {
        &self.buffer[..self.n_rows * self.n_cols]
    }

    /// All elements, row after row.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.buffer[..self.n_rows * self.n_cols]
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.data()[index * self.n_cols..][..self.n_cols]
    }

    /// Row `index`.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        let n = self.n_cols;
        &mut self.data_mut()[index * n..][..n]
    }

    /// The elements of some rows.
    pub fn rows(&self, rows: Range<usize>) -> &[f32] {
        &self.data()[rows.start * self.n_cols..rows.end * self.n_cols]
    }

    /// The elements of some rows.
    pub fn rows_mut(&mut self, rows: Range<usize>) -> &mut [f32] {
        let n = self.n_cols;
        &mut self.data_mut()[rows.start * n..rows.end * n]
    }

    /// The first `n_rows` rows; the memory of the others is kept with them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn first(mut self, n_rows: usize) -> Rows {
        assert!(n_rows <= self.n_rows, "the first {n_rows} of {} rows", self.n_rows);
        self.n_rows = n_rows;
        self
    }

    /// The same elements seen with another row length.
    ///
    /// # Panics
    /// If the number of elements is no multiple of `n_cols`.
    pub fn reshaped(mut self, n_cols: usize) -> Rows {
        let elements = self.n_rows * self.n_cols;
        assert!(n_cols > 0 && elements.is_multiple_of(n_cols), "{elements} elements in rows of {n_cols}");
        self.n_rows = elements / n_cols;
        self.n_cols = n_cols;
        self
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.home.borrow_mut().buffers.push(buffer);
    }
}
