//! Constrained decoding with the golden vocabularies.

mod vocabularies;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use esker_text::grammar::{Constraint, ConstraintOptions, GrammarError, GrammarVocabulary};
use esker_text::reasoning::ReasoningFormat;
use esker_text::tools::{ToolChoice, ToolEvent, ToolFormat, ToolParser, ToolSpec};
use esker_text::{EncodeOptions, Tokenizer, VocabSpec};
use serde_json::{Value, json};

use vocabularies::edits::Numbers;
use vocabularies::{CL100K_SPECIAL, from_ranks, model_vocab, read};

static TOKENIZER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::new(VocabSpec { eos: Some(8185), ..model_vocab() }).unwrap());
static VOCABULARY: LazyLock<GrammarVocabulary> =
    LazyLock::new(|| GrammarVocabulary::new(&TOKENIZER).unwrap());

fn has(bits: &[u32], token: u32) -> bool {
    bits.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Feeds `text`; whether it may end there, or the part that was not allowed.
fn follow(constraint: &mut Constraint, tokenizer: &Tokenizer, text: &str) -> Result<bool, String> {
    let mut bits = Vec::new();
    let mut done = 0;
    for token in tokenizer.encode(text, EncodeOptions { special: true, add_bos_eos: false }).unwrap() {
        constraint.mask(&mut bits).map_err(|e| e.to_string())?;
        if !has(&bits, token) {
            return Err(text[..done].to_owned());
        }
        constraint.accept(token).map_err(|e| e.to_string())?;
        done = (done + tokenizer.token_bytes(token).unwrap().len()).min(text.len());
    }
    constraint.mask(&mut bits).map_err(|e| e.to_string())?;
    let ends = tokenizer.end_of_generation().iter().all(|&token| has(&bits, token));
    assert_eq!(constraint.is_complete(), ends, "{text}");
    Ok(ends)
}

fn schema(schema: Value) -> Constraint {
    Constraint::json_schema(&VOCABULARY, &schema, &ConstraintOptions::default()).unwrap()
}

fn check_schema(value: Value, right: &[&str], wrong: &[&str]) {
    for text in right {
        assert_eq!(follow(&mut schema(value.clone()), &TOKENIZER, text), Ok(true), "{text} for {value}");
    }
    for text in wrong {
        assert_ne!(follow(&mut schema(value.clone()), &TOKENIZER, text), Ok(true), "{text} for {value}");
    }
}

#[test]
fn schemas_hold() {
    check_schema(
        json!({
            "type": "object",
            "properties": { "name": { "type": "string" }, "age": { "type": "integer", "minimum": 0 } },
            "required": ["name"],
            "additionalProperties": false,
        }),
        &[
            "{\"name\": \"Zoë 🙂\"}",
            "{\"name\":\"a\",\"age\":3}",
            "{\n  \"name\": \"a\",\n  \"age\": 3\n}",
            "{\"name\": \"\\n\\\"\\u0001\"}",
        ],
        &[
            "",
            "{}",
            "{\"age\": 3}",
            "{\"name\": 3}",
            "{\"name\": \"a\", \"x\": 1}",
            "{\"name\": \"a\", \"age\": -1}",
            "{\"name\": \"a\"} x",
            "{\"name\":\n\n\n\n\"a\"}",
            "x",
        ],
    );
    check_schema(json!({ "enum": ["a", 1, null] }), &["\"a\"", "1", "null"], &["\"b\"", "2"]);
    check_schema(
        json!({ "type": "array", "items": { "type": "boolean" }, "minItems": 1, "maxItems": 2 }),
        &["[true]", "[true, false]"],
        &["[]", "[true,true,true]"],
    );
    check_schema(
        json!({ "$defs": { "T": { "type": "object", "properties": { "t": { "anyOf": [{ "$ref": "#/$defs/T" }, { "type": "null" }] } }, "required": ["t"], "additionalProperties": false } }, "$ref": "#/$defs/T" }),
        &["{\"t\": {\"t\": null}}"],
        &["{\"t\": {}}"],
    );
    check_schema(
        json!({ "type": "string", "pattern": "^a+b$", "maxLength": 4 }),
        &["\"aab\""],
        &["\"ab b\"", "\"aaaab\""],
    );
    check_schema(json!({ "type": "string", "format": "date" }), &["\"2024-02-29\""], &["\"2024-13-01\""]);
    check_schema(json!({}), &["1", "[{}]", "\"x\""], &["x"]);
}

#[test]
fn json_object_regex_and_lark() {
    let options = ConstraintOptions::default();
    let object = || Constraint::json_object(&VOCABULARY, &options).unwrap();
    assert_eq!(follow(&mut object(), &TOKENIZER, "{\"a\": [1, {\"b\": null}]}"), Ok(true));
    assert_eq!(follow(&mut object(), &TOKENIZER, "{\"a\": [1"), Ok(false));
    assert_eq!(follow(&mut object(), &TOKENIZER, "[1]"), Err(String::new()));
    let regex = || Constraint::regex(&VOCABULARY, "(yes|no)( really){0,2}[.!/]", &options).unwrap();
    assert_eq!(follow(&mut regex(), &TOKENIZER, "yes really."), Ok(true));
    assert_eq!(follow(&mut regex(), &TOKENIZER, "yes/"), Ok(true));
    assert!(follow(&mut regex(), &TOKENIZER, "maybe.").is_err());
    let lark = || {
        Constraint::lark(&VOCABULARY, "start: sum\nsum: NUMBER (\"+\" NUMBER)*\nNUMBER: /[0-9]+/", &options)
            .unwrap()
    };
    assert_eq!(follow(&mut lark(), &TOKENIZER, "12+3+4"), Ok(true));
    assert!(follow(&mut lark(), &TOKENIZER, "12++").is_err());
}

#[test]
fn tokens_that_are_no_text_are_not_allowed() {
    let mut constraint = schema(json!({ "type": "string" }));
    let mut bits = Vec::new();
    follow(&mut constraint, &TOKENIZER, "\"a").unwrap();
    constraint.mask(&mut bits).unwrap();
    for id in 0..TOKENIZER.vocab_size() as u32 {
        if TOKENIZER.is_control(id) {
            assert!(!has(&bits, id), "{id}");
        }
    }
    assert!(!has(&bits, TOKENIZER.vocab_size() as u32), "padding");
    // A token that is not allowed ends it.
    assert!(matches!(constraint.accept(8185), Err(GrammarError::Failed { .. })));
    assert!(constraint.mask(&mut bits).is_err());
}

#[test]
fn reasoning_goes_before() {
    let think = ReasoningFormat::new("<think>", "</think>");
    for (starts_inside, right) in [
        (true, vec!["Hm, {\"x\".\n</think>\n\n{\"a\":1}", "</think>{\"a\":1}"]),
        (false, vec!["<think>\nHm.</think>\n{\"a\":1}", "{\"a\":1}"]),
    ] {
        let options = ConstraintOptions { reasoning: think.clone(), starts_inside };
        for text in right {
            let mut constraint = Constraint::json_object(&VOCABULARY, &options).unwrap();
            assert_eq!(follow(&mut constraint, &TOKENIZER, text), Ok(true), "{text}");
        }
        let mut constraint = Constraint::json_object(&VOCABULARY, &options).unwrap();
        assert_ne!(follow(&mut constraint, &TOKENIZER, "<think>x</think> y"), Ok(true));
    }
    // As control tokens.
    let mut spec = VocabSpec { eos: Some(8185), ..model_vocab() };
    for (text, kind) in spec.tokens.iter().zip(&mut spec.token_types) {
        if text.contains("think>") {
            *kind = 3;
        }
    }
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert!(tokenizer.is_control(8190));
    let vocabulary = GrammarVocabulary::new(&tokenizer).unwrap();
    let options = ConstraintOptions { reasoning: think, starts_inside: false };
    let mut constraint = Constraint::json_object(&vocabulary, &options).unwrap();
    assert_eq!(follow(&mut constraint, &tokenizer, "<think>\nHm.</think>\n{\"a\":1}"), Ok(true));
}

fn tools(strict: bool) -> Vec<ToolSpec> {
    let tool = |name: &str, parameters| ToolSpec { name: name.to_owned(), parameters, strict };
    let weather = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string" },
            "unit": { "$ref": "#/$defs/Unit" },
            "days": { "type": "integer", "minimum": 1 },
            "place": { "type": "object", "properties": { "lat": { "type": "number" } }, "required": ["lat"], "additionalProperties": false },
        },
        "required": ["city", "days"],
        "additionalProperties": false,
        "$defs": { "Unit": { "enum": ["C", "F"] } },
    });
    vec![tool("get_weather", weather), tool("now", Value::Null)]
}

const FORMATS: &[ToolFormat] = &[
    ToolFormat::HermesJson,
    ToolFormat::QwenXml,
    ToolFormat::GlmXml,
    ToolFormat::MistralArray,
    ToolFormat::MistralNamed,
    ToolFormat::LlamaJson,
    ToolFormat::DeepSeekV3,
    ToolFormat::DeepSeekV31,
    ToolFormat::KimiK2,
    ToolFormat::MiniMaxXml,
    ToolFormat::PhiJson,
    ToolFormat::CommandJson,
];

/// Draws tokens at random until the text ends; `None` if it does not within `max` tokens. Endings are preferred.
fn generate(
    constraint: &mut Constraint,
    tokenizer: &Tokenizer,
    numbers: &mut Numbers,
    max: usize,
) -> Option<String> {
    let mut bits = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..max {
        constraint.mask(&mut bits).unwrap();
        let allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32).filter(|&id| has(&bits, id)).collect();
        let end = allowed.iter().find(|&&id| tokenizer.is_end_of_generation(id));
        if let Some(&end) = end.filter(|_| numbers.below(3) > 0) {
            constraint.accept(end).unwrap();
            let text = tokenizer.decode(&ids, false);
            return Some(String::from_utf8(text).expect("grammars allow UTF-8 only"));
        }
        let closes = |&&id: &&u32| {
            tokenizer.token_bytes(id).is_some_and(|b| matches!(b, [b'"' | b'}' | b']' | b'<' | b'\n', ..]))
        };
        let closing: Vec<u32> = allowed.iter().filter(closes).copied().collect();
        let among = if !closing.is_empty() && numbers.below(3) > 0 { &closing } else { &allowed };
        let id = among[numbers.below(among.len())];
        if !tokenizer.is_end_of_generation(id) {
            constraint.accept(id).unwrap();
            ids.push(id);
        }
    }
    None
}

/// Is this what the schema of `get_weather` allows?
fn is_weather(arguments: &Value) -> bool {
    let Some(fields) = arguments.as_object() else { return false };
    fields.get("city").is_some_and(Value::is_string)
        && fields.get("days").and_then(Value::as_i64).is_none_or(|days| days >= 1)
        && fields.get("days").is_some_and(Value::is_number)
        && fields.get("unit").is_none_or(|unit| matches!(unit.as_str(), Some("C" | "F")))
        && fields
            .get("place")
            .is_none_or(|place| place.as_object().is_some_and(|p| p.len() == 1 && p["lat"].is_number()))
        && fields.keys().all(|key| ["city", "days", "unit", "place"].contains(&&**key))
}

#[test]
fn required_calls_are_read_by_the_parser() {
    check_required_calls(&TOKENIZER, &VOCABULARY);
}

/// The same where the families' tags are control tokens.
#[test]
fn tags_can_be_control_tokens() {
    let mut spec = VocabSpec { eos: Some(8185), ..model_vocab() };
    for text in FORMATS.iter().flat_map(|format| format.markers()) {
        match spec.tokens.iter().position(|token| token == text) {
            Some(id) => spec.token_types[id] = 3,
            None => {
                spec.tokens.push((*text).to_owned());
                spec.token_types.push(3);
            }
        }
    }
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert!(tokenizer.special_token("[TOOL_CALLS]").is_some_and(|id| tokenizer.is_control(id)));
    check_required_calls(&tokenizer, &GrammarVocabulary::new(&tokenizer).unwrap());
}

/// What is drawn under the grammar of a notation is what its parser reads as calls that follow the schemas.
fn check_required_calls(tokenizer: &Tokenizer, vocabulary: &GrammarVocabulary) {
    let mut finished = 0;
    for &format in FORMATS {
        for seed in 0..12 {
            let mut numbers = Numbers(seed);
            let choice = if seed % 3 == 0 {
                ToolChoice::Named("get_weather".to_owned())
            } else {
                ToolChoice::Required
            };
            let parallel = seed % 2 == 0;
            let tools = tools(seed % 4 == 0);
            let mut constraint = Constraint::tool_calls(
                vocabulary,
                format,
                &tools,
                &choice,
                parallel,
                &ConstraintOptions::default(),
            )
            .unwrap_or_else(|e| panic!("{format:?}: {e}"));
            let Some(text) = generate(&mut constraint, tokenizer, &mut numbers, 400) else { continue };
            finished += 1;
            let mut parser = ToolParser::new(format, &tools);
            let mut events = parser.push(&text);
            events.extend(parser.finish());
            let mut calls: Vec<(String, String)> = Vec::new();
            for event in events {
                match event {
                    ToolEvent::CallStart { name, .. } => calls.push((name, String::new())),
                    ToolEvent::Arguments { delta, .. } => calls.last_mut().unwrap().1 += &delta,
                    ToolEvent::CallEnd { .. } => {}
                    ToolEvent::Text(text) => panic!("{format:?}: text {text:?}"),
                }
            }
            assert!(!calls.is_empty() && (parallel || calls.len() == 1), "{format:?} {text:?}");
            for (name, arguments) in calls {
                let value: Value = serde_json::from_str(&arguments)
                    .unwrap_or_else(|e| panic!("{format:?} {text:?} {arguments}: {e}"));
                match &*name {
                    "get_weather" => assert!(is_weather(&value), "{format:?} {text:?} {value}"),
                    "now" => assert!(value.is_object() && seed % 3 != 0, "{text:?}"),
                    other => panic!("{other}"),
                }
            }
        }
    }
    assert!(finished > FORMATS.len() * 6, "{finished}");
}

#[test]
fn automatic_choice_holds_only_strict_tools() {
    let auto = |format, text: &str, strict| {
        let mut constraint = Constraint::tool_calls(
            &VOCABULARY,
            format,
            &tools(strict),
            &ToolChoice::Auto,
            true,
            &ConstraintOptions::default(),
        )
        .unwrap();
        follow(&mut constraint, &TOKENIZER, text)
    };
    let call = |arguments: &str| {
        format!(
            "Let me see.\n<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {arguments}}}\n</tool_call>"
        )
    };
    assert_eq!(auto(ToolFormat::HermesJson, "Hello there {\"a\"", true), Ok(true));
    assert_eq!(auto(ToolFormat::HermesJson, "", true), Ok(true));
    assert_eq!(auto(ToolFormat::HermesJson, &call("{\"city\": \"a\", \"days\": 2}"), true), Ok(true));
    assert!(auto(ToolFormat::HermesJson, &call("{\"town\": \"a\"}"), true).is_err());
    assert_eq!(auto(ToolFormat::HermesJson, &call("{\"town\": \"a\"}"), false), Ok(true));
    assert!(auto(ToolFormat::HermesJson, "<tool_call>\n{\"name\": \"other\"", false).is_err());
    let xml = "Now.\n<tool_call>\n<function=get_weather>\n<parameter=city>\na\nb\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(auto(ToolFormat::QwenXml, xml, true), Ok(true));
    assert!(auto(ToolFormat::QwenXml, &xml.replace("\n2\n", "\ntwo\n"), true).is_err());
    assert_eq!(auto(ToolFormat::QwenXml, &xml.replace("\n2\n", "\ntwo\n"), false), Ok(true));
    assert_eq!(auto(ToolFormat::LlamaJson, "No { here", true), Ok(true));
    assert!(auto(ToolFormat::LlamaJson, "{\"a\"", true).is_err());
}

#[test]
fn calls_or_an_answer_in_a_form() {
    let answer = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"], "additionalProperties": false });
    let make = |format| {
        Constraint::tool_calls_or_json(
            &VOCABULARY,
            format,
            &tools(true),
            &answer,
            true,
            &ConstraintOptions::default(),
        )
        .unwrap()
    };
    let mut numbers = Numbers(3);
    for &format in FORMATS {
        assert_eq!(follow(&mut make(format), &TOKENIZER, "{\"ok\": true}"), Ok(true), "{format:?}");
        assert!(follow(&mut make(format), &TOKENIZER, "{\"no\": true}").is_err(), "{format:?}");
        assert_eq!(follow(&mut make(format), &TOKENIZER, "Hello"), Err(String::new()), "{format:?}");
        for _ in 0..6 {
            let Some(text) = generate(&mut make(format), &TOKENIZER, &mut numbers, 400) else { continue };
            let mut parser = ToolParser::new(format, &tools(true));
            let mut events = parser.push(&text);
            events.extend(parser.finish());
            match &events[..] {
                [ToolEvent::Text(text)] => {
                    assert!(
                        serde_json::from_str::<Value>(text).unwrap()["ok"].is_boolean(),
                        "{format:?} {text}"
                    );
                }
                [ToolEvent::CallStart { .. }, ..] => {}
                other => panic!("{format:?} {text:?} {other:?}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_held_is_refused_by_name() {
    let refused = |value: Value| {
        Constraint::json_schema(&VOCABULARY, &value, &ConstraintOptions::default())
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    assert!(refused(json!({ "type": "array", "uniqueItems": true })).contains("uniqueItems"));
    assert!(refused(json!({ "if": {}, "then": {} })).contains("if"));
    assert!(refused(json!({ "type": "string", "format": "colour" })).contains("colour"));
    assert!(refused(json!({ "$ref": "http://example.com/x" })).contains("example.com"));
    assert!(refused(json!({ "type": "strange" })).contains("strange"));
    assert!(refused(json!(12)).contains("12"));
    assert!(refused(json!({ "maxItems": 1e9 })).contains("maxItems"));
    // A sentence of the engine that is cut in the middle of a character is an error, not a panic.
    refused(json!({ "type": "x".repeat(95) + "éééééé" }));
    let regex = Constraint::regex(&VOCABULARY, "(a", &ConstraintOptions::default());
    assert!(matches!(regex, Err(GrammarError::Unsupported { what: "regular expression", .. })));
    let tool = |choice, tools: &[ToolSpec]| {
        Constraint::tool_calls(
            &VOCABULARY,
            ToolFormat::QwenXml,
            tools,
            &choice,
            true,
            &ConstraintOptions::default(),
        )
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default()
    };
    assert!(
        tool(ToolChoice::Named("other".to_owned()), &tools(true))
            .contains("`other`, expected one of [get_weather, now]")
    );
    assert!(tool(ToolChoice::Required, &[]).contains("no tools"));
    let pattern = ToolSpec {
        name: "f".to_owned(),
        parameters: json!({ "properties": { "a": { "type": "string", "pattern": "x" } } }),
        strict: true,
    };
    assert!(tool(ToolChoice::Required, std::slice::from_ref(&pattern)).contains("`pattern` of `a`"));
    // Without the promise it is a call with any arguments, or text for that one.
    assert_eq!(tool(ToolChoice::Required, &[ToolSpec { strict: false, ..pattern }]), "");
}

#[test]
fn hostile_grammars_are_bounded() {
    let options = ConstraintOptions::default();
    let mut nested = json!({ "type": "string" });
    for _ in 0..1_000 {
        nested = json!({ "items": nested });
    }
    let big = json!({ "enum": (0..60_000).map(|i| format!("value {i}")).collect::<Vec<_>>() });
    let any_of = |n: usize, key: &str| json!({ "anyOf": (0..n).map(|i| json!({ "properties": { (format!("{key}{i}")): { "type": "string" } } })).collect::<Vec<_>>() });
    let product = json!({ "allOf": (0..12).map(|i| any_of(10, &format!("k{i}"))).collect::<Vec<_>>() });
    let mut doubling = json!({ "$defs": { "a0": { "type": "string" } }, "$ref": "#/$defs/a40" });
    for i in 1..=40 {
        doubling["$defs"][format!("a{i}")] = json!({ "type": "array", "prefixItems": [{ "$ref": format!("#/$defs/a{}", i - 1) }, { "$ref": format!("#/$defs/a{}", i - 1) }] });
    }
    let mut intersecting = json!({ "$defs": { "a0": { "anyOf": [{ "type": "string" }, { "type": "integer" }] } }, "$ref": "#/$defs/a30" });
    for i in 1..=30 {
        let before = json!({ "$ref": format!("#/$defs/a{}", i - 1) });
        intersecting["$defs"][format!("a{i}")] = json!({ "allOf": [before, { "anyOf": [before, before] }] });
    }
    let mut self_intersecting = json!({ "$defs": { "t": {} }, "$ref": "#/$defs/t" });
    self_intersecting["$defs"]["t"] =
        json!({ "allOf": [{ "$ref": "#/$defs/t" }, { "properties": { "x": { "$ref": "#/$defs/t" } } }] });
    let many = json!({ "type": "object", "properties": (0..4000).map(|i| (format!("p{i}"), json!({ "type": "string", "pattern": format!("^(a|b){{1,50}}{i}$") }))).collect::<serde_json::Map<_, _>>() });
    let bounds = json!({ "type": "array", "items": { "type": "array", "items": { "type": "string", "maxLength": 100_000 }, "maxItems": 100_000, "minItems": 99_999 }, "minItems": 99_999 });
    let pattern = json!({ "type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$" });
    let patterns = json!({ "type": "object", "patternProperties": (0..200).map(|i| (format!("^(a|b)*a(a|b){{{i}}}$"), json!({ "type": "string" }))).collect::<serde_json::Map<_, _>>() });
    let properties =
        json!({ "type": "object", "minProperties": 50_000, "additionalProperties": { "type": "string" } });
    let numbers = json!({ "type": "number", "minimum": -1.234_567_890_123_456_7e300, "maximum": 9.876e307, "multipleOf": 0.000_000_1 });
    let schemas = [
        ("nested", nested),
        ("big", big),
        ("product", product),
        ("doubling", doubling),
        ("intersecting", intersecting),
        ("self_intersecting", self_intersecting),
        ("many", many),
        ("bounds", bounds),
        ("pattern", pattern),
        ("patterns", patterns),
        ("properties", properties),
        ("numbers", numbers),
    ];
    let mut slow = Vec::new();
    let mut run = |name: &str, make: &mut dyn FnMut() -> Result<Constraint, GrammarError>| {
        let start = Instant::now();
        let made = make();
        let compiled = start.elapsed();
        let mut steps = Duration::ZERO;
        let mut outcome = "compiles".to_owned();
        match made {
            Err(e) => outcome = e.to_string().chars().take(110).collect(),
            Ok(mut constraint) => {
                let mut bits = Vec::new();
                let mut random = Numbers(7);
                for _ in 0..40 {
                    let start = Instant::now();
                    let step = constraint.mask(&mut bits);
                    steps = steps.max(start.elapsed());
                    if let Err(e) = step {
                        outcome = format!("then {e}").chars().take(110).collect();
                        break;
                    }
                    let allowed: Vec<u32> =
                        (0..TOKENIZER.vocab_size() as u32).filter(|&id| has(&bits, id)).collect();
                    let id = allowed[random.below(allowed.len())];
                    if TOKENIZER.is_end_of_generation(id) || constraint.accept(id).is_err() {
                        break;
                    }
                }
            }
        }
        eprintln!("{name}: {compiled:?} to compile, {steps:?} for the slowest mask: {outcome}");
        if compiled > Duration::from_secs(6) || steps > Duration::from_secs(2) {
            slow.push(name.to_owned());
        }
    };
    for (name, value) in &schemas {
        run(name, &mut || Constraint::json_schema(&VOCABULARY, value, &options));
    }
    for (name, pattern) in [
        ("deep groups", "(".repeat(20_000) + &")".repeat(20_000)),
        ("repeats", "((((a{1,99}){1,99}){1,99}){1,99}){1,99}".to_owned()),
        ("many alternatives", (0..20_000).map(|i| format!("x{i}")).collect::<Vec<_>>().join("|")),
        ("backtracking", "(a*)*(a*)*(a|aa)+b".to_owned()),
        ("subset", "(a|b)*a(a|b){200}".to_owned()),
        ("unicode", "(\\w\\W){200}[\\p{L}&&[^\\p{Lu}]]*".to_owned()),
    ] {
        run(name, &mut || Constraint::regex(&VOCABULARY, &pattern, &options));
    }
    let chain: String =
        (0..8000).map(|i| format!("A{i}: A{}\n", i + 1)).collect::<String>() + "A8000: \"x\"\n";
    let rules: String =
        (0..8000).map(|i| format!("r{i}: r{} | \"x\"\n", i + 1)).collect::<String>() + "r8000: \"x\"\n";
    for (name, grammar) in [
        ("chain of terminals", format!("start: A0\n{chain}")),
        ("chain of rules", format!("start: r0\n{rules}")),
        ("ambiguous", "start: s\ns: s s s | s s | \"a\" | \"b\" | /[a-z ]*/".to_owned()),
        ("empty loop", "start: s\ns: s s | \"\"".to_owned()),
        ("negation", "start: A\nA: ~/(a|b)*a(a|b){50}/ & ~/(?s:.*)x(?s:.*)/ & /(?s:.*)/".to_owned()),
        ("substring", format!("start: A\nA: %regex {{\"substring_chars\": \"{}\"}}", "ab".repeat(60_000))),
        ("repeated rule", "start: (((\"a\" \"b\"?){100}){100}){100}".to_owned()),
    ] {
        run(name, &mut || Constraint::lark(&VOCABULARY, &grammar, &options));
    }
    assert!(slow.is_empty(), "{slow:?}");
}

#[test]
fn a_large_vocabulary_is_fast() {
    let spec = VocabSpec {
        eos: Some(100_257),
        ..from_ranks(&read("cl100k_base.ranks.gz"), "cl100k_base", CL100K_SPECIAL)
    };
    let tokenizer = Tokenizer::new(spec).unwrap();
    let start = Instant::now();
    let vocabulary = GrammarVocabulary::new(&tokenizer).unwrap();
    let prepared = start.elapsed();
    let schema = json!({
        "type": "object",
        "properties": { "title": { "type": "string" }, "tags": { "type": "array", "items": { "type": "string" } }, "score": { "type": "number" } },
        "required": ["title", "tags", "score"],
        "additionalProperties": false,
    });
    let text = "{\"title\": \"A long enough title for a test of how fast this is\", \"tags\": [\"one\", \"two\", \"three\"], \"score\": 12.5}";
    let start = Instant::now();
    let mut constraint =
        Constraint::json_schema(&vocabulary, &schema, &ConstraintOptions::default()).unwrap();
    let compiled = start.elapsed();
    let start = Instant::now();
    assert_eq!(follow(&mut constraint, &tokenizer, text), Ok(true));
    let n = tokenizer.encode(text, EncodeOptions::default()).unwrap().len();
    eprintln!(
        "100k tokens: prepared in {prepared:?}, compiled in {compiled:?}, {:?} a token",
        start.elapsed() / n as u32
    );
    assert!(prepared < Duration::from_secs(20));
}

#[test]
fn a_vocabulary_without_end_is_refused() {
    let texts = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect();
    let spec = VocabSpec {
        model: "gpt2".to_owned(),
        tokens: texts(&["a", "b", "ab"]),
        merges: texts(&["a b"]),
        ..VocabSpec::default()
    };
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert!(matches!(GrammarVocabulary::new(&tokenizer), Err(GrammarError::NoEndOfGeneration)));
}
