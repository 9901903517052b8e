//! What the operations on named elements of objects have in common: the fields of a hash, the
//! members of sets and sorted sets.

use crate::items::Items;
use crate::message::Status;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_KEY_BYTES, MAX_PATTERN_BYTES, MAX_VALUE_BYTES};
use remora_layout::packed::Field;

/// The parts of each element in a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Its name.
    Names = 1,
    /// Its value.
    Values = 2,
    /// Its name, then its value.
    Both = 3,
}

impl Told {
    pub(crate) fn of(flags: u8) -> Option<Self> {
        [Self::Names, Self::Values, Self::Both].into_iter().find(|told| *told as u8 == flags)
    }
}

/// How sets become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combination {
    /// The members that all of them have.
    Inter = 0,
    /// The members that any of them has.
    Union = 1,
    /// The members of the first that no other has.
    Diff = 2,
}

impl Combination {
    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::Inter, Self::Union, Self::Diff].into_iter().find(|of| *of as u8 == number)
    }
}

/// A list of at least one name, or of pairs with values; none where an item is
/// missing.
pub(crate) fn list(value: &[u8], step: usize) -> Result<Items<'_>, Status> {
    let items = Items::parse(value).ok_or(Status::Malformed)?;
    let mut count = 0;
    for (at, item) in items.iter().enumerate() {
        let most = if at % step == 0 { MAX_KEY_BYTES } else { MAX_VALUE_BYTES };
        match item {
            Some(_) if count == MAX_COMMAND_ITEMS => return Err(Status::TooLarge),
            Some(item) if item.len() <= most => count += 1,
            Some(_) => return Err(Status::TooLarge),
            None => return Err(Status::Malformed),
        }
    }
    let is_it = count > 0 && count % step == 0 && !items.has_links();
    if is_it { Ok(items) } else { Err(Status::Malformed) }
}

/// A list of pairs whose values may be links: those name keys, and have their limit.
pub(crate) fn list_with_links(value: &[u8]) -> Result<Items<'_>, Status> {
    let items = Items::parse(value).ok_or(Status::Malformed)?;
    if !items.has_links() {
        return list(value, 2);
    }
    let mut plain = Vec::with_capacity(value.len());
    for (at, item) in items.fields().enumerate() {
        let Field { value, is_link } = item.ok_or(Status::Malformed)?;
        match is_link {
            true if at % 2 == 0 => return Err(Status::Malformed),
            true if value.len() > MAX_KEY_BYTES => return Err(Status::TooLarge),
            _ => {}
        }
        Items::push(&mut plain, value);
    }
    list(&plain, 2).map(|_| items)
}

pub(crate) fn name(value: &[u8]) -> Result<&[u8], Status> {
    if value.len() <= MAX_KEY_BYTES { Ok(value) } else { Err(Status::TooLarge) }
}

/// The options of a step of a scan: a pattern or none, and a count as eight bytes.
pub(crate) fn scan_options(value: &[u8]) -> Result<Items<'_>, Status> {
    let items = Items::parse(value).ok_or(Status::Malformed)?;
    let mut all = items.iter();
    match (all.next(), all.next(), all.next()) {
        (Some(Some(pattern)), ..) if pattern.len() > MAX_PATTERN_BYTES => Err(Status::TooLarge),
        (Some(_), Some(Some(count)), None) if count.len() == 8 => Ok(items),
        _ => Err(Status::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_value_and_has_the_limit_of_keys() {
        let long = vec![b'k'; MAX_KEY_BYTES + 1];
        let said = |fields: &[(&[u8], bool)]| {
            let mut encoded = Vec::new();
            let fields = fields.iter().map(|&(value, is_link)| Field { value, is_link });
            fields.for_each(|field| Items::push_field(&mut encoded, field));
            list_with_links(&encoded).map(|items| items.iter().count())
        };
        assert_eq!(said(&[(b"name", false), (&long[1..], true)]), Ok(2));
        assert_eq!(said(&[(b"name", false), (&long, true)]), Err(Status::TooLarge));
        assert_eq!(said(&[(b"name", false), (&long, false)]), Ok(2), "a value may be longer");
        assert_eq!(said(&[(&long, false), (b"target", true)]), Err(Status::TooLarge));
        assert_eq!(said(&[(b"name", true), (b"target", true)]), Err(Status::Malformed));
        assert_eq!(said(&[(b"name", false)]), Err(Status::Malformed));
        assert_eq!(said(&[]), Err(Status::Malformed));
    }
}
