//! Evaluating an expression on a document.

use super::arguments::Arguments;
use super::counted::{ArrayMaker, field};
use super::node::{Call, Node, Variable};
use super::{convert, regexes};
use crate::error::{CONVERSION_FAILURE, DocumentError};
use crate::raw::{append, elements};
use crate::value::{Value, byte_length};
use crate::variables::Env;
use bson::DateTime;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use remora_layout::limits::MAX_DOCUMENT_DEPTH;

/// Values of the variables that one operator defines, and those around it.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    values: &'a [Value<'a>],
    around: Option<&'a Frame<'a>>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(values: &'a [Value<'a>], around: Option<&'a Frame<'a>>) -> Frame<'a> {
        Frame { values, around }
    }
}

/// What an expression sees.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    root: &'a RawDocument,
    pub(super) env: &'a Env<'a>,
    frame: Option<&'a Frame<'a>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(root: &'a RawDocument, env: &'a Env<'a>) -> Scope<'a> {
        Scope { root, env, frame: None }
    }

    pub(super) fn within(self, frame: &'a Frame<'a>) -> Scope<'a> {
        Scope { frame: Some(frame), ..self }
    }

    fn local(&self, out: usize, at: usize) -> Option<RawBsonRef<'a>> {
        let mut frame = self.frame?;
        for _ in 0..out {
            frame = frame.around?;
        }
        frame.values.get(at).and_then(Value::get)
    }

    fn variable(&self, variable: Variable) -> Option<RawBsonRef<'a>> {
        match variable {
            Variable::Root => Some(RawBsonRef::Document(self.root)),
            Variable::Now => {
                let now = DateTime::from_millis(self.env.variables.now_ms());
                Some(RawBsonRef::DateTime(now))
            }
            Variable::Remove => None,
            Variable::User(at) => self.env.variables.get(at),
            Variable::Local { out, at } => self.local(out, at),
        }
    }
}

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

impl Node {
    /// The value. The parser bounds the recursion.
    pub(super) fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Evaluated<'a> {
        scope.env.spend(1)?;
        match self {
            Node::Literal(value) => Ok(Value::of_owned(value)),
            Node::Absent => Ok(Value::Missing),
            Node::Variable(variable, path) => match scope.variable(*variable) {
                Some(value) => path_value(value, path.names(), scope.env),
                None => Ok(Value::Missing),
            },
            Node::Object(fields) => object(fields, scope),
            Node::Array(parts) => array(parts, scope),
            Node::Call(operator, parts) => {
                let mut values = Vec::with_capacity(parts.len());
                for part in parts {
                    values.push(part.evaluate(scope)?);
                }
                let name = operator.name;
                (operator.function)(&mut Arguments { name, values, env: scope.env })
            }
            Node::And(parts) => first_that(parts, false, scope),
            Node::Or(parts) => first_that(parts, true, scope),
            Node::IfNull(parts) => {
                let mut last = Value::Missing;
                for part in parts {
                    last = part.evaluate(scope)?;
                    if !last.is_nullish() {
                        break;
                    }
                }
                Ok(last)
            }
            Node::Cond(parts) => {
                let [condition, then, otherwise] = &**parts;
                let is_true = condition.evaluate(scope)?.is_true();
                if is_true { then.evaluate(scope) } else { otherwise.evaluate(scope) }
            }
            Node::Switch(branches, default) => switch(branches, default.as_deref(), scope),
            Node::Let(values, body) => bind(values, body, scope),
            Node::Map(parts) => map(parts, scope),
            Node::Filter(parts) => filter(parts, scope),
            Node::Reduce(parts) => reduce(parts, scope),
            Node::Regex(call) => call.evaluate(scope),
            Node::Convert(parts) => converted(parts, scope),
        }
    }
}

/// Whether a part counts as `wanted`.
fn first_that<'a>(parts: &'a [Node], wanted: bool, scope: Scope<'a>) -> Evaluated<'a> {
    for part in parts {
        if part.evaluate(scope)?.is_true() == wanted {
            return Ok(Value::bool(wanted));
        }
    }
    Ok(Value::bool(!wanted))
}

fn object<'a>(parts: &'a [(String, Node)], scope: Scope<'a>) -> Evaluated<'a> {
    let mut made = RawDocumentBuf::new();
    for (name, part) in parts {
        if let Some(value) = part.evaluate(scope)?.get() {
            scope.env.spend_bytes(made.as_bytes().len() + byte_length(value))?;
            append(&mut made, name, value)?;
        }
    }
    Ok(Value::document(made))
}

fn array<'a>(parts: &'a [Node], scope: Scope<'a>) -> Evaluated<'a> {
    let mut made = ArrayMaker::new(scope.env);
    for part in parts {
        made.push(part.evaluate(scope)?.or_null())?;
    }
    Ok(made.done())
}

fn switch<'a>(
    branches: &'a [(Node, Node)],
    default: Option<&'a Node>,
    scope: Scope<'a>,
) -> Evaluated<'a> {
    for (case, then) in branches {
        if case.evaluate(scope)?.is_true() {
            return then.evaluate(scope);
        }
    }
    match default {
        Some(default) => default.evaluate(scope),
        None => Err(DocumentError::new(
            40066,
            "$switch could not find a matching branch for an input, and no default was specified.",
        )),
    }
}

fn bind<'a>(parts: &'a [Node], body: &'a Node, scope: Scope<'a>) -> Evaluated<'a> {
    let mut values = Vec::with_capacity(parts.len());
    for part in parts {
        values.push(part.evaluate(scope)?);
    }
    let frame = Frame::new(&values, scope.frame);
    let made = body.evaluate(scope.within(&frame))?;
    scope.env.spend_bytes(made.bytes())?;
    Ok(made.detach())
}

/// The elements of an input; nothing if it is null or missing.
fn input<'v>(
    value: &'v Value<'_>,
    code: i32,
    text: &str,
) -> Result<Option<&'v RawArray>, DocumentError> {
    if value.is_nullish() {
        return Ok(None);
    }
    match value.as_array() {
        Some(array) => Ok(Some(array)),
        None => Err(DocumentError::new(code, format!("{text}{}", value.type_name()))),
    }
}

fn map<'a>(parts: &'a [Node; 2], scope: Scope<'a>) -> Evaluated<'a> {
    let [from, body] = parts;
    let from = from.evaluate(scope)?;
    let Some(array) = input(&from, 16883, "input to $map must be an array not ")? else {
        return Ok(Value::NULL);
    };
    let mut made = ArrayMaker::new(scope.env);
    for element in elements(array) {
        let values = [Value::Raw(element)];
        let frame = Frame::new(&values, scope.frame);
        made.push(body.evaluate(scope.within(&frame))?.or_null())?;
    }
    Ok(made.done())
}

fn filter<'a>(parts: &'a [Node; 3], scope: Scope<'a>) -> Evaluated<'a> {
    let [from, condition, limit] = parts;
    let from = from.evaluate(scope)?;
    let Some(array) = input(&from, 28651, "input to $filter must be an array not ")? else {
        return Ok(Value::NULL);
    };
    let limit = limit.evaluate(scope)?;
    let most = match limit.as_int() {
        _ if limit.is_nullish() => usize::MAX,
        Some(most @ 1..) => most as usize,
        Some(least) => {
            let text = format!("$filter: limit must be greater than 0: limit: {least}");
            return Err(DocumentError::new(327_392, text));
        }
        None => {
            let text = format!(
                "$filter: limit must be represented as a 32-bit integral value: {}",
                limit.type_name()
            );
            return Err(DocumentError::new(327_391, text));
        }
    };
    let (mut made, mut count) = (ArrayMaker::new(scope.env), 0);
    for element in elements(array) {
        let values = [Value::Raw(element)];
        let frame = Frame::new(&values, scope.frame);
        if condition.evaluate(scope.within(&frame))?.is_true() {
            made.push(element)?;
            count += 1;
            if count == most {
                break;
            }
        }
    }
    Ok(made.done())
}

fn reduce<'a>(parts: &'a [Node; 3], scope: Scope<'a>) -> Evaluated<'a> {
    let [from, first, body] = parts;
    let from = from.evaluate(scope)?;
    let text = "$reduce requires that 'input' be an array, found: ";
    let Some(array) = input(&from, 40080, text)? else { return Ok(Value::NULL) };
    let mut made = first.evaluate(scope)?;
    for element in elements(array) {
        let values = [made, Value::Raw(element)];
        let frame = Frame::new(&values, scope.frame);
        let next = body.evaluate(scope.within(&frame))?;
        scope.env.spend_bytes(next.bytes())?;
        made = next.detach();
    }
    Ok(made)
}

/// `$convert`.
fn converted<'a>(parts: &'a [Node; 4], scope: Scope<'a>) -> Evaluated<'a> {
    let [input, to, on_error, on_null] = parts;
    let (input, to) = (input.evaluate(scope)?, to.evaluate(scope)?);
    if input.is_nullish() {
        return match on_null {
            Node::Absent => Ok(Value::NULL),
            on_null => on_null.evaluate(scope),
        };
    }
    if to.is_nullish() {
        return Ok(Value::NULL);
    }
    let target = convert::Target::of(to.or_null())?;
    scope.env.spend(input.bytes() / 64)?;
    match convert::convert(input, target) {
        Err(error) if error.code() == CONVERSION_FAILURE => match on_error {
            Node::Absent => Err(error),
            on_error => on_error.evaluate(scope),
        },
        made => made,
    }
}

impl Call {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Evaluated<'a> {
        let [input, pattern, options] = &self.parts;
        let input = input.evaluate(scope)?;
        let text = match input.get() {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(self.nothing()),
            Some(RawBsonRef::String(text)) => text,
            _ => {
                let text = format!("{} needs 'input' to be of type string", self.name);
                return Err(DocumentError::new(51104, text));
            }
        };
        if let Some(pattern) = &self.compiled {
            return self.search(pattern, text, scope.env);
        }
        let (pattern, options) = (pattern.evaluate(scope)?, options.evaluate(scope)?);
        /// Steps that a compilation takes: about its time.
        const COMPILATION: usize = 1 << 10;
        scope.env.spend(COMPILATION)?;
        match regexes::compile(self.name, &pattern, &options)? {
            Some(pattern) => self.search(&pattern, text, scope.env),
            None => Ok(self.nothing()),
        }
    }
}

/// The value at a path. Arrays on the way give an array of what is found in their elements.
pub(crate) fn path_value<'a>(
    value: RawBsonRef<'a>,
    path: &[String],
    env: &Env<'_>,
) -> Evaluated<'a> {
    at_path(value, path, env, 1)
}

fn at_path<'a>(
    value: RawBsonRef<'a>,
    path: &[String],
    env: &Env<'_>,
    depth: usize,
) -> Evaluated<'a> {
    let [name, rest @ ..] = path else { return Ok(Value::Raw(value)) };
    if depth > MAX_DOCUMENT_DEPTH {
        return Ok(Value::Missing);
    }
    match value {
        RawBsonRef::Document(document) => match field(document, name, env)? {
            Some(value) => at_path(value, rest, env, depth + 1),
            None => Ok(Value::Missing),
        },
        RawBsonRef::Array(array) => {
            let mut made = ArrayMaker::new(env);
            for element in elements(array) {
                env.spend(1)?;
                let found = match element {
                    RawBsonRef::Document(_) | RawBsonRef::Array(_) => {
                        at_path(element, path, env, depth + 1)?
                    }
                    _ => Value::Missing,
                };
                if let Some(found) = found.get() {
                    made.push(found)?;
                }
            }
            Ok(made.done())
        }
        _ => Ok(Value::Missing),
    }
}
