//! Raw BSON, checked in one pass.
//!
//! The check keeps the ends of the open documents in an array of fixed size. It neither recurses
//! nor allocates. What it accepts, `bson` reads without an error; `tests/validate.rs` compares the
//! two. It is stricter in two points: documents have a bounded depth and a bounded length.
//!
//! Source: bsonspec.org, version 1.1.

use crate::limits::{MAX_BODY_DEPTH, MAX_WIRE_DOCUMENT_BYTES};
use bson::RawDocument;
use bson::spec::ElementType;
use thiserror::Error;

/// Bytes of an empty document: its length and its terminator.
pub(crate) const MIN_DOCUMENT_BYTES: usize = 5;
const LENGTH_BYTES: usize = 4;
const OBJECT_ID_BYTES: usize = 12;
/// The subtype of binary data with a second length inside.
const BINARY_OLD: u8 = 2;

/// Why bytes are not a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("invalid BSON at byte {offset}: {kind}")]
pub struct DocumentError {
    /// Where, from the start of the outermost document.
    pub offset: usize,
    /// What was wrong.
    pub kind: DocumentErrorKind,
}

/// What is wrong with a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DocumentErrorKind {
    /// The bytes end before the document or the value does.
    #[error("the bytes end too early")]
    Truncated,
    /// Bytes stand behind the document.
    #[error("bytes behind the document")]
    TrailingBytes,
    /// A document's length is shorter than an empty document, or is not where it ends.
    #[error("a length of {0} does not fit the document")]
    Length(i32),
    /// The document is longer than [`MAX_WIRE_DOCUMENT_BYTES`].
    #[error("a document of {0} bytes is too long")]
    TooLong(usize),
    /// There is no zero byte where a document or a string must end.
    #[error("no zero byte at the end")]
    Unterminated,
    /// More levels than allowed.
    #[error("more than {0} levels of documents")]
    TooDeep(usize),
    /// No type of BSON has this number.
    #[error("unknown element type {0:#04x}")]
    UnknownType(u8),
    /// A key or a string is not UTF-8.
    #[error("text that is not UTF-8")]
    NotUtf8,
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean of {0}")]
    Boolean(u8),
}

/// Checks that `bytes` are exactly one document of at most `max_depth` levels.
///
/// # Errors
/// The first mistake in the bytes.
///
/// ```
/// use remora_mongo::limits::MAX_DEPTH;
/// use remora_mongo::validate::validate;
///
/// let bytes = b"\x0c\0\0\0\x10n\0\x07\0\0\0\0"; // {n: 7}
/// assert_eq!(validate(bytes, MAX_DEPTH)?.get_i32("n").ok(), Some(7));
/// assert!(validate(&bytes[..11], MAX_DEPTH).is_err());
/// # Ok::<(), remora_mongo::validate::DocumentError>(())
/// ```
pub fn validate(bytes: &[u8], max_depth: usize) -> Result<&RawDocument, DocumentError> {
    let (document, rest) = split_document(bytes, max_depth)?;
    if !rest.is_empty() {
        return Err(error(bytes.len() - rest.len(), DocumentErrorKind::TrailingBytes));
    }
    Ok(document)
}

/// Checks the document at the start of `bytes`, and returns it with what follows it. At most
/// [`MAX_BODY_DEPTH`] levels are allowed, whatever `max_depth` says.
///
/// # Errors
/// The first mistake in the document.
pub fn split_document(
    bytes: &[u8],
    max_depth: usize,
) -> Result<(&RawDocument, &[u8]), DocumentError> {
    let declared = read_i32(bytes, 0, bytes.len())?;
    let length = match usize::try_from(declared) {
        Ok(length) if length >= MIN_DOCUMENT_BYTES => length,
        _ => return Err(error(0, DocumentErrorKind::Length(declared))),
    };
    if length > MAX_WIRE_DOCUMENT_BYTES {
        return Err(error(0, DocumentErrorKind::TooLong(length)));
    }
    let Some((document, rest)) = bytes.split_at_checked(length) else {
        return Err(error(0, DocumentErrorKind::Truncated));
    };
    check(document, max_depth.min(MAX_BODY_DEPTH))?;
    // The length and the last byte are right, so that bson accepts it.
    let document = RawDocument::from_bytes(document)
        .map_err(|_| error(0, DocumentErrorKind::Length(declared)))?;
    Ok((document, rest))
}

/// Goes through all elements of a document, and of those inside it.
fn check(bytes: &[u8], max_depth: usize) -> Result<(), DocumentError> {
    // Ends of the open documents: each lies within the one before.
    let mut ends = [0; MAX_BODY_DEPTH];
    let mut depth = 0;
    let mut position = 0;
    let mut opens = Some(bytes.len());
    loop {
        if let Some(limit) = opens.take() {
            if depth == max_depth {
                return Err(error(position, DocumentErrorKind::TooDeep(max_depth)));
            }
            ends[depth] = document_end(bytes, position, limit)?;
            depth += 1;
            position += LENGTH_BYTES;
        }
        // The last byte of the innermost open document, its terminator.
        let last = ends[depth - 1] - 1;
        let tag = bytes[position];
        if position == last {
            if tag != 0 {
                return Err(error(position, DocumentErrorKind::Unterminated));
            }
            position += 1;
            depth -= 1;
            if depth == 0 {
                return Ok(());
            }
            continue;
        }
        let Some(element_type) = ElementType::from(tag) else {
            return Err(error(position, DocumentErrorKind::UnknownType(tag)));
        };
        position = skip_cstring(bytes, position + 1, last)?;
        (position, opens) = skip_value(bytes, element_type, position, last)?;
    }
}

/// The end of the document that opens at `position` and ends at `limit` at the latest.
fn document_end(bytes: &[u8], position: usize, limit: usize) -> Result<usize, DocumentError> {
    let declared = read_i32(bytes, position, limit)?;
    let wrong = || error(position, DocumentErrorKind::Length(declared));
    let length = usize::try_from(declared).map_err(|_| wrong())?;
    if length < MIN_DOCUMENT_BYTES || length > limit - position {
        return Err(wrong());
    }
    Ok(position + length)
}

/// Skips a value. Returns where the next element or the inner document is, and the limit of the
/// inner document if there is one.
fn skip_value(
    bytes: &[u8],
    element_type: ElementType,
    at: usize,
    last: usize,
) -> Result<(usize, Option<usize>), DocumentError> {
    let next = match element_type {
        ElementType::Null | ElementType::Undefined | ElementType::MinKey | ElementType::MaxKey => {
            at
        }
        ElementType::Boolean => {
            let next = skip(at, 1, last)?;
            if bytes[at] > 1 {
                return Err(error(at, DocumentErrorKind::Boolean(bytes[at])));
            }
            next
        }
        ElementType::Int32 => skip(at, 4, last)?,
        ElementType::Double
        | ElementType::Int64
        | ElementType::DateTime
        | ElementType::Timestamp => skip(at, 8, last)?,
        ElementType::ObjectId => skip(at, OBJECT_ID_BYTES, last)?,
        ElementType::Decimal128 => skip(at, 16, last)?,
        ElementType::String | ElementType::JavaScriptCode | ElementType::Symbol => {
            skip_string(bytes, at, last)?
        }
        ElementType::DbPointer => skip(skip_string(bytes, at, last)?, OBJECT_ID_BYTES, last)?,
        ElementType::RegularExpression => {
            skip_cstring(bytes, skip_cstring(bytes, at, last)?, last)?
        }
        ElementType::Binary => skip_binary(bytes, at, last)?,
        ElementType::EmbeddedDocument | ElementType::Array => return Ok((at, Some(last))),
        ElementType::JavaScriptCodeWithScope => {
            let end = document_end(bytes, at, last)?;
            let scope = skip_string(bytes, at + LENGTH_BYTES, end)?;
            // The scope takes exactly what the length of the whole leaves for it.
            let declared = read_i32(bytes, scope, end)?;
            if usize::try_from(declared) != Ok(end - scope) {
                return Err(error(scope, DocumentErrorKind::Length(declared)));
            }
            return Ok((scope, Some(end)));
        }
    };
    Ok((next, None))
}

fn skip_binary(bytes: &[u8], at: usize, last: usize) -> Result<usize, DocumentError> {
    let declared = read_i32(bytes, at, last)?;
    let wrong = |at, declared| error(at, DocumentErrorKind::Length(declared));
    let length = usize::try_from(declared).map_err(|_| wrong(at, declared))?;
    let from = skip(at, LENGTH_BYTES + 1, last)?;
    let next = skip(from, length, last)?;
    if bytes[from - 1] == BINARY_OLD {
        let inner = read_i32(bytes, from, next)?;
        if usize::try_from(inner) != Ok(length - LENGTH_BYTES) {
            return Err(wrong(from, inner));
        }
    }
    Ok(next)
}

/// A string with its length, which counts its terminator.
fn skip_string(bytes: &[u8], at: usize, last: usize) -> Result<usize, DocumentError> {
    let declared = read_i32(bytes, at, last)?;
    let length = match usize::try_from(declared) {
        Ok(length) if length > 0 => length,
        _ => return Err(error(at, DocumentErrorKind::Length(declared))),
    };
    let from = at + LENGTH_BYTES;
    let next = skip(from, length, last)?;
    if bytes[next - 1] != 0 {
        return Err(error(next - 1, DocumentErrorKind::Unterminated));
    }
    check_utf8(&bytes[from..next - 1], from)?;
    Ok(next)
}

/// A text up to its zero byte.
fn skip_cstring(bytes: &[u8], at: usize, last: usize) -> Result<usize, DocumentError> {
    let Some(length) = bytes[at..last].iter().position(|&byte| byte == 0) else {
        return Err(error(at, DocumentErrorKind::Unterminated));
    };
    check_utf8(&bytes[at..at + length], at)?;
    Ok(at + length + 1)
}

fn check_utf8(text: &[u8], at: usize) -> Result<(), DocumentError> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(wrong) => Err(error(at + wrong.valid_up_to(), DocumentErrorKind::NotUtf8)),
    }
}

/// `at + bytes`, if that is not behind `last`.
fn skip(at: usize, bytes: usize, last: usize) -> Result<usize, DocumentError> {
    if bytes > last - at {
        return Err(error(at, DocumentErrorKind::Truncated));
    }
    Ok(at + bytes)
}

/// The number at `at`, whose bytes end at `last` at the latest.
fn read_i32(bytes: &[u8], at: usize, last: usize) -> Result<i32, DocumentError> {
    match bytes[..last].get(at..).and_then(|rest| rest.first_chunk()) {
        Some(number) => Ok(i32::from_le_bytes(*number)),
        None => Err(error(at, DocumentErrorKind::Truncated)),
    }
}

fn error(offset: usize, kind: DocumentErrorKind) -> DocumentError {
    DocumentError { offset, kind }
}
