//! Tokenizing a conversation that grows and is edited: only what changed is encoded again.
//!
//! A text is cut where the two sides can be encoded apart: behind special tokens, and at places that the model's
//! algorithm never looks across (`Tokenizer::cut_after`). These cuts and the tokens between them are kept. When the
//! next text comes, the cuts that lie in the common beginning stay, encoding starts at the last of them, and ends as
//! soon as it meets an old cut in the common end.
//!
//! What makes this exact, for a text and the next one that share their first `n` bytes: a special token that begins at
//! byte `s` was recognised by looking at no more than `s + max_len` bytes, where `max_len` is the length of the longest
//! one. So with `s + max_len <= n` both texts have the same special tokens up to there, and a cut at `b` with
//! `b + max_len <= n` is a cut of both, with the same tokens before it. Behind a cut, tokens depend on nothing but the text
//! behind it and on what kind of cut it is.

use crate::error::EncodeError;
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// Keeps the text and the tokens of a conversation; the next text is encoded anew only where it differs. The tokens are
/// those of [`Tokenizer::encode`] on the whole text, always.
#[derive(Clone, Debug)]
pub struct IncrementalEncoder {
    options: EncodeOptions,
    /// Which tokenizer the rest comes from; 0 for none.
    tokenizer: u64,
    text: String,
    /// Of `text`, without BOS and EOS.
    tokens: Vec<u32>,
    /// In order, from the start of the text on.
    cuts: Vec<Cut>,
    /// With BOS and EOS, if they are asked for.
    with_bos_eos: Vec<u32>,
    encoded_bytes: usize,
}

/// A place where the text falls into two parts that are encoded apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Bytes of text before it.
    text: usize,
    /// Tokens before it.
    tokens: usize,
    /// At the start of the text or behind a special token, where a space may be put before what follows.
    after_token: bool,
}

const START: Cut = Cut { text: 0, tokens: 0, after_token: true };

impl IncrementalEncoder {
    /// For texts that are all encoded with the same options.
    pub fn new(options: EncodeOptions) -> IncrementalEncoder {
        IncrementalEncoder {
            options,
            tokenizer: 0,
            text: String::new(),
            tokens: Vec::new(),
            cuts: Vec::new(),
            with_bos_eos: Vec::new(),
            encoded_bytes: 0,
        }
    }

    /// The tokens of `text`. Another tokenizer than before is noticed, and everything is encoded anew.
    /// # Errors
    /// As [`Tokenizer::encode`]; the encoder is empty then.
    pub fn encode(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<&[u32], EncodeError> {
        self.encoded_bytes = 0;
        if self.tokenizer != tokenizer.identity() || text != self.text {
            if let Err(e) = self.update(tokenizer, text) {
                self.clear();
                return Err(e);
            }
            if self.options.add_bos_eos {
                self.with_bos_eos.clone_from(&self.tokens);
                tokenizer.add_bos_eos(&mut self.with_bos_eos);
            }
        }
        Ok(self.tokens())
    }

    /// The tokens of the text that was encoded last.
    pub fn tokens(&self) -> &[u32] {
        if self.options.add_bos_eos { &self.with_bos_eos } else { &self.tokens }
    }

    /// The text that was encoded last.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many bytes of text the last call had to encode.
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    /// Forgets the text.
    pub fn clear(&mut self) {
        *self = IncrementalEncoder::new(self.options);
    }

    fn update(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<(), EncodeError> {
        if self.tokenizer != tokenizer.identity() {
            self.clear();
            self.tokenizer = tokenizer.identity();
            self.cuts.push(START);
        }
        let (old, new) = (self.text.as_bytes(), text.as_bytes());
        let shorter = old.len().min(new.len());
        let begin = common(old.iter().zip(new));
        let end = common(old.iter().rev().zip(new.iter().rev())).min(shorter - begin);

        // The start is a cut of every text.
        let reach = tokenizer.special_tokens().max_len(self.options.special).max(1);
        let n_kept = self.cuts.partition_point(|cut| cut.text + reach <= begin).max(1);
        let from = self.cuts[n_kept - 1];
        let mut run = Run {
            tokenizer,
            text,
            options: self.options,
            tokens: Vec::new(),
            cuts: Vec::new(),
            at: from,
            // Old cuts in the common end, and how far they move.
            old: &self.cuts[self.cuts.partition_point(|cut| cut.text < old.len() - end)..],
            old_len: old.len(),
        };
        let met = run.encode()?;
        let Run { tokens, cuts, at, .. } = run;

        self.encoded_bytes = at.text - from.text;
        let (rest_tokens, rest_cuts) = match met {
            None => (self.tokens.len(), self.cuts.len()),
            // The cut itself is in `cuts` already.
            Some(cut) => (cut.tokens, self.cuts.partition_point(|c| c.text <= cut.text)),
        };
        if let Some(cut) = met {
            for later in &mut self.cuts[rest_cuts..] {
                later.text = later.text - cut.text + at.text;
                later.tokens = later.tokens - cut.tokens + at.tokens;
            }
        }
        self.tokens.splice(from.tokens..rest_tokens, tokens);
        self.cuts.splice(n_kept..rest_cuts, cuts);
        self.text.clear();
        self.text.push_str(text);
        Ok(())
    }
}

fn common<'a>(pairs: impl Iterator<Item = (&'a u8, &'a u8)>) -> usize {
    pairs.take_while(|(a, b)| a == b).count()
}

/// Encoding from one cut on.
struct Run<'a> {
    tokenizer: &'a Tokenizer,
    text: &'a str,
    options: EncodeOptions,
    tokens: Vec<u32>,
    cuts: Vec<Cut>,
    /// Where it is.
    at: Cut,
    /// Cuts of the old text that may be met, in order.
    old: &'a [Cut],
    old_len: usize,
}

impl Run<'_> {
    /// Encodes until the end of the text, or until a cut of the old text from which on the rest is known: returns it.
    fn encode(&mut self) -> Result<Option<Cut>, EncodeError> {
        let (tokenizer, text) = (self.tokenizer, self.text);
        while self.at.text < text.len() {
            let special = tokenizer.special_tokens().find(text, self.at.text, self.options.special);
            let fragment = &text[..special.as_ref().map_or(text.len(), |(range, _)| range.start)];
            while let Some(cut) = tokenizer.cut_after(fragment, self.at.text) {
                self.encode_text(cut, true)?;
                if let Some(met) = self.cut(cut, false) {
                    return Ok(Some(met));
                }
            }
            if self.at.text < fragment.len() {
                self.encode_text(fragment.len(), false)?;
            }
            let Some((range, id)) = special else {
                self.at.text = text.len();
                break;
            };
            self.tokens.push(id);
            self.at.tokens += 1;
            if let Some(met) = self.cut(range.end, true) {
                return Ok(Some(met));
            }
        }
        Ok(None)
    }

    fn encode_text(&mut self, end: usize, guard: bool) -> Result<(), EncodeError> {
        let before = self.tokens.len();
        let text = &self.text[self.at.text..end + usize::from(guard)];
        let text = self.tokenizer.unmarked(text, self.options);
        self.tokenizer.encode_text(&text, self.at.after_token, guard, &mut self.tokens)?;
        self.at.tokens += self.tokens.len() - before;
        Ok(())
    }

    /// Notes a cut; returns the cut of the old text that is the same place, if there is one.
    fn cut(&mut self, text: usize, after_token: bool) -> Option<Cut> {
        self.at = Cut { text, after_token, ..self.at };
        self.cuts.push(self.at);
        // In the common end, a place is known by its distance from the end.
        let left = self.text.len() - text;
        while let Some((first, rest)) = self.old.split_first() {
            if self.old_len - first.text < left {
                return None;
            }
            if self.old_len - first.text == left && first.after_token == after_token {
                return Some(*first);
            }
            self.old = rest;
        }
        None
    }
}
