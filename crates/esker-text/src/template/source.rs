//! Changes to a template's source before it is compiled.

use std::borrow::Cow;

/// Line ends become `\n`, as Jinja2 makes them, and `{% generation %}` tags go.
pub(super) fn prepare(source: &str) -> String {
    let source = if source.contains('\r') {
        Cow::Owned(source.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(source)
    };
    without_generation_tags(&source).into_owned()
}

/// `{% generation %}` marks the assistant's words for training and means nothing when prompting. The tag and its end
/// become an `if` that is always taken, so that lines and white space stay as they are.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        out.push_str(before);
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let inner = &tag[..end];
        let name = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let replacement = match name {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&inner.replace(name, replacement));
        rest = &tag[end..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_and_the_rest_stays() {
        let check = |source, expect| assert_eq!(without_generation_tags(source), expect);
        check("a{%- generation -%}b{% endgeneration %}c", "a{%- if true -%}b{% endif %}c");
        check("{%\n  generation\n%}", "{%\n  if true\n%}");
        check("{% if add_generation_prompt %}x{% endif %}", "{% if add_generation_prompt %}x{% endif %}");
        check("{% if a %}{% generation", "{% if a %}{% generation");
        check("generation {{ generation }}", "generation {{ generation }}");
    }

    #[test]
    fn line_ends() {
        assert_eq!(prepare("a\r\nb\rc\n{% generation %}"), "a\nb\nc\n{% if true %}");
    }
}
