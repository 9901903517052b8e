//! Numbers of all BSON types, compared by value without rounding.

use crate::decimal::{self, Magnitude, Normal};
use bson::raw::RawBsonRef;
use std::cmp::Ordering;

/// A number in the order of [`crate::compare`]: NaN is below all others, and zero has no sign.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Nan,
    NegativeInfinity,
    Negative(Positive),
    Zero,
    Positive(Positive),
    Infinity,
}

/// A finite number above zero, as its type stores it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Positive {
    Integer(u64),
    Double(f64),
    Decimal(Normal),
}

/// A finite number above zero in the one form that equal numbers share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// The largest double that is not above it.
    pub(crate) double: f64,
    /// The whole number, unless it equals the double. Each such number has at most 34 decimal digits.
    pub(crate) rest: Option<Normal>,
}

impl Number {
    /// The number that a value is, if it is one.
    pub(crate) fn of(value: RawBsonRef<'_>) -> Option<Number> {
        match value {
            RawBsonRef::Int32(value) => Some(Number::integer(i64::from(value))),
            RawBsonRef::Int64(value) => Some(Number::integer(value)),
            RawBsonRef::Double(value) => Some(Number::double(value)),
            RawBsonRef::Decimal128(value) => {
                let (is_negative, magnitude) = decimal::decode(value);
                Some(match magnitude {
                    Magnitude::Nan => Number::Nan,
                    Magnitude::Infinite if is_negative => Number::NegativeInfinity,
                    Magnitude::Infinite => Number::Infinity,
                    Magnitude::Zero => Number::Zero,
                    Magnitude::Finite(normal) => {
                        Number::signed(is_negative, Positive::Decimal(normal))
                    }
                })
            }
            _ => None,
        }
    }

    fn integer(value: i64) -> Number {
        match value {
            0 => Number::Zero,
            _ => Number::signed(value < 0, Positive::Integer(value.unsigned_abs())),
        }
    }

    fn double(value: f64) -> Number {
        if value.is_nan() {
            Number::Nan
        } else if value == 0.0 {
            Number::Zero
        } else if value.is_infinite() {
            if value < 0.0 { Number::NegativeInfinity } else { Number::Infinity }
        } else {
            Number::signed(value < 0.0, Positive::Double(value.abs()))
        }
    }

    fn signed(is_negative: bool, value: Positive) -> Number {
        if is_negative { Number::Negative(value) } else { Number::Positive(value) }
    }

    pub(crate) fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Positive(own), Number::Positive(other)) => own.compare(other),
            (Number::Negative(own), Number::Negative(other)) => other.compare(own),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// The place of its kind among the others.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Number::Nan => 0,
            Number::NegativeInfinity => 1,
            Number::Negative(_) => 2,
            Number::Zero => 3,
            Number::Positive(_) => 4,
            Number::Infinity => 5,
        }
    }

    pub(crate) fn is_nan(self) -> bool {
        matches!(self, Number::Nan)
    }

    /// Its integer part, rounded towards zero, and whether it is a whole number. Nothing if it is not
    /// finite, or if 64 bits cannot hold it.
    pub(crate) fn integer_part(self) -> Option<(i64, bool)> {
        match self {
            Number::Zero => Some((0, true)),
            Number::Positive(value) => {
                let (whole, is_whole) = value.integer_part()?;
                Some((i64::try_from(whole).ok()?, is_whole))
            }
            Number::Negative(value) => {
                let (whole, is_whole) = value.integer_part()?;
                Some((0i64.checked_sub_unsigned(whole)?, is_whole))
            }
            _ => None,
        }
    }

    /// The 64-bit integer that it equals, if there is one.
    pub(crate) fn whole(self) -> Option<i64> {
        self.integer_part().and_then(|(whole, is_whole)| is_whole.then_some(whole))
    }
}

impl Positive {
    fn compare(self, other: Positive) -> Ordering {
        use Positive::{Decimal, Double, Integer};
        match (self, other) {
            (Integer(own), Integer(other)) => own.cmp(&other),
            (Double(own), Double(other)) => own.total_cmp(&other),
            (Decimal(own), Decimal(other)) => own.cmp(&other),
            (Integer(own), Double(other)) => compare_integer(own, other),
            (Double(own), Integer(other)) => compare_integer(other, own).reverse(),
            (Integer(own), Decimal(other)) => Normal::of(u128::from(own), 0).cmp(&other),
            (Decimal(own), Integer(other)) => own.cmp(&Normal::of(u128::from(other), 0)),
            (Decimal(own), Double(other)) => compare_decimal(own, other),
            (Double(own), Decimal(other)) => compare_decimal(other, own).reverse(),
        }
    }

    fn integer_part(self) -> Option<(u64, bool)> {
        match self {
            Positive::Integer(value) => Some((value, true)),
            Positive::Double(value) if value < TWO_TO_64 => {
                Some((value as u64, value.trunc() == value))
            }
            Positive::Double(_) => None,
            Positive::Decimal(value) => value.integer_part(),
        }
    }

    pub(crate) fn split(self) -> Split {
        match self {
            Positive::Double(double) => Split { double, rest: None },
            Positive::Integer(value) => {
                let nearest = value as f64;
                let is_above = nearest as u128 > u128::from(value);
                let double = if is_above { nearest.next_down() } else { nearest };
                let is_exact = double as u128 == u128::from(value);
                Split { double, rest: (!is_exact).then(|| Normal::of(u128::from(value), 0)) }
            }
            Positive::Decimal(value) => {
                let (double, is_exact) = value.truncate();
                Split { double, rest: (!is_exact).then_some(value) }
            }
        }
    }
}

const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

fn compare_integer(integer: u64, double: f64) -> Ordering {
    if double >= TWO_TO_64 {
        return Ordering::Less;
    }
    let has_fraction = double.trunc() != double;
    let equal = if has_fraction { Ordering::Less } else { Ordering::Equal };
    integer.cmp(&(double as u64)).then(equal)
}

fn compare_decimal(decimal: Normal, double: f64) -> Ordering {
    let (truncated, is_exact) = decimal.truncate();
    let equal = if is_exact { Ordering::Equal } else { Ordering::Greater };
    truncated.total_cmp(&double).then(equal)
}
