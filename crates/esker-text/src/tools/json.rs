//! JSON that arrives character by character: is it valid so far, and where does a value end?

/// Deepest nesting that is followed; what is deeper counts as invalid.
const MAX_DEPTH: usize = 128;

/// Follows one JSON value and writes it down again.
///
/// Two mistakes that models make in strings are put right in what is written: raw control characters become escapes, and
/// a backslash before a character that cannot be escaped is escaped itself.
#[derive(Clone, Debug)]
pub(super) struct JsonScanner {
    /// Whether the containers around the current place are objects.
    stack: Vec<bool>,
    state: State,
}

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The value goes on.
    More,
    /// The value ends with this character.
    Ends,
    /// The value ended before this character.
    Ended,
    /// The character cannot stand here.
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value must come; with `true` the array may also end.
    Value(bool),
    /// A key must come; with `true` the object may also end.
    Key(bool),
    Colon,
    /// A comma, or the end of the container.
    Next,
    String {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static str),
}

/// Part of a number that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl JsonScanner {
    pub(super) fn new() -> JsonScanner {
        JsonScanner { stack: Vec::new(), state: State::Value(false) }
    }

    /// Takes the next character; writes it to `out` unless it is not part of the value or white space before it.
    pub(super) fn push(&mut self, c: char, out: &mut String) -> Scan {
        let blank = matches!(c, ' ' | '\n' | '\r' | '\t');
        let next = match self.state {
            State::Value(_) | State::Key(_) | State::Colon | State::Next if blank => {
                if !self.stack.is_empty() {
                    out.push(c);
                }
                return Scan::More;
            }
            State::Value(may_end) => match c {
                '{' | '[' => {
                    if self.stack.len() == MAX_DEPTH {
                        return Scan::Invalid;
                    }
                    self.stack.push(c == '{');
                    if c == '{' { State::Key(true) } else { State::Value(true) }
                }
                ']' if may_end => return self.close(c, out),
                '"' => State::String { key: false },
                '-' => State::Number(Number::Minus),
                '0' => State::Number(Number::Zero),
                '1'..='9' => State::Number(Number::Integer),
                't' => State::Literal("rue"),
                'f' => State::Literal("alse"),
                'n' => State::Literal("ull"),
                _ => return Scan::Invalid,
            },
            State::Key(may_end) => match c {
                '"' => State::String { key: true },
                '}' if may_end => return self.close(c, out),
                _ => return Scan::Invalid,
            },
            State::Colon if c == ':' => State::Value(false),
            State::Colon => return Scan::Invalid,
            State::Next => match (c, self.stack.last()) {
                (',', Some(true)) => State::Key(false),
                (',', _) => State::Value(false),
                ('}', Some(true)) | (']', Some(false)) => return self.close(c, out),
                _ => return Scan::Invalid,
            },
            State::String { key } => match c {
                '"' => return self.value_ends(c, key, out),
                '\\' => State::Escape { key },
                c if c < ' ' => {
                    push_escaped(c, out);
                    return Scan::More;
                }
                _ => self.state,
            },
            State::Escape { key } => {
                self.state = State::String { key };
                match c {
                    'u' => State::Hex { key, left: 4 },
                    '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => State::String { key },
                    _ => {
                        out.push('\\');
                        // Not the end of the string, and a control character is escaped as elsewhere.
                        return self.push(c, out);
                    }
                }
            }
            State::Hex { key, left } if c.is_ascii_hexdigit() => {
                if left == 1 {
                    State::String { key }
                } else {
                    State::Hex { key, left: left - 1 }
                }
            }
            State::Hex { .. } => return Scan::Invalid,
            State::Number(part) => match part.next(c) {
                Some(part) => State::Number(part),
                None if part.may_end() && self.stack.is_empty() => return Scan::Ended,
                None if part.may_end() => {
                    self.state = State::Next;
                    return self.push(c, out);
                }
                None => return Scan::Invalid,
            },
            State::Literal(rest) => match rest.strip_prefix(c) {
                Some("") => return self.value_ends(c, false, out),
                Some(rest) => State::Literal(rest),
                None => return Scan::Invalid,
            },
        };
        self.state = next;
        out.push(c);
        Scan::More
    }

    fn close(&mut self, c: char, out: &mut String) -> Scan {
        self.stack.pop();
        self.value_ends(c, false, out)
    }

    fn value_ends(&mut self, c: char, key: bool, out: &mut String) -> Scan {
        out.push(c);
        self.state = if key { State::Colon } else { State::Next };
        if self.stack.is_empty() { Scan::Ends } else { Scan::More }
    }
}

impl Number {
    fn next(self, c: char) -> Option<Number> {
        use Number::{E, Exponent, Fraction, Integer, Minus, Point, Sign, Zero};
        Some(match (self, c) {
            (Minus, '0') => Zero,
            (Minus, '1'..='9') | (Integer, '0'..='9') => Integer,
            (Zero | Integer, '.') => Point,
            (Point | Fraction, '0'..='9') => Fraction,
            (Zero | Integer | Fraction, 'e' | 'E') => E,
            (E, '+' | '-') => Sign,
            (E | Sign | Exponent, '0'..='9') => Exponent,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Number::Zero | Number::Integer | Number::Fraction | Number::Exponent)
    }
}

/// Writes a character of a JSON string, escaped where it must be.
pub(super) fn push_escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        _ => out.push(c),
    }
}

/// Writes text as the inside of a JSON string.
pub(super) fn push_escaped_str(text: &str, out: &mut String) {
    text.chars().for_each(|c| push_escaped(c, out));
}

/// Reads the inside of a JSON string that arrives character by character.
#[derive(Clone, Debug, Default)]
pub(super) struct Unescaper {
    /// After a backslash: the characters of the escape so far.
    escape: Option<String>,
    /// First half of a surrogate pair.
    high: Option<u32>,
}

impl Unescaper {
    /// Takes the next character. `false` at the quote that ends the string.
    pub(super) fn push(&mut self, c: char, out: &mut String) -> bool {
        let Some(escape) = &mut self.escape else {
            if c == '\\' {
                self.escape = Some(String::new());
                return true;
            }
            self.flush_high(out);
            if c == '"' {
                return false;
            }
            out.push(c);
            return true;
        };
        escape.push(c);
        let plain = match &**escape {
            "n" => '\n',
            "t" => '\t',
            "r" => '\r',
            "b" => '\u{8}',
            "f" => '\u{c}',
            e if e.starts_with('u') && e.len() < 5 && (e == "u" || c.is_ascii_hexdigit()) => return true,
            e if e.starts_with('u') => {
                let unit = u32::from_str_radix(&e[1..], 16).unwrap_or(0xfffd);
                self.escape = None;
                self.push_unit(unit, out);
                return true;
            }
            // `\"`, `\\`, `\/`, and what is no escape stands for itself.
            _ => c,
        };
        self.escape = None;
        self.flush_high(out);
        out.push(plain);
        true
    }

    fn push_unit(&mut self, unit: u32, out: &mut String) {
        if let (Some(high), 0xdc00..=0xdfff) = (self.high, unit) {
            self.high = None;
            let code = 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            return;
        }
        self.flush_high(out);
        match unit {
            0xd800..=0xdbff => self.high = Some(unit),
            _ => out.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }

    fn flush_high(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Scans all of `text`: the result of the last character, how many were taken, and what was written.
    fn scan(text: &str) -> (Scan, usize, String) {
        let mut scanner = JsonScanner::new();
        let mut out = String::new();
        let mut last = Scan::More;
        for (i, c) in text.char_indices() {
            last = scanner.push(c, &mut out);
            if last != Scan::More {
                return (last, i, out);
            }
        }
        (last, text.len(), out)
    }

    #[test]
    fn ends_and_errors() {
        assert_eq!(scan(" {\"a\": [1, -2.5e+3, true]} x").0, Scan::Ends);
        assert_eq!(scan("12 ").0, Scan::Ended);
        assert_eq!(scan("-").0, Scan::More);
        assert_eq!(scan("null").0, Scan::Ends);
        for bad in [
            "{a",
            "{\"a\" 1",
            "[1,]",
            "{\"a\":1,}",
            "[01]",
            "+1",
            "1.e",
            "tru ",
            "nul}",
            "'a'",
            "\"\\u12g",
            "}",
            "[1}",
        ] {
            assert_eq!(scan(bad).0, Scan::Invalid, "{bad}");
        }
        assert_eq!(scan(&"[".repeat(MAX_DEPTH)).0, Scan::More);
        assert_eq!(scan(&"[".repeat(MAX_DEPTH + 1)).0, Scan::Invalid);
    }

    #[test]
    fn mistakes_in_strings_are_put_right() {
        assert_eq!(scan("\"a\nb\t\\'c\\d\"").2, r#""a\nb\t\\'c\\d""#);
        assert_eq!(scan("\"\\\n\"").2, r#""\\\n""#);
    }

    #[test]
    fn unescapes() {
        let read = |text: &str| {
            let mut unescaper = Unescaper::default();
            let mut out = String::new();
            let ended = text.chars().any(|c| !unescaper.push(c, &mut out));
            (out, ended)
        };
        assert_eq!(read(r#"a\"b\\n\n\u00e9\ud83d\ude42\/"x"#), ("a\"b\\n\né🙂/".to_owned(), true));
        assert_eq!(read(r#"\ud83dx\ude42"#), ("\u{fffd}x\u{fffd}".to_owned(), false));
        assert_eq!(read(r#"\ud83d""#), ("\u{fffd}".to_owned(), true));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,6}|[\\x00-\\x1f\"\\\\]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,4}", inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn follows_what_serde_writes(value in value(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let (end, at, out) = scan(&(text.clone() + ","));
            prop_assert!(matches!((end, at), (Scan::Ends, n) if n == text.len() - 1) || (end, at) == (Scan::Ended, text.len()));
            prop_assert_eq!(out, text);
        }

        /// What it takes for a value, serde does too (which is stricter in nothing but surrogates and huge numbers).
        #[test]
        fn agrees_with_serde(text in "[\\[\\]{}:,\"\\\\ 0-9.eEtrufalsn+-]{0,12}") {
            let (end, at, out) = scan(&text);
            match serde_json::from_str::<Value>(&text) {
                Ok(_) => prop_assert!(end == Scan::Ends && text[at + 1..].trim().is_empty() || end == Scan::More || end == Scan::Ended),
                Err(_) if end == Scan::Ends && at + 1 == text.len() => {
                    let read: Result<Value, _> = serde_json::from_str(&out);
                    prop_assert!(read.is_ok() || text.contains("\\u") || text.contains(['e', 'E']), "{}", out);
                }
                Err(_) => {}
            }
        }

        #[test]
        fn unescapes_what_serde_escapes(text in "\\PC{0,12}|[\\x00-\\x1f\"\\\\a]{0,12}") {
            let quoted = serde_json::to_string(&text).unwrap();
            let mut unescaper = Unescaper::default();
            let mut out = String::new();
            let mut chars = quoted[1..].chars();
            prop_assert!(chars.by_ref().any(|c| !unescaper.push(c, &mut out)));
            prop_assert_eq!(chars.next(), None);
            prop_assert_eq!(&out, &text);
            let mut escaped = String::new();
            push_escaped_str(&text, &mut escaped);
            prop_assert_eq!(serde_json::from_str::<String>(&format!("\"{escaped}\"")).unwrap(), text);
        }
    }
}
