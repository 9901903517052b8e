//! Small objects, whole in their record: names with values, packed one behind the
//! other (as Redis's listpacks; the record's checksum covers them).
//!
//! ```text
//! name_bytes 1 | value_bytes 1 | name | value
//! ```

/// Bytes of a name or a value at most: one byte holds its length.
pub const MAX_PACKED_BYTES: usize = u8::MAX as usize;

const _: () = assert!(crate::limits::WHOLE_ITEM_BYTES <= MAX_PACKED_BYTES);

/// Appends a name with its value, each at most [`MAX_PACKED_BYTES`] long.
pub fn push(packed: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(name.len() <= MAX_PACKED_BYTES && value.len() <= MAX_PACKED_BYTES);
    packed.extend_from_slice(&[name.len() as u8, value.len() as u8]);
    packed.extend_from_slice(name);
    packed.extend_from_slice(value);
}

/// Names and values, in order; ends early where the bytes are no valid encoding.
pub fn pairs(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (&[name_bytes, value_bytes], after) = rest.split_first_chunk()?;
        let (name, after) = after.split_at_checked(name_bytes.into())?;
        let (value, after) = after.split_at_checked(value_bytes.into())?;
        rest = after;
        Some((name, value))
    })
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
        let all: [(&[u8], &[u8]); 3] = [(b"a", b"one"), (b"", b""), (&[7; 255], &[8; 255])];
        all.iter().for_each(|(name, value)| push(&mut packed, name, value));
        assert!(pairs(&packed).eq(all));
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
