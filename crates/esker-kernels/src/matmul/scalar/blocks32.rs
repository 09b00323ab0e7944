//! What the codes of the types with 32 (or 64) weights a block are, as integers.

use super::Ints32;
use esker_quant::GgmlType;
use esker_quant::blocks::codebooks::{KVALUES_E2M1, KVALUES_IQ4NL};
use esker_quant::blocks::{
    Block, BlockIQ4NL, BlockMXFP4, BlockNVFP4, BlockQ2_0, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1,
    BlockQ8_0, F16Le, e8m0_half_to_f32, ue4m3_half_to_f32,
};
use std::array::from_fn;

/// Calls `f(b, weights)` for each 32 weights of a row, in order.
pub(super) fn each(ty: GgmlType, row: &[u8], f: impl FnMut(usize, Ints32)) {
    match ty {
        GgmlType::Q8_0 => halves(row, f, |b: &BlockQ8_0, _| plain(b.d, b.qs)),
        GgmlType::Q4_0 => {
            halves(row, f, |b: &BlockQ4_0, _| plain(b.d, from_fn(|j| nibble(&b.qs, j) as i8 - 8)))
        }
        GgmlType::Q5_0 => {
            halves(row, f, |b: &BlockQ5_0, _| plain(b.d, from_fn(|j| five(&b.qs, b.qh.get(), j) as i8 - 16)))
        }
        GgmlType::Q4_1 => {
            halves(row, f, |b: &BlockQ4_1, _| with_min(b.d, b.m, from_fn(|j| nibble(&b.qs, j) as i8)))
        }
        GgmlType::Q5_1 => halves(row, f, |b: &BlockQ5_1, _| {
            with_min(b.d, b.m, from_fn(|j| five(&b.qs, b.qh.get(), j) as i8))
        }),
        GgmlType::Q2_0 => halves(row, f, |b: &BlockQ2_0, half| {
            plain(b.d, from_fn(|j| (b.qs[half * 8 + j / 4] >> (j % 4 * 2) & 3) as i8 - 1))
        }),
        GgmlType::IQ4_NL => halves(row, f, |b: &BlockIQ4NL, _| {
            plain(b.d, from_fn(|j| KVALUES_IQ4NL[usize::from(nibble(&b.qs, j))]))
        }),
        GgmlType::MXFP4 => halves(row, f, |b: &BlockMXFP4, _| {
            let q = from_fn(|j| KVALUES_E2M1[usize::from(nibble(&b.qs, j))]);
            Ints32 { q, d: [e8m0_half_to_f32(b.e); 2], m: None }
        }),
        GgmlType::NVFP4 => halves(row, f, |b: &BlockNVFP4, half| {
            let d = from_fn(|g| ue4m3_half_to_f32(b.d[half * 2 + g]));
            let code = |j: usize| b.qs[half * 16 + j / 16 * 8 + j % 8] >> (j / 8 % 2 * 4) & 15;
            Ints32 { q: from_fn(|j| KVALUES_E2M1[usize::from(code(j))]), d, m: None }
        }),
        _ => unreachable!("{ty} does not take Q8x32 activations"),
    }
}

/// Goes through the blocks, `B::ELEMS / 32` times 32 weights each; `unpack(block, index of the 32)`.
fn halves<B: Block>(row: &[u8], mut f: impl FnMut(usize, Ints32), unpack: impl Fn(&B, usize) -> Ints32) {
    let n = B::ELEMS / 32;
    for (i, block) in bytemuck::cast_slice::<u8, B>(row).iter().enumerate() {
        for half in 0..n {
            f(i * n + half, unpack(block, half));
        }
    }
}

fn plain(d: F16Le, q: [i8; 32]) -> Ints32 {
    Ints32 { q, d: [d.to_f32(); 2], m: None }
}

fn with_min(d: F16Le, m: F16Le, q: [i8; 32]) -> Ints32 {
    Ints32 { q, d: [d.to_f32(); 2], m: Some(m.to_f32()) }
}

/// Code `j` of 32: the first 16 are low nibbles, the others high ones.
fn nibble(qs: &[u8; 16], j: usize) -> u8 {
    qs[j % 16] >> (j / 16 * 4) & 15
}

fn five(qs: &[u8; 16], qh: u32, j: usize) -> u8 {
    nibble(qs, j) | ((qh >> j & 1) as u8) << 4
}
