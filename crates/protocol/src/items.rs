//! Lists of byte strings, in the encoding of requests and replies.

use remora_layout::packed::Field;

/// Length of an item that is not there.
const NONE: u32 = u32::MAX;
/// The bit of the length of an item that is a link.
const LINK: u32 = 1 << 31;
/// Bytes before each item.
const HEADER_BYTES: usize = 4;

/// Byte strings, or their absence, one after the other: bytes 4 | item. All
/// ones instead of a length: there is none. The highest bit of a length says that the item is a
/// link, the name of a key; who does not ask for that does not see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// Appends an item to an encoded list.
    #[inline]
    pub fn push(list: &mut Vec<u8>, item: &[u8]) {
        list.extend_from_slice(&(item.len() as u32).to_le_bytes());
        list.extend_from_slice(item);
    }

    /// Appends an item that is a link, if this says so.
    pub fn push_field(list: &mut Vec<u8>, field: Field<'_>) {
        let link = if field.is_link { LINK } else { 0 };
        list.extend_from_slice(&(field.value.len() as u32 | link).to_le_bytes());
        list.extend_from_slice(field.value);
    }

    /// Appends the absence of an item.
    pub fn push_none(list: &mut Vec<u8>) {
        list.extend_from_slice(&NONE.to_le_bytes());
    }

    /// Bytes of an encoded item of this length.
    pub const fn bytes_of(item_bytes: usize) -> usize {
        HEADER_BYTES + item_bytes
    }

    /// Bytes of the first item in an encoded list; 0 if there is none.
    pub fn first_bytes(list: &[u8]) -> usize {
        let item = Items::split(list).and_then(|(item, _)| item);
        item.map_or(0, |item| Self::bytes_of(item.len()))
    }

    /// The items of an encoded list, with checked lengths.
    pub fn parse(list: &'a [u8]) -> Option<Self> {
        let mut rest = list;
        while !rest.is_empty() {
            rest = Self::split(rest)?.1;
        }
        Some(Self(list))
    }

    /// The first item of an encoded list, and the list behind it; `None` at its
    /// end, and where the bytes encode none.
    #[inline]
    pub fn split(list: &'a [u8]) -> Option<(Option<&'a [u8]>, &'a [u8])> {
        let (item, rest) = Self::split_field(list)?;
        Some((item.map(|item| item.value), rest))
    }

    /// The same, with the mark of a link.
    #[inline]
    pub fn split_field(list: &'a [u8]) -> Option<(Option<Field<'a>>, &'a [u8])> {
        let (&length, rest) = list.split_first_chunk()?;
        match u32::from_le_bytes(length) {
            NONE => Some((None, rest)),
            length => {
                let (value, rest) = rest.split_at_checked((length & !LINK) as usize)?;
                Some((Some(Field { value, is_link: length & LINK != 0 }), rest))
            }
        }
    }

    /// The items, in order, and which of them are links.
    pub fn fields(self) -> impl Iterator<Item = Option<Field<'a>>> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (item, after) = Self::split_field(rest)?;
            rest = after;
            Some(item)
        })
    }

    /// Whether any item is a link.
    pub fn has_links(self) -> bool {
        self.fields().flatten().any(|field| field.is_link)
    }

    /// The items, in order.
    pub fn iter(self) -> impl Iterator<Item = Option<&'a [u8]>> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (item, after) = Self::split(rest)?;
            rest = after;
            Some(item)
        })
    }

    /// The encoded list.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_back_and_a_cut_list_is_none() {
        let mut list = Vec::new();
        Items::push(&mut list, b"one");
        Items::push_none(&mut list);
        Items::push(&mut list, b"");
        let items: Vec<_> = Items::parse(&list).unwrap().iter().collect();
        assert_eq!(items, [Some(&b"one"[..]), None, Some(b"")]);
        for cut in 1..list.len() {
            let is_edge = [7, 11].contains(&cut);
            assert_eq!(Items::parse(&list[..cut]).is_some(), is_edge, "{cut}");
        }
        assert!(!Items::parse(&list).unwrap().has_links());
        Items::push_field(&mut list, Field { value: b"key", is_link: true });
        let items = Items::parse(&list).unwrap();
        assert_eq!(items.iter().last(), Some(Some(&b"key"[..])));
        let links: Vec<bool> = items.fields().flatten().map(|field| field.is_link).collect();
        assert_eq!(links, [false, false, true]);
    }
}
