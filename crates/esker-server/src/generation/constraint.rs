//! The grammar that an answer has to follow, if a request asks for one.

use super::prompt::Formats;
use super::request::{Format, Request, ToolChoice};
use crate::error::{ApiError, ErrorKind};
use esker_text::grammar::{Constraint, ConstraintOptions, GrammarError, GrammarVocabulary};
use esker_text::tools;

/// Makes the constraint of a request.
///
/// `formats` are the model's notations, `options` says what stands around the constrained text.
///
/// # Errors
/// If the request asks for two constraints that exclude each other, for a call of a tool that it does not describe, or
/// for a schema that cannot be enforced.
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
    match (choice, &request.format) {
        (None, Format::Text) => Ok(None),
        (Some(_), Format::JsonObject | Format::JsonSchema(_)) => Err(ApiError::unsupported(
            "response_format",
            "it cannot be combined with tools that are required or `strict`",
        )),
        (None, Format::JsonObject) => {
            let made = Constraint::json_object(&vocabulary()?, options);
            made.map(Some).map_err(|e| refusal(&e, "response_format"))
        }
        (None, Format::JsonSchema(schema)) => {
            let made = Constraint::json_schema(&vocabulary()?, schema, options);
            made.map(Some).map_err(|e| refusal(&e, "response_format"))
        }
        (Some(choice), Format::Text) => {
            let Some(format) = formats.tools else {
                return Err(ApiError::unsupported("tools", "the model's chat template knows no tool calls"));
            };
            let specs: Vec<_> = tools.iter().map(super::request::Tool::spec).collect();
            let parallel = !request.single_call;
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
