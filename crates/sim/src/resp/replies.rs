//! The meaning of replies for each key.

use super::requests::{Expect, Px, time_left};
use crate::check::keys::{KeyOp, Left, Value, said_of_each};
use crate::check::places::Act;
use crate::history::Begun;
use crate::values::{Register, decode};
use crate::world::World;
use remora_layout::limits::UPLOAD_IDLE_S;
use remora_protocol::message::Status;
use remora_resp::wire::Value as Reply;

/// A request under way.
pub struct SentRequest {
    /// The expected reply.
    pub expect: Expect,
    /// Its operation on each key.
    pub calls: Vec<(Begun, KeyOp)>,
    /// How it says when its key expires.
    pub expiry: Option<Px>,
    /// Its operations on trees.
    pub acts: Vec<Act>,
    /// If it removes all lists, this flush.
    pub flush: Option<usize>,
    /// The server's clock when it was sent, ms.
    pub asked_ms: u64,
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// This, for each key.
    Of(Vec<KeyOp>),
    /// It was refused for this reason.
    Refused(Status),
    /// Something that no request of this kind is answered with.
    Wrong,
}

impl SentRequest {
    /// Whether a move has taken so long that its shards may have given it up between two pieces.
    pub fn may_be_given_up(&self, world: &World) -> bool {
        let taken_ms = world.node.borrow().unix_ms().saturating_sub(self.asked_ms);
        taken_ms > UPLOAD_IDLE_S * 1_000
    }

    /// Judges a reply.
    pub fn judge(&self, world: &World, reply: &Reply<'_>) -> Came {
        if let Reply::Error(text) = reply {
            let may_be = matches!(
                self.expect,
                Expect::Ok | Expect::OkOrNull | Expect::Number | Expect::Exactly(_)
            );
            let mut ops = self.calls.iter().map(|&(_, op)| op);
            let is_write = may_be
                || self.expect == Expect::WasDone
                || ops.any(|op| matches!(op, KeyOp::Del { .. }));
            return match text {
                text if may_be && text.starts_with(b"OOM ") => Came::Refused(Status::OutOfMemory),
                text if is_write && text.starts_with(b"MISCONF ") => Came::Refused(Status::NotKept),
                text if is_write && text.starts_with(b"NOREPLICAS ") => {
                    Came::Refused(Status::TooFewReplicas)
                }
                text if may_be && text.starts_with(b"TRYAGAIN ") => Came::Refused(Status::TryAgain),
                _ => Came::Wrong,
            };
        }
        self.ops(world, reply).map_or(Came::Wrong, Came::Of)
    }

    /// The operation of each key with its result; `None` if that cannot be.
    fn ops(&self, world: &World, reply: &Reply<'_>) -> Option<Vec<KeyOp>> {
        let now_ms = world.node.borrow().unix_ms();
        let ops = self.calls.iter().map(|&(_, op)| op);
        match (self.expect, reply) {
            (Expect::Value, value) => {
                let (begun, _) = self.calls.first()?;
                Some(vec![found(world, begun.key, value)?])
            }
            (Expect::Values, Reply::Array(values)) if values.len() == self.calls.len() => {
                let pairs = self.calls.iter().zip(values);
                pairs.map(|((begun, _), value)| found(world, begun.key, value)).collect()
            }
            (Expect::Ok | Expect::OkOrNull, Reply::Simple(b"OK")) => {
                Some(ops.map(|op| self.done(op, true, now_ms)).collect())
            }
            (Expect::Exactly(number), Reply::Integer(told)) if *told == number => {
                Some(ops.map(|op| self.done(op, true, now_ms)).collect())
            }
            (Expect::OkOrNull, Reply::Null) => {
                Some(ops.map(|op| self.done(op, false, now_ms)).collect())
            }
            (Expect::WasDone, &Reply::Integer(done @ 0..=1)) => {
                Some(ops.map(|op| self.done(op, done == 1, now_ms)).collect())
            }
            (Expect::Sum, &Reply::Integer(sum)) => {
                let count = self.calls.len() as i64;
                let all = said_of_each(sum as u64, self.calls.len());
                let of_one = |op| match op {
                    KeyOp::Del { .. } => KeyOp::Del { removed: all },
                    _ => all.map_or(KeyOp::Nothing, |there| KeyOp::Exists { there }),
                };
                (0..=count).contains(&sum).then(|| ops.map(of_one).collect())
            }
            (Expect::Number, &Reply::Integer(sum)) => {
                let counted = |op| match op {
                    KeyOp::Incr { by, .. } => KeyOp::Incr { by, sum: Some(sum) },
                    other => other,
                };
                Some(ops.map(counted).collect())
            }
            (Expect::TimeLeft, &Reply::Integer(told_ms)) => {
                let left: Left = time_left(told_ms, self.asked_ms, now_ms)?;
                Some(vec![KeyOp::TimeLeft { left }])
            }
            (Expect::Pong, Reply::Simple(b"PONG")) | (Expect::Facts, Reply::Map(_)) => {
                Some(Vec::new())
            }
            _ => None,
        }
    }

    /// A write that is known to be done or not, and now also when.
    fn done(&self, op: KeyOp, is_done: bool, now_ms: u64) -> KeyOp {
        let window = self.expiry.map(|px| px.window(self.asked_ms, now_ms));
        let done = Some(is_done);
        match op {
            KeyOp::Set { value, condition, .. } => {
                let expiry = window.or(value.expiry);
                KeyOp::Set { value: Value { expiry, ..value }, condition, done }
            }
            KeyOp::Expire { expiry, .. } => {
                KeyOp::Expire { expiry: window.unwrap_or(expiry), done }
            }
            other => other,
        }
    }
}

/// The value found under a key; `None` if no client wrote it there.
fn found(world: &World, key: Register, value: &Reply<'_>) -> Option<KeyOp> {
    match value {
        Reply::Null => Some(KeyOp::Get { found: None }),
        Reply::Bulk(bytes) => {
            let found = Some(decode(key, bytes, world.swarm.lengths_of(key))?);
            Some(KeyOp::Get { found })
        }
        _ => None,
    }
}
