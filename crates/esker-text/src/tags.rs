//! Finding tags in text that arrives in pieces.

use std::cmp::Reverse;

/// Where the earliest of several tags stands in a text, or how much of the text may still become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The tag with this index starts at byte `start`; of tags that start together it is the longest.
    At { tag: usize, start: usize },
    /// There is none; what stands from byte `safe` on may be the beginning of one. The end of the text if nothing may.
    Not { safe: usize },
}

/// Looks for the earliest of `tags`, none of them empty. A tag that could still turn out to be a longer one, or to lie
/// inside another, is not found yet; with `last`, no more text comes and it is.
pub(crate) fn find(text: &str, tags: &[&str], last: bool) -> Found {
    let partial = if last { 0 } else { tags.iter().map(|tag| partial_suffix(text, tag)).max().unwrap_or(0) };
    let safe = text.len() - partial;
    let matches = tags.iter().enumerate().filter_map(|(tag, t)| Some((text.find(t)?, Reverse(t.len()), tag)));
    match matches.min() {
        Some((start, _, tag)) if start < safe => Found::At { tag, start },
        _ => Found::Not { safe },
    }
}

/// Length of the longest proper beginning of `tag` that `text` ends in.
pub(crate) fn partial_suffix(text: &str, tag: &str) -> usize {
    let longest = tag.len().saturating_sub(1).min(text.len());
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&tag.as_bytes()[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_and_longest() {
        let tags = ["<a>", "<a><b>", "x"];
        assert_eq!(find("..<a>.x", &tags, false), Found::At { tag: 0, start: 2 });
        assert_eq!(find("..<a>", &tags, false), Found::Not { safe: 2 });
        assert_eq!(find("..<a>", &tags, true), Found::At { tag: 0, start: 2 });
        assert_eq!(find("..<a><b>", &tags, false), Found::At { tag: 1, start: 2 });
        assert_eq!(find("..<a", &tags, false), Found::Not { safe: 2 });
        assert_eq!(find("..<a", &tags, true), Found::Not { safe: 4 });
        assert_eq!(find("", &tags, false), Found::Not { safe: 0 });
    }

    #[test]
    fn partial_tags_end_on_character_boundaries() {
        // U+FF5C and U+2581 share no first byte with `|`, but a suffix may share bytes with the middle of a tag.
        assert_eq!(partial_suffix("x<｜tool", "<｜tool▁calls▁begin｜>"), "<｜tool".len());
        assert_eq!(partial_suffix("｜", "<｜"), 0);
        assert_eq!(partial_suffix("<", "<"), 0);
    }
}
