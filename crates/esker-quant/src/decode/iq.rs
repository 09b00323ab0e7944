//! IQ1 to IQ4: lattice indices with separate signs, and non-uniform levels.

use crate::blocks::codebooks::{
    IQ1_DELTA, IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS, KVALUES_IQ4NL,
};
use crate::blocks::{
    BlockIQ1M, BlockIQ1S, BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS, BlockIQ4NL, BlockIQ4XS,
};

/// `out = scale * ±magnitude`: bit `j` of `signs` makes weight `j` negative.
fn signed(scale: f32, magnitudes: [u8; 8], signs: u8, out: &mut [f32; 8]) {
    for (j, out) in out.iter_mut().enumerate() {
        let value = scale * f32::from(magnitudes[j]);
        *out = f32::from_bits(value.to_bits() ^ (u32::from(signs >> j & 1) << 31));
    }
}

/// Nibble `i` of a byte array, low nibbles first.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

/// Two entries of a table of 4 magnitudes side by side.
fn join(first: u32, second: u32) -> [u8; 8] {
    (u64::from(second) << 32 | u64::from(first)).to_le_bytes()
}

pub(super) fn iq2_xxs(block: &BlockIQ2XXS, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let group = &block.groups[i / 4];
        let signs_scale = group.signs_scale.get();
        let scale = d * (0.5 + (signs_scale >> 28) as f32) * 0.25;
        let signs = KSIGNS[(signs_scale >> (i % 4 * 7)) as usize & 127];
        signed(scale, IQ2XXS_GRID[usize::from(group.grid[i % 4])].to_le_bytes(), signs, out);
    }
}

pub(super) fn iq2_xs(block: &BlockIQ2XS, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(nibble(&block.scales, i / 2))) * 0.25;
        let entry = usize::from(block.qs[i].get());
        signed(scale, IQ2XS_GRID[entry & 511].to_le_bytes(), KSIGNS[entry >> 9], out);
    }
}

pub(super) fn iq2_s(block: &BlockIQ2S, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(nibble(&block.scales, i / 2))) * 0.25;
        let high = block.qh[i / 4] >> (i % 4 * 2) & 3;
        let index = usize::from(high) << 8 | usize::from(block.qs[i]);
        signed(scale, IQ2S_GRID[index].to_le_bytes(), block.signs[i], out);
    }
}

pub(super) fn iq3_xxs(block: &BlockIQ3XXS, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let signs_scale = block.signs_scales[i / 4].get();
        let scale = d * (0.5 + (signs_scale >> 28) as f32) * 0.5;
        let signs = KSIGNS[(signs_scale >> (i % 4 * 7)) as usize & 127];
        let entry = |k: usize| IQ3XXS_GRID[usize::from(block.qs[2 * i + k])];
        signed(scale, join(entry(0), entry(1)), signs, out);
    }
}

pub(super) fn iq3_s(block: &BlockIQ3S, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * f32::from(1 + 2 * nibble(&block.scales, i / 4));
        let entry = |k: usize| {
            let ninth = block.qh[i / 4] >> (i % 4 * 2 + k) & 1;
            IQ3S_GRID[usize::from(ninth) << 8 | usize::from(block.qs[2 * i + k])]
        };
        signed(scale, join(entry(0), entry(1)), block.signs[i], out);
    }
}

/// `out = scale * (value ± 1/8)`.
fn offset_lattice(scale: f32, index: usize, negative_offset: bool, out: &mut [f32; 8]) {
    let delta = if negative_offset { -IQ1_DELTA } else { IQ1_DELTA };
    for (out, byte) in out.iter_mut().zip(IQ1S_GRID[index].to_le_bytes()) {
        *out = scale * (f32::from(byte as i8) + delta);
    }
}

pub(super) fn iq1_s(block: &BlockIQ1S, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let qh = block.qh[i / 4].get();
        let scale = d * f32::from(2 * (qh >> 12 & 7) + 1);
        let index = usize::from(qh >> (i % 4 * 3) & 7) << 8 | usize::from(block.qs[i]);
        offset_lattice(scale, index, qh & 0x8000 != 0, out);
    }
}

pub(super) fn iq1_m(block: &BlockIQ1M, out: &mut [f32; 256]) {
    let d = block.d().to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * f32::from(2 * block.scale(i / 2) + 1);
        let high = nibble(&block.qh, i);
        let index = usize::from(high & 7) << 8 | usize::from(block.qs[i]);
        offset_lattice(scale, index, high & 8 != 0, out);
    }
}

/// `out = scale * level`, weights `j` and `j + 16` in byte `j`.
fn levels(scale: f32, qs: &[u8; 16], out: &mut [f32; 32]) {
    for (j, byte) in qs.iter().enumerate() {
        out[j] = scale * f32::from(KVALUES_IQ4NL[usize::from(byte & 15)]);
        out[j + 16] = scale * f32::from(KVALUES_IQ4NL[usize::from(byte >> 4)]);
    }
}

pub(super) fn iq4_nl(block: &BlockIQ4NL, out: &mut [f32; 32]) {
    levels(block.d.to_f32(), &block.qs, out);
}

pub(super) fn iq4_xs(block: &BlockIQ4XS, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    let (groups, _) = block.qs.as_chunks::<16>();
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        levels(d * f32::from(block.scale(g)), &groups[g], out);
    }
}
