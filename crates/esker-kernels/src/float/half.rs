//! IEEE half precision as bits, for the KV cache: exact widening, narrowing to nearest even.
//!
//! Bit arithmetic instead of the `half` crate, so that the sixteen-lane bodies can be compiled for any instruction
//! set; NaN payloads are treated as the f16c instructions treat them.

/// The exact f32 of half-precision bits.
#[inline(always)]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let rest = u32::from(h & 0x7fff);
    let magnitude = if rest >= 0x7c00 {
        // Infinity, or NaN made quiet.
        let quiet = if rest > 0x7c00 { 0x0040_0000 } else { 0 };
        0x7f80_0000 | ((rest & 0x03ff) << 13) | quiet
    } else {
        // The exponent is 112 too small when the fields are moved; a product by 2^112 is exact and also
        // normalises subnormals.
        const TWO_POW_112: f32 = f32::from_bits((112 + 127) << 23);
        (f32::from_bits(rest << 13) * TWO_POW_112).to_bits()
    };
    f32::from_bits(sign | magnitude)
}

/// Half-precision bits nearest to `x`, ties to even; overflow gives infinity.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let rest = bits & 0x7fff_ffff;
    let magnitude = if rest > 0x7f80_0000 {
        0x7e00 | ((rest >> 13) & 0x03ff) as u16
    } else if rest >= 0x477f_f000 {
        // 65520 is half way between the largest half and the next power of two: it and all above round up.
        0x7c00
    } else if rest < 0x3880_0000 {
        // Below 2^-14 the result is subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
        ((f32::from_bits(rest) + 0.5).to_bits() - 0.5f32.to_bits()) as u16
    } else {
        let odd = (rest >> 13) & 1;
        ((rest + 0x0fff + odd - (112 << 23)) >> 13) as u16
    };
    sign | magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_equals_the_format_on_all_bits() {
        for h in 0..=u16::MAX {
            let (exponent, mantissa) = (i32::from(h >> 10 & 0x1f), f64::from(h & 0x3ff));
            let magnitude = match exponent {
                0 => mantissa * 2f64.powi(-24),
                31 if mantissa == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
            };
            let x = f16_to_f32(h);
            assert_eq!(x.is_sign_negative(), h & 0x8000 != 0, "{h:#06x}");
            if magnitude.is_nan() {
                assert_eq!(x.to_bits() & 0x7fff_ffff, 0x7fc0_0000 | u32::from(h & 0x3ff) << 13, "{h:#06x}");
            } else {
                assert_eq!(f64::from(x.abs()), magnitude, "{h:#06x}");
            }
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        // Every finite half, the midpoint to the next, and the two f32 beside the midpoint.
        for h in 0..0x7c00u16 {
            let low = f16_to_f32(h);
            let high = if h == 0x7bff { 65536.0 } else { f16_to_f32(h + 1) };
            let middle = (low + high) / 2.0;
            let even = if h % 2 == 0 { h } else { h + 1 };
            for sign in [0, 0x8000] {
                let s = if sign == 0 { 1.0 } else { -1.0 };
                assert_eq!(f32_to_f16(s * low), sign | h, "{h:#06x}");
                assert_eq!(f32_to_f16(s * middle), sign | even, "{h:#06x}");
                assert_eq!(f32_to_f16(s * middle.next_down()), sign | h, "{h:#06x}");
                assert_eq!(f32_to_f16(s * middle.next_up()), sign | (h + 1), "{h:#06x}");
            }
        }
        assert_eq!(f32_to_f16(f32::INFINITY), 0x7c00);
        assert_eq!(f32_to_f16(f32::MIN), 0xfc00);
        assert_eq!(f32_to_f16(f32::MIN_POSITIVE), 0);
        assert_eq!(f32_to_f16(f32::NAN) & 0x7e00, 0x7e00);
    }
}
