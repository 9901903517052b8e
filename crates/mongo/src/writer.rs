//! Documents, written at once into the buffer of a reply.
//!
//! `bson`'s own buffers copy each document into the one around it. Here the lengths are set when a
//! document ends, so that a batch of results is copied once.

use bson::oid::ObjectId;
use bson::raw::CStr;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use bson::{RawArray, RawDocument, RawDocumentBuf};
use std::io::Write as _;

const LENGTH_BYTES: usize = 4;
const BINARY_GENERIC: u8 = 0;
const BINARY_UUID: u8 = 4;

/// Appends one document to a buffer.
///
/// The document must stay shorter than 2 GiB; [`Envelope::write`](crate::Envelope::write) refuses a
/// much shorter one.
///
/// ```
/// use bson::cstr;
/// use remora_mongo::writer::write_document;
///
/// let mut out = Vec::new();
/// write_document(&mut out, |reply| {
///     reply.array(cstr!("firstBatch"), |batch| batch.document(|item| item.i32(cstr!("n"), 7)));
///     reply.f64(cstr!("ok"), 1.0);
/// });
/// let expected = bson::rawdoc! { "firstBatch": [{ "n": 7 }], "ok": 1.0 };
/// assert_eq!(out, expected.as_bytes());
/// ```
pub fn write_document(out: &mut Vec<u8>, fields: impl FnOnce(&mut DocumentWriter<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    fields(&mut DocumentWriter { out });
    out.push(0);
    let length = (out.len() - start) as i32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Appends the fields of a document. The caller keeps their names different.
#[derive(Debug)]
pub struct DocumentWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl DocumentWriter<'_> {
    fn key(&mut self, element_type: ElementType, key: &CStr) {
        self.out.push(element_type as u8);
        self.out.extend_from_slice(key.as_str().as_bytes());
        self.out.push(0);
    }

    /// Appends a number of 32 bits.
    pub fn i32(&mut self, key: &CStr, value: i32) {
        self.key(ElementType::Int32, key);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number of 64 bits.
    pub fn i64(&mut self, key: &CStr, value: i64) {
        self.key(ElementType::Int64, key);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a count, with 32 bits if it fits, as MongoDB does.
    pub fn count(&mut self, key: &CStr, value: u64) {
        match i32::try_from(value) {
            Ok(value) => self.i32(key, value),
            Err(_) => self.i64(key, i64::try_from(value).unwrap_or(i64::MAX)),
        }
    }

    /// Appends a UUID.
    pub fn uuid(&mut self, key: &CStr, value: &[u8; 16]) {
        self.key(ElementType::Binary, key);
        self.out.extend_from_slice(&(value.len() as i32).to_le_bytes());
        self.out.push(BINARY_UUID);
        self.out.extend_from_slice(value);
    }

    /// Appends any value.
    pub fn value(&mut self, key: &CStr, value: RawBsonRef<'_>) {
        let mut one = RawDocumentBuf::new();
        one.append(key, value);
        let bytes = one.as_bytes();
        self.out.extend_from_slice(&bytes[LENGTH_BYTES..bytes.len() - 1]);
    }

    /// Appends a floating-point number.
    pub fn f64(&mut self, key: &CStr, value: f64) {
        self.key(ElementType::Double, key);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a boolean.
    pub fn bool(&mut self, key: &CStr, value: bool) {
        self.key(ElementType::Boolean, key);
        self.out.push(value.into());
    }

    /// Appends a time, in milliseconds since 1970.
    pub fn datetime_ms(&mut self, key: &CStr, value: i64) {
        self.key(ElementType::DateTime, key);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a string.
    pub fn str(&mut self, key: &CStr, value: &str) {
        self.key(ElementType::String, key);
        write_str(self.out, value);
    }

    /// Appends binary data of the generic subtype.
    pub fn binary(&mut self, key: &CStr, value: &[u8]) {
        self.key(ElementType::Binary, key);
        self.out.extend_from_slice(&(value.len() as i32).to_le_bytes());
        self.out.push(BINARY_GENERIC);
        self.out.extend_from_slice(value);
    }

    /// Appends an ObjectId.
    pub fn object_id(&mut self, key: &CStr, value: ObjectId) {
        self.key(ElementType::ObjectId, key);
        self.out.extend_from_slice(&value.bytes());
    }

    /// Appends null.
    pub fn null(&mut self, key: &CStr) {
        self.key(ElementType::Null, key);
    }

    /// Appends a document as it is.
    pub fn raw_document(&mut self, key: &CStr, value: &RawDocument) {
        self.key(ElementType::EmbeddedDocument, key);
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Appends an array as it is.
    pub fn raw_array(&mut self, key: &CStr, value: &RawArray) {
        self.key(ElementType::Array, key);
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Appends a document with these fields.
    pub fn document(&mut self, key: &CStr, fields: impl FnOnce(&mut DocumentWriter<'_>)) {
        self.key(ElementType::EmbeddedDocument, key);
        write_document(self.out, fields);
    }

    /// Appends an array with these items.
    pub fn array(&mut self, key: &CStr, items: impl FnOnce(&mut ArrayWriter<'_>)) {
        self.key(ElementType::Array, key);
        write_document(self.out, |fields| items(&mut ArrayWriter { out: fields.out, count: 0 }));
    }
}

/// Appends the items of an array.
#[derive(Debug)]
pub struct ArrayWriter<'a> {
    out: &'a mut Vec<u8>,
    count: usize,
}

impl ArrayWriter<'_> {
    fn key(&mut self, element_type: ElementType) {
        self.out.push(element_type as u8);
        // Writing into a vector does not fail.
        let _ = write!(self.out, "{}\0", self.count);
        self.count += 1;
    }

    /// The number of items so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Appends a string.
    pub fn str(&mut self, value: &str) {
        self.key(ElementType::String);
        write_str(self.out, value);
    }

    /// Appends a number of 32 bits.
    pub fn i32(&mut self, value: i32) {
        self.key(ElementType::Int32);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number of 64 bits.
    pub fn i64(&mut self, value: i64) {
        self.key(ElementType::Int64);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a document as it is.
    pub fn raw_document(&mut self, value: &RawDocument) {
        self.key(ElementType::EmbeddedDocument);
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Appends a document with these fields.
    pub fn document(&mut self, fields: impl FnOnce(&mut DocumentWriter<'_>)) {
        self.key(ElementType::EmbeddedDocument);
        write_document(self.out, fields);
    }
}

fn write_str(out: &mut Vec<u8>, value: &str) {
    out.extend_from_slice(&(value.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}
