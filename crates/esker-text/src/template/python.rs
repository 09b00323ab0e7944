//! How Python writes values: `str()` and `repr()`.

use std::fmt::Write as _;

use minijinja::value::{ArgType, Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State};

/// The `{{ … }}` formatter.
pub(super) fn write_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::Invalid => minijinja::escape_formatter(out, state, value),
        _ => match value.as_str() {
            Some(text) => out.write_str(text).map_err(Error::from),
            None => out.write_str(&str(state, value)?).map_err(Error::from),
        },
    }
}

/// The `string` filter.
pub(super) fn to_string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    Ok(Value::from(str(state, value)?))
}

/// The `int` filter: `default` (0) for what is no number.
pub(super) fn to_int(
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = named_or(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0));
    let base = named_or(base, &kwargs, "base")?.unwrap_or(10);
    kwargs.assert_all_used()?;
    if value.is_integer() {
        return Ok(value.clone());
    }
    let float = match value.as_str().map(|text| text.trim()) {
        Some(text) => {
            let digits = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
            let digits = match base {
                16 => digits.strip_prefix("0x").unwrap_or(&digits),
                8 => digits.strip_prefix("0o").unwrap_or(&digits),
                2 => digits.strip_prefix("0b").unwrap_or(&digits),
                _ => &digits,
            };
            if (2..=36).contains(&base)
                && let Ok(v) = i64::from_str_radix(digits, base)
            {
                return Ok(Value::from(if text.starts_with('-') { -v } else { v }));
            }
            text.parse::<f64>().ok()
        }
        None => number(value),
    };
    Ok(match float {
        Some(v) if v.abs() < i64::MAX as f64 => Value::from(v.trunc() as i64),
        _ => default,
    })
}

/// The `float` filter: `default` (0.0) for what is no number.
pub(super) fn to_float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = named_or(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    let float = value.as_str().map_or_else(|| number(value), |text| text.trim().parse::<f64>().ok());
    Ok(float.map_or(default, Value::from))
}

fn named_or<'a, T>(positional: Option<T>, kwargs: &'a Kwargs, name: &'a str) -> Result<Option<T>, Error>
where
    Option<T>: ArgType<'a, Output = Option<T>>,
{
    if positional.is_some() { Ok(positional) } else { kwargs.get(name) }
}

/// Numbers, and booleans as 0 and 1.
fn number(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        _ => None,
    }
}

/// The `sequence` test: what has a length and items.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
}

/// The `iterable` test; none is not.
pub(super) fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// `str(value)`. Undefined is empty, as in Jinja2.
///
/// Paid while it grows: a list that holds itself many times over is small, its text is not.
pub(super) fn str(state: &State, value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut out = String::new();
    if !value.is_undefined() {
        write_repr(state, &mut out, value, 0)?;
    }
    Ok(out)
}

/// Deeper than any input; a value of the template's own making can be deeper.
const MAX_DEPTH: usize = 256;

fn write_repr(state: &State, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(error(format!("a value is nested more than {MAX_DEPTH} levels deep")));
    }
    let start = out.len();
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::String => write_string(out, value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => out.push_str(&float(value)),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut n = 0;
            for item in value.try_iter()? {
                if n > 0 {
                    out.push_str(", ");
                }
                write_repr(state, out, &item, depth + 1)?;
                n += 1;
            }
            if n == 1 && value.is_tuple() {
                out.push(',');
            }
            out.push(close);
            return state.consume_fuel(1);
        }
        ValueKind::Map => {
            out.push('{');
            for (n, key) in value.try_iter()?.enumerate() {
                if n > 0 {
                    out.push_str(", ");
                }
                write_repr(state, out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(state, out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
            return state.consume_fuel(1);
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    state.consume_fuel(1 + (out.len() - start) as u64 / 16)
}

/// Single quotes, unless only single quotes are inside; what does not print is escaped.
fn write_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ => {
                let _ = match c as u32 {
                    v @ ..=0xff => write!(out, "\\x{v:02x}"),
                    v @ ..=0xffff => write!(out, "\\u{v:04x}"),
                    v => write!(out, "\\U{v:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Nearly `str.isprintable`: controls, format characters that are invisible, and blanks other than the space are not.
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c as u32, 0xad | 0x600..=0x605 | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
            | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xe0000..=0xe007f | 0xf0000..))
}

/// A float as Python's `repr`: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16.
pub(super) fn float(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(v) => float_repr(v),
        Err(_) => value.to_string(),
    }
}

/// See [`float`].
pub(super) fn float_repr(v: f64) -> String {
    if v.is_nan() {
        return "nan".to_owned();
    }
    if v.is_infinite() {
        return if v > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{v:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = v.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// An error with Python's words.
pub(super) fn error(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        for (v, expect) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123456789.125, "123456789.125"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_repr(v), expect);
        }
    }
}
