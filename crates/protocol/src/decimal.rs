//! Numbers as Redis adds them up in HINCRBYFLOAT: x86's extended precision, with a
//! mantissa of 64 bits, read from and written as decimal text. Redis takes C's
//! `long double`; here it is done in integers, so that the sum is the same on
//! every machine, and in every replay of the log.
//!
//! Texts in hexadecimal, which C reads too, are no numbers here.

/// Digits and signs of a text at most, as in Redis (`MAX_LONG_DOUBLE_CHARS`).
const MAX_TEXT_BYTES: usize = 5 * 1024;
/// Bits of a mantissa.
const MANTISSA_BITS: u32 = 64;
/// Numbers are below two to this power.
const MAX_EXPONENT: i64 = 16_384;
/// The smallest step: two to this power.
const MIN_EXPONENT: i64 = -16_445;
/// Digits behind the point that are written.
const FRACTION_DIGITS: u32 = 17;

/// A number: finite, or an infinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extended {
    is_negative: bool,
    is_infinite: bool,
    /// The value is `mantissa` times two to this power.
    exponent: i64,
    mantissa: u64,
}

/// A natural number of any size, least significant limb first.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Natural(Vec<u32>);

impl Natural {
    fn times_plus(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for limb in &mut self.0 {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides by a small number; gives the remainder.
    fn divide(&mut self, by: u32) -> u32 {
        let mut rest = 0u64;
        for limb in self.0.iter_mut().rev() {
            let part = rest << 32 | u64::from(*limb);
            *limb = (part / u64::from(by)) as u32;
            rest = part % u64::from(by);
        }
        self.trim();
        rest as u32
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn bits(&self) -> i64 {
        let top = self.0.last().map_or(0, |limb| 32 - limb.leading_zeros());
        self.0.len().saturating_sub(1) as i64 * 32 + i64::from(top)
    }

    fn shifted_left(&self, bits: usize) -> Self {
        let mut limbs = vec![0; bits / 32];
        let mut carry = 0;
        for &limb in &self.0 {
            let wide = u64::from(limb) << (bits % 32) | carry;
            limbs.push(wide as u32);
            carry = wide >> 32;
        }
        limbs.push(carry as u32);
        let mut shifted = Self(limbs);
        shifted.trim();
        shifted
    }

    fn is_below(&self, other: &Self) -> bool {
        match self.0.len().cmp(&other.0.len()) {
            std::cmp::Ordering::Equal => self.0.iter().rev().lt(other.0.iter().rev()),
            order => order.is_lt(),
        }
    }

    /// Subtracts a number that is not greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0i64;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let taken =
                i64::from(*limb) - borrow - i64::from(other.0.get(at).copied().unwrap_or(0));
            borrow = i64::from(taken < 0);
            *limb = taken as u32;
        }
        self.trim();
    }

    /// Its top bits, at most `most`, and whether any bit below them is set.
    fn top(&self, most: i64) -> (u128, bool) {
        let skipped = (self.bits() - most).max(0);
        let bit = |at: i64| self.0[at as usize / 32] >> (at % 32) & 1;
        let top = (skipped..self.bits()).rev().fold(0, |top, at| top << 1 | u128::from(bit(at)));
        (top, (0..skipped).any(|at| bit(at) == 1))
    }
}

/// Ten to a power.
fn power_of_ten(power: usize) -> Natural {
    let mut natural = Natural(vec![1]);
    (0..power).for_each(|_| natural.times_plus(10, 0));
    natural
}

/// Rounds a value of `wide` times two to `exponent`, and a little more if `sticky`,
/// to the nearest number, ties to even. `None` beyond the largest.
fn round(is_negative: bool, wide: u128, exponent: i64, sticky: bool) -> Option<Extended> {
    if wide == 0 {
        return Some(Extended { is_negative: false, ..Extended::ZERO });
    }
    let bits = i64::from(u128::BITS - wide.leading_zeros());
    let dropped = (bits - i64::from(MANTISSA_BITS)).max(MIN_EXPONENT - exponent).max(0);
    if dropped > bits {
        return Some(Extended { is_negative, ..Extended::ZERO });
    }
    let kept = wide.checked_shr(dropped as u32).unwrap_or(0);
    let rest = wide - kept.checked_shl(dropped as u32).unwrap_or(0);
    let half = if dropped == 0 { 0 } else { 1u128 << (dropped - 1) };
    let is_up = dropped > 0 && (rest > half || (rest == half && (sticky || kept & 1 == 1)));
    let mut mantissa = kept + u128::from(is_up);
    let mut exponent = exponent + dropped;
    if mantissa >> MANTISSA_BITS != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    let size = i64::from(u128::BITS - mantissa.leading_zeros());
    (exponent + size <= MAX_EXPONENT).then_some(Extended {
        is_negative,
        is_infinite: false,
        exponent,
        mantissa: mantissa as u64,
    })
}

/// The number of a text, as C's `strtold` reads the whole of it: infinities are numbers, NaN is
/// none, and neither is a number that is too large, or too small and not 0.
pub fn parse(text: &[u8]) -> Option<Extended> {
    if text.is_empty() || text.len() >= MAX_TEXT_BYTES {
        return None;
    }
    let (is_negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Some(Extended { is_negative, is_infinite: true, ..Extended::ZERO });
    }
    let exponent_at = rest.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
    let (number, exponent) = match exponent_at {
        Some(at) => (&rest[..at], exponent_of(&rest[at + 1..])?),
        None => (rest, 0),
    };
    let mut digits = Natural(Vec::new());
    let (mut some, mut point, mut scale) = (false, false, 0i64);
    for &byte in number {
        match byte {
            b'0'..=b'9' => {
                digits.times_plus(10, u32::from(byte - b'0'));
                some = true;
                scale -= i64::from(point);
            }
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    if !some {
        return None;
    }
    digits.trim();
    if digits.bits() == 0 {
        return Some(Extended { is_negative, ..Extended::ZERO });
    }
    let value = scaled(is_negative, &digits, scale.saturating_add(exponent))?;
    (value.mantissa != 0).then_some(value)
}

fn exponent_of(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fold = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1 << 30);
    let size = digits.iter().fold(0, fold);
    Some(if text[0] == b'-' { -size } else { size })
}

/// `digits` times ten to a power, rounded.
fn scaled(is_negative: bool, digits: &Natural, power: i64) -> Option<Extended> {
    // Ten has between three and four bits.
    let most_bits = digits.bits() + power.clamp(-1 << 20, 1 << 20) * 3;
    if power > 0 && most_bits > MAX_EXPONENT + 4 {
        return None;
    }
    if power < 0 && most_bits < MIN_EXPONENT - 4 {
        return Some(Extended::ZERO);
    }
    if power >= 0 {
        let mut natural = digits.clone();
        (0..power).for_each(|_| natural.times_plus(10, 0));
        let (top, sticky) = natural.top(100);
        let below = (natural.bits() - 100).max(0);
        return round(is_negative, top, below, sticky);
    }
    // The quotient gets about a hundred bits.
    let divisor = power_of_ten(power.unsigned_abs() as usize);
    let shift = (divisor.bits() - digits.bits() + 100).max(0);
    let mut rest = digits.shifted_left(shift as usize);
    let quotient_bits = rest.bits() - divisor.bits() + 1;
    let mut quotient = 0u128;
    let extra = (quotient_bits - 110).max(0);
    for at in (extra..quotient_bits.max(1)).rev() {
        let step = divisor.shifted_left(at as usize);
        quotient <<= 1;
        if !rest.is_below(&step) {
            rest.subtract(&step);
            quotient |= 1;
        }
    }
    round(is_negative, quotient, extra - shift, rest.bits() > 0)
}

impl Extended {
    /// Nothing.
    pub const ZERO: Self =
        Self { is_negative: false, is_infinite: false, exponent: 0, mantissa: 0 };

    /// Whether it is no infinity.
    pub const fn is_finite(self) -> bool {
        !self.is_infinite
    }

    /// The sum, rounded to the nearest number; `None` if it is not finite.
    pub fn plus(self, other: Self) -> Option<Self> {
        if self.is_infinite || other.is_infinite {
            return None;
        }
        if other.mantissa == 0 || self.mantissa == 0 {
            return Some(if other.mantissa == 0 { self } else { other });
        }
        let (one, two) = (self.normal(), other.normal());
        let is_larger = (one.exponent, one.mantissa) >= (two.exponent, two.mantissa);
        let (large, small) = if is_larger { (one, two) } else { (two, one) };
        const GUARD: u32 = 62;
        let distance = (large.exponent - small.exponent) as u32;
        let wide = u128::from(small.mantissa) << GUARD;
        let shifted = wide.checked_shr(distance).unwrap_or(0);
        let sticky = shifted.checked_shl(distance).unwrap_or(0) != wide;
        // The bits that were cut off become one sticky bit, far below those that are rounded.
        let shifted = shifted | u128::from(sticky);
        let wide = u128::from(large.mantissa) << GUARD;
        let sum =
            if large.is_negative == small.is_negative { wide + shifted } else { wide - shifted };
        round(large.is_negative, sum, large.exponent - i64::from(GUARD), false)
    }

    /// The smallest integer that is not below so many times the number, whose product is rounded as
    /// the number is; `None` if it is too large. One that is too small counts as the smallest.
    pub fn ceil_times(self, factor: u32) -> Option<i64> {
        let below = |is_negative: bool| is_negative.then_some(i64::MIN);
        if self.is_infinite {
            return below(self.is_negative);
        }
        let wide = u128::from(self.mantissa) * u128::from(factor);
        let Some(product) = round(self.is_negative, wide, self.exponent, false) else {
            return below(self.is_negative);
        };
        let (mantissa, exponent) = (u128::from(product.mantissa), product.exponent);
        let size = match exponent {
            0..=64 => mantissa << exponent,
            65.. => u128::MAX,
            _ => {
                let cut = exponent.unsigned_abs().min(127) as u32;
                let has_rest = mantissa & ((1 << cut) - 1) != 0;
                (mantissa >> cut) + u128::from(has_rest && !self.is_negative)
            }
        };
        match (i64::try_from(size), self.is_negative) {
            (Ok(size), true) => Some(-size),
            (Ok(size), false) => Some(size),
            (Err(_), is_negative) => below(is_negative),
        }
    }

    /// The same with the top bit of the mantissa set.
    fn normal(self) -> Self {
        let shift = self.mantissa.leading_zeros();
        let exponent = self.exponent - i64::from(shift);
        Self { mantissa: self.mantissa << shift, exponent, ..self }
    }

    /// As C's `%.17Lf` writes it, but without zeros at the end; `None` if it is not
    /// finite.
    pub fn text(self) -> Option<Vec<u8>> {
        if self.is_infinite {
            return None;
        }
        let (whole, fraction) = if self.exponent >= 0 {
            let natural = Natural(vec![self.mantissa as u32, (self.mantissa >> 32) as u32]);
            (decimal(natural.shifted_left(self.exponent as usize)), 0)
        } else {
            let unit = 10u128.pow(FRACTION_DIGITS);
            let all = u128::from(self.mantissa) * unit;
            let cut = self.exponent.unsigned_abs().min(127) as u32;
            let (kept, rest) = (all >> cut, all & ((1 << cut) - 1));
            let half = 1u128 << (cut - 1);
            let is_up = rest > half || (rest == half && kept & 1 == 1);
            let rounded = kept + u128::from(is_up);
            ((rounded / unit).to_string(), (rounded % unit) as u64)
        };
        let mut text = format!("{whole}.{fraction:0width$}", width = FRACTION_DIGITS as usize);
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        if self.is_negative && text != "0" {
            text.insert(0, '-');
        }
        Some(text.into_bytes())
    }
}

fn decimal(mut natural: Natural) -> String {
    const PIECE: u32 = 1_000_000_000;
    natural.trim();
    let mut pieces = Vec::new();
    while !natural.0.is_empty() {
        pieces.push(natural.divide(PIECE));
    }
    let mut text = pieces.pop().unwrap_or(0).to_string();
    pieces.iter().rev().for_each(|piece| text.push_str(&format!("{piece:09}")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        let (one, other) = (parse(one.as_bytes())?, parse(other.as_bytes())?);
        one.plus(other)?.text().map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn products_are_rounded_up() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0.001", Some(1)),
            ("0.0011", Some(2)),
            ("1.5", Some(1_500)),
            ("1e-9", Some(1)),
            ("-1e-9", Some(0)),
            ("-0.0015", Some(-1)),
            ("-3", Some(-3_000)),
            ("9223372036854775", Some(9_223_372_036_854_775_000)),
            ("9223372036854776", None),
            ("1e300", None),
            ("inf", None),
            ("-1e300", Some(i64::MIN)),
            ("-inf", Some(i64::MIN)),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().ceil_times(1_000), expected, "{text}");
        }
    }

    #[test]
    fn sums_are_those_of_redis() {
        for (one, other, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("1", "-1.5", "-0.5"),
            ("0", "3.14159", "3.14159000000000000003"),
            ("1e20", "1", "100000000000000000000"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("-0.00000000000000000001", "0", "0"),
            (".5", "5.", "5.5"),
            ("1e-4950", "0", "0"),
        ] {
            // Redis 7's answer, or, if its text is longer, the same cut.
            let found = sum(one, other).unwrap();
            assert!(expected.starts_with(&found), "{one} + {other}: {found}");
        }
        assert_eq!(sum("1e4932", "0").unwrap().len(), 4_933);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let texts =
            ["", " 1", "1 ", "x", "nan", "-nan", "1e", "e1", ".", "+", "-", "1.2.3", "1e5000"];
        for text in texts.into_iter().chain(["1e-5000", "--1", "0x10", "1e+", "1_0"]) {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        let infinite = parse(b"-Infinity").unwrap();
        assert_eq!((infinite.plus(Extended::ZERO), infinite.text()), (None, None));
        assert_eq!(parse(b"1e4932").unwrap().plus(parse(b"1e4932").unwrap()), None);
        assert_eq!(parse(&[b'1'; MAX_TEXT_BYTES]), None);
    }

    proptest::proptest! {
        /// Sums of numbers of 53 bits with at most 64 bits are exact.
        #[test]
        fn integers_add_up(one in -(1i64 << 61)..1 << 61, other in -(1i64 << 61)..1 << 61) {
            let found = sum(&one.to_string(), &other.to_string());
            proptest::prop_assert_eq!(found, Some((one + other).to_string()));
        }

        /// The nearest number of 64 bits is nearer than the nearest of 53.
        #[test]
        fn texts_of_doubles_come_back(size in 1e-2f64..1e15, scale in -40i32..1, is_less: bool) {
            let size = (size * 2f64.powi(scale)).max(1e-2);
            let double = if is_less { -size } else { size };
            let text = parse(format!("{double:?}").as_bytes()).unwrap().text().unwrap();
            let back: f64 = String::from_utf8(text).unwrap().parse().unwrap();
            proptest::prop_assert!((back - double).abs() <= double.abs() * 1e-15);
        }
    }
}
