//! Agreement with the reference (llama.cpp): decoded values bit for bit, encoded bytes or encoding error.
//!
//! The data and where it comes from: `golden/README.md`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use esker_quant::{CodecError, GgmlType, decode, encode};
use npyz::npz::NpzArchive;

/// One `.npz` file of `tests/golden`.
struct Golden {
    name: String,
    archive: NpzArchive<BufReader<File>>,
}

impl Golden {
    fn open(name: &str) -> Golden {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("npz");
        let archive = NpzArchive::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Golden { name: name.to_owned(), archive }
    }

    fn of(ty: GgmlType) -> Golden {
        // Upstream writes `q4_K` with a capital K.
        let name = ty.name().to_lowercase().replace("_k", "_K");
        Golden::open(&name)
    }

    fn array<T: npyz::Deserialize>(&mut self, key: &str) -> Vec<T> {
        let array = self.archive.by_name(key).unwrap_or_else(|e| panic!("{}/{key}: {e}", self.name));
        let array = array.unwrap_or_else(|| panic!("{}/{key}: no such array", self.name));
        array.into_vec().unwrap_or_else(|e| panic!("{}/{key}: {e}", self.name))
    }
}

/// Columns of the encoder inputs; there are [`ROWS`] rows.
const COLUMNS: usize = 512;
const ROWS: usize = 64;
/// Rows 0 to 31 measure quality, the others are corner cases.
const QUALITY_ROWS: usize = 32;

struct Inputs {
    rows: Vec<f32>,
    importance: Vec<f32>,
}

fn inputs() -> Inputs {
    let mut golden = Golden::open("inputs");
    let inputs = Inputs { rows: golden.array("rows"), importance: golden.array("importance") };
    assert_eq!((inputs.rows.len(), inputs.importance.len()), (ROWS * COLUMNS, COLUMNS));
    inputs
}

fn block_types() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|ty| ty.block_elems() > 1)
}

#[test]
fn every_block_type_decodes_bit_for_bit() {
    let mut types = 0;
    for ty in block_types() {
        let mut golden = Golden::of(ty);
        let (blocks, expected) = (golden.array::<u8>("blocks"), golden.array::<f32>("values"));
        let kinds = golden.array::<u8>("kind");
        let mut actual = vec![0.0; expected.len()];
        decode(ty, &blocks, &mut actual).unwrap_or_else(|e| panic!("{ty}: {e}"));
        for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
            let block = i / ty.block_elems();
            assert!(
                a.to_bits() == e.to_bits() || a.is_nan() && e.is_nan(),
                "{ty} block {block} (kind {}) weight {}: {a:e}, expected {e:e}; bytes {:02x?}",
                kinds[block],
                i % ty.block_elems(),
                &blocks[block * ty.block_bytes()..][..ty.block_bytes()],
            );
        }
        for kind in [0, 2, 3] {
            assert!(kinds.contains(&kind), "{ty}: no blocks of kind {kind}");
        }
        types += 1;
    }
    assert_eq!(types, 27);
}

#[test]
fn half_and_bfloat_round_as_the_reference() {
    for ty in [GgmlType::F16, GgmlType::BF16] {
        let mut golden = Golden::of(ty);
        let (values, expected) = (golden.array::<f32>("enc_in"), golden.array::<u16>("enc"));
        let mut out = vec![0; 2 * values.len()];
        encode(ty, &values, None, &mut out).unwrap_or_else(|e| panic!("{ty}: {e}"));
        for ((value, bytes), expected) in values.iter().zip(out.as_chunks::<2>().0).zip(expected) {
            let actual = u16::from_le_bytes(*bytes);
            assert_eq!(actual, expected, "{ty}: {value:e} gives {actual:#06x}, expected {expected:#06x}");
        }
    }
}

#[test]
fn encoders_by_rule_give_the_reference_bytes() {
    use GgmlType::*;
    let inputs = inputs();
    for ty in [Q8_0, Q8_1, Q8_K, Q4_0, Q4_1, Q5_0, Q5_1, Q1_0, Q2_0, TQ1_0, TQ2_0, MXFP4, NVFP4] {
        let expected: Vec<u8> = Golden::of(ty).array("enc");
        let blocks = inputs.rows.chunks(ty.block_elems()).zip(expected.chunks(ty.block_bytes()));
        for (i, (values, expected)) in blocks.enumerate() {
            let row = i * ty.block_elems() / COLUMNS;
            let mut actual = vec![0; ty.block_bytes()];
            let result = encode(ty, values, None, &mut actual);
            if ty == Q8_1 && matches!(expected[2..4], [0x00, 0x7c | 0xfc]) {
                // The reference stores an infinite sum.
                assert!(matches!(result, Err(CodecError::ScaleOverflow { .. })), "row {row}: {result:?}");
                continue;
            }
            assert_eq!(result, Ok(()), "{ty} row {row}");
            if ty == MXFP4 && row == 57 {
                // Values of 1e-40: the reference's scale exponent wraps round to 248, ours stops at 0.
                assert_eq!((expected[0], actual[0]), (248, 0));
                assert_eq!(actual[1..], expected[1..]);
                continue;
            }
            assert_eq!(actual, expected, "{ty} row {row} block {i}");
        }
    }
}

fn rmse(values: &[f32], decoded: &[f32], weights: &[f32]) -> f64 {
    let terms = values.iter().zip(decoded).zip(weights);
    let sum: f64 = terms.map(|((a, b), w)| f64::from(*w) * (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / weights.iter().map(|w| f64::from(*w)).sum::<f64>()).sqrt()
}

/// Encodes every row for which the reference's error is known and compares errors: prints mean and worst
/// ratio of the quality rows, asserts that the mean is at most 1, and that no row is worse than the reference
/// by more than 4 % (or, where both are all but exact, by more than half-precision scales explain).
fn check_error(ty: GgmlType, inputs: &Inputs, importance: Option<&[f32]>) {
    let key = if importance.is_some() { "rmse_importance" } else { "rmse" };
    let reference: Vec<f64> = Golden::of(ty).array(key);
    let ones = [1.0; COLUMNS];
    let mut ratios = Vec::new();
    for (row, (values, &reference)) in inputs.rows.chunks(COLUMNS).zip(&reference).enumerate() {
        let mut bytes = vec![0; ty.row_bytes(COLUMNS).expect("whole blocks")];
        encode(ty, values, importance, &mut bytes).unwrap_or_else(|e| panic!("{ty} row {row}: {e}"));
        let mut decoded = vec![0.0; COLUMNS];
        decode(ty, &bytes, &mut decoded).expect("lengths fit");
        let ours = rmse(values, &decoded, importance.unwrap_or(&ones));
        let largest = values.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
        assert!(
            ours <= 1.04 * reference || ours <= f64::from(largest) / 2048.0,
            "{ty} row {row}: error {ours:e}, reference {reference:e}, largest value {largest}"
        );
        if row < QUALITY_ROWS {
            ratios.push(ours / reference);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let what = if importance.is_some() { "with importance" } else { "plain" };
    println!("{ty:8} {what}: error over the reference's {mean:.3} on average, {worst:.3} at worst");
    assert!(mean <= 1.0, "{ty} {what}: {ratios:.3?}");
}

#[test]
fn searching_encoders_are_no_worse_than_the_reference() {
    use GgmlType::*;
    let inputs = inputs();
    for ty in [Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS] {
        check_error(ty, &inputs, None);
    }
}

#[test]
fn searching_encoders_are_no_worse_with_importance() {
    use GgmlType::*;
    let inputs = inputs();
    for ty in [Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS] {
        check_error(ty, &inputs, Some(&inputs.importance));
    }
}
