//! Token ids and decoded text against Hugging Face `tokenizers`, tiktoken and SentencePiece; see golden/README.md.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use esker_text::{EncodeOptions, Tokenizer, VocabSpec};
use serde::Deserialize;

fn read(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

fn lines<T: for<'de> Deserialize<'de>>(name: &str) -> Vec<T> {
    let bytes = read(name);
    bytes
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

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

fn model_vocab() -> VocabSpec {
    #[derive(Deserialize)]
    struct File {
        model: String,
        pre: String,
        tokens: Vec<String>,
        token_type: Vec<i32>,
        merges: Vec<String>,
    }
    let file: File = serde_json::from_slice(&read("vocab.json.gz")).unwrap();
    VocabSpec {
        model: file.model,
        pre: file.pre,
        tokens: file.tokens,
        token_types: file.token_type,
        merges: file.merges,
        ..VocabSpec::default()
    }
}

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

/// A vocabulary given as token bytes in order of rank, as tiktoken has it: the merge that makes a token is that of the
/// two parts which the merges before it leave.
fn from_ranks(ranks: &[u8], pre: &str, special: &[(&str, u32)]) -> VocabSpec {
    let mut tokens: Vec<&[u8]> = Vec::new();
    let mut rest = ranks;
    while let Some((&n, after)) = rest.split_first() {
        let (token, after) = after.split_at(usize::from(n));
        tokens.push(token);
        rest = after;
    }
    let rank: HashMap<&[u8], usize> = tokens.iter().enumerate().map(|(i, &t)| (t, i)).collect();
    let text = |bytes: &[u8]| bytes.iter().map(|&b| gpt2_char(b)).collect::<String>();
    let mut merges = Vec::new();
    for (own, token) in tokens.iter().enumerate().filter(|(_, t)| t.len() > 1) {
        let mut parts: Vec<&[u8]> = token.chunks(1).collect();
        let mut start = vec![0; parts.len()];
        start.iter_mut().enumerate().for_each(|(i, s)| *s = i);
        while parts.len() > 2 {
            let joined = |i: usize| &token[start[i]..start[i + 1] + parts[i + 1].len()];
            let best = (0..parts.len() - 1).filter_map(|i| Some((*rank.get(joined(i))?, i))).min();
            let (best_rank, i) = best.unwrap();
            assert!(best_rank < own);
            parts[i] = joined(i);
            parts.remove(i + 1);
            start.remove(i + 1);
        }
        merges.push((own, format!("{} {}", text(parts[0]), text(parts[1]))));
    }
    merges.sort();
    let mut texts: Vec<String> = tokens.iter().map(|t| text(t)).collect();
    let mut types = vec![1; texts.len()];
    for &(name, id) in special {
        while texts.len() <= id as usize {
            texts.push(format!("[PAD{}]", texts.len()));
            types.push(5);
        }
        texts[id as usize] = name.to_owned();
        types[id as usize] = 3;
    }
    VocabSpec {
        model: "gpt2".to_owned(),
        pre: pre.to_owned(),
        tokens: texts,
        token_types: types,
        merges: merges.into_iter().map(|(_, m)| m).collect(),
        ..VocabSpec::default()
    }
}

/// The GPT-2 byte alphabet, written down once more, independently of the crate.
fn gpt2_char(b: u8) -> char {
    let mut shift = 0;
    for other in 0..=255u8 {
        let printable = (b'!'..=b'~').contains(&other) || (0xa1..=0xac).contains(&other) || other >= 0xae;
        if other == b {
            return if printable { char::from(b) } else { char::from_u32(256 + shift).unwrap() };
        }
        shift += u32::from(!printable);
    }
    unreachable!()
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
    check_tiktoken("r50k_base", "gpt-2", &[("<|endoftext|>", 50256)]);
}

#[test]
fn cl100k_vocabulary_matches_tiktoken() {
    let special = [
        ("<|endoftext|>", 100257),
        ("<|fim_prefix|>", 100258),
        ("<|fim_middle|>", 100259),
        ("<|fim_suffix|>", 100260),
        ("<|endofprompt|>", 100276),
    ];
    check_tiktoken("cl100k_base", "cl100k_base", &special);
}

#[derive(Deserialize)]
struct SentencePiece {
    tokens: Vec<String>,
    scores: Vec<f32>,
    token_types: Vec<i32>,
    cases: Vec<(usize, Vec<u32>)>,
}

fn check_sentencepiece(name: &str, model: &str, unk: u32) {
    let file: SentencePiece = serde_json::from_slice(&read(&format!("{name}.json.gz"))).unwrap();
    let spec = VocabSpec {
        model: model.to_owned(),
        tokens: file.tokens,
        scores: file.scores,
        token_types: file.token_types,
        unk: Some(unk),
        ..VocabSpec::default()
    };
    let tokenizer = Tokenizer::new(spec).unwrap();
    let texts: Vec<Case> = lines("strings.jsonl.gz");
    assert!(file.cases.len() > 200);
    for (line, ids) in &file.cases {
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
