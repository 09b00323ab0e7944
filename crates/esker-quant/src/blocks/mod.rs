//! The bytes of a block, for every block type: plain structs of alignment 1, to be cast from file bytes.
//!
//! Source: `ggml-common.h` of llama.cpp (`block_*`); field names are its own, except where one of its fields
//! holds two things (`Iq2XxsGroup`, the signs of [`BlockIQ2S`]). All numbers are little endian. Weights in
//! these comments are numbered in tensor order. What the codes mean is defined by
//! [`decode`](crate::decode()).

pub mod codebooks;
mod grids;
mod iq;
mod k;
mod legacy;
mod scalars;
mod small;

pub use iq::{
    BlockIQ1M, BlockIQ1S, BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS, BlockIQ4NL, BlockIQ4XS,
    Iq2XxsGroup,
};
pub use k::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K, pack_scales_mins, unpack_scale_min};
pub use legacy::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1};
pub use scalars::{
    F16Le, F32Le, I16Le, U16Le, U32Le, bf16_to_f32, e8m0_half_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16,
    ue4m3_half_to_f32,
};
pub use small::{BlockMXFP4, BlockNVFP4, BlockQ1_0, BlockQ2_0, BlockTQ1_0, BlockTQ2_0};

use crate::GgmlType;

/// Weights in a block of the K, IQ (but IQ4_NL) and TQ types.
pub const QK_K: usize = 256;

/// A block layout. `size_of::<Self>()` is the type's bytes per block, `align_of::<Self>()` is 1.
pub trait Block: bytemuck::Pod {
    /// The tensor type made of these blocks.
    const TYPE: GgmlType;
    /// Weights in a block.
    const ELEMS: usize;
}

/// Implements [`Block`] and checks the size at compile time.
macro_rules! block {
    ($($name:ident: $ty:ident, $elems:expr, $bytes:literal;)+) => {$(
        const _: () = assert!(
            size_of::<$name>() == $bytes && align_of::<$name>() == 1,
            "must match the byte layout of the format"
        );

        impl crate::blocks::Block for $name {
            const TYPE: crate::GgmlType = crate::GgmlType::$ty;
            const ELEMS: usize = $elems;
        }
    )+};
}
use block;

/// Splits file bytes into blocks. `None` if they are no whole number of them.
pub fn cast<B: Block>(bytes: &[u8]) -> Option<&[B]> {
    bytemuck::try_cast_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees_with_type_table<B: Block>() {
        assert_eq!(B::ELEMS, B::TYPE.block_elems(), "{}", B::TYPE);
        assert_eq!(size_of::<B>(), B::TYPE.block_bytes(), "{}", B::TYPE);
    }

    #[test]
    fn layouts_agree_with_the_type_table() {
        agrees_with_type_table::<BlockQ4_0>();
        agrees_with_type_table::<BlockQ4_1>();
        agrees_with_type_table::<BlockQ5_0>();
        agrees_with_type_table::<BlockQ5_1>();
        agrees_with_type_table::<BlockQ8_0>();
        agrees_with_type_table::<BlockQ8_1>();
        agrees_with_type_table::<BlockQ2K>();
        agrees_with_type_table::<BlockQ3K>();
        agrees_with_type_table::<BlockQ4K>();
        agrees_with_type_table::<BlockQ5K>();
        agrees_with_type_table::<BlockQ6K>();
        agrees_with_type_table::<BlockQ8K>();
        agrees_with_type_table::<BlockIQ1S>();
        agrees_with_type_table::<BlockIQ1M>();
        agrees_with_type_table::<BlockIQ2XXS>();
        agrees_with_type_table::<BlockIQ2XS>();
        agrees_with_type_table::<BlockIQ2S>();
        agrees_with_type_table::<BlockIQ3XXS>();
        agrees_with_type_table::<BlockIQ3S>();
        agrees_with_type_table::<BlockIQ4NL>();
        agrees_with_type_table::<BlockIQ4XS>();
        agrees_with_type_table::<BlockTQ1_0>();
        agrees_with_type_table::<BlockTQ2_0>();
        agrees_with_type_table::<BlockMXFP4>();
        agrees_with_type_table::<BlockNVFP4>();
        agrees_with_type_table::<BlockQ1_0>();
        agrees_with_type_table::<BlockQ2_0>();
    }

    #[test]
    fn a_part_of_a_block_is_refused() {
        assert_eq!(cast::<BlockQ8_0>(&[0; 68]).map(<[_]>::len), Some(2));
        assert!(cast::<BlockQ8_0>(&[0; 67]).is_none());
    }
}
