//! Lists of token ids as text.

/// Ids in `text`: a JSON list, or numbers separated by spaces, commas or newlines, with `#` comments.
///
/// # Errors
/// Which line has what in place of an id.
pub fn parse(text: &str) -> Result<Vec<u32>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|e| format!("not a JSON list of token ids: {e}"));
    }
    let mut ids = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (line, _comment) = line.split_once('#').unwrap_or((line, ""));
        for word in line.split([' ', '\t', ',', '\r']).filter(|word| !word.is_empty()) {
            let id = word
                .parse()
                .map_err(|_| format!("line {}: `{}` is not a token id", index + 1, word.escape_debug()))?;
            ids.push(id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_lines() {
        let check = |text: &str, expect: &[u32]| assert_eq!(parse(text).as_deref(), Ok(expect), "{text}");
        check("[1, 2,3]\n", &[1, 2, 3]);
        check(" []", &[]);
        check("", &[]);
        check("# ids\n1\n2 # two\n\n3, 4\t5\r\n", &[1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_is_not_an_id_is_named() {
        let check = |text: &str, expect: &str| assert_eq!(parse(text), Err(expect.to_owned()), "{text}");
        check("1\n-2", "line 2: `-2` is not a token id");
        check("4294967296", "line 1: `4294967296` is not a token id");
        check("a\u{1b}b", "line 1: `a\\u{1b}b` is not a token id");
        assert!(parse("[1, -2]").is_err_and(|e| e.starts_with("not a JSON list of token ids: ")));
        assert!(parse("[1, 2").is_err());
    }
}
