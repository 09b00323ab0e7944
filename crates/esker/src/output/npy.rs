//! Arrays of f32 in NumPy's format, written row by row.
//!
//! Source: NumPy Enhancement Proposal 1, "A Simple File Format for NumPy Arrays", version 1.0.

use std::io::{self, Write};

/// Writes a `[n_rows, n_cols]` array of f32, little endian, row-major.
pub struct NpyWriter<W> {
    to: W,
    n_cols: usize,
    rows_left: usize,
    bytes: Vec<u8>,
}

impl<W: Write> NpyWriter<W> {
    /// Writes the header.
    pub fn new(mut to: W, n_rows: usize, n_cols: usize) -> io::Result<NpyWriter<W>> {
        to.write_all(&header(n_rows, n_cols))?;
        Ok(NpyWriter { to, n_cols, rows_left: n_rows, bytes: Vec::new() })
    }

    /// Writes whole rows.
    ///
    /// # Panics
    /// If `values` is not whole rows, or these are more than are left.
    pub fn rows(&mut self, values: &[f32]) -> io::Result<()> {
        assert!(values.len().is_multiple_of(self.n_cols), "values are whole rows");
        self.rows_left =
            self.rows_left.checked_sub(values.len() / self.n_cols).expect("no more rows than announced");
        for row in values.chunks(self.n_cols) {
            self.bytes.clear();
            self.bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            self.to.write_all(&self.bytes)?;
        }
        Ok(())
    }

    /// Gives the output back.
    ///
    /// # Panics
    /// If rows are missing.
    pub fn finish(mut self) -> io::Result<W> {
        assert_eq!(self.rows_left, 0, "as many rows as announced");
        self.to.flush()?;
        Ok(self.to)
    }
}

fn header(n_rows: usize, n_cols: usize) -> Vec<u8> {
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n_rows}, {n_cols}), }}");
    // Magic, version and length take 10 bytes, the newline one; data begins at a multiple of 64.
    let len = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend(u16::try_from(len).expect("two numbers are short").to_le_bytes());
    out.extend(format!("{dict:<width$}\n", width = len - 1).bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reader_reads_what_was_written() {
        let values = [0.0f32, -1.5, f32::INFINITY, f32::MIN_POSITIVE, 3.0e-45, 7.0];
        let mut writer = NpyWriter::new(Vec::new(), 2, 3).expect("memory");
        writer.rows(&values[..3]).expect("memory");
        writer.rows(&values[3..]).expect("memory");
        let bytes = writer.finish().expect("memory");
        assert_eq!((bytes.len() - size_of_val(&values)) % 64, 0);
        let file = npyz::NpyFile::new(&bytes[..]).expect("a valid header");
        assert_eq!(file.shape(), [2, 3]);
        assert_eq!(file.order(), npyz::Order::C);
        assert_eq!(file.into_vec::<f32>().expect("f32"), values);
    }

    #[test]
    #[should_panic(expected = "as many rows as announced")]
    fn missing_rows_are_a_bug() {
        let _ = NpyWriter::new(Vec::new(), 2, 3).expect("memory").finish();
    }
}
