//! Incremental encoding against encoding the whole text.

mod vocabularies;

use esker_text::incremental::IncrementalEncoder;
use esker_text::{EncodeOptions, Tokenizer, VocabSpec};
use proptest::prelude::*;

use vocabularies::edits::{compare, tokenizers};
use vocabularies::{model_vocab, sentencepiece};

const SPECIAL: EncodeOptions = EncodeOptions { special: true, add_bos_eos: false };

#[test]
fn edited_conversations_equal_the_whole() {
    for (i, (name, tokenizer)) in tokenizers().iter().enumerate() {
        let (all, encoded) = compare(tokenizer, i as u64, 400).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(encoded < all, "{name}: nothing was kept of {all} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn any_two_texts(texts in prop::collection::vec(
        prop::collection::vec(
            prop_oneof![
                "(<x|<x>|>y|x><|<\\|im_end\\|>|<\\|im_end\\|>\n|end\\|><\\||\n|\nAn|\nA|n|\n\n\n|[a-d]{1,3}| {1,4}|日|本|e|\u{301})",
                "\\PC{0,3}",
            ],
            0..16,
        ).prop_map(|parts| parts.concat()),
        2..5,
    )) {
        static TOKENIZERS: std::sync::LazyLock<Vec<(String, Tokenizer)>> = std::sync::LazyLock::new(tokenizers);
        for (name, tokenizer) in TOKENIZERS.iter().filter(|(name, _)| matches!(&**name, "model" | "spm" | "unigram")) {
            let mut encoder = IncrementalEncoder::new(SPECIAL);
            for text in &texts {
                let whole = tokenizer.encode(text, SPECIAL).unwrap();
                prop_assert_eq!(encoder.encode(tokenizer, text).unwrap(), &whole[..], "{} {:?}", name, text);
            }
        }
    }
}

/// A conversation of `turns`, as ChatML.
fn conversation(turns: usize) -> String {
    (0..turns)
        .map(|i| format!("<|im_start|>user\nQuestion {i}, with a few words.\nAnd a second line.<|im_end|>\n<|im_start|>assistant\nAnswer {i}. It is long.\nIt has lines.<|im_end|>\n"))
        .collect()
}

#[test]
fn a_growing_conversation_costs_what_is_new() {
    let tokenizer = Tokenizer::new(model_vocab()).unwrap();
    let mut encoder = IncrementalEncoder::new(SPECIAL);
    encoder.encode(&tokenizer, &conversation(200)).unwrap();
    assert_eq!(encoder.encoded_bytes(), conversation(200).len());
    encoder.encode(&tokenizer, &conversation(201)).unwrap();
    let added = conversation(201).len() - conversation(200).len();
    assert!(encoder.encoded_bytes() <= added + 32, "{} for {added}", encoder.encoded_bytes());
    // A word changed in the middle: its line, and up to the next cut.
    let edited = conversation(201).replacen("Question 100,", "Question one hundred,", 1);
    encoder.encode(&tokenizer, &edited).unwrap();
    assert!(encoder.encoded_bytes() < 150, "{}", encoder.encoded_bytes());
    encoder.encode(&tokenizer, &edited).unwrap();
    assert_eq!(encoder.encoded_bytes(), 0);
    assert_eq!(encoder.tokens(), tokenizer.encode(&edited, SPECIAL).unwrap());
}

#[test]
fn another_tokenizer_starts_anew() {
    let tokenizers =
        [Tokenizer::new(model_vocab()).unwrap(), Tokenizer::new(sentencepiece("spm", "llama", 0).0).unwrap()];
    let mut encoder = IncrementalEncoder::new(EncodeOptions { special: true, add_bos_eos: true });
    for _ in 0..2 {
        for tokenizer in &tokenizers {
            let whole =
                tokenizer.encode("Some text.", EncodeOptions { special: true, add_bos_eos: true }).unwrap();
            assert_eq!(encoder.encode(tokenizer, "Some text.").unwrap(), whole);
        }
    }
}

#[test]
fn an_error_leaves_it_empty() {
    let texts = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect();
    let spec = VocabSpec {
        model: "gpt2".to_owned(),
        tokens: texts(&["a", "b", "ab"]),
        merges: texts(&["a b"]),
        ..VocabSpec::default()
    };
    let tokenizer = Tokenizer::new(spec).unwrap();
    let mut encoder = IncrementalEncoder::new(SPECIAL);
    assert_eq!(encoder.encode(&tokenizer, "aab").unwrap(), [0, 2]);
    assert!(encoder.encode(&tokenizer, "aabc").is_err());
    assert_eq!((encoder.tokens(), encoder.text()), (&[][..], ""));
    assert_eq!(encoder.encode(&tokenizer, "aba").unwrap(), [2, 0]);
}
