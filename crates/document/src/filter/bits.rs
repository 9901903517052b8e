//! `$bitsAllSet`, `$bitsAnySet`, `$bitsAllClear` and `$bitsAnyClear`.

use crate::error::{DocumentError, FAILED_TO_PARSE};
use crate::number::Number;
use crate::raw::elements;
use bson::raw::RawBsonRef;
use remora_layout::limits::MAX_FILTER_BITS;

/// What the bits must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    AllSet,
    AnySet,
    AllClear,
    AnyClear,
}

/// A test of bits, at positions that are sorted and differ.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    test: Test,
    positions: Vec<u32>,
}

impl Bits {
    /// Positions in an array, or the bits that are set in a number or in binary data.
    pub(super) fn parse(
        name: &str,
        test: Test,
        value: RawBsonRef<'_>,
    ) -> Result<Bits, DocumentError> {
        let mut positions = match value {
            RawBsonRef::Array(array) => {
                elements(array).map(position).collect::<Result<Vec<u32>, _>>()?
            }
            RawBsonRef::Binary(binary) => {
                let set = (0u32..).zip(binary.bytes).flat_map(|(at, byte)| {
                    (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
                });
                set.take(MAX_FILTER_BITS + 1).collect()
            }
            _ => {
                let mask = mask(name, value)?;
                (0..64).filter(|bit| mask >> bit & 1 == 1).collect()
            }
        };
        positions.sort_unstable();
        positions.dedup();
        if positions.len() > MAX_FILTER_BITS {
            let message = format!("{name} takes at most {MAX_FILTER_BITS} bit positions");
            return Err(DocumentError::bad_value(message));
        }
        Ok(Bits { test, positions })
    }

    /// Whole numbers of 64 bits and binary data have bits; other values do not match.
    pub(super) fn matches(&self, value: RawBsonRef<'_>) -> bool {
        if let RawBsonRef::Binary(binary) = value {
            return self.holds(|position| {
                let byte = binary.bytes.get(position as usize / 8).copied().unwrap_or(0);
                byte >> (position % 8) & 1 == 1
            });
        }
        let Some(number) = Number::of(value).and_then(Number::whole) else { return false };
        // The sign goes on without end.
        self.holds(|position| number >> position.min(63) & 1 == 1)
    }

    fn holds(&self, is_set: impl Fn(u32) -> bool) -> bool {
        let mut positions = self.positions.iter().copied();
        match self.test {
            Test::AllSet => positions.all(is_set),
            Test::AnySet => positions.any(is_set),
            Test::AllClear => !positions.any(is_set),
            Test::AnyClear => !positions.all(is_set),
        }
    }
}

fn position(value: RawBsonRef<'_>) -> Result<u32, DocumentError> {
    let error = |message: String| Err(DocumentError::bad_value(format!("bit positions {message}")));
    let Some(number) = Number::of(value) else {
        return error(format!("must be an integer but got: {:?}", value.element_type()));
    };
    let Some(position) = number.whole() else {
        return error("must be an integer".to_owned());
    };
    if position < 0 {
        return error(format!("must be >= 0 but got: {position}"));
    }
    match i32::try_from(position) {
        Ok(position) => Ok(position.unsigned_abs()),
        Err(_) => error(format!("cannot be represented as a 32-bit signed integer: {position}")),
    }
}

fn mask(name: &str, value: RawBsonRef<'_>) -> Result<i64, DocumentError> {
    let Some(number) = Number::of(value) else {
        return Err(DocumentError::bad_value(format!(
            "{name} takes an Array, a number, or a BinData but received: {:?}",
            value.element_type()
        )));
    };
    match number.whole() {
        Some(mask) if mask >= 0 => Ok(mask),
        Some(mask) => {
            let message = format!("Expected a non-negative number in: {name}: {mask}");
            Err(DocumentError::new(FAILED_TO_PARSE, message))
        }
        None => Err(DocumentError::new(FAILED_TO_PARSE, format!("Expected an integer: {name}"))),
    }
}
