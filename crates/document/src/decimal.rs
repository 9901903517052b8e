//! Decimal128 as IEEE 754-2008 defines it in the encoding BID, and its exact relation to doubles.

use bson::Decimal128;
use std::cmp::Ordering;

/// Decimal digits of a coefficient.
const DIGITS: u32 = 34;
/// The smallest coefficient with all digits. Normal forms lie from it to ten times it.
const LEAST: u128 = 10u128.pow(DIGITS - 1);
/// What the encoding adds to an exponent.
const BIAS: i32 = 6176;
/// Bits of a double's significand, with the implicit one.
const SIGNIFICAND_BITS: i32 = 53;
/// Exponent of the last bit of the smallest double.
const LEAST_EXPONENT: i32 = -1074;

/// A positive decimal number in normal form: `coefficient * 10^(exponent - 33)`, with a coefficient of
/// exactly 34 digits. Equal numbers have equal normal forms, and the derived order is by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Normal {
    pub(crate) exponent: i32,
    pub(crate) coefficient: u128,
}

/// What a Decimal128 is, without its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Magnitude {
    Nan,
    Infinite,
    Zero,
    Finite(Normal),
}

/// Decodes a Decimal128: whether it is negative, and its magnitude. A coefficient of more than 34
/// digits is zero, as the standard says.
pub(crate) fn decode(decimal: Decimal128) -> (bool, Magnitude) {
    let bits = u128::from_le_bytes(decimal.bytes());
    let is_negative = bits >> 127 == 1;
    let combination = (bits >> 122) & 0x1f;
    let magnitude = match combination {
        0x1f => Magnitude::Nan,
        0x1e => Magnitude::Infinite,
        // The form for coefficients of 2^113 and more, which have more than 34 digits.
        0x18..=0x1d => Magnitude::Zero,
        _ => {
            let exponent = ((bits >> 113) & 0x3fff) as i32 - BIAS;
            let coefficient = bits & ((1 << 113) - 1);
            if coefficient == 0 || coefficient >= LEAST * 10 {
                Magnitude::Zero
            } else {
                Magnitude::Finite(Normal::of(coefficient, exponent))
            }
        }
    };
    (is_negative, magnitude)
}

/// The product with the integer zero: a zero with the same sign and exponent, or NaN.
pub(crate) fn times_zero(decimal: Decimal128) -> Decimal128 {
    const EXPONENT: u128 = 0x3fff;
    const NAN: u128 = 0x1f << 122;
    let bits = u128::from_le_bytes(decimal.bytes());
    let sign = bits >> 127 << 127;
    let made = match (bits >> 122) & 0x1f {
        0x1e | 0x1f => NAN,
        0x18..=0x1d => sign | ((bits >> 111) & EXPONENT) << 113,
        _ => sign | ((bits >> 113) & EXPONENT) << 113,
    };
    Decimal128::from_bytes(made.to_le_bytes())
}

impl Normal {
    /// `coefficient * 10^exponent`, of a coefficient from 1 to 34 digits.
    pub(crate) fn of(coefficient: u128, exponent: i32) -> Normal {
        let digits = coefficient.ilog10() + 1;
        let coefficient = coefficient * 10u128.pow(DIGITS.saturating_sub(digits));
        Normal { exponent: exponent + digits as i32 - 1, coefficient }
    }

    /// Its integer part, if it has at most 19 digits, and whether there is nothing behind it.
    pub(crate) fn integer_part(self) -> Option<(u64, bool)> {
        match self.exponent {
            ..0 => Some((0, false)),
            digits @ 0..19 => {
                let unit = 10u128.pow(DIGITS - 1 - digits as u32);
                let whole = u64::try_from(self.coefficient / unit).ok()?;
                Some((whole, self.coefficient.is_multiple_of(unit)))
            }
            _ => None,
        }
    }

    /// The largest double that is not above it, and whether the two are equal.
    pub(crate) fn truncate(self) -> (f64, bool) {
        match self.exponent {
            ..-324 => (0.0, false),
            -324..33 => self.truncate_fraction(),
            33..=308 => self.truncate_integer(),
            _ => (f64::MAX, false),
        }
    }

    fn truncate_integer(self) -> (f64, bool) {
        let mut value = Wide::of(self.coefficient);
        value.times_power_of_ten((self.exponent - (DIGITS as i32 - 1)) as u32);
        let unit = value.bit_length() as i32 - SIGNIFICAND_BITS;
        let is_exact = value.trailing_zeros() as i32 >= unit;
        value.shift_right(unit as u32);
        match double(value.0[0], unit) {
            Some(double) => (double, is_exact),
            None => (f64::MAX, false),
        }
    }

    fn truncate_fraction(self) -> (f64, bool) {
        let mut dividend = Wide::of(self.coefficient);
        let mut divisor = Wide::of(1);
        divisor.times_power_of_ten((DIGITS as i32 - 1 - self.exponent) as u32);
        // The quotient gets 53 or 54 bits.
        let difference = dividend.bit_length() as i32 - divisor.bit_length() as i32;
        let shift = SIGNIFICAND_BITS - difference;
        if shift >= 0 {
            dividend.shift_left(shift as u32);
        } else {
            divisor.shift_left(shift.unsigned_abs());
        }
        let (quotient, is_whole) = divide(dividend, divisor);
        let bits = (u64::BITS - quotient.leading_zeros()) as i32;
        let unit = (bits - SIGNIFICAND_BITS - shift).max(LEAST_EXPONENT);
        let dropped = (unit + shift) as u32;
        let kept = quotient.checked_shr(dropped).unwrap_or(0);
        let is_exact = is_whole && kept.checked_shl(dropped).unwrap_or(0) == quotient;
        (double(kept, unit).unwrap_or(f64::MAX), is_exact)
    }
}

/// `significand * 2^unit`, if a double can be so large. The significand has 53 bits, or less with the
/// least unit.
fn double(significand: u64, unit: i32) -> Option<f64> {
    const IMPLICIT: u64 = 1 << (SIGNIFICAND_BITS - 1);
    if significand < IMPLICIT {
        return Some(f64::from_bits(significand));
    }
    let exponent = unit - LEAST_EXPONENT + 1;
    let is_finite = exponent < 0x7ff;
    is_finite.then(|| f64::from_bits(((exponent as u64) << 52) | (significand & (IMPLICIT - 1))))
}

/// The quotient of up to 54 bits, and whether nothing remains.
fn divide(mut dividend: Wide, mut divisor: Wide) -> (u64, bool) {
    const BITS: u32 = SIGNIFICAND_BITS as u32 + 1;
    divisor.shift_left(BITS - 1);
    let mut quotient = 0;
    for _ in 0..BITS {
        quotient <<= 1;
        if dividend.compare(&divisor) != Ordering::Less {
            dividend.subtract(&divisor);
            quotient |= 1;
        }
        divisor.shift_right(1);
    }
    (quotient, dividend.bit_length() == 0)
}

/// Words of a [`Wide`]: the largest number here is `10^357 * 2^53`, or a coefficient times `2^1129`, with
/// less than 1280 bits.
const WORDS: usize = 20;

/// A natural number of fixed width, the lowest word first.
#[derive(Clone, Copy)]
struct Wide([u64; WORDS]);

impl Wide {
    fn of(value: u128) -> Wide {
        let mut words = [0; WORDS];
        words[0] = value as u64;
        words[1] = (value >> 64) as u64;
        Wide(words)
    }

    fn times_power_of_ten(&mut self, mut power: u32) {
        /// The largest power of ten in a word.
        const STEP: u32 = 19;
        while power > 0 {
            let step = power.min(STEP);
            self.times(10u64.pow(step));
            power -= step;
        }
    }

    fn times(&mut self, factor: u64) {
        let mut carry = 0;
        for word in &mut self.0 {
            let product = u128::from(*word) * u128::from(factor) + carry;
            *word = product as u64;
            carry = product >> 64;
        }
        debug_assert_eq!(carry, 0, "it is wide enough");
    }

    fn shift_left(&mut self, bits: u32) {
        let (words, bits) = ((bits / 64) as usize, bits % 64);
        for at in (0..WORDS).rev() {
            let word = |at: Option<usize>| at.map_or(0, |at| self.0[at]);
            let high = word(at.checked_sub(words));
            let low = word(at.checked_sub(words + 1));
            self.0[at] = if bits == 0 { high } else { high << bits | low >> (64 - bits) };
        }
    }

    fn shift_right(&mut self, bits: u32) {
        let (words, bits) = ((bits / 64) as usize, bits % 64);
        for at in 0..WORDS {
            let word = |at: usize| self.0.get(at).copied().unwrap_or(0);
            let (low, high) = (word(at + words), word(at + words + 1));
            self.0[at] = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
        }
    }

    /// Subtracts a number that is not greater.
    fn subtract(&mut self, other: &Wide) {
        let mut borrow = false;
        for (word, other) in self.0.iter_mut().zip(other.0) {
            let (difference, first) = word.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            *word = difference;
            borrow = first || second;
        }
    }

    fn compare(&self, other: &Wide) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }

    fn bit_length(&self) -> u32 {
        let top = self.0.iter().rposition(|word| *word != 0);
        top.map_or(0, |at| at as u32 * 64 + 64 - self.0[at].leading_zeros())
    }

    fn trailing_zeros(&self) -> u32 {
        let low = self.0.iter().position(|word| *word != 0);
        low.map_or(WORDS as u32 * 64, |at| at as u32 * 64 + self.0[at].trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(text: &str) -> Normal {
        match decode(text.parse().expect("a decimal")) {
            (false, Magnitude::Finite(normal)) => normal,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn cohorts_have_one_normal_form() {
        assert_eq!(normal("1"), normal("1.000"));
        assert_eq!(normal("1200"), normal("12E+2"));
        assert!(normal("1") < normal("1.000000000000000000000000000000001"));
        assert!(normal("9.99") < normal("1E+1"));
    }

    #[test]
    fn special_values_are_decoded() {
        let decoded = |text: &str| decode(text.parse().expect("a decimal"));
        assert_eq!(decoded("NaN").1, Magnitude::Nan);
        assert_eq!(decoded("-Infinity"), (true, Magnitude::Infinite));
        assert_eq!(decoded("-0E+5"), (true, Magnitude::Zero));
        // A coefficient of 10^34, which is one too many, and the form for larger ones.
        let bits = (6176u128 << 113) | (LEAST * 10);
        assert_eq!(decode(Decimal128::from_bytes(bits.to_le_bytes())).1, Magnitude::Zero);
        let bits = 0x6000_0000_0000_0000_0000_0000_0000_0001u128;
        assert_eq!(decode(Decimal128::from_bytes(bits.to_le_bytes())).1, Magnitude::Zero);
    }

    #[test]
    fn doubles_at_the_ends_of_their_range() {
        assert_eq!(normal("1.7E+308").truncate(), (1.7e308, false));
        assert_eq!(normal("1.8E+308").truncate(), (f64::MAX, false));
        assert_eq!(normal("1E+6000").truncate(), (f64::MAX, false));
        assert_eq!(normal("1E-400").truncate(), (0.0, false));
        assert_eq!(normal("4.9E-324").truncate(), (0.0, false));
        assert_eq!(normal("5E-324").truncate(), (f64::from_bits(1), false));
        assert_eq!(normal("0.5").truncate(), (0.5, true));
        assert_eq!(normal("9007199254740993").truncate(), (9007199254740992.0, false));
        assert_eq!(normal("1E+22").truncate(), (1e22, true));
    }

    #[test]
    fn integer_parts() {
        assert_eq!(normal("12.5").integer_part(), Some((12, false)));
        assert_eq!(normal("120").integer_part(), Some((120, true)));
        assert_eq!(normal("0.1").integer_part(), Some((0, false)));
        assert_eq!(normal("1E+19").integer_part(), None);
    }

    proptest! {
        /// The parser of the standard library rounds to the nearest double, so the truncated one is
        /// it or the one below. The text of the double with all its digits says which.
        #[test]
        fn truncation_is_that_of_the_exact_texts(
            coefficient in 1u128..LEAST * 10,
            exponent in -380i32..300,
        ) {
            let normal = Normal::of(coefficient, exponent);
            let (truncated, is_exact) = normal.truncate();
            let nearest: f64 = format!("{coefficient}e{exponent}").parse().expect("a number");
            prop_assert!(
                truncated == nearest.min(f64::MAX) || truncated == nearest.next_down(),
                "{truncated:e} of {nearest:e}"
            );
            let exact = |double: f64| digits(&format!("{double:.1100}"), 0);
            let own = digits(&coefficient.to_string(), exponent);
            prop_assert!(exact(truncated) <= own);
            prop_assert_eq!(is_exact, exact(truncated) == own);
            if truncated < f64::MAX {
                prop_assert!(own < exact(truncated.next_up()));
            }
        }
    }

    /// A decimal text times a power of ten as its digits before and behind the point, in a width
    /// that makes such texts comparable.
    fn digits(text: &str, exponent: i32) -> String {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let all = format!("{whole}{fraction}");
        let point = 500 - (whole.len() as i32 + exponent);
        let mut padded = "0".repeat(point as usize) + &all;
        padded.extend(std::iter::repeat_n('0', 2200usize.saturating_sub(padded.len())));
        padded
    }
}
