//! `$push` and `$pull`, `$pullAll`.

use super::context::matches_value;
use super::same::is_identical;
use crate::error::{BAD_VALUE, DocumentError};
use crate::filter::Filter;
use crate::order::compare_owned;
use crate::sort::SortKeys;
use crate::type_name;
use bson::{Bson, Document, RawDocumentBuf};
use std::cmp::Ordering;

/// `$push` with its modifiers.
#[derive(Clone, Debug)]
pub(super) struct Push {
    items: Vec<Bson>,
    /// Where they go: from the start, or below 0 from the end; at the end without.
    position: Option<i64>,
    /// How many are left: the first ones, or below 0 the last ones.
    slice: Option<i64>,
    sort: Option<Sort>,
}

#[derive(Clone, Debug)]
enum Sort {
    /// By the elements themselves.
    Whole { descending: bool },
    /// By fields of theirs.
    Fields(SortKeys),
}

impl Push {
    /// # Errors
    /// As MongoDB: an unknown modifier, or one with an argument of another type.
    pub fn parse(path: &str, argument: &Bson) -> Result<Self, DocumentError> {
        let plain = Self { items: vec![argument.clone()], position: None, slice: None, sort: None };
        let Some(of) = argument.as_document().filter(|of| of.contains_key("$each")) else {
            return Ok(plain);
        };
        let mut push = Self { items: Vec::new(), ..plain };
        let bad = |text: String| Err(DocumentError::new(BAD_VALUE, text));
        for (name, value) in of {
            match (name.as_str(), value) {
                ("$each", Bson::Array(items)) => push.items.clone_from(items),
                ("$each", other) => {
                    return bad(format!(
                        "The argument to $each in $push must be an array but it was of type: {}",
                        type_name(other)
                    ));
                }
                ("$position", value) => push.position = Some(integer("$position", value)?),
                ("$slice", value) => push.slice = Some(integer("$slice", value)?),
                ("$sort", value) => push.sort = Some(Sort::parse(value)?),
                _ => {
                    return bad(format!(
                        "Unrecognized clause in $push: {name} of '{path}': $each, $position, $slice and $sort are known"
                    ));
                }
            }
        }
        Ok(push)
    }

    /// Whether that made a difference.
    ///
    /// # Errors
    /// None of these now; it is as its kin.
    pub fn apply(&self, array: &mut Vec<Bson>) -> Result<bool, DocumentError> {
        let before = array.clone();
        let length = array.len();
        let at = match self.position {
            None => length,
            Some(from) if from >= 0 => length.min(from as usize),
            Some(back) => length.saturating_sub(back.unsigned_abs() as usize),
        };
        array.splice(at..at, self.items.iter().cloned());
        if let Some(sort) = &self.sort {
            sort.apply(array);
        }
        match self.slice {
            None => {}
            Some(most) if most >= 0 => array.truncate(most as usize),
            Some(most) => {
                let gone = array.len().saturating_sub(most.unsigned_abs() as usize);
                array.drain(..gone);
            }
        }
        let is_same = array.len() == before.len()
            && array.iter().zip(&before).all(|(one, other)| is_identical(one, other));
        Ok(!is_same)
    }
}

fn integer(name: &str, value: &Bson) -> Result<i64, DocumentError> {
    match *value {
        Bson::Int32(of) => Ok(of.into()),
        Bson::Int64(of) => Ok(of),
        Bson::Double(of) if of.fract() == 0.0 && of.abs() < 1e18 => Ok(of as i64),
        _ => {
            let text = format!(
                "The value for {name} must be an integer value but was given type: {}",
                type_name(value)
            );
            Err(DocumentError::new(BAD_VALUE, text))
        }
    }
}

impl Sort {
    fn parse(value: &Bson) -> Result<Self, DocumentError> {
        match value {
            Bson::Document(fields) => {
                let fields = RawDocumentBuf::try_from(fields).map_err(DocumentError::malformed)?;
                Ok(Self::Fields(SortKeys::parse(&fields)?))
            }
            value => match integer("$sort", value)? {
                1 => Ok(Self::Whole { descending: false }),
                -1 => Ok(Self::Whole { descending: true }),
                _ => {
                    let text = "The $sort element value must be either 1 or -1".to_owned();
                    Err(DocumentError::new(BAD_VALUE, text))
                }
            },
        }
    }

    fn apply(&self, array: &mut [Bson]) {
        match self {
            Self::Whole { descending: false } => array.sort_by(compare_owned),
            Self::Whole { descending: true } => {
                array.sort_by(|one, other| compare_owned(other, one))
            }
            Self::Fields(keys) => {
                let raw = |of: &Bson| match of {
                    Bson::Document(of) => RawDocumentBuf::try_from(of).unwrap_or_default(),
                    _ => RawDocumentBuf::new(),
                };
                array.sort_by_cached_key(|of| ByKeys(raw(of), keys));
            }
        }
    }
}

/// A document in the order of some of its fields.
struct ByKeys<'a>(RawDocumentBuf, &'a SortKeys);

impl Ord for ByKeys<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.1.compare(&self.0, &other.0)
    }
}

impl PartialOrd for ByKeys<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKeys<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByKeys<'_> {}

/// `$pull` and `$pullAll`: which elements go.
#[derive(Clone, Debug)]
pub(super) enum Pull {
    /// Those equal to one of these.
    Equal(Vec<Bson>),
    /// Documents that meet a filter about their fields.
    Documents(Filter),
    /// Elements that meet a filter about the field `VALUE_FIELD`, which they are.
    Values(Filter),
}

/// The name under which an element meets a condition.
const VALUE_FIELD: &str = "element";

impl Pull {
    /// # Errors
    /// As a filter.
    pub fn parse(argument: &Bson) -> Result<Self, DocumentError> {
        let raw = |document: &Document| {
            RawDocumentBuf::try_from(document).map_err(DocumentError::malformed)
        };
        match argument {
            Bson::Document(of) if of.keys().any(|name| name.starts_with('$')) => {
                let mut condition = Document::new();
                condition.insert(VALUE_FIELD, of.clone());
                Ok(Self::Values(Filter::parse(&raw(&condition)?)?))
            }
            Bson::Document(of) => Ok(Self::Documents(Filter::parse(&raw(of)?)?)),
            Bson::RegularExpression(_) => {
                let mut condition = Document::new();
                condition.insert(VALUE_FIELD, argument.clone());
                Ok(Self::Values(Filter::parse(&raw(&condition)?)?))
            }
            other => Ok(Self::Equal(vec![other.clone()])),
        }
    }

    /// # Errors
    /// The argument is no array.
    pub fn all(argument: &Bson) -> Result<Self, DocumentError> {
        match argument {
            Bson::Array(of) => Ok(Self::Equal(of.clone())),
            other => {
                let text = format!(
                    "$pullAll requires an array argument but was given a {}",
                    type_name(other)
                );
                Err(DocumentError::new(BAD_VALUE, text))
            }
        }
    }

    fn takes(&self, element: &Bson) -> Result<bool, DocumentError> {
        match (self, element) {
            (Self::Equal(of), element) => {
                Ok(of.iter().any(|of| compare_owned(of, element).is_eq()))
            }
            (Self::Documents(filter), Bson::Document(element)) => {
                let raw = RawDocumentBuf::try_from(element).map_err(DocumentError::malformed)?;
                Ok(filter.matches(&raw))
            }
            (Self::Documents(_), _) => Ok(false),
            (Self::Values(filter), element) => matches_value(filter, VALUE_FIELD, element),
        }
    }

    /// Whether some have gone.
    ///
    /// # Errors
    /// An element is no valid BSON.
    pub fn apply(&self, array: &mut Vec<Bson>) -> Result<bool, DocumentError> {
        let taken: Result<Vec<bool>, _> = array.iter().map(|of| self.takes(of)).collect();
        let taken = taken?;
        let mut at = taken.iter();
        let before = array.len();
        array.retain(|_| at.next().is_some_and(|taken| !taken));
        Ok(array.len() < before)
    }
}
