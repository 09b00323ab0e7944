//! The golden files and vocabularies; see golden/README.md.
#![allow(dead_code, reason = "each user needs some")]

pub mod edits;

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use esker_text::VocabSpec;
use serde::Deserialize;

/// A gzip file of the golden folder.
pub fn read(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

/// It as JSON.
pub fn json<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_slice(&read(name)).unwrap()
}

/// Its lines, as JSON.
pub fn lines<T: for<'de> Deserialize<'de>>(name: &str) -> Vec<T> {
    let bytes = read(name);
    bytes
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

/// The shipped model's: byte-level BPE of 8,192 tokens.
pub fn model_vocab() -> VocabSpec {
    #[derive(Deserialize)]
    struct File {
        model: String,
        pre: String,
        tokens: Vec<String>,
        token_type: Vec<i32>,
        merges: Vec<String>,
    }
    let file: File = json("vocab.json.gz");
    VocabSpec {
        model: file.model,
        pre: file.pre,
        tokens: file.tokens,
        token_types: file.token_type,
        merges: file.merges,
        ..VocabSpec::default()
    }
}

/// A vocabulary given as token bytes in order of rank, as tiktoken has it: the merge that makes a token is that of the
/// two parts which the merges before it leave.
pub fn from_ranks(ranks: &[u8], pre: &str, special: &[(&str, u32)]) -> VocabSpec {
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

/// The tokens of OpenAI's published vocabularies that are not text.
pub const R50K_SPECIAL: &[(&str, u32)] = &[("<|endoftext|>", 50256)];
/// As [`R50K_SPECIAL`].
pub const CL100K_SPECIAL: &[(&str, u32)] = &[
    ("<|endoftext|>", 100257),
    ("<|fim_prefix|>", 100258),
    ("<|fim_middle|>", 100259),
    ("<|fim_suffix|>", 100260),
    ("<|endofprompt|>", 100276),
];

#[derive(Deserialize)]
struct SentencePiece {
    tokens: Vec<String>,
    scores: Vec<f32>,
    token_types: Vec<i32>,
    cases: Vec<(usize, Vec<u32>)>,
}

/// A SentencePiece vocabulary, and ids of lines of `strings.jsonl.gz`.
pub fn sentencepiece(name: &str, model: &str, unk: u32) -> (VocabSpec, Vec<(usize, Vec<u32>)>) {
    let file: SentencePiece = serde_json::from_slice(&read(&format!("{name}.json.gz"))).unwrap();
    let spec = VocabSpec {
        model: model.to_owned(),
        tokens: file.tokens,
        scores: file.scores,
        token_types: file.token_types,
        unk: Some(unk),
        ..VocabSpec::default()
    };
    (spec, file.cases)
}
