//! `$facet`: several pipelines over the same documents.

use super::step::{Inner, ParseInner, Poll, Step, check, feed, memory};
use crate::error::DocumentError;
use crate::raw::{append, fields};
use crate::variables::Variables;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use remora_layout::limits::MAX_FACETS;

/// The stage: each pipeline with its name and its result so far.
#[derive(Debug, Clone)]
pub(super) struct Facet<P> {
    inners: Vec<(String, P, RawArrayBuf)>,
    /// The pipeline that is stepped; behind the last one they all want input.
    at: usize,
    has_ended: bool,
    is_given: bool,
    bytes: usize,
}

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

impl<P: Inner> Facet<P> {
    pub(super) fn parse(
        argument: RawBsonRef<'_>,
        variables: &Variables,
        pipeline: ParseInner<'_, P>,
    ) -> Result<Self, DocumentError> {
        let argument = match argument {
            RawBsonRef::Document(argument) if !argument.is_empty() => argument,
            _ => {
                return fail(40169, "the $facet specification must be a non-empty object");
            }
        };
        let mut inners = Vec::new();
        for (name, stages) in fields(argument) {
            if inners.len() == MAX_FACETS {
                return fail(2, format!("$facet has more than {MAX_FACETS} pipelines"));
            }
            if name.is_empty() || name.starts_with('$') || name.contains('.') {
                let text = format!("$facet: '{name}' is no name of a field");
                return fail(40172, text);
            }
            let RawBsonRef::Array(stages) = stages else {
                let text = format!("arguments to $facet must be arrays, {name} is not an array");
                return fail(40170, text);
            };
            let inner = pipeline(stages, variables)?;
            inners.push((name.to_owned(), inner, RawArrayBuf::new()));
        }
        let at = inners.len();
        Ok(Self { inners, at, has_ended: false, is_given: false, bytes: 0 })
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes + self.inners.iter().map(|(_, inner, _)| inner.kept_bytes()).sum::<usize>()
    }

    pub(super) fn collections<'n>(&'n self, all: &mut Vec<&'n str>) {
        self.inners.iter().for_each(|(_, inner, _)| all.extend(inner.collections()));
    }

    pub(super) fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        if let Some((_, inner, _)) = self.inners.get_mut(self.at) {
            feed(inner, documents, is_last);
        }
    }

    pub(super) fn poll(
        &mut self,
        input: Option<RawDocumentBuf>,
        has_ended: bool,
    ) -> Result<Poll, DocumentError> {
        if let Some(document) = input {
            for (_, inner, _) in &mut self.inners {
                if !inner.is_satisfied() {
                    inner.push(document.clone());
                }
            }
            self.at = 0;
            return Ok(Poll::Moved);
        }
        if let Some((_, inner, found)) = self.inners.get_mut(self.at) {
            match inner.step()? {
                Step::Gives(document) => {
                    self.bytes += document.as_bytes().len() + 8;
                    memory("$facet", self.bytes)?;
                    found.push(&document);
                }
                Step::Asks(query) => return Ok(Poll::Asks(query)),
                Step::Awaits => return Ok(Poll::Awaits),
                Step::Continues => {}
                Step::Wants | Step::Done => self.at += 1,
            }
            return Ok(Poll::Moved);
        }
        match (has_ended, self.has_ended) {
            (false, _) => Ok(Poll::Wants),
            (true, false) => {
                self.inners.iter_mut().for_each(|(_, inner, _)| inner.end());
                (self.has_ended, self.at) = (true, 0);
                Ok(Poll::Moved)
            }
            (true, true) if self.is_given => Ok(Poll::Done),
            (true, true) => {
                self.is_given = true;
                let mut made = RawDocumentBuf::new();
                for (name, _, found) in &self.inners {
                    append(&mut made, name, RawBsonRef::Array(found))?;
                    crate::value::fits(made.as_bytes().len())?;
                }
                check(&made)?;
                Ok(Poll::Ready(made))
            }
        }
    }
}
