//! SentencePiece BPE by scores (GGUF model `llama`).
//!
//! A text starts as one symbol a character; the neighbours whose union is the best-scored token are joined, leftmost
//! first, until no union is a token. Characters without a token become their bytes, or the unknown token.
//! Spaces here are spaces, in text and in tokens: `▁` is only the file's notation.
//! Source: Kudo & Richardson 2018, arXiv:1808.06226; SentencePiece `bpe_model.cc`.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use crate::error::{EncodeError, TokenizerError};
use crate::vocab::{PieceIndex, TokenType, Vocab, VocabSpec};

/// The tokens that can be joined, and their scores.
#[derive(Debug)]
pub(crate) struct Spm {
    index: PieceIndex,
    scores: Vec<f32>,
    fallback: Fallback,
    /// No token has a space behind another character, so none reaches from one word into the next.
    word_by_word: bool,
}

/// Memory that the words of one text share.
#[derive(Default)]
struct Scratch {
    symbols: Vec<Symbol>,
    unions: BinaryHeap<Union>,
    /// Where an unused token was put together: it may be a step on the way, in the result it is taken apart again.
    unused: HashMap<Range<u32>, u32>,
    pending: Vec<Range<u32>>,
}

/// What text without a token becomes; `t5` shares it.
#[derive(Debug)]
pub(crate) struct Fallback {
    bytes: Box<[Option<u32>; 256]>,
    pub(crate) unk: Option<u32>,
}

impl Fallback {
    pub(crate) fn new(vocab: &Vocab, unk: Option<u32>) -> Fallback {
        Fallback { bytes: vocab.byte_tokens(), unk }
    }

    /// Whether every byte has a token.
    pub(crate) fn has_bytes(&self) -> bool {
        self.bytes.iter().all(Option::is_some)
    }

    /// Appends the tokens of `text`: its bytes if all have one, else one unknown token.
    pub(crate) fn push(&self, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let start = out.len();
        for &byte in text.as_bytes() {
            match self.bytes[usize::from(byte)] {
                Some(id) => out.push(id),
                None => {
                    out.truncate(start);
                    out.push(self.unk.ok_or_else(|| EncodeError::NoToken { text: text.to_owned() })?);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Whether SentencePiece looks this token up in text.
pub(crate) fn is_piece(ty: Option<TokenType>) -> bool {
    matches!(ty, Some(TokenType::Normal | TokenType::UserDefined | TokenType::Unused))
}

#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
    before: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Two neighbours that may be joined: the best score is on top, then the leftmost.
struct Union {
    score: f32,
    left: u32,
    right: u32,
    len: u32,
}

impl Ord for Union {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}
impl PartialOrd for Union {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Union {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Union {}

impl Spm {
    pub(crate) fn new(spec: &VocabSpec, vocab: &Vocab, unk: Option<u32>) -> Result<Spm, TokenizerError> {
        if spec.scores.is_empty() {
            return Err(TokenizerError::Missing { field: "scores", model: spec.model.clone() });
        }
        // A text with a real space in it is an added token; those are found before this runs.
        let joins = |id: u32| is_piece(vocab.token_type(id)) && !spec.tokens[id as usize].contains(' ');
        let crosses = |piece: &[u8]| piece.windows(2).any(|w| w[0] != b' ' && w[1] == b' ');
        let index = PieceIndex::new(vocab, joins);
        let mut joined = (0..vocab.len() as u32).filter(|&id| joins(id));
        let word_by_word = !joined.any(|id| vocab.bytes(id).is_some_and(crosses));
        Ok(Spm { index, scores: spec.scores.clone(), fallback: Fallback::new(vocab, unk), word_by_word })
    }

    /// Appends the tokens of `text`, in which no special token is looked for.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut scratch = Scratch::default();
        let mut rest = text;
        while !rest.is_empty() {
            let mut end = rest.len();
            if self.word_by_word {
                let bytes = rest.as_bytes();
                end = bytes.windows(2).position(|w| w[0] != b' ' && w[1] == b' ').map_or(end, |i| i + 1);
            }
            if end > MAX_SPAN {
                // Half of a word that does not fit 32-bit offsets is still more than any model reads.
                end = MAX_SPAN;
                while !rest.is_char_boundary(end) {
                    end -= 1;
                }
            }
            self.encode_span(vocab, &rest[..end], &mut scratch, out)?;
            rest = &rest[end..];
        }
        Ok(())
    }

    /// The first place behind byte `from` where a text may be cut in two that are encoded apart: a space behind a
    /// punctuation mark or line end, if tokens do not reach from word to word.
    pub(crate) fn cut_after(&self, text: &str, from: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        let ends = |b: u8| matches!(b, b'\n' | b'.' | b',' | b';' | b':' | b'!' | b'?');
        (from + 1..bytes.len()).find(|&i| self.word_by_word && bytes[i] == b' ' && ends(bytes[i - 1]))
    }

    /// Puts the pair of neighbours on the heap, if their union is a token.
    fn consider(&self, vocab: &Vocab, text: &str, scratch: &mut Scratch, left: u32, right: u32) {
        let (l, r) = (scratch.symbols[left as usize], scratch.symbols[right as usize]);
        let range = l.start..r.start + r.len;
        let piece = &text.as_bytes()[range.start as usize..range.end as usize];
        if let Some(id) = self.index.get(vocab, piece) {
            let score = self.scores[id as usize];
            scratch.unions.push(Union { score, left, right, len: piece.len() as u32 });
            if vocab.token_type(id) == Some(TokenType::Unused) {
                scratch.unused.insert(range, r.start);
            }
        }
    }

    fn encode_span(
        &self,
        vocab: &Vocab,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        scratch.symbols.clear();
        scratch.unused.clear();
        let mut n = 0u32;
        scratch.symbols.extend(text.char_indices().map(|(start, c)| {
            n += 1;
            Symbol { start: start as u32, len: c.len_utf8() as u32, before: n.wrapping_sub(2), next: n }
        }));
        if let Some(last) = scratch.symbols.last_mut() {
            last.next = NONE;
        }
        for i in 1..n {
            self.consider(vocab, text, scratch, i - 1, i);
        }
        while let Some(Union { left, right, len, .. }) = scratch.unions.pop() {
            let (l, r) = (scratch.symbols[left as usize], scratch.symbols[right as usize]);
            // Outdated, unless both are still there and as long as they were.
            if l.len == 0 || r.len == 0 || l.len + r.len != len {
                continue;
            }
            scratch.symbols[left as usize].len = len;
            scratch.symbols[left as usize].next = r.next;
            scratch.symbols[right as usize].len = 0;
            if r.next != NONE {
                scratch.symbols[r.next as usize].before = left;
                self.consider(vocab, text, scratch, left, r.next);
            }
            if l.before != NONE {
                self.consider(vocab, text, scratch, l.before, left);
            }
        }
        let Scratch { symbols, unused, pending, .. } = scratch;
        for symbol in symbols.iter().filter(|s| s.len > 0) {
            pending.push(symbol.start..symbol.start + symbol.len);
            while let Some(range) = pending.pop() {
                let piece = &text[range.start as usize..range.end as usize];
                match self.index.get(vocab, piece.as_bytes()) {
                    Some(id) if vocab.token_type(id) != Some(TokenType::Unused) => out.push(id),
                    Some(id) => match unused.get(&range) {
                        Some(&middle) => {
                            pending.push(middle..range.end);
                            pending.push(range.start..middle);
                        }
                        None => out.push(id),
                    },
                    None => self.fallback.push(piece, out)?,
                }
            }
        }
        Ok(())
    }
}

/// Longest text that is joined in one go, in bytes.
const MAX_SPAN: usize = 1 << 30;
