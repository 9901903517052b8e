//! Replies that wait: for a shard, or for an earlier reply.

use crate::in_flight::Question;
use crate::job::{OwnedReply, Token};
use crate::many_keys::ManyKeys;
use crate::protocol::{LongReply, ReplyForm};
use remora_protocol::message::Status;
use smallvec::{SmallVec, smallvec};

/// One request's place in the order of replies.
pub enum Pending<F: ReplyForm> {
    /// Encoded, but an earlier one is not.
    Ready(Vec<u8>),
    /// Parts are missing. The reply is of the dialect that was spoken when it
    /// was asked for.
    Waiting(Waiting<F>, F::Dialect),
    /// Keys of the request are missing.
    Keys(ManyKeys<F>, F::Dialect),
    /// A long reply, of which some may be written already.
    Writing(Writing<F>),
}

/// A long reply that is being written.
pub struct Writing<F: ReplyForm> {
    long: F::Long,
    dialect: F::Dialect,
    /// Names the rest of it, which its shard still has.
    rest: Option<Token>,
    /// The rest was asked for.
    is_asked: bool,
}

/// The outcome of writing a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// There is more to be written.
    Some,
    /// The available part is written: the executor must ask for the rest.
    Ask(Token),
    /// All of it is written.
    Last,
}

impl<F: ReplyForm> Writing<F> {
    /// Nothing is written yet. `rest` names the rest that is still to come.
    pub const fn new(long: F::Long, dialect: F::Dialect, rest: Option<Token>) -> Self {
        Self { long, dialect, rest, is_asked: false }
    }

    /// Bytes of its source.
    pub fn bytes(&self) -> usize {
        self.long.bytes()
    }

    /// Whether a piece can be written.
    pub const fn can_go_on(&self) -> bool {
        !self.is_asked
    }

    /// The part of it that the shard still has.
    pub const fn rest(&self) -> Option<Token> {
        self.rest
    }

    /// Appends the next piece.
    pub fn write_piece(&mut self, out: &mut Vec<u8>) -> Piece {
        if !self.long.write_piece(out, self.dialect) {
            return Piece::Some;
        }
        self.is_asked = self.rest.is_some();
        self.rest.map_or(Piece::Last, Piece::Ask)
    }

    /// Takes the requested part.
    ///
    /// # Errors
    /// There is none: the reply cannot be written to its end.
    pub fn take(&mut self, reply: OwnedReply) -> Result<(), Status> {
        if reply.status != Status::Ok {
            return Err(reply.status);
        }
        if !self.long.go_on(reply.value.unwrap_or_default()) {
            return Err(Status::Malformed);
        }
        self.is_asked = false;
        self.rest = self.rest.filter(|_| reply.has_more);
        Ok(())
    }
}

/// A request with missing parts.
pub struct Waiting<F> {
    /// How the reply is made.
    pub form: F,
    /// One reply for each part; mostly there is one.
    pub parts: SmallVec<[Option<OwnedReply>; 1]>,
    /// How many are missing.
    pub missing: usize,
    /// Bytes of the values that have come.
    pub bytes: usize,
    /// Bytes of its jobs that are not answered.
    pub job_bytes: usize,
    /// The question of each part.
    pub asked: SmallVec<[Question; 1]>,
    /// Names the rest of the only part's reply, which its shard still has.
    pub rest: Option<Token>,
}

impl<F> Waiting<F> {
    /// A request of which every part was asked for.
    pub fn all(form: F, asked: impl IntoIterator<Item = Question>) -> Self {
        let asked: SmallVec<[Question; 1]> = asked.into_iter().collect();
        let (parts, missing) = (smallvec![None; asked.len()], asked.len());
        let job_bytes = asked.iter().map(|asked| asked.bytes).sum();
        Self { form, parts, missing, bytes: 0, job_bytes, asked, rest: None }
    }

    /// A request whose only part is answered.
    pub fn answered(form: F, reply: OwnedReply) -> Self {
        let bytes = reply.value_bytes();
        let (parts, asked) = (smallvec![Some(reply)], SmallVec::new());
        Self { form, parts, missing: 0, bytes, job_bytes: 0, asked, rest: None }
    }

    /// Adds a part that was asked for, or that is answered.
    pub fn add(&mut self, asked: Question, reply: Option<OwnedReply>) {
        self.missing += reply.is_none() as usize;
        self.job_bytes += asked.bytes;
        self.bytes += reply.as_ref().map_or(0, OwnedReply::value_bytes);
        self.parts.push(reply);
        self.asked.push(asked);
    }
}
