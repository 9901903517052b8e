//! Integers as Redis reads and writes them.

/// Longest decimal form of a 64-bit integer: a sign and 19 digits.
pub const MAX_INTEGER_BYTES: usize = 20;

/// The integer that `text` is, in the one form that Redis writes: no spaces,
/// no plus, no leading zeros, no `-0`.
#[inline]
pub fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) || digits.len() > 19 {
        return None;
    }
    // 19 digits are below 10^19, which fits.
    let mut magnitude = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// All pairs of digits, so that formatting divides once for two digits.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut at = 0;
    while at < 100 {
        pairs[at * 2] = b'0' + (at / 10) as u8;
        pairs[at * 2 + 1] = b'0' + (at % 10) as u8;
        at += 1;
    }
    pairs
};

/// Appends the decimal form of an integer.
#[inline]
pub fn write(out: &mut Vec<u8>, integer: i64) {
    let mut text = [0u8; MAX_INTEGER_BYTES];
    let mut at = MAX_INTEGER_BYTES;
    let mut left = integer.unsigned_abs();
    while left >= 100 {
        let pair = (left % 100) as usize * 2;
        left /= 100;
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if left >= 10 {
        let pair = left as usize * 2;
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        text[at] = b'0' + left as u8;
    }
    if integer < 0 {
        at -= 1;
        text[at] = b'-';
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_form() {
        for text in ["", "-", "+1", " 1", "1 ", "01", "-0", "-01", "1.0", "x", "--1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse(b"9223372036854775808"), None);
        assert_eq!(parse(b"-9223372036854775809"), None);
        assert_eq!(parse(b"99999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn integers_round_trip(shift in 0u32..64, bits: i64) {
            for integer in [bits >> shift, i64::MIN, i64::MAX, 0] {
                let mut text = Vec::new();
                write(&mut text, integer);
                prop_assert_eq!(&text, &integer.to_string().into_bytes());
                prop_assert_eq!(parse(&text), Some(integer));
            }
        }

        #[test]
        fn what_is_parsed_is_written_the_same(text in "[-+0-9a ]{0,21}") {
            if let Some(integer) = parse(text.as_bytes()) {
                prop_assert_eq!(integer.to_string(), text);
            }
        }
    }
}
