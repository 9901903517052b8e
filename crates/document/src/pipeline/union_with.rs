//! `$unionWith`: behind the documents of the input those of another collection.

use super::source::Query;
use super::step::{Inner, ParseInner, Poll, Step, feed, text};
use crate::error::{DocumentError, FAILED_TO_PARSE};
use crate::raw::fields;
use crate::variables::Variables;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

/// The stage.
#[derive(Debug, Clone)]
pub(super) struct UnionWith<P> {
    collection: String,
    inner: P,
    has_asked: bool,
}

impl<P: Inner> UnionWith<P> {
    pub(super) fn parse(
        argument: RawBsonRef<'_>,
        variables: &Variables,
        pipeline: ParseInner<'_, P>,
    ) -> Result<Self, DocumentError> {
        let fail = |text: String| Err(DocumentError::new(FAILED_TO_PARSE, text));
        let (mut collection, mut stages) = (None, None);
        match argument {
            RawBsonRef::String(name) => collection = Some(name),
            RawBsonRef::Document(argument) => {
                for (name, value) in fields(argument) {
                    match (name, value) {
                        ("coll", value) => collection = Some(text("$unionWith", name, value)?),
                        ("pipeline", RawBsonRef::Array(value)) => stages = Some(value),
                        ("pipeline", _) => {
                            return fail(
                                "$unionWith argument 'pipeline' must be an array".to_owned(),
                            );
                        }
                        _ => {
                            return fail(format!(
                                "BSON field '$unionWith.{name}' is an unknown field."
                            ));
                        }
                    }
                }
            }
            _ => {
                return fail(
                    "the $unionWith stage specification must be an object or string".to_owned(),
                );
            }
        }
        let Some(collection) = collection else {
            return fail("$unionWith needs the name of a collection".to_owned());
        };
        let none = RawArrayBuf::new();
        let inner = pipeline(stages.unwrap_or(&none), variables)?;
        Ok(Self { collection: collection.to_owned(), inner, has_asked: false })
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        self.inner.kept_bytes()
    }

    pub(super) fn collections<'n>(&'n self, all: &mut Vec<&'n str>) {
        all.push(&self.collection);
        all.extend(self.inner.collections());
    }

    pub(super) fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        feed(&mut self.inner, documents, is_last);
    }

    pub(super) fn poll(
        &mut self,
        input: Option<RawDocumentBuf>,
        has_ended: bool,
    ) -> Result<Poll, DocumentError> {
        if let Some(document) = input {
            return Ok(Poll::Ready(document));
        }
        if !has_ended {
            return Ok(Poll::Wants);
        }
        if !self.has_asked && self.inner.source().reads_collection {
            self.has_asked = true;
            return Ok(Poll::Asks(Query::of(&self.collection, None, self.inner.source())?));
        }
        Ok(match self.inner.step()? {
            Step::Gives(document) => Poll::Ready(document),
            Step::Asks(query) => Poll::Asks(query),
            Step::Wants | Step::Awaits => Poll::Awaits,
            Step::Continues => Poll::Moved,
            Step::Done => Poll::Done,
        })
    }
}
