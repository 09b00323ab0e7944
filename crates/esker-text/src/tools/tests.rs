//! All notations, whole and in pieces.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ALL: &[ToolFormat] = &[
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

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, parameters| ToolSpec { name: name.to_owned(), parameters, strict: false };
    let weather = json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "days": { "type": "integer" }, "units": {} },
        "required": ["city"],
    });
    vec![tool("get_weather", weather), tool("now", Value::Null)]
}

/// What a parser made of a text: neighbouring texts and deltas joined.
#[derive(Debug, Default, PartialEq)]
struct Read {
    text: String,
    /// (id, name, arguments, whether they are complete once the call has ended)
    calls: Vec<(Option<String>, String, String, Option<bool>)>,
}

fn read_pieces<'a>(format: ToolFormat, pieces: impl IntoIterator<Item = &'a str>) -> Read {
    let mut parser = ToolParser::new(format, &tools());
    let mut events: Vec<ToolEvent> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let mut read = Read::default();
    for event in events {
        let n = read.calls.len();
        match event {
            ToolEvent::Text(text) => read.text += &text,
            ToolEvent::CallStart { index, id, name } => {
                assert!(index == n && read.calls.last().is_none_or(|call| call.3.is_some()));
                read.calls.push((id, name, String::new(), None));
            }
            ToolEvent::Arguments { index, delta } => {
                assert!(index + 1 == n && read.calls[index].3.is_none() && !delta.is_empty());
                read.calls[index].2 += &delta;
            }
            ToolEvent::CallEnd { index, complete } => {
                assert!(index + 1 == n && read.calls[index].3.is_none());
                read.calls[index].3 = Some(complete);
            }
        }
    }
    assert!(read.calls.iter().all(|call| call.3.is_some()), "every call ends");
    read
}

/// Reads `text` whole and character by character, which must give the same.
fn read(format: ToolFormat, text: &str) -> Read {
    let whole = read_pieces(format, [text]);
    let chars = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(read_pieces(format, chars), whole, "{format:?} {text:?}");
    whole
}

/// Text and calls as (name, arguments).
fn check(format: ToolFormat, text: &str, expect_text: &str, calls: &[(&str, &str)]) {
    let read = read(format, text);
    let found: Vec<(&str, &str)> =
        read.calls.iter().map(|(_, name, arguments, _)| (&**name, &**arguments)).collect();
    assert_eq!((&*read.text, &*found), (expect_text, calls), "{format:?} {text:?}");
}

#[test]
fn hermes() {
    let check = |text: &str, expect: &str, calls: &[_]| check(ToolFormat::HermesJson, text, expect, calls);
    let call = r#"<tool_call>
{"name": "get_weather", "arguments": {"city": "Zürich \"x\"", "n": [1, {}]}}
</tool_call>"#;
    let args = r#"{"city": "Zürich \"x\"", "n": [1, {}]}"#;
    check(call, "", &[("get_weather", args)]);
    check(&format!("I look.\n\n{call}\n"), "I look.", &[("get_weather", args)]);
    check(&format!("{call}\n{call}Done."), "Done.", &[("get_weather", args), ("get_weather", args)]);
    check("Just text, <b>bold</b>\n", "Just text, <b>bold</b>\n", &[]);
    // Variants that models write.
    check("<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", "", &[("f", "{\"a\": 1}")]);
    check("<tool_call>{\"name\": \"f\"}</tool_call>", "", &[("f", "{}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "", &[("f", "{}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", "", &[("f", "{}")]);
    check(
        r#"<tool_call>{"name": "f", "arguments": "{\"a\": \"\\n\"}"}</tool_call>"#,
        "",
        &[("f", r#"{"a": "\n"}"#)],
    );
    check(
        r#"<tool_call>{"type": "function", "function": {"name": "f", "arguments": {}}}</tool_call>"#,
        "",
        &[("f", "{}")],
    );
    check("<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]</tool_call>", "", &[("f", "{}"), ("g", "{}")]);
    check("<tool_call>{\"name\": \"f\"}\n{\"name\": \"g\"}\n</tool_call>", "", &[("f", "{}"), ("g", "{}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}}}\n</tool_call>x", "x", &[("f", "{}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}\n</tool_call>x", "x", &[("f", "{}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}}", "", &[("f", "{}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}} and text", "and text", &[("f", "{}")]);
    check("<tool_call>\n<function=now>\n</function>\n</tool_call>", "", &[("now", "{}")]);
}

#[test]
fn what_is_no_call_is_text() {
    let same = |format, text| check(format, text, text, &[]);
    for text in [
        "<tool_call>",
        "<tool_call> ",
        "<tool_call></tool_call>",
        "<tool_call>junk</tool_call> ",
        "<tool_call>{\"name\": \"f",
        "<tool_call>{\"name\": 1}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>[]</tool_call>",
        "a <tool_call",
        "x\n",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "Write <tool_call> for a call.",
        "<tool_call>{'name': 'f'}</tool_call>",
        "<function=f",
        "<function=a b>",
        "<function=f>text",
        "   ",
    ] {
        same(ToolFormat::HermesJson, text);
        same(ToolFormat::QwenXml, text);
    }
    let long = format!("<tool_call>{{\"name\": \"{}\", \"arguments\": {{}}}}</tool_call>", "f".repeat(300));
    same(ToolFormat::HermesJson, &long);
    for text in
        ["[TOOL_CALLS]", "[TOOL_CALLS] [", "[TOOL_CALLS]some words {", "[TOOL_CALLS] []", "[TOOL_CALL"]
    {
        same(ToolFormat::MistralArray, text);
        same(ToolFormat::MistralNamed, text);
    }
    for text in [
        "{\"a\": 1}",
        "{\"name\": \"Bob\", \"age\": 3}",
        "{\"name\": \"now\"}",
        "{",
        "  {\"x",
        "<|python_tag|>print(1)",
    ] {
        same(ToolFormat::LlamaJson, text);
    }
    // A call behind something that was none.
    check(
        ToolFormat::HermesJson,
        "<tool_call>{\"name\": \"x\" <tool_call>{\"name\": \"f\"}</tool_call>",
        "<tool_call>{\"name\": \"x\" ",
        &[("f", "{}")],
    );
}

#[test]
fn broken_arguments_are_passed_on() {
    let check = |text: &str, expect: &str, calls: &[_]| check(ToolFormat::HermesJson, text, expect, calls);
    check("<tool_call>{\"name\": \"f\", \"arguments\": {'a': 1}}</tool_call>x", "x", &[("f", "{'a': 1}}")]);
    check("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "", &[("f", "{\"a\": ")]);
    check(
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>",
        "",
        &[("f", "{\"a\": \"x\\ny\"}")],
    );
    let deep = "[".repeat(200);
    check(&format!("<tool_call>{{\"name\": \"f\", \"arguments\": {deep}</tool_call>"), "", &[("f", &deep)]);
}

#[test]
fn calls_that_were_cut_off_say_so() {
    let complete =
        |format, text: &str| read(format, text).calls.iter().map(|call| call.3.unwrap()).collect::<Vec<_>>();
    let hermes = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    let whole = hermes.find("}").unwrap() + 1;
    for end in hermes.find("{\"a").unwrap() + 1..=hermes.len() {
        assert_eq!(complete(ToolFormat::HermesJson, &hermes[..end]), [end >= whole], "{end}");
    }
    assert_eq!(complete(ToolFormat::HermesJson, &hermes.replace('1', "'x'")), [false]);
    let named = "[TOOL_CALLS]f[ARGS]{\"a\": 1}";
    assert_eq!(complete(ToolFormat::MistralNamed, named), [true]);
    assert_eq!(complete(ToolFormat::MistralNamed, &named[..named.len() - 1]), [false]);
    let xml = "<function=f><parameter=a>1</parameter></function>";
    assert_eq!(complete(ToolFormat::QwenXml, xml), [true]);
    assert_eq!(complete(ToolFormat::QwenXml, &xml[..xml.len() - 1]), [false]);
}

#[test]
fn qwen_xml() {
    let check = |text: &str, expect: &str, calls: &[_]| check(ToolFormat::QwenXml, text, expect, calls);
    let call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\n\"York\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=units>\n{\"a\": [1]}\n</parameter>\n</function>\n</tool_call>";
    let args = r#"{"city": "New\n\"York\"", "days": 3, "units": {"a": [1]}}"#;
    check(call, "", &[("get_weather", args)]);
    check(&format!("Text.\n{call}\n{call}\n"), "Text.", &[("get_weather", args), ("get_weather", args)]);
    // The outer tag, the closing tags and the line ends are often left out.
    check(
        "<function=get_weather><parameter=city>a</parameter></function>",
        "",
        &[("get_weather", "{\"city\": \"a\"}")],
    );
    check(
        "<function=get_weather><parameter=city>a<parameter=days>4</function>!",
        "!",
        &[("get_weather", "{\"city\": \"a\", \"days\": 4}")],
    );
    check("<tool_call><function=now></tool_call>", "", &[("now", "{}")]);
    check(
        "<tool_call><function=f><parameter=x>\n\n a\r\n\n</parameter></function></tool_call>",
        "",
        &[("f", "{\"x\": \"\\n a\\r\\n\"}")],
    );
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "", &[("f", "{}")]);
    // Cut off: the arguments stay unfinished.
    check("<function=get_weather><parameter=city>\nNew", "", &[("get_weather", "{\"city\": \"New")]);
    check("<function=get_weather><parameter=days>\n1", "", &[("get_weather", "{")]);
    check("<function=get_weather><parameter=city>\nab</par", "", &[("get_weather", "{\"city\": \"ab</par")]);
}

#[test]
fn other_notations() {
    check(
        ToolFormat::GlmXml,
        "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call><tool_call>now</tool_call>",
        "",
        &[("get_weather", "{\"city\": \"Bern\", \"days\": 2}"), ("now", "{}")],
    );
    check(
        ToolFormat::MiniMaxXml,
        "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
        "",
        &[("get_weather", "{\"city\": \"Bern\"}"), ("now", "{}")],
    );
    check(
        ToolFormat::MistralArray,
        "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
        "",
        &[("f", "{\"a\": 1}"), ("g", "{}")],
    );
    check(
        ToolFormat::MistralNamed,
        "Text[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{}",
        "Text",
        &[("f", "{\"a\": 1}"), ("g", "{}")],
    );
    check(
        ToolFormat::LlamaJson,
        "{\"name\": \"now\", \"parameters\": {}}; {\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"x\"}}",
        "",
        &[("now", "{}"), ("get_weather", "{\"city\": \"x\"}")],
    );
    check(ToolFormat::LlamaJson, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "", &[("f", "{}")]);
    check(
        ToolFormat::DeepSeekV3,
        "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Hm.",
        &[("f", "{\"a\": 1}"), ("g", "{}")],
    );
    check(
        ToolFormat::DeepSeekV3,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        &[("f", "{\"a\": 1}")],
    );
    check(
        ToolFormat::PhiJson,
        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
        "",
        &[("f", "{\"a\": 1}")],
    );
    check(ToolFormat::PhiJson, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "", &[("f", "{}")]);
    check(
        ToolFormat::CommandJson,
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
        "",
        &[("f", "{\"a\": 1}")],
    );
}

#[test]
fn ids_of_the_model() {
    let ids = |format, text| {
        read(format, text).calls.into_iter().map(|(id, name, ..)| (id, name)).collect::<Vec<_>>()
    };
    let some = |id: &str, name: &str| (Some(id.to_owned()), name.to_owned());
    let kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    assert_eq!(ids(ToolFormat::KimiK2, kimi), [some("functions.f:0", "f"), some("functions.g:1", "g")]);
    assert_eq!(ids(ToolFormat::MistralNamed, "[TOOL_CALLS]f[CALL_ID]a1b2[ARGS]{}"), [some("a1b2", "f")]);
    assert_eq!(
        ids(ToolFormat::MistralArray, "[TOOL_CALLS][{\"id\": \"x\", \"name\": \"f\", \"arguments\": {}}]"),
        [some("x", "f")]
    );
}

#[test]
fn arguments_come_as_they_are_written() {
    let mut parser = ToolParser::new(ToolFormat::HermesJson, &tools());
    assert_eq!(parser.push("Hello <tool"), [ToolEvent::Text("Hello".to_owned())]);
    assert_eq!(parser.push("_call>{\"name\": \"f\""), []);
    let start = ToolEvent::CallStart { index: 0, id: None, name: "f".to_owned() };
    let delta = |delta: &str| ToolEvent::Arguments { index: 0, delta: delta.to_owned() };
    assert_eq!(parser.push(", \"arguments\": {\"a\": \"b"), [start, delta("{\"a\": \"b")]);
    assert_eq!(parser.push("c"), [delta("c")]);
    assert_eq!(parser.push("\"}"), [delta("\"}")]);
    assert_eq!(parser.push("}</tool_"), [ToolEvent::CallEnd { index: 0, complete: true }]);
    assert_eq!(parser.push("call> x"), [ToolEvent::Text("x".to_owned())]);
    assert_eq!(parser.finish(), []);
}

/// A call as the family writes it.
fn write(format: ToolFormat, name: &str, arguments: &Value) -> String {
    let fields = || arguments.as_object().unwrap().iter();
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let object = |name_key, key| format!("{{\"{name_key}\": \"{name}\", \"{key}\": {arguments}}}");
    match format {
        ToolFormat::HermesJson => format!("<tool_call>\n{}\n</tool_call>", object("name", "arguments")),
        ToolFormat::MistralArray => format!("[TOOL_CALLS] [{}]", object("name", "arguments")),
        ToolFormat::PhiJson => format!("<|tool_call|>[{}]<|/tool_call|>", object("name", "arguments")),
        ToolFormat::LlamaJson => object("name", "parameters"),
        ToolFormat::CommandJson => {
            format!("<|START_ACTION|>[{}]<|END_ACTION|>", object("tool_name", "parameters"))
        }
        ToolFormat::MistralNamed => format!("[TOOL_CALLS]{name}[ARGS]{arguments}"),
        ToolFormat::DeepSeekV3 => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        ToolFormat::DeepSeekV31 => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        ToolFormat::KimiK2 => format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        ToolFormat::QwenXml => {
            let body: String =
                fields().map(|(k, v)| format!("<parameter={k}>\n{}\n</parameter>\n", plain(v))).collect();
            format!("<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>")
        }
        ToolFormat::GlmXml => {
            let body: String = fields()
                .map(|(k, v)| format!("<arg_key>{k}</arg_key>\n<arg_value>{}</arg_value>\n", plain(v)))
                .collect();
            format!("<tool_call>{name}\n{body}</tool_call>")
        }
        ToolFormat::MiniMaxXml => {
            let body: String = fields()
                .map(|(k, v)| format!("<parameter name=\"{k}\">{}</parameter>\n", plain(v)))
                .collect();
            format!("<minimax:tool_call>\n<invoke name=\"{name}\">\n{body}</invoke>\n</minimax:tool_call>")
        }
    }
}

/// Pieces of calls, right and wrong.
fn fragment() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "<function=now>",
        "</function>",
        "<parameter=",
        "<parameter=city>",
        "</parameter>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "get_weather",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "<|python_tag|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "```json",
        "```",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "functions.f:0",
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "<invoke name=\"f\">",
        "</invoke>",
        "<parameter name=\"city\">",
        "<|tool_call|>",
        "<|/tool_call|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\"name\": \"f\"",
        "\"name\": \"now\"",
        "\"arguments\": ",
        "\"parameters\": ",
        "{\"a\": 1}",
        "{}",
        "null",
        "\n",
        " ",
        "12",
        "x",
        "é🙂",
        "<",
        ">",
        "{\"name\": \"now\", \"arguments\": {\"city\": \"a",
    ];
    prop_oneof![4 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => "\\PC{0,3}"]
}

/// Any cut of a text into pieces.
fn pieces<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    at.retain(|&at| text.is_char_boundary(at));
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Nothing panics, every call ends, and the pieces do not matter.
    #[test]
    fn any_text_in_any_pieces(
        parts in prop::collection::vec(fragment(), 0..14),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = parts.concat();
        for &format in ALL {
            let whole = read_pieces(format, [&*text]);
            prop_assert_eq!(read_pieces(format, pieces(&text, &cuts)), whole, "{:?} {:?}", format, text);
        }
    }

    #[test]
    fn what_is_written_is_read(
        city in "\\PC{0,8}|[\\n\"\\\\a]{0,5}",
        days in any::<i32>(),
        units in prop_oneof![Just(json!(null)), Just(json!({ "a": [1, "x", { "b": null }] })), Just(json!(true))],
        before in "[a-z ,.]{0,8}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let arguments = json!({ "city": city, "days": days, "units": units });
        for &format in ALL {
            let xml = matches!(format, ToolFormat::QwenXml | ToolFormat::GlmXml | ToolFormat::MiniMaxXml);
            // These cannot write a tag, and Qwen's drops line ends at the edges.
            if xml && (city.contains('<') || city.starts_with(['\n', '\r']) || city.ends_with(['\n', '\r'])) {
                continue;
            }
            let before = if format == ToolFormat::LlamaJson { "" } else { before.trim() };
            let text = format!("{before}{}", write(format, "get_weather", &arguments));
            let read = read_pieces(format, pieces(&text, &cuts));
            prop_assert_eq!(&read.text, before);
            prop_assert_eq!(read.calls.len(), 1);
            prop_assert_eq!(&read.calls[0].1, "get_weather");
            prop_assert_eq!(read.calls[0].3, Some(true));
            let found: Value = serde_json::from_str(&read.calls[0].2).unwrap();
            prop_assert_eq!(&found, &arguments);
        }
    }
}
