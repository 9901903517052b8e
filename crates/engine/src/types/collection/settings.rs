//! The options of a collection: the filter that its documents have to match.

use super::failure::{Failure, code};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, RawDocumentBuf, doc};
use remora_document::{Filter, validate};

/// The options, as they were given and parsed.
pub(super) struct Settings {
    pub document: RawDocumentBuf,
    validator: Option<Filter>,
    level: Level,
    /// A document that does not match is stored all the same.
    only_warns: bool,
}

/// Which changes are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    All,
    /// Not those of documents that did not match before.
    Moderate,
    None,
}

impl Default for Settings {
    fn default() -> Self {
        let (document, validator) = (RawDocumentBuf::new(), None);
        Self { document, validator, level: Level::All, only_warns: false }
    }
}

impl Settings {
    /// # Errors
    /// An option that is not known, or not kept.
    pub fn parse(options: &[u8]) -> Result<Self, Failure> {
        let document = parse_document(options)?;
        let mut settings = Self { document: document.to_owned(), ..Self::default() };
        for field in document {
            let (name, value) = field.map_err(malformed)?;
            match (name.as_str(), value) {
                ("validator", RawBsonRef::Document(filter)) => {
                    let filter = (!filter.is_empty()).then(|| Filter::parse(filter));
                    settings.validator = filter.transpose()?;
                }
                ("validationLevel", RawBsonRef::String("strict")) => settings.level = Level::All,
                ("validationLevel", RawBsonRef::String("moderate")) => {
                    settings.level = Level::Moderate;
                }
                ("validationLevel", RawBsonRef::String("off")) => settings.level = Level::None,
                ("validationAction", RawBsonRef::String("error")) => settings.only_warns = false,
                ("validationAction", RawBsonRef::String("warn")) => settings.only_warns = true,
                ("collation", RawBsonRef::Document(of)) if is_simple(of) => {}
                ("capped", RawBsonRef::Boolean(false)) => {}
                (name, value) => return Err(refused(name, value)),
            }
        }
        Ok(settings)
    }

    /// Bytes that they take on the heap, about.
    pub fn heap_bytes(&self) -> u64 {
        // A parsed filter has each name and value once, and some words beside them.
        4 * self.document.as_bytes().len() as u64
    }

    /// Which conditions of the validator a document does not meet.
    fn details(&self, new: &RawDocument) -> Document {
        let validator = self.document.get_document("validator").ok();
        let mut unmet = Vec::new();
        for (at, (name, value)) in validator.into_iter().flatten().flatten().enumerate() {
            let mut clause = RawDocumentBuf::new();
            clause.append(name, value);
            let is_met = Filter::parse(&clause).is_ok_and(|filter| filter.matches(new));
            let clause = Document::try_from(&*clause).unwrap_or_default();
            if !is_met {
                let operator = operator_of(name.as_str(), value);
                let details = doc! { "operatorName": operator, "specifiedAs": clause };
                unmet.push(doc! { "index": at as i32, "details": details });
            }
        }
        match &unmet[..] {
            [only] => only.get_document("details").cloned().unwrap_or_default(),
            _ => doc! { "operatorName": "$and", "clausesNotSatisfied": unmet },
        }
    }

    /// # Errors
    /// The document, which takes the place of the other one, may not be stored.
    pub fn check(&self, new: &RawDocument, old: Option<&RawDocument>) -> Result<(), Failure> {
        let Some(validator) = &self.validator else { return Ok(()) };
        let is_free = self.only_warns
            || match self.level {
                Level::All => false,
                Level::Moderate => old.is_some_and(|old| !validator.matches(old)),
                Level::None => true,
            };
        match is_free || validator.matches(new) {
            true => Ok(()),
            false => {
                let text = "Document failed validation";
                let mut failure = Failure::new(code::DOCUMENT_VALIDATION_FAILURE, text);
                let id = new.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
                let info = doc! {
                    "failingDocumentId": id.unwrap_or(Bson::Null),
                    "details": self.details(new),
                };
                failure.fields = Some(Box::new(doc! { "errInfo": info }));
                Err(failure)
            }
        }
    }
}

/// One condition of a filter, and the operator that MongoDB names for it.
fn operator_of(name: &str, value: RawBsonRef<'_>) -> String {
    if name.starts_with('$') {
        return name.to_owned();
    }
    let first = value.as_document().and_then(|of| of.iter().flatten().next());
    let first = first.map_or("", |(name, _)| name.as_str());
    if first.starts_with('$') { first.to_owned() } else { "$eq".to_owned() }
}

fn refused(name: &str, value: RawBsonRef<'_>) -> Failure {
    let text = match name {
        "collation" => "only the collation {locale: \"simple\"} is there".to_owned(),
        "validator" | "validationLevel" | "validationAction" => {
            format!("the option '{name}' of a collection cannot be {value:?}")
        }
        _ => format!("the option '{name}' of a collection is not there"),
    };
    Failure::new(code::INVALID_OPTIONS, text)
}

/// Whether a collation compares bytes, as all of ours do.
pub(super) fn is_simple(collation: &RawDocument) -> bool {
    collation.get_str("locale").is_ok_and(|locale| locale == "simple")
}

/// A document of ours as bytes.
pub(super) fn bytes_of(document: &Document) -> Vec<u8> {
    document.to_vec().expect("its names have no zero bytes")
}

/// The document of a request, which is well formed on all levels.
///
/// # Errors
/// It is not.
pub(super) fn parse_document(bytes: &[u8]) -> Result<&RawDocument, Failure> {
    let document = RawDocument::from_bytes(bytes).map_err(malformed)?;
    validate(document).map_err(malformed)?;
    Ok(document)
}

/// Bytes that are no document, or one that is too deep.
pub(super) fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::new(code::INVALID_BSON, error.to_string())
}
