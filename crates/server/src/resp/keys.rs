//! The key space, and giving a key's value to another key: requests that continue after a shard's
//! answer, at the same shard or at another one.
//!
//! Invariant: KEYS goes through a shard in bounded steps, each a job of its own, and ends with its
//! connection. A move of a key runs to its end even if its connection is closed ([`Moving`]), and
//! so does a store ([`Storing`]).

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::{GoingOn, request_part_key};
use super::key_steps::{AfterWaiting, KeySteps, Next, Waited, asked_next, encoded};
use remora_engine::moving::{self, How, KeyAt, Moving};
use remora_engine::storing::Storing;
use remora_frontend::{Job, JointOrder, Order, OwnedReply, Token, Waiting};
use remora_layout::database::Database;
use remora_layout::hash::mix;
use remora_layout::limits::MAX_REPLY_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, ScannedKeys};
use remora_resp::commands::keyspace;
use remora_resp::request::{KeyFilter, Transfer};
use remora_resp::wire::encode;
use remora_resp::{CommandError, ReplyForm};

/// Keys of one step of KEYS.
const KEYS_STEP: u32 = 1_000;
/// Lowest bit of a cursor that is part of a place; those below number the shard.
const PLACE_SHIFT: u32 = 6;

impl<H: Host> RespExecutor<H> {
    pub(super) fn scan(
        &mut self,
        responder: &mut Responder,
        (cursor, count): (u64, u32),
        filter: KeyFilter,
    ) {
        let shard = (cursor & ((1 << PLACE_SHIFT) - 1)) as usize;
        let place = u32::try_from(cursor >> PLACE_SHIFT);
        let Some(place) = place.ok().filter(|_| shard < self.host.shards()) else {
            // The server has not given out this cursor.
            return responder.reply(|out, _| {
                encode::array(out, 2);
                encode::bulk(out, b"0");
                encode::array(out, 0);
            });
        };
        self.go_on_with(responder, 0, GoingOn::Scan { shard, filter });
        let asked = [self.submit_keyless(responder, shard, 0, &Command::Scan { place, count })];
        responder.wait(Waiting::all(ReplyForm::Combined(&keyspace::SCANNED), asked));
    }

    pub(super) fn keys_of(&mut self, responder: &mut Responder, filter: &KeyFilter) {
        // Later requests would wait for it anyway.
        responder.expect_large();
        let database = self.database;
        let mut asked = Vec::new();
        for shard in 0..self.host.shards() {
            let (filter, found) = (filter.clone(), Vec::new());
            self.go_on_with(responder, shard, GoingOn::Keys { shard, database, filter, found });
            let command = Command::Scan { place: 0, count: KEYS_STEP };
            asked.push(self.submit_keyless(responder, shard, shard, &command));
        }
        responder.wait(Waiting::all(ReplyForm::Combined(&keyspace::KEY_LIST), asked));
    }

    pub(super) fn random_key(&mut self, responder: &mut Responder) {
        let (shards, database) = (self.host.shards(), self.database);
        let keys = |shard| self.host.keys_in(shard, database);
        let total: u64 = (0..shards).map(keys).sum();
        let mut at = self.draw() % total.max(1);
        let weighed = (0..shards).find(|&shard| {
            let keys = self.host.keys_in(shard, database);
            let is_it = at < keys;
            at = at.saturating_sub(keys);
            is_it
        });
        let shard = weighed.unwrap_or_default();
        let (random, left) = (self.draw() as u32, shards - 1);
        self.go_on_with(responder, 0, GoingOn::Random { shard, database, random, left });
        let command = Command::RandomKey { random, place: None };
        let asked = [self.submit_keyless(responder, shard, 0, &command)];
        responder.wait(Waiting::all(ReplyForm::Value, asked));
    }

    pub(super) fn transfer(&mut self, responder: &mut Responder, transfer: &Transfer<'_>) {
        let Transfer { key, to, replaces, keeps, form, .. } = *transfer;
        if transfer.database.is_some() && self.host.cluster().is_some() {
            let what = if keeps { "Copying to another database" } else { "MOVE" };
            return responder.reply(|out, _| CommandError::OneDatabase(what).write(out));
        }
        let to_database = transfer.database.unwrap_or(self.database);
        if transfer.must_differ && key == to && to_database == self.database {
            return responder.reply(|out, _| CommandError::SameObject.write(out));
        }
        let at = self.route(key);
        let place = |key: &[u8], database, shard| KeyAt { key: key.into(), database, shard };
        let from = place(key, self.database, at.1);
        let to = place(to, to_database, self.host.slots().shard_of(to));
        let moving = Moving::new(from, to, How { replaces, keeps });
        // Later requests would wait for it anyway.
        responder.expect_large();
        let (_, command) = moving.first();
        let asked = [self.submit(responder, at, 0, &command)];
        self.go_on_with(responder, 0, GoingOn::Moving(Box::new(moving)));
        responder.wait(Waiting::all(form, asked));
    }

    /// A key gets the results of the request that waits by this token.
    pub(super) fn store(&mut self, token: Token, storing: Storing) {
        let moving::Next::Ask(shard, command) = storing.first() else { return };
        self.ask_on(token, GoingOn::Storing(Box::new(storing)), (shard, command));
    }

    /// The last job of the request that waits by this token.
    pub(super) fn ask_last(&mut self, token: Token, job: (usize, Vec<u8>)) {
        self.ask_on(token, GoingOn::Last, job);
    }

    /// The next job of a request, and how it continues after the answer.
    pub(super) fn ask_on(&mut self, token: Token, on: GoingOn, (shard, command): (usize, Vec<u8>)) {
        self.keep_going(token, on, command.len());
        self.host.hand(shard, Job::execute(command, token));
    }

    /// The request that waits by this token goes on so after the answers to jobs of so many bytes.
    pub(super) fn keep_going(&mut self, token: Token, on: GoingOn, job_bytes: usize) {
        let bytes = job_bytes + on.found_bytes();
        self.host.counts().pending_bytes.change(0, bytes);
        self.key_answers.going_on.insert(request_part_key(&token), (on, bytes));
    }

    /// The rest of an operation is one change of two shards: its steps go to the shard that is held.
    fn change_jointly(
        &mut self,
        token: Token,
        (on, joint): (GoingOn, Box<KeySteps>),
        (shard, look): (usize, Vec<u8>),
    ) {
        self.keep_going(token, on, look.len());
        let order = Order::Joint(Box::new(JointOrder { look, joint }));
        self.host.hand(shard, Job::new(order, token));
    }

    /// What a request has waited for is there, or the rest of it is done, or neither. It runs to its end
    /// also if the connection is closed: others wait for the key behind it.
    fn waited(
        &mut self,
        token: Token,
        mut over: Box<AfterWaiting>,
        (reply, is_there): (OwnedReply, bool),
    ) -> Option<OwnedReply> {
        match over.next(reply) {
            Waited::Reply(reply) => return Some(reply),
            Waited::Goes(steps, look) => {
                let on = GoingOn::AfterWaiting(over);
                self.change_jointly(token, (on, Box::new(steps)), look);
            }
            Waited::WaitsAgain if is_there => self.wait_again(token, over),
            Waited::WaitsAgain => {}
        }
        None
    }

    fn draw(&mut self) -> u64 {
        self.key_answers.drawn += 1;
        mix(self.host.hash_seed() ^ self.now_ms, self.key_answers.drawn)
    }

    /// The next request of a connection continues so when its part is answered.
    pub(super) fn go_on_with(&mut self, responder: &Responder, part: usize, on: GoingOn) {
        let part = (responder.slot(), responder.serial(), responder.next_request(), part);
        self.key_answers.going_on.insert(part, (on, 0));
    }

    /// Continues after a shard's answer: returns the reply if it is complete, none if something
    /// must be asked first.
    pub(super) fn go_on_with_key(
        &mut self,
        token: Token,
        reply: OwnedReply,
        is_there: bool,
    ) -> Option<OwnedReply> {
        if self.key_answers.going_on.is_empty() {
            return Some(reply);
        }
        let part = request_part_key(&token);
        let Some((mut on, bytes)) = self.key_answers.going_on.remove(&part) else {
            return Some(reply);
        };
        self.host.counts().pending_bytes.change(bytes, 0);
        if let GoingOn::Sort(sort) = on {
            return if is_there { self.sorted(token, sort, reply) } else { None };
        }
        if let GoingOn::Plan(job) = on {
            if is_there {
                self.begin_plan(token, job);
            }
            return None;
        }
        if let GoingOn::AfterWaiting(over) = on {
            return self.waited(token, over, (reply, is_there));
        }
        let shards = self.host.shards();
        let next = match &mut on {
            GoingOn::Scan { shard, filter } => {
                Next::Reply(scanned(reply, (*shard, shards), filter))
            }
            GoingOn::Keys { shard, database, filter, found } => {
                keys_step(reply, (*shard, *database), filter, found)
            }
            GoingOn::Random { shard, database, random, left } => {
                let place = match reply.status {
                    Status::NotFound if *left > 0 => {
                        (*left, *shard) = (*left - 1, (*shard + 1) % shards);
                        Some(None)
                    }
                    Status::NotDone => Some(Some(reply.number as u32)),
                    _ => None,
                };
                match place {
                    Some(place) => {
                        let command = Command::RandomKey { random: *random, place };
                        Next::Ask(*shard, encoded(*database, &command))
                    }
                    None => Next::Reply(reply),
                }
            }
            GoingOn::Moving(moving) => asked_next(&reply, |reply| moving.next(reply)),
            GoingOn::Storing(storing) => asked_next(&reply, |reply| storing.next(reply)),
            GoingOn::Steps(steps) => steps.next(reply),
            GoingOn::AfterWaiting(_) | GoingOn::Sort(_) | GoingOn::Plan(_) | GoingOn::Last => {
                Next::Reply(reply)
            }
        };
        match next {
            // An operation on a key runs to its end even if its connection is closed.
            Next::Ask(shard, command) if is_there || runs_to_its_end(&on) => {
                self.ask_on(token, on, (shard, command));
                None
            }
            Next::Joint(shard, look) => {
                let GoingOn::Steps(steps) = on else { unreachable!("such a change has steps") };
                self.change_jointly(token, (GoingOn::Last, steps), (shard, look));
                None
            }
            Next::Ask(..) => None,
            Next::Reply(reply) => Some(reply),
        }
    }
}

/// Whether a request goes on although its connection is closed: it may have begun to change keys.
fn runs_to_its_end(on: &GoingOn) -> bool {
    match on {
        GoingOn::Moving(_) | GoingOn::Storing(_) | GoingOn::Last => true,
        GoingOn::Steps(steps) => !steps.is_read(),
        GoingOn::AfterWaiting(_) => true,
        GoingOn::Scan { .. }
        | GoingOn::Keys { .. }
        | GoingOn::Random { .. }
        | GoingOn::Sort(_)
        | GoingOn::Plan(_) => false,
    }
}

/// Appends those keys of a list that pass a filter.
fn filtered(list: &[u8], filter: &KeyFilter, found: &mut Vec<u8>) {
    for (kind, key) in ScannedKeys::new(list).filter(|(kind, key)| filter.admits(*kind, key)) {
        ScannedKeys::push(found, kind, key);
    }
}

/// The reply to SCAN: where to continue, at this shard or the next one.
fn scanned(reply: OwnedReply, (shard, shards): (usize, usize), filter: &KeyFilter) -> OwnedReply {
    let mut found = Vec::new();
    filtered(reply.value.as_deref().unwrap_or_default(), filter, &mut found);
    let number = match reply.number {
        0 if shard + 1 == shards => 0,
        0 => shard as i64 + 1,
        place => place << PLACE_SHIFT | shard as i64,
    };
    OwnedReply { number, value: Some(found), ..reply }
}

fn keys_step(
    reply: OwnedReply,
    (shard, database): (usize, Database),
    filter: &KeyFilter,
    found: &mut Vec<u8>,
) -> Next {
    filtered(reply.value.as_deref().unwrap_or_default(), filter, found);
    if found.len() > MAX_REPLY_BYTES {
        return Next::Reply(OwnedReply::status(Status::TooLarge));
    }
    match u32::try_from(reply.number) {
        Ok(place) if place > 0 => {
            Next::Ask(shard, encoded(database, &Command::Scan { place, count: KEYS_STEP }))
        }
        _ => Next::Reply(OwnedReply { value: Some(std::mem::take(found)), ..reply }),
    }
}
