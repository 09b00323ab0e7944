//! Small vocabularies, right and wrong: what is refused, what is tolerated, what each kind of token does.

use esker_text::{
    EncodeError, EncodeOptions, MAX_TOKEN_BYTES, Tokenizer, TokenizerError, TokenizerWarning, VocabSpec,
};
use proptest::prelude::*;

const SPECIAL: EncodeOptions = EncodeOptions { special: true, add_bos_eos: false };
const PLAIN: EncodeOptions = EncodeOptions { special: false, add_bos_eos: false };
const WITH_BOS: EncodeOptions = EncodeOptions { special: true, add_bos_eos: true };

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| t.to_string()).collect()
}

/// All 256 bytes, then `more` tokens with their types, and merges.
fn byte_level(more: &[(&str, i32)], merges: &[&str]) -> VocabSpec {
    let printable = |b: &u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut hidden = 0x100;
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|b| {
            let code = if printable(&b) {
                u32::from(b)
            } else {
                hidden += 1;
                hidden - 1
            };
            char::from_u32(code).unwrap().to_string()
        })
        .collect();
    let mut token_types = vec![1; 256];
    for (text, ty) in more {
        tokens.push(text.to_string());
        token_types.push(*ty);
    }
    VocabSpec {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        tokens,
        token_types,
        merges: strings(merges),
        ..VocabSpec::default()
    }
}

/// `<unk> <s> </s>`, 256 byte tokens, then pieces with scores.
fn sentencepiece(pieces: &[(&str, f32, i32)]) -> VocabSpec {
    let mut spec = VocabSpec { model: "llama".into(), ..VocabSpec::default() };
    let mut push = |text: String, score, ty| {
        spec.tokens.push(text);
        spec.scores.push(score);
        spec.token_types.push(ty);
    };
    push("<unk>".into(), 0.0, 2);
    push("<s>".into(), 0.0, 3);
    push("</s>".into(), 0.0, 3);
    (0..256).for_each(|b| push(format!("<0x{b:02X}>"), 0.0, 6));
    pieces.iter().for_each(|&(text, score, ty)| push(text.into(), score, ty));
    spec
}

fn error(spec: VocabSpec) -> String {
    Tokenizer::new(spec).expect_err("the vocabulary is wrong").to_string()
}

#[test]
fn what_is_wrong_is_named() {
    let base = || byte_level(&[("ab", 1)], &["a b"]);
    let with = |change: &dyn Fn(&mut VocabSpec)| {
        let mut spec = base();
        change(&mut spec);
        error(spec)
    };
    assert!(Tokenizer::new(base()).is_ok());
    assert_eq!(
        with(&|s| s.model = "bert".into()),
        "tokenizer model `bert` is not supported, expected one of gpt2, llama, t5, gemma4"
    );
    assert_eq!(with(&|s| s.tokens.clear()), "`tokens` is empty");
    assert_eq!(
        with(&|s| s.token_types.truncate(3)),
        "`token_type` has 3 entries, expected 257, one for each token"
    );
    assert_eq!(with(&|s| s.scores = vec![0.0]), "`scores` has 1 entries, expected 257, one for each token");
    assert_eq!(with(&|s| s.scores = vec![f32::NAN; 257]), "`scores[0]` is not a number");
    assert_eq!(with(&|s| s.token_types[7] = 9), "`token_type[7]` is 9, expected 0 to 6");
    assert_eq!(
        with(&|s| s.token_types[65] = 6),
        "token 65 is of type byte but its text is `A`, expected `<0x00>` to `<0xFF>`"
    );
    assert_eq!(
        with(&|s| s.tokens[0] = "x".repeat(MAX_TOKEN_BYTES + 1)),
        "token 0 has 4097 bytes, at most 4096 are supported"
    );
    assert_eq!(
        with(&|s| s.merges.clear()),
        "tokenizer model `gpt2` needs `merges`, which is missing or empty"
    );
    for merge in ["ab", "", " ", "a ", " b"] {
        assert_eq!(
            with(&|s| s.merges.push(merge.into())),
            format!("`merges[1]` is `{merge}`, expected two tokens with a space between them")
        );
    }
    assert_eq!(
        with(&|s| s.merges.push("ab xyz".into())),
        "`merges[1]` is `ab xyz`, but `xyz` is not in the vocabulary"
    );
    assert_eq!(
        with(&|s| s.merges.push("b a".into())),
        "`merges[1]` is `b a`, but `ba` is not in the vocabulary"
    );
    assert_eq!(with(&|s| s.eos = Some(257)), "`eos_token_id` is 257, but the vocabulary has 257 tokens");
    for model in ["llama", "t5"] {
        let message = with(&|s| s.model = model.into());
        assert_eq!(message, format!("tokenizer model `{model}` needs `scores`, which is missing or empty"));
    }
    let many = vec!["<".repeat(MAX_TOKEN_BYTES); 1100];
    let many: Vec<String> = many.into_iter().enumerate().map(|(i, t)| format!("{i}{}", &t[8..])).collect();
    let n = many.len();
    let big = VocabSpec {
        model: "llama".into(),
        tokens: many,
        scores: vec![0.0; n],
        token_types: vec![3; n],
        ..VocabSpec::default()
    };
    assert!(matches!(Tokenizer::new(big), Err(TokenizerError::SpecialTokensTooLarge { .. })));
}

#[test]
fn what_is_odd_is_reported() {
    let warnings = |spec| Tokenizer::new(spec).unwrap().warnings().to_vec();
    let spec = || VocabSpec { eos: Some(0), ..byte_level(&[("ab", 1)], &["a b"]) };
    assert_eq!(warnings(spec()), []);
    assert_eq!(warnings(VocabSpec { pre: String::new(), ..spec() }), [TokenizerWarning::MissingPre]);
    assert_eq!(
        warnings(VocabSpec { pre: "new-model".into(), ..spec() }),
        [TokenizerWarning::UnknownPre { pre: "new-model".into() }]
    );
    assert_eq!(warnings(VocabSpec { eos: None, ..spec() }), [TokenizerWarning::NoEndOfGeneration]);
    assert_eq!(
        warnings(VocabSpec { pad: Some(u32::MAX), ..spec() }),
        [TokenizerWarning::IdOutOfRange { field: "pad", id: u32::MAX, n_tokens: 257 }]
    );
    assert_eq!(
        warnings(VocabSpec { add_bos: Some(true), ..spec() }),
        [TokenizerWarning::AddWithoutId { field: "bos" }]
    );

    let twice = VocabSpec { eos: Some(0), ..byte_level(&[("ab", 1), ("ab", 1), ("ab", 1)], &["a b"]) };
    assert_eq!(
        warnings(twice.clone()),
        [TokenizerWarning::DuplicateTokens { count: 2, text: "ab".into(), kept: 256, ignored: 257 }]
    );
    let tokenizer = Tokenizer::new(twice).unwrap();
    assert_eq!(tokenizer.encode("ab", PLAIN).unwrap(), [256]);
    assert_eq!(tokenizer.decode(&[258], false), b"ab");

    let merged = byte_level(&[("<|", 1), ("|>", 1), ("<||>", 3)], &["< |", "| >", "<| |>"]);
    let tokenizer = Tokenizer::new(merged).unwrap();
    assert!(
        tokenizer
            .warnings()
            .contains(&TokenizerWarning::MergesIntoControl { count: 1, token: "<||>".into() })
    );
    assert_eq!(tokenizer.encode("<||>", PLAIN).unwrap(), [256, 257]);
    assert_eq!(tokenizer.encode("<||>", SPECIAL).unwrap(), [258]);
    for warning in tokenizer.warnings() {
        assert!(!warning.to_string().is_empty());
    }
}

#[test]
fn bytes_without_a_token() {
    let mut spec = byte_level(&[("ab", 1)], &["a b"]);
    spec.tokens.remove(usize::from(b'z'));
    spec.token_types.pop();
    let tokenizer = Tokenizer::new(spec.clone()).unwrap();
    assert!(tokenizer.warnings().contains(&TokenizerWarning::MissingByteTokens { count: 1 }));
    assert_eq!(tokenizer.encode("ab", PLAIN).unwrap(), [255]);
    assert_eq!(tokenizer.encode("ab zz", PLAIN), Err(EncodeError::NoToken { text: " zz".into() }));
    spec.unk = Some(3);
    assert_eq!(Tokenizer::new(spec).unwrap().encode("zab", PLAIN).unwrap(), [3, 255]);
}

#[test]
fn kinds_of_tokens_in_text() {
    let spec =
        byte_level(&[("<think>", 4), ("<|im_end|>", 3), ("[PAD]", 5), ("<|im", 4), ("Ġx", 1)], &["Ġ x"]);
    let tokenizer = Tokenizer::new(VocabSpec { eos: Some(257), bos: Some(257), ..spec }).unwrap();
    assert_eq!(tokenizer.encode("<think> x<|im_end|>", SPECIAL).unwrap(), [256, 260, 257]);
    let plain = tokenizer.encode("<think> x<|im_end|>", PLAIN).unwrap();
    assert_eq!(plain[..3], [256, 260, 259]);
    assert!(!plain.contains(&257));
    assert_eq!(tokenizer.decode_lossy(&plain, true), "<think> x<|im_end|>");
    assert_eq!(tokenizer.encode("[PAD]", SPECIAL).unwrap().len(), 5);
    assert_eq!(tokenizer.decode(&[256, 258, 257, 260, 9999], true), b"<think> x");
    assert_eq!(tokenizer.decode(&[257, 260], false), b"<|im_end|> x");
    assert_eq!(tokenizer.token_bytes(260), Some(&b" x"[..]));
    assert_eq!(tokenizer.token_bytes(261), None);
    assert!(!tokenizer.is_control(9999) && !tokenizer.is_end_of_generation(9999));

    let mut stream = tokenizer.stream();
    let texts: Vec<String> = [256, 0xe2, 0x82, 257, 0xac, 260, 0xe2].map(|id| stream.push(id)).into();
    assert_eq!(texts, ["<think>", "", "", "", "€", " x", ""]);
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(tokenizer.stream().with_special().push(257), "<|im_end|>");
}

#[test]
fn bos_and_eos_are_added_once() {
    let pieces = [("▁", -1.0, 1), ("a", -2.0, 1), ("▁a", -1.5, 1)];
    let tokenizer = Tokenizer::new(sentencepiece(&pieces)).unwrap();
    assert!(tokenizer.adds_bos() && !tokenizer.adds_eos());
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.unk()), (Some(1), Some(2), Some(0)));
    assert_eq!(tokenizer.encode("a", WITH_BOS).unwrap(), [1, 261]);
    assert_eq!(tokenizer.encode("<s>a", WITH_BOS).unwrap(), [1, 261]);
    assert_eq!(tokenizer.encode("", WITH_BOS).unwrap(), [1]);
    let both = VocabSpec { add_eos: Some(true), add_space_prefix: Some(false), ..sentencepiece(&pieces) };
    assert_eq!(Tokenizer::new(both).unwrap().encode("a", WITH_BOS).unwrap(), [1, 260, 2]);

    let llama3 = VocabSpec { pre: "llama-bpe".into(), bos: Some(256), ..byte_level(&[("<b>", 3)], &["a b"]) };
    let llama3 =
        VocabSpec { tokens: [llama3.tokens, strings(&["ab"])].concat(), token_types: vec![], ..llama3 };
    assert_eq!(Tokenizer::new(llama3).unwrap().encode("ab", WITH_BOS).unwrap(), [256, 257]);
}

#[test]
fn sentencepiece_spaces_bytes_and_special_tokens() {
    let tokenizer = Tokenizer::new(sentencepiece(&[
        ("▁", -1.0, 1),
        ("a", -2.0, 1),
        ("▁a", -1.5, 1),
        ("▁▁▁", 0.0, 4),
        ("<x>", 0.0, 4),
    ]))
    .unwrap();
    let encode = |text| tokenizer.encode(text, SPECIAL).unwrap();
    assert_eq!(encode("a a"), [261, 261]);
    assert_eq!(encode("aé"), [261, 3 + 0xc3, 3 + 0xa9]);
    // A space goes before text that follows a special token, as at the start.
    assert_eq!(encode("a</s>a<x>a"), [261, 2, 261, 263, 261]);
    assert_eq!(encode("a   a"), [261, 262, 261]);
    assert_eq!(tokenizer.encode("</s>", PLAIN).unwrap().len(), 5);
    assert_eq!(tokenizer.decode_lossy(&encode("a é"), false), "a é");
    assert_eq!(tokenizer.decode_lossy(&[1, 261, 261, 2], true), "a a");
    // The continuation of a prompt keeps its space.
    assert_eq!(tokenizer.stream().push(261), " a");
    assert_eq!(tokenizer.stream().at_start().push(261), "a");
}

#[test]
fn gemma_style_merges_work_on_characters() {
    let mut spec = sentencepiece(&[
        ("▁", 0.0, 1),
        ("a", 0.0, 1),
        ("é", 0.0, 1),
        ("▁a", 0.0, 1),
        ("aé", 0.0, 1),
        ("\n", 0.0, 1),
        ("\n\n", 0.0, 1),
        ("<turn|>", 0.0, 3),
    ]);
    spec.model = "gemma4".into();
    spec.merges = strings(&["▁ a", "a é"]);
    spec.bos = Some(1);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode(" aé", WITH_BOS).unwrap(), [1, 262, 261]);
    assert_eq!(tokenizer.encode("aé\n\n€", SPECIAL).unwrap(), [263, 265, 3 + 0xe2, 3 + 0x82, 3 + 0xac]);
    assert_eq!(tokenizer.decode_lossy(&[263, 265, 3 + 0xe2, 3 + 0x82, 3 + 0xac, 262], false), "aé\n\n€ a");
    assert_eq!(tokenizer.end_of_generation(), [2, 266]);
}

#[test]
fn ends_of_generation_by_name() {
    let ends = |more: &[(&str, i32)]| {
        Tokenizer::new(with_blank(byte_level(more, &["Ġ Ġ"]))).unwrap().end_of_generation().to_vec()
    };
    assert_eq!(ends(&[("<|im_end|>", 3), ("<|im_start|>", 3), ("<|endoftext|>", 3)]), [257, 259]);
    assert_eq!(ends(&[("</s>", 1), ("<|eot_id|>", 4), ("<end_of_turn>", 3)]), [258, 259]);
    assert_eq!(ends(&[("</s>", 4), ("<eos>", 3)]), [258]);
    assert_eq!(ends(&[("<|end|>", 3)]), [257]);
    assert_eq!(ends(&[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)]), [258, 259]);
    assert_eq!(ends(&[("<|user|>", 3), ("<|observation|>", 3), ("[gMASK]", 3)]), [257, 258]);
    assert!(ends(&[("<|user|>", 3)]).is_empty());
}

/// Puts the result of the merge `Ġ Ġ` behind the bytes.
fn with_blank(mut spec: VocabSpec) -> VocabSpec {
    spec.tokens.insert(256, "ĠĠ".into());
    spec.token_types.insert(256, 1);
    spec
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-c ]{0,6}",
        "\\PC{0,4}",
        Just("▁".to_owned()),
        Just("<x>".to_owned()),
        Just("<0x41>".to_owned()),
        Just("\r\n".to_owned()),
        Just("e\u{301}".to_owned()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the file says, building and using the tokenizer ends in a result or an error.
    #[test]
    fn no_vocabulary_panics(
        model in prop_oneof![Just("gpt2"), Just("llama"), Just("t5"), Just("gemma4")],
        pre in prop_oneof![Just("qwen2"), Just("llama-bpe"), Just("deepseek-v3"), Just("sarvam-moe"), Just("tiny_aya")],
        tokens in prop::collection::vec(any_text(), 1..12),
        types in prop::collection::vec(0..7i32, 0..12),
        scores in prop::collection::vec(any::<f32>(), 0..12),
        merges in prop::collection::vec((0usize..12, 0usize..12), 0..6),
        ids in prop::collection::vec(prop::option::of(0u32..14), 5),
        text in any_text(),
    ) {
        let n = tokens.len();
        let fit = |len: usize| if len > n / 2 { n } else { 0 };
        let mut types: Vec<i32> = types.into_iter().chain(std::iter::repeat(1)).take(fit(n)).collect();
        for (ty, token) in types.iter_mut().zip(&tokens) {
            if *ty == 6 && token != "<0x41>" {
                *ty = 1;
            }
        }
        let scores: Vec<f32> = scores.into_iter().map(|s| if s.is_nan() { 0.0 } else { s }).chain(std::iter::repeat(-1.0)).take(n).collect();
        let mut all = tokens.clone();
        let merges = merges.into_iter().map(|(l, r)| {
            let (l, r) = (&tokens[l % n], &tokens[r % n]);
            all.push(format!("{l}{r}"));
            format!("{l} {r}")
        }).collect();
        let extra = all.len() - n;
        let spec = VocabSpec {
            model: model.into(),
            pre: pre.into(),
            tokens: all,
            token_types: if types.is_empty() { types } else { types.into_iter().chain(std::iter::repeat_n(1, extra)).collect() },
            scores: scores.into_iter().chain(std::iter::repeat_n(0.5, extra)).collect(),
            merges,
            bos: ids[0],
            eos: ids[1],
            eot: ids[2],
            unk: ids[3],
            pad: ids[4],
            ..VocabSpec::default()
        };
        if let Ok(tokenizer) = Tokenizer::new(spec) {
            for options in [PLAIN, WITH_BOS] {
                if let Ok(ids) = tokenizer.encode(&text, options) {
                    prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                    let mut stream = tokenizer.stream().with_special().at_start();
                    let streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
                    prop_assert_eq!(streamed + &stream.finish(), tokenizer.decode_lossy(&ids, false));
                }
            }
        }
    }

    /// Byte-level and SentencePiece vocabularies with byte tokens lose nothing.
    #[test]
    fn text_survives(text in any_text()) {
        let bpe = Tokenizer::new(byte_level(&[("ab", 1), ("<x>", 4), ("Ġa", 1)], &["a b", "Ġ a"])).unwrap();
        for options in [PLAIN, SPECIAL] {
            let ids = bpe.encode(&text, options).unwrap();
            prop_assert_eq!(bpe.decode_lossy(&ids, false), &*text);
        }
        let spm = Tokenizer::new(VocabSpec {
            add_space_prefix: Some(false),
            ..sentencepiece(&[("▁", -1.0, 1), ("a", -2.0, 1), ("▁a", -1.5, 1), ("b▁c", -0.5, 1), ("<x>", 0.0, 4)])
        }).unwrap();
        let ids = spm.encode(&text, SPECIAL).unwrap();
        prop_assert_eq!(spm.decode_lossy(&ids, false), text.replace('▁', " "));
    }
}
