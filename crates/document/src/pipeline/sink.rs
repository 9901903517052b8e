//! Where the result of `$out` and `$merge` goes: the caller writes it.

use crate::error::{DocumentError, FAILED_TO_PARSE};
use crate::raw::{elements, fields};
use crate::variables::Variables;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::rawdoc;

/// Checks the stages of an update.
pub(super) type CheckUpdate<'c> = &'c dyn Fn(&RawArray, &Variables) -> Result<(), DocumentError>;

/// What the caller does with the documents of the result.
#[derive(Debug, Clone, PartialEq)]
pub enum Sink {
    /// They become the whole collection.
    Out {
        /// The database, if it is another one.
        database: Option<String>,
        /// The collection.
        collection: String,
    },
    /// Each one goes to the document with which it agrees.
    Merge(Merge),
}

/// The argument of `$merge`.
#[derive(Debug, Clone, PartialEq)]
pub struct Merge {
    /// The database, if it is another one.
    pub database: Option<String>,
    /// The collection.
    pub collection: String,
    /// The fields in which documents agree. A unique index must have them.
    pub on: Vec<String>,
    /// What happens to a document that agrees.
    pub when_matched: WhenMatched,
    /// What happens if there is none.
    pub when_not_matched: WhenNotMatched,
}

/// What `$merge` does with a document that is there.
#[derive(Debug, Clone, PartialEq)]
pub enum WhenMatched {
    /// The new document takes its place.
    Replace,
    /// It stays.
    KeepExisting,
    /// It gets the fields of the new one.
    Merge,
    /// It is an error.
    Fail,
    /// It is updated by a pipeline, with these variables: expressions on the new document, for
    /// [`Variables::with`].
    Pipeline {
        /// The stages.
        stages: RawArrayBuf,
        /// The variables.
        variables: RawDocumentBuf,
    },
}

/// What `$merge` does if no document agrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// The new document is inserted.
    Insert,
    /// It is dropped.
    Discard,
    /// It is an error.
    Fail,
}

fn fail<T>(text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(FAILED_TO_PARSE, text))
}

/// `"collection"` or `{db: ..., coll: ...}`.
fn target(stage: &str, value: RawBsonRef<'_>) -> Result<(Option<String>, String), DocumentError> {
    match value {
        RawBsonRef::String(collection) if !collection.is_empty() => {
            Ok((None, collection.to_owned()))
        }
        RawBsonRef::Document(document) => {
            let (mut database, mut collection) = (None, None);
            for (name, value) in fields(document) {
                match (name, value) {
                    ("db", RawBsonRef::String(text)) => database = Some(text.to_owned()),
                    ("coll", RawBsonRef::String(text)) => collection = Some(text.to_owned()),
                    _ => return fail(format!("BSON field '{stage}.{name}' is an unknown field.")),
                }
            }
            match collection {
                Some(collection) if !collection.is_empty() => Ok((database, collection)),
                _ => fail(format!("{stage} needs the name of a collection")),
            }
        }
        _ => {
            let text = format!(
                "{stage} only supports a string or object argument, but found {}",
                crate::filter::name_of_type(value.element_type())
            );
            Err(DocumentError::new(16990, text))
        }
    }
}

impl Sink {
    pub(super) fn out(argument: RawBsonRef<'_>) -> Result<Sink, DocumentError> {
        let (database, collection) = target("$out", argument)?;
        Ok(Sink::Out { database, collection })
    }

    pub(super) fn merge(
        argument: RawBsonRef<'_>,
        variables: &Variables,
        check_update: CheckUpdate<'_>,
    ) -> Result<Sink, DocumentError> {
        let argument = match argument {
            RawBsonRef::Document(argument) => argument,
            RawBsonRef::String(_) => {
                let (database, collection) = target("$merge", argument)?;
                return Ok(Sink::Merge(Merge {
                    database,
                    collection,
                    on: vec!["_id".to_owned()],
                    when_matched: WhenMatched::Merge,
                    when_not_matched: WhenNotMatched::Insert,
                }));
            }
            _ => return fail("$merge requires a string or object argument"),
        };
        let (mut into, mut on) = (None, vec!["_id".to_owned()]);
        let (mut when_matched, mut when_not_matched) = (WhenMatched::Merge, WhenNotMatched::Insert);
        let mut values = RawDocumentBuf::new();
        for (name, value) in fields(argument) {
            match (name, value) {
                ("into", value) => into = Some(target("$merge", value)?),
                ("on", RawBsonRef::String(path)) => on = vec![path.to_owned()],
                ("on", RawBsonRef::Array(paths)) if !paths.is_empty() => on = on_paths(paths)?,
                ("let", RawBsonRef::Document(given)) => values = given.to_owned(),
                ("whenMatched", RawBsonRef::String(text)) => {
                    when_matched = WhenMatched::of(text).ok_or_else(|| unknown(name, text))?;
                }
                ("whenMatched", RawBsonRef::Array(stages)) => {
                    when_matched = WhenMatched::Pipeline {
                        stages: stages.to_owned(),
                        variables: RawDocumentBuf::new(),
                    };
                }
                ("whenNotMatched", RawBsonRef::String(text)) => {
                    when_not_matched =
                        WhenNotMatched::of(text).ok_or_else(|| unknown(name, text))?;
                }
                _ => {
                    return fail(format!(
                        "$merge: the field '{name}' is unknown or has a wrong type"
                    ));
                }
            }
        }
        if let WhenMatched::Pipeline { stages, variables: place } = &mut when_matched {
            if values.is_empty() {
                values = rawdoc! { "new": "$$ROOT" };
            }
            let mut known = variables.clone();
            fields(&values).for_each(|(name, _)| known.set(name, None));
            check_update(stages, &known)?;
            *place = values;
        } else if !values.is_empty() {
            return fail("Cannot use 'let' variables with 'whenMatched' that is no pipeline");
        }
        match into {
            Some((database, collection)) => {
                Ok(Sink::Merge(Merge { database, collection, on, when_matched, when_not_matched }))
            }
            None => fail("$merge requires the field 'into'"),
        }
    }
}

fn on_paths(paths: &RawArray) -> Result<Vec<String>, DocumentError> {
    let paths = elements(paths).map(|path| path.as_str().map(str::to_owned));
    match paths.collect() {
        Some(paths) => Ok(paths),
        None => fail("$merge 'on' array elements must be strings"),
    }
}

fn unknown(name: &str, text: &str) -> DocumentError {
    let text =
        format!("Enumeration value '{text}' for field '$merge.{name}' is not a valid value.");
    DocumentError::bad_value(text)
}

impl WhenMatched {
    fn of(name: &str) -> Option<WhenMatched> {
        Some(match name {
            "replace" => WhenMatched::Replace,
            "keepExisting" => WhenMatched::KeepExisting,
            "merge" => WhenMatched::Merge,
            "fail" => WhenMatched::Fail,
            _ => return None,
        })
    }
}

impl WhenNotMatched {
    fn of(name: &str) -> Option<WhenNotMatched> {
        Some(match name {
            "insert" => WhenNotMatched::Insert,
            "discard" => WhenNotMatched::Discard,
            "fail" => WhenNotMatched::Fail,
            _ => return None,
        })
    }
}
