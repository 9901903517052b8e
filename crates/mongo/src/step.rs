//! The steps of commands: what they ask of shards, what the answers mean, and the body of a reply.

use crate::reply::{CommandError, ErrorCode};
use crate::writer::{DocumentWriter, write_document};
use bson::cstr;
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_protocol::message::Status;
use remora_protocol::{Command as Question, Request};

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// This encoded question is for the shard of this key.
    Ask {
        /// The key.
        key: Vec<u8>,
        /// See above.
        question: Vec<u8>,
    },
    /// The shard with this number scans its keys, by this encoded question. The user needs no right to it: the
    /// command tells only of keys that the user may ask about.
    Scan(usize, Vec<u8>),
    /// A key gets the object of another key, which goes away. The answer has the number 1, or 0 if there is an
    /// object that may not be replaced.
    Move {
        /// The key that has the object.
        from: Vec<u8>,
        /// The key that gets it.
        to: Vec<u8>,
        /// Whether it replaces another object.
        replaces: bool,
    },
    /// It has worked enough for now: others have their turn.
    Yield,
    /// It is over: the body of the reply.
    Done(Vec<u8>),
}

/// The body of a reply with these fields and `ok`.
pub(crate) fn ok_body(fields: impl FnOnce(&mut DocumentWriter<'_>)) -> Vec<u8> {
    let mut body = Vec::new();
    write_document(&mut body, |reply| {
        fields(reply);
        reply.f64(cstr!("ok"), 1.0);
    });
    body
}

/// A question about a collection, for its shard.
pub(crate) fn ask<'a>(key: &[u8], request: impl Into<Request<'a>>) -> Step {
    let mut question = Vec::new();
    let request = request.into();
    Question::Of { key, request }.encode_within(Database::ZERO, 0, &mut question);
    Step::Ask { key: key.to_vec(), question }
}

/// A question about any key, for its shard.
pub(crate) fn ask_key(key: &[u8], command: &Question<'_>) -> Step {
    let mut question = Vec::new();
    command.encode_within(Database::ZERO, 0, &mut question);
    Step::Ask { key: key.to_vec(), question }
}

/// The answer that a question has.
pub(crate) fn some(answer: Option<OwnedReply>) -> Result<OwnedReply, CommandError> {
    answer.ok_or_else(|| CommandError::new(ErrorCode::InternalError, "a shard did not answer"))
}

/// The answer, if its shard did what was asked.
pub(crate) fn done(answer: Option<OwnedReply>) -> Result<OwnedReply, CommandError> {
    let answer = some(answer)?;
    match answer.status {
        Status::Ok => Ok(answer),
        _ => Err(refusal(&answer)),
    }
}

/// The error that a shard's answer is.
pub(crate) fn refusal(answer: &OwnedReply) -> CommandError {
    let of = |code, text: &'static str| CommandError::new(code, text);
    match answer.status {
        Status::Refused => {
            let text = answer.value.as_deref().map(String::from_utf8_lossy);
            let number = i32::try_from(answer.number).unwrap_or(ErrorCode::InternalError.number());
            CommandError::numbered(number, text.unwrap_or_default().into_owned())
        }
        Status::NotFound => of(ErrorCode::NamespaceNotFound, "ns not found"),
        Status::WrongType => of(
            ErrorCode::IllegalOperation,
            "the key of this collection holds an object of another type: remove or rename it",
        ),
        Status::OutOfMemory => of(
            ErrorCode::ExceededMemoryLimit,
            "the memory is full: raise max_memory, or remove something",
        ),
        Status::TooLarge => {
            of(ErrorCode::BsonObjectTooLarge, "a document is longer than maxBsonObjectSize")
        }
        Status::ReadOnly | Status::OtherGroup | Status::RoleChanged => {
            of(ErrorCode::NotWritablePrimary, "not primary")
        }
        Status::Fenced => {
            of(ErrorCode::NotWritablePrimary, "not primary: the lease of this server has ended")
        }
        Status::NotKept => of(
            ErrorCode::OperationFailed,
            "the disk of the log takes nothing more: nothing was changed",
        ),
        Status::TooFewReplicas => of(
            ErrorCode::OperationFailed,
            "fewer replicas keep up than min_replicas asks for: nothing was changed",
        ),
        Status::NoReads | Status::Copying => of(
            ErrorCode::NotPrimaryNoSecondaryOk,
            "this server is a replica and answers no reads now",
        ),
        // MongoDB's code for it, at which tools try again.
        Status::TryAgain => of(
            ErrorCode::BackgroundOperationInProgressForNamespace,
            "the collection is being moved: try again",
        ),
        Status::InPieces | Status::Outrun => {
            of(ErrorCode::WriteConflict, "the collection changes too fast: try again")
        }
        Status::NoPermission => of(ErrorCode::Unauthorized, "not authorized"),
        other => CommandError::new(
            ErrorCode::InternalError,
            format!("a shard answered {other:?}, which makes no sense here"),
        ),
    }
}
