//! Several requests in flight.

use super::SimClient;
use crate::check::keys::{If, KeyOp, Value};
use crate::history::Begun;
use crate::values::{Register, encode};
use remora_client_core::{Error, Session, Ticket};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use std::collections::BTreeMap;

/// Submitted requests that are not answered yet.
#[derive(Default)]
struct Submitted {
    under_way: Vec<(Ticket, Begun, Option<KeyOp>)>,
    /// The last request of each key, and the last SET.
    last: BTreeMap<Register, Begun>,
    last_set: BTreeMap<Register, Begun>,
}

impl SimClient {
    /// Several requests at once; a read of one of the keys in between must
    /// see this session's own write.
    pub(super) fn submit(&mut self, session: &mut Session) -> Result<(), Error> {
        let (submitted, mut timed_out) = self.submit_some(session)?;
        if timed_out.is_none() && self.draw(3) == 0 {
            let (key, path) = (self.key(), self.path());
            // It may overtake a GET, but no write.
            let follows = submitted.last_set.get(&key).copied();
            timed_out = in_time(self.get_after(session, key, path, follows))?;
        }
        let mut under_way = submitted.under_way.into_iter();
        while let Some((ticket, begun, set)) = under_way.next() {
            let mut answer = None;
            let taken = session.next_reply(&mut |found, reply| {
                answer = Some((found, reply.status, reply.value.map(<[u8]>::to_vec)));
            });
            if taken.is_err() && self.world.node.borrow().had_trouble() {
                // Those whose replies do not come may have been refused.
                let mut history = self.world.history.borrow_mut();
                let others = under_way.as_slice().iter().map(|&(_, begun, _)| begun);
                others.chain([begun]).for_each(|begun| history.may_have_had_effect(begun));
            }
            if let Some(error) = in_time(taken.map(drop))? {
                self.world.history.borrow_mut().may_have_had_effect(begun);
                timed_out = Some(error);
                continue;
            }
            let Some((found, status, value)) = answer else {
                let seen = format!("client {}: no reply to {ticket:?}", self.number);
                self.world.history.borrow_mut().violate("every request is answered", seen);
                continue;
            };
            if found != ticket {
                let seen = format!("client {}: {found:?} instead of {ticket:?}", self.number);
                self.world.history.borrow_mut().violate("replies come in order", seen);
            }
            match (status, set) {
                (Status::Ok | Status::NotFound, None) => {
                    let found = self.number_of(begun.key, value.as_deref());
                    self.end(begun, KeyOp::Get { found });
                }
                (Status::Ok, Some(set)) => self.end(begun, set),
                (refused, _) => self.failed(begun, Error::Refused(refused))?,
            }
        }
        timed_out.map_or(Ok(()), Err)
    }

    /// Submits several requests and does not wait for their replies.
    pub(super) fn submit_only(&mut self, session: &mut Session) -> Result<(), Error> {
        let (_, timed_out) = self.submit_some(session)?;
        timed_out.map_or(Ok(()), Err)
    }

    /// Submits; ends earlier by a time-out.
    fn submit_some(&mut self, session: &mut Session) -> Result<(Submitted, Option<Error>), Error> {
        let mut submitted = Submitted::default();
        let Submitted { under_way, last, last_set } = &mut submitted;
        for _ in 0..1 + self.draw(self.world.swarm.mix.most_submitted) {
            let key = self.key();
            let name = key.name();
            let is_get = self.draw(2) == 0;
            let number = self.world.next_number();
            let value = encode(key, number, self.world.swarm.lengths);
            let set = KeyOp::Set {
                value: Value { number, expiry: None },
                condition: If::Always,
                done: None,
            };
            let op = if is_get { KeyOp::Nothing } else { set };
            let begun = self.begin_after(key, op, last.get(&key).copied());
            last.insert(key, begun);
            if !is_get {
                last_set.insert(key, begun);
            }
            let command = if is_get {
                Command::Get { key: &name }
            } else {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                Command::Set { key: &name, value: &value, condition, expiry, get: false }
            };
            let ticket = match session.submit(&command) {
                Err(Error::TimedOut) => {
                    self.world.history.borrow_mut().may_have_had_effect(begun);
                    return Ok((submitted, Some(Error::TimedOut)));
                }
                ticket => ticket?,
            };
            under_way.push((ticket, begun, if is_get { None } else { Some(set) }));
        }
        Ok((submitted, None))
    }
}

/// The error, if the time was up.
fn in_time(result: Result<(), Error>) -> Result<Option<Error>, Error> {
    match result {
        Err(Error::TimedOut) => Ok(Some(Error::TimedOut)),
        result => result.map(|()| None),
    }
}
