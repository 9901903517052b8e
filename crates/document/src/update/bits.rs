//! `$bit`: and, or, xor of integers.

use crate::error::{BAD_VALUE, DocumentError};
use crate::type_name;
use bson::Bson;

/// The operations, in their order.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bits(Vec<(Logic, Bson)>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Logic {
    And,
    Or,
    Xor,
}

impl Bits {
    /// # Errors
    /// Another operation, or an argument that is no integer.
    pub fn parse(argument: &Bson) -> Result<Self, DocumentError> {
        let bad = |text: String| Err(DocumentError::new(BAD_VALUE, text));
        let Bson::Document(operations) = argument else {
            return bad(format!(
                "The $bit modifier is not compatible with a {}. You must pass in an embedded document: {{$bit: {{field: {{and/or/xor: #}}}}",
                type_name(argument)
            ));
        };
        let mut parsed = Vec::new();
        for (name, value) in operations {
            let logic = match name.as_str() {
                "and" => Logic::And,
                "or" => Logic::Or,
                "xor" => Logic::Xor,
                _ => {
                    return bad(format!(
                        "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator: {{{name}: {value}}}"
                    ));
                }
            };
            if !matches!(value, Bson::Int32(_) | Bson::Int64(_)) {
                return bad(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{name}: {value}}}",
                    type_name(value)
                ));
            }
            parsed.push((logic, value.clone()));
        }
        match parsed.is_empty() {
            true => bad(
                "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}".to_owned(),
            ),
            false => Ok(Self(parsed)),
        }
    }

    /// The result for a value; `None` if it is no integer.
    pub fn of(&self, value: &Bson) -> Option<Bson> {
        let integer = |value: &Bson| match *value {
            Bson::Int32(value) => Some((i64::from(value), true)),
            Bson::Int64(value) => Some((value, false)),
            _ => None,
        };
        let (mut result, mut is_short) = integer(value)?;
        for (logic, argument) in &self.0 {
            let (argument, is_short_too) = integer(argument)?;
            is_short &= is_short_too;
            match logic {
                Logic::And => result &= argument,
                Logic::Or => result |= argument,
                Logic::Xor => result ^= argument,
            }
        }
        Some(match i32::try_from(result) {
            Ok(result) if is_short => Bson::Int32(result),
            _ => Bson::Int64(result),
        })
    }
}
