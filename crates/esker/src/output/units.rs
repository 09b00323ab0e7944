//! Numbers with units, three digits of them.

use std::time::Duration;

/// Bytes in units of 1024: `28.6 MiB`.
pub fn bytes(n: u64) -> String {
    scaled(n, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A count in units of 1000: `64.3 M`.
pub fn count(n: u64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Seconds: `0.31 s`, `12.4 s`.
pub fn seconds(time: Duration) -> String {
    format!("{} s", three_digits(time.as_secs_f64()))
}

/// A number of tokens in words: `1 token`, `12 tokens`.
pub fn tokens(n: usize) -> String {
    format!("{n} token{}", if n == 1 { "" } else { "s" })
}

/// A sentence whose numbers of bytes are in units: of `a budget of 33554432 bytes`, `a budget of 32.0 MiB`.
///
/// A number of bytes is followed by the word, or follows a part of it: `1024 bytes of 2048 that are free`.
pub fn sentence(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut words = text.split(' ').peekable();
    let mut part_of = false;
    while let Some(word) = words.next() {
        let unit =
            words.peek().and_then(|next| next.strip_prefix("bytes")).filter(|rest| is_punctuation(rest));
        match (word.parse(), unit) {
            (Ok(n), Some(rest)) => {
                out.push(bytes(n) + rest);
                words.next();
                part_of = words.peek() == Some(&"of");
            }
            (Ok(n), None) if part_of => out.push(bytes(n)),
            _ => {
                out.push(word.to_owned());
                part_of &= word == "of";
            }
        }
    }
    out.join(" ")
}

fn is_punctuation(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_punctuation())
}

/// Tokens per second: `38.7 tok/s`.
pub fn tokens_per_s(rate: f64) -> String {
    format!("{} tok/s", three_digits(rate))
}

/// A share of a whole: `12.3 %`.
pub fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    format!("{:.1} %", 100.0 * share)
}

fn scaled(n: u64, step: f64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    // 999.5 would be shown as 1000.
    while value >= if unit == 0 { step } else { 999.5 } && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let number = if unit == 0 { n.to_string() } else { three_digits(value) };
    format!("{number} {}", units[unit]).trim_end().to_owned()
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(29_983_392), "28.6 MiB");
        assert_eq!(bytes(1_023_700), "0.98 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1.00 k");
        assert_eq!(count(64_300_000), "64.3 M");
        assert_eq!(count(999_600_000), "1.00 G");
        assert_eq!(seconds(Duration::from_millis(312)), "0.31 s");
        assert_eq!([tokens(1), tokens(2)], ["1 token", "2 tokens"]);
        assert_eq!(tokens_per_s(1234.5), "1234 tok/s");
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }

    #[test]
    fn sentences_keep_everything_but_numbers_of_bytes() {
        let check = |text: &str, expect: &str| assert_eq!(sentence(text), expect);
        check(
            "memory: budget of 33554432 bytes, less 2048 bytes; 4096 slots",
            "memory: budget of 32.0 MiB, less 2.00 KiB; 4096 slots",
        );
        check("1024 bytes of 2048 that it may take of 4096", "1.00 KiB of 2.00 KiB that it may take of 4096");
        check("disk: /data/2048 bytes.txt  of 7", "disk: /data/2048 bytes.txt  of 7");
        check("", "");
    }
}
