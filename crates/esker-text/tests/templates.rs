//! Chat templates against Jinja2 and transformers; see golden/README.md.

mod vocabularies;

use std::time::{Duration, Instant, UNIX_EPOCH};

use esker_text::{
    ChatInput, ChatTemplate, EncodeOptions, TemplateError, TemplateWarning, Tokenizer, VocabSpec,
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use vocabularies::{json as golden, model_vocab};

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    name: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    values: Map<String, Value>,
    expected: Option<String>,
    error: Option<String>,
}

/// Splits off what has a field of its own.
fn input(mut values: Map<String, Value>) -> ChatInput {
    ChatInput {
        messages: values.remove("messages").unwrap_or_default(),
        tools: values.remove("tools").filter(|t| !t.is_null()),
        add_generation_prompt: values.remove("add_generation_prompt").is_none_or(|v| v == true),
        extra: values,
    }
}

fn check(case: &Case, source: &str, values: &Map<String, Value>, failures: &mut Vec<String>) {
    let result =
        ChatTemplate::new(source, "<s>", "</s>").and_then(|template| template.render(&input(values.clone())));
    match (&case.expected, result) {
        (Some(expected), Ok(text)) if text == *expected => {}
        (None, Err(_)) => {}
        (expected, result) => failures.push(format!(
            "{}\n  expected {:?}\n  got      {:?}",
            case.name,
            expected.as_ref().map_or_else(|| case.error.clone().unwrap_or_default(), Clone::clone),
            result.map_err(|e| e.to_string())
        )),
    }
}

#[derive(Deserialize)]
struct Family {
    name: String,
    source: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Jinja {
    values: Map<String, Value>,
    small: Vec<Case>,
    chats: Vec<Family>,
}

/// What the engine underneath does not do; the module documentation lists it.
const KNOWN_DIFFERENCES: &[&str] = &[
    "-n ~ +n ~ -f",
    // Constants are joined before it runs.
    "1.0 ~ 100000000000000000.0 ~ 1.5e300",
    "\"a b c\" | wordcount",
    "s | center(20) | length",
    "l | batch(2) | list",
    "l | slice(2) | list",
    "users | groupby(\"ok\") | list | length",
];

#[test]
fn expressions_and_statements_match_jinja2() {
    let file: Jinja = golden("jinja.json.gz");
    assert!(file.small.len() > 250);
    let mut failures = Vec::new();
    for case in &file.small {
        let mut found = Vec::new();
        check(case, &case.source, &file.values, &mut found);
        if KNOWN_DIFFERENCES.contains(&&*case.name) {
            assert_eq!(found.len(), 1, "{} agrees now: take it off the list", case.name);
        } else {
            failures.extend(found);
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn families_of_templates_match_jinja2() {
    let file: Jinja = golden("jinja.json.gz");
    let mut failures = Vec::new();
    let mut n = 0;
    for family in &file.chats {
        for (i, case) in family.cases.iter().enumerate() {
            let mut found = Vec::new();
            check(case, &family.source, &case.values, &mut found);
            failures.extend(found.into_iter().map(|f| format!("{} {i}: {f}", family.name)));
            n += 1;
        }
    }
    assert_eq!(n, 80);
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn conversations_match_transformers() {
    #[derive(Deserialize)]
    struct File {
        template: String,
        cases: Vec<Conversation>,
    }
    #[derive(Deserialize)]
    struct Conversation {
        name: String,
        messages: Value,
        tools: Option<Value>,
        add_generation_prompt: Option<bool>,
        enable_thinking: Option<bool>,
        expected: String,
        ids: Vec<u32>,
    }
    let file: File = golden("chat_template.json.gz");
    let tokenizer = Tokenizer::new(VocabSpec {
        bos: Some(8183),
        eos: Some(8185),
        chat_template: Some(file.template),
        ..model_vocab()
    })
    .unwrap();
    let (template, warning) = ChatTemplate::for_tokenizer(&tokenizer).unwrap();
    assert_eq!(warning, None);
    assert_eq!(file.cases.len(), 36);
    for case in file.cases {
        let mut extra = Map::new();
        if let Some(v) = case.enable_thinking {
            extra.insert("enable_thinking".to_owned(), v.into());
        }
        let text = template
            .render(&ChatInput {
                messages: case.messages,
                tools: case.tools,
                add_generation_prompt: case.add_generation_prompt.unwrap_or(false),
                extra,
            })
            .unwrap();
        assert_eq!(text, case.expected, "{}", case.name);
        let options = EncodeOptions { special: true, add_bos_eos: false };
        assert_eq!(tokenizer.encode(&text, options).unwrap(), case.ids, "{}", case.name);
    }
}

fn user(content: impl Into<Value>) -> ChatInput {
    ChatInput {
        messages: json!([{"role": "user", "content": content.into()}]),
        add_generation_prompt: true,
        ..ChatInput::default()
    }
}

fn render(source: &str, input: &ChatInput) -> Result<String, TemplateError> {
    ChatTemplate::new(source, "", "")?.render(input)
}

#[test]
fn chatml_is_the_default() {
    let text = ChatTemplate::default_chatml().render(&user("Hi")).unwrap();
    assert_eq!(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");

    let spec = |tokens: &[&str]| VocabSpec {
        model: "llama".into(),
        tokens: tokens.iter().map(|t| t.to_string()).collect(),
        scores: vec![0.0; tokens.len()],
        token_types: vec![3; tokens.len()],
        chat_template: Some("  ".into()),
        ..VocabSpec::default()
    };
    for (tokens, has_chatml_tokens) in
        [(&["<s>", "</s>", "<|im_start|>", "<|im_end|>"][..], true), (&["<s>", "</s>"][..], false)]
    {
        let tokenizer = Tokenizer::new(spec(tokens)).unwrap();
        let (_, warning) = ChatTemplate::for_tokenizer(&tokenizer).unwrap();
        assert_eq!(warning, Some(TemplateWarning::Missing { has_chatml_tokens }));
    }
}

#[test]
fn the_clock_is_utc_and_can_be_fixed() {
    let template = ChatTemplate::new("{{ strftime_now('%d %B %Y') }}", "", "").unwrap();
    assert!(template.render(&user("")).unwrap().contains(" 20"));
    let fixed = template.with_clock(|| UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    assert_eq!(fixed.render(&user("")).unwrap(), "14 November 2023");
}

#[test]
fn errors_name_the_line_and_the_reason() {
    let check = |source: &str, expect: &str| {
        assert_eq!(render(source, &user("x")).unwrap_err().to_string(), expect);
    };
    check("a\n{% if %}", "chat template, line 2: syntax error: unexpected end of block");
    check(
        "a\n\n{{ messages[0].content.nope() }}",
        "chat template, line 3: unknown method: string has no method named nope",
    );
    check(
        "{% for m in messages %}\n{{ raise_exception('roles must alternate') }}{% endfor %}",
        "the chat template refuses the conversation (line 2): roles must alternate",
    );
    check(
        "{% macro f() %}\n{{ raise_exception('inside') }}{% endmacro %}\n\n{{ f() }}",
        "the chat template refuses the conversation (line 2): inside",
    );
    check(
        "\n{{ 'a' + 1 }}",
        "chat template, line 2: invalid operation: unsupported operand types for +: string and number",
    );
}

/// Renders a template that must fail, within seconds and megabytes.
fn refused(source: &str) {
    let start = Instant::now();
    let result = render(source, &user("x"));
    let shown: String = source.chars().take(200).collect();
    assert!(result.is_err(), "{shown}: {} bytes", result.unwrap().len());
    assert!(start.elapsed() < Duration::from_secs(10), "{shown}: {:?}", start.elapsed());
}

#[test]
fn endless_work_is_stopped() {
    refused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
    refused("{% for i in range(100000) %}0123456789abcdef0123456789abcdef0123456789abcdef{% endfor %}");
    refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    refused(
        "{% macro f(x) %}{% for y in [x] %}{% if true %}{{ f([y]) }}{% endif %}{% endfor %}{% endmacro %}{{ f(1) }}",
    );
    refused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
    refused("{{ range(100000000) | list | length }}");
    let two = "{% set a = [[0] * 9000, 1] %}{% set b = [[0] * 9000, 2] %}{% set t = 'x' * 900000 %}";
    for work in ["a == b", "a < b", "b in [a]", "t == t ~ ''", "'y' in t"] {
        refused(&format!(
            "{two}{{% for i in range(1000) %}}{{% for j in range(1000) %}}{{% if {work} %}}{{% endif %}}\
             {{% endfor %}}{{% endfor %}}"
        ));
    }
}

#[test]
fn values_cannot_explode() {
    let grow = |step: &str| {
        format!(
            "{{% set ns = namespace(x='ab', l=[1]) %}}{{% for i in range(100) %}}{{% set {step} %}}{{% endfor %}}"
        )
    };
    refused(&grow("ns.x = ns.x ~ ns.x"));
    refused(&grow("ns.x = ns.x + ns.x"));
    refused(&grow("ns.x = ns.x * 2"));
    refused(&grow("ns.x = ns.x.replace('a', ns.x)"));
    refused(&grow("ns.x = '%s%s' % (ns.x, ns.x)"));
    refused(&grow("ns.x = '{0}{0}'.format(ns.x)"));
    refused(&grow("ns.x = [ns.x, ns.x] | join"));
    refused(&grow("ns.l = ns.l + ns.l"));
    refused(&grow("ns.l = ns.l * 2"));
    refused(&grow("ns.l = [ns.l, ns.l]"));
    refused(&grow("ns.l = (ns.l, ns.l)"));
    refused(&grow("ns.l = {'a': ns.l, 'b': ns.l}"));
    refused(&grow("ns.l = dict(a=ns.l, b=ns.l)"));
    refused(&grow("ns.l = namespace(a=ns.l, b=ns.l)"));
    refused(&grow("ns.l = {'a': ns.l, 'b': ns.l}.items()"));
    refused(&grow("ns.l = [ns.l, ns.l] | map('list')"));
    refused("{{ ('a' * 1000000000) | length }}");
    refused("{{ ([0] * 1000000000) | length }}");
    refused("{{ 'a'.center(1000000000) | length }}");
    refused("{{ 'a' | indent(1000000000) }}");
    refused("{{ ('a' * 10000).join('b' * 1000000) | length }}");
    refused("{{ '%1000000000d' % 1 }}");
    refused("{{ '{:1000000000}'.format(1) }}");
    refused("{{ ('{0}' * 100000).format('x' * 1000000) }}");
    refused("{{ ([['x' * 1000000] * 10] * 10000) | string | length }}");
}

#[test]
fn nesting_does_not_overflow_the_stack() {
    let nest = |thousands: usize, step: &str| {
        format!(
            "{{% set ns = namespace(x=[1]) %}}{{% for i in range({thousands}) %}}{{% for j in range(1000) %}}{{% set ns.x = {step} %}}\
             {{% endfor %}}{{% endfor %}}"
        )
    };
    for step in [
        "[ns.x]",
        "(ns.x,)",
        "{'a': ns.x}",
        "dict(a=ns.x)",
        "namespace(a=ns.x)",
        "{'a': ns.x}.items()",
        "{'a': ns.x} | items",
        "[ns.x] * 1",
        "[ns.x][0:]",
        "[ns.x] | reverse",
    ] {
        refused(&nest(100, step));
    }
    // These stay flat, and must not become a chain of wrappers.
    for step in ["ns.x[0:]", "ns.x[::-1]", "ns.x | reverse", "ns.x * 1", "ns.x + []"] {
        let source = nest(20, step) + "{{ ns.x | length }}";
        assert_eq!(render(&source, &user("x")).map_err(|e| e.to_string()), Ok("1".to_owned()), "{step}");
    }
    refused("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me }}");

    refused(&format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)));
    refused(&format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000)));
    refused(&format!("{{{{ {}1 }}}}", "not ".repeat(60_000)));
    refused(&format!("{{{{ {}1 }}}}", "-".repeat(200_000)));
    refused(&format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(20_000)));
    refused(&"{% if true %}".repeat(15_000));
    refused(&"{% macro m() %}{% endmacro %}".repeat(5000));
    refused(&"x".repeat(2_000_000));
    // Chains that the parser reads in a loop, and makes a tree of that is as deep.
    for chain in [
        " + 1", " * 1", " ** 1", "[0:]", "[0]", " ~ 1", " | list", ".a", " == 1", " and 1", "()", " is odd",
        " 'a'",
    ] {
        refused(&format!("{{{{ [1]{} }}}}", chain.repeat(200_000 / chain.len())));
        let _ = render(&format!("{{{{ [1]{} }}}}", chain.repeat(1990 / 4)), &user("x"));
        let _ = render(&format!("{{{{ [1]{} }}}}", chain.repeat(1990 / 2)), &user("x"));
    }
    refused(&format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(20_000)));
    refused("{% include 'chat_template' %}");
    refused("{% extends '/etc/passwd' %}");
}

#[test]
fn deep_input_is_refused_and_large_input_is_not() {
    let mut deep = json!("x");
    for _ in 0..300 {
        deep = Value::Array(vec![deep]);
    }
    let error = render("{{ messages | tojson }}", &user(deep)).unwrap_err();
    assert!(matches!(error, TemplateError::InputTooDeep { .. }), "{error}");

    // A long conversation, put together in one string: quadratic, but what templates do.
    let turn = json!({"role": "user", "content": "word ".repeat(200)});
    let input = ChatInput { messages: Value::Array(vec![turn; 400]), ..ChatInput::default() };
    let source = "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.role + m.content %}{% endfor %}{{ ns.t }}";
    assert_eq!(render(source, &input).unwrap().len(), 400 * 1004);
}

/// Pieces that random templates are made of: unbalanced, undefined, and every kind of statement.
const PIECES: &[&str] = &[
    "{% for m in messages %}",
    "{% endfor %}",
    "{% else %}",
    "{% if m.role == 'user' %}",
    "{% endif %}",
    "{% set x = [x, messages] %}",
    "{% set ns = namespace(a=1, b=x) %}",
    "{% set ns.a = ns.b %}",
    "{% set x %}",
    "{% endset %}",
    "{% macro f(a, b=2, c=x) %}",
    "{% endmacro %}",
    "{{ f(1, c=x) }}",
    "{{ f(*x, **{'b': 1}) }}",
    "{% call f(1) %}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% with y = x %}",
    "{% endwith %}",
    "{% break %}",
    "{% continue %}",
    "{% for a, (b, c) in x recursive %}",
    "{{ loop(x) }}",
    "{{ x[1:][::-1] ~ x | string + 'a' * 3 % 2 }}",
    "{{ [*x, 1] }}",
    "{{ {'a': x, **y} }}",
    "{{ x.a.b[0]('c') }}",
    "{{ x is defined and not x is none or x in messages }}",
    "{{ -x if x else (1, 2) // 0 }}",
    "{{ 'a'.split(x).join(messages) }}",
    "{{ x | map('upper') | select('odd') | sort | tojson(indent=x) }}",
    "{% do x.append(1) %}",
    "{% block b %}",
    "{% endblock %}",
    "{% raw %}",
    "{% endraw %}",
    "{# comment #}",
    "{%- generation -%}",
    "{% endgeneration %}",
    "{{",
    "%}",
    "text\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Any source ends in a prompt or an error.
    #[test]
    fn no_template_panics(pieces in prop::collection::vec(0..PIECES.len(), 0..20)) {
        let source: String = pieces.iter().map(|&i| PIECES[i]).collect();
        let _ = render(&source, &user("x"));
    }

    /// The same, with what opens also closed.
    #[test]
    fn no_well_formed_template_panics(nested in nested()) {
        let _ = render(&nested, &user("x"));
    }
}

fn nested() -> impl Strategy<Value = String> {
    let leaf = (0..PIECES.len()).prop_map(|i| {
        let piece = PIECES[i];
        if piece.starts_with("{{ ")
            || piece.contains("{% set x =")
            || piece.contains("{% set ns")
            || piece.contains("{% do")
        {
            piece.to_owned()
        } else {
            "t".to_owned()
        }
    });
    leaf.prop_recursive(5, 40, 4, |inner| {
        (0..9usize, prop::collection::vec(inner, 1..4)).prop_map(|(kind, body)| {
            let body = body.concat();
            match kind {
                0 => format!("{{% for m in messages %}}{body}{{% else %}}{body}{{% endfor %}}"),
                1 => format!("{{% for a in x recursive %}}{body}{{{{ loop(a) }}}}{{% endfor %}}"),
                2 => format!("{{% if x %}}{body}{{% elif y %}}e{{% else %}}{body}{{% endif %}}"),
                3 => format!("{{% macro f(a, b=2, c=x) %}}{body}{{% endmacro %}}{{{{ f(1) }}}}"),
                4 => format!("{{% set x %}}{body}{{% endset %}}"),
                5 => format!("{{% filter upper %}}{body}{{% endfilter %}}"),
                6 => format!("{{% with y = x %}}{body}{{% endwith %}}"),
                7 => format!("{{% set ns = namespace(a=1, b=x) %}}{body}{{% set ns.a = [ns.b, x] %}}"),
                _ => format!("{{% set x, y = messages[0].items() | first %}}{body}"),
            }
        })
    })
}
