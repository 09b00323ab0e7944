//! The tokenizer: special tokens first, then the model between them.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bpe::{self, Bpe};
use crate::end_of_generation;
use crate::error::{EncodeError, TokenizerError, TokenizerWarning};
use crate::pre;
use crate::special::{Fragment, SpecialTokens, TEXT_MARK};
use crate::spm::Spm;
use crate::stream::StreamDecoder;
use crate::unigram::{self, Unigram};
use crate::vocab::{Notation, TokenType, Vocab, VocabSpec, index_texts};

/// Values of `tokenizer.ggml.model` that [`Tokenizer::new`] accepts.
pub const SUPPORTED_MODELS: &[&str] = &["gpt2", "llama", "t5", "gemma4"];

/// Text to tokens and back, for one vocabulary. Immutable after construction; share it behind a reference.
#[derive(Debug)]
pub struct Tokenizer {
    /// Differs between any two tokenizers of a process.
    identity: u64,
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    /// A space goes before the text and before text that follows a special token.
    space_prefix: bool,
    ids: SpecialIds,
    add_bos: bool,
    add_eos: bool,
    /// Sorted.
    end_of_generation: Vec<u32>,
    chat_template: Option<String>,
    warnings: Vec<TokenizerWarning>,
}

static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    Spm(Spm),
    Unigram(Unigram),
}

#[derive(Clone, Copy, Debug)]
struct SpecialIds {
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
}

/// How to encode; the default is what a user wrote, without BOS and EOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Recognise control tokens such as `<|im_end|>` in the text. Only for text from a chat template or another
    /// trusted source. User-defined tokens such as `<think>` are recognised in any case. Marks that keep a name
    /// from being recognised ([`ChatTemplate::shielding`](crate::ChatTemplate::shielding)) are left out.
    pub special: bool,
    /// Add BOS and EOS where the file asks for them. A BOS that the text starts with already is not doubled.
    pub add_bos_eos: bool,
}

impl Tokenizer {
    /// Checks the vocabulary and builds the lookup tables; about 0.2 s for 150,000 tokens.
    ///
    /// Tolerated, with a word in [`warnings`](Self::warnings): an unknown pre-tokenizer, repeated texts, bytes without
    /// a token, merges into control tokens, `unk` and `pad` out of range.
    /// # Errors
    /// An unsupported model; arrays of different lengths; kinds, scores, byte tokens or merges that make no sense;
    /// `bos`, `eos` or `eot` out of range; limits exceeded ([`MAX_TOKENS`](crate::MAX_TOKENS) and the like).
    pub fn new(spec: VocabSpec) -> Result<Tokenizer, TokenizerError> {
        let notation = match &*spec.model {
            "gpt2" => Notation::ByteAlphabet,
            "llama" | "t5" | "gemma4" => Notation::Pieces,
            _ => return Err(TokenizerError::UnknownModel { model: spec.model }),
        };
        let mut warnings = Vec::new();
        let pre = match &*spec.model {
            "gpt2" => find_pre(&spec.pre, &mut warnings),
            "gemma4" => pre::find("gemma4"),
            _ => None,
        };
        let notation = if pre.is_some_and(|p| p.characters) { Notation::Pieces } else { notation };
        let vocab = Vocab::new(&spec, notation)?;
        let (texts, duplicates) = index_texts(&spec);
        warnings.extend(duplicates);
        let ids = SpecialIds::new(&spec, &mut warnings)?;

        let model = match (&*spec.model, pre) {
            (_, Some(pre)) => Model::Bpe(Bpe::new(&spec, &vocab, &texts, pre, ids.unk, &mut warnings)?),
            ("llama", None) => Model::Spm(Spm::new(&spec, &vocab, ids.unk)?),
            (_, None) => Model::Unigram(Unigram::new(&spec, &vocab, ids.unk)?),
        };
        let sentencepiece = !matches!(model, Model::Bpe(_));
        let add_bos = spec.add_bos.unwrap_or(match &model {
            Model::Bpe(_) => pre.is_some_and(|p| p.add_bos),
            Model::Spm(_) => true,
            Model::Unigram(_) => false,
        });
        let add_eos = spec.add_eos.unwrap_or(matches!(model, Model::Unigram(_)));
        for (field, add, id) in [("bos", spec.add_bos, ids.bos), ("eos", spec.add_eos, ids.eos)] {
            if add == Some(true) && id.is_none() {
                warnings.push(TokenizerWarning::AddWithoutId { field });
            }
        }
        let special = SpecialTokens::new(&vocab)?;
        let end_of_generation = end_of_generation::find(&vocab, &special, [ids.eos, ids.eot]);
        if end_of_generation.is_empty() {
            warnings.push(TokenizerWarning::NoEndOfGeneration);
        }
        Ok(Tokenizer {
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            special,
            space_prefix: spec.add_space_prefix.unwrap_or(sentencepiece),
            vocab,
            model,
            ids,
            add_bos,
            add_eos,
            end_of_generation,
            chat_template: spec.chat_template,
            warnings,
        })
    }

    /// The tokens of `text`.
    /// # Errors
    /// Only with a vocabulary that lacks byte tokens and an unknown token.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, EncodeError> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        let mut after_token = true;
        for fragment in self.special.fragments(text, options.special) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(text) => {
                    self.encode_text(&self.unmarked(text, options), after_token, false, &mut out)?
                }
            }
            after_token = matches!(fragment, Fragment::Token(_));
        }
        if options.add_bos_eos {
            self.add_bos_eos(&mut out);
        }
        Ok(out)
    }

    /// The tokens of bytes that should be UTF-8: every maximal part of a character that cannot be completed counts as
    /// one U+FFFD, as in Python's `decode("utf-8", "replace")` and the WHATWG encoding standard.
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_bytes(&self, text: &[u8], options: EncodeOptions) -> Result<Vec<u32>, EncodeError> {
        self.encode(&String::from_utf8_lossy(text), options)
    }

    /// Text as it is to be encoded: without the marks that keep control tokens in it from being recognised.
    pub(crate) fn unmarked<'t>(&self, text: &'t str, options: EncodeOptions) -> Cow<'t, str> {
        match options.special && text.contains(TEXT_MARK) {
            true => Cow::Owned(text.replace(TEXT_MARK, "")),
            false => Cow::Borrowed(text),
        }
    }

    /// The control tokens that have a name.
    pub(crate) fn control_tokens(&self) -> impl Iterator<Item = &str> {
        let control = (0..self.vocab.len() as u32).filter(|&id| self.is_control(id));
        control.filter_map(|id| str::from_utf8(self.vocab.bytes(id)?).ok()).filter(|text| !text.is_empty())
    }

    /// Appends the tokens of `text`, in which no special token is looked for. With `guard`, the last byte of `text` is
    /// only there to be looked at ([`cut_after`](Self::cut_after)).
    pub(crate) fn encode_text(
        &self,
        text: &str,
        after_token: bool,
        guard: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        if text.is_empty() {
            return Ok(());
        }
        let space_prefix = self.space_prefix && after_token;
        match &self.model {
            Model::Bpe(bpe) => {
                // In SentencePiece notation a space and `▁` are the same.
                let text = if bpe.characters() { spaces(text, space_prefix) } else { Cow::Borrowed(text) };
                bpe.encode(&self.vocab, &text, guard, out)
            }
            Model::Spm(spm) => {
                let text = &text[..text.len() - usize::from(guard)];
                spm.encode(&self.vocab, &spaces(text, space_prefix), out)
            }
            Model::Unigram(unigram) => {
                unigram.encode(&self.vocab, &unigram::normalize(text, space_prefix), out)
            }
        }
    }

    /// The first place behind byte `from` where a text without special tokens may be cut: `text[..cut + 1]` as a guarded
    /// text and `text[cut..]` give the tokens of `text`. What follows it does not change where it is.
    pub(crate) fn cut_after(&self, text: &str, from: usize) -> Option<usize> {
        match &self.model {
            Model::Bpe(_) => bpe::cut_after(text, from),
            Model::Spm(spm) => spm.cut_after(text, from),
            // The best segmentation of a text is found for the whole of it.
            Model::Unigram(_) => None,
        }
    }

    pub(crate) fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Adds BOS and EOS as `add_bos_eos` asks.
    pub(crate) fn add_bos_eos(&self, tokens: &mut Vec<u32>) {
        if let Some(bos) = self.ids.bos.filter(|&bos| self.add_bos && tokens.first() != Some(&bos)) {
            tokens.insert(0, bos);
        }
        tokens.extend(self.ids.eos.filter(|_| self.add_eos));
    }

    /// The bytes that a token stands for; they need not be whole characters. Control tokens give their name.
    /// `None` beyond the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// The bytes of a whole text. Ids beyond the vocabulary are left out; `skip_special` leaves out control tokens.
    /// The space that encoding puts before a text is taken off again.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(ids.len() * 4);
        let mut first = true;
        for &id in ids {
            if let Some(bytes) = self.decoded(id, skip_special, &mut first) {
                out.extend_from_slice(bytes);
            }
        }
        out
    }

    /// [`decode`](Self::decode) as text, with U+FFFD for what is not UTF-8.
    pub fn decode_lossy(&self, ids: &[u32], skip_special: bool) -> String {
        String::from_utf8(self.decode(ids, skip_special))
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    /// What `id` adds to a text; `first` is true until text has come, and then a prefixed space goes.
    pub(crate) fn decoded(&self, id: u32, skip_special: bool, first: &mut bool) -> Option<&[u8]> {
        if self.is_control(id) {
            return if skip_special { None } else { self.vocab.bytes(id) };
        }
        let bytes = self.vocab.bytes(id)?;
        if std::mem::take(first) && self.space_prefix {
            return Some(bytes.strip_prefix(b" ").unwrap_or(bytes));
        }
        Some(bytes)
    }

    /// Decodes tokens as they come, for text that goes on from a prompt. Control tokens are left out; see
    /// [`StreamDecoder::with_special`] and [`StreamDecoder::at_start`].
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// Whether this is a control token (or the unknown token), which is not part of the text.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.token_type(id), Some(TokenType::Control | TokenType::Unknown))
    }

    /// Whether generation stops at this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// All tokens at which generation stops, in order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// The control or user-defined token that is written `text`.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        self.special.get(text)
    }

    /// Number of tokens; ids are below it. A model's output row can be longer (padding).
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// Beginning of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.ids.bos
    }

    /// End of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.ids.eos
    }

    /// End of turn.
    pub fn eot(&self) -> Option<u32> {
        self.ids.eot
    }

    /// Unknown text.
    pub fn unk(&self) -> Option<u32> {
        self.ids.unk
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.ids.pad
    }

    /// Whether `add_bos_eos` adds a BOS.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.ids.bos.is_some()
    }

    /// Whether `add_bos_eos` adds an EOS.
    pub fn adds_eos(&self) -> bool {
        self.add_eos && self.ids.eos.is_some()
    }

    /// Jinja source of the file's chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// What is odd about the vocabulary; to be shown to the user.
    pub fn warnings(&self) -> &[TokenizerWarning] {
        &self.warnings
    }
}

impl SpecialIds {
    fn new(spec: &VocabSpec, warnings: &mut Vec<TokenizerWarning>) -> Result<SpecialIds, TokenizerError> {
        let n_tokens = spec.tokens.len();
        let inside = |id: &u32| (*id as usize) < n_tokens;
        let required = |field, id: Option<u32>| match id {
            Some(id) if !inside(&id) => Err(TokenizerError::IdOutOfRange { field, id, n_tokens }),
            _ => Ok(id),
        };
        let mut advisory = |field, id: Option<u32>| {
            if let Some(id) = id.filter(|id| !inside(id)) {
                warnings.push(TokenizerWarning::IdOutOfRange { field, id, n_tokens });
                return None;
            }
            id
        };
        // What SentencePiece numbers them when the file does not say.
        let (bos, eos, unk) = match &*spec.model {
            "llama" => (Some(1), Some(2), Some(0)),
            "t5" => (None, Some(1), Some(2)),
            _ => (None, None, None),
        };
        Ok(SpecialIds {
            bos: required("bos", spec.bos)?.or(bos.filter(inside)),
            eos: required("eos", spec.eos)?.or(eos.filter(inside)),
            eot: required("eot", spec.eot)?,
            unk: advisory("unk", spec.unk).or(unk.filter(inside)),
            pad: advisory("pad", spec.pad),
        })
    }
}

fn find_pre(name: &str, warnings: &mut Vec<TokenizerWarning>) -> Option<&'static pre::Pre> {
    let found = pre::find(name);
    if found.is_none() {
        warnings.push(match name {
            "" => TokenizerWarning::MissingPre,
            _ => TokenizerWarning::UnknownPre { pre: name.to_owned() },
        });
    }
    found.or_else(|| pre::find(pre::DEFAULT))
}

/// `text` with `▁` as a space, and a space before it if wanted.
fn spaces(text: &str, prefix: bool) -> Cow<'_, str> {
    match (prefix, text.contains('▁')) {
        (false, false) => Cow::Borrowed(text),
        (false, true) => Cow::Owned(text.replace('▁', " ")),
        (true, _) => Cow::Owned(format!(" {}", text.replace('▁', " "))),
    }
}
