//! Sums and products of BSON's numbers.

use crate::decimal::times_zero;
use bson::Bson;

/// Why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NumberError {
    /// One of them is no number.
    NoNumber,
    /// It does not fit into 64 bits.
    TooLarge,
    /// One of them is a Decimal128, with which nothing is computed.
    Decimal,
}

/// What is done with two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    /// `$inc`.
    Add,
    /// `$mul`.
    Multiply,
}

impl Arithmetic {
    fn of_integers(self, one: i64, other: i64) -> Option<i64> {
        match self {
            Self::Add => one.checked_add(other),
            Self::Multiply => one.checked_mul(other),
        }
    }

    fn of_doubles(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Add => one + other,
            Self::Multiply => one * other,
        }
    }

    /// The result: an int of 32 bits if both are ones and it fits, else one of 64 bits; a double if one of
    /// them is.
    pub fn of(self, one: &Bson, other: &Bson) -> Result<Bson, NumberError> {
        let double = |value: &Bson| match *value {
            Bson::Int32(value) => Some(f64::from(value)),
            Bson::Int64(value) => Some(value as f64),
            Bson::Double(value) => Some(value),
            _ => None,
        };
        let integer = |value: &Bson| match *value {
            Bson::Int32(value) => Some(i64::from(value)),
            Bson::Int64(value) => Some(value),
            _ => None,
        };
        let is_number =
            |value: &Bson| matches!(value, Bson::Decimal128(_)) || double(value).is_some();
        if !is_number(one) || !is_number(other) {
            return Err(NumberError::NoNumber);
        }
        if let (Some(x), Some(y)) = (integer(one), integer(other)) {
            let made = self.of_integers(x, y).ok_or(NumberError::TooLarge)?;
            let is_short = matches!((one, other), (Bson::Int32(_), Bson::Int32(_)));
            return Ok(match i32::try_from(made) {
                Ok(made) if is_short => Bson::Int32(made),
                _ => Bson::Int64(made),
            });
        }
        match (double(one), double(other)) {
            (Some(one), Some(other)) => Ok(Bson::Double(self.of_doubles(one, other))),
            _ => Err(NumberError::Decimal),
        }
    }

    /// What stands for a field that is not there: the argument, or its product with the integer zero.
    pub fn of_nothing(self, argument: &Bson) -> Bson {
        match (self, argument) {
            (Self::Add, argument) => argument.clone(),
            (Self::Multiply, Bson::Int64(_)) => Bson::Int64(0),
            (Self::Multiply, Bson::Double(of)) => Bson::Double(of * 0.0),
            (Self::Multiply, Bson::Decimal128(of)) => Bson::Decimal128(times_zero(*of)),
            (Self::Multiply, _) => Bson::Int32(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_wider_type_and_do_not_wrap() {
        let (add, multiply) = (Arithmetic::Add, Arithmetic::Multiply);
        assert_eq!(add.of(&Bson::Int32(1), &Bson::Int32(2)), Ok(Bson::Int32(3)));
        let wide = i64::from(i32::MAX) + 1;
        assert_eq!(add.of(&Bson::Int32(i32::MAX), &Bson::Int32(1)), Ok(Bson::Int64(wide)));
        assert_eq!(add.of(&Bson::Int32(1), &Bson::Int64(2)), Ok(Bson::Int64(3)));
        assert_eq!(add.of(&Bson::Int64(i64::MAX), &Bson::Int32(1)), Err(NumberError::TooLarge));
        assert_eq!(add.of(&Bson::Int64(1), &Bson::Double(0.5)), Ok(Bson::Double(1.5)));
        assert_eq!(
            multiply.of(&Bson::Int32(1 << 20), &Bson::Int32(1 << 20)),
            Ok(Bson::Int64(1 << 40))
        );
        assert_eq!(
            multiply.of(&Bson::Int64(i64::MIN), &Bson::Int32(-1)),
            Err(NumberError::TooLarge)
        );
        assert_eq!(add.of(&Bson::String("1".into()), &Bson::Int32(1)), Err(NumberError::NoNumber));
    }
}
