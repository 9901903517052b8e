//! Why a filter is wrong.

use thiserror::Error;

/// A filter is wrong. The code and the text are those of MongoDB.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FilterError {
    code: i32,
    message: String,
}

/// Codes of MongoDB's errors.
pub(super) const BAD_VALUE: i32 = 2;
pub(super) const FAILED_TO_PARSE: i32 = 9;
pub(super) const TYPE_MISMATCH: i32 = 14;
pub(super) const INVALID_BSON: i32 = 22;
pub(super) const OPTIONS_BEFORE_REGEX: i32 = 51074;
pub(super) const OPTIONS_AFTER_REGEX: i32 = 51075;
pub(super) const INVALID_REGEX: i32 = 51091;
pub(super) const INVALID_REGEX_FLAG: i32 = 51108;

impl FilterError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> FilterError {
        FilterError { code, message: message.into() }
    }

    pub(super) fn bad_value(message: impl Into<String>) -> FilterError {
        FilterError::new(BAD_VALUE, message)
    }

    /// The number by which MongoDB's drivers know the error.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The name of the code.
    #[must_use]
    pub fn code_name(&self) -> String {
        match self.code {
            BAD_VALUE => "BadValue".to_owned(),
            FAILED_TO_PARSE => "FailedToParse".to_owned(),
            TYPE_MISMATCH => "TypeMismatch".to_owned(),
            INVALID_BSON => "InvalidBSON".to_owned(),
            code => format!("Location{code}"),
        }
    }

    /// The text for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}
