//! Integers as Redis writes them: decimal, no sign but '-', no leading zeros.

/// The integer that `text` is, if it is one exactly.
pub fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    match digits {
        [] => return None,
        [b'0', ..] if digits.len() > 1 || negative => return None,
        _ => {}
    }
    // Negative, as the negative range is the larger one.
    let mut value = 0i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub((digit - b'0') as i64)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Appends an integer's text.
#[inline]
pub fn write(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
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
