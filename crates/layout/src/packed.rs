//! Small objects, whole in their record: names with values, packed one behind the
//! other (as Redis's listpacks; the record's checksum covers them).
//!
//! ```text
//! name_bytes 1 | value_bytes 7 bits | link 1 bit | name | value
//! ```
//! The bit says that the value is a link: the name of a key ([`crate::link`]).

/// Bytes of a name or a value at most.
pub const MAX_PACKED_BYTES: usize = 127;
/// The bit of a value's length that says "a link".
const LINK: u8 = 128;

const _: () = assert!(crate::limits::WHOLE_ITEM_BYTES <= MAX_PACKED_BYTES);

/// A value, and whether it is a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Field<'a> {
    /// Its bytes: of a link the key that it names.
    pub value: &'a [u8],
    /// Whether it is a link.
    pub is_link: bool,
}

impl<'a> Field<'a> {
    /// A value that is no link.
    pub const fn plain(value: &'a [u8]) -> Self {
        Self { value, is_link: false }
    }
}

/// Appends a name with its value, each at most [`MAX_PACKED_BYTES`] long.
pub fn push(packed: &mut Vec<u8>, name: &[u8], field: Field<'_>) {
    let Field { value, is_link } = field;
    debug_assert!(name.len() <= MAX_PACKED_BYTES && value.len() <= MAX_PACKED_BYTES);
    let link = if is_link { LINK } else { 0 };
    packed.extend_from_slice(&[name.len() as u8, value.len() as u8 | link]);
    packed.extend_from_slice(name);
    packed.extend_from_slice(value);
}

/// Names and values, in order; ends early where the bytes are no valid encoding.
#[inline]
pub const fn fields(packed: &[u8]) -> Fields<'_> {
    Fields { rest: packed }
}

/// See [`fields`].
#[derive(Clone, Copy, Debug)]
pub struct Fields<'p> {
    rest: &'p [u8],
}

impl<'p> Iterator for Fields<'p> {
    type Item = (&'p [u8], Field<'p>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&[name_bytes, value_bytes], after) = self.rest.split_first_chunk()?;
        let (name, after) = after.split_at_checked(name_bytes.into())?;
        let (value, after) = after.split_at_checked((value_bytes & !LINK).into())?;
        self.rest = after;
        Some((name, Field { value, is_link: value_bytes & LINK != 0 }))
    }
}

/// The same, whatever is a link.
#[inline]
pub fn pairs(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    fields(packed).map(|(name, field)| (name, field.value))
}

/// The value of a name.
#[inline]
pub fn find<'p>(packed: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    pairs(packed).find(|(other, _)| *other == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_back_and_cut_bytes_give_fewer() {
        let mut packed = Vec::new();
        let all: [(&[u8], &[u8]); 3] = [(b"a", b"one"), (b"", b""), (&[7; 127], &[8; 127])];
        let field = |(at, (name, value)): (usize, _)| (name, Field { value, is_link: at != 1 });
        let marked: Vec<_> = all.into_iter().enumerate().map(field).collect();
        marked.iter().for_each(|(name, field)| push(&mut packed, name, *field));
        assert!(pairs(&packed).eq(all) && fields(&packed).eq(marked));
        assert_eq!(find(&packed, b""), Some(&b""[..]));
        assert_eq!(find(&packed, b"b"), None);
        for cut in 0..packed.len() {
            assert!(
                pairs(&packed[..cut]).count() < 3
                    && pairs(&packed[..cut]).zip(all).all(|(a, b)| a == b)
            );
        }
    }
}
