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
        Ok(Spm {
            // A text with a real space in it is an added token; those are found before this runs.
            index: PieceIndex::new(vocab, |id| {
                is_piece(vocab.token_type(id)) && !spec.tokens[id as usize].contains(' ')
            }),
            scores: spec.scores.clone(),
            fallback: Fallback::new(vocab, unk),
        })
    }

    /// Appends the tokens of `text`, in which no special token is looked for.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        // Half of a text that does not fit 32-bit offsets is still more than any model reads.
        let mut rest = text;
        while rest.len() > MAX_SPAN {
            let mut cut = MAX_SPAN;
            while !rest.is_char_boundary(cut) {
                cut -= 1;
            }
            self.encode_span(vocab, &rest[..cut], out)?;
            rest = &rest[cut..];
        }
        self.encode_span(vocab, rest, out)
    }

    fn encode_span(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let n = text.chars().count() as u32;
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .zip(0..n)
            .map(|((start, c), i)| Symbol {
                start: start as u32,
                len: c.len_utf8() as u32,
                before: i.wrapping_sub(1),
                next: if i + 1 == n { NONE } else { i + 1 },
            })
            .collect();
        let mut unions = BinaryHeap::new();
        // Unused tokens may be a step on the way; in the result they are taken apart again.
        let mut unused: HashMap<Range<u32>, u32> = HashMap::new();
        let mut consider = |unions: &mut BinaryHeap<Union>, symbols: &[Symbol], left: u32, right: u32| {
            let (l, r) = (symbols[left as usize], symbols[right as usize]);
            let range = l.start..r.start + r.len;
            let piece = &text.as_bytes()[range.start as usize..range.end as usize];
            if let Some(id) = self.index.get(vocab, piece) {
                let score = self.scores[id as usize];
                unions.push(Union { score, left, right, len: piece.len() as u32 });
                if vocab.token_type(id) == Some(TokenType::Unused) {
                    unused.insert(range, r.start);
                }
            }
        };
        for i in 1..n {
            consider(&mut unions, &symbols, i - 1, i);
        }
        while let Some(Union { left, right, len, .. }) = unions.pop() {
            let (l, r) = (symbols[left as usize], symbols[right as usize]);
            // Outdated, unless both are still there and as long as they were.
            if l.len == 0 || r.len == 0 || l.len + r.len != len {
                continue;
            }
            symbols[left as usize].len = len;
            symbols[left as usize].next = r.next;
            symbols[right as usize].len = 0;
            if r.next != NONE {
                symbols[r.next as usize].before = left;
                consider(&mut unions, &symbols, left, r.next);
            }
            if l.before != NONE {
                consider(&mut unions, &symbols, l.before, left);
            }
        }
        let mut pending = Vec::new();
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
