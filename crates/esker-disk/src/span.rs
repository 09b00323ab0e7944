//! The arithmetic of direct I/O: which aligned range has to be read to get an arbitrary one.
//!
//! Source: open(2), section O_DIRECT: file offset, length and memory address must be multiples of an
//! alignment that the file system states (statx(2), `stx_dio_offset_align`, `stx_dio_mem_align`).

/// An aligned superset of a wanted range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte to read; a multiple of the alignment.
    pub offset: u64,
    /// Bytes to read; a multiple of the alignment. The end may lie beyond the end of the file.
    pub len: usize,
    /// Bytes of the span that come before the first wanted byte; less than the alignment.
    pub skip: usize,
}

/// Returns the smallest span of whole `align`-byte blocks that contains `len` bytes at `offset`.
///
/// With `align == 1` (buffered reads) that is the range itself. A range whose end exceeds what a file can
/// have gives a span that saturates instead of wrapping, which no buffer can hold.
/// # Panics
/// If `align` is not a power of two.
pub fn aligned_span(offset: u64, len: usize, align: usize) -> Span {
    assert!(align.is_power_of_two(), "alignment {align} is not a power of two");
    let align = align as u64;
    let skip = offset % align;
    let start = offset - skip;
    let end = offset.saturating_add(len as u64).checked_next_multiple_of(align).unwrap_or(u64::MAX);
    Span { offset: start, len: usize::try_from(end - start).unwrap_or(usize::MAX), skip: skip as usize }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_answers() {
        let check = |offset, len, align, expect: (u64, usize, usize)| {
            let span = aligned_span(offset, len, align);
            assert_eq!((span.offset, span.len, span.skip), expect, "{len} bytes at {offset}, align {align}");
        };
        check(0, 4096, 4096, (0, 4096, 0));
        check(1, 4096, 4096, (0, 8192, 1));
        check(4095, 1, 4096, (0, 4096, 4095));
        check(4096, 0, 4096, (4096, 0, 0));
        check(12345, 77, 1, (12345, 77, 0));
        check(u64::MAX - 10, 100, 512, (u64::MAX - 511, 511, 501)); // saturates, does not wrap
    }

    proptest! {
        #[test]
        fn span_is_aligned_and_smallest(offset in 0u64..1 << 50, len in 0usize..1 << 30, shift in 0u32..17) {
            let align = 1usize << shift;
            let span = aligned_span(offset, len, align);
            prop_assert_eq!(span.offset % align as u64, 0);
            prop_assert_eq!(span.len % align, 0);
            prop_assert_eq!(span.offset + span.skip as u64, offset);
            prop_assert!(span.skip < align);
            prop_assert!(span.skip + len <= span.len);
            prop_assert!(span.len - (span.skip + len) < align);
        }
    }
}
