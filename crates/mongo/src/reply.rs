//! Replies: messages around a body, and errors with MongoDB's codes.

use crate::limits::{MAX_MESSAGE_BYTES, MAX_WIRE_DOCUMENT_BYTES};
use crate::wire::{
    self, Body, CHECKSUM_BYTES, HEADER_BYTES, Message, MsgFlags, Refused, SECTION_BODY, opcode,
};
use crate::writer::{DocumentWriter, write_document};
use bson::raw::{CStr, RawBsonRef};
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_document::DocumentError;
use std::borrow::Cow;
use thiserror::Error;

const LENGTH_BYTES: usize = 4;
/// The flag of an OP_REPLY that every server since MongoDB 1.6 sets: `AwaitCapable`.
const AWAIT_CAPABLE: i32 = 8;

/// The form of a reply: what it answers, and in which kind of message.
///
/// ```
/// use bson::cstr;
/// use remora_mongo::Envelope;
/// use remora_mongo::wire::{Body, Parsed, parse};
/// # let request = b"\x24\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
/// #     \x0f\0\0\0\x10ping\0\x01\0\0\0\0";
///
/// let Parsed::Message { message, .. } = parse(request)? else { panic!() };
/// let mut out = Vec::new();
/// Envelope::to(&message, 7).write_ok(&mut out, |reply| reply.i32(cstr!("n"), 3))?;
/// let Parsed::Message { message, .. } = parse(&out)? else { panic!() };
/// assert_eq!((message.header.request_id, message.header.response_to), (7, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    request_id: i32,
    response_to: i32,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// OP_MSG, with a checksum or without.
    Msg { checksum: bool },
    /// OP_REPLY.
    Reply,
}

/// The body of a reply is longer than [`MAX_WIRE_DOCUMENT_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a reply of {bytes} bytes is too long")]
pub struct ReplyTooLong {
    /// Bytes that the body would have.
    pub bytes: usize,
}

impl Envelope {
    /// For the reply to `message`, which is not compressed; `request_id` is the server's own
    /// number. The reply has a checksum if the message had one.
    pub fn to(message: &Message<'_>, request_id: i32) -> Self {
        let form = match &message.body {
            Body::Msg(msg) => Form::Msg { checksum: msg.flags.checksum_present() },
            Body::Query(_) => Form::Reply,
            Body::Compressed(_) => Form::Msg { checksum: false },
        };
        Self { request_id, response_to: message.header.request_id, form }
    }

    /// For an error that answers no message.
    pub fn to_no_message() -> Self {
        Self { request_id: 0, response_to: 0, form: Form::Msg { checksum: false } }
    }

    /// For the error that is the reply to a refused message.
    pub fn to_refused(refused: &Refused, request_id: i32) -> Self {
        let form = match refused.header.opcode {
            opcode::QUERY => Form::Reply,
            _ => Form::Msg { checksum: false },
        };
        Self { request_id, response_to: refused.header.request_id, form }
    }

    /// Appends a reply whose body has these fields and nothing else.
    ///
    /// # Errors
    /// The body is too long. Then `out` is as before.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut DocumentWriter<'_>),
    ) -> Result<(), ReplyTooLong> {
        self.write_with(out, |out| write_document(out, fields))
    }

    fn write_with(
        &self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ReplyTooLong> {
        let start = out.len();
        match self.form {
            Form::Msg { checksum } => {
                wire::begin(out, self.request_id, self.response_to, opcode::MSG);
                let flags = if checksum { MsgFlags::CHECKSUM_PRESENT } else { 0 };
                out.extend_from_slice(&flags.to_le_bytes());
                out.push(SECTION_BODY);
            }
            Form::Reply => {
                wire::begin(out, self.request_id, self.response_to, opcode::REPLY);
                out.extend_from_slice(&AWAIT_CAPABLE.to_le_bytes());
                // No cursor; it starts at 0; one document.
                out.extend_from_slice(&0i64.to_le_bytes());
                out.extend_from_slice(&0i32.to_le_bytes());
                out.extend_from_slice(&1i32.to_le_bytes());
            }
        }
        let from = out.len();
        write(out);
        let bytes = out.len() - from;
        if bytes > MAX_WIRE_DOCUMENT_BYTES {
            out.truncate(start);
            return Err(ReplyTooLong { bytes });
        }
        let checksum = self.form == Form::Msg { checksum: true };
        let length = out.len() - start + if checksum { CHECKSUM_BYTES } else { 0 };
        debug_assert!((HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&length));
        out[start..start + LENGTH_BYTES].copy_from_slice(&(length as i32).to_le_bytes());
        if checksum {
            let sum = crc32c::crc32c(&out[start..]);
            out.extend_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }

    /// Appends a reply with this body, a whole document.
    ///
    /// # Errors
    /// As of [`Envelope::write`].
    pub fn write_body(&self, out: &mut Vec<u8>, body: &[u8]) -> Result<(), ReplyTooLong> {
        self.write_with(out, |out| out.extend_from_slice(body))
    }

    /// Appends a reply whose body has these fields and `ok: 1`.
    ///
    /// # Errors
    /// As of [`Envelope::write`].
    pub fn write_ok(
        &self,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut DocumentWriter<'_>),
    ) -> Result<(), ReplyTooLong> {
        self.write(out, |reply| {
            fields(reply);
            reply.f64(cstr!("ok"), 1.0);
        })
    }

    /// Appends an error as the reply. A very long text is cut.
    pub fn write_error(&self, out: &mut Vec<u8>, error: &CommandError) {
        let written = self.write(out, |reply| error.write(reply));
        debug_assert_eq!(written, Ok(()));
    }
}

/// Longest text of an error, in bytes.
const MAX_ERROR_BYTES: usize = 4096;

/// Why a command failed.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("{message}")]
pub struct CommandError {
    /// The code's number, by which drivers decide.
    pub number: i32,
    /// The text, for people.
    pub message: Cow<'static, str>,
    /// Further fields of the reply, such as `keyPattern`.
    pub fields: Option<Box<RawDocumentBuf>>,
}

impl CommandError {
    /// An error with this text.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::numbered(code.number(), message)
    }

    /// The same, with the number of a code that may have no name here.
    pub fn numbered(number: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { number, message: message.into(), fields: None }
    }

    /// The error that a shard describes: `code`, `errmsg`, and what else MongoDB has for this code.
    pub fn described(of: &RawDocument) -> Self {
        let number = of.get_i32("code").unwrap_or(ErrorCode::InternalError.number());
        let text = of.get_str("errmsg").unwrap_or_default().to_owned();
        let mut fields = RawDocumentBuf::new();
        for element in of.iter_elements().filter_map(Result::ok) {
            if let Ok(value) = element.value()
                && !["index", "code", "errmsg"].contains(&element.key().as_str())
            {
                fields.append(element.key(), value);
            }
        }
        let fields = (!fields.is_empty()).then(|| Box::new(fields));
        Self { fields, ..Self::numbered(number, text) }
    }

    /// The fields beside code and text.
    pub fn further(&self) -> impl Iterator<Item = (&CStr, RawBsonRef<'_>)> {
        let fields = self.fields.as_deref().into_iter().flat_map(|of| of.iter_elements());
        fields.flatten().filter_map(|element| Some((element.key(), element.value().ok()?)))
    }

    /// The code, if it has a name here.
    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::ALL.iter().copied().find(|code| code.number() == self.number)
    }

    /// The name of the code.
    pub fn code_name(&self) -> Cow<'static, str> {
        match self.code() {
            Some(code) => code.name().into(),
            None => format!("Location{}", self.number).into(),
        }
    }

    /// Writes the body of the reply: `{ok: 0, errmsg, code, codeName}`.
    pub fn write(&self, reply: &mut DocumentWriter<'_>) {
        let mut end = self.message.len().min(MAX_ERROR_BYTES);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        reply.f64(cstr!("ok"), 0.0);
        reply.str(cstr!("errmsg"), &self.message[..end]);
        reply.i32(cstr!("code"), self.number);
        reply.str(cstr!("codeName"), &self.code_name());
        self.further().for_each(|(name, value)| reply.value(name, value));
    }
}

impl From<DocumentError> for CommandError {
    fn from(error: DocumentError) -> Self {
        Self::numbered(error.code(), error.message().to_owned())
    }
}

impl From<&Refused> for CommandError {
    fn from(refused: &Refused) -> Self {
        Self::new(refused.reason.code(), refused.reason.to_string())
    }
}

macro_rules! error_codes {
    ($($variant:ident = $number:literal $name:literal: $text:literal;)*) => {
        /// Codes of errors, with MongoDB's numbers and names (`error_codes.yml` of its sources).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        #[repr(i32)]
        pub enum ErrorCode {
            $(#[doc = $text] $variant = $number,)*
        }

        impl ErrorCode {
            /// All codes, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number, `code` in a reply.
            pub fn number(self) -> i32 {
                self as i32
            }

            /// The name, `codeName` in a reply.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

error_codes! {
    InternalError = 1 "InternalError": "The server contradicts itself.";
    BadValue = 2 "BadValue": "A value is out of range or makes no sense.";
    NoSuchKey = 4 "NoSuchKey": "A field that is needed is missing.";
    FailedToParse = 9 "FailedToParse": "A part of the command is malformed.";
    UserNotFound = 11 "UserNotFound": "There is no such user.";
    Unauthorized = 13 "Unauthorized": "The user may not do this, or is not logged in.";
    TypeMismatch = 14 "TypeMismatch": "A field has the wrong type.";
    Overflow = 15 "Overflow": "A number is too large.";
    InvalidLength = 16 "InvalidLength": "Too many or too few of something.";
    ProtocolError = 17 "ProtocolError": "A message or a step of the login is out of order.";
    AuthenticationFailed = 18 "AuthenticationFailed": "The login failed.";
    IllegalOperation = 20 "IllegalOperation": "Not possible in this state.";
    InvalidBson = 22 "InvalidBSON": "A document is damaged.";
    NamespaceNotFound = 26 "NamespaceNotFound": "There is no such collection.";
    IndexNotFound = 27 "IndexNotFound": "There is no such index.";
    PathNotViable = 28 "PathNotViable": "An update goes through a value that is no document.";
    ConflictingUpdateOperators = 40 "ConflictingUpdateOperators": "Two operators change one field.";
    CursorNotFound = 43 "CursorNotFound": "There is no such cursor.";
    NamespaceExists = 48 "NamespaceExists": "The collection is there already.";
    MaxTimeMsExpired = 50 "MaxTimeMSExpired": "The command took longer than it may.";
    DollarPrefixedFieldName = 52 "DollarPrefixedFieldName": "A field's name begins with a dollar.";
    InvalidIdField = 53 "InvalidIdField": "`_id` has a type that it may not have.";
    NotSingleValueField = 54 "NotSingleValueField": "A field has several values.";
    EmptyFieldName = 56 "EmptyFieldName": "A field's name is empty.";
    DottedFieldName = 57 "DottedFieldName": "A field's name has a dot.";
    CommandNotFound = 59 "CommandNotFound": "There is no such command.";
    ImmutableField = 66 "ImmutableField": "A field, such as `_id`, may not change.";
    CannotCreateIndex = 67 "CannotCreateIndex": "The index is not possible.";
    InvalidOptions = 72 "InvalidOptions": "Options that do not go together.";
    InvalidNamespace = 73 "InvalidNamespace": "The name of a database or collection is not allowed.";
    IndexOptionsConflict = 85 "IndexOptionsConflict": "The index is there with other options.";
    IndexKeySpecsConflict = 86 "IndexKeySpecsConflict": "The index is there with other keys.";
    ShutdownInProgress = 91 "ShutdownInProgress": "The server ends.";
    OperationFailed = 96 "OperationFailed": "The command failed.";
    UnsatisfiableWriteConcern = 100 "UnsatisfiableWriteConcern": "The write concern asks for more than the server keeps.";
    WriteConflict = 112 "WriteConflict": "Another write was first.";
    CommandNotSupported = 115 "CommandNotSupported": "This server does not have the command.";
    DocumentValidationFailure = 121 "DocumentValidationFailure": "A document is not as the collection wants it.";
    ExceededMemoryLimit = 146 "ExceededMemoryLimit": "There is no memory left for it.";
    QueryPlanKilled = 175 "QueryPlanKilled": "The index of a search is gone.";
    InvalidIndexSpecificationOption = 197 "InvalidIndexSpecificationOption": "An index has no such option.";
    InvalidUuid = 207 "InvalidUUID": "A UUID is malformed.";
    TransactionTooOld = 225 "TransactionTooOld": "A later transaction of the session has begun.";
    CursorKilled = 237 "CursorKilled": "The cursor was ended while a batch of it was made.";
    NotImplemented = 238 "NotImplemented": "Not written yet.";
    ConversionFailure = 241 "ConversionFailure": "A value cannot be converted.";
    NoSuchTransaction = 251 "NoSuchTransaction": "There is no such transaction.";
    NoQueryExecutionPlans = 291 "NoQueryExecutionPlans": "A query needs an index that is not there.";
    QueryExceededMemoryLimit = 292 "QueryExceededMemoryLimitNoDiskUseAllowed": "A sort or a group needs more memory than it may.";
    ApiVersionError = 322 "APIVersionError": "The version of the API is not known.";
    ApiStrictError = 323 "APIStrictError": "The command is not in the version of the API.";
    UnsupportedOpQueryCommand = 352 "UnsupportedOpQueryCommand": "A command in an OP_QUERY.";
    NotWritablePrimary = 10107 "NotWritablePrimary": "This server does not take writes.";
    BsonObjectTooLarge = 10334 "BSONObjectTooLarge": "A document is too long.";
    DuplicateKey = 11000 "DuplicateKey": "A unique index has the key already.";
    InterruptedAtShutdown = 11600 "InterruptedAtShutdown": "The server ended during the command.";
    Interrupted = 11601 "Interrupted": "The command was ended.";
    CursorInUse = 12051 "CursorInUse": "A batch of the cursor is being made.";
    BackgroundOperationInProgressForNamespace = 12587 "BackgroundOperationInProgressForNamespace": "What goes on with the collection has to end first.";
    NotPrimaryNoSecondaryOk = 13435 "NotPrimaryNoSecondaryOk": "This server does not take reads.";
    DuplicateField = 40413 "IDLDuplicateField": "A field of the command stands twice.";
    MissingField = 40414 "IDLFailedToParse": "A field of the command is missing.";
    UnknownField = 40415 "IDLUnknownField": "The command has no such field.";
}
