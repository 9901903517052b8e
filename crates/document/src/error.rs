//! Why a filter, an update, a projection or a pipeline is wrong.

use thiserror::Error;

/// A filter, an update, a projection or a pipeline is wrong, or cannot be applied to a document. The code and
/// the text are those of MongoDB.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct DocumentError {
    code: i32,
    message: String,
}

/// Codes of MongoDB's errors.
pub(crate) const BAD_VALUE: i32 = 2;
pub(crate) const FAILED_TO_PARSE: i32 = 9;
pub(crate) const TYPE_MISMATCH: i32 = 14;
pub(crate) const OVERFLOW: i32 = 15;
pub(crate) const INVALID_BSON: i32 = 22;
pub(crate) const PATH_NOT_VIABLE: i32 = 28;
pub(crate) const CONFLICTING_UPDATE_OPERATORS: i32 = 40;
pub(crate) const DOLLAR_PREFIXED_FIELD_NAME: i32 = 52;
pub(crate) const INVALID_ID_FIELD: i32 = 53;
pub(crate) const EMPTY_FIELD_NAME: i32 = 56;
pub(crate) const IMMUTABLE_FIELD: i32 = 66;
pub(crate) const INVALID_NAMESPACE: i32 = 73;
pub(crate) const OPERATION_FAILED: i32 = 96;
pub(crate) const COMMAND_NOT_SUPPORTED: i32 = 115;
pub(crate) const INVALID_PIPELINE_OPERATOR: i32 = 168;
pub(crate) const SUB_PIPELINE_DEPTH: i32 = 232;
pub(crate) const CONVERSION_FAILURE: i32 = 241;
pub(crate) const MEMORY_LIMIT: i32 = 292;
pub(crate) const OBJECT_TOO_LARGE: i32 = 10334;
pub(crate) const KEY_TOO_LONG: i32 = 17280;
pub(crate) const OPTIONS_BEFORE_REGEX: i32 = 51074;
pub(crate) const OPTIONS_AFTER_REGEX: i32 = 51075;
pub(crate) const INVALID_REGEX: i32 = 51091;
pub(crate) const INVALID_REGEX_FLAG: i32 = 51108;

impl DocumentError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> DocumentError {
        DocumentError { code, message: message.into() }
    }

    pub(crate) fn bad_value(message: impl Into<String>) -> DocumentError {
        DocumentError::new(BAD_VALUE, message)
    }

    /// Bytes that are no BSON.
    pub(crate) fn malformed(error: impl std::fmt::Display) -> DocumentError {
        DocumentError::new(INVALID_BSON, format!("a document is no valid BSON: {error}"))
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
            PATH_NOT_VIABLE => "PathNotViable".to_owned(),
            CONFLICTING_UPDATE_OPERATORS => "ConflictingUpdateOperators".to_owned(),
            DOLLAR_PREFIXED_FIELD_NAME => "DollarPrefixedFieldName".to_owned(),
            INVALID_ID_FIELD => "InvalidIdField".to_owned(),
            EMPTY_FIELD_NAME => "EmptyFieldName".to_owned(),
            IMMUTABLE_FIELD => "ImmutableField".to_owned(),
            OVERFLOW => "Overflow".to_owned(),
            INVALID_NAMESPACE => "InvalidNamespace".to_owned(),
            OPERATION_FAILED => "OperationFailed".to_owned(),
            COMMAND_NOT_SUPPORTED => "CommandNotSupported".to_owned(),
            INVALID_PIPELINE_OPERATOR => "InvalidPipelineOperator".to_owned(),
            SUB_PIPELINE_DEPTH => "MaxSubPipelineDepthExceeded".to_owned(),
            CONVERSION_FAILURE => "ConversionFailure".to_owned(),
            MEMORY_LIMIT => "QueryExceededMemoryLimitNoDiskUseAllowed".to_owned(),
            OBJECT_TOO_LARGE => "BSONObjectTooLarge".to_owned(),
            code => format!("Location{code}"),
        }
    }

    /// The text for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}
