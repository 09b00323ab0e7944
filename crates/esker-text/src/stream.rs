//! Decoding while tokens arrive: text comes out as soon as its last byte is there, never half a character.

use crate::tokenizer::Tokenizer;

/// Turns tokens into text one by one; made by [`Tokenizer::stream`].
#[derive(Clone, Debug)]
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    utf8: Utf8Stream,
    skip_special: bool,
    /// Control tokens whose names are given in any case.
    kept: Vec<u32>,
    first: bool,
}

impl<'t> StreamDecoder<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer) -> Self {
        StreamDecoder {
            tokenizer,
            utf8: Utf8Stream::default(),
            skip_special: true,
            kept: Vec::new(),
            first: false,
        }
    }

    /// Gives the names of control tokens as text, too.
    pub fn with_special(mut self) -> Self {
        self.skip_special = false;
        self
    }

    /// Gives the names of these control tokens as text, too: the tags that a parser of the text looks for. Texts that
    /// are no control token are ignored.
    pub fn keeping<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.kept.extend(names.into_iter().filter_map(|name| self.tokenizer.special_token(name)));
        self
    }

    /// The tokens are a whole text, not the continuation of a prompt: a space that encoding would have put before it
    /// is taken off, as [`Tokenizer::decode`] does.
    pub fn at_start(mut self) -> Self {
        self.first = true;
        self
    }

    /// Takes a token; returns the text that is now complete, which is often none. An id beyond the vocabulary adds
    /// nothing.
    pub fn push(&mut self, id: u32) -> String {
        let skip_special = self.skip_special && !self.kept.contains(&id);
        match self.tokenizer.decoded(id, skip_special, &mut self.first) {
            Some(bytes) => self.utf8.push(bytes),
            None => String::new(),
        }
    }

    /// Ends the text: U+FFFD if a character was left unfinished. The decoder can be used again.
    pub fn finish(&mut self) -> String {
        self.utf8.finish()
    }
}

/// Cuts a stream of bytes into whole UTF-8 characters.
///
/// Bytes that cannot be part of a character become U+FFFD at once, one for each maximal part of a character, so that
/// all pieces together equal [`String::from_utf8_lossy`] of all bytes.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// Beginning of a character that may yet be completed; at most 3 bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes bytes; returns the text that is now complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut out = String::with_capacity(self.pending.len());
        let mut rest: &[u8] = &self.pending;
        loop {
            match str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    out.push_str(str::from_utf8(valid).unwrap_or_default());
                    rest = after;
                    match e.error_len() {
                        Some(n) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            rest = &rest[n..];
                        }
                        None => break,
                    }
                }
            }
        }
        let kept = self.pending.len() - rest.len();
        self.pending.drain(..kept);
        out
    }

    /// Ends the stream: U+FFFD if a character was left unfinished.
    pub fn finish(&mut self) -> String {
        if self.pending.is_empty() {
            return String::new();
        }
        self.pending.clear();
        char::REPLACEMENT_CHARACTER.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_split_equals_the_whole(
            bytes in prop::collection::vec(prop_oneof![
                Just(0xf0u8), Just(0x9f), Just(0x98), Just(0x80), Just(0xe2), Just(0xed), Just(0xa0), Just(0xc3),
                Just(0xc0), Just(0xf4), Just(0xf5), Just(0xff), Just(b'a'), any::<u8>(),
            ], 0..40),
            cuts in prop::collection::vec(0usize..40, 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| c <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut stream = Utf8Stream::default();
            let mut out = String::new();
            for w in cuts.windows(2) {
                out += &stream.push(&bytes[w[0]..w[1]]);
            }
            out += &stream.finish();
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn text_comes_as_soon_as_it_is_certain() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"a\xe2\x82"), "a");
        assert_eq!(stream.push(b"\xac"), "€");
        assert_eq!(stream.push(b"\xf0\x9f"), "");
        assert_eq!(stream.push(b"b"), "\u{fffd}b");
        assert_eq!(stream.push(b"\xed"), "");
        assert_eq!(stream.push(b"\xa0"), "\u{fffd}\u{fffd}");
        assert_eq!(stream.push(b"\xc3"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }
}
