//! Stop strings in streamed text: nothing that could still become one is given out.

/// Looks for the first of several strings in text that arrives in pieces.
pub struct StopScanner {
    stops: Vec<String>,
    held: String,
}

impl StopScanner {
    /// Empty strings are ignored.
    pub fn new(stops: &[String]) -> StopScanner {
        StopScanner { stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Takes the next piece. Returns the text that may be shown, and whether a stop string was met (it and what follows
    /// are dropped).
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        if let Some(at) = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.longest_beginning();
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text still held, when no more will come.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the longest end of the held text that is the beginning of a stop string.
    fn longest_beginning(&self) -> usize {
        let begins = |stop: &String| {
            let longest = (stop.len() - 1).min(self.held.len());
            (1..=longest)
                .rev()
                .find(|&n| stop.is_char_boundary(n) && self.held.as_bytes().ends_with(&stop.as_bytes()[..n]))
        };
        self.stops.iter().filter_map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of every size and expects the same outcome.
    fn check(stops: &[&str], text: &str, expected: &str, stopped: bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let chars: Vec<char> = text.chars().collect();
        for size in 1..=chars.len() {
            let mut scanner = StopScanner::new(&stops);
            let (mut shown, mut met) = (String::new(), false);
            for piece in chars.chunks(size) {
                let (text, stop) = scanner.push(&piece.iter().collect::<String>());
                shown.push_str(&text);
                if stop {
                    met = true;
                    break;
                }
            }
            if !met {
                shown.push_str(&scanner.finish());
            }
            assert_eq!((shown.as_str(), met), (expected, stopped), "pieces of {size}");
        }
    }

    #[test]
    fn stops_across_pieces() {
        check(&["END"], "one ENd two END three", "one ENd two ", true);
        check(&["\n\n", "User:"], "hi\nUser: x\n\n", "hi\n", true);
        check(&["aab"], "aaab", "a", true);
        check(&["停止"], "これで停止です", "これで", true);
        check(&["停止"], "これで停", "これで停", false);
        check(&[""], "text", "text", false);
        check(&["xyz"], "xyxy", "xyxy", false);
    }
}
