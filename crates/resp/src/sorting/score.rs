//! Scores of SORT: numbers as C's `strtod` reads them, which Redis calls.

use crate::numbers::strtod;

/// The number that a text is. What is empty is 0, and a zero byte ends a text. `None`: no number, or one
/// that is too large, or too small to have all its digits: those are errors of C.
pub(super) fn score(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let parsed = strtod(text);
    let is_number = parsed.bytes == text.len() && !parsed.value.is_nan();
    let fits = !parsed.is_out_of_range && !parsed.value.is_subnormal();
    (is_number && fits).then_some(parsed.value)
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
