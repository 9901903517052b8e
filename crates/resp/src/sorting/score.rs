//! Scores of SORT: numbers as C's `strtod` reads them, which Redis calls.

/// Bytes of a text at most: longer ones are no numbers here.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// The number that a text is: decimal or hexadecimal, or an infinity, behind white space or not. What is
/// empty is 0, and a zero byte ends a text. `None`: no number, or one that does not fit.
pub(super) fn score(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let text = str::from_utf8(&text[start..]).ok()?;
    let (is_negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number = magnitude(digits)?;
    Some(if is_negative { -number } else { number })
}

fn magnitude(digits: &str) -> Option<f64> {
    if ["inf", "infinity"].iter().any(|name| digits.eq_ignore_ascii_case(name)) {
        return Some(f64::INFINITY);
    }
    if let Some(digits) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return fitting(hexadecimal(digits)?);
    }
    let is_decimal =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+');
    if !digits.bytes().all(is_decimal) || digits.starts_with(['-', '+']) {
        return None;
    }
    let number: f64 = digits.parse().ok()?;
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    if is_zero { Some(0.0) } else { fitting(number).filter(|number| *number > 0.0) }
}

/// A number that is neither too large nor, and not 0, too small to be exact: those are errors of C.
fn fitting(number: f64) -> Option<f64> {
    Some(number).filter(|number| *number == 0.0 || number.is_normal())
}

/// Digits with a point or without, and perhaps a power of two.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, power) = match text.find(['p', 'P']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut exponent) = (0u64, i64::from(power));
    for (at, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_fraction = at >= whole.len();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            // What is behind more bits than a number has only says which way it is rounded.
            mantissa |= u64::from(digit != 0);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    if mantissa == 0 {
        return Some(0.0);
    }
    // In two steps: a power alone may not fit where the product does.
    let exponent = exponent.clamp(-2_200, 2_200) as i32;
    Some(mantissa as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2))
}

#[cfg(test)]
mod tests {
    use super::score;

    #[test]
    fn texts_are_numbers_as_c_reads_them() {
        let numbers: [(&[u8], f64); 19] = [
            (b"", 0.0),
            (b"0", 0.0),
            (b"-0.0e999", 0.0),
            (b" \t\n1", 1.0),
            (b"+2", 2.0),
            (b"-3.5", -3.5),
            (b".5", 0.5),
            (b"5.", 5.0),
            (b"1e3", 1_000.0),
            (b"1E-2", 0.01),
            (b"inf", f64::INFINITY),
            (b"-Infinity", f64::NEG_INFINITY),
            (b"0x10", 16.0),
            (b"-0X1.8p1", -3.0),
            (b"0x.8", 0.5),
            (b"0x123456789abcdef0123", 5.373_003_642_731_685e21),
            (b"9223372036854775807", 9_223_372_036_854_775_807.0),
            (b"1\0behind the end", 1.0),
            (b"2.2250738585072014e-308", f64::MIN_POSITIVE),
        ];
        for (text, number) in numbers {
            assert_eq!(score(text), Some(number), "{}", text.escape_ascii());
        }
        let none: [&[u8]; 17] = [
            b" ", b"x", b"1 ", b"1x", b"--1", b"+-1", b"+", b"e5", b"1e", b"1e+", b".", b"nan",
            b"-NaN", b"0x", b"1e400", b"1e-320", b"\xff",
        ];
        for text in none {
            assert_eq!(score(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(score(&[b'1'; 5_000]), None);
    }
}
