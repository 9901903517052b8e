//! Arrays that are made, and fields that are read, while their bytes and steps are counted.

use crate::error::DocumentError;
use crate::raw::fields;
use crate::value::{Value, byte_length};
use crate::variables::Env;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument};

/// Makes an array, and counts its bytes.
pub(super) struct ArrayMaker<'e> {
    env: &'e Env<'e>,
    values: RawArrayBuf,
    bytes: usize,
}

impl<'e> ArrayMaker<'e> {
    pub(super) fn new(env: &'e Env<'e>) -> ArrayMaker<'e> {
        ArrayMaker { env, values: RawArrayBuf::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, value: RawBsonRef<'_>) -> Result<(), DocumentError> {
        let bytes = byte_length(value) + 8;
        self.bytes += bytes;
        crate::value::fits(self.bytes)?;
        self.env.spend(1 + bytes / 64)?;
        self.values.push(value);
        Ok(())
    }

    pub(super) fn done<'a>(self) -> Value<'a> {
        Value::array(self.values)
    }
}

/// A field of a document. Fields that are passed over count as steps.
pub(super) fn field<'a>(
    document: &'a RawDocument,
    name: &str,
    env: &Env<'_>,
) -> Result<Option<RawBsonRef<'a>>, DocumentError> {
    /// Fields that are passed over in the time of a step.
    const SHARE: usize = 16;
    let mut passed = 0;
    let found = document.iter_elements().map_while(Result::ok).find(|element| {
        passed += 1;
        element.key().as_str() == name
    });
    env.spend(passed / SHARE)?;
    Ok(found.and_then(|element| element.value().ok()))
}

/// The fields of a document, counted as steps.
pub(super) fn counted_fields<'d>(
    document: &'d RawDocument,
    env: &Env<'_>,
) -> Result<impl Iterator<Item = (&'d str, RawBsonRef<'d>)>, DocumentError> {
    env.spend(document.as_bytes().len() / 64)?;
    Ok(fields(document))
}
