//! `$unwind`: a document for each element of an array.

use super::step::Poll;
use crate::error::DocumentError;
use crate::expression::parse_path;
use crate::raw::{elements, fields};
use crate::set_path::{get_path, set_path};
use crate::value::byte_length;
use bson::RawBson;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

/// The stage, and the array that it is at.
#[derive(Debug, Clone)]
pub(super) struct Unwind {
    path: Vec<String>,
    index: Option<Vec<String>>,
    /// Whether documents without elements stay.
    preserves: bool,
    current: Option<Current>,
}

/// An array of which some elements have become documents.
#[derive(Debug, Clone)]
struct Current {
    /// The document with null in place of the array.
    without: RawDocumentBuf,
    elements: std::vec::IntoIter<RawBson>,
    at: i64,
}

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

impl Unwind {
    pub(super) fn parse(argument: RawBsonRef<'_>) -> Result<Unwind, DocumentError> {
        let (mut path, mut index, mut preserves) = (None, None, false);
        match argument {
            RawBsonRef::String(text) => path = Some(text),
            RawBsonRef::Document(argument) => {
                for (name, value) in fields(argument) {
                    match (name, value) {
                        ("path", RawBsonRef::String(text)) => path = Some(text),
                        ("path", _) => {
                            return fail(28808, "expected a string as the path for $unwind stage");
                        }
                        ("includeArrayIndex", RawBsonRef::String(text)) if !text.is_empty() => {
                            if text.starts_with('$') {
                                let text = format!(
                                    "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {text}"
                                );
                                return fail(28822, text);
                            }
                            index = Some(parse_path(text)?);
                        }
                        ("includeArrayIndex", _) => {
                            return fail(
                                28810,
                                "expected a non-empty string for the includeArrayIndex option to $unwind stage",
                            );
                        }
                        ("preserveNullAndEmptyArrays", RawBsonRef::Boolean(value)) => {
                            preserves = value;
                        }
                        ("preserveNullAndEmptyArrays", _) => {
                            return fail(
                                28809,
                                "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage",
                            );
                        }
                        _ => {
                            let text = format!("unrecognized option to $unwind stage: {name}");
                            return fail(28811, text);
                        }
                    }
                }
            }
            _ => {
                return fail(
                    15981,
                    "expected either a string or an object as specification for $unwind stage",
                );
            }
        }
        match path {
            None => fail(28812, "no path specified to $unwind stage"),
            Some(path) => match path.strip_prefix('$') {
                Some(path) => {
                    Ok(Unwind { path: parse_path(path)?, index, preserves, current: None })
                }
                None => fail(
                    28818,
                    format!("path option to $unwind stage should be prefixed with a '$': {path}"),
                ),
            },
        }
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |current| {
            let left = current.elements.as_slice().iter();
            let left = left.map(|element| byte_length(element.as_raw_bson_ref()) + 8);
            current.without.as_bytes().len() + left.sum::<usize>()
        })
    }

    pub(super) fn poll(
        &mut self,
        input: Option<RawDocumentBuf>,
        has_ended: bool,
    ) -> Result<Poll, DocumentError> {
        if let Some(document) = input {
            return Ok(self.begin(document)?.map_or(Poll::Moved, Poll::Ready));
        }
        if let Some(current) = &mut self.current {
            if let Some(element) = current.elements.next() {
                let at = current.at;
                current.at += 1;
                let element = Some(element.as_raw_bson_ref());
                let made = set_path(&current.without, &self.path, element)?;
                return self.with_index(made, Some(at)).map(Poll::Ready);
            }
            self.current = None;
        }
        Ok(if has_ended { Poll::Done } else { Poll::Wants })
    }

    /// Begins with a document; it is a result itself if it has no array there.
    fn begin(&mut self, document: RawDocumentBuf) -> Result<Option<RawDocumentBuf>, DocumentError> {
        match get_path(&document, &self.path) {
            Some(RawBsonRef::Array(array)) => {
                let all: Vec<RawBson> = elements(array).map(RawBson::from).collect();
                if all.is_empty() {
                    return match self.preserves {
                        true => {
                            let made = set_path(&document, &self.path, None)?;
                            self.with_index(made, None).map(Some)
                        }
                        false => Ok(None),
                    };
                }
                let without = set_path(&document, &self.path, Some(RawBsonRef::Null))?;
                self.current = Some(Current { without, elements: all.into_iter(), at: 0 });
                Ok(None)
            }
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) if !self.preserves => Ok(None),
            _ => self.with_index(document, None).map(Some),
        }
    }

    fn with_index(
        &self,
        document: RawDocumentBuf,
        at: Option<i64>,
    ) -> Result<RawDocumentBuf, DocumentError> {
        let Some(index) = &self.index else { return Ok(document) };
        let value = at.map_or(RawBsonRef::Null, RawBsonRef::Int64);
        let document: &RawDocument = &document;
        set_path(document, index, Some(value))
    }
}
