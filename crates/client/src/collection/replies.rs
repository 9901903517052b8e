//! Replies about documents, and the places where steps end.

use crate::error::Error;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Binary, cstr, spec::BinarySubtype};

/// A reply that no honest server gives.
pub(super) const SENSELESS: Error = Error::Protocol("a reply about documents that makes no sense");

/// The place where a step ended, if there may be more.
pub(super) fn place_of(told: &RawDocument) -> Option<Binary> {
    let bytes = told.get_binary("at").ok()?.bytes.to_vec();
    Some(Binary { subtype: BinarySubtype::Generic, bytes })
}

/// A request with the place where its last step ended.
pub(super) fn at_place(mut request: RawDocumentBuf, at: Option<&Binary>) -> RawDocumentBuf {
    if let Some(at) = at {
        request.append(cstr!("at"), at.clone());
    }
    request
}

pub(super) fn parse(bytes: &[u8]) -> Result<&RawDocument, Error> {
    RawDocument::from_bytes(bytes).map_err(|_| SENSELESS)
}

/// The error that a document of a reply describes.
pub(super) fn failure_of(told: &RawDocument) -> Error {
    told.get_i32("code").map_or(SENSELESS, |code| Error::Documents { code })
}
