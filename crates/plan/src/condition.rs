//! Testing the conditions of a plan.

use crate::plan::{Comparison, Condition, Test};
use remora_layout::integer;
use std::cmp::Ordering;

impl Condition {
    /// Whether it holds for the value of its field; `None` if the field is not there.
    ///
    /// ```
    /// use remora_plan::{Comparison, Condition, Test};
    /// let test = Test::Is(Comparison::Less, (*b"10").into());
    /// let cheap = Condition { field: (*b"price").into(), test };
    /// assert!(cheap.holds(Some(b"9.5")));
    /// assert!(!cheap.holds(None));
    /// ```
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        match (&self.test, value) {
            (Test::Exists, value) => value.is_some(),
            (Test::Missing, value) => value.is_none(),
            (Test::Is(..), None) => false,
            (Test::Is(comparison, other), Some(value)) => comparison.accepts(order(value, other)),
        }
    }
}

impl Comparison {
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

fn order(one: &[u8], other: &[u8]) -> Ordering {
    if let (Some(one), Some(other)) = (integer::parse(one), integer::parse(other)) {
        return one.cmp(&other);
    }
    match (number(one), number(other)) {
        (Some(one), Some(other)) if one == other => Ordering::Equal,
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => one.cmp(other),
    }
}

/// The finite decimal number that `text` is. A name such as `nan` or `infinity` is none.
fn number(text: &[u8]) -> Option<f64> {
    let is_start = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.');
    text.first().filter(|byte| is_start(byte))?;
    let number: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers_and_other_texts_as_bytes() {
        let cases: [(&str, &str, Ordering); 12] = [
            ("9", "10", Ordering::Less),
            ("9", "10x", Ordering::Greater),
            ("9.0", "9", Ordering::Equal),
            ("-0.0", "0", Ordering::Equal),
            ("-3", "-2.5", Ordering::Less),
            ("1e3", "999", Ordering::Greater),
            ("9007199254740993", "9007199254740992", Ordering::Greater),
            ("nan", "1", Ordering::Greater),
            ("inf", "infinity", Ordering::Less),
            ("1e999", "2", Ordering::Less),
            ("", "0", Ordering::Less),
            ("free", "free", Ordering::Equal),
        ];
        for (one, other, expected) in cases {
            assert_eq!(order(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
            assert_eq!(
                order(other.as_bytes(), one.as_bytes()),
                expected.reverse(),
                "{other} {one}"
            );
        }
    }

    #[test]
    fn each_comparison_accepts_its_orders() {
        let accepted = |comparison: Comparison| {
            [Ordering::Less, Ordering::Equal, Ordering::Greater].map(|one| comparison.accepts(one))
        };
        let expected = [
            [false, true, false],
            [true, false, true],
            [true, false, false],
            [true, true, false],
            [false, false, true],
            [false, true, true],
        ];
        for ((comparison, text), expected) in Comparison::ALL.into_iter().zip(expected) {
            assert_eq!(accepted(comparison), expected, "{text}");
        }
    }
}
