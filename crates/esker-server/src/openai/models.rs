//! `GET /v1/models` and `GET /v1/models/{id}`, in shapes that clients of both APIs read.

use super::options::check_model;
use crate::error::ApiError;
use crate::owner::Shared;
use serde_json::{Value, json};

/// All names of the model.
pub(crate) fn list(shared: &Shared) -> Value {
    let config = &shared.config;
    let names: Vec<&String> = std::iter::once(&config.model_name).chain(&config.aliases).collect();
    json!({
        "object": "list",
        "data": names.iter().map(|name| model(shared, name)).collect::<Vec<_>>(),
        "first_id": names.first(),
        "last_id": names.last(),
        "has_more": false,
    })
}

/// One name.
///
/// # Errors
/// If the model does not have it.
pub(crate) fn one(shared: &Shared, name: &str) -> Result<Value, ApiError> {
    check_model(name, &shared.config)?;
    Ok(model(shared, name))
}

fn model(shared: &Shared, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": shared.created_s,
        "owned_by": "esker",
        "type": "model",
        "display_name": shared.config.model_name,
        "created_at": rfc3339(shared.created_s),
        "context_length": shared.loaded().map(|l| l.info.context),
    })
}

/// Seconds since 1970 as a date and time in UTC.
fn rfc3339(unix_s: u64) -> String {
    let (days, s) = (unix_s / 86_400, unix_s % 86_400);
    // Civil date from days, by eras of 400 years that begin in March, so that leap days come last.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_767_225_599), "2025-12-31T23:59:59Z");
    }
}
