//! Keys of indexes: values as bytes that compare in the order of [`crate::compare`].
//!
//! The encoding of a value begins with the byte of its [`Class`]. What follows:
//!
//! | Class | Bytes |
//! | --- | --- |
//! | MinKey, undefined, null, MaxKey | none |
//! | number | see below |
//! | string, code | a text |
//! | document | for each field: class, name as a text, value without its class; at the end `00` |
//! | array | for each element: its encoding; at the end `00` |
//! | binary | length and subtype as `compare` has them, in four bytes and one; the bytes |
//! | object id | its twelve bytes |
//! | boolean | `00` or `01` |
//! | date | milliseconds in eight bytes, with the sign bit inverted |
//! | timestamp | seconds and increment, four bytes each |
//! | regular expression | pattern and options, two texts |
//! | DBPointer | length in four bytes; the bytes |
//! | code with scope | the code as a text; the scope as a document |
//!
//! Integers are big-endian. A text is its UTF-8 bytes, with `00 ff` for a zero byte, and `00 01` at
//! the end: so a text is below its continuations, and no text is a prefix of another.
//!
//! A number is one byte for its kind (NaN, negative infinity, negative, zero, positive, infinity, in
//! this order). A positive number goes on with the largest double that is not above it: its eight
//! bytes, which compare as the numbers do. If the number is this double, `00` ends it. Else `01` follows, and
//! the number itself as a decimal: its exponent plus 8192 in two bytes, and its 34 digits, without
//! leading zeros, as an integer of fifteen bytes. So an int64 or a Decimal128 that no double equals
//! is encoded exactly, in 28 bytes with its class, and all others take 11. A negative number has the bytes of
//! the positive one, inverted.
//!
//! The encoding of a value is no prefix of that of another value that differs. So encodings one
//! behind another compare as the list of the values does. A descending value has all its bytes inverted.
//!
//! A key has no way back to the value: 1, 1.0 and a decimal 1.00 have the same key.

use crate::number::{Number, Positive};
use crate::order::{Class, binary_key};
use crate::raw::db_pointer_bytes;
use crate::validate::{Invalid, deeper};
use bson::raw::{RawArray, RawBsonRef, RawDocument};

/// The direction of one value in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Small values first.
    Ascending,
    /// Large values first.
    Descending,
}

/// Behind the last field or element: below the byte of each class.
const END: u8 = 0x00;
/// Stands for a zero byte in a text, behind a zero byte.
const ZERO: u8 = 0xff;
/// Ends a text, behind a zero byte.
const TEXT_END: u8 = 0x01;
/// The number is the double in front.
const EXACT: u8 = 0x00;
/// The number is above the double in front, and follows.
const ABOVE: u8 = 0x01;
/// Makes the exponent of every number positive.
const EXPONENT_BIAS: i32 = 8192;

/// Appends the encoding of a value.
///
/// # Errors
///
/// If the value is malformed or too deep. Then `out` is as before.
///
/// ```
/// use bson::raw::RawBsonRef;
/// use remora_document::{Direction, encode};
///
/// let key = |value: RawBsonRef<'_>| {
///     let mut key = Vec::new();
///     encode(value, Direction::Ascending, &mut key).map(|()| key)
/// };
/// assert_eq!(key(RawBsonRef::Int32(1))?, key(RawBsonRef::Double(1.0))?);
/// assert!(key(RawBsonRef::Int32(-7))? < key(RawBsonRef::String("a"))?);
/// # Ok::<(), remora_document::Invalid>(())
/// ```
pub fn encode(
    value: RawBsonRef<'_>,
    direction: Direction,
    out: &mut Vec<u8>,
) -> Result<(), Invalid> {
    let start = out.len();
    out.push(Class::of(value) as u8);
    if let Err(invalid) = payload(value, 0, out) {
        out.truncate(start);
        return Err(invalid);
    }
    if direction == Direction::Descending {
        invert(&mut out[start..]);
    }
    Ok(())
}

/// Appends the encodings of several values, each with its direction.
///
/// # Errors
///
/// If one of them is malformed or too deep. Then `out` is as before.
pub fn encode_compound<'a>(
    values: impl IntoIterator<Item = (RawBsonRef<'a>, Direction)>,
    out: &mut Vec<u8>,
) -> Result<(), Invalid> {
    let start = out.len();
    for (value, direction) in values {
        if let Err(invalid) = encode(value, direction, out) {
            out.truncate(start);
            return Err(invalid);
        }
    }
    Ok(())
}

/// What follows the class of a value that lies `depth` levels deep.
fn payload(value: RawBsonRef<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Invalid> {
    if let Some(value) = Number::of(value) {
        number(value, out);
        return Ok(());
    }
    match value {
        RawBsonRef::String(value)
        | RawBsonRef::Symbol(value)
        | RawBsonRef::JavaScriptCode(value) => text(value, out),
        RawBsonRef::Document(value) => document(value, depth + 1, out)?,
        RawBsonRef::Array(value) => array(value, depth + 1, out)?,
        RawBsonRef::Binary(value) => {
            let (length, subtype, bytes) = binary_key(&value);
            out.extend_from_slice(&short(length)?);
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        RawBsonRef::ObjectId(value) => out.extend_from_slice(&value.bytes()),
        RawBsonRef::Boolean(value) => out.push(u8::from(value)),
        RawBsonRef::DateTime(value) => {
            let bits = value.timestamp_millis() ^ i64::MIN;
            out.extend_from_slice(&bits.to_be_bytes());
        }
        RawBsonRef::Timestamp(value) => {
            out.extend_from_slice(&value.time.to_be_bytes());
            out.extend_from_slice(&value.increment.to_be_bytes());
        }
        RawBsonRef::RegularExpression(value) => {
            text(value.pattern.as_str(), out);
            text(value.options.as_str(), out);
        }
        RawBsonRef::DbPointer(value) => {
            let bytes = db_pointer_bytes(value);
            out.extend_from_slice(&short(bytes.len())?);
            out.extend_from_slice(&bytes);
        }
        RawBsonRef::JavaScriptCodeWithScope(value) => {
            text(value.code, out);
            document(value.scope, depth + 1, out)?;
        }
        // The other classes have one value each.
        _ => {}
    }
    Ok(())
}

fn document(document: &RawDocument, depth: usize, out: &mut Vec<u8>) -> Result<(), Invalid> {
    deeper(depth)?;
    for element in document.iter_elements() {
        let element = element.map_err(|_| Invalid::Malformed)?;
        let value = element.value().map_err(|_| Invalid::Malformed)?;
        out.push(Class::of(value) as u8);
        text(element.key().as_str(), out);
        payload(value, depth, out)?;
    }
    out.push(END);
    Ok(())
}

fn array(array: &RawArray, depth: usize, out: &mut Vec<u8>) -> Result<(), Invalid> {
    deeper(depth)?;
    for value in array {
        let value = value.map_err(|_| Invalid::Malformed)?;
        out.push(Class::of(value) as u8);
        payload(value, depth, out)?;
    }
    out.push(END);
    Ok(())
}

fn number(value: Number, out: &mut Vec<u8>) {
    out.push(value.rank());
    match value {
        Number::Positive(value) => positive(value, out),
        Number::Negative(value) => {
            let start = out.len();
            positive(value, out);
            invert(&mut out[start..]);
        }
        _ => {}
    }
}

fn positive(value: Positive, out: &mut Vec<u8>) {
    let split = value.split();
    out.extend_from_slice(&split.double.to_bits().to_be_bytes());
    let Some(rest) = split.rest else { return out.push(EXACT) };
    out.push(ABOVE);
    // Exponents lie between -6176 and 6144, and coefficients have 113 bits.
    out.extend_from_slice(&((rest.exponent + EXPONENT_BIAS) as u16).to_be_bytes());
    out.extend_from_slice(&rest.coefficient.to_be_bytes()[1..]);
}

fn text(text: &str, out: &mut Vec<u8>) {
    let mut parts = text.as_bytes().split(|byte| *byte == 0);
    out.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        out.extend_from_slice(&[0, ZERO]);
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&[0, TEXT_END]);
}

fn short(length: usize) -> Result<[u8; 4], Invalid> {
    u32::try_from(length).map(u32::to_be_bytes).map_err(|_| Invalid::Malformed)
}

fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}
