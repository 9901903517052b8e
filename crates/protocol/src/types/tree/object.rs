//! Objects of trees in messages: their ids, the objects that clients put, and the results of
//! searches.
//!
//! ```text
//! found     rectangle 32 | word 8, and behind a surrogate: id's length 2 | id
//! ```
//! An id in bytes is its text: an integer in decimal.

use super::fields::Fields;
use crate::command::Expiry;
use crate::integer;
use crate::message::Status;
use crate::sized::{push_sized, take_sized};
use remora_geometry::{ShapeError, Wkb};
use remora_layout::limits::{MAX_OBJECT_BYTES, MAX_OBJECT_ID_BYTES};
use remora_layout::node::{ENTRY_BYTES, Entry};
use remora_layout::object::is_surrogate;
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_layout::rect::Rect;
use std::collections::BTreeSet;
use std::fmt;
use zerocopy::{FromBytes, IntoBytes};

/// The name of an object in its tree: an integer from 0 to 2^63 - 1, or any other bytes, 1 to
/// `MAX_OBJECT_ID_BYTES` of them. An integer and its decimal text are the same id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectId<'a> {
    /// Below 2^63: the cheapest form.
    Number(u64),
    /// Other bytes.
    Name(&'a [u8]),
}

impl<'a> ObjectId<'a> {
    /// The id that this text is.
    pub fn of_text(text: &'a [u8]) -> Self {
        let number = integer::parse(text).and_then(|number| u64::try_from(number).ok());
        number.map_or(Self::Name(text), Self::Number)
    }

    /// Whether an object can have it.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Number(number) => !is_surrogate(number),
            Self::Name(name) => {
                (1..=MAX_OBJECT_ID_BYTES).contains(&name.len()) && Self::of_text(name) == self
            }
        }
    }

    pub(super) fn check(self) -> Result<(), Status> {
        match self {
            Self::Name(name) if name.len() > MAX_OBJECT_ID_BYTES => Err(Status::TooLarge),
            id if id.is_valid() => Ok(()),
            _ => Err(Status::Malformed),
        }
    }

    /// Hands its text over.
    pub fn with_text<T>(self, take: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Number(number) => take(itoa::Buffer::new().format(number as i64).as_bytes()),
            Self::Name(name) => take(name),
        }
    }
}

impl From<u64> for ObjectId<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a [u8]> for ObjectId<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self::of_text(text)
    }
}

impl<'a> From<&'a str> for ObjectId<'a> {
    fn from(text: &'a str) -> Self {
        Self::of_text(text.as_bytes())
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for ObjectId<'a> {
    fn from(text: &'a [u8; N]) -> Self {
        Self::of_text(text)
    }
}

impl fmt::Display for ObjectId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.escape_ascii().fmt(f),
        }
    }
}

/// An object that is put into a tree. Omitted parts stay as they are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PutObject<'a> {
    /// Its id.
    pub id: ObjectId<'a>,
    /// Its rectangle.
    pub rect: Rect,
    /// Its bytes; `None` leaves those that it has.
    pub data: Option<&'a [u8]>,
    /// Its geometry, whose bounds are `rect`; without one the rectangle becomes its geometry,
    /// whatever it was before.
    pub geometry: Option<Wkb<'a>>,
    /// All its fields; `None` leaves those that it has.
    pub fields: Option<Fields<'a>>,
    /// Its expiry. A time in the past removes it.
    pub expiry: Expiry,
}

impl<'a> PutObject<'a> {
    /// An object at a place, and nothing more.
    pub fn new(id: impl Into<ObjectId<'a>>, rect: Rect) -> Self {
        let (data, geometry, fields) = (None, None, None);
        Self { id: id.into(), rect, data, geometry, fields, expiry: Expiry::Keep }
    }
}

/// Flag of a put, and of an object's content: it has data.
pub const HAS_DATA: u8 = 1;
/// Flag of a put, and of an object's content: it has a geometry.
pub const HAS_GEOMETRY: u8 = 2;
/// Flag of a put, and of an object's content: it has fields.
pub const HAS_FIELDS: u8 = 4;
/// Flag of a put, and of an object's content: it expires.
pub const HAS_EXPIRY: u8 = 8;
/// Flag of a put: the object no longer expires.
const PERSISTS: u8 = 16;
/// Flag of a request: the id is a name, and is first in the value.
pub(super) const HAS_NAME: u8 = 32;

/// Appends an id's name, if it has one; gives flag and argument.
pub(super) fn push_id(scratch: &mut Vec<u8>, id: ObjectId<'_>) -> (u8, i64) {
    match id {
        ObjectId::Number(number) => (0, number as i64),
        ObjectId::Name(name) => {
            push_sized(scratch, name);
            (HAS_NAME, 0)
        }
    }
}

/// The id in flag and argument, and the rest of the value.
pub(super) fn take_id(
    flags: u8,
    argument: i64,
    value: &[u8],
) -> Result<(ObjectId<'_>, &[u8]), Status> {
    match flags & HAS_NAME {
        0 => Ok((ObjectId::Number(argument as u64), value)),
        _ if argument != 0 => Err(Status::Malformed),
        _ => take_sized(value).map(|(name, rest)| (ObjectId::Name(name), rest)),
    }
}

impl<'a> PutObject<'a> {
    /// Whether each part keeps its limits.
    pub(super) fn check(&self) -> Result<(), Status> {
        self.id.check()?;
        self.rect.checked().map_err(|_| Status::BadRectangle)?;
        if self.geometry.is_some_and(|geometry| geometry.bounds() != self.rect) {
            return Err(Status::BadGeometry);
        }
        match self.expiry {
            // 0 means never in a record.
            Expiry::At(0) => return Err(Status::Malformed),
            Expiry::At(at_ms) if at_ms > MAX_EXPIRES_AT_MS => return Err(Status::InvalidExpiry),
            _ => {}
        }
        if self.data.is_some_and(|data| data.len() > MAX_OBJECT_BYTES) {
            return Err(Status::TooLarge);
        }
        Ok(())
    }

    /// Appends the value of the request; gives flags and argument.
    pub(super) fn encode(&self, scratch: &mut Vec<u8>) -> (u8, i64) {
        let (mut flags, argument) = push_id(scratch, self.id);
        scratch.extend_from_slice(self.rect.as_bytes());
        if let Some(geometry) = self.geometry {
            push_sized(scratch, geometry.bytes());
            flags |= HAS_GEOMETRY;
        }
        if let Some(fields) = self.fields {
            push_sized(scratch, fields.as_bytes());
            flags |= HAS_FIELDS;
        }
        match self.expiry {
            Expiry::Keep => {}
            Expiry::Never => flags |= PERSISTS,
            Expiry::At(at_ms) => {
                scratch.extend_from_slice(&at_ms.to_le_bytes());
                flags |= HAS_EXPIRY;
            }
        }
        if let Some(data) = self.data {
            scratch.extend_from_slice(data);
            flags |= HAS_DATA;
        }
        (flags, argument)
    }

    /// Appends it to a list of puts: flags 1 | argument 8 | value's length 4 | value.
    pub fn push(&self, list: &mut Vec<u8>) {
        let mut value = Vec::new();
        let (flags, argument) = self.encode(&mut value);
        list.push(flags);
        list.extend_from_slice(&argument.to_le_bytes());
        push_sized(list, &value);
    }

    /// The first of a list of puts, and the list behind it.
    pub fn split(list: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let (&[flags, ref argument @ ..], rest) =
            list.split_first_chunk::<9>().ok_or(Status::Malformed)?;
        let (value, rest) = take_sized(rest)?;
        let put = Self::decode(flags, i64::from_le_bytes(*argument), value)?;
        put.check().map(|()| (put, rest))
    }

    /// The put that flags, argument and value encode, before its parts are checked.
    pub(super) fn decode(flags: u8, argument: i64, value: &'a [u8]) -> Result<Self, Status> {
        let (id, rest) = take_id(flags, argument, value)?;
        let (rect, mut rest) = take_rect(rest)?;
        let (mut geometry, mut fields) = (None, None);
        if flags & HAS_GEOMETRY != 0 {
            let (wkb, after) = take_sized(rest)?;
            let wkb = Wkb::parse(wkb).map_err(|error| match error {
                ShapeError::TooLong => Status::TooLarge,
                _ => Status::BadGeometry,
            })?;
            (geometry, rest) = (Some(wkb), after);
        }
        if flags & HAS_FIELDS != 0 {
            let (bytes, after) = take_sized(rest)?;
            (fields, rest) = (Some(Fields::parse(bytes).ok_or(Status::Malformed)?), after);
        }
        let expiry = match flags & (HAS_EXPIRY | PERSISTS) {
            0 => Expiry::Keep,
            PERSISTS => Expiry::Never,
            HAS_EXPIRY => {
                let (at_ms, after) = rest.split_first_chunk().ok_or(Status::Malformed)?;
                rest = after;
                Expiry::At(u64::from_le_bytes(*at_ms))
            }
            _ => return Err(Status::Malformed),
        };
        let data = match flags & HAS_DATA {
            HAS_DATA => Some(rest),
            _ if rest.is_empty() => None,
            _ => return Err(Status::Malformed),
        };
        match flags & !(HAS_DATA | HAS_GEOMETRY | HAS_FIELDS | HAS_EXPIRY | PERSISTS | HAS_NAME) {
            0 => Ok(Self { id, rect, data, geometry, fields, expiry }),
            _ => Err(Status::Malformed),
        }
    }
}

/// A rectangle, and the rest.
pub(super) fn take_rect(value: &[u8]) -> Result<(Rect, &[u8]), Status> {
    Rect::read_from_prefix(value).map_err(|_| Status::Malformed)
}

/// The results of a search, as in replies: objects, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FoundObjects<'a>(&'a [u8]);

/// Bytes of an id's length.
const LENGTH_BYTES: usize = 2;

impl<'a> FoundObjects<'a> {
    /// The whole objects that the bytes encode: a long list comes in parts. Bytes after the last
    /// whole object are left out.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Appends an object whose word is its id.
    #[inline(always)]
    pub fn push(list: &mut Vec<u8>, object: &Entry) {
        list.extend_from_slice(object.as_bytes());
    }

    /// Appends one with a surrogate, and its id's text.
    #[allow(clippy::cast_possible_truncation, reason = "an id's length is bounded")]
    pub fn push_named(list: &mut Vec<u8>, object: &Entry, text: &[u8]) {
        debug_assert!(is_surrogate(object.word) && text.len() <= MAX_OBJECT_ID_BYTES);
        list.extend_from_slice(object.as_bytes());
        list.extend_from_slice(&(text.len() as u16).to_le_bytes());
        list.extend_from_slice(text);
    }

    /// The first object with its id, and the list behind it.
    #[inline]
    pub fn split(self) -> Option<((Entry, ObjectId<'a>), Self)> {
        let (entry, rest) = self.0.split_first_chunk::<ENTRY_BYTES>()?;
        let entry = Entry::from_bytes(entry);
        if !is_surrogate(entry.word) {
            return Some(((entry, ObjectId::Number(entry.word)), Self(rest)));
        }
        let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>()?;
        let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        Some(((entry, ObjectId::of_text(text)), Self(rest)))
    }

    /// The objects with their ids, in order.
    pub fn iter(self) -> impl Iterator<Item = (Entry, ObjectId<'a>)> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let (found, after) = rest.split()?;
            rest = after;
            Some(found)
        })
    }

    /// The rest of the encoded list.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Bytes of the first objects, at most this many; all if there are fewer.
    pub fn bytes_of_first(self, most: usize) -> usize {
        let mut rest = self;
        for _ in 0..most {
            match rest.split() {
                Some((_, after)) => rest = after,
                None => break,
            }
        }
        self.0.len() - rest.0.len()
    }

    /// The same list with each id once.
    pub fn without_doubles(self) -> Vec<u8> {
        let (mut known, mut once) = (BTreeSet::new(), Vec::with_capacity(self.0.len()));
        let mut rest = self;
        while let Some(((_, id), after)) = rest.split() {
            if known.insert(id) {
                once.extend_from_slice(&rest.0[..rest.0.len() - after.0.len()]);
            }
            rest = after;
        }
        once
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_layout::object::SURROGATE;

    #[test]
    fn an_integer_and_its_text_are_one_id() {
        for (text, number) in
            [(&b"0"[..], 0), (b"17", 17), (b"9223372036854775807", i64::MAX as u64)]
        {
            assert_eq!(ObjectId::of_text(text), ObjectId::Number(number));
            assert!(ObjectId::Number(number).with_text(|known| known == text));
            assert!(!ObjectId::Name(text).is_valid(), "it has another form");
        }
        for text in [&b"-1"[..], b"01", b"9223372036854775808", b"x", b"1 ", b"\0"] {
            assert_eq!(ObjectId::of_text(text), ObjectId::Name(text));
            assert!(ObjectId::of_text(text).is_valid());
        }
        assert!(!ObjectId::of_text(b"").is_valid());
        assert!(!ObjectId::of_text(&[b'x'; MAX_OBJECT_ID_BYTES + 1]).is_valid());
        assert!(!ObjectId::Number(SURROGATE).is_valid());
    }

    #[test]
    fn what_was_found_comes_back_and_each_id_once() {
        let entry = |word| Entry { rect: Rect::default(), word };
        let mut list = Vec::new();
        FoundObjects::push(&mut list, &entry(7));
        FoundObjects::push_named(&mut list, &entry(SURROGATE | 1), b"seven");
        FoundObjects::push_named(&mut list, &entry(SURROGATE | 2), b"7");
        FoundObjects::push(&mut list, &entry(8));
        let found = FoundObjects::of(&list);
        let ids: Vec<_> = found.iter().map(|(_, id)| id).collect();
        let number = ObjectId::Number;
        assert_eq!(ids, [number(7), ObjectId::Name(b"seven"), number(7), number(8)]);
        let once = found.without_doubles();
        assert!(FoundObjects::of(&once).iter().map(|(_, id)| id).eq([ids[0], ids[1], ids[3]]));
        assert_eq!(found.bytes_of_first(2), 2 * ENTRY_BYTES + 7);
        assert_eq!(found.bytes_of_first(9), list.len());
        for cut in 0..list.len() {
            // Whole objects only, however the list is cut.
            let whole = found.iter().count();
            let found = FoundObjects::of(&list[..cut]).iter().count();
            assert!(found < whole, "{cut}");
        }
    }
}
