//! Known answers by hand, and what must hold for any bytes.

use proptest::prelude::*;

use super::decode;
use crate::{CodecError, GgmlType};

fn decoded(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / ty.block_bytes() * ty.block_elems()];
    decode(ty, bytes, &mut out).unwrap_or_else(|e| panic!("{ty}: {e}"));
    out
}

/// 1.0 and 0.5 in half precision.
const ONE: [u8; 2] = [0x00, 0x3c];
const HALF: [u8; 2] = [0x00, 0x38];

#[test]
fn plain_types() {
    assert_eq!(decoded(GgmlType::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]), [1.0, -2.0]);
    assert_eq!(
        decoded(GgmlType::F16, &[0x00, 0x3c, 0x01, 0x80, 0xff, 0x7b]),
        [1.0, -(2f32.powi(-24)), 65504.0]
    );
    assert_eq!(decoded(GgmlType::BF16, &[0x80, 0x3f, 0x49, 0xc0]), [1.0, -3.140625]);
    assert_eq!(decoded(GgmlType::F64, &0.1f64.to_le_bytes()), [0.1f32]);
    assert_eq!(decoded(GgmlType::I8, &[0x80, 0x7f]), [-128.0, 127.0]);
    assert_eq!(decoded(GgmlType::I16, &[0x00, 0x80]), [-32768.0]);
    assert_eq!(decoded(GgmlType::I32, &i32::MIN.to_le_bytes()), [-2_147_483_648.0]);
    assert_eq!(decoded(GgmlType::I64, &(1i64 << 40).to_le_bytes()), [1_099_511_627_776.0]);
}

#[test]
fn q8_0_at_the_edge_of_i8() {
    let bytes = [&HALF[..], &[0x80; 32]].concat();
    assert_eq!(decoded(GgmlType::Q8_0, &bytes), [-64.0; 32]);
}

#[test]
fn q4_0_low_nibbles_come_first() {
    let bytes = [&ONE[..], &[0xf0; 16]].concat();
    let out = decoded(GgmlType::Q4_0, &bytes);
    assert_eq!(out[..16], [-8.0; 16]);
    assert_eq!(out[16..], [7.0; 16]);
}

#[test]
fn q5_1_fifth_bits() {
    // Bits 0 and 31 of qh set, lower bits all 1: codes 31 at weights 0 and 31, 15 elsewhere.
    let bytes = [&ONE[..], &HALF, &[0x01, 0, 0, 0x80], &[0xff; 16]].concat();
    let out = decoded(GgmlType::Q5_1, &bytes);
    assert_eq!((out[0], out[1], out[16], out[31]), (31.5, 15.5, 15.5, 31.5));
}

#[test]
fn q2_0_in_natural_order() {
    let bytes = [&ONE[..], &[0b11_10_01_00; 16]].concat();
    let out = decoded(GgmlType::Q2_0, &bytes);
    assert_eq!(out.as_chunks::<4>().0, [[-1.0, 0.0, 1.0, 2.0]; 16]);
}

#[test]
fn q1_0_zero_is_minus() {
    let bytes = [&HALF[..], &[0b0000_0101], &[0; 15]].concat();
    assert_eq!(decoded(GgmlType::Q1_0, &bytes)[..4], [0.5, -0.5, 0.5, -0.5]);
}

#[test]
fn tq1_0_digits() {
    // 0, 1, 2, 1, 0 as base-3 digits: 48 of 243, stored as ceil(256 * 48 / 243) = 51.
    let mut bytes = [0; 54];
    bytes[0] = 51;
    bytes[52..].copy_from_slice(&ONE);
    let out = decoded(GgmlType::TQ1_0, &bytes);
    assert_eq!([out[0], out[32], out[64], out[96], out[128]], [-1.0, 0.0, 1.0, 0.0, -1.0]);
    assert_eq!(out[1], -1.0);
}

#[test]
fn tq2_0_order() {
    let mut bytes = [0; 66];
    bytes[32] = 0b10_01_00_10; // second half, j = 0
    bytes[64..].copy_from_slice(&HALF);
    let out = decoded(GgmlType::TQ2_0, &bytes);
    assert_eq!([out[128], out[160], out[192], out[224]], [0.5, -0.5, 0.0, 0.5]);
}

#[test]
fn q4_k_scales_and_minima() {
    let mut bytes = vec![0; 144];
    bytes[..2].copy_from_slice(&ONE);
    bytes[2..4].copy_from_slice(&HALF);
    bytes[4] = 3; // scale of group 0
    bytes[4 + 4] = 5; // minimum of group 0
    bytes[16] = 0x0f; // weight 0
    let out = decoded(GgmlType::Q4_K, &bytes);
    assert_eq!((out[0], out[1], out[32]), (3.0 * 15.0 - 2.5, -2.5, 0.0));
}

#[test]
fn q6_k_order() {
    let mut bytes = vec![0; 210];
    bytes[64 + 16] = 0xa5; // second half: weights 128 + 16 (low nibble), 128 + 80 (high nibble)
    bytes[128 + 32 + 16] = 0b11_10_01_00; // upper bits of weights 128 + 16 + 32 s
    bytes[192..208].fill(1);
    bytes[208..].copy_from_slice(&ONE);
    let out = decoded(GgmlType::Q6_K, &bytes);
    assert_eq!([out[144], out[176], out[208], out[240]], [5.0 - 32.0, 16.0 - 32.0, 42.0 - 32.0, 48.0 - 32.0]);
}

#[test]
fn mxfp4_doubled_values_meet_halved_scale() {
    let bytes = [&[127][..], &[0xf1; 16]].concat();
    let out = decoded(GgmlType::MXFP4, &bytes);
    assert_eq!((out[0], out[16]), (0.5, -6.0));
}

#[test]
fn nvfp4_groups() {
    let mut bytes = [0; 36];
    bytes[1] = 0x38; // 1.0 for group 1
    bytes[4 + 8] = 0x27; // weights 16 and 24
    let out = decoded(GgmlType::NVFP4, &bytes);
    assert_eq!((out[16], out[24], out[0]), (6.0, 1.0, 0.0));
}

#[test]
fn lengths_are_checked() {
    let ty = GgmlType::Q8_0;
    let mut out = [0.0; 64];
    assert_eq!(
        decode(ty, &[0; 34], &mut out[..33]),
        Err(CodecError::PartialBlock { ty, elems: 33, block_elems: 32 })
    );
    assert_eq!(
        decode(ty, &[0; 67], &mut out),
        Err(CodecError::ByteLength { ty, elems: 64, bytes: 67, expected: 68 })
    );
    assert_eq!(decode(ty, &[], &mut []), Ok(()));
    assert_eq!(
        decode(ty, &[0; 67], &mut out).unwrap_err().to_string(),
        "64 values of type Q8_0 take 68 bytes, not 67"
    );
}

proptest! {
    /// Any bytes decode, block by block as all at once, and every value is written.
    #[test]
    fn any_bytes_decode(seed in proptest::collection::vec(any::<u8>(), 1..600), blocks in 1usize..4) {
        for ty in GgmlType::all() {
            let bytes: Vec<u8> = seed.iter().copied().cycle().take(blocks * ty.block_bytes()).collect();
            let whole = decoded(ty, &bytes);
            let parts: Vec<f32> =
                bytes.chunks(ty.block_bytes()).flat_map(|block| decoded(ty, block)).collect();
            prop_assert_eq!(whole.len(), parts.len());
            for (a, b) in whole.iter().zip(&parts) {
                prop_assert_eq!(a.to_bits(), b.to_bits(), "{}", ty);
            }
        }
    }
}
