//! The K types: super-blocks of 256 weights, whose groups of 16 or 32 have scales that are themselves
//! quantized.

use bytemuck::{Pod, Zeroable};

use super::{F16Le, F32Le, I16Le, block};

/// `w = d * scale * code - dmin * min`, code 2 bits, 16 groups of 16.
///
/// Weight `128 h + 32 s + j` (`j < 32`) is bits `2 s` and up of `qs[32 h + j]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// One byte a group: scale in the low, minimum in the high nibble.
    pub scales: [u8; 16],
    /// Codes.
    pub qs: [u8; 64],
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
}

/// `w = d * scale * (code - 4)`, code 3 bits, scale 6 bits minus 32, 16 groups of 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// Third bits: weight `32 i + j` is bit `i` of `hmask[j]`.
    pub hmask: [u8; 32],
    /// Lower two bits of the codes, in the order of [`BlockQ2K::qs`].
    pub qs: [u8; 64],
    /// 16 scales of 6 bits, see [`BlockQ3K::scales`].
    pub scales: [u8; 12],
    /// Scale of the scales.
    pub d: F16Le,
}

impl BlockQ3K {
    /// The 16 group scales, -32 to 31.
    ///
    /// Group `g`'s low nibble is in byte `g % 8` (low nibble for `g < 8`), its upper two bits are bits
    /// `2 (g / 4)` and up of byte `8 + g % 4`.
    #[inline]
    pub fn scales(&self) -> [i8; 16] {
        let packed = &self.scales;
        std::array::from_fn(|g| {
            let low = (packed[g % 8] >> (g / 8 * 4)) & 15;
            let high = (packed[8 + g % 4] >> (g / 4 * 2)) & 3;
            (high << 4 | low) as i8 - 32
        })
    }
}

/// `w = d * scale * code - dmin * min`, code 4 bits, scale and minimum 6 bits, 8 groups of 32.
///
/// Weight `64 p + j` (`j < 32`) is the low nibble of `qs[32 p + j]`, weight `64 p + 32 + j` the high one.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
    /// 8 scales and 8 minima of 6 bits, see [`unpack_scale_min`].
    pub scales: [u8; 12],
    /// Codes.
    pub qs: [u8; 128],
}

/// As [`BlockQ4K`] with codes of 5 bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
    /// 8 scales and 8 minima of 6 bits, see [`unpack_scale_min`].
    pub scales: [u8; 12],
    /// Fifth bits: weight `32 g + j` is bit `g` of `qh[j]`.
    pub qh: [u8; 32],
    /// Lower four bits of the codes, in the order of [`BlockQ4K::qs`].
    pub qs: [u8; 128],
}

/// Scale and minimum (0 to 63) of group `group` (0 to 7) of a [`BlockQ4K`] or [`BlockQ5K`].
///
/// Groups 0 to 3: the lower 6 bits of bytes `g` and `g + 4`. Groups 4 to 7: low nibble (scale) and high
/// nibble (minimum) of byte `g + 4`, with the upper two bits of bytes `g - 4` (scale) and `g` (minimum) on
/// top.
#[inline]
pub fn unpack_scale_min(packed: &[u8; 12], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        ((low & 15) | (packed[group - 4] >> 6 << 4), (low >> 4) | (packed[group] >> 6 << 4))
    }
}

/// The inverse of [`unpack_scale_min`]: `scales` and `mins` are 0 to 63, higher bits are dropped.
pub fn pack_scales_mins(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for g in 0..4 {
        packed[g] = (scales[g] & 63) | (scales[g + 4] >> 4 << 6);
        packed[g + 4] = (mins[g] & 63) | (mins[g + 4] >> 4 << 6);
        packed[g + 8] = (scales[g + 4] & 15) | (mins[g + 4] << 4);
    }
    packed
}

/// `w = d * scale * (code - 32)`, code 6 bits, 16 groups of 16.
///
/// With `j < 32`: the lower nibbles of weights `128 h + j` and `128 h + 64 + j` are those of `ql[64 h + j]`,
/// of `128 h + 32 + j` and `128 h + 96 + j` those of `ql[64 h + 32 + j]`; the upper two bits of
/// `128 h + 32 s + j` are bits `2 s` and up of `qh[32 h + j]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// Lower four bits of the codes.
    pub ql: [u8; 128],
    /// Upper two bits of the codes.
    pub qh: [u8; 64],
    /// One scale a group.
    pub scales: [i8; 16],
    /// Scale of the scales.
    pub d: F16Le,
}

/// `w = d * code`, code 8 bits, with the sums of 16 groups of 16; for activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8K {
    /// Scale.
    pub d: F32Le,
    /// Codes.
    pub qs: [i8; 256],
    /// Sum of the codes of each group.
    pub bsums: [I16Le; 16],
}

block! {
    BlockQ2K: Q2_K, 256, 84;
    BlockQ3K: Q3_K, 256, 110;
    BlockQ4K: Q4_K, 256, 144;
    BlockQ5K: Q5_K, 256, 176;
    BlockQ6K: Q6_K, 256, 210;
    BlockQ8K: Q8_K, 256, 292;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_scales_come_back() {
        let scales = [63, 0, 17, 42, 1, 62, 32, 48];
        let mins = [5, 63, 31, 16, 47, 0, 63, 33];
        let packed = pack_scales_mins(&scales, &mins);
        for g in 0..8 {
            assert_eq!(unpack_scale_min(&packed, g), (scales[g], mins[g]), "group {g}");
        }
    }

    #[test]
    fn q3_k_scales_by_hand() {
        let mut block = BlockQ3K::zeroed();
        assert_eq!(block.scales(), [-32; 16]);
        block.scales[0] = 0xa5; // groups 0 (low nibble 5) and 8 (low nibble 10)
        block.scales[8] = 0b11_10_01_00; // upper bits of groups 0, 4, 8, 12
        let scales = block.scales();
        assert_eq!((scales[0], scales[4], scales[8], scales[12]), (5 - 32, 16 - 32, 42 - 32, 48 - 32));
    }
}
