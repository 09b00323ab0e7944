//! One constrained text.

use std::fmt;

use llguidance::Matcher;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

use super::compile::compile;
use super::limits::{MAX_GRAMMAR_BYTES, MAX_GRAMMAR_DEPTH};
use super::tool_calls::Calls;
use super::vocabulary::brief;
use super::{GrammarError, GrammarVocabulary, lark, schema};
use crate::reasoning::ReasoningFormat;
use crate::tools::{ToolChoice, ToolFormat, ToolSpec};

/// What stands around the constrained text.
#[derive(Clone, Debug, Default)]
pub struct ConstraintOptions {
    /// The model may reason before the constrained text. Without it, the text begins at once.
    pub reasoning: Option<ReasoningFormat>,
    /// The prompt ends inside the reasoning already ([`ReasoningFormat::starts_inside`]).
    pub starts_inside: bool,
}

/// Which tokens may come next, for one text that is being generated.
///
/// For every token: [`mask`](Self::mask), draw one of the tokens in it, [`accept`](Self::accept) it. The mask contains
/// the tokens that end generation where the text may end.
pub struct Constraint {
    matcher: Matcher,
    vocabulary: GrammarVocabulary,
}

impl Constraint {
    /// JSON that follows `schema`.
    /// # Errors
    /// If the schema is wrong, uses a keyword that cannot be enforced, or exceeds a limit.
    pub fn json_schema(
        vocabulary: &GrammarVocabulary,
        schema: &Value,
        options: &ConstraintOptions,
    ) -> Result<Constraint, GrammarError> {
        let answer = GrammarWithLexer::from_json_schema(schema::prepare(schema)?);
        Constraint::new(vocabulary, answer, options, "JSON schema")
    }

    /// A JSON object.
    /// # Errors
    /// If the vocabulary cannot be constrained.
    pub fn json_object(
        vocabulary: &GrammarVocabulary,
        options: &ConstraintOptions,
    ) -> Result<Constraint, GrammarError> {
        Constraint::json_schema(vocabulary, &json!({ "type": "object" }), options)
    }

    /// Text that matches a regular expression as a whole, in the syntax of the `regex` crate.
    /// # Errors
    /// If the expression is wrong or exceeds a limit.
    pub fn regex(
        vocabulary: &GrammarVocabulary,
        pattern: &str,
        options: &ConstraintOptions,
    ) -> Result<Constraint, GrammarError> {
        check_text(pattern, "regular expression")?;
        Constraint::new(vocabulary, GrammarWithLexer::from_regex(pattern), options, "regular expression")
    }

    /// Text of a grammar in the syntax of Lark, as `llguidance` documents it; it starts at the rule `start`.
    /// # Errors
    /// If the grammar is wrong or exceeds a limit.
    pub fn lark(
        vocabulary: &GrammarVocabulary,
        grammar: &str,
        options: &ConstraintOptions,
    ) -> Result<Constraint, GrammarError> {
        check_text(grammar, "grammar")?;
        Constraint::new(vocabulary, GrammarWithLexer::from_lark(grammar.to_owned()), options, "grammar")
    }

    /// Calls of `tools` in the model's own notation. `parallel` allows several calls in one answer. With
    /// [`ToolChoice::Auto`], text is free and only calls of strict tools are constrained: pointless without one.
    /// # Errors
    /// If the named tool does not exist, a schema cannot be enforced, or a limit is exceeded.
    pub fn tool_calls(
        vocabulary: &GrammarVocabulary,
        format: ToolFormat,
        tools: &[ToolSpec],
        choice: &ToolChoice,
        parallel: bool,
        options: &ConstraintOptions,
    ) -> Result<Constraint, GrammarError> {
        let all_schemas = *choice != ToolChoice::Auto;
        let calls = Calls { vocabulary, format, tools, choice, parallel, all_schemas, answer: None };
        Constraint::calls(calls, options)
    }

    /// Calls of `tools`, or JSON that follows `schema`: for requests that offer tools and want answers in a form. Tools
    /// that are not strict take any object.
    /// # Errors
    /// As [`tool_calls`](Self::tool_calls) and [`json_schema`](Self::json_schema).
    pub fn tool_calls_or_json(
        vocabulary: &GrammarVocabulary,
        format: ToolFormat,
        tools: &[ToolSpec],
        schema: &Value,
        parallel: bool,
        options: &ConstraintOptions,
    ) -> Result<Constraint, GrammarError> {
        let (choice, answer) = (&ToolChoice::Auto, Some(schema));
        let calls = Calls { vocabulary, format, tools, choice, parallel, all_schemas: false, answer };
        Constraint::calls(calls, options)
    }

    fn calls(calls: Calls, options: &ConstraintOptions) -> Result<Constraint, GrammarError> {
        let Calls { vocabulary, tools, .. } = calls;
        let compile = |calls: Calls| {
            let grammar = calls.grammar()?;
            Constraint::new(vocabulary, GrammarWithLexer::from_lark(grammar), options, "tool")
        };
        match compile(calls) {
            // Only strict tools are promised that their arguments follow the schema.
            Err(
                GrammarError::Unsupported { .. }
                | GrammarError::TooManyCombinations { .. }
                | GrammarError::BoundTooLarge { .. },
            ) if calls.all_schemas && !tools.iter().all(|tool| tool.strict) => {
                compile(Calls { all_schemas: false, ..calls })
            }
            result => result,
        }
    }

    fn new(
        vocabulary: &GrammarVocabulary,
        mut answer: GrammarWithLexer,
        options: &ConstraintOptions,
        what: &'static str,
    ) -> Result<Constraint, GrammarError> {
        let grammar = match &options.reasoning {
            None => TopLevelGrammar::from_grammar(answer),
            Some(format) => {
                answer.name = Some("answer".to_owned());
                let start =
                    lark::after_reasoning(vocabulary, format.open(), format.close(), options.starts_inside);
                let mut grammar = TopLevelGrammar::from_lark(start);
                grammar.grammars.push(answer);
                grammar
            }
        };
        Ok(Constraint { matcher: compile(vocabulary, grammar, what)?, vocabulary: vocabulary.clone() })
    }

    /// Sets `bits` to the tokens that may come next: token `t` is bit `t % 32` of word `t / 32`, for the tokens of the
    /// vocabulary. Never empty.
    /// # Errors
    /// If the grammar became too complex at this point, or an earlier call failed.
    pub fn mask(&mut self, bits: &mut Vec<u32>) -> Result<(), GrammarError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(failed)?;
        bits.clear();
        bits.extend_from_slice(mask.as_slice());
        Ok(())
    }

    /// Takes the token that was drawn, or one that was put into the text.
    /// # Errors
    /// If the token was not allowed; the constraint cannot be used any more then.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        if self.is_over() && self.vocabulary.ends(token) {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(failed)
    }

    /// Whether the text so far is whole: generation may end here.
    pub fn is_complete(&mut self) -> bool {
        self.is_over() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether nothing can follow but a token that ends generation.
    pub fn is_over(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").field("stop_reason", &self.matcher.stop_reason()).finish_non_exhaustive()
    }
}

/// Bounds what the compiler recurses on.
fn check_text(text: &str, what: &'static str) -> Result<(), GrammarError> {
    if text.len() > MAX_GRAMMAR_BYTES {
        return Err(GrammarError::TooLarge { what, bytes: text.len(), max: MAX_GRAMMAR_BYTES });
    }
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_GRAMMAR_DEPTH {
        return Err(GrammarError::TooDeep { what, max: MAX_GRAMMAR_DEPTH });
    }
    Ok(())
}

fn failed(e: impl fmt::Display) -> GrammarError {
    GrammarError::Failed { reason: brief(&e.to_string()) }
}
