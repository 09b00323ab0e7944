//! Python's methods on strings, lists and dicts: those that minijinja-contrib lacks or does differently, then its own.

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python::error;

/// Called for a method that a value does not have by itself.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            string_method(state, value, text, method, args)?
        }
        ValueKind::Map => match method {
            "copy" => {
                let () = from_args(args)?;
                Some(value.clone())
            }
            _ => None,
        },
        ValueKind::Seq => list_method(value, method, args)?,
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// Positional and named arguments under their Python names.
struct Args<'a> {
    method: &'a str,
    positional: Vec<Value>,
    named: Kwargs,
}

impl<'a> Args<'a> {
    fn new(method: &'a str, args: &[Value], max: usize) -> Result<Args<'a>, Error> {
        let (positional, named): (Rest<Value>, Kwargs) = from_args(args)?;
        if positional.len() > max {
            return Err(Error::new(ErrorKind::TooManyArguments, format!("{method}() takes at most {max}")));
        }
        Ok(Args { method, positional: positional.to_vec(), named })
    }

    /// Argument `index`, also called `name`; `None` if absent or none.
    fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        let value = match self.positional.get(index) {
            Some(v) => v.clone(),
            None => self.named.get::<Option<Value>>(name)?.unwrap_or_default(),
        };
        Ok(Some(value).filter(|v| !v.is_undefined() && !v.is_none()))
    }

    fn text(&self, index: usize, name: &str) -> Result<Option<String>, Error> {
        match self.get(index, name)? {
            None => Ok(None),
            Some(v) => match v.as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(error(format!("{}() argument must be str, not {}", self.method, v.kind()))),
            },
        }
    }

    fn required_text(&self, index: usize, name: &str) -> Result<String, Error> {
        self.text(index, name)?
            .ok_or_else(|| Error::new(ErrorKind::MissingArgument, format!("{}(): {name}", self.method)))
    }

    fn int(&self, index: usize, name: &str) -> Result<Option<i64>, Error> {
        self.get(index, name)?.map(i64::try_from).transpose()
    }
}

/// `str.isspace` of one character.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn string_method(
    state: &mut State,
    value: &Value,
    s: &str,
    method: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let list = |parts: Vec<&str>| Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let chars = Args::new(method, args, 1)?.text(0, "chars")?;
            let drop = |c: char| chars.as_ref().map_or_else(|| is_space(c), |set| set.contains(c));
            let s = if method == "rstrip" { s } else { s.trim_start_matches(drop) };
            Value::from(if method == "lstrip" { s } else { s.trim_end_matches(drop) })
        }
        "split" | "rsplit" => {
            let args = Args::new(method, args, 2)?;
            let separator = args.text(0, "sep")?;
            let max = args.int(1, "maxsplit")?.and_then(|n| usize::try_from(n).ok());
            list(split(s, separator.as_deref(), max, method == "rsplit")?)
        }
        "splitlines" => {
            let keep = Args::new(method, args, 1)?.get(0, "keepends")?.is_some_and(|v| v.is_true());
            list(split_lines(s, keep))
        }
        "partition" | "rpartition" => {
            let separator = Args::new(method, args, 1)?.required_text(0, "sep")?;
            if separator.is_empty() {
                return Err(error("empty separator"));
            }
            let found = if method == "partition" { s.find(&separator) } else { s.rfind(&separator) };
            let parts = match found {
                Some(at) => [&s[..at], &separator, &s[at + separator.len()..]],
                None if method == "partition" => [s, "", ""],
                None => ["", "", s],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "removeprefix" => {
            let prefix = Args::new(method, args, 1)?.required_text(0, "prefix")?;
            Value::from(s.strip_prefix(&*prefix).unwrap_or(s))
        }
        "removesuffix" => {
            let suffix = Args::new(method, args, 1)?.required_text(0, "suffix")?;
            Value::from(s.strip_suffix(&*suffix).unwrap_or(s))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(s, method, args)?,
        "ljust" | "rjust" | "center" | "zfill" => {
            let args = Args::new(method, args, 2)?;
            let width = args.int(0, "width")?.unwrap_or(0);
            let fill = args.text(1, "fillchar")?;
            justify(state, s, method, width, fill.as_deref())?
        }
        "title" => {
            let () = from_args(args)?;
            let mut after_letter = false;
            let mut out = String::with_capacity(s.len());
            for c in s.chars() {
                if after_letter {
                    out.extend(c.to_lowercase());
                } else {
                    out.extend(c.to_uppercase());
                }
                after_letter = c.is_lowercase() || c.is_uppercase();
            }
            Value::from(out)
        }
        "capitalize" => {
            let () = from_args(args)?;
            let mut chars = s.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            Value::from(first.chain(chars.as_str().to_lowercase().chars()).collect::<String>())
        }
        "swapcase" => {
            let () = from_args(args)?;
            let mut out = String::with_capacity(s.len());
            for c in s.chars() {
                if c.is_uppercase() {
                    out.extend(c.to_lowercase());
                } else {
                    out.extend(c.to_uppercase());
                }
            }
            Value::from(out)
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(s.to_lowercase().replace('ß', "ss"))
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!s.is_empty() && s.chars().all(is_space))
        }
        "isdecimal" => {
            let () = from_args(args)?;
            Value::from(!s.is_empty() && s.chars().all(|c| c.is_ascii_digit()))
        }
        "format" => {
            // The engine does not charge for it. A field is at most as long as its width, or all arguments together.
            let fields = s.matches('{').count() as u64;
            let mut width = 0;
            for digits in s.split(|c: char| !c.is_ascii_digit()).filter(|d| !d.is_empty()) {
                width = width.max(digits.parse().unwrap_or(u64::MAX));
            }
            let mut longest = 0;
            let mut texts = Vec::with_capacity(args.len());
            for arg in args {
                let nested = arg.as_object().is_some() && arg.kind() != ValueKind::Map;
                let text = super::python::str(state, arg)?;
                longest += text.len() as u64;
                texts.push(if nested { Value::from(text) } else { arg.clone() });
            }
            state.consume_fuel(fields.saturating_mul(width.saturating_add(longest)) / 64)?;
            return pycompat::unknown_method_callback(state, value, method, &texts).map(Some);
        }
        "join" => {
            let items = Args::new(method, args, 1)?.get(0, "iterable")?.unwrap_or_default();
            let mut out = String::new();
            for (i, item) in items.try_iter()?.enumerate() {
                let Some(text) = item.as_str() else {
                    return Err(error(format!(
                        "sequence item {i}: expected str instance, {} found",
                        item.kind()
                    )));
                };
                if i > 0 {
                    out.push_str(s);
                }
                out.push_str(text);
                // Paid while it grows: an iterable can be longer than what it was made of.
                state.consume_fuel(1 + (s.len() + text.len()) as u64 / 64)?;
            }
            Value::from(out)
        }
        _ => return Ok(None),
    }))
}

/// `split` and `rsplit`: at white space without a separator, at most `max` times.
fn split<'s>(
    s: &'s str,
    separator: Option<&str>,
    max: Option<usize>,
    from_right: bool,
) -> Result<Vec<&'s str>, Error> {
    let limit = max.map_or(usize::MAX, |n| n.saturating_add(1));
    let mut parts = Vec::new();
    match (separator, from_right) {
        (Some(""), _) => return Err(error("empty separator")),
        (Some(sep), false) => parts.extend(s.splitn(limit, sep)),
        (Some(sep), true) => {
            parts.extend(s.rsplitn(limit, sep));
            parts.reverse();
        }
        (None, false) => {
            let mut rest = s.trim_start_matches(is_space);
            while !rest.is_empty() {
                if parts.len() + 1 == limit {
                    // The last part keeps what is inside it and after it.
                    parts.push(rest);
                    break;
                }
                let end = rest.find(is_space).unwrap_or(rest.len());
                parts.push(&rest[..end]);
                rest = rest[end..].trim_start_matches(is_space);
            }
        }
        (None, true) => {
            let mut rest = s.trim_end_matches(is_space);
            while !rest.is_empty() {
                if parts.len() + 1 == limit {
                    parts.push(rest);
                    break;
                }
                let start = rest.char_indices().rev().find(|&(_, c)| is_space(c));
                let start = start.map_or(0, |(i, c)| i + c.len_utf8());
                parts.push(&rest[start..]);
                rest = rest[..start].trim_end_matches(is_space);
            }
            parts.reverse();
        }
    }
    Ok(parts)
}

fn split_lines(s: &str, keep: bool) -> Vec<&str> {
    let is_end =
        |c| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = s;
    while !rest.is_empty() {
        let (end, after) = match rest.find(is_end) {
            None => (rest.len(), rest.len()),
            Some(at) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some(at) => (at, at + rest[at..].chars().next().map_or(1, char::len_utf8)),
        };
        lines.push(&rest[..if keep { after } else { end }]);
        rest = &rest[after..];
    }
    lines
}

/// `find` and its kin; positions are characters.
fn search(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Args::new(method, args, 3)?;
    let what = args.required_text(0, "sub")?;
    let n = s.chars().count() as i64;
    let clamp = |v: i64| if v < 0 { (v + n).max(0) } else { v };
    let start = args.int(1, "start")?.map_or(0, clamp);
    let end = args.int(2, "end")?.map_or(n, |v| clamp(v).min(n));
    let byte = |chars: i64| s.char_indices().nth(chars as usize).map_or(s.len(), |(i, _)| i);
    let window = if start <= end { Some(&s[byte(start)..byte(end)]) } else { None };
    if method == "count" {
        return Ok(Value::from(window.map_or(0, |w| w.matches(&*what).count())));
    }
    let found = window.and_then(|w| {
        let at = if method.starts_with('r') { w.rfind(&*what) } else { w.find(&*what) };
        at.map(|at| start + w[..at].chars().count() as i64)
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if method.ends_with("index") => Err(error("substring not found")),
        None => Ok(Value::from(-1)),
    }
}

fn justify(state: &State, s: &str, method: &str, width: i64, fill: Option<&str>) -> Result<Value, Error> {
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(s.chars().count());
    // Paid before it is created.
    state.consume_fuel(1 + missing as u64 / 16)?;
    let fill = match fill {
        None => ' ',
        Some(text) => match (text.chars().next(), text.chars().count()) {
            (Some(c), 1) => c,
            _ => return Err(error("The fill character must be exactly one character long")),
        },
    };
    let run = |c: char, n: usize| std::iter::repeat_n(c, n).collect::<String>();
    Ok(Value::from(match method {
        "ljust" => s.to_owned() + &run(fill, missing),
        "rjust" => run(fill, missing) + s,
        "zfill" => {
            let sign = s.len() - s.trim_start_matches(['+', '-']).len();
            let sign = sign.min(1);
            s[..sign].to_owned() + &run('0', missing) + &s[sign..]
        }
        _ => {
            // CPython puts the odd one to the left if the width is odd.
            let left = missing / 2 + (missing & width as usize & 1);
            run(fill, left) + s + &run(fill, missing - left)
        }
    }))
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "copy" => {
            let () = from_args(args)?;
            value.clone()
        }
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            match value.try_iter()?.position(|item| item == *what) {
                Some(at) => Value::from(at),
                None => return Err(error("the value is not in the list")),
            }
        }
        // They change the list, which Jinja2's sandbox refuses.
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => {
            return Err(error(format!("{method}() would change a list, which templates may not do")));
        }
        _ => return Ok(None),
    }))
}
