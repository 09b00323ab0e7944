//! A byte-level vocabulary of the right size: every text can be encoded, every token decoded.
//!
//! The 256 byte tokens, some frequent merges, made-up words up to the control tokens, unused ids after them. Made-up words
//! come out when the model is sampled; they never come from encoding, as no merges lead to them.

use super::error::SynthError;
use super::geometry::VocabularyGeometry;
use esker_gguf::{Metadata, StringArray};

const END_OF_TEXT: &str = "<|endoftext|>";
const IM_START: &str = "<|im_start|>";
const IM_END: &str = "<|im_end|>";

/// Frequent pairs of English, in GPT-2's alphabet, where `Ġ` is a space. Both sides of each are tokens before it.
const MERGES: &[(&str, &str)] = &[
    ("Ġ", "t"),
    ("Ġ", "a"),
    ("h", "e"),
    ("i", "n"),
    ("r", "e"),
    ("o", "n"),
    ("Ġt", "he"),
    ("e", "r"),
    ("Ġ", "s"),
    ("a", "t"),
    ("Ġ", "w"),
    ("Ġ", "o"),
    ("e", "n"),
    ("Ġ", "c"),
    ("i", "t"),
    ("i", "s"),
    ("a", "n"),
    ("o", "r"),
    ("e", "s"),
    ("Ġ", "b"),
    ("e", "d"),
    ("Ġ", "f"),
    ("in", "g"),
    ("Ġ", "p"),
    ("o", "u"),
    ("Ġa", "n"),
    ("a", "l"),
    ("a", "r"),
    ("Ġt", "o"),
    ("Ġ", "m"),
    ("Ġo", "f"),
    ("Ġ", "in"),
    ("Ġ", "d"),
    ("Ġ", "h"),
    ("Ġan", "d"),
];

/// The template of ChatML, in which all these models are trained.
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + \
     '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// `tokenizer.ggml.token_type`
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

/// Sets the `tokenizer.*` keys.
pub(super) fn describe(geometry: &VocabularyGeometry, metadata: &mut Metadata) -> Result<(), SynthError> {
    let (tokens, types) = tokens(geometry)?;
    let end_of_text = geometry.end_of_text as u32; // Below the number of tokens, which is limited.
    let merges: StringArray = MERGES.iter().map(|(left, right)| format!("{left} {right}")).collect();
    metadata.set("tokenizer.ggml.model", "gpt2");
    metadata.set("tokenizer.ggml.pre", geometry.pre);
    metadata.set("tokenizer.ggml.tokens", tokens);
    metadata.set("tokenizer.ggml.token_type", types);
    metadata.set("tokenizer.ggml.merges", merges);
    metadata.set("tokenizer.ggml.bos_token_id", end_of_text);
    metadata.set("tokenizer.ggml.eos_token_id", end_of_text + 2);
    metadata.set("tokenizer.ggml.padding_token_id", end_of_text);
    metadata.set("tokenizer.ggml.add_bos_token", false);
    metadata.set("tokenizer.chat_template", CHAT_TEMPLATE);
    Ok(())
}

/// All tokens with their types.
fn tokens(geometry: &VocabularyGeometry) -> Result<(StringArray, Vec<i32>), SynthError> {
    let &VocabularyGeometry { n_vocab, end_of_text, .. } = geometry;
    // Far above any model; a vocabulary of this size is 64 MiB of metadata.
    const VOCABULARY_MAX: u64 = 1 << 22;
    let n_text = 256 + MERGES.len() as u64;
    if n_vocab > VOCABULARY_MAX {
        return Err(SynthError::value("vocabulary size", n_vocab, format!("at most {VOCABULARY_MAX}")));
    }
    if end_of_text < n_text || end_of_text + 3 > n_vocab {
        let expected = format!("{n_text} to the vocabulary size {n_vocab} less 3");
        return Err(SynthError::value("id of <|endoftext|>", end_of_text, expected));
    }
    let mut tokens = StringArray::new();
    let mut text = String::new();
    byte_alphabet().into_iter().for_each(|c| tokens.push(c.encode_utf8(&mut [0; 4])));
    for (left, right) in MERGES {
        tokens.push(&format!("{left}{right}"));
    }
    for i in 0..end_of_text - n_text {
        text.clear();
        made_up_word(i, &mut text);
        tokens.push(&text);
    }
    let mut types = vec![NORMAL; tokens.len()];
    for control in [END_OF_TEXT, IM_START, IM_END] {
        tokens.push(control);
        types.push(CONTROL);
    }
    for id in end_of_text + 3..n_vocab {
        tokens.push(&format!("[PAD{id}]"));
        types.push(UNUSED);
    }
    Ok((tokens, types))
}

/// The character that stands for each byte, in the order of the byte tokens of GPT-2: printable bytes stand for themselves,
/// the others for characters from 256 on. Source: `bytes_to_unicode` of GPT-2.
fn byte_alphabet() -> Vec<char> {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let own = (0..=u8::MAX).filter(printable).map(char::from);
    let n_other = (0..=u8::MAX).filter(|b| !printable(b)).count() as u32;
    own.chain((256..256 + n_other).filter_map(char::from_u32)).collect()
}

/// A space and four syllables: no byte, no merge, and a different word for every number below 2^24.
fn made_up_word(i: u64, out: &mut String) {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    // An odd factor only permutes the numbers, so that neighbours do not sound alike.
    let mut shuffled = i.wrapping_mul(0x009e_3779) % (1 << 24);
    out.push('Ġ');
    for _ in 0..4 {
        out.push(char::from(CONSONANTS[(shuffled % 16) as usize]));
        out.push(char::from(VOWELS[(shuffled / 16 % 4) as usize]));
        shuffled /= 64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tokens_are_unique_and_as_many_as_asked() {
        let geometry = VocabularyGeometry { n_vocab: 151_936, end_of_text: 151_643, pre: "qwen2" };
        let (tokens, types) = tokens(&geometry).unwrap();
        assert_eq!((tokens.len(), types.len()), (151_936, 151_936));
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 151_936);
        assert_eq!([&tokens[151_643], &tokens[151_645]], [END_OF_TEXT, IM_END]);
        assert_eq!([types[151_642], types[151_643], types[151_646]], [NORMAL, CONTROL, UNUSED]);
    }

    #[test]
    fn merges_lead_to_tokens() {
        let (tokens, _) =
            tokens(&VocabularyGeometry { n_vocab: 512, end_of_text: 500, pre: "qwen2" }).unwrap();
        let mut known: HashSet<String> = tokens.iter().take(256).map(str::to_owned).collect();
        assert_eq!((known.len(), known.contains("Ġ"), known.contains("!")), (256, true, true));
        for (i, (left, right)) in MERGES.iter().enumerate() {
            assert!(known.contains(*left) && known.contains(*right), "{left} {right}");
            assert!(known.insert(format!("{left}{right}")), "{left} {right}");
            assert_eq!(tokens[256 + i], format!("{left}{right}"));
        }
    }

    #[test]
    fn bytes_as_gpt2_writes_them() {
        let alphabet = byte_alphabet();
        assert_eq!(alphabet.len(), 256);
        assert_eq!((alphabet[0], alphabet[94], alphabet[187]), ('!', '¡', 'ÿ'));
        // After the 188 printable bytes come 0 to 32: the newline is the 11th, the space the 33rd.
        assert_eq!((alphabet[188], alphabet[198], alphabet[220]), ('Ā', 'Ċ', 'Ġ'));
    }

    #[test]
    fn sizes_that_do_not_fit() {
        let error = |n_vocab, end_of_text| {
            tokens(&VocabularyGeometry { n_vocab, end_of_text, pre: "qwen2" }).unwrap_err().to_string()
        };
        let expected = "expected 291 to the vocabulary size 512 less 3";
        assert_eq!(error(512, 290), format!("id of <|endoftext|> is 290, {expected}"));
        assert_eq!(error(512, 510), format!("id of <|endoftext|> is 510, {expected}"));
        assert_eq!(error(1 << 30, 300), "vocabulary size is 1073741824, expected at most 4194304");
    }
}
