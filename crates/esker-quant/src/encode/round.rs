//! Float to integer as the reference does it, out-of-range values included.
//!
//! These occur: where a scale is subnormal its inverse is infinite. The reference's casts then give what x86
//! conversion instructions give, the smallest integer, of which the lower bits (zero) end up in the code.

/// Nearest integer, halves away from zero (C `roundf`).
pub(super) fn half_away(value: f32) -> i32 {
    let truncated = truncate(value);
    if value.abs() >= 8_388_608.0 {
        return truncated; // no fraction from 2^23 on
    }
    let fraction = value - truncated as f32;
    truncated + i32::from(fraction >= 0.5) - i32::from(fraction <= -0.5)
}

/// Nearest integer, halves to even.
pub(super) fn half_even(value: f32) -> i32 {
    truncate(value.round_ties_even())
}

/// Towards zero; `i32::MIN` if the result would not fit.
pub(super) fn truncate(value: f32) -> i32 {
    if value.abs() < 2_147_483_648.0 { value as i32 } else { i32::MIN }
}

/// Nearest integer as a float, halves to even, for `|value| < 2^22`: an add and a subtract, which vectorise.
pub(super) fn small_half_even(value: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: the last place of the sum is 1
    (value + MAGIC) - MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves() {
        for (value, away, even) in [
            (0.5, 1, 0),
            (-0.5, -1, 0),
            (1.5, 2, 2),
            (2.5, 3, 2),
            (-2.5, -3, -2),
            (0.499_999_97, 0, 0),
            (8_388_609.0, 8_388_609, 8_388_609),
            (f32::INFINITY, i32::MIN, i32::MIN),
            (f32::NAN, i32::MIN, i32::MIN),
        ] {
            assert_eq!((half_away(value), half_even(value)), (away, even), "{value}");
            if value.abs() < 4e6 {
                assert_eq!(small_half_even(value), even as f32, "{value}");
            }
        }
    }
}
