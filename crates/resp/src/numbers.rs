//! Doubles as Redis 7.0 reads and writes them: with C's `strtod`, and with `%.17g`.

use crate::limits::MAX_NUMBER_BYTES;
use crate::wire::{RespVersion, encode};

/// What C's `strtod` makes of the beginning of a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Parsed {
    /// The number; 0 if the text begins with none.
    pub value: f64,
    /// Bytes that belong to it, white space before it included; 0 without a number.
    pub bytes: usize,
    /// It does not fit: the value is infinite, or 0 although there are other digits.
    pub is_out_of_range: bool,
}

const NO_NUMBER: Parsed = Parsed { value: 0.0, bytes: 0, is_out_of_range: false };

/// The number at the beginning of a text: decimal or hexadecimal, an infinity or NaN, behind white space
/// or not. Other than in C a text of more than [`MAX_NUMBER_BYTES`] is none.
pub(crate) fn strtod(text: &[u8]) -> Parsed {
    if text.len() > MAX_NUMBER_BYTES {
        return NO_NUMBER;
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let (is_negative, from) = match text.get(start) {
        Some(b'-') => (true, start + 1),
        Some(b'+') => (false, start + 1),
        _ => (false, start),
    };
    let (size, bytes, is_zero) = magnitude(&text[from..]);
    if bytes == 0 {
        return NO_NUMBER;
    }
    Parsed {
        value: if is_negative { -size } else { size },
        bytes: from + bytes,
        is_out_of_range: !is_zero && (size == 0.0 || size == f64::INFINITY),
    }
}

/// An argument that is a number: all of the text is, without white space before it; it is not NaN, and it
/// fits. A number that is too small to have all its digits fits.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let parsed = strtod(text);
    let is_whole = parsed.bytes == text.len() && !text.is_empty();
    let is_spaced = text.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
    let fits = !parsed.is_out_of_range && !parsed.value.is_nan();
    (is_whole && !is_spaced && fits).then_some(parsed.value)
}

/// A number without its sign, its bytes, and whether it is exactly what the digits say because they are
/// zeros, or no digits: 0, an infinity or NaN.
fn magnitude(text: &[u8]) -> (f64, usize, bool) {
    let begins =
        |name: &[u8]| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    if let Some(name) = [&b"infinity"[..], b"inf"].into_iter().find(|name| begins(name)) {
        return (f64::INFINITY, name.len(), true);
    }
    if begins(b"nan") {
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let payload = text[3..].strip_prefix(b"(").and_then(|rest| {
            let bytes = rest.iter().position(|byte| !is_of_name(byte))?;
            (rest[bytes] == b')').then_some(bytes + 2)
        });
        return (f64::NAN, 3 + payload.unwrap_or(0), true);
    }
    if begins(b"0x")
        && let Some(found) = hexadecimal(&text[2..])
    {
        return found;
    }
    decimal(text)
}

/// Bytes of the digits at the beginning of a text, with a point or without; 0 without a digit.
fn digits(text: &[u8], is_digit: fn(&u8) -> bool) -> usize {
    let run = |from: usize| {
        text[from..].iter().position(|byte| !is_digit(byte)).unwrap_or(text.len() - from)
    };
    let whole = run(0);
    let fraction = match text.get(whole) {
        Some(b'.') => run(whole + 1),
        _ => return whole,
    };
    if whole + fraction == 0 { 0 } else { whole + 1 + fraction }
}

/// Bytes of a power behind one of these letters, and the power, within what any number has; 0 bytes
/// without one.
fn power(text: &[u8], letters: [u8; 2]) -> (usize, i64) {
    let Some((letter, rest)) = text.split_first() else { return (0, 0) };
    let (is_negative, signs) = match rest.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let count = rest[signs..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !letters.contains(letter) || count == 0 {
        return (0, 0);
    }
    let most = 1 << 40;
    let digits = rest[signs..signs + count].iter();
    let power = digits.fold(0i64, |sum, digit| (10 * sum + i64::from(digit - b'0')).min(most));
    (1 + signs + count, if is_negative { -power } else { power })
}

fn decimal(text: &[u8]) -> (f64, usize, bool) {
    let mantissa = digits(text, u8::is_ascii_digit);
    if mantissa == 0 {
        return (0.0, 0, true);
    }
    let bytes = mantissa + power(&text[mantissa..], [b'e', b'E']).0;
    let is_zero = text[..mantissa].iter().all(|byte| matches!(byte, b'0' | b'.'));
    let number = str::from_utf8(&text[..bytes]).ok().and_then(|text| text.parse().ok());
    (number.unwrap_or(0.0), bytes, is_zero)
}

/// Digits behind `0x`, with a point or without, and perhaps a power of two; `None` without a digit.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize, bool)> {
    let bytes = digits(text, u8::is_ascii_hexdigit);
    if bytes == 0 {
        return None;
    }
    let (power_bytes, mut exponent) = power(&text[bytes..], [b'p', b'P']);
    let (mut mantissa, mut is_fraction) = (0u64, false);
    for byte in &text[..bytes] {
        let Some(digit) = char::from(*byte).to_digit(16) else {
            is_fraction = true;
            continue;
        };
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            // What is behind more bits than a number has only says which way it is rounded.
            mantissa |= u64::from(digit != 0);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    // In two steps: a power alone may not fit where the product does.
    let exponent = exponent.clamp(-2_200, 2_200) as i32;
    let number = mantissa as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
    Some((number, 2 + bytes + power_bytes, mantissa == 0))
}

/// A number with 17 significant digits, as C's `%.17g` writes it.
pub(crate) fn text(number: f64) -> String {
    // All integers below have at most 16 digits.
    let is_short = number.abs() < 1e15 && number.fract() == 0.0;
    if is_short && !(number == 0.0 && number.is_sign_negative()) {
        return (number as i64).to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent {
        -4..17 => trim(&format!("{number:.*}", (16 - exponent) as usize)),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(digits), exponent.abs())
        }
    }
}

/// A number as Redis keeps the scores of small sorted sets: an integer that fits 64 bits with room to
/// spare has all its digits.
pub(crate) fn integral_text(number: f64) -> String {
    let most = (i64::MAX / 2) as f64;
    match number.fract() == 0.0 && number.abs() <= most {
        true => (number as i64).to_string(),
        false => text(number),
    }
}

/// Appends a number whose text is known; a bulk string in RESP2.
pub(crate) fn write_text(out: &mut Vec<u8>, version: RespVersion, text: &str) {
    match version {
        RespVersion::Resp2 => encode::bulk(out, text.as_bytes()),
        RespVersion::Resp3 => {
            out.push(b',');
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends a number; a bulk string in RESP2.
pub(crate) fn write(out: &mut Vec<u8>, version: RespVersion, number: f64) {
    write_text(out, version, &text(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, written) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (-17.0, "-17"),
            (999_999_999_999_999.0, "999999999999999"),
            (3_479_099_956_230_698.0, "3479099956230698"),
            (18_014_398_509_481_984.0, "18014398509481984"),
            (314.3718348336028, "314.3718348336028"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (0.00012345, "0.00012344999999999999"),
            (0.000012345, "1.2345e-05"),
            (1e17, "1e+17"),
            (1e300, "1.0000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(number), written);
        }
    }

    #[test]
    fn integers_of_any_length_have_all_their_digits() {
        for (number, written) in [
            (1e17, "100000000000000000"),
            (-4e18, "-4000000000000000000"),
            (5e18, "5e+18"),
            (-0.0, "0"),
            (0.5, "0.5"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(integral_text(number), written);
        }
    }

    /// A text, its number, the bytes that belong to it, and whether it is out of range.
    fn parsed(of: &[u8]) -> (f64, usize, bool) {
        let Parsed { value, bytes, is_out_of_range } = strtod(of);
        (value, bytes, is_out_of_range)
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let infinite = f64::INFINITY;
        type Case<'t> = (&'t [u8], (f64, usize, bool));
        let all: [Case<'_>; 24] = [
            (b"", (0.0, 0, false)),
            (b" ", (0.0, 0, false)),
            (b" \t\n1.5x", (1.5, 6, false)),
            (b"-", (0.0, 0, false)),
            (b"--1", (0.0, 0, false)),
            (b".", (0.0, 0, false)),
            (b"5.", (5.0, 2, false)),
            (b"+.5", (0.5, 3, false)),
            (b"1e", (1.0, 1, false)),
            (b"1e+", (1.0, 1, false)),
            (b"1e-2", (0.01, 4, false)),
            (b"1E5", (100_000.0, 3, false)),
            (b"infinite", (infinite, 3, false)),
            (b"-Infinity", (-infinite, 9, false)),
            (b"1e400", (infinite, 5, true)),
            (b"-1e99999999999999999999", (-infinite, 23, true)),
            (b"1e-400", (0.0, 6, true)),
            (b"0e99999999999999999999", (0.0, 22, false)),
            (b"5e-324", (5e-324, 6, false)),
            (b"0x", (0.0, 1, false)),
            (b"0x1p", (1.0, 3, false)),
            (b"0X1.8p1", (3.0, 7, false)),
            (b"-0x.8p+1", (-1.0, 8, false)),
            (b"0x1p99999999999999999999", (infinite, 24, true)),
        ];
        for (of, expected) in all {
            assert_eq!(parsed(of), expected, "{}", of.escape_ascii());
        }
        for (of, bytes) in [(&b"nan"[..], 3), (b"NaN(a_1)x", 8), (b"-nan(", 4), (b"nan(-)", 3)] {
            assert!(strtod(of).value.is_nan());
            assert_eq!(strtod(of).bytes, bytes);
        }
        assert!(strtod(b"-0").value.is_sign_negative());
    }

    #[test]
    fn an_argument_is_one_number_that_fits() {
        for (of, number) in [
            (&b"1"[..], 1.0),
            (b"+inf", f64::INFINITY),
            (b"-Infinity", f64::NEG_INFINITY),
            (b"0x10", 16.0),
            (b"1e-320", 1e-320),
            (b"0.0000", 0.0),
        ] {
            assert_eq!(float(of), Some(number));
        }
        let none: [&[u8]; 11] =
            [b"", b" 1", b"1 ", b"1\0", b"nan", b"1e400", b"-1e400", b"1e-400", b"x", b"0x", b"1e"];
        for of in none {
            assert_eq!(float(of), None, "{}", of.escape_ascii());
        }
        assert_eq!(float(&[b'1'; MAX_NUMBER_BYTES + 1]), None);
    }
}
