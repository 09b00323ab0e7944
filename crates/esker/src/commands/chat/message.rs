//! Messages of several lines: a backslash at the end of a line, or a block in triple quotes.

const QUOTES: &str = "\"\"\"";

/// False if more lines belong to the text.
pub fn is_complete(text: &str) -> bool {
    match text.trim_start().strip_prefix(QUOTES) {
        Some(block) => block.trim_end().ends_with(QUOTES),
        None => !text.ends_with('\\'),
    }
}

/// The message that was meant: without the backslashes or the quotes.
pub fn unwrap(text: &str) -> String {
    if let Some(block) = text.trim_start().strip_prefix(QUOTES) {
        let block = block.trim_end();
        let block = block.strip_suffix(QUOTES).unwrap_or(block);
        // Quotes can stand on lines of their own.
        let block = block.strip_prefix('\n').unwrap_or(block);
        return block.strip_suffix('\n').unwrap_or(block).to_owned();
    }
    text.strip_suffix('\\').unwrap_or(text).replace("\\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_several_lines() {
        let check = |text: &str, complete, expect: &str| {
            assert_eq!((is_complete(text), &*unwrap(text)), (complete, expect), "{text}");
        };
        check("one", true, "one");
        check("one\\", false, "one");
        check("one\\\ntwo", true, "one\ntwo");
        check("one\ntwo", true, "one\ntwo");
        check("\"\"\"", false, "");
        check("\"\"\"one\n", false, "one");
        check("\"\"\"one\"\"\"", true, "one");
        check("  \"\"\"\none\\\n\ntwo\n\"\"\" ", true, "one\\\n\ntwo");
        check("\"\"\"\"\"\"", true, "");
        check("say \"\"\"", true, "say \"\"\"");
    }
}
