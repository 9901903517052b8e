//! `$regexMatch`, `$regexFind` and `$regexFindAll`.

use super::counted::ArrayMaker;
use super::node::{Call, Node, Wanted};
use crate::error::DocumentError;
use crate::filter::Pattern;
use crate::value::Value;
use crate::variables::Env;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};
use regex::Captures;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

impl Call {
    pub(super) fn new(name: &str, parts: [Node; 3]) -> Result<Call, DocumentError> {
        let (name, wanted) = match name {
            "$regexMatch" => ("$regexMatch", Wanted::Whether),
            "$regexFind" => ("$regexFind", Wanted::First),
            _ => ("$regexFindAll", Wanted::All),
        };
        let compiled = match (&parts[1], &parts[2]) {
            (Node::Literal(pattern), Node::Absent) => {
                compile(name, &Value::of_owned(pattern), &Value::Missing)?
            }
            (Node::Literal(pattern), Node::Literal(options)) => {
                compile(name, &Value::of_owned(pattern), &Value::of_owned(options))?
            }
            _ => None,
        };
        Ok(Call { name, wanted, parts, compiled })
    }

    /// What an input that is null gives.
    pub(super) fn nothing<'a>(&self) -> Value<'a> {
        match self.wanted {
            Wanted::Whether => Value::bool(false),
            Wanted::First => Value::NULL,
            Wanted::All => Value::array(RawArrayBuf::new()),
        }
    }

    /// Searches a text.
    pub(super) fn search<'a>(&self, pattern: &Pattern, text: &str, env: &Env<'_>) -> Evaluated<'a> {
        env.spend(1 + text.len() / 16)?;
        let mut position = Position::default();
        match self.wanted {
            Wanted::Whether => Ok(Value::bool(pattern.regex().is_match(text))),
            Wanted::First => Ok(match pattern.regex().captures(text) {
                Some(captures) => Value::document(describe(&captures, text, &mut position)),
                None => Value::NULL,
            }),
            Wanted::All => {
                let mut made = ArrayMaker::new(env);
                for captures in pattern.regex().captures_iter(text) {
                    env.spend(captures.len())?;
                    let found = describe(&captures, text, &mut position);
                    made.push(RawBsonRef::Document(&found))?;
                }
                Ok(made.done())
            }
        }
    }
}

/// How many code points are before a byte. It moves forward only.
#[derive(Default)]
struct Position {
    byte: usize,
    code_points: usize,
}

impl Position {
    fn at(&mut self, text: &str, byte: usize) -> usize {
        self.code_points += text.get(self.byte..byte).map_or(0, |part| part.chars().count());
        self.byte = byte;
        self.code_points
    }
}

fn describe(captures: &Captures<'_>, text: &str, position: &mut Position) -> RawDocumentBuf {
    let mut made = RawDocumentBuf::new();
    if let Some(all) = captures.get(0) {
        made.append(cstr!("match"), all.as_str());
        let at = position.at(text, all.start());
        made.append(cstr!("idx"), i32::try_from(at).unwrap_or(i32::MAX));
    }
    let mut groups = RawArrayBuf::new();
    for group in captures.iter().skip(1) {
        groups.push(group.map_or(RawBsonRef::Null, |group| RawBsonRef::String(group.as_str())));
    }
    made.append(cstr!("captures"), groups);
    made
}

/// Compiles a pattern; nothing if it is null.
pub(super) fn compile(
    name: &str,
    pattern: &Value<'_>,
    options: &Value<'_>,
) -> Result<Option<Pattern>, DocumentError> {
    let fail = |code: i32, text: String| Err(DocumentError::new(code, text));
    let given = match options.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => "",
        Some(RawBsonRef::String(given)) => given,
        _ => return fail(51106, format!("{name} needs 'options' to be of type string")),
    };
    match pattern.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
        Some(RawBsonRef::String(source)) => Pattern::new(source, given).map(Some),
        Some(RawBsonRef::RegularExpression(regex)) => {
            let own = regex.options.as_str();
            if !own.is_empty() && !given.is_empty() {
                let text = format!(
                    "{name}: found regex option(s) specified in both 'regex' and 'option' fields"
                );
                return fail(51107, text);
            }
            let options = if own.is_empty() { given } else { own };
            Pattern::new(regex.pattern.as_str(), options).map(Some)
        }
        _ => fail(51105, format!("{name} needs 'regex' to be of type string or regex")),
    }
}
