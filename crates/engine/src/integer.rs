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

/// An integer's text, without allocation.
pub struct Text {
    bytes: [u8; 20],
    from: usize,
}

impl Text {
    /// The text of `value`.
    pub fn of(value: i64) -> Self {
        let mut text = Self { bytes: [0; 20], from: 20 };
        let mut rest = value.unsigned_abs();
        loop {
            text.from -= 1;
            text.bytes[text.from] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            text.from -= 1;
            text.bytes[text.from] = b'-';
        }
        text
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_standard_library() {
        for value in [0, 1, -1, 10, 99, -100, i64::MAX, i64::MIN, i64::MAX - 1, 1 << 40] {
            assert_eq!(Text::of(value).as_bytes(), value.to_string().as_bytes());
            assert_eq!(parse(value.to_string().as_bytes()), Some(value));
        }
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1.0", "x"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"-9223372036854775809"), None);
    }
}
