//! The names of the parts of a large object of members, as a set's or a sorted set's.
//!
//! ```text
//! bin         name: 0 | number 4    value: some members, packed
//! own member  name: 1 | member      value: what is kept of the member beside its name
//! ```

/// First byte of the name of a part that is a bin; its number follows.
pub const BIN: u8 = 0;
/// First byte of the name of a part that is one member, which follows.
pub const OWN: u8 = 1;

/// The name of the bin with this number.
pub const fn bin_name(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_le_bytes();
    [BIN, a, b, c, d]
}

/// Whether a part of this name is a bin.
pub fn is_bin(name: &[u8]) -> bool {
    name.first() == Some(&BIN)
}

/// The number of the bin of this name; `None` if the part is no bin.
pub fn bin_number(name: &[u8]) -> Option<u32> {
    let (&BIN, number) = name.split_first()? else { return None };
    number.first_chunk().copied().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_bin_or_member_it_is() {
        for number in [0, 1, 256, u32::MAX] {
            assert!(is_bin(&bin_name(number)));
            assert_eq!(bin_number(&bin_name(number)), Some(number));
        }
        let own = [&[OWN], &bin_name(7)[..]].concat();
        assert!(!is_bin(&own) && own[1..] == bin_name(7));
        for name in [&own[..], &[], &[BIN], &[BIN, 1, 2, 3]] {
            assert_eq!(bin_number(name), None, "{name:?}");
        }
    }
}
