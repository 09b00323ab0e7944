//! Text from files and models, made safe for a terminal: an escape sequence in it could hide or fake other
//! output.

use std::borrow::Cow;

/// `text` with control characters but newline and tab replaced by U+FFFD. A carriage return just goes: it is
/// half of a line end, or would write over the line.
pub fn printable(text: &str) -> Cow<'_, str> {
    let unsafe_char = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(unsafe_char) {
        Cow::Owned(text.replace('\r', "").replace(unsafe_char, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// `text` on one line: control characters as escapes, and no more than `chars_max` characters of it.
pub fn escaped(text: &str, chars_max: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(chars_max) {
        match c {
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\tb\nc"), "a\tb\nc");
        assert_eq!(printable("\u{1b}[31mä\u{9b}1m\r\n"), "\u{fffd}[31mä\u{fffd}1m\n");
    }

    #[test]
    fn one_line_of_bounded_length() {
        assert_eq!(escaped("a\nb\u{1b}", 9), "a\\nb\\u{1b}");
        assert_eq!(escaped("äöü", 2), "äö…");
        assert_eq!(escaped("äöü", 3), "äöü");
    }
}
