//! Lists of byte strings, in the encoding of requests and replies.

/// Length of an item that is not there.
const NONE: u32 = u32::MAX;
/// Bytes before each item.
const HEADER_BYTES: usize = 4;

/// Byte strings, or their absence, one after the other: bytes 4 | item. All
/// ones instead of a length: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// Appends an item to an encoded list.
    #[inline]
    pub fn push(list: &mut Vec<u8>, item: &[u8]) {
        list.extend_from_slice(&(item.len() as u32).to_le_bytes());
        list.extend_from_slice(item);
    }

    /// Appends the absence of an item.
    pub fn push_none(list: &mut Vec<u8>) {
        list.extend_from_slice(&NONE.to_le_bytes());
    }

    /// Bytes of an encoded item of this length.
    pub const fn bytes_of(item_bytes: usize) -> usize {
        HEADER_BYTES + item_bytes
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
        let (&length, rest) = list.split_first_chunk()?;
        match u32::from_le_bytes(length) {
            NONE => Some((None, rest)),
            length => {
                let (item, rest) = rest.split_at_checked(length as usize)?;
                Some((Some(item), rest))
            }
        }
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
    }
}
