//! The table of pre-tokenizers: what `tokenizer.ggml.pre` stands for.
//!
//! Sources: the split patterns and normalisers in the models' published `tokenizer.json` files and tokenizer
//! code; the names and the flags are those that GGUF files use. Where a pattern was published with `(?i:'s|…)`,
//! the letters are spelled out: only ASCII apostrophe forms are meant.
//!
//! Normalisation has no GGUF key. It belongs to the tokenizer that a model was trained with, so it stands here: the
//! Qwen, GPT-NeoX (OLMo, MPT) and StableLM 2 families compose text to NFC before anything else. Text that is
//! in NFC already, which is almost all text, is not affected.

use crate::split::Cut;

/// A pre-tokenizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pre {
    /// Names in GGUF files.
    pub(crate) names: &'static [&'static str],
    /// Cuts, applied one after the other.
    pub(crate) cuts: &'static [Cut],
    /// Compose to NFC first.
    pub(crate) nfc: bool,
    /// A piece that is a token is that token, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// Default of `add_bos_token`.
    pub(crate) add_bos: bool,
    /// Tokens are written in characters, `▁` and `<0xXX>`, instead of the byte alphabet.
    pub(crate) characters: bool,
}

/// Finds a pre-tokenizer by its name in GGUF files.
pub(crate) fn find(name: &str) -> Option<&'static Pre> {
    PRES.iter().find(|pre| pre.names.contains(&name))
}

/// Used when the file names none, or one that is not in the table.
pub(crate) const DEFAULT: &str = "default";

const PLAIN: Pre =
    Pre { names: &[], cuts: &[], nfc: false, ignore_merges: false, add_bos: false, characters: false };

const GPT2: Cut = Cut::Words(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");

macro_rules! contractions {
    () => {
        r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
    };
}
/// The family that starts with cl100k: contractions, words with one leading mark, digits, marks, line ends.
macro_rules! modern {
    ($digits:literal) => {
        concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        )
    };
}
const ONE_DIGIT: Cut = Cut::Words(modern!(r"\p{N}"));
const THREE_DIGITS: Cut = Cut::Words(modern!(r"\p{N}{1,3}"));

/// Words that change from upper to lower case once, with their contractions.
macro_rules! cased_words {
    ($upper:literal, $lower:literal, $tail:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[",
            $upper,
            "]*[",
            $lower,
            "]+",
            $tail,
            r"|[^\r\n\p{L}\p{N}]?[",
            $upper,
            "]+[",
            $lower,
            "]*",
            $tail
        )
    };
}
macro_rules! o200k {
    () => {
        concat!(
            cased_words!(
                r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
                r"\p{Ll}\p{Lm}\p{Lo}\p{M}",
                concat!("(?:", contractions!(), ")?")
            ),
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
        )
    };
}
const O200K: Cut = Cut::Words(o200k!());

/// DeepSeek-V3 after digits and CJK are cut out.
const PUNCTUATED: Cut = Cut::Words(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
));
const CJK_KANA: Cut = Cut::Matches(r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+");
const CJK_HANGUL: Cut = Cut::Matches(r"[\u{4e00}-\u{9fa5}\u{0800}-\u{4e00}\u{ac00}-\u{d7ff}]+");

/// The cased letters that DeepSeek LLM's tokenizer lists (Lu, Ll and Lt of an old Unicode, nearly).
const DEEPSEEK_WORDS: Cut = Cut::Matches(concat!(
    r"\s?[A-Za-z",
    r"\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    r"\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    r"\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}",
    r"\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}",
    r"\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}",
    r"\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}",
    r"\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}",
    r"\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}",
    r"\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}",
    r"\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}",
    r"\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}",
    r"\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}",
    r"\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
    r"]+",
));

/// SentencePiece-like BPE over the whole text; only line ends are set apart.
const LINES: Cut = Cut::Matches(r"[^\n]+|\n+");

const BLOOM: Cut = Cut::Matches(r" ?[^(\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+");

static PRES: &[Pre] = &[
    Pre {
        names: &[DEFAULT],
        cuts: &[
            Cut::Matches(r"[\p{P}\$\+<=>\^~\|]+"),
            GPT2,
            Cut::Matches(r"\p{N}+"),
            Cut::Matches("[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
    Pre {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        cuts: &[GPT2],
        ..PLAIN
    },
    Pre { names: &["olmo", "mpt"], cuts: &[GPT2], nfc: true, ..PLAIN },
    Pre {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        cuts: &[Cut::Matches(r"\p{N}"), GPT2],
        ..PLAIN
    },
    Pre { names: &["qwen2", "deepseek-r1-qwen", "megrez"], cuts: &[ONE_DIGIT], nfc: true, ..PLAIN },
    Pre { names: &["stablelm2"], cuts: &[ONE_DIGIT], nfc: true, ..PLAIN },
    Pre { names: &["hunyuan", "grok-2", "solar-open", "kormo", "f2llmv2"], cuts: &[ONE_DIGIT], ..PLAIN },
    Pre { names: &["laguna"], cuts: &[LINES, ONE_DIGIT], ..PLAIN },
    Pre {
        names: &["qwen35"],
        cuts: &[Cut::Words(concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
        ))],
        nfc: true,
        ..PLAIN
    },
    Pre {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        cuts: &[THREE_DIGITS],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Pre { names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], cuts: &[THREE_DIGITS], ..PLAIN },
    // OpenAI's own form: white space at the end of the text stays together, line ends or not.
    Pre {
        names: &["cl100k_base"],
        cuts: &[Cut::Words(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]",
        )],
        ignore_merges: true,
        ..PLAIN
    },
    Pre { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], cuts: &[O200K], ..PLAIN },
    Pre { names: &["granite-embed-multi-97m"], cuts: &[O200K], ignore_merges: true, ..PLAIN },
    Pre { names: &["tiny_aya", "cohere2moe"], cuts: &[Cut::Thousands, O200K], ..PLAIN },
    Pre {
        names: &["tekken"],
        cuts: &[Cut::Words(concat!(
            cased_words!(r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}", ""),
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
        ))],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    // As o200k, but Han characters are runs of their own and marks do not take a slash.
    Pre {
        names: &["kimi-k2"],
        cuts: &[Cut::Words(concat!(
            r"\p{Han}+|",
            cased_words!(
                r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]",
                r"\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]",
                concat!("(?:", contractions!(), ")?")
            ),
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        ))],
        ..PLAIN
    },
    Pre {
        names: &["deepseek-llm"],
        cuts: &[
            Cut::Matches(r"[\r\n]"),
            DEEPSEEK_WORDS,
            Cut::Matches(r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+"),
            Cut::Matches(r"\s+\z"),
            CJK_HANGUL,
            Cut::Matches(r"\p{N}+"),
        ],
        ..PLAIN
    },
    Pre {
        names: &["deepseek-coder"],
        cuts: &[
            Cut::Matches(r"[\r\n]"),
            Cut::Matches(r"\s?\p{L}+"),
            Cut::Matches(r"\s?\p{P}+"),
            CJK_HANGUL,
            Cut::Matches(r"\p{N}"),
        ],
        ..PLAIN
    },
    Pre {
        names: &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"],
        cuts: &[Cut::Matches(r"\p{N}{1,3}"), CJK_KANA, PUNCTUATED],
        ..PLAIN
    },
    Pre {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        cuts: &[Cut::Words(concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]"
        ))],
        ..PLAIN
    },
    Pre {
        names: &["seed-coder"],
        cuts: &[Cut::Words(concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+"
        ))],
        ..PLAIN
    },
    Pre {
        names: &["exaone-moe"],
        cuts: &[Cut::Words(concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
        ))],
        ..PLAIN
    },
    Pre {
        names: &["minicpm5"],
        cuts: &[Cut::Matches(r"\p{N}{1,3}"), Cut::Words(modern!(r"\p{N}+"))],
        ignore_merges: true,
        ..PLAIN
    },
    Pre {
        names: &["falcon"],
        cuts: &[Cut::Matches(r"[\p{P}\$\+<=>\^~\|`]+"), GPT2, Cut::Matches("[0-9][0-9][0-9]")],
        ..PLAIN
    },
    Pre { names: &["bloom", "poro-chat", "gpt3-finnish"], cuts: &[BLOOM], ..PLAIN },
    Pre { names: &["viking"], cuts: &[BLOOM, Cut::Matches(r"\p{N}")], ..PLAIN },
    Pre { names: &["gemma4"], cuts: &[LINES], add_bos: true, characters: true, ..PLAIN },
    Pre { names: &["sarvam-moe"], cuts: &[LINES], characters: true, ..PLAIN },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Splitter;

    #[test]
    fn every_entry_compiles_and_loses_nothing() {
        let text = "Hello  World's 12345 x1y\r\n\n  \tтест東京テスト한국어 e\u{301}🙂!!/\u{a0}  ";
        for pre in PRES {
            let splitter = Splitter::new(pre.cuts).unwrap();
            let mut joined = String::new();
            splitter
                .split(text, &mut |p| {
                    assert!(!p.is_empty());
                    joined.push_str(p);
                    Ok::<_, ()>(())
                })
                .unwrap();
            assert_eq!(joined, text, "{:?}", pre.names);
        }
    }

    /// What [`crate::bpe::cut_after`] relies on: a piece ends between a line end and an ASCII letter, the pieces before it
    /// depend on nothing behind the letter, and those behind it on nothing before.
    #[test]
    fn every_entry_cuts_between_line_end_and_letter() {
        use proptest::prelude::*;
        let splitters: Vec<_> = PRES.iter().map(|pre| (Splitter::new(pre.cuts).unwrap(), pre)).collect();
        let part = "([ \\t\\r\\n]{0,3}|[a-zA-Z]{1,3}|[0-9]{1,4}|[!'./_`|$~-]{1,3}|[\u{e9}\u{301}\u{3042}\u{6771}\u{ac00}\u{3000}\u{a0}\u{85}\u{2028}\u{1f642}\u{663}\u{200d}]|'s|ing|  x)";
        let text = || prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat());
        let config = ProptestConfig { cases: 3000, ..ProptestConfig::default() };
        proptest!(config, |(before in text(), letter in "[a-zA-Z]", after in text())| {
            let (before, after) = (format!("{before}\n"), format!("{letter}{after}"));
            let whole = format!("{before}{after}");
            let guarded = format!("{before}{letter}");
            for (splitter, pre) in &splitters {
                let pieces = |text: &str| {
                    let mut pieces = Vec::new();
                    splitter.split(text, &mut |p| { pieces.push(p.to_owned()); Ok::<_, ()>(()) }).unwrap();
                    pieces
                };
                let mut joined = pieces(&guarded);
                prop_assert_eq!(joined.pop(), Some(letter.clone()), "{:?}", pre.names);
                joined.extend(pieces(&after));
                prop_assert_eq!(joined, pieces(&whole), "{:?}", pre.names);
            }
        });
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = PRES.iter().flat_map(|p| p.names).collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
    }

    /// The pieces of 2,000 strings as Hugging Face `tokenizers` cuts them with the patterns as published.
    #[test]
    fn splits_match_published_patterns() {
        use std::io::Read as _;
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/");
        let mut json = String::new();
        let file = std::fs::File::open(format!("{golden}strings.jsonl.gz")).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut json).unwrap();
        let texts: Vec<String> = json
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned()
            })
            .collect();
        let splits = std::fs::read_to_string(format!("{golden}splits.json")).unwrap();
        let splits: std::collections::BTreeMap<String, (usize, String)> =
            serde_json::from_str(&splits).unwrap();
        assert!(splits.len() > 15);
        let mut differ = Vec::new();
        for (name, (count, hash)) in splits {
            let splitter = Splitter::new(find(&name).unwrap().cuts).unwrap();
            let (mut n, mut fnv) = (0, 0xcbf2_9ce4_8422_2325_u64);
            for text in &texts {
                splitter
                    .split(text, &mut |piece| {
                        n += 1;
                        for byte in piece.bytes().chain([0xff]) {
                            fnv = (fnv ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                        }
                        Ok::<_, ()>(())
                    })
                    .unwrap();
            }
            if (n, format!("{fnv:016x}")) != (count, hash) {
                differ.push((name, n, count));
            }
        }
        assert_eq!(differ, []);
    }

    fn check(name: &str, text: &str, expect: &[&str]) {
        let splitter = Splitter::new(find(name).unwrap().cuts).unwrap();
        let mut pieces = Vec::new();
        splitter
            .split(text, &mut |p| {
                pieces.push(p);
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(pieces, expect, "{name} {text:?}");
    }

    #[test]
    fn families_differ_where_they_should() {
        check("qwen2", "It's 123 ok", &["It", "'s", " ", "1", "2", "3", " ok"]);
        check("llama-bpe", "It'S 1234", &["It", "'S", " ", "123", "4"]);
        check("gpt-2", "It's 1234!", &["It", "'s", " 1234", "!"]);
        check("smollm", "a 12", &["a", " ", "1", "2"]);
        check("gpt-4o", "helloWorld's HTTPServer", &["hello", "World's", " HTTPServer"]);
        check("tekken", "helloWorld's", &["hello", "World", "'s"]);
        check("kimi-k2", "x東京y//\n", &["x", "東京", "y", "//\n"]);
        check("deepseek-v3", "abc 1234,x東京", &["abc", " ", "123", "4", ",x", "東京"]);
        check("deepseek-coder", "a b\n12", &["a", " b", "\n", "1", "2"]);
        check("qwen35", "ne\u{301}e", &["ne\u{301}e"]);
        check("qwen2", "ne\u{301}e", &["ne", "\u{301}e"]);
        check("tiny_aya", "12345", &["12", "345"]);
        check("default", "a,b 1234", &["a", ",", "b", " ", "123", "4"]);
        check("gemma4", "a b\n\nc", &["a b", "\n\n", "c"]);
        check("bloom", "a b, c", &["a", " b", ",", " c"]);
    }
}
