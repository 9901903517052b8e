//! Commands that are under way: questions to shards, one after the other, and at last a reply.
//!
//! A command asks no shard itself. It says what it wants to ask, is given the answers, and says what comes
//! next. Between two steps it keeps what it needs in itself, so that a shard keeps nothing for it.

use crate::cursors::Cursors;
use crate::ids::IdMaker;
use crate::reply::{CommandError, ErrorCode};
use crate::scram::{ITERATIONS, UnknownUsers, keyed_number};
use crate::writer::{DocumentWriter, write_document};
use bson::cstr;
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_protocol::Command as Question;
use remora_protocol::Request;
use remora_protocol::message::Status;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What commands know of the server.
pub struct MongoServer {
    /// The version of the program.
    pub version: &'static str,
    /// When the server began, Unix ms.
    pub started_ms: u64,
    /// Its process.
    pub pid: u32,
    /// Makes `_id`s.
    pub ids: IdMaker,
    cursors: Mutex<Cursors>,
    unknown_users: UnknownUsers,
    secret: [u8; 32],
    uuids: AtomicU64,
}

impl MongoServer {
    /// A server without cursors, whose `_id`s have these random bytes.
    pub fn new((version, pid): (&'static str, u32), started_ms: u64, random: [u8; 32]) -> Self {
        let cursors = Mutex::new(Cursors::new(random));
        let unknown_users = UnknownUsers::new(random, ITERATIONS);
        let (ids, uuids) = (IdMaker::new(&random), AtomicU64::new(0));
        Self { version, started_ms, pid, ids, cursors, unknown_users, secret: random, uuids }
    }

    /// A random number.
    pub fn random_number(&self) -> u64 {
        keyed_number(&self.secret, self.uuids.fetch_add(1, Ordering::Relaxed)) as u64
    }

    /// A random UUID.
    pub fn uuid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let made = self.uuids.fetch_add(1, Ordering::Relaxed);
        bytes[..8].copy_from_slice(&keyed_number(&self.secret, made).to_le_bytes());
        bytes[8..].copy_from_slice(&keyed_number(&self.secret, !made).to_le_bytes());
        // Version 4, of the usual variant.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
    }

    /// The answers for users that do not exist.
    pub fn unknown_users(&self) -> &UnknownUsers {
        &self.unknown_users
    }

    /// The cursors.
    pub fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a step of a command looks at beside its answers.
pub struct Context<'a> {
    /// The server.
    pub server: &'a Arc<MongoServer>,
    /// Unix ms of the present turn.
    pub now_ms: u64,
    /// The connection's number.
    pub connection: u64,
    /// Shards of the server.
    pub shards: usize,
    /// The user that has logged in.
    pub user: Option<Vec<u8>>,
}

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
    /// This encoded question is for the shard with this number.
    AskShard(usize, Vec<u8>),
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

/// A command that is under way.
pub trait Running: Send {
    /// Takes the answer to the last question; none at the beginning. A step is bounded, whatever the answer has.
    ///
    /// # Errors
    /// The command has failed.
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError>;
}

/// How a command begins.
pub enum Begun {
    /// It is over: the body of the reply.
    Reply(Vec<u8>),
    /// It asks shards.
    Running(Box<dyn Running>),
}

impl Begun {
    /// A command that asks shards.
    pub fn running(of: impl Running + 'static) -> Result<Self, CommandError> {
        Ok(Self::Running(Box::new(of)))
    }

    /// A reply with these fields and `ok`.
    pub fn reply(fields: impl FnOnce(&mut DocumentWriter<'_>)) -> Result<Self, CommandError> {
        Ok(Self::Reply(ok_body(fields)))
    }
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
        Status::TryAgain | Status::InPieces | Status::Outrun => {
            of(ErrorCode::WriteConflict, "the collection is being moved: try again")
        }
        Status::NoPermission => of(ErrorCode::Unauthorized, "not authorized"),
        other => CommandError::new(
            ErrorCode::InternalError,
            format!("a shard answered {other:?}, which makes no sense here"),
        ),
    }
}
