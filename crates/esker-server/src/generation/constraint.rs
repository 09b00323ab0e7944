//! The grammar that an answer has to follow, if a request asks for one.

use super::prompt::Formats;
use super::request::{Format, Request, ToolChoice};
use crate::error::{ApiError, ErrorKind};
use esker_text::grammar::{Constraint, ConstraintOptions, GrammarError, GrammarVocabulary};
use esker_text::tools;
use serde_json::json;

/// Makes the constraint of a request.
///
/// `formats` are the model's notations, `options` says what stands around the constrained text.
///
/// # Errors
/// If the request asks for a call of a tool that it does not describe, or for a schema that cannot be enforced.
pub(crate) fn constraint(
    request: &Request,
    vocabulary: impl FnOnce() -> Result<GrammarVocabulary, ApiError>,
    formats: &Formats,
    options: &ConstraintOptions,
) -> Result<Option<Constraint>, ApiError> {
    let tools = request.tools();
    let choice = match &request.tool_choice {
        ToolChoice::Required if tools.is_empty() => {
            return Err(ApiError::value("tool_choice", "a demand for a call", "`tools` to choose from"));
        }
        ToolChoice::Required => Some(tools::ToolChoice::Required),
        ToolChoice::Named(name) if tools.iter().any(|tool| tool.name == *name) => {
            Some(tools::ToolChoice::Named(name.clone()))
        }
        ToolChoice::Named(name) => {
            return Err(ApiError::value("tool_choice", format!("`{name}`"), "the name of one of `tools`"));
        }
        ToolChoice::Auto if tools.iter().any(|tool| tool.strict) => Some(tools::ToolChoice::Auto),
        ToolChoice::Auto | ToolChoice::None => None,
    };
    let any_object = json!({"type": "object"});
    let schema = match &request.format {
        Format::Text => None,
        Format::JsonObject => Some(&any_object),
        Format::JsonSchema(schema) => Some(schema),
    };
    let may_call = request.tool_choice == ToolChoice::Auto && !tools.is_empty();
    let calls = || {
        let Some(format) = formats.tools else {
            return Err(ApiError::unsupported("tools", "the model's chat template knows no tool calls"));
        };
        Ok((format, tools.iter().map(super::request::Tool::spec).collect::<Vec<_>>()))
    };
    let parallel = !request.single_call;
    match (choice, schema) {
        (None, None) => Ok(None),
        (_, Some(schema)) if may_call => {
            let (format, specs) = calls()?;
            let vocabulary = vocabulary()?;
            // Tells a schema that is wrong from a tool that is.
            Constraint::json_schema(&vocabulary, schema, options)
                .map_err(|e| refusal(&e, "response_format"))?;
            let made = Constraint::tool_calls_or_json(&vocabulary, format, &specs, schema, parallel, options);
            made.map(Some).map_err(|e| refusal(&e, "tools"))
        }
        (None, Some(schema)) => {
            let made = Constraint::json_schema(&vocabulary()?, schema, options);
            made.map(Some).map_err(|e| refusal(&e, "response_format"))
        }
        // An answer that has to be a call has no text that the format could be for.
        (Some(choice), _) => {
            let (format, specs) = calls()?;
            let made = Constraint::tool_calls(&vocabulary()?, format, &specs, &choice, parallel, options);
            made.map(Some).map_err(|e| refusal(&e, "tools"))
        }
    }
}

fn refusal(error: &GrammarError, param: &str) -> ApiError {
    let kind = match error {
        GrammarError::Busy { .. } => ErrorKind::Overloaded,
        GrammarError::Failed { .. } => ErrorKind::Internal,
        _ => ErrorKind::Invalid,
    };
    let retry_after_s = (kind == ErrorKind::Overloaded).then_some(1);
    ApiError {
        retry_after_s,
        ..ApiError::new(kind, format!("`{param}`: {error}")).code("invalid_schema").named(param)
    }
}
