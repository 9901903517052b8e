//! The fields of commands: those that every command may have, and the refusal of all others. A field that is
//! taken is kept to.

use crate::command::Command;
use crate::reply::{CommandError, ErrorCode};
use bson::raw::RawBsonRef;
use bson::{Bson, RawDocument};

/// What every command may have, beside the fields of its own.
const COMMON: &[&str] = &[
    "$db",
    "$clusterTime",
    "$readPreference",
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "autocommit",
    "comment",
    "lsid",
    "maxTimeMS",
    "readConcern",
    "startTransaction",
    "txnNumber",
    "writeConcern",
];

/// The commands of MongoDB's Stable API, version 1, beside those of the login.
const API_VERSION_1: &[&str] = &[
    "aggregate",
    "bulkWrite",
    "collMod",
    "count",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
    "refreshSessions",
    "update",
];

/// What a command says about itself, whatever it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    /// Until when it may take, Unix ms.
    pub until_ms: Option<u64>,
}

impl Common {
    /// Reads the fields that every command may have, and refuses those that it does not have. Unix ms; whether
    /// the server replies to a change when it is on its disk.
    ///
    /// # Errors
    /// A field is not known, or means something that this server does not do.
    pub fn of(
        command: &Command<'_>,
        fields: &[&str],
        (now_ms, is_synced): (u64, bool),
    ) -> Result<Self, CommandError> {
        for element in command.body().iter_elements().skip(1).filter_map(Result::ok) {
            let key = element.key().as_str();
            if !fields.contains(&key) && !COMMON.contains(&key) {
                let text = format!("BSON field '{}.{key}' is an unknown field.", command.name());
                return Err(CommandError::new(ErrorCode::UnknownField, text));
            }
        }
        let refuse = |code, text: &'static str| Err(CommandError::new(code, text));
        if command.transaction().is_some()
            || command.get("startTransaction").is_some()
            || command.get("autocommit").is_some()
        {
            let text = "Transaction numbers are only allowed on a replica set member or mongos";
            return refuse(ErrorCode::IllegalOperation, text);
        }
        if let Some(version) = command.str("apiVersion")?
            && version != "1"
        {
            let text = format!("API version must be \"1\", not \"{version}\"");
            return Err(CommandError::numbered(322, text));
        }
        let has = |name: &str| command.get(name).is_some();
        if !has("apiVersion") && (has("apiStrict") || has("apiDeprecationErrors")) {
            let text = "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion";
            return Err(CommandError::numbered(4_886_600, text));
        }
        if command.bool("apiStrict")? == Some(true) && !API_VERSION_1.contains(&command.name()) {
            let name = command.name();
            let text =
                format!("Provided apiStrict:true, but the command {name} is not in API Version 1");
            return Err(CommandError::new(ErrorCode::ApiStrictError, text));
        }
        read_concern(command.read_concern())?;
        write_concern(command.document("writeConcern")?, is_synced)?;
        let until_ms = match command.i64("maxTimeMS")? {
            None | Some(0) => None,
            Some(ms @ 1..=0x7fff_ffff) => Some(now_ms + ms as u64),
            Some(ms) => {
                let text = format!("{ms} value for maxTimeMS is out of range [0, 2147483647]");
                return Err(CommandError::new(ErrorCode::BadValue, text));
            }
        };
        Ok(Self { until_ms })
    }
}

/// All reads of this server are of what is acknowledged, at one server: what is asked for beyond that is refused.
fn read_concern(of: Option<&RawDocument>) -> Result<(), CommandError> {
    let Some(of) = of else { return Ok(()) };
    for element in of.iter_elements().filter_map(Result::ok) {
        let value = element.value().ok();
        match (element.key().as_str(), value.and_then(|value| value.as_str())) {
            ("level", Some("local" | "available" | "majority")) | ("provenance", _) => {}
            ("level", level) => {
                let level = level.unwrap_or("of this type");
                let text = format!(
                    "read concern level {level} is not supported: local, available or majority"
                );
                return Err(CommandError::new(ErrorCode::InvalidOptions, text));
            }
            (key, _) => {
                let text =
                    format!("read concern {key} is not supported: this server has no cluster time");
                return Err(CommandError::new(ErrorCode::InvalidOptions, text));
            }
        }
    }
    Ok(())
}

/// A reply comes when the change is as durable as the server is set to make it; what asks for more is refused.
fn write_concern(of: Option<&RawDocument>, is_synced: bool) -> Result<(), CommandError> {
    let Some(of) = of else { return Ok(()) };
    for element in of.iter_elements().filter_map(Result::ok) {
        let Ok(value) = element.value() else { continue };
        let is_kept = match (element.key().as_str(), value) {
            ("w", RawBsonRef::String("majority")) => true,
            ("w", value) => matches!(number(value), Some(0 | 1)),
            ("j" | "fsync", RawBsonRef::Boolean(asks)) => is_synced || !asks,
            ("wtimeout" | "provenance", _) => true,
            _ => false,
        };
        if !is_kept {
            let text = format!(
                "write concern {{{}: {}}} is not supported: a reply waits for what the server's durability and min_replicas say",
                element.key().as_str(),
                Bson::try_from(value).unwrap_or(Bson::Null)
            );
            return Err(CommandError::numbered(UNSATISFIABLE_WRITE_CONCERN, text));
        }
    }
    Ok(())
}

/// `UnsatisfiableWriteConcern`.
const UNSATISFIABLE_WRITE_CONCERN: i32 = 100;

fn number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(of) => Some(of.into()),
        RawBsonRef::Int64(of) => Some(of),
        RawBsonRef::Double(of) if of.fract() == 0.0 => Some(of as i64),
        _ => None,
    }
}

/// The fields of a part of a command, such as one of its updates: others are refused.
///
/// # Errors
/// A field is not known.
pub(crate) fn only_fields(
    part: &RawDocument,
    (command, name): (&str, &str),
    fields: &[&str],
) -> Result<(), CommandError> {
    for element in part.iter_elements().filter_map(Result::ok) {
        let key = element.key().as_str();
        if !fields.contains(&key) {
            let text = format!("BSON field '{command}.{name}.{key}' is an unknown field.");
            return Err(CommandError::new(ErrorCode::UnknownField, text));
        }
    }
    Ok(())
}

/// The key of a collection.
///
/// # Errors
/// A name is not allowed.
pub(crate) fn namespace(database: &str, collection: &str) -> Result<Vec<u8>, CommandError> {
    Ok(remora_document::collection_key(database, collection)?)
}

/// Whether a database may have this name.
///
/// # Errors
/// It may not.
pub(crate) fn check_database(name: &str) -> Result<(), CommandError> {
    Ok(remora_document::check_database(name)?)
}
