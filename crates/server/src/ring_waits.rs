//! Requests over one thread's rings that wait for keys of several shards.
//!
//! They take the way of RESP's ([`crate::waits`]): the shards of the keys are asked one after the other,
//! under one claim. A move of an element between two shards waits by a look, and goes on by one change of
//! both (decision 0070).
//!
//! Invariants:
//! * a request is answered once, or not at all if its client has ended it or gone;
//! * an answer that comes after that is dropped, and not taken for that of another request: each has a
//!   number of its own.
//!
//! It does no I/O: what it wants done it says by [`Answered`] and the orders of [`Waits`].

use crate::resp::key_steps::{AfterWaiting, Waited};
use crate::ring_session::WaitOrder;
use crate::waits::{Run, Waits};
use remora_engine::Served;
use remora_frontend::{Job, JointOrder, Order, OwnedReply, PARKED, Token};
use remora_protocol::message::Status;
use remora_protocol::{Claim, Command, Items};
use remora_resp::commands::apart;
use remora_resp::steps::StepKey;
use std::collections::BTreeMap;

/// The numbers of these requests have this bit, those of connections do not.
const OF_RINGS: u64 = 1 << 63;

/// A request: the place of its client, and its id.
pub type RingRequest = (usize, u32);

/// What is to be done after an answer.
pub enum Answered {
    /// The client gets this.
    Reply(Served),
    /// The shard is asked for the rest.
    Goes(usize, Job),
    /// It waits again, under this claim.
    Again(Claim),
}

/// See the module's text.
pub struct RingWaits {
    home: usize,
    numbers: BTreeMap<RingRequest, u64>,
    next: u64,
    /// Moves between shards, by the numbers of their requests.
    moves: BTreeMap<u64, AfterWaiting>,
}

/// Whether a reply is one for [`RingWaits::answered`].
#[inline]
pub fn is_of_rings(token: &Token) -> bool {
    token.serial & OF_RINGS != 0
}

fn request_of(token: &Token) -> RingRequest {
    (token.connection, token.request as u32)
}

impl RingWaits {
    /// For the thread of this shard.
    pub fn new(home: usize) -> Self {
        Self { home, numbers: BTreeMap::new(), next: OF_RINGS, moves: BTreeMap::new() }
    }

    /// Carries out an order of the client at this place. `shard_of` gives the shard of a key.
    pub fn carry_out(
        &mut self,
        waits: &mut Waits,
        (place, order): (usize, WaitOrder),
        shard_of: impl Fn(&[u8]) -> usize,
    ) {
        match order {
            WaitOrder::Begin { id, claim, commands, until_ms } => {
                let serial = self.next;
                self.next += 1;
                let runs = self.runs(serial, commands, until_ms, shard_of);
                let Some(shard) = runs.first().map(|run| run.shard) else { return };
                self.numbers.insert((place, id), serial);
                let (home, request) = (self.home, id.into());
                let token = Token { home, connection: place, serial, request, part: 0, shard };
                waits.begin_with(token, claim, runs, until_ms);
            }
            WaitOrder::End(id) => {
                if let Some(serial) = self.numbers.remove(&(place, id)) {
                    self.moves.remove(&serial);
                    waits.withdraw(serial);
                }
            }
        }
    }

    /// What the shards are asked. A move between two of them is noted.
    fn runs(
        &mut self,
        serial: u64,
        commands: Vec<Box<[u8]>>,
        until_ms: u64,
        shard_of: impl Fn(&[u8]) -> usize,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        for bytes in commands {
            // The session has decoded them.
            let Ok((database, Command::Of { key, request }, _)) = Command::decode_within(&bytes)
            else {
                continue;
            };
            let shard = shard_of(key);
            let over = apart(request).filter(|over| shard_of(over.to) != shard);
            let Some(over) = over else {
                Run::add(&mut runs, shard, bytes);
                continue;
            };
            let mut look = Vec::new();
            Command::Of { key, request: over.look }.encode_within(database, 0, &mut look);
            Run::add(&mut runs, shard, look.into());
            let keys = [key, over.to].map(|key| StepKey { key: key.into(), shard: shard_of(key) });
            let of = (over.after_wait, database, keys.into());
            self.moves.insert(serial, AfterWaiting::new(of, &runs, until_ms));
        }
        runs
    }

    /// A reply to a question of [`Waits`], or to a job that [`Answered::Goes`] told. The request that is
    /// concerned, and what is to be done; `None` if that is nothing.
    pub fn answered(
        &mut self,
        waits: &mut Waits,
        token: Token,
        reply: OwnedReply,
    ) -> Option<(RingRequest, Answered)> {
        if token.part == PARKED {
            waits.parked(&token);
            return None;
        }
        waits.answered(&token);
        let request = request_of(&token);
        if self.numbers.get(&request) != Some(&token.serial) {
            return None;
        }
        let Some(mut over) = self.moves.remove(&token.serial) else {
            return Some((request, Answered::Reply(served(reply))));
        };
        let next = match over.next(reply) {
            Waited::Reply(reply) => {
                return Some((request, Answered::Reply(moved(over.first_key(), reply))));
            }
            Waited::Goes(steps, (shard, look)) => {
                let order = JointOrder { look, joint: Box::new(steps) };
                let token = Token { shard, ..token };
                Answered::Goes(shard, Job::new(Order::Joint(Box::new(order)), token))
            }
            Waited::WaitsAgain => {
                let ((runs, until_ms), claim) = (over.wait(), Claim::default());
                waits.begin_with(token, claim.clone(), runs, until_ms);
                Answered::Again(claim)
            }
        };
        self.moves.insert(token.serial, over);
        Some((request, next))
    }
}

/// The answer to a request, whose value is as it is to be. What it depends on is durable.
fn served(reply: OwnedReply) -> Served {
    let OwnedReply { status, number, value, .. } = reply;
    Served { name: [0; 4], status, number, value, wait: 0 }
}

/// The answer to a move between shards, of which the reply has the element alone.
fn moved(key: &[u8], reply: OwnedReply) -> Served {
    let value = reply.value.as_ref().filter(|_| reply.status == Status::Ok).map(|element| {
        let mut items = Vec::new();
        Items::push(&mut items, key);
        Items::push(&mut items, element);
        items
    });
    Served { value, ..served(reply) }
}

#[cfg(test)]
mod tests;
