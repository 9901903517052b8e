//! The operators on one field.

use super::array::{Pull, Push};
use super::bits::Bits;
use super::context::{Beside, UpdateContext};
use super::number::{Arithmetic, NumberError};
use super::path::UpdatePath;
use super::same::is_identical;
use crate::error::{
    BAD_VALUE, COMMAND_NOT_SUPPORTED, DocumentError, FAILED_TO_PARSE, TYPE_MISMATCH,
};
use crate::order::compare_owned;
use crate::type_name;
use bson::{Bson, DateTime, Timestamp};
use std::cmp::Ordering;

/// Whether an operator has made a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Applied {
    Changed,
    Same,
}

impl From<bool> for Applied {
    fn from(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Same }
    }
}

/// An operator with its argument.
#[derive(Clone, Debug)]
pub(super) enum Operator {
    Set(Bson),
    SetOnInsert(Bson),
    Unset,
    Compute(Arithmetic, Bson),
    /// `$min` and `$max`: takes the argument if it compares so with the value.
    Extreme(Ordering, Bson),
    Bit(Bits),
    /// True: a timestamp.
    CurrentDate(bool),
    Push(Push),
    /// `$addToSet`: these, if no equal one is there.
    AddToSet(Vec<Bson>),
    /// `$pop`: the first one, or the last one.
    Pop {
        first: bool,
    },
    Pull(Pull),
    /// The value of this field goes to another path.
    RenamedFrom(UpdatePath),
    /// The value of another field comes here.
    RenamedTo,
}

impl Operator {
    /// What `{NAME: {PATH: ARGUMENT}}` says, as operators of paths.
    ///
    /// # Errors
    /// As MongoDB.
    pub fn parse(
        name: &str,
        path: &str,
        argument: &Bson,
    ) -> Result<Vec<(UpdatePath, Self)>, DocumentError> {
        let operator = match name {
            "$set" => Self::Set(argument.clone()),
            "$setOnInsert" => Self::SetOnInsert(argument.clone()),
            "$unset" => Self::Unset,
            "$inc" => Self::compute(Arithmetic::Add, path, argument)?,
            "$mul" => Self::compute(Arithmetic::Multiply, path, argument)?,
            "$min" => Self::Extreme(Ordering::Less, argument.clone()),
            "$max" => Self::Extreme(Ordering::Greater, argument.clone()),
            "$bit" => Self::Bit(Bits::parse(argument)?),
            "$currentDate" => Self::CurrentDate(is_timestamp(argument)?),
            "$push" => Self::Push(Push::parse(path, argument)?),
            "$addToSet" => Self::AddToSet(each_of(argument)?),
            "$pop" => Self::Pop { first: is_first(argument)? },
            "$pull" => Self::Pull(Pull::parse(argument)?),
            "$pullAll" => Self::Pull(Pull::all(argument)?),
            "$rename" => return rename(path, argument),
            _ => {
                let text = format!(
                    "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array"
                );
                return Err(DocumentError::new(FAILED_TO_PARSE, text));
            }
        };
        Ok(vec![(UpdatePath::parse(path)?, operator)])
    }

    fn compute(how: Arithmetic, path: &str, argument: &Bson) -> Result<Self, DocumentError> {
        let is_number = matches!(
            argument,
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)
        );
        if is_number {
            return Ok(Self::Compute(how, argument.clone()));
        }
        let what = match how {
            Arithmetic::Add => "increment",
            Arithmetic::Multiply => "multiply",
        };
        let text = format!("Cannot {what} with non-numeric argument: {{{path}: {argument}}}");
        Err(DocumentError::new(TYPE_MISMATCH, text))
    }

    /// Whether it makes a value where there is none.
    pub const fn creates(&self, context: &UpdateContext) -> bool {
        match self {
            Self::SetOnInsert(_) => context.is_insert,
            Self::Unset
            | Self::Pop { .. }
            | Self::Pull(_)
            | Self::RenamedFrom(_)
            | Self::RenamedTo => false,
            _ => true,
        }
    }

    /// Whether a value that cannot have such fields is an error for it: only `$unset` passes over one.
    pub const fn needs_fields(&self, context: &UpdateContext) -> bool {
        self.creates(context) || matches!(self, Self::Pop { .. } | Self::Pull(_))
    }

    /// The value where there is none.
    ///
    /// # Errors
    /// As [`Operator::apply`].
    pub fn make(
        &self,
        (path, beside, id): (&str, Beside<'_>, &Option<Bson>),
    ) -> Result<Bson, DocumentError> {
        Ok(match self {
            Self::Compute(how, argument) => how.of_nothing(argument),
            Self::Extreme(_, argument) => argument.clone(),
            Self::Bit(bits) => bits.of(&Bson::Int32(0)).unwrap_or(Bson::Null),
            Self::Push(_) | Self::AddToSet(_) => {
                let mut array = Bson::Array(Vec::new());
                self.apply(&mut array, (path, beside, id))?;
                array
            }
            _ => {
                let mut made = Bson::Null;
                self.apply(&mut made, (path, beside, id))?;
                made
            }
        })
    }

    /// Changes a value that is there.
    ///
    /// # Errors
    /// As MongoDB: the value has another type, or the result is too large.
    pub fn apply(
        &self,
        value: &mut Bson,
        (path, (context, _), id): (&str, Beside<'_>, &Option<Bson>),
    ) -> Result<Applied, DocumentError> {
        let new = match self {
            Self::Set(new) => new.clone(),
            Self::SetOnInsert(new) if context.is_insert => new.clone(),
            Self::SetOnInsert(_) | Self::Unset | Self::RenamedFrom(_) | Self::RenamedTo => {
                return Ok(Applied::Same);
            }
            Self::Compute(how, argument) => computed(*how, (value, argument), (path, id))?,
            Self::Extreme(wanted, argument) => match compare_owned(argument, value) {
                order if order == *wanted => argument.clone(),
                _ => return Ok(Applied::Same),
            },
            Self::Bit(bits) => bits.of(value).ok_or_else(|| {
                let text = format!(
                    "Cannot apply $bit to a value of non-integral type.{{_id: {}}} has the field {path} of non-integer type {}",
                    id.as_ref().map_or_else(|| "no id".into(), Bson::to_string),
                    type_name(value)
                );
                DocumentError::new(BAD_VALUE, text)
            })?,
            Self::CurrentDate(true) => Bson::Timestamp(Timestamp {
                time: u32::try_from(context.now_ms / 1000).unwrap_or(u32::MAX),
                increment: 1,
            }),
            Self::CurrentDate(false) => DateTime::from_millis(context.now_ms).into(),
            Self::Push(push) => return push.apply(self.array_of(value, (path, id))?).map(Into::into),
            Self::AddToSet(items) => return Ok(add_to_set(self.array_of(value, (path, id))?, items)),
            Self::Pop { first } => return Ok(pop(self.array_of(value, (path, id))?, *first)),
            Self::Pull(pull) => return pull.apply(self.array_of(value, (path, id))?).map(Into::into),
        };
        let changed = !is_identical(&new, value);
        *value = new;
        Ok(changed.into())
    }

    /// The array that a value must be.
    fn array_of<'a>(
        &self,
        value: &'a mut Bson,
        (path, id): (&str, &Option<Bson>),
    ) -> Result<&'a mut Vec<Bson>, DocumentError> {
        let name = type_name(value);
        let Bson::Array(array) = value else {
            let (code, text) = match self {
                Self::Pop { .. } => {
                    let text =
                        format!("Path '{path}' contains an element of non-array type '{name}'");
                    (TYPE_MISMATCH, text)
                }
                Self::Pull(_) => (BAD_VALUE, "Cannot apply $pull to a non-array value".to_owned()),
                Self::AddToSet(_) => {
                    let text = format!(
                        "Cannot apply $addToSet to non-array field. Field named '{path}' has non-array type {name}"
                    );
                    (BAD_VALUE, text)
                }
                _ => {
                    let id = id.as_ref().map_or_else(|| "no id".into(), Bson::to_string);
                    let text = format!(
                        "The field '{path}' must be an array but is of type {name} in document {{_id: {id}}}"
                    );
                    (BAD_VALUE, text)
                }
            };
            return Err(DocumentError::new(code, text));
        };
        Ok(array)
    }
}

/// The old name and the new one: the value goes from the one to the other before all else is done.
fn rename(path: &str, argument: &Bson) -> Result<Vec<(UpdatePath, Operator)>, DocumentError> {
    let bad = |text: String| Err(DocumentError::new(BAD_VALUE, text));
    let Bson::String(to) = argument else {
        return bad(format!("The 'to' field for $rename must be a string: {path}: {argument}"));
    };
    let (from, to) = (UpdatePath::parse(path)?, UpdatePath::parse(to)?);
    for (which, of) in [("source", &from), ("destination", &to)] {
        if !of.is_plain() {
            return bad(format!("The {which} field for $rename may not be dynamic: {}", of.text));
        }
    }
    if from == to {
        return bad(format!(
            "The source and target field for $rename must differ: {path}: {argument}"
        ));
    }
    let source = Operator::RenamedFrom(to.clone());
    Ok(vec![(from, source), (to, Operator::RenamedTo)])
}

fn computed(
    how: Arithmetic,
    (value, argument): (&Bson, &Bson),
    (path, id): (&str, &Option<Bson>),
) -> Result<Bson, DocumentError> {
    let name = match how {
        Arithmetic::Add => "$inc",
        Arithmetic::Multiply => "$mul",
    };
    how.of(value, argument).map_err(|error| match error {
        NumberError::NoNumber => {
            let what = format!("Cannot apply {name} to a value of non-numeric type");
            of_type(&what, (path, value, id))
        }
        NumberError::TooLarge => {
            let id = id.as_ref().map_or_else(|| "no id".into(), Bson::to_string);
            let text = format!(
                "Failed to apply {name} operations to current value ({value}) for document {{_id: {id}}}"
            );
            DocumentError::new(BAD_VALUE, text)
        }
        NumberError::Decimal => {
            let text = format!("{name} with a Decimal128 is not supported");
            DocumentError::new(COMMAND_NOT_SUPPORTED, text)
        }
    })
}

fn add_to_set(array: &mut Vec<Bson>, items: &[Bson]) -> Applied {
    let before = array.len();
    for item in items {
        if !array.iter().any(|of| compare_owned(of, item).is_eq()) {
            array.push(item.clone());
        }
    }
    (array.len() > before).into()
}

fn pop(array: &mut Vec<Bson>, first: bool) -> Applied {
    match (array.is_empty(), first) {
        (true, _) => return Applied::Same,
        (false, true) => drop(array.remove(0)),
        (false, false) => drop(array.pop()),
    }
    Applied::Changed
}

/// The items of `{$each: [...]}`, or the one item.
fn each_of(argument: &Bson) -> Result<Vec<Bson>, DocumentError> {
    let Some(each) =
        argument.as_document().filter(|of| of.keys().next().is_some_and(|k| k == "$each"))
    else {
        return Ok(vec![argument.clone()]);
    };
    if let Some(other) = each.keys().nth(1) {
        let text = format!("Found unexpected fields after $each in $addToSet: {other}");
        return Err(DocumentError::new(BAD_VALUE, text));
    }
    match each.get("$each") {
        Some(Bson::Array(items)) => Ok(items.clone()),
        other => {
            let text = format!(
                "The argument to $each in $addToSet must be an array but it was of type {}",
                other.map_or("missing", type_name)
            );
            Err(DocumentError::new(TYPE_MISMATCH, text))
        }
    }
}

fn is_first(argument: &Bson) -> Result<bool, DocumentError> {
    match argument {
        Bson::Int32(-1) | Bson::Int64(-1) => Ok(true),
        Bson::Int32(1) | Bson::Int64(1) => Ok(false),
        Bson::Double(of) if *of == -1.0 => Ok(true),
        Bson::Double(of) if *of == 1.0 => Ok(false),
        other => {
            let text = format!("$pop expects 1 or -1, found: {other}");
            Err(DocumentError::new(FAILED_TO_PARSE, text))
        }
    }
}

/// Whether `$currentDate` is to give a timestamp.
fn is_timestamp(argument: &Bson) -> Result<bool, DocumentError> {
    let bad = |text: String| Err(DocumentError::new(BAD_VALUE, text));
    match argument {
        Bson::Boolean(_) => Ok(false),
        Bson::Document(of) => match (of.len(), of.get_str("$type")) {
            (1, Ok("date")) => Ok(false),
            (1, Ok("timestamp")) => Ok(true),
            _ => bad(
                "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}".to_owned(),
            ),
        },
        other => bad(format!(
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({{$type: 'timestamp/date'}}).",
            type_name(other)
        )),
    }
}

/// `{_id: ...}` and a field's type, as errors of operators show them.
fn of_type(what: &str, (path, value, id): (&str, &Bson, &Option<Bson>)) -> DocumentError {
    let id = id.as_ref().map_or_else(|| "no id".to_owned(), Bson::to_string);
    let field = path.rsplit('.').next().unwrap_or_default();
    let text = format!(
        "{what}. {{_id: {id}}} has the field '{field}' of non-numeric type {}",
        type_name(value)
    );
    DocumentError::new(TYPE_MISMATCH, text)
}
