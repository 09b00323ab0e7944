//! Constants of the hashed n-gram embedding: multipliers, head sizes, offsets.
//!
//! Source: the derivation in transformers' `qwen4_exp` configuration; with the released model's numbers it gives the
//! released model's constants.

use super::error::SynthError;
use super::geometry::NgramGeometry;
use super::random::SplitMix;

/// `seed` of the released configuration.
const SEED: u64 = 1234;
/// Rows of the whole table are a multiple of this.
const ROW_MULTIPLE: u64 = 128;
/// Rows are numbered in 32 bits.
const ROWS_MAX: u64 = u32::MAX as u64 - ROW_MULTIPLE;

/// What the metadata says of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NgramTable {
    /// One per position in an n-gram.
    pub(super) multipliers: Vec<u64>,
    /// Rows of each head: primes, ascending.
    pub(super) head_sizes: Vec<u64>,
    /// First row of each head.
    pub(super) head_offsets: Vec<u64>,
    /// Rows in all, padding included.
    pub(super) n_rows: u64,
}

impl NgramTable {
    /// `rows`: about how many rows the table is to have; the heads share them equally.
    pub(super) fn new(geometry: &NgramGeometry, n_vocab: u64, rows: u64) -> Result<NgramTable, SynthError> {
        let n_heads = geometry.n_heads();
        if !(1..=64).contains(&n_heads) {
            return Err(SynthError::value("n-gram heads", n_heads, "1 to 64"));
        }
        // Below this the primes of small numbers would take more rows than asked for.
        let least = n_heads * 16;
        if !(least..=ROWS_MAX).contains(&rows) {
            return Err(SynthError::value("n-gram rows", rows, format!("{least} to {ROWS_MAX}")));
        }
        let mut head_sizes = Vec::new();
        let mut candidate = rows / n_heads;
        while (head_sizes.len() as u64) < n_heads {
            if is_prime(candidate) {
                head_sizes.push(candidate);
            }
            candidate += 1;
        }
        let head_offsets = head_sizes
            .iter()
            .scan(0, |next, size| {
                let offset = *next;
                *next += size;
                Some(offset)
            })
            .collect();
        let n_rows = head_sizes.iter().sum::<u64>().next_multiple_of(ROW_MULTIPLE);
        if n_rows > u64::from(u32::MAX) {
            return Err(SynthError::value("n-gram rows", rows, format!("{least} to {ROWS_MAX}")));
        }
        Ok(NgramTable {
            multipliers: multipliers(geometry.ngram_size, n_vocab),
            head_sizes,
            head_offsets,
            n_rows,
        })
    }
}

/// Odd numbers so small that a token times one of them stays below 2^63.
fn multipliers(ngram_size: u32, n_vocab: u64) -> Vec<u64> {
    let half = (i64::MAX as u64 / n_vocab.max(1) / 2).max(1);
    let value = |j: u64| SplitMix(SEED.wrapping_add(j.wrapping_mul(SplitMix::STEP))).next();
    (1..=u64::from(ngram_size)).map(|j| 2 * (value(j) % half) + 1).collect()
}

fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_released_model_has_these() {
        let geometry = super::super::Geometry::named("qwen3.8-flash-next").unwrap();
        let table = NgramTable::new(&geometry.ngram.unwrap(), 248_320, 320_000_000).unwrap();
        let above = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171];
        assert_eq!(table.head_sizes, above.map(|n| 20_000_000 + n));
        assert_eq!(table.head_offsets[..3], [0, 20_000_003, 40_000_026]);
        assert_eq!(table.head_offsets[15], 300_001_275);
        assert_eq!(table.n_rows, 320_001_536);
        assert_eq!(table.multipliers, [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071]);
    }

    #[test]
    fn rows_are_limited() {
        let geometry = NgramGeometry { layer: 1, ngram_size: 3, heads_per_ngram: 8, taps: 4 };
        let new = |rows| NgramTable::new(&geometry, 512, rows).map(|t| t.n_rows).map_err(|e| e.to_string());
        // Sixteen primes from 125000 on lie within 200 of it.
        assert!((2_000_000..2_004_000).contains(&new(2_000_000).unwrap()));
        assert_eq!(new(255), Err("n-gram rows is 255, expected 256 to 4294967167".to_owned()));
        assert!(new(u64::MAX).is_err());
        assert!(new(256).unwrap() < 1024);
    }
}
