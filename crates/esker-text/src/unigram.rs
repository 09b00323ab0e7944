//! SentencePiece unigram model (GGUF model `t5`): the segmentation with the best sum of scores.
//!
//! Normalisation is `nmt_nfkc`, which all published models of this kind use: NFKC, control characters dropped,
//! every kind of white space a space, runs of spaces one space, none at the ends. The file's
//! `precompiled_charsmap` holds the same rules as a table and is not read.
//! Source: Kudo 2018, arXiv:1804.10959; SentencePiece `unigram_model.cc`, `normalizer.cc`.

use unicode_normalization::UnicodeNormalization;

use crate::error::{EncodeError, TokenizerError};
use crate::spm::{Fallback, is_piece};
use crate::vocab::{TokenType, Vocab, VocabSpec};

/// Unknown characters score this much below the worst token.
const UNKNOWN_PENALTY: f32 = 10.0;

/// Tokens in order of their bytes, and their scores.
#[derive(Debug)]
pub(crate) struct Unigram {
    sorted: Vec<u32>,
    /// Where the tokens that start with a byte begin; 257 entries.
    by_first_byte: Vec<u32>,
    scores: Vec<f32>,
    unknown_score: f32,
    fallback: Fallback,
}

/// Best way to reach a position.
#[derive(Clone, Copy)]
struct Step {
    score: f32,
    from: usize,
    /// `None`: an unknown character.
    id: Option<u32>,
}

impl Unigram {
    pub(crate) fn new(spec: &VocabSpec, vocab: &Vocab, unk: Option<u32>) -> Result<Unigram, TokenizerError> {
        if spec.scores.is_empty() {
            return Err(TokenizerError::Missing { field: "scores", model: spec.model.clone() });
        }
        let ids = 0..vocab.len() as u32;
        let normal = |&id: &u32| vocab.token_type(id) == Some(TokenType::Normal);
        let normal_scores = || ids.clone().filter(normal).map(|id| spec.scores[id as usize]);
        let best = normal_scores().fold(f32::MIN, f32::max);
        let worst = normal_scores().fold(f32::MAX, f32::min);
        let mut scores = spec.scores.clone();
        let mut sorted = Vec::new();
        for id in ids.clone() {
            let ty = vocab.token_type(id);
            let piece = vocab.bytes(id).unwrap_or_default();
            if !is_piece(ty) || ty == Some(TokenType::Unused) || piece.is_empty() {
                continue;
            }
            if ty == Some(TokenType::UserDefined) {
                // So that it wins over every way to compose it.
                scores[id as usize] = piece.len() as f32 * best - 0.1;
            }
            sorted.push(id);
        }
        sorted.sort_by(|&a, &b| vocab.bytes(a).cmp(&vocab.bytes(b)).then(a.cmp(&b)));
        sorted.dedup_by(|later, kept| vocab.bytes(*later) == vocab.bytes(*kept));
        let by_first_byte = (0..=256usize)
            .map(|first| {
                let below = |&id: &u32| usize::from(vocab.bytes(id).unwrap_or_default()[0]) < first;
                sorted.partition_point(below) as u32
            })
            .collect();
        Ok(Unigram {
            sorted,
            by_first_byte,
            scores,
            unknown_score: worst - UNKNOWN_PENALTY,
            fallback: Fallback::new(vocab, unk),
        })
    }

    /// Appends the tokens of `text`, which [`normalize`] has seen.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let bytes = text.as_bytes();
        let mut best: Vec<Option<Step>> = vec![None; bytes.len() + 1];
        best[0] = Some(Step { score: 0.0, from: 0, id: None });
        for (start, c) in text.char_indices() {
            let Some(Step { score, .. }) = best[start] else { continue };
            let mut reach = |end: usize, candidate: f32, id: Option<u32>| {
                let step = &mut best[end];
                if step.is_none_or(|s| candidate > s.score) {
                    *step = Some(Step { score: candidate, from: start, id });
                }
            };
            let mut has_single = false;
            self.for_each_prefix(vocab, &bytes[start..], |len, id| {
                reach(start + len, score + self.scores[id as usize], Some(id));
                has_single |= len == c.len_utf8();
            });
            if !has_single {
                reach(start + c.len_utf8(), score + self.unknown_score, None);
            }
        }
        // Backwards along the best path; unknown neighbours become one unknown token.
        let mut path: Vec<(std::ops::Range<usize>, Option<u32>)> = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let Some(step) = best[end] else { break };
            match path.last_mut() {
                Some((range, None)) if step.id.is_none() && !self.fallback.has_bytes() => {
                    range.start = step.from
                }
                _ => path.push((step.from..end, step.id)),
            }
            end = step.from;
        }
        for (range, id) in path.into_iter().rev() {
            match id {
                Some(id) => out.push(id),
                None => self.fallback.push(&text[range], out)?,
            }
        }
        Ok(())
    }

    /// Calls `found(length, id)` for every token that `text` starts with.
    fn for_each_prefix(&self, vocab: &Vocab, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let first = usize::from(text[0]);
        let (from, to) = (self.by_first_byte[first] as usize, self.by_first_byte[first + 1] as usize);
        let mut range = &self.sorted[from..to];
        for depth in 1..=text.len() {
            // All of `range` start with `text[..depth]`; the one that is no longer, if any, comes first.
            let Some(&id) = range.first() else { return };
            if vocab.bytes(id).is_some_and(|piece| piece.len() == depth) {
                found(depth, id);
            }
            let Some(&byte) = text.get(depth) else { return };
            let at = |&id: &u32| vocab.bytes(id).and_then(|piece| piece.get(depth)).copied();
            let start = range.partition_point(|id| at(id) < Some(byte));
            let end = range.partition_point(|id| at(id) <= Some(byte));
            range = &range[start..end];
        }
    }
}

/// `nmt_nfkc` of SentencePiece, with a space before the text if `space_prefix`.
pub(crate) fn normalize(text: &str, space_prefix: bool) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    let mut pending_space = space_prefix;
    // The fullwidth tilde is left alone: Japanese text uses it as a dash, not as a tilde.
    let kept = text.split_inclusive(FULLWIDTH_TILDE).flat_map(|part| {
        let (part, tilde) = match part.strip_suffix(FULLWIDTH_TILDE) {
            Some(before) => (before, Some(FULLWIDTH_TILDE)),
            None => (part, None),
        };
        let blanked = part.chars().filter(|&c| !is_dropped(c)).map(|c| if is_blank(c) { ' ' } else { c });
        blanked.nfkc().chain(tilde)
    });
    for c in kept {
        if c == ' ' {
            pending_space |= !out.is_empty();
        } else {
            if pending_space {
                out.push(' ');
                pending_space = false;
            }
            out.push(c);
        }
    }
    out
}

const FULLWIDTH_TILDE: char = '\u{ff5e}';

fn is_dropped(c: char) -> bool {
    matches!(c as u32, 0x01..=0x08 | 0x0b | 0x0e..=0x1f | 0x7f | 0x8f | 0x9f)
}

fn is_blank(c: char) -> bool {
    matches!(
        c as u32,
        0x09 | 0x0a
            | 0x0c
            | 0x0d
            | 0x61c
            | 0x1680
            | 0x200b
            | 0x200c
            | 0x200e
            | 0x200f
            | 0x2028
            | 0x2029
            | 0x2581
            | 0xfeff
            | 0xfffd
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn white_space_and_compatibility_forms() {
        assert_eq!(normalize("  a \t\n b\u{3000}", true), " a b");
        assert_eq!(normalize("Ａ①ﬁ～", false), "A1fi～");
        assert_eq!(normalize(" \n", true), "");
        assert_eq!(normalize("e\u{301}", false), "é");
    }

    /// Characters whose treatment NFKC alone does not explain, between `a` and `b`, from SentencePiece.
    #[test]
    fn rules_match_sentencepiece() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/nmt_nfkc.json.gz");
        let mut json = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut json).unwrap();
        let cases: Vec<(u32, String)> = serde_json::from_str(&json).unwrap();
        assert!(cases.len() > 40);
        for (code, expect) in cases {
            // U+0344 decomposes into two marks; SentencePiece's table does not compose the first with the letter.
            if code != 0x344 {
                let text = format!("a{}b", char::from_u32(code).unwrap());
                assert_eq!(normalize(&text, true).replace(' ', "▁"), expect, "U+{code:04X}");
            }
        }
    }
}
