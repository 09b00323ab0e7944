//! Codebooks: what a code of a non-uniform type stands for.
//!
//! Source: `ggml-common.h` of llama.cpp. The lattice tables are expanded at compile time from `grids.rs`,
//! into the form that kernels load: one byte a weight, weight 0 in the lowest byte.

use super::grids;

/// IQ4_NL and IQ4_XS: the 16 levels, increasing.
pub const KVALUES_IQ4NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// MXFP4 and NVFP4: the 16 values of E2M1, doubled to make them integers. Code 8 is negative zero: decoded as
/// +0.
pub const KVALUES_E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// IQ1_S and IQ1_M: the offset added to (or subtracted from) every lattice value of a group.
pub const IQ1_DELTA: f32 = 0.125;

/// The sign bits of 8 weights from the 7 stored: bit 7 makes the number of minus signs even.
pub const KSIGNS: [u8; 128] = {
    let mut table = [0; 128];
    let mut i = 0;
    while i < 128 {
        table[i] = i as u8 | ((i.count_ones() as u8 & 1) << 7);
        i += 1;
    }
    table
};

/// IQ2_XXS: magnitudes of 8 weights.
pub static IQ2XXS_GRID: [u64; 256] = expand8(&grids::IQ2_XXS, IQ2_LEVELS);
/// IQ2_XS: magnitudes of 8 weights.
pub static IQ2XS_GRID: [u64; 512] = expand8(&grids::IQ2_XS, IQ2_LEVELS);
/// IQ2_S: magnitudes of 8 weights.
pub static IQ2S_GRID: [u64; 1024] = expand8(&grids::IQ2_S, IQ2_LEVELS);
/// IQ3_XXS: magnitudes of 4 weights.
pub static IQ3XXS_GRID: [u32; 256] = expand4(&grids::IQ3_XXS, IQ3XXS_LEVELS);
/// IQ3_S: magnitudes of 4 weights.
pub static IQ3S_GRID: [u32; 512] = expand4(&grids::IQ3_S, IQ3S_LEVELS);
/// IQ1_S and IQ1_M: 8 weights of -1, 0, +1, each byte an `i8`.
pub static IQ1S_GRID: [u64; 2048] = expand8(&grids::IQ1_S, [0xff, 0x00, 0x01]);

const IQ2_LEVELS: [u8; 3] = [0x08, 0x19, 0x2b];
const IQ3XXS_LEVELS: [u8; 8] = [0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3e];
const IQ3S_LEVELS: [u8; 8] = [0x01, 0x03, 0x05, 0x07, 0x09, 0x0b, 0x0d, 0x0f];

const fn expand8<const N: usize>(packed: &[u16; N], levels: [u8; 3]) -> [u64; N] {
    let mut table = [0; N];
    let mut i = 0;
    while i < N {
        let mut bytes = [0; 8];
        let mut j = 0;
        while j < 8 {
            bytes[j] = levels[(packed[i] >> (2 * j)) as usize & 3];
            j += 1;
        }
        table[i] = u64::from_le_bytes(bytes);
        i += 1;
    }
    table
}

const fn expand4<const N: usize>(packed: &[u16; N], levels: [u8; 8]) -> [u32; N] {
    let mut table = [0; N];
    let mut i = 0;
    while i < N {
        let mut bytes = [0; 4];
        let mut j = 0;
        while j < 4 {
            bytes[j] = levels[(packed[i] >> (3 * j)) as usize & 7];
            j += 1;
        }
        table[i] = u32::from_le_bytes(bytes);
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a over the bytes in the order of the weights.
    fn fingerprint(bytes: impl Iterator<Item = u8>) -> u64 {
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// The fingerprints were taken from the tables of gguf-py 0.19, which are byte-equal to `ggml-common.h`.
    #[test]
    fn lattices_are_those_of_the_format() {
        let wide = |table: &[u64]| fingerprint(table.iter().flat_map(|entry| entry.to_le_bytes()));
        let narrow = |table: &[u32]| fingerprint(table.iter().flat_map(|entry| entry.to_le_bytes()));
        assert_eq!(wide(&IQ2XXS_GRID), 0xbb4e_e025_b5ac_6e8e);
        assert_eq!(wide(&IQ2XS_GRID), 0xc9b1_ee61_e799_09bd);
        assert_eq!(wide(&IQ2S_GRID), 0x123e_dd38_a3b6_2b90);
        assert_eq!(narrow(&IQ3XXS_GRID), 0xdfa5_dc83_d6a1_55d5);
        assert_eq!(narrow(&IQ3S_GRID), 0xfa37_020c_25b4_4829);
        assert_eq!(wide(&IQ1S_GRID), 0x6703_ed86_3501_ae2e);
    }

    #[test]
    fn signs_are_even() {
        assert_eq!(KSIGNS[..8], [0x00, 0x81, 0x82, 0x03, 0x84, 0x05, 0x06, 0x87]);
        assert!(KSIGNS.iter().all(|signs| signs.count_ones() % 2 == 0));
    }
}
