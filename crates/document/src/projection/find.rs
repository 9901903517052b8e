//! The operators that only projections of `find` have: `$slice`, `$elemMatch` and the positional `$`. They work
//! on the result of the inclusions and exclusions beside them.

use super::parse::{Maker, fail};
use super::shape::{Child, Shape};
use crate::error::{COMMAND_NOT_SUPPORTED, DocumentError};
use crate::expression::{parse_path, slice_range};
use crate::filter::Filter;
use crate::number::Number;
use crate::raw::{append, elements, fields};
use crate::validate::validate;
use crate::value::shown;
use crate::variables::Variables;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use remora_layout::limits::{MAX_DOCUMENT_DEPTH, MAX_FILTER_PATTERNS};

type Parsed<T> = Result<T, DocumentError>;

/// What happens to the array at a path.
#[derive(Debug, Clone)]
enum Operator {
    Slice { skip: Option<i64>, count: i64 },
    ElemMatch(Filter),
    Positional,
}

/// Operators with their paths.
#[derive(Debug, Clone, Default)]
pub(super) struct Operators(Vec<(Vec<String>, Operator)>);

/// Each operator reads and writes the document once.
const MAX_OPERATORS: usize = MAX_FILTER_PATTERNS;

pub(super) fn parse(projection: &RawDocument, variables: &Variables) -> Parsed<(Shape, Operators)> {
    validate(projection).map_err(DocumentError::malformed)?;
    let (mut maker, mut found) = (Maker::new(variables), Found::default());
    for (path, value) in fields(projection) {
        found.field(&mut maker, path, value)?;
    }
    let Found { operators, has_slice, has_elem_match, has_positional } = found;
    if has_positional && has_elem_match {
        return fail(31255, "Cannot specify positional operator and $elemMatch.");
    }
    if has_positional && maker.is_inclusion == Some(false) {
        return fail(31395, "positional projection cannot be used with exclusion");
    }
    let includes = (has_elem_match && !has_slice) || has_positional;
    let is_inclusion = match maker.is_inclusion {
        Some(is_inclusion) => is_inclusion,
        None if has_elem_match || has_positional || has_slice => includes || maker.id == Some(true),
        None => maker.id.unwrap_or(false),
    };
    maker.is_inclusion = Some(is_inclusion);
    if is_inclusion {
        for (names, _) in &operators {
            maker.add(&names.join("."), Child::Include)?;
        }
    }
    Ok((maker.done(is_inclusion), Operators(operators)))
}

#[derive(Default)]
struct Found {
    operators: Vec<(Vec<String>, Operator)>,
    has_slice: bool,
    has_elem_match: bool,
    has_positional: bool,
}

impl Found {
    fn field(&mut self, maker: &mut Maker<'_>, path: &str, value: RawBsonRef<'_>) -> Parsed<()> {
        if let Some(path) = path.strip_suffix(".$") {
            return self.positional(path, value);
        }
        if path.split('.').any(|name| name == "$") {
            let text = format!(
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent. Found: {path}"
            );
            return fail(31394, text);
        }
        if let RawBsonRef::Document(document) = value
            && let Some((operator, argument)) = fields(document).next()
        {
            match operator {
                "$elemMatch" => return self.elem_match(path, argument),
                "$slice" if is_find_slice(argument) => {
                    self.has_slice = true;
                    return self.push(path, slice(argument)?);
                }
                "$meta" => {
                    let text = "$meta is not supported: queries have no such metadata";
                    return fail(COMMAND_NOT_SUPPORTED, text);
                }
                _ => {}
            }
        }
        maker.field(path, value)
    }

    fn push(&mut self, path: &str, operator: Operator) -> Parsed<()> {
        if self.operators.len() == MAX_OPERATORS {
            let text = format!("a projection has more than {MAX_OPERATORS} operators on arrays");
            return Err(DocumentError::bad_value(text));
        }
        let names = parse_path(path)?;
        if self.operators.iter().any(|(known, _)| *known == names) {
            return fail(31250, format!("Path collision at {path}"));
        }
        self.operators.push((names, operator));
        Ok(())
    }

    fn positional(&mut self, path: &str, value: RawBsonRef<'_>) -> Parsed<()> {
        if matches!(value, RawBsonRef::Document(_)) {
            return fail(31271, "positional projection cannot be used with a value");
        }
        if !crate::value::is_true(value) {
            return fail(31395, "positional projection cannot be used with exclusion");
        }
        if self.has_positional {
            return fail(31276, "Cannot specify more than one positional projection per query.");
        }
        self.has_positional = true;
        self.push(path, Operator::Positional)
    }

    fn elem_match(&mut self, path: &str, argument: RawBsonRef<'_>) -> Parsed<()> {
        if path.contains('.') {
            return fail(31275, "Cannot use $elemMatch projection on a nested field.");
        }
        let RawBsonRef::Document(argument) = argument else {
            let text = format!(
                "elemMatch: Invalid argument, object required, but got {}",
                crate::filter::name_of_type(argument.element_type())
            );
            return fail(31274, text);
        };
        self.has_elem_match = true;
        let mut condition = RawDocumentBuf::new();
        condition.append(cstr!("$elemMatch"), argument);
        let mut filter = RawDocumentBuf::new();
        filter.append(ELEMENT, condition);
        self.push(path, Operator::ElemMatch(Filter::parse(&filter)?))
    }
}

/// The field that has an element while it is matched.
const ELEMENT: &bson::raw::CStr = cstr!("e");

/// Whether the argument of `$slice` is that of `find`: a number or two. Else it is an expression's.
fn is_find_slice(argument: RawBsonRef<'_>) -> bool {
    match argument {
        RawBsonRef::Array(array) => {
            elements(array).next().is_some_and(|first| Number::of(first).is_some())
        }
        _ => Number::of(argument).is_some(),
    }
}

fn slice(argument: RawBsonRef<'_>) -> Parsed<Operator> {
    let number = |value: RawBsonRef<'_>| {
        let (whole, _) = Number::of(value).and_then(Number::integer_part)?;
        Some(whole.clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
    };
    let wrong = || {
        let text = format!(
            "Invalid $slice syntax. The given syntax {{ $slice: {} }} did not match the find() syntax because :: Location31272: $slice array argument should be of form [skip, limit]",
            shown(argument)
        );
        DocumentError::new(28667, text)
    };
    let RawBsonRef::Array(array) = argument else {
        let count = number(argument).ok_or_else(wrong)?;
        return Ok(Operator::Slice { skip: None, count });
    };
    let mut parts = elements(array);
    let (Some(skip), Some(count), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong());
    };
    let (skip, count) = (number(skip).ok_or_else(wrong)?, number(count).ok_or_else(wrong)?);
    match count {
        1.. => Ok(Operator::Slice { skip: Some(skip), count }),
        _ => {
            let text = format!(
                "Invalid $slice syntax. The given syntax {{ $slice: {} }} did not match the find() syntax because :: Location31257: $slice limit must be positive",
                shown(argument)
            );
            fail(28667, text)
        }
    }
}

impl Operators {
    pub(super) fn is_positional(&self) -> bool {
        self.0.iter().any(|(_, operator)| matches!(operator, Operator::Positional))
    }

    pub(super) fn apply(
        &self,
        mut document: RawDocumentBuf,
        found: Option<usize>,
    ) -> Parsed<RawDocumentBuf> {
        for (names, operator) in &self.0 {
            document = Rewrite { operator, found }.document(names, &document, 1)?;
        }
        Ok(document)
    }
}

struct Rewrite<'o> {
    operator: &'o Operator,
    found: Option<usize>,
}

impl Rewrite<'_> {
    fn document(
        &self,
        names: &[String],
        document: &RawDocument,
        depth: usize,
    ) -> Parsed<RawDocumentBuf> {
        let mut made = RawDocumentBuf::new();
        for (name, value) in fields(document) {
            if names.first().is_some_and(|wanted| wanted == name) {
                self.value(&names[1..], value, depth, &mut |value| append(&mut made, name, value))?;
            } else {
                append(&mut made, name, value)?;
            }
        }
        Ok(made)
    }

    /// Rewrites the value that the rest of a path begins at.
    fn value(
        &self,
        names: &[String],
        value: RawBsonRef<'_>,
        depth: usize,
        see: &mut dyn FnMut(RawBsonRef<'_>) -> Parsed<()>,
    ) -> Parsed<()> {
        if depth >= MAX_DOCUMENT_DEPTH {
            return see(value);
        }
        match (value, self.operator) {
            // The first array on the way is the one in which the filter found an element.
            (RawBsonRef::Array(array), Operator::Positional) => {
                see(RawBsonRef::Array(&self.positional(array)?))
            }
            (RawBsonRef::Array(array), Operator::Slice { skip, count }) if names.is_empty() => {
                let range = slice_range(elements(array).count(), *skip, *count);
                let mut made = RawArrayBuf::new();
                elements(array).take(range.end).skip(range.start).for_each(|of| made.push(of));
                see(RawBsonRef::Array(&made))
            }
            (_, Operator::ElemMatch(filter)) => match value {
                RawBsonRef::Array(array) => match elem_match(filter, array) {
                    Some(made) => see(RawBsonRef::Array(&made)),
                    None => Ok(()),
                },
                _ => Ok(()),
            },
            (RawBsonRef::Document(inner), _) if !names.is_empty() => {
                see(RawBsonRef::Document(&self.document(names, inner, depth + 1)?))
            }
            (RawBsonRef::Array(array), _) => {
                let mut made = RawArrayBuf::new();
                for element in elements(array) {
                    self.value(names, element, depth + 1, &mut |value| {
                        made.push(value);
                        Ok(())
                    })?;
                }
                see(RawBsonRef::Array(&made))
            }
            _ => see(value),
        }
    }

    fn positional(&self, array: &RawArray) -> Parsed<RawArrayBuf> {
        let Some(at) = self.found else {
            let text = "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching element in the array";
            return fail(51246, text);
        };
        let Some(element) = elements(array).nth(at) else {
            let text = "Executor error during find command :: caused by :: positional operator '.$' element mismatch";
            return fail(51247, text);
        };
        let mut made = RawArrayBuf::new();
        made.push(element);
        Ok(made)
    }
}

/// The first element that matches, alone in an array.
fn elem_match(filter: &Filter, array: &RawArray) -> Option<RawArrayBuf> {
    elements(array).find_map(|element| {
        let mut alone = RawArrayBuf::new();
        alone.push(element);
        let mut document = RawDocumentBuf::new();
        document.append(ELEMENT, &alone);
        filter.matches(&document).then_some(alone)
    })
}
