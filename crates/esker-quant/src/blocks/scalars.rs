//! Little-endian scalars of alignment 1, and the conversions of the narrow float formats.
//!
//! Sources: IEEE 754 binary16; bfloat16 (upper half of binary32); OCP Microscaling Formats 1.0 for E8M0 and
//! E2M1; `ggml-impl.h` of llama.cpp for the halved scales that go with doubled E2M1 values.

use bytemuck::{Pod, Zeroable};

/// An IEEE 754 half-precision number, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16Le(pub [u8; 2]);

impl F16Le {
    /// The value, exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.0))
    }

    /// The nearest half-precision number, ties to even.
    #[inline]
    pub fn from_f32(value: f32) -> F16Le {
        F16Le(f32_to_f16(value).to_le_bytes())
    }
}

macro_rules! little_endian {
    ($($(#[$doc:meta])* $name:ident: $native:ty, $bytes:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// The value.
            #[inline]
            pub fn get(self) -> $native {
                <$native>::from_le_bytes(self.0)
            }

            /// Stores a value.
            #[inline]
            pub fn new(value: $native) -> $name {
                $name(value.to_le_bytes())
            }
        }
    )+};
}

little_endian! {
    /// A `u16`, as stored.
    U16Le: u16, 2;
    /// An `i16`, as stored.
    I16Le: i16, 2;
    /// A `u32`, as stored.
    U32Le: u32, 4;
    /// An `f32`, as stored.
    F32Le: f32, 4;
}

/// Half precision to single, exactly. A NaN comes out quiet, as the conversion instructions of CPUs have it.
#[inline]
pub const fn f16_to_f32(bits: u16) -> f32 {
    let sign = ((bits & 0x8000) as u32) << 16;
    let magnitude = (bits & 0x7fff) as u32;
    let wide = if magnitude > 0x7c00 {
        ((magnitude << 13) + (224 << 23)) | 0x0040_0000
    } else if magnitude == 0x7c00 {
        0x7f80_0000
    } else if magnitude >= 0x0400 {
        (magnitude << 13) + (112 << 23)
    } else {
        // Subnormal or zero: a count of 2^-24, all representable in single precision.
        (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits()
    };
    f32::from_bits(sign | wide)
}

/// Single precision to half: nearest, ties to even; overflow gives infinity, a NaN stays a (quiet) NaN.
#[inline]
pub const fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let narrow = if magnitude > 0x7f80_0000 {
        0x7e00 | ((magnitude >> 13) & 0x03ff)
    } else if magnitude >= 0x477f_f000 {
        // 65520 and more round to infinity.
        0x7c00
    } else if magnitude >= 0x3880_0000 {
        // Normal: rebias the exponent, then round away 13 bits; a carry runs into the exponent, as it should.
        let rebiased = magnitude - (112 << 23);
        (rebiased + 0x0fff + ((rebiased >> 13) & 1)) >> 13
    } else {
        // Subnormal: adding 0.5 (whose last place is 2^-24) lets the addition round to a count of 2^-24.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000
    };
    sign | narrow as u16
}

/// bfloat16 to single precision, exactly.
#[inline]
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Single precision to bfloat16: nearest, ties to even; a NaN keeps its upper bits and becomes quiet.
#[inline]
pub const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x0040;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// Half of an E8M0 scale: `2^(e - 128)`, the scale that goes with
/// [`KVALUES_E2M1`](super::codebooks::KVALUES_E2M1).
///
/// 0 and 1 give the subnormals 2^-128 and 2^-127. 255, NaN in the OCP text, is 2^127 as in `ggml`.
#[inline]
pub const fn e8m0_half_to_f32(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e as u32 - 1) << 23 })
}

/// Half of an unsigned E4M3 scale (bias 7), the scale that goes with
/// [`KVALUES_E2M1`](super::codebooks::KVALUES_E2M1).
///
/// Bit 7 is ignored, except that 0x7f (NaN) reads as 0 and 0xff as 240: as in `ggml`.
#[inline]
pub const fn ue4m3_half_to_f32(bits: u8) -> f32 {
    if bits == 0x7f {
        return 0.0;
    }
    let exponent = ((bits >> 3) & 15) as u32;
    let mantissa = (bits & 7) as u32;
    if exponent == 0 {
        // A count of 2^-9, halved.
        mantissa as f32 * (1.0 / 1024.0)
    } else {
        f32::from_bits((exponent + 127 - 8) << 23 | mantissa << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_code_agrees_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#06x}");
            let back = if ours.is_nan() { bits | 0x0200 } else { bits };
            assert_eq!(f32_to_f16(ours), back, "{bits:#06x}");
        }
    }

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        // Around every half-precision value and every midpoint, in both formats; then a sweep over all
        // exponents.
        let around = |bits: u32| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
        let midpoints = (0..0x7c00u16).flat_map(|code| {
            let (low, high) = (f16_to_f32(code), f16_to_f32(code + 1));
            let middle = if high.is_finite() { low + (high - low) / 2.0 } else { 65520.0 };
            [low.to_bits(), middle.to_bits()].into_iter().flat_map(around)
        });
        let sweep = (0..=u32::MAX - 65_536).step_by(7919);
        for bits in midpoints.chain(sweep) {
            for value in [f32::from_bits(bits), -f32::from_bits(bits)] {
                assert_eq!(f32_to_f16(value), half::f16::from_f32(value).to_bits(), "{value:e} {bits:#010x}");
                assert_eq!(
                    f32_to_bf16(value),
                    half::bf16::from_f32(value).to_bits(),
                    "{value:e} {bits:#010x}"
                );
            }
        }
    }

    #[test]
    fn known_scales() {
        assert_eq!(e8m0_half_to_f32(128), 1.0);
        assert_eq!(e8m0_half_to_f32(0), 2f32.powi(-126) / 4.0);
        assert_eq!(e8m0_half_to_f32(1), 2f32.powi(-126) / 2.0);
        assert_eq!(e8m0_half_to_f32(255), 2f32.powi(127));
        assert_eq!(ue4m3_half_to_f32(0x38), 0.5);
        assert_eq!(ue4m3_half_to_f32(0x7e), 224.0);
        assert_eq!(ue4m3_half_to_f32(0x7f), 0.0);
        assert_eq!(ue4m3_half_to_f32(0x01), 1.0 / 1024.0);
    }
}
