//! Fields of a tree's objects.
//!
//! ```text
//! field    name's length 2 | value's length 2 | name | value
//! ```

use remora_layout::limits::{MAX_FIELDS, MAX_FIELDS_BYTES};
use std::collections::BTreeMap;

/// Fields of an object: pairs of a name and a value, each any bytes, in the order of their names,
/// each name once. So equal fields are equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields that the bytes encode; `None` if they encode none, or break a
    /// limit.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > MAX_FIELDS_BYTES {
            return None;
        }
        let (mut rest, mut last, mut count) = (bytes, None, 0);
        while !rest.is_empty() {
            let ((name, _), after) = split_field(rest)?;
            if last.is_some_and(|last| last >= name) || count == MAX_FIELDS {
                return None;
            }
            (rest, last, count) = (after, Some(name), count + 1);
        }
        Some(Self(bytes))
    }

    /// Their encoding.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Names and values, by their names.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (field, after) = split_field(rest)?;
            rest = after;
            Some(field)
        })
    }

    /// The value of the field with this name.
    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Encodes fields, in whatever order they come; of a name that comes twice
    /// the last value counts. `None` if they break a limit: `MAX_FIELDS`,
    /// `MAX_FIELDS_BYTES` in all.
    pub fn encode<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) -> Option<Vec<u8>> {
        let sorted: BTreeMap<&[u8], &[u8]> = fields.into_iter().collect();
        let mut bytes = Vec::new();
        for (name, value) in &sorted {
            bytes.extend_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
            bytes.extend_from_slice(&u16::try_from(value.len()).ok()?.to_le_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(value);
        }
        (sorted.len() <= MAX_FIELDS && bytes.len() <= MAX_FIELDS_BYTES).then_some(bytes)
    }
}

type Field<'a> = (&'a [u8], &'a [u8]);

fn split_field(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (&name, rest) = bytes.split_first_chunk()?;
    let (&value, rest) = rest.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u16::from_le_bytes(name).into())?;
    let (value, rest) = rest.split_at_checked(u16::from_le_bytes(value).into())?;
    Some(((name, value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_one_encoding_and_bounds() {
        let fields: [(&[u8], &[u8]); 3] = [(b"b", b"2"), (b"a", b""), (b"b", b"3")];
        let bytes = Fields::encode(fields).unwrap();
        let known = Fields::parse(&bytes).unwrap();
        assert!(known.iter().eq([(&b"a"[..], &b""[..]), (b"b", b"3")]));
        assert_eq!((known.get(b"b"), known.get(b"c")), (Some(&b"3"[..]), None));
        assert_eq!(Fields::parse(&[]), Some(Fields::default()));
        for cut in 1..bytes.len() {
            // Whole fields only.
            assert_eq!(Fields::parse(&bytes[..cut]).is_some(), cut == 5, "{cut}");
        }
        let (a, b) = bytes.split_at(5);
        assert_eq!(Fields::parse(&[b, a].concat()), None, "not in order");
        assert_eq!(Fields::parse(&[a, a].concat()), None, "twice");
        let names: Vec<Vec<u8>> = (0..=MAX_FIELDS as u16).map(|n| n.to_be_bytes().into()).collect();
        let many = |count: usize| names.iter().take(count).map(|name| (&name[..], &b""[..]));
        let most = Fields::encode(many(MAX_FIELDS)).unwrap();
        assert!(Fields::parse(&most).is_some());
        assert_eq!(Fields::encode(many(MAX_FIELDS + 1)), None);
        let more = [&most[..], &[2, 0, 0, 0], &names[MAX_FIELDS]].concat();
        assert_eq!(Fields::parse(&more), None);
        let long = vec![0; MAX_FIELDS_BYTES - 5];
        let longest = Fields::encode([(&b"n"[..], &long[..])]).unwrap();
        assert_eq!(longest.len(), MAX_FIELDS_BYTES);
        assert!(Fields::parse(&longest).is_some());
        assert_eq!(Fields::encode([(&b"nn"[..], &long[..])]), None);
    }
}
