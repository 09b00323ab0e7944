//! Python's operators, and the limit on values: see [`program`](super::program).

use std::time::{Duration, Instant};

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};

use super::python::{self, error};

// Names of the functions that instructions are replaced by; no template can call them.
pub(super) const ADD: &str = "+";
pub(super) const MULTIPLY: &str = "*";
pub(super) const REMAINDER: &str = "%";
pub(super) const CONCAT: &str = "~";
pub(super) const SLICE: &str = "[:]";
pub(super) const LIST: &str = "[]";
pub(super) const TUPLE: &str = "()";
pub(super) const MAP: &str = "{}";
pub(super) const STORE: &str = "=";
pub(super) const EQUAL: &str = "==";
pub(super) const UNEQUAL: &str = "!=";
pub(super) const LESS: &str = "<";
pub(super) const LESS_OR_EQUAL: &str = "<=";
pub(super) const GREATER: &str = ">";
pub(super) const GREATER_OR_EQUAL: &str = ">=";
pub(super) const IN: &str = "in";

/// Deepest nesting of a value.
const MAX_DEPTH: usize = super::MAX_INPUT_DEPTH + 50;
/// Longest that a render may take. Fuel runs out long before, unless a template spends all of it on filters over the
/// largest values that it can have.
const MAX_TIME: Duration = Duration::from_secs(10);

/// What one render may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Steps.
    pub(super) fuel: u64,
    /// Values in one value, counted as often as they are reached.
    nodes: usize,
    /// Bytes of text in one value, counted the same way.
    bytes: usize,
    deadline: Instant,
}

impl Limits {
    /// For an input of `input_bytes`, which counts some bytes for each value, too.
    pub(super) fn new(input_bytes: usize) -> Limits {
        Limits {
            fuel: super::BASE_FUEL + super::FUEL_PER_INPUT_BYTE * input_bytes as u64,
            nodes: 20_000 + input_bytes / 4,
            bytes: super::BASE_OUTPUT_BYTES + super::OUTPUT_PER_INPUT_BYTE * input_bytes,
            deadline: Instant::now() + MAX_TIME,
        }
    }
}

/// Adds the operators to an environment for one render.
pub(super) fn register(env: &mut Environment<'static>, limits: Limits) {
    env.add_function(ADD, move |state: &State, a: &Value, b: &Value| limits.bound(state, add(a, b)?));
    env.add_function(MULTIPLY, move |state: &State, a: &Value, b: &Value| {
        let product = multiply(&limits, state, a, b)?;
        limits.bound(state, product)
    });
    env.add_function(REMAINDER, remainder);
    env.add_function(CONCAT, |state: &State, a: &Value, b: &Value| {
        Ok::<_, Error>(Value::from(python::str(state, a)? + &python::str(state, b)?))
    });
    env.add_function(SLICE, slice);
    env.add_function(LIST, move |state: &State, items: Rest<Value>| {
        limits.bound(state, Value::from(items.to_vec()))
    });
    env.add_function(TUPLE, move |state: &State, items: Rest<Value>| {
        limits.bound(state, Value::from(Tuple::from(items.to_vec())))
    });
    env.add_function(MAP, move |state: &State, items: Rest<Value>| {
        limits.bound(
            state,
            Value::from_pairs(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()))),
        )
    });
    env.add_function(STORE, move |state: &State, value: Value| limits.bound(state, value));
    let mut compare = |name, holds: fn(&Value, &Value) -> bool| {
        env.add_function(name, move |state: &State, a: &Value, b: &Value| {
            limits.charge(state, a)?;
            Ok::<_, Error>(holds(a, b))
        });
    };
    compare(EQUAL, |a, b| a == b);
    compare(UNEQUAL, |a, b| a != b);
    compare(LESS, |a, b| a < b);
    compare(LESS_OR_EQUAL, |a, b| a <= b);
    compare(GREATER, |a, b| a > b);
    compare(GREATER_OR_EQUAL, |a, b| a >= b);
    env.add_function(IN, move |state: &State, item: &Value, container: &Value| {
        limits.charge(state, container)?;
        contains(container, item)
    });
    env.add_function("namespace", move |state: &State, defaults: Option<Value>, named: Kwargs| {
        let mut pairs = Vec::new();
        if let Some(defaults) = defaults {
            for key in defaults.try_iter()? {
                let value = defaults.get_item(&key)?;
                pairs.push((key, limits.bound(state, value)?));
            }
        }
        for name in named.args() {
            pairs.push((Value::from(name), limits.bound(state, named.get::<Value>(name)?)?));
        }
        let (defaults,) = from_args(&[Value::from_pairs(pairs)])?;
        minijinja::functions::namespace(defaults)
    });
}

impl Limits {
    /// `value` if it keeps within the limits. What is computed on demand (a range, a reversed list) becomes a list.
    fn bound(&self, state: &State, value: Value) -> Result<Value, Error> {
        if Instant::now() > self.deadline {
            return Err(Error::from(ErrorKind::OutOfFuel));
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {}
            ValueKind::Invalid => return Err(error(value.to_string())),
            _ => return Ok(value),
        }
        let mut walk = Walk { nodes: self.nodes, bytes: self.bytes };
        let changed = walk.value(&value, 0)?;
        state.consume_fuel((self.nodes - walk.nodes) as u64 / 16)?;
        Ok(changed.unwrap_or(value))
    }

    /// Pays for looking at all of `value`.
    fn charge(&self, state: &State, value: &Value) -> Result<(), Error> {
        let mut walk = Walk { nodes: self.nodes, bytes: self.bytes };
        walk.value(value, 0)?;
        state.consume_fuel((self.nodes - walk.nodes) as u64 / 16 + (self.bytes - walk.bytes) as u64 / 256)
    }
}

/// What is left while a value is walked.
struct Walk {
    nodes: usize,
    bytes: usize,
}

impl Walk {
    /// The value with lists for everything that is computed on demand; `None` if there was no such thing.
    fn value(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, Error> {
        if depth > MAX_DEPTH {
            return Err(error(format!("a value is nested more than {MAX_DEPTH} levels deep")));
        }
        let exhausted = || Error::from(ErrorKind::OutOfFuel);
        self.nodes = self.nodes.checked_sub(1).ok_or_else(exhausted)?;
        if let Some(text) = value.as_str() {
            self.bytes = self.bytes.checked_sub(text.len()).ok_or_else(exhausted)?;
            return Ok(None);
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                let mut items = Vec::new();
                let mut changed = value.kind() == ValueKind::Iterable;
                for item in value.try_iter()? {
                    let new = self.value(&item, depth + 1)?;
                    changed |= new.is_some();
                    items.push(new.unwrap_or(item));
                }
                Ok(match (changed, value.is_tuple()) {
                    (false, _) => None,
                    (true, false) => Some(Value::from(items)),
                    (true, true) => Some(Value::from(Tuple::from(items))),
                })
            }
            ValueKind::Map => {
                let mut pairs = Vec::new();
                let mut changed = false;
                for key in value.try_iter()? {
                    self.value(&key, depth + 1)?;
                    let item = value.get_item(&key)?;
                    let new = self.value(&item, depth + 1)?;
                    changed |= new.is_some();
                    pairs.push((key, new.unwrap_or(item)));
                }
                Ok(changed.then(|| Value::from_pairs(pairs)))
            }
            ValueKind::Invalid => Err(error(value.to_string())),
            _ => Ok(None),
        }
    }
}

/// A number as Python sees it.
#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Number> {
        match value.kind() {
            ValueKind::Bool => Some(Number::Int(i128::from(value.is_true()))),
            ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok().map(Number::Int),
            ValueKind::Number => f64::try_from(value.clone()).ok().map(Number::Float),
            _ => None,
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(v) => v as f64,
            Number::Float(v) => v,
        }
    }
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    error(format!("unsupported operand types for {operator}: {} and {}", a.kind(), b.kind()))
}

fn overflow() -> Error {
    error("the result does not fit in 128 bits")
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return Ok(Value::from([a, b].concat()));
    }
    if let (Some(a), Some(b)) = (Number::of(a), Number::of(b)) {
        return match (a, b) {
            (Number::Int(a), Number::Int(b)) => a.checked_add(b).map(Value::from).ok_or_else(overflow),
            (a, b) => Ok(Value::from(a.float() + b.float())),
        };
    }
    if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        let items: Vec<Value> = a.try_iter()?.chain(b.try_iter()?).collect();
        return Ok(if a.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) });
    }
    Err(unsupported("+", a, b))
}

fn multiply(limits: &Limits, state: &State, a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (Number::of(a), Number::of(b)) {
        return match (a, b) {
            (Number::Int(a), Number::Int(b)) => a.checked_mul(b).map(Value::from).ok_or_else(overflow),
            (a, b) => Ok(Value::from(a.float() * b.float())),
        };
    }
    let (repeated, count) = match (Number::of(a), Number::of(b)) {
        (None, Some(Number::Int(n))) => (a, n),
        (Some(Number::Int(n)), None) => (b, n),
        _ => return Err(unsupported("*", a, b)),
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = repeated.as_str() {
        // Paid before it is created.
        state.consume_fuel(1 + (text.len().saturating_mul(count)) as u64 / 64)?;
        return Ok(Value::from(text.repeat(count)));
    }
    if !is_list(repeated) {
        return Err(unsupported("*", a, b));
    }
    let items: Vec<Value> = repeated.try_iter()?.collect();
    if items.len().saturating_mul(count) > limits.nodes {
        return Err(Error::from(ErrorKind::OutOfFuel));
    }
    let items: Vec<Value> = std::iter::repeat_n(&items, count).flatten().cloned().collect();
    Ok(if repeated.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
}

/// `a % b`: the remainder with the sign of `b`, or the `format` filter for text.
fn remainder(state: &mut State, a: &Value, b: &Value) -> Result<Value, Error> {
    if a.as_str().is_some() {
        let mut arguments = vec![a.clone()];
        if b.is_tuple() {
            arguments.extend(b.try_iter()?);
        } else {
            arguments.push(b.clone());
        }
        for argument in &mut arguments[1..] {
            if argument.as_object().is_some() && argument.kind() != ValueKind::Map {
                *argument = Value::from(python::str(state, argument)?);
            }
        }
        return state.apply_filter("format", &arguments);
    }
    match (Number::of(a), Number::of(b)) {
        (Some(Number::Int(_)), Some(Number::Int(0))) => Err(error("integer modulo by zero")),
        (Some(Number::Int(a)), Some(Number::Int(b))) => {
            let r = a.checked_rem(b).unwrap_or(0);
            Ok(Value::from(if r != 0 && (r < 0) != (b < 0) { r + b } else { r }))
        }
        (Some(a), Some(b)) => {
            let (a, b) = (a.float(), b.float());
            if b == 0.0 {
                return Err(error("float modulo by zero"));
            }
            let r = a % b;
            Ok(Value::from(if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }))
        }
        _ => Err(unsupported("%", a, b)),
    }
}

/// `item in container`. Nothing is in undefined.
fn contains(container: &Value, item: &Value) -> Result<bool, Error> {
    if let Some(text) = container.as_str() {
        return match item.as_str() {
            Some(part) => Ok(text.contains(part)),
            None => Err(error(format!("'in <string>' requires string as left operand, not {}", item.kind()))),
        };
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Map => Ok(container.as_object().is_some_and(|map| map.get_value(item).is_some())),
        _ if is_list(container) => Ok(container.try_iter()?.any(|other| other == *item)),
        kind => Err(error(format!("a value of type {kind} contains nothing"))),
    }
}

/// `value[start:stop:step]` of a text, list or tuple.
fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let index = |v: &Value| match (v.kind(), Number::of(v)) {
        (ValueKind::None | ValueKind::Undefined, _) => Ok(None),
        (_, Some(Number::Int(v))) => Ok(Some(v.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)),
        _ => Err(error("slice indices must be integers")),
    };
    let step = index(step)?.unwrap_or(1);
    if step == 0 {
        return Err(error("slice step cannot be zero"));
    }
    let (start, stop) = (index(start)?, index(stop)?);
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        let picked = positions(chars.len(), start, stop, step);
        return Ok(Value::from(picked.map(|i| chars[i]).collect::<String>()));
    }
    if !is_list(value) {
        return Err(error(format!("{} cannot be sliced", value.kind())));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    let picked: Vec<Value> = positions(items.len(), start, stop, step).map(|i| items[i].clone()).collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(picked)) } else { Value::from(picked) })
}

/// The positions that a slice of `n` items picks.
fn positions(n: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let n = n as i64;
    // Behind the last position, seen in the direction of the step.
    let (first, end, low, high) = if step > 0 { (0, n, 0, n) } else { (n - 1, -1, -1, n - 1) };
    let place = |v: Option<i64>, default| match v {
        None => default,
        Some(v) => (if v < 0 { v.saturating_add(n) } else { v }).clamp(low, high),
    };
    let (mut at, end) = (place(start, first), place(stop, end));
    std::iter::from_fn(move || {
        let inside = if step > 0 { at < end } else { at > end };
        let position = at;
        at = at.saturating_add(step);
        inside.then_some(position as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_limited() {
        let late = Limits { deadline: Instant::now() - Duration::from_secs(1), ..Limits::new(0) };
        let mut env = Environment::new();
        env.add_function("store", move |state: &State, value: Value| late.bound(state, value));
        let error = env.render_str("{{ store(1) }}", ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfFuel);
    }

    /// From Python: `list(range(5))[start:stop:step]`.
    #[test]
    fn slices() {
        for (start, stop, step, expect) in [
            (None, None, 1, vec![0, 1, 2, 3, 4]),
            (Some(1), Some(-1), 1, vec![1, 2, 3]),
            (Some(-2), None, 1, vec![3, 4]),
            (Some(9), None, 1, vec![]),
            (Some(-9), Some(2), 1, vec![0, 1]),
            (None, None, -1, vec![4, 3, 2, 1, 0]),
            (Some(3), Some(0), -2, vec![3, 1]),
            (Some(9), Some(-9), -1, vec![4, 3, 2, 1, 0]),
            (None, Some(2), -1, vec![4, 3]),
            (None, None, i64::MAX, vec![0]),
            (None, None, i64::MIN, vec![4]),
        ] {
            assert_eq!(
                positions(5, start, stop, step).collect::<Vec<_>>(),
                expect,
                "{start:?}:{stop:?}:{step}"
            );
        }
        assert_eq!(positions(0, None, None, -1).count(), 0);
    }
}
