//! A request as a typed view of its documents.

use crate::limits::MAX_COMMAND_FIELDS;
use crate::reply::{CommandError, ErrorCode};
use crate::wire::{OpMsg, OpQuery, SequenceDocuments, Sequences};
use bson::raw::{RawBsonRef, RawIter};
use bson::spec::ElementType;
use bson::{RawArray, RawDocument};

/// A command: the document and the document sequences of a request.
///
/// ```
/// use remora_mongo::Command;
/// use remora_mongo::wire::{Body, Parsed, parse};
/// # let body = bson::rawdoc! { "insert": "c", "$db": "d", "documents": [{ "_id": 1 }, { "_id": 2 }] };
/// # let mut request = ((21 + body.as_bytes().len()) as i32).to_le_bytes().to_vec();
/// # request.extend_from_slice(b"\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0");
/// # request.extend_from_slice(body.as_bytes());
///
/// let Parsed::Message { message, .. } = parse(&request)? else { panic!() };
/// let Body::Msg(msg) = message.body else { panic!() };
/// let command = Command::of(&msg)?;
/// assert_eq!((command.name(), command.database()), ("insert", "d"));
/// assert_eq!(command.collection()?, "c");
/// for document in command.documents("documents")? {
///     println!("{:?}", document?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    name: &'a str,
    first: RawBsonRef<'a>,
    database: &'a str,
    session: Option<&'a RawDocument>,
    transaction: Option<i64>,
    read_concern: Option<&'a RawDocument>,
    read_preference: Option<&'a RawDocument>,
    body: &'a RawDocument,
    sequences: Sequences<'a>,
}

impl<'a> Command<'a> {
    /// The command of an OP_MSG.
    ///
    /// # Errors
    /// There is no command, no `$db`, a field stands twice, or a field that every command may have
    /// has the wrong type.
    pub fn of(msg: &OpMsg<'a>) -> Result<Self, CommandError> {
        let command = Self::view(msg.body, msg.sequences)?;
        if command.database.is_empty() {
            let message = "OP_MSG requests require a $db argument";
            return Err(CommandError::new(ErrorCode::MissingField, message));
        }
        Ok(command)
    }

    /// The command of an OP_QUERY, which is on the database `admin`.
    ///
    /// # Errors
    /// As of [`Command::of`].
    pub fn of_query(query: &OpQuery<'a>) -> Result<Self, CommandError> {
        let command = Self::view(query.body, Sequences::default())?;
        Ok(Self { database: "admin", ..command })
    }

    fn view(body: &'a RawDocument, sequences: Sequences<'a>) -> Result<Self, CommandError> {
        let mut elements = body.iter_elements();
        let Some(first) = elements.next() else {
            let message = "the command's document is empty";
            return Err(CommandError::new(ErrorCode::FailedToParse, message));
        };
        let first = first.map_err(|_| damaged())?;
        let value = first.value().map_err(|_| damaged())?;
        let mut command = Self {
            name: first.key().as_str(),
            first: value,
            database: "",
            session: None,
            transaction: None,
            read_concern: None,
            read_preference: None,
            body,
            sequences,
        };
        refuse_duplicates(body, sequences)?;
        for element in elements {
            let element = element.map_err(|_| damaged())?;
            let value = element.value().map_err(|_| damaged())?;
            match element.key().as_str() {
                "$db" => command.database = str_of("$db", value)?,
                "lsid" => command.session = Some(document_of("lsid", value)?),
                "txnNumber" => {
                    let number = value.as_i64();
                    let expected = || mismatch("txnNumber", value, "long");
                    command.transaction = Some(number.ok_or_else(expected)?);
                }
                "readConcern" => command.read_concern = Some(document_of("readConcern", value)?),
                "$readPreference" => {
                    command.read_preference = Some(document_of("$readPreference", value)?);
                }
                _ => {}
            }
        }
        Ok(command)
    }

    /// The command that this one is about, on the same database.
    ///
    /// # Errors
    /// As of [`Command::of`].
    pub fn explained(&self, body: &'a RawDocument) -> Result<Self, CommandError> {
        let inner = Self::view(body, Sequences::default())?;
        Ok(Self { database: self.database, ..inner })
    }

    /// The name of the command: the first key.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The value of the first key; of most commands the collection.
    pub fn first(&self) -> RawBsonRef<'a> {
        self.first
    }

    /// The collection: the value of the first key.
    ///
    /// # Errors
    /// It is not a string.
    pub fn collection(&self) -> Result<&'a str, CommandError> {
        match self.first {
            RawBsonRef::String(name) => Ok(name),
            other => {
                let found = type_name(other.element_type());
                let message = format!("collection name has invalid type {found}");
                Err(CommandError::new(ErrorCode::InvalidNamespace, message))
            }
        }
    }

    /// The database, `$db`. It is not checked to be a name that is allowed.
    pub fn database(&self) -> &'a str {
        self.database
    }

    /// The session, `lsid`.
    pub fn session(&self) -> Option<&'a RawDocument> {
        self.session
    }

    /// The number of the transaction or of the write that can be retried, `txnNumber`.
    pub fn transaction(&self) -> Option<i64> {
        self.transaction
    }

    /// The read concern.
    pub fn read_concern(&self) -> Option<&'a RawDocument> {
        self.read_concern
    }

    /// The read preference, `$readPreference`.
    pub fn read_preference(&self) -> Option<&'a RawDocument> {
        self.read_preference
    }

    /// The whole document, with `$db` and its kind.
    pub fn body(&self) -> &'a RawDocument {
        self.body
    }

    /// The value of a field of the body, but not a document sequence.
    pub fn get(&self, key: &str) -> Option<RawBsonRef<'a>> {
        let mut elements = self.body.iter_elements().filter_map(Result::ok);
        elements.find(|element| element.key() == key)?.value().ok()
    }

    /// A string.
    ///
    /// # Errors
    /// The field has another type.
    pub fn str(&self, key: &str) -> Result<Option<&'a str>, CommandError> {
        self.get(key).map(|value| str_of(key, value)).transpose()
    }

    /// A document.
    ///
    /// # Errors
    /// The field has another type.
    pub fn document(&self, key: &str) -> Result<Option<&'a RawDocument>, CommandError> {
        self.get(key).map(|value| document_of(key, value)).transpose()
    }

    /// An array.
    ///
    /// # Errors
    /// The field has another type.
    pub fn array(&self, key: &str) -> Result<Option<&'a RawArray>, CommandError> {
        let of =
            |value: RawBsonRef<'a>| value.as_array().ok_or_else(|| mismatch(key, value, "array"));
        self.get(key).map(of).transpose()
    }

    /// A boolean, or a number that stands for one: as MongoDB, 0 is false and all else is true.
    ///
    /// # Errors
    /// The field has another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, CommandError> {
        let of = |value| match value {
            RawBsonRef::Boolean(value) => Ok(value),
            RawBsonRef::Int32(value) => Ok(value != 0),
            RawBsonRef::Int64(value) => Ok(value != 0),
            RawBsonRef::Double(value) => Ok(value != 0.0),
            other => Err(mismatch(key, other, "bool")),
        };
        self.get(key).map(of).transpose()
    }

    /// A whole number, of any type of numbers but Decimal128.
    ///
    /// # Errors
    /// The field has another type, or a value that is not a whole number of 64 bits.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, CommandError> {
        let of = |value| match value {
            RawBsonRef::Int32(value) => Ok(value.into()),
            RawBsonRef::Int64(value) => Ok(value),
            RawBsonRef::Double(value) => whole(value).ok_or_else(|| {
                let message = format!("'{key}' must be a whole number of 64 bits, not {value}");
                CommandError::new(ErrorCode::BadValue, message)
            }),
            other => Err(mismatch(key, other, "number")),
        };
        self.get(key).map(of).transpose()
    }

    /// The documents of an array: of a document sequence or of the body.
    ///
    /// # Errors
    /// The field is missing, or it is not an array.
    pub fn documents(&self, key: &'a str) -> Result<Documents<'a>, CommandError> {
        if let Some(sequence) = { self.sequences }.find(|sequence| sequence.name == key) {
            return Ok(Documents { key, source: Source::Sequence(sequence.documents()) });
        }
        match self.array(key)? {
            Some(array) => Ok(Documents { key, source: Source::Array(array.iter_elements()) }),
            None => {
                let name = self.name;
                let message = format!("BSON field '{name}.{key}' is missing but a required field");
                Err(CommandError::new(ErrorCode::MissingField, message))
            }
        }
    }
}

/// Documents of a command, one after the other.
pub struct Documents<'a> {
    key: &'a str,
    source: Source<'a>,
}

enum Source<'a> {
    Sequence(SequenceDocuments<'a>),
    Array(RawIter<'a>),
}

impl std::fmt::Debug for Documents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Documents").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Result<&'a RawDocument, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Sequence(documents) => documents.next().map(Ok),
            Source::Array(elements) => {
                let value = elements.next()?.and_then(|element| element.value());
                let key = self.key;
                Some(value.map_err(|_| damaged()).and_then(|value| document_of(key, value)))
            }
        }
    }
}

/// Refuses a body in which a field stands twice, or beside a sequence of its name.
fn refuse_duplicates(body: &RawDocument, sequences: Sequences<'_>) -> Result<(), CommandError> {
    let mut keys = [""; MAX_COMMAND_FIELDS];
    let fields = body.iter_elements().filter_map(Result::ok);
    let fields = fields.map(|element| element.key().as_str());
    for (count, key) in fields.chain(sequences.map(|sequence| sequence.name)).enumerate() {
        if keys[..count].contains(&key) {
            let message = format!("BSON field '{key}' is a duplicate field");
            return Err(CommandError::new(ErrorCode::DuplicateField, message));
        }
        let Some(slot) = keys.get_mut(count) else {
            let message = format!("a command has at most {MAX_COMMAND_FIELDS} fields");
            return Err(CommandError::new(ErrorCode::FailedToParse, message));
        };
        *slot = key;
    }
    Ok(())
}

/// A whole number that a floating-point number is.
fn whole(value: f64) -> Option<i64> {
    // The bounds are powers of two, so that they are exact.
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    (in_range && value.fract() == 0.0).then_some(value as i64)
}

fn str_of<'a>(key: &str, value: RawBsonRef<'a>) -> Result<&'a str, CommandError> {
    value.as_str().ok_or_else(|| mismatch(key, value, "string"))
}

fn document_of<'a>(key: &str, value: RawBsonRef<'a>) -> Result<&'a RawDocument, CommandError> {
    value.as_document().ok_or_else(|| mismatch(key, value, "object"))
}

fn mismatch(key: &str, found: RawBsonRef<'_>, expected: &str) -> CommandError {
    let found = type_name(found.element_type());
    let message =
        format!("BSON field '{key}' is the wrong type '{found}', expected type '{expected}'");
    CommandError::new(ErrorCode::TypeMismatch, message)
}

/// The check of the message has refused such a body before.
fn damaged() -> CommandError {
    CommandError::new(ErrorCode::InvalidBson, "the command's document is damaged")
}

/// The name of a type, as the operator `$type` of MongoDB has it.
fn type_name(element_type: ElementType) -> &'static str {
    match element_type {
        ElementType::Double => "double",
        ElementType::String => "string",
        ElementType::EmbeddedDocument => "object",
        ElementType::Array => "array",
        ElementType::Binary => "binData",
        ElementType::Undefined => "undefined",
        ElementType::ObjectId => "objectId",
        ElementType::Boolean => "bool",
        ElementType::DateTime => "date",
        ElementType::Null => "null",
        ElementType::RegularExpression => "regex",
        ElementType::DbPointer => "dbPointer",
        ElementType::JavaScriptCode => "javascript",
        ElementType::Symbol => "symbol",
        ElementType::JavaScriptCodeWithScope => "javascriptWithScope",
        ElementType::Int32 => "int",
        ElementType::Timestamp => "timestamp",
        ElementType::Int64 => "long",
        ElementType::Decimal128 => "decimal",
        ElementType::MinKey => "minKey",
        ElementType::MaxKey => "maxKey",
    }
}
