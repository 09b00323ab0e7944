//! Byte-pair encoding by a list of merges (GGUF models `gpt2` and `gemma4`).
//!
//! A piece starts as one symbol a byte (or a character); as long as some neighbours have a merge, the best one is
//! done, leftmost first. Short pieces look for the best by scanning, long ones keep a heap: same result, and a
//! megabyte without a blank does not take quadratic time.
//! Source: Sennrich et al. 2016, arXiv:1508.07909; order of ties as in Hugging Face `tokenizers`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::error::{EncodeError, TokenizerError, TokenizerWarning};
use crate::pre::Pre;
use crate::split::Splitter;
use crate::vocab::{PieceIndex, TokenType, Vocab, VocabSpec, byte_to_alphabet};

/// Pieces of more symbols use the heap. Measured: the scan is faster up to about this length.
const SCAN_MAX: usize = 96;

/// Stands for a byte without a token while merging; no merge names it.
const NO_TOKEN: u32 = u32::MAX;

/// Merges and what goes before them.
#[derive(Debug)]
pub(crate) struct Bpe {
    splitter: Splitter,
    nfc: bool,
    alphabet: Alphabet,
    /// Whole pieces, where they win over merges or stand beside them (runs of line ends).
    whole: Option<PieceIndex>,
    whole_always: bool,
    merges: HashMap<(u32, u32), Merge>,
    unk: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Merge {
    /// Position in the list; lower is better.
    rank: u32,
    into: u32,
}

/// What a piece starts as.
#[derive(Debug)]
enum Alphabet {
    Bytes(Box<[u32; 256]>),
    /// Characters, and bytes for characters without a token.
    Characters {
        index: PieceIndex,
        bytes: Box<[Option<u32>; 256]>,
    },
}

/// Memory that pieces of one text share.
#[derive(Default)]
struct Scratch {
    symbols: Vec<u32>,
    pairs: Vec<Option<Merge>>,
    links: Vec<(u32, u32)>,
    heap: BinaryHeap<Reverse<(u32, u32, u32, u32)>>,
}

impl Bpe {
    /// `texts` are the ids by token text, as [`index_texts`](crate::vocab::index_texts) makes them.
    pub(crate) fn new(
        spec: &VocabSpec,
        vocab: &Vocab,
        texts: &HashMap<&str, u32>,
        pre: &Pre,
        unk: Option<u32>,
        warnings: &mut Vec<TokenizerWarning>,
    ) -> Result<Bpe, TokenizerError> {
        if spec.merges.is_empty() {
            return Err(TokenizerError::Missing { field: "merges", model: spec.model.clone() });
        }
        let is_text = |id: u32| {
            matches!(vocab.token_type(id), Some(TokenType::Normal | TokenType::UserDefined | TokenType::Byte))
        };
        let (alphabet, missing) = if pre.characters {
            let bytes = vocab.byte_tokens();
            let missing = bytes.iter().filter(|id| id.is_none()).count();
            // A text with a real space in it is an added token; those are found before this runs.
            let index = PieceIndex::new(vocab, |id| {
                vocab.token_type(id) != Some(TokenType::Byte)
                    && is_text(id)
                    && !spec.tokens[id as usize].contains(' ')
            });
            (Alphabet::Characters { index, bytes }, missing)
        } else {
            let mut bytes = Box::new([NO_TOKEN; 256]);
            for byte in 0..=255u8 {
                let mut utf8 = [0; 4];
                let text: &str = byte_to_alphabet(byte).encode_utf8(&mut utf8);
                if let Some(&id) = texts.get(text).filter(|&&id| is_text(id)) {
                    bytes[usize::from(byte)] = id;
                }
            }
            let missing = bytes.iter().filter(|&&id| id == NO_TOKEN).count();
            (Alphabet::Bytes(bytes), missing)
        };
        if missing > 0 {
            warnings.push(TokenizerWarning::MissingByteTokens { count: missing });
        }
        // The byte alphabet has no line end, so only character vocabularies look for runs of them.
        let whole = (pre.ignore_merges || pre.characters).then(|| PieceIndex::new(vocab, is_text));
        Ok(Bpe {
            splitter: Splitter::new(pre.cuts)?,
            nfc: pre.nfc,
            alphabet,
            whole,
            whole_always: pre.ignore_merges,
            merges: read_merges(spec, texts, is_text, warnings)?,
            unk,
        })
    }

    /// Whether text and tokens are in SentencePiece notation.
    pub(crate) fn characters(&self) -> bool {
        matches!(self.alphabet, Alphabet::Characters { .. })
    }

    /// Appends the tokens of `text`, in which no special token is looked for.
    ///
    /// With `guard`, the last character of `text` is an ASCII letter behind a line end ([`cut_after`]), and no token
    /// is given for it: it is there because the pieces before it may depend on what follows.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        guard: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let composed: String;
        let text = if self.nfc && !text.is_ascii() && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            composed = text.nfc().collect();
            &composed
        } else {
            text
        };
        let mut scratch = Scratch::default();
        let mut left = text.len() - usize::from(guard);
        self.splitter.split(text, &mut |piece| {
            if left == 0 {
                return Ok(());
            }
            left = left.saturating_sub(piece.len());
            self.encode_piece(vocab, piece, &mut scratch, out)
        })
    }

    fn encode_piece(
        &self,
        vocab: &Vocab,
        piece: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        if let Some(whole) = &self.whole
            && (self.whole_always || piece.starts_with('\n'))
            && let Some(id) = whole.get(vocab, piece.as_bytes())
        {
            out.push(id);
            return Ok(());
        }
        scratch.symbols.clear();
        match &self.alphabet {
            Alphabet::Bytes(ids) => scratch.symbols.extend(piece.bytes().map(|b| ids[usize::from(b)])),
            Alphabet::Characters { index, bytes } => {
                for (at, c) in piece.char_indices() {
                    let text = &piece.as_bytes()[at..at + c.len_utf8()];
                    match index.get(vocab, text) {
                        Some(id) => scratch.symbols.push(id),
                        None => scratch
                            .symbols
                            .extend(text.iter().map(|&b| bytes[usize::from(b)].unwrap_or(NO_TOKEN))),
                    }
                }
            }
        }
        if scratch.symbols.len() <= SCAN_MAX {
            self.merge_by_scan(scratch);
        } else {
            self.merge_by_heap(scratch);
        }
        for &id in &scratch.symbols {
            out.push(match id {
                NO_TOKEN => self.unk.ok_or_else(|| EncodeError::NoToken { text: piece.to_owned() })?,
                _ => id,
            });
        }
        Ok(())
    }

    fn merge_of(&self, left: u32, right: u32) -> Option<Merge> {
        self.merges.get(&(left, right)).copied()
    }

    fn merge_by_scan(&self, scratch: &mut Scratch) {
        let Scratch { symbols, pairs, .. } = scratch;
        pairs.clear();
        pairs.extend(symbols.windows(2).map(|w| self.merge_of(w[0], w[1])));
        // `min_by_key` takes the first of equals, the leftmost.
        while let Some((i, merge)) =
            pairs.iter().enumerate().filter_map(|(i, m)| Some((i, (*m)?))).min_by_key(|(_, m)| m.rank)
        {
            symbols[i] = merge.into;
            symbols.remove(i + 1);
            pairs.remove(i);
            if i > 0 {
                pairs[i - 1] = self.merge_of(symbols[i - 1], merge.into);
            }
            if i < pairs.len() {
                pairs[i] = self.merge_of(merge.into, symbols[i + 1]);
            }
        }
    }

    fn merge_by_heap(&self, scratch: &mut Scratch) {
        let Scratch { symbols, links, heap, .. } = scratch;
        const END: u32 = u32::MAX;
        const DEAD: u32 = u32::MAX - 1;
        // A text of 4 GiB or more has been cut long before; the split patterns work on `usize`.
        let n = symbols.len() as u32;
        links.clear();
        links.extend((0..n).map(|i| (i.wrapping_sub(1), if i + 1 == n { END } else { i + 1 })));
        heap.clear();
        let push = |heap: &mut BinaryHeap<_>, symbols: &[u32], at: u32, next: u32| {
            let (left, right) = (symbols[at as usize], symbols[next as usize]);
            if let Some(merge) = self.merge_of(left, right) {
                heap.push(Reverse((merge.rank, at, left, right)));
            }
        };
        for i in 1..n {
            push(heap, symbols, i - 1, i);
        }
        while let Some(Reverse((_, at, left, right))) = heap.pop() {
            let (before, next) = links[at as usize];
            // Outdated, unless both symbols are still what they were.
            if next == DEAD || next == END || symbols[at as usize] != left || symbols[next as usize] != right
            {
                continue;
            }
            let Some(merge) = self.merge_of(left, right) else { continue };
            symbols[at as usize] = merge.into;
            let after = links[next as usize].1;
            links[next as usize].1 = DEAD;
            links[at as usize].1 = after;
            if after != END {
                links[after as usize].0 = at;
                push(heap, symbols, at, after);
            }
            if before != END {
                push(heap, symbols, before, at);
            }
        }
        let mut i = 0;
        symbols.retain(|_| {
            i += 1;
            links[i - 1].1 != DEAD
        });
    }
}

/// The first place behind byte `from` where a text may be cut in two that are encoded apart: between a line end and an
/// ASCII letter. Every pattern in `pre` ends a piece there, whatever stands before and after, and composition to NFC
/// does not reach over it; a test of `pre` holds them to it.
pub(crate) fn cut_after(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    (from + 1..bytes.len()).find(|&i| bytes[i - 1] == b'\n' && bytes[i].is_ascii_alphabetic())
}

fn read_merges(
    spec: &VocabSpec,
    texts: &HashMap<&str, u32>,
    is_text: impl Fn(u32) -> bool,
    warnings: &mut Vec<TokenizerWarning>,
) -> Result<HashMap<(u32, u32), Merge>, TokenizerError> {
    let mut merges = HashMap::with_capacity(spec.merges.len());
    let mut joined = String::new();
    let mut into_control = (0, None);
    for (index, text) in spec.merges.iter().enumerate() {
        // The first character belongs to the left token even if it is a space.
        let first = text.chars().next().map_or(0, char::len_utf8);
        let Some(space) = text[first..].find(' ').map(|i| i + first).filter(|i| i + 1 < text.len()) else {
            return Err(TokenizerError::MergeSyntax { index, text: text.clone() });
        };
        let (left, right) = (&text[..space], &text[space + 1..]);
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let id = |token: &str| {
            texts.get(token).copied().ok_or_else(|| TokenizerError::MergeUnknownToken {
                index,
                text: text.clone(),
                missing: token.to_owned(),
            })
        };
        let (pair, into) = ((id(left)?, id(right)?), id(&joined)?);
        if !is_text(into) {
            into_control.0 += 1;
            into_control.1.get_or_insert_with(|| joined.clone());
            continue;
        }
        // A merge that is listed twice keeps its better place.
        merges.entry(pair).or_insert(Merge { rank: index as u32, into });
    }
    if let (count, Some(token)) = into_control {
        warnings.push(TokenizerWarning::MergesIntoControl { count, token });
    }
    Ok(merges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes a to d, and random merges of what is there: many ties, overlaps and dead ends.
    fn random_bpe(choices: &[(usize, usize)]) -> Bpe {
        let mut tokens: Vec<String> = (0..=255u8).map(|b| byte_to_alphabet(b).to_string()).collect();
        let mut known: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
        let mut merges = Vec::new();
        for &(l, r) in choices {
            let (l, r) = (known[l % known.len()].clone(), known[r % known.len()].clone());
            let joined = format!("{l}{r}");
            if joined.len() <= 12 && !known.contains(&joined) {
                known.push(joined.clone());
                tokens.push(joined);
                merges.push(format!("{l} {r}"));
            }
        }
        if merges.is_empty() {
            merges.push("a a".to_owned());
            tokens.push("aa".to_owned());
        }
        let spec = VocabSpec { model: "gpt2".into(), tokens, merges, ..VocabSpec::default() };
        let vocab = Vocab::new(&spec, crate::vocab::Notation::ByteAlphabet).unwrap();
        let (texts, _) = crate::vocab::index_texts(&spec);
        Bpe::new(&spec, &vocab, &texts, crate::pre::find("gpt-2").unwrap(), None, &mut Vec::new()).unwrap()
    }

    proptest! {
        #[test]
        fn heap_and_scan_agree(
            choices in prop::collection::vec((any::<usize>(), any::<usize>()), 1..60),
            text in prop::collection::vec(b'a'..=b'd', 0..300),
        ) {
            let bpe = random_bpe(&choices);
            let Alphabet::Bytes(ids) = &bpe.alphabet else { panic!("gpt-2 works on bytes") };
            let symbols: Vec<u32> = text.iter().map(|&b| ids[usize::from(b)]).collect();
            let mut scan = Scratch { symbols: symbols.clone(), ..Scratch::default() };
            let mut heap = Scratch { symbols, ..Scratch::default() };
            bpe.merge_by_scan(&mut scan);
            bpe.merge_by_heap(&mut heap);
            prop_assert_eq!(scan.symbols, heap.symbols);
        }
    }
}
