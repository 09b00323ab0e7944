//! What the codes of the types with 256 weights a block are, as integers.

use super::Ints256;
use esker_quant::GgmlType;
use esker_quant::blocks::codebooks::{
    IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS, KVALUES_IQ4NL,
};
use esker_quant::blocks::{
    Block, BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS, BlockIQ4XS, BlockQ2K, BlockQ3K,
    BlockQ4K, BlockQ5K, BlockQ6K, unpack_scale_min,
};
use std::array::from_fn;

/// Calls `f(b, weights)` for each block of a row, in order.
pub(super) fn each(ty: GgmlType, row: &[u8], f: impl FnMut(usize, Ints256)) {
    match ty {
        GgmlType::Q2_K => blocks(row, f, q2_k),
        GgmlType::Q3_K => blocks(row, f, q3_k),
        GgmlType::Q4_K => blocks(row, f, q4_k),
        GgmlType::Q5_K => blocks(row, f, q5_k),
        GgmlType::Q6_K => blocks(row, f, q6_k),
        GgmlType::IQ2_XXS => blocks(row, f, iq2_xxs),
        GgmlType::IQ2_XS => blocks(row, f, iq2_xs),
        GgmlType::IQ2_S => blocks(row, f, iq2_s),
        GgmlType::IQ3_XXS => blocks(row, f, iq3_xxs),
        GgmlType::IQ3_S => blocks(row, f, iq3_s),
        GgmlType::IQ4_XS => blocks(row, f, iq4_xs),
        _ => unreachable!("{ty} does not take Q8x256 activations"),
    }
}

fn blocks<B: Block>(row: &[u8], mut f: impl FnMut(usize, Ints256), unpack: impl Fn(&B) -> Ints256) {
    for (b, block) in bytemuck::cast_slice::<u8, B>(row).iter().enumerate() {
        f(b, unpack(block));
    }
}

fn q2_k(b: &BlockQ2K) -> Ints256 {
    let min = Some((b.dmin.to_f32(), b.scales.map(|s| s >> 4)));
    let scales = b.scales.map(|s| (s & 15) as i8);
    Ints256 { q: from_fn(|j| two_bits(&b.qs, j) as i8), scales, d: b.d.to_f32(), min }
}

fn q3_k(b: &BlockQ3K) -> Ints256 {
    let q = from_fn(|j| (two_bits(&b.qs, j) | (b.hmask[j % 32] >> (j / 32) & 1) << 2) as i8 - 4);
    Ints256 { q, scales: b.scales(), d: b.d.to_f32(), min: None }
}

fn q4_k(b: &BlockQ4K) -> Ints256 {
    let q = from_fn(|j| four_bits(&b.qs, j) as i8);
    let min = Some((b.dmin.to_f32(), from_fn(|g| unpack_scale_min(&b.scales, g / 2).1)));
    Ints256 { q, scales: from_fn(|g| unpack_scale_min(&b.scales, g / 2).0 as i8), d: b.d.to_f32(), min }
}

fn q5_k(b: &BlockQ5K) -> Ints256 {
    let q = from_fn(|j| (four_bits(&b.qs, j) | (b.qh[j % 32] >> (j / 32) & 1) << 4) as i8);
    let min = Some((b.dmin.to_f32(), from_fn(|g| unpack_scale_min(&b.scales, g / 2).1)));
    Ints256 { q, scales: from_fn(|g| unpack_scale_min(&b.scales, g / 2).0 as i8), d: b.d.to_f32(), min }
}

fn q6_k(b: &BlockQ6K) -> Ints256 {
    let q = from_fn(|j| {
        let (half, j) = (j / 128, j % 128);
        let low = b.ql[half * 64 + j % 64] >> (j / 64 * 4) & 15;
        let high = b.qh[half * 32 + j % 32] >> (j / 32 * 2) & 3;
        (low | high << 4) as i8 - 32
    });
    Ints256 { q, scales: b.scales, d: b.d.to_f32(), min: None }
}

fn iq2_xxs(b: &BlockIQ2XXS) -> Ints256 {
    let q = from_fn(|j| {
        let (group, i) = (&b.groups[j / 32], j / 8 % 4);
        let signs = KSIGNS[(group.signs_scale.get() >> (7 * i)) as usize & 127];
        signed8(IQ2XXS_GRID[usize::from(group.grid[i])], signs, j % 8)
    });
    let scales = from_fn(|g| odd(b.groups[g / 2].signs_scale.get() >> 28));
    Ints256 { q, scales, d: b.d.to_f32() * 0.125, min: None }
}

fn iq2_xs(b: &BlockIQ2XS) -> Ints256 {
    let q = from_fn(|j| {
        let entry = usize::from(b.qs[j / 8].get());
        signed8(IQ2XS_GRID[entry & 511], KSIGNS[entry >> 9], j % 8)
    });
    Ints256 { q, scales: from_fn(|g| odd(nibble(&b.scales, g))), d: b.d.to_f32() * 0.125, min: None }
}

fn iq2_s(b: &BlockIQ2S) -> Ints256 {
    let q = from_fn(|j| {
        let i = j / 8;
        let high = usize::from(b.qh[i / 4] >> (i % 4 * 2) & 3);
        signed8(IQ2S_GRID[high << 8 | usize::from(b.qs[i])], b.signs[i], j % 8)
    });
    Ints256 { q, scales: from_fn(|g| odd(nibble(&b.scales, g))), d: b.d.to_f32() * 0.125, min: None }
}

fn iq3_xxs(b: &BlockIQ3XXS) -> Ints256 {
    let q = from_fn(|j| {
        let signs = KSIGNS[(b.signs_scales[j / 32].get() >> (j / 8 % 4 * 7)) as usize & 127];
        signed4(IQ3XXS_GRID[usize::from(b.qs[j / 4])], signs, j % 8)
    });
    let scales = from_fn(|g| odd(b.signs_scales[g / 2].get() >> 28));
    Ints256 { q, scales, d: b.d.to_f32() * 0.25, min: None }
}

fn iq3_s(b: &BlockIQ3S) -> Ints256 {
    let q = from_fn(|j| {
        let i = j / 4;
        let high = usize::from(b.qh[i / 8] >> (i % 8) & 1);
        signed4(IQ3S_GRID[high << 8 | usize::from(b.qs[i])], b.signs[j / 8], j % 8)
    });
    Ints256 { q, scales: from_fn(|g| odd(nibble(&b.scales, g / 2))), d: b.d.to_f32(), min: None }
}

fn iq4_xs(b: &BlockIQ4XS) -> Ints256 {
    let q = from_fn(|j| {
        let code = b.qs[j / 32 * 16 + j % 16] >> (j / 16 % 2 * 4) & 15;
        KVALUES_IQ4NL[usize::from(code)]
    });
    Ints256 { q, scales: from_fn(|g| b.scale(g / 2)), d: b.d.to_f32(), min: None }
}

/// Code `j` of Q2_K and its relatives.
fn two_bits(qs: &[u8; 64], j: usize) -> u8 {
    qs[j / 128 * 32 + j % 32] >> (j / 32 % 4 * 2) & 3
}

/// Code `j` of Q4_K and its relatives.
fn four_bits(qs: &[u8; 128], j: usize) -> u8 {
    qs[j / 64 * 32 + j % 32] >> (j / 32 % 2 * 4) & 15
}

fn nibble(bytes: &[u8], i: usize) -> u32 {
    u32::from(bytes[i / 2] >> (i % 2 * 4) & 15)
}

/// Scales of the IQ2 and IQ3 types: `s + 1/2`, doubled.
fn odd(scale: u32) -> i8 {
    (2 * scale + 1) as i8
}

fn signed8(magnitudes: u64, signs: u8, j: usize) -> i8 {
    let magnitude = magnitudes.to_le_bytes()[j] as i8;
    if signs >> j & 1 == 1 { -magnitude } else { magnitude }
}

/// As [`signed8`] with two entries of 4 to 8 signs: `j` counts within the 8.
fn signed4(magnitudes: u32, signs: u8, j: usize) -> i8 {
    let magnitude = magnitudes.to_le_bytes()[j % 4] as i8;
    if signs >> j & 1 == 1 { -magnitude } else { magnitude }
}
