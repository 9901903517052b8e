//! Paths of updates: fields, positions of arrays, and `$`, `$[]`, `$[identifier]`.

use crate::error::{BAD_VALUE, DOLLAR_PREFIXED_FIELD_NAME, DocumentError, EMPTY_FIELD_NAME};
use remora_layout::limits::MAX_DOCUMENT_DEPTH;
use std::cmp::Ordering;

/// One part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A field, or the position of an array's element.
    Field(FieldName),
    /// `$`: the element that the filter has found.
    Found,
    /// `$[]`: all elements; `$[identifier]`: those that a filter meets.
    Elements(Option<String>),
}

/// A field's name. Those that are numbers are ordered as numbers, and stand before the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FieldName(pub String);

impl FieldName {
    /// The position that it is of an array.
    pub fn position(&self) -> Option<usize> {
        let is_number = self.0 == "0" || !self.0.starts_with('0');
        let is_digits = !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && is_digits).then(|| self.0.parse().ok()).flatten()
    }
}

impl Ord for FieldName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.position(), other.position()) {
            (Some(one), Some(other)) => one.cmp(&other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for FieldName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A path, with its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UpdatePath {
    pub text: String,
    pub parts: Vec<Part>,
}

impl UpdatePath {
    /// # Errors
    /// An empty part, `$` at the beginning or twice, another name that begins with `$`, or too many parts.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let bad = |text: String| DocumentError::new(BAD_VALUE, text);
        if text.is_empty() {
            let text = "An empty update path is not valid.".to_owned();
            return Err(DocumentError::new(EMPTY_FIELD_NAME, text));
        }
        // No field's name holds one; the new name of $rename comes as a string, which may.
        if text.contains('\0') {
            return Err(bad("a path of an update cannot contain an embedded null byte".to_owned()));
        }
        let mut parts = Vec::new();
        for part in text.split('.') {
            if parts.len() == MAX_DOCUMENT_DEPTH {
                return Err(bad(format!("a path has more than {MAX_DOCUMENT_DEPTH} parts")));
            }
            parts.push(match part {
                "" => {
                    let text = format!(
                        "The update path '{text}' contains an empty field name, which is not allowed."
                    );
                    return Err(DocumentError::new(EMPTY_FIELD_NAME, text));
                }
                "$" if parts.is_empty() => {
                    return Err(bad(format!(
                        "Cannot have positional (i.e. '$') element in the first position in path '{text}'"
                    )));
                }
                "$" if parts.contains(&Part::Found) => {
                    return Err(bad(format!(
                        "Too many positional (i.e. '$') elements found in path '{text}'"
                    )));
                }
                "$" => Part::Found,
                _ if part.starts_with("$[") && part.ends_with(']') => {
                    if parts.is_empty() {
                        return Err(bad(format!(
                            "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{text}'"
                        )));
                    }
                    let name = &part[2..part.len() - 1];
                    Part::Elements((!name.is_empty()).then(|| name.to_owned()))
                }
                _ if part.starts_with('$') => {
                    let text = format!(
                        "The dollar ($) prefixed field '{part}' in '{text}' is not valid for storage."
                    );
                    return Err(DocumentError::new(DOLLAR_PREFIXED_FIELD_NAME, text));
                }
                _ => Part::Field(FieldName(part.to_owned())),
            });
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// What stands before the first dot.
    pub fn first_of(text: &str) -> &str {
        text.split('.').next().unwrap_or_default()
    }

    /// The identifiers of its array filters.
    pub fn identifiers(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Elements(name) => name.as_deref(),
            _ => None,
        })
    }

    /// Whether it names one field, whatever the document.
    pub fn is_plain(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Field(_)))
    }
}
