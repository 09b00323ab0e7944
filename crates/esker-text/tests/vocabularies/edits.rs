//! Conversations that are edited at random, for comparing incremental encoding with encoding the whole.

use esker_text::incremental::IncrementalEncoder;
use esker_text::{EncodeOptions, Tokenizer, VocabSpec};

use super::{CL100K_SPECIAL, R50K_SPECIAL, from_ranks, model_vocab, read, sentencepiece};

/// Tokens that make trouble: ones that contain each other, or begin in another's end, hold line ends, spaces and
/// letters; with the kind (3 control, 4 user defined).
const TROUBLE: &[(&str, i32)] = &[
    ("<|im_start|>", 3),
    ("<|im_end|>", 3),
    ("<|im_end|>\n", 3),
    ("end|><|", 4),
    ("<think>", 4),
    ("</think>", 4),
    ("<x", 4),
    ("<x>", 4),
    ("<x>>y<|", 4),
    ("<|im_end|>\n<|im_start|>", 3),
    ("x><", 4),
    ("\n\n\n", 4),
    ("\nAn", 4),
    ("   ", 4),
    ("日本", 4),
];

/// (name, tokenizer) of all golden vocabularies, with troublesome tokens added; SentencePiece also with and without a
/// space before the text, byte-level BPE also with the split patterns of other families.
pub fn tokenizers() -> Vec<(String, Tokenizer)> {
    let ranks = |name: &str, pre, special| from_ranks(&read(&format!("{name}.ranks.gz")), pre, special);
    let mut specs = vec![
        ("model".to_owned(), model_vocab()),
        ("r50k".to_owned(), ranks("r50k_base", "gpt-2", R50K_SPECIAL)),
        ("cl100k".to_owned(), ranks("cl100k_base", "cl100k_base", CL100K_SPECIAL)),
        ("spm".to_owned(), sentencepiece("spm", "llama", 0).0),
        ("unigram".to_owned(), sentencepiece("unigram", "t5", 2).0),
        ("unigram_bytes".to_owned(), sentencepiece("unigram_bytes", "t5", 0).0),
    ];
    for pre in
        ["llama-bpe", "deepseek-v3", "gpt-4o", "cohere2moe", "exaone-moe", "bloom", "laguna", "kimi-k2"]
    {
        specs.push((format!("model/{pre}"), VocabSpec { pre: pre.to_owned(), ..model_vocab() }));
    }
    let plain = VocabSpec { add_space_prefix: Some(false), ..sentencepiece("spm", "llama", 0).0 };
    specs.push(("spm/no prefix".to_owned(), plain));
    let mut out = Vec::new();
    for (name, mut spec) in specs {
        for &(text, kind) in TROUBLE {
            if spec.tokens.iter().any(|t| t == text) {
                continue;
            }
            spec.tokens.push(text.to_owned());
            spec.token_types.push(kind);
            if !spec.scores.is_empty() {
                spec.scores.push(0.0);
            }
        }
        spec.bos = spec.bos.or(spec.tokens.iter().position(|t| t == "<|im_start|>").map(|id| id as u32));
        spec.eos = spec.eos.or(spec.tokens.iter().position(|t| t == "<|im_end|>").map(|id| id as u32));
        spec.add_bos = Some(true);
        spec.add_eos = Some(true);
        out.push((name, Tokenizer::new(spec).unwrap()));
    }
    out
}

/// A deterministic source of numbers (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

const PARTS: &[&str] = &[
    "a",
    "\u{fdd0}",
    "<\u{fdd0}|im_end|>",
    "n",
    "\nA",
    ">y",
    "B",
    "z9",
    "The cat",
    " sat",
    " on it.",
    "\n",
    "\n\n",
    "\nAnd",
    "\nx",
    "\r\n",
    "\n ",
    " ",
    "  ",
    "   ",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "1",
    "23",
    "4567",
    "'s",
    "'LL",
    "don't",
    ".",
    ",",
    "!?",
    "...",
    "//",
    "{\"k\": 1}",
    "<",
    "<x",
    ">",
    "x><",
    "|>",
    "<|",
    "<|im_",
    "end|>",
    "<|im_start|>",
    "<|im_start|>user\n",
    "<|im_end|>",
    "<|im_end|>\n",
    "<think>",
    "</think>",
    "\n</think>\n\n",
    "<|endoftext|>",
    "é",
    "e\u{301}",
    "\u{301}",
    "ﬁ",
    "Å",
    "東京",
    "日本",
    "日",
    "本語で",
    "テスト",
    "한국",
    "\u{1100}",
    "\u{1161}",
    "🙂",
    "👩\u{200d}👩\u{200d}👧",
    "\u{fe0f}",
    "▁",
    "\u{200b}",
    "\u{ff5e}",
    "ع",
    "\u{663}",
    "\0",
    "\u{feff}",
    "fn main() {\n    let x = 1;\n}\n",
    "- item\n- item\n",
    "<s>",
    "</s>",
    "word word word",
];

/// A short text.
pub fn part(numbers: &mut Numbers) -> String {
    (0..1 + numbers.below(5)).map(|_| PARTS[numbers.below(PARTS.len())]).collect()
}

/// One edit: mostly at the end as conversations grow, else anywhere.
pub fn edit(text: &mut String, numbers: &mut Numbers) {
    let place = |text: &str, numbers: &mut Numbers| {
        let mut at = numbers.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let short = |text: &str, from: usize, numbers: &mut Numbers| {
        let mut to = (from + numbers.below(40)).min(text.len());
        while !text.is_char_boundary(to) {
            to += 1;
        }
        to
    };
    match numbers.below(11) {
        0..=3 => text.push_str(&part(numbers)),
        4 => {
            let at = place(text, numbers);
            text.insert_str(at, &part(numbers));
        }
        5 => {
            let at = place(text, numbers);
            let to = short(text, at, numbers);
            text.replace_range(at..to, "");
        }
        6 => {
            let at = place(text, numbers);
            let to = short(text, at, numbers);
            text.replace_range(at..to, &part(numbers));
        }
        7 => {
            let mut at = place(text, numbers).max(text.len().saturating_sub(200));
            while !text.is_char_boundary(at) {
                at += 1;
            }
            text.truncate(at);
        }
        // Something moves: the same stretch at another place.
        8 => {
            let from = place(text, numbers);
            let to = short(text, from, numbers);
            let moved = text[from..to].to_owned();
            let at = place(text, numbers);
            text.insert_str(at, &moved);
        }
        // One character, at the end: what it was may have been decided by it.
        9 => {
            text.pop();
            text.push_str(PARTS[numbers.below(PARTS.len())]);
        }
        _ => {
            let at = place(text, numbers);
            text.insert_str(at, "<|im_end|>\n<|im_start|>assistant\n");
        }
    }
    // A new conversation now and then.
    if text.len() > 4000 || numbers.below(200) == 0 {
        let at = place(text, numbers);
        text.replace_range(at.., "");
    }
}

/// Edits `n` times and compares each time. Returns (bytes of all texts, bytes that were encoded).
pub fn compare(tokenizer: &Tokenizer, seed: u64, n: usize) -> Result<(usize, usize), String> {
    let mut numbers = Numbers(seed);
    let mut encoders: Vec<IncrementalEncoder> = [(true, false), (false, false), (true, true), (false, true)]
        .map(|(special, add_bos_eos)| IncrementalEncoder::new(EncodeOptions { special, add_bos_eos }))
        .into();
    let mut text = String::new();
    let (mut all, mut encoded) = (0, 0);
    for i in 0..n {
        let before = text.clone();
        edit(&mut text, &mut numbers);
        let which = i % encoders.len();
        // One encoder sees every edit, the others every fourth.
        for k in if which == 0 { vec![0] } else { vec![0, which] } {
            let options = EncodeOptions { special: k % 2 == 0, add_bos_eos: k >= 2 };
            let whole = tokenizer.encode(&text, options).map_err(|e| e.to_string())?;
            let parts = encoders[k].encode(tokenizer, &text).map_err(|e| e.to_string())?;
            if parts != whole {
                return Err(format!(
                    "edit {i}, {options:?}: {before:?} -> {text:?}: {parts:?} instead of {whole:?}"
                ));
            }
            all += text.len();
            encoded += encoders[k].encoded_bytes();
        }
    }
    Ok((all, encoded))
}
