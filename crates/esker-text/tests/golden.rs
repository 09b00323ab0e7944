//! Token ids and decoded text against Hugging Face `tokenizers`, tiktoken and SentencePiece; see golden/README.md.

mod vocabularies;

use esker_text::{EncodeOptions, Tokenizer};
use serde::Deserialize;

use vocabularies::{CL100K_SPECIAL, R50K_SPECIAL, from_ranks, lines, model_vocab, read, sentencepiece};

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    text: String,
    ids: Vec<u32>,
    ids_plain: Option<Vec<u32>>,
    #[serde(default)]
    round_trip: bool,
    decoded: Option<String>,
    decoded_skip_special: Option<String>,
}

const SPECIAL: EncodeOptions = EncodeOptions { special: true, add_bos_eos: false };
const PLAIN: EncodeOptions = EncodeOptions { special: false, add_bos_eos: false };

#[test]
fn model_vocabulary_matches_hugging_face() {
    let tokenizer = Tokenizer::new(model_vocab()).unwrap();
    assert_eq!(tokenizer.warnings(), []);
    assert_eq!(tokenizer.vocab_size(), 8192);
    let cases: Vec<Case> = lines("strings.jsonl.gz");
    assert_eq!(cases.len(), 2000);
    for case in &cases {
        assert_eq!(tokenizer.encode(&case.text, SPECIAL).unwrap(), case.ids, "{:?}", case.text);
        let plain = case.ids_plain.as_ref().unwrap_or(&case.ids);
        assert_eq!(tokenizer.encode(&case.text, PLAIN).unwrap(), *plain, "{:?}", case.text);

        let decoded = if case.round_trip { &case.text } else { case.decoded.as_ref().unwrap() };
        assert_eq!(tokenizer.decode_lossy(&case.ids, false), *decoded, "{:?}", case.ids);
        let skipped = case.decoded_skip_special.as_ref().unwrap_or(decoded);
        assert_eq!(tokenizer.decode_lossy(&case.ids, true), *skipped, "{:?}", case.ids);

        for (skip, expect) in [(false, decoded), (true, skipped)] {
            let mut stream = if skip { tokenizer.stream() } else { tokenizer.stream().with_special() };
            let mut text: String = case.ids.iter().map(|&id| stream.push(id)).collect();
            text += &stream.finish();
            assert_eq!(text, *expect);
        }
    }
}

#[test]
fn bytes_that_are_not_utf8() {
    #[derive(Deserialize)]
    struct Invalid {
        bytes: String,
        ids: Vec<u32>,
    }
    let tokenizer = Tokenizer::new(model_vocab()).unwrap();
    let cases: Vec<Invalid> = lines("invalid_utf8.jsonl.gz");
    assert_eq!(cases.len(), 60);
    for case in cases {
        let bytes: Vec<u8> = (0..case.bytes.len() / 2)
            .map(|i| u8::from_str_radix(&case.bytes[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        assert_eq!(tokenizer.encode_bytes(&bytes, SPECIAL).unwrap(), case.ids, "{}", case.bytes);
    }
}

#[test]
fn end_of_generation_of_the_model_vocabulary() {
    let mut spec = model_vocab();
    spec.eos = Some(8185);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.end_of_generation(), [8183, 8185]);
    assert!(tokenizer.is_end_of_generation(8185) && !tokenizer.is_end_of_generation(8184));
    assert!(tokenizer.is_control(8184) && !tokenizer.is_control(8190));
    assert_eq!(tokenizer.special_token("<think>"), Some(8190));
}

fn check_tiktoken(name: &str, pre: &str, special: &[(&str, u32)]) {
    let tokenizer = Tokenizer::new(from_ranks(&read(&format!("{name}.ranks.gz")), pre, special)).unwrap();
    let texts: Vec<Case> = lines("strings.jsonl.gz");
    let cases: Vec<Case> = lines(&format!("{name}.jsonl.gz"));
    assert_eq!(cases.len(), 2000);
    for (case, Case { text, .. }) in cases.iter().zip(&texts) {
        assert_eq!(tokenizer.encode(text, SPECIAL).unwrap(), case.ids, "{text:?}");
        let plain = case.ids_plain.as_ref().unwrap_or(&case.ids);
        assert_eq!(tokenizer.encode(text, PLAIN).unwrap(), *plain, "{text:?}");
        assert_eq!(tokenizer.decode_lossy(&case.ids, false), *text);
    }
}

#[test]
fn gpt2_vocabulary_matches_tiktoken() {
    check_tiktoken("r50k_base", "gpt-2", R50K_SPECIAL);
}

#[test]
fn cl100k_vocabulary_matches_tiktoken() {
    check_tiktoken("cl100k_base", "cl100k_base", CL100K_SPECIAL);
}

fn check_sentencepiece(name: &str, model: &str, unk: u32) {
    let (spec, cases) = sentencepiece(name, model, unk);
    let tokenizer = Tokenizer::new(spec).unwrap();
    let texts: Vec<Case> = lines("strings.jsonl.gz");
    assert!(cases.len() > 200);
    for (line, ids) in &cases {
        let text = &texts[*line].text;
        assert_eq!(tokenizer.encode(text, PLAIN).unwrap(), *ids, "{text:?}");
        let mut stream = tokenizer.stream().with_special().at_start();
        let streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        assert_eq!(streamed + &stream.finish(), tokenizer.decode_lossy(ids, false));
        // SentencePiece itself cannot tell these two apart.
        if model == "llama" {
            assert_eq!(tokenizer.decode_lossy(ids, false), text.replace('▁', " "));
        }
    }
}

#[test]
fn sentencepiece_bpe() {
    check_sentencepiece("spm", "llama", 0);
}

#[test]
fn sentencepiece_unigram() {
    check_sentencepiece("unigram", "t5", 2);
    check_sentencepiece("unigram_bytes", "t5", 0);
}
