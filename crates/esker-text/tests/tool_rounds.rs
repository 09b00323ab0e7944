//! Conversations with two rounds of tool calls, through the golden chat templates: rendered, and read back by the
//! parser of the notation that the template shows.

mod vocabularies;

use esker_text::reasoning::{Piece, ReasoningFormat, ReasoningSplitter};
use esker_text::tools::{ToolEvent, ToolFormat, ToolParser, ToolSpec};
use esker_text::{ChatInput, ChatTemplate, TemplateTraits};
use serde_json::{Map, Value, json};

use vocabularies::json as golden;

/// Further notations: (name, one call, between calls, around the calls of a message).
const NOTATIONS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "code blocks",
        "<｜tool▁call▁begin｜>{{ c.type + '<｜tool▁sep｜>' + c.function.name + '\n```json\n' + c.function.arguments + '\n```' }}<｜tool▁call▁end｜>",
        "{{ '\n' }}",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
    ),
    (
        "separators",
        "<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments | tojson }}<｜tool▁call▁end｜>",
        "",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
    ),
    (
        "names and arguments",
        "{% if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}",
        "",
        "",
        "",
    ),
    (
        "invocations",
        "<invoke name=\"{{ c.function.name }}\">{{ '\n' }}{% for k, v in c.function.arguments.items() %}<parameter name=\"{{ k }}\">{{ v if v is string else v | tojson }}</parameter>{{ '\n' }}{% endfor %}</invoke>",
        "{{ '\n' }}",
        "<minimax:tool_call>{{ '\n' }}",
        "{{ '\n' }}</minimax:tool_call>",
    ),
    (
        "array",
        "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}",
        ", ",
        "<|tool_call|>[",
        "]<|/tool_call|>",
    ),
    (
        "actions",
        "{\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"{{ c.function.name }}\", \"parameters\": {{ c.function.arguments | tojson }}}",
        ",{{ '\n    ' }}",
        "<|START_ACTION|>[{{ '\n    ' }}",
        "{{ '\n' }}]<|END_ACTION|>",
    ),
];

/// (name, source) of the shipped model's template, of those in the manner of known families, and of further notations.
fn templates() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut out =
        vec![("shipped model".to_owned(), text(&golden::<Value>("chat_template.json.gz")["template"]))];
    for family in golden::<Value>("jinja.json.gz")["chats"].as_array().unwrap() {
        out.push((text(&family["name"]), text(&family["source"])));
    }
    for (name, call, between, open, close) in NOTATIONS {
        let source = format!(
            "{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content }}}}\
             {{% if m.tool_calls %}}{open}{{% for c in m.tool_calls %}}{call}{{% if not loop.last %}}{between}{{% endif %}}{{% endfor %}}{close}{{% endif %}}\
             {{{{ eos_token }}}}{{% endfor %}}{{% if add_generation_prompt %}}<|assistant|>{{% endif %}}"
        );
        out.push(((*name).to_owned(), source));
    }
    out
}

fn tools() -> Value {
    json!([
        { "type": "function", "function": { "name": "get_weather", "description": "Weather of a city", "parameters": {
            "type": "object",
            "properties": { "city": { "type": "string", "description": "where" }, "days": { "type": "integer" } },
            "required": ["city"],
        } } },
        { "type": "function", "function": { "name": "convert", "description": "Convert", "parameters": {
            "type": "object", "properties": { "value": { "type": "number" }, "to": { "type": "string" } }, "required": ["value", "to"],
        } } },
    ])
}

/// As a client of the OpenAI API sends it; the second round has two calls.
fn conversation() -> Vec<Value> {
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    vec![
        json!({ "role": "user", "content": "How warm is it in Zürich, in Fahrenheit?" }),
        json!({ "role": "assistant", "content": "", "tool_calls": [
            call("call_aaaaaaaaaaaaaaaaaaaaaaaa", "get_weather", "{\"city\": \"Zürich\", \"days\": 1}"),
        ] }),
        json!({ "role": "tool", "tool_call_id": "call_aaaaaaaaaaaaaaaaaaaaaaaa", "name": "get_weather", "content": "{\"celsius\": 21.5}" }),
        json!({ "role": "assistant", "content": "", "tool_calls": [
            call("call_bbbbbbbbbbbbbbbbbbbbbbbb", "convert", "{\"value\": 21.5, \"to\": \"F\"}"),
            call("call_cccccccccccccccccccccccc", "get_weather", "{\"city\": \"Bern \\\"x\\\"\"}"),
        ] }),
        json!({ "role": "tool", "tool_call_id": "call_bbbbbbbbbbbbbbbbbbbbbbbb", "name": "convert", "content": "70.7" }),
        json!({ "role": "tool", "tool_call_id": "call_cccccccccccccccccccccccc", "name": "get_weather", "content": "rain" }),
        json!({ "role": "assistant", "content": "70.7 °F." }),
        json!({ "role": "user", "content": "Thanks." }),
    ]
}

fn render(
    template: &ChatTemplate,
    traits: &TemplateTraits,
    messages: &[Value],
    prompt: bool,
) -> Result<String, String> {
    let mut messages = Value::from(messages.to_vec());
    traits.adapt(&mut messages);
    let input =
        ChatInput { messages, tools: Some(tools()), add_generation_prompt: prompt, extra: Map::new() };
    template.render(&input).map_err(|e| e.to_string())
}

/// System, tools, calls, parallel calls, arguments as text, length of ids.
type Traits = (bool, bool, bool, bool, bool, Option<usize>);

fn expected(name: &str) -> (Traits, Option<ToolFormat>) {
    match name {
        "shipped model" => ((true, true, true, true, false, None), Some(ToolFormat::HermesJson)),
        "header style" => ((true, true, true, false, false, None), Some(ToolFormat::LlamaJson)),
        "reasoning chatml" => ((true, true, true, true, false, None), Some(ToolFormat::QwenXml)),
        // Its golden source leaves out arguments of further calls.
        "fullwidth bars" => ((true, false, true, false, false, None), Some(ToolFormat::DeepSeekV3)),
        "turn style" => ((true, false, false, false, false, None), None),
        "instruction brackets" => ((true, true, true, true, false, Some(2)), Some(ToolFormat::MistralArray)),
        // It shows only the first call of a message, and has a system message of its own.
        "channel style" => ((false, true, true, false, false, None), None),
        "observation style" => ((true, true, true, true, false, None), Some(ToolFormat::GlmXml)),
        "plain with generation tags" => ((true, false, false, false, false, None), None),
        "code blocks" => ((true, true, true, true, true, None), Some(ToolFormat::DeepSeekV3)),
        "separators" => ((true, true, true, true, false, None), Some(ToolFormat::DeepSeekV31)),
        "names and arguments" => ((true, true, true, true, false, Some(9)), Some(ToolFormat::MistralNamed)),
        "invocations" => ((true, true, true, true, false, None), Some(ToolFormat::MiniMaxXml)),
        "array" => ((true, true, true, true, false, None), Some(ToolFormat::PhiJson)),
        "actions" => ((true, true, true, true, false, None), Some(ToolFormat::CommandJson)),
        other => panic!("{other}"),
    }
}

/// It leaves out the arguments of every call but the first, and tags around that.
const INCOMPLETE: &str = "fullwidth bars";

#[test]
fn traits_and_notations_are_found() {
    for (name, source) in templates() {
        let t = ChatTemplate::new(&source, "<s>", "</s>").unwrap().traits();
        let found = (t.system, t.tools, t.tool_calls, t.parallel_calls, t.arguments_as_text, t.call_id_len);
        assert_eq!((found, ToolFormat::detect(&source)), expected(&name), "{name}");
    }
}

#[test]
fn two_rounds_render() {
    for (name, source) in templates() {
        let template = ChatTemplate::new(&source, "<s>", "</s>").unwrap();
        let traits = template.traits();
        if !traits.tool_calls || name == INCOMPLETE {
            continue;
        }
        let messages = conversation();
        let prompt = render(&template, &traits, &messages, true).unwrap_or_else(|e| panic!("{name}: {e}"));
        // Everything is there, in order.
        let mut at = 0;
        for text in [
            "How warm",
            "get_weather",
            "Zürich",
            "celsius",
            "convert",
            "21.5",
            "70.7",
            "Bern",
            "rain",
            "70.7 °F.",
            "Thanks.",
        ] {
            // Where calls cannot stand together, the first result comes before the second call.
            if traits.parallel_calls && text == "70.7" || text == "Bern" {
                continue;
            }
            let found = prompt[at..]
                .find(text)
                .unwrap_or_else(|| panic!("{name}: no {text} behind {:?} in {prompt}", &prompt[..at]));
            at += found + text.len();
        }
        // As every turn is begun, the prompt so far stays a prefix or is at least accepted.
        for n in 1..=messages.len() {
            if messages[n - 1]["role"] != "assistant" && messages.get(n).is_none_or(|m| m["role"] != "tool") {
                render(&template, &traits, &messages[..n], true)
                    .unwrap_or_else(|e| panic!("{name} {n}: {e}"));
            }
        }
    }
}

/// What the model would have written for an assistant's message: what the template adds for it.
fn turn(template: &ChatTemplate, traits: &TemplateTraits, messages: &[Value]) -> Option<(String, String)> {
    let before = render(template, traits, &messages[..messages.len() - 1], true).ok()?;
    let with = render(template, traits, messages, false).ok()?;
    let text = with.strip_prefix(&before)?;
    let mut text = text.trim_end().to_owned();
    for end in ["<|im_end|>", "<|eot_id|>", "</s>", "<｜end▁of▁sentence｜>"] {
        text = text.strip_suffix(end).unwrap_or(&text).to_owned();
    }
    Some((before, text))
}

#[test]
fn calls_as_templates_write_them_are_read() {
    let mut read_back = Vec::new();
    for (name, source) in templates() {
        let Some(format) = ToolFormat::detect(&source).filter(|_| name != INCOMPLETE) else { continue };
        let template = ChatTemplate::new(&source, "<s>", "</s>").unwrap();
        let traits = template.traits();
        let specs: Vec<ToolSpec> = tools()
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| ToolSpec {
                name: tool["function"]["name"].as_str().unwrap().to_owned(),
                parameters: tool["function"]["parameters"].clone(),
                strict: false,
            })
            .collect();
        for n in [2, 4] {
            let messages = &conversation()[..n];
            let calls = messages[n - 1]["tool_calls"].as_array().unwrap();
            if calls.len() > 1 && !traits.parallel_calls {
                continue;
            }
            let Some((prompt, text)) = turn(&template, &traits, messages) else { continue };
            let reasoning =
                source.contains("</think>").then(|| ReasoningFormat::new("<think>", "</think>").unwrap());
            let inside = reasoning.as_ref().is_some_and(|format| format.starts_inside(&prompt));
            let mut splitter = ReasoningSplitter::new(reasoning, inside);
            let mut pieces = splitter.push(&text);
            pieces.extend(splitter.finish());
            let mut parser = ToolParser::new(format, &specs);
            let mut found: Vec<(String, String)> = Vec::new();
            let mut events = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Answer(text) => events.extend(parser.push(&text)),
                    Piece::Reasoning(text) => panic!("{name}: reasoning {text:?}"),
                }
            }
            events.extend(parser.finish());
            for event in events {
                match event {
                    ToolEvent::CallStart { name, .. } => found.push((name, String::new())),
                    ToolEvent::Arguments { delta, .. } => found.last_mut().unwrap().1 += &delta,
                    ToolEvent::CallEnd { .. } => {}
                    ToolEvent::Text(extra) => panic!("{name}: {extra:?} is no call, in {text:?}"),
                }
            }
            let found: Vec<(String, Value)> = found
                .into_iter()
                .map(|(name, arguments)| (name, serde_json::from_str(&arguments).unwrap()))
                .collect();
            let sent: Vec<(String, Value)> = calls
                .iter()
                .map(|call| {
                    let arguments = call["function"]["arguments"].as_str().unwrap();
                    (
                        call["function"]["name"].as_str().unwrap().to_owned(),
                        serde_json::from_str(arguments).unwrap(),
                    )
                })
                .collect();
            assert_eq!(found, sent, "{name}: {text:?}");
            read_back.push(format!("{name} {n}"));
        }
    }
    assert_eq!(
        read_back,
        [
            "shipped model 2",
            "shipped model 4",
            "header style 2",
            "reasoning chatml 2",
            "reasoning chatml 4",
            "instruction brackets 2",
            "instruction brackets 4",
            "observation style 2",
            "observation style 4",
            "code blocks 2",
            "code blocks 4",
            "separators 2",
            "separators 4",
            "names and arguments 2",
            "names and arguments 4",
            "invocations 2",
            "invocations 4",
            "array 2",
            "array 4",
            "actions 2",
            "actions 4",
        ]
    );
}
