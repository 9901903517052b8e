//! Commands that are under way: questions to shards, one after the other, and at last a reply.
//!
//! A command asks no shard itself. It says what it wants to ask, is given the answers, and says what comes
//! next. Between two steps it keeps what it needs in itself, so that a shard keeps nothing for it.

use crate::cursors::Cursors;
use crate::ids::IdMaker;
use crate::reply::CommandError;
use crate::scram::{ITERATIONS, UnknownUsers, keyed_number};
pub use crate::step::Step;
pub(crate) use crate::step::{ask, ask_key, done, ok_body, refusal, some};
use crate::writer::DocumentWriter;
use remora_frontend::OwnedReply;
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
    /// Whether a reply to a change means that it is on the disk.
    pub is_synced: bool,
    /// Makes `_id`s.
    pub ids: IdMaker,
    cursors: Mutex<Cursors>,
    unknown_users: UnknownUsers,
    secret: [u8; 32],
    uuids: AtomicU64,
}

impl MongoServer {
    /// A server without cursors, whose `_id`s have these random bytes, and whose changes are not on a disk.
    pub fn new((version, pid): (&'static str, u32), started_ms: u64, random: [u8; 32]) -> Self {
        let cursors = Mutex::new(Cursors::new(random));
        let unknown_users = UnknownUsers::new(random, ITERATIONS);
        let (ids, uuids) = (IdMaker::new(&random), AtomicU64::new(0));
        Self {
            version,
            started_ms,
            pid,
            is_synced: false,
            ids,
            cursors,
            unknown_users,
            secret: random,
            uuids,
        }
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

/// What users may do.
pub trait Rights {
    /// Whether a user may ask a shard this encoded question.
    fn may_ask(&self, user: Option<&[u8]>, question: &[u8]) -> bool;
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
    /// What users may do; none if all may do everything.
    pub rights: Option<&'a dyn Rights>,
}

impl Context<'_> {
    /// Whether the user may ask what a step asks. It may go on in any case.
    pub(crate) fn may(&self, step: &Step) -> bool {
        let (Some(rights), Step::Ask { question, .. }) = (self.rights, step) else { return true };
        rights.may_ask(self.user.as_deref(), question)
    }

    /// What the fields of all commands are read with: Unix ms, and whether a reply means that a change is on the disk.
    pub(crate) fn common(&self) -> (u64, bool) {
        (self.now_ms, self.server.is_synced)
    }
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
