//! Errors, known answers and error bounds; byte-equality with the reference is in `tests/golden.rs`.

use proptest::prelude::*;

use super::encode;
use crate::{CodecError, GgmlType, decode};

fn encoded(ty: GgmlType, values: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = vec![0xee; ty.row_bytes(values.len()).expect("whole blocks")];
    encode(ty, values, importance, &mut out).unwrap_or_else(|e| panic!("{ty}: {e}"));
    out
}

fn round_trip(ty: GgmlType, values: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut back = vec![f32::NAN; values.len()];
    decode(ty, &encoded(ty, values, importance), &mut back).expect("lengths fit");
    back
}

/// Block types with an encoder, and the error allowed on any input: the largest |error| over the largest
/// |value| of the block. Half a step where the whole range is covered evenly, with room for clipping by the
/// least-squares fit (which may give up an outlier for the sum) and for half-precision scales.
const ENCODERS: &[(GgmlType, f32)] = {
    use GgmlType::*;
    &[
        (Q8_0, 0.006),
        (Q8_1, 0.006),
        (Q8_K, 0.005),
        (Q6_K, 0.05),
        (Q5_K, 0.12),
        (Q5_1, 0.05),
        (Q5_0, 0.08),
        (Q4_K, 0.25),
        (Q4_1, 0.08),
        (Q4_0, 0.14),
        (IQ4_NL, 0.35),
        (IQ4_XS, 0.35),
        (Q3_K, 0.5),
        (Q2_K, 0.7),
        (MXFP4, 0.26),
        (NVFP4, 0.26),
        (Q2_0, 0.51),
        (TQ1_0, 0.51),
        (TQ2_0, 0.51),
    ]
};

/// Uniform noise in -1..1 from a fixed seed.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn types_without_an_encoder_say_so() {
    use GgmlType::*;
    for ty in [I8, I16, I32, I64, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S] {
        let mut out = vec![0; ty.block_bytes()];
        let values = vec![0.0; ty.block_elems()];
        assert_eq!(encode(ty, &values, None, &mut out), Err(CodecError::NoEncoder { ty }));
    }
    assert_eq!(CodecError::NoEncoder { ty: IQ2_S }.to_string(), "no encoder for type IQ2_S");
}

#[test]
fn bad_requests_are_refused() {
    let ty = GgmlType::Q4_0;
    let mut out = [0; 36];
    let mut values = noise(64, 1);
    assert_eq!(
        encode(ty, &values[..40], None, &mut out),
        Err(CodecError::PartialBlock { ty, elems: 40, block_elems: 32 })
    );
    assert_eq!(
        encode(ty, &values, None, &mut out[..35]),
        Err(CodecError::ByteLength { ty, elems: 64, bytes: 35, expected: 36 })
    );
    for len in [0, 16, 96] {
        assert_eq!(
            encode(ty, &values, Some(&[1.0; 96][..len]), &mut out),
            Err(CodecError::ImportanceLength { ty, len, elems: 64, block_elems: 32 })
        );
    }
    let mut importance = [1.0; 32];
    importance[3] = -1.0;
    assert_eq!(
        encode(ty, &values, Some(&importance), &mut out),
        Err(CodecError::ImportanceValue { column: 3, value: -1.0 })
    );
    values[37] = f32::INFINITY;
    assert_eq!(
        encode(ty, &values, None, &mut out),
        Err(CodecError::NotFinite { ty, index: 37, value: f32::INFINITY })
    );
    values[37] = 1e7;
    let error = encode(ty, &values, None, &mut out).unwrap_err();
    assert_eq!(error, CodecError::ScaleOverflow { ty, first: 32, count: 32 });
    assert_eq!(error.to_string(), "values 32 to 63 are too large for type Q4_0: their scale exceeds 65504");
}

#[test]
fn one_row_of_importance_serves_all_rows() {
    let row = noise(64, 2);
    let rows = [&row[..], &row].concat();
    let importance: Vec<f32> = noise(64, 3).iter().map(|v| v.abs()).collect();
    for ty in [GgmlType::Q4_0, GgmlType::IQ4_NL, GgmlType::Q2_0] {
        let twice = encoded(ty, &rows, Some(&importance));
        let once = encoded(ty, &row, Some(&importance));
        assert_eq!(twice, [&once[..], &once].concat(), "{ty}");
    }
}

#[test]
fn values_on_the_grid_come_back() {
    // Multiples of 1/4; each group of 16 spans all codes of the type, so that the fit has an exact solution
    // and must find it, but for the rounding of scales to half precision.
    let grid = |low: i32, codes: i32, len: i32| -> Vec<f32> {
        let code = |i: i32| match i % 16 {
            0 => 0,
            1 => codes - 1,
            _ => i * 7 % codes,
        };
        (0..len).map(|i| (low + code(i)) as f32 / 4.0).collect()
    };
    for (ty, values) in [
        (GgmlType::Q4_0, grid(-8, 16, 64)),
        (GgmlType::Q5_0, grid(-16, 32, 64)),
        (GgmlType::Q4_1, grid(3, 16, 64)),
        (GgmlType::Q5_1, grid(-40, 32, 64)),
        (GgmlType::Q6_K, grid(-32, 64, 512)),
        (GgmlType::Q3_K, grid(-4, 8, 512)),
        (GgmlType::Q4_K, grid(-7, 16, 512)),
        (GgmlType::Q4_K, grid(9, 16, 512)),
        (GgmlType::Q5_K, grid(-20, 32, 512)),
        (GgmlType::Q2_K, grid(-2, 4, 512)),
    ] {
        let ones = vec![1.0; values.len()];
        for importance in [None, Some(&ones[..])] {
            let back = round_trip(ty, &values, importance);
            for (a, b) in values.iter().zip(&back) {
                assert!((a - b).abs() <= 0.01, "{ty}: {a} came back as {b}");
            }
        }
    }
}

#[test]
fn q2_0_search_uses_the_fourth_code() {
    let values: Vec<f32> = (0..128).map(|i| [-0.5, 0.0, 0.5, 1.0][i % 4]).collect();
    assert_eq!(round_trip(GgmlType::Q2_0, &values, Some(&[1.0; 128])), values);
    assert_ne!(round_trip(GgmlType::Q2_0, &values, None), values);
}

#[test]
fn importance_moves_the_error_to_unimportant_columns() {
    let values = noise(2048, 4);
    let importance: Vec<f32> = (0..2048).map(|i| if i % 2 == 0 { 100.0 } else { 1.0 }).collect();
    use GgmlType::*;
    for ty in [Q4_0, Q4_1, Q5_0, Q5_1, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS] {
        let cost = |back: &[f32]| -> f64 {
            let terms = values.iter().zip(back).zip(&importance);
            terms.map(|((a, b), w)| f64::from(*w) * f64::from(a - b).powi(2)).sum()
        };
        let weighted = cost(&round_trip(ty, &values, Some(&importance)));
        let plain = cost(&round_trip(ty, &values, Some(&vec![1.0; 2048])));
        assert!(weighted < 0.99 * plain, "{ty}: {weighted} with importance, {plain} without");
    }
}

#[test]
fn extreme_inputs_give_finite_results() {
    for &(ty, _) in ENCODERS {
        for scale in [0.0, -0.0, 1e-45, 1e-40, 1e-30, 1e-20, 1e-9, 1e-6, 1e3] {
            for importance in [None, Some(0.0), Some(1e-30), Some(1e30)] {
                let values: Vec<f32> = noise(256, 5).iter().map(|v| v * scale).collect();
                let importance = importance.map(|w| vec![w; 256]);
                let back = round_trip(ty, &values, importance.as_deref());
                let largest = back.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
                assert!(
                    largest.is_finite() && largest <= 3.0 * scale.abs() + 1e-6,
                    "{ty} {scale}: {largest}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn errors_stay_within_bounds(seed in any::<u64>(), exponent in -1i32..4, cube in any::<bool>()) {
        let values: Vec<f32> = noise(512, seed)
            .iter()
            .map(|v| if cube { v * v * v } else { *v } * 10f32.powi(exponent))
            .collect();
        let importance: Vec<f32> = noise(512, !seed).iter().map(|v| v.abs() + 0.1).collect();
        for &(ty, bound) in ENCODERS {
            let back = round_trip(ty, &values, None);
            let blocks = values.chunks(ty.block_elems()).zip(back.chunks(ty.block_elems()));
            for (values, back) in blocks {
                let largest = values.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
                // NVFP4 scales have no range for larger or smaller values: clipped at 2688.
                if ty == GgmlType::NVFP4 && !(0.1..2688.0).contains(&largest) {
                    continue;
                }
                for (a, b) in values.iter().zip(back) {
                    let error = (a - b).abs();
                    prop_assert!(error <= bound * largest, "{ty}: {a} came back as {b}, largest {largest}");
                }
            }
            let weighted = round_trip(ty, &values, Some(&importance));
            prop_assert!(weighted.iter().all(|v| v.is_finite()), "{}", ty);
        }
    }

    /// Finite values of any size either encode, to something that decodes finite, or are refused for their
    /// size.
    #[test]
    fn any_finite_values(bits in proptest::collection::vec(any::<u32>(), 256)) {
        let finite = |v: f32| if v.is_finite() { v } else { 1.0 };
        let values: Vec<f32> = bits.iter().map(|&b| finite(f32::from_bits(b))).collect();
        for &(ty, _) in ENCODERS {
            let mut out = vec![0; ty.row_bytes(256).expect("whole blocks")];
            match encode(ty, &values, None, &mut out) {
                Ok(()) => {
                    let mut back = vec![0.0; 256];
                    decode(ty, &out, &mut back).expect("lengths fit");
                    prop_assert!(back.iter().all(|v| v.is_finite()), "{}", ty);
                }
                Err(error) => prop_assert!(matches!(error, CodecError::ScaleOverflow { .. }), "{}", error),
            }
        }
    }
}
