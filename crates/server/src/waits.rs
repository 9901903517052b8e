//! Requests of one thread's connections and rings that wait for keys, at the shards of these keys.
//!
//! A request comes to its shards one after the other, in the order of its keys: each tries its keys,
//! and keeps the request if they hold nothing. So the request takes from the first of its keys that
//! holds something, also over shards: when a shard takes from a key, the request already waits at
//! all keys before it.
//!
//! Whoever answers takes the request's [`Claim`] first: a shard that has something for it, or this
//! thread when the wait ends otherwise: its time is over, its client is gone, another client ends
//! it, or the server becomes a replica or stops. Then the other shards forget the request.
//!
//! Invariants:
//! * a request is answered once;
//! * a shard that keeps a request is told when the request ends;
//! * a connection has one request that waits.
//!
//! It reads no clock: [`Waits::next_deadline_ms`] says when [`Waits::time_out`] has something to do.

use remora_frontend::{Job, Order, OwnedReply, Token, WaitFor};
use remora_protocol::Claim;
use remora_protocol::message::Status;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The commands of a request for keys of one shard, one behind the other among its keys.
#[derive(Clone)]
pub struct Run {
    /// The shard.
    pub shard: usize,
    /// The encoded command for each key.
    pub commands: Vec<Box<[u8]>>,
}

impl Run {
    /// Adds a command for a key of this shard behind the others.
    pub fn add(runs: &mut Vec<Self>, shard: usize, command: Box<[u8]>) {
        match runs.last_mut() {
            Some(run) if run.shard == shard => run.commands.push(command),
            _ => runs.push(Self { shard, commands: vec![command] }),
        }
    }
}

/// A request that may wait.
struct Wait {
    /// Names the request; its shard is none.
    token: Token,
    claim: Claim,
    /// Those that have not been sent.
    left: VecDeque<Run>,
    /// A bit for each shard that has it.
    sent: u64,
    /// It waits at all of its shards.
    is_parked: bool,
    /// Unix ms; 0 for none.
    until_ms: u64,
    /// Its time was over before all of its keys were looked at.
    is_late: bool,
}

/// The requests. See the module's text.
#[derive(Default)]
pub struct Waits {
    /// By the number of the connection.
    waits: BTreeMap<u64, Wait>,
    deadlines: BTreeSet<(u64, u64)>,
    jobs: VecDeque<(usize, Job)>,
    replies: VecDeque<(Token, OwnedReply)>,
}

impl Waits {
    /// Begins a request, which `token` names, of at least one run. It waits until this time, Unix ms;
    /// 0: without end.
    pub fn begin(&mut self, token: Token, runs: Vec<Run>, until_ms: u64) {
        self.begin_with(token, Claim::default(), runs, until_ms);
    }

    /// As [`Waits::begin`], with a claim that the caller knows, too. If the caller takes it, it answers the
    /// request, and calls [`Waits::withdraw`].
    pub fn begin_with(&mut self, token: Token, claim: Claim, runs: Vec<Run>, until_ms: u64) {
        let left = runs.into();
        let (is_parked, is_late) = (false, false);
        let mut wait = Wait { token, claim, left, sent: 0, is_parked, until_ms, is_late };
        self.jobs.extend(wait.next_job());
        if until_ms > 0 {
            self.deadlines.insert((until_ms, token.serial));
        }
        self.waits.insert(token.serial, wait);
    }

    /// Requests that wait, or are on their way to their shards.
    pub fn len(&self) -> usize {
        self.waits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Whether the request of a connection waits at all of its shards.
    pub fn has_parked(&self, serial: u64) -> bool {
        self.waits.get(&serial).is_some_and(|wait| wait.is_parked)
    }

    /// A shard keeps a request: the next one is asked.
    pub fn parked(&mut self, token: &Token) {
        let Some(wait) = self.waits.get_mut(&token.serial) else { return };
        if wait.token.request != token.request || wait.claim.is_taken() {
            return;
        }
        match wait.next_job() {
            Some(job) => self.jobs.push_back(job),
            None => {
                wait.is_parked = true;
                if wait.is_late {
                    self.end(token.serial, Status::NotFound);
                }
            }
        }
    }

    /// The answer to a request has come from a shard.
    pub fn answered(&mut self, token: &Token) {
        let is_it = |wait: &Wait| wait.token.request == token.request;
        if self.waits.get(&token.serial).is_some_and(is_it) {
            self.remove(token.serial, Some(token.shard));
        }
    }

    /// Ends the wait of a connection, if a shard does not answer it already. Whether it did.
    pub fn end(&mut self, serial: u64, status: Status) -> bool {
        let Some(wait) = self.waits.get(&serial) else { return false };
        if !wait.claim.take() {
            return false;
        }
        self.replies.push_back((wait.token, OwnedReply::status(status)));
        self.remove(serial, None);
        true
    }

    /// A connection is closed: nothing is to be taken from a key for it. Returns its request, if no
    /// answer to that is on its way.
    pub fn forget(&mut self, serial: u64) -> Option<Token> {
        let token = self.waits.get(&serial).filter(|wait| wait.claim.take())?.token;
        self.remove(serial, None);
        Some(token)
    }

    /// The request has ended, or its client takes no answer to it any more.
    pub fn withdraw(&mut self, serial: u64) {
        self.remove(serial, None);
    }

    /// Ends all waits.
    pub fn end_all(&mut self, status: Status) {
        let all: Vec<u64> = self.waits.keys().copied().collect();
        for serial in all {
            self.end(serial, status);
        }
    }

    /// The time of the first wait that ends by time, Unix ms.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|deadline| deadline.0)
    }

    /// Ends the waits whose time is over: each once all of its keys were looked at, however short its time
    /// is.
    pub fn time_out(&mut self, now_ms: u64) {
        while let Some(&(until_ms, serial)) = self.deadlines.first()
            && until_ms <= now_ms
        {
            self.deadlines.pop_first();
            match self.waits.get_mut(&serial) {
                Some(wait) if !wait.is_parked => wait.is_late = true,
                // If a shard answers it, that is on its way.
                _ => {
                    self.end(serial, Status::NotFound);
                }
            }
        }
    }

    /// The next order for a shard.
    pub fn pop_job(&mut self) -> Option<(usize, Job)> {
        self.jobs.pop_front()
    }

    /// The next reply to a request whose wait has ended.
    pub fn pop_reply(&mut self) -> Option<(Token, OwnedReply)> {
        self.replies.pop_front()
    }

    /// Whether there are orders or replies to be taken.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.jobs.is_empty() || !self.replies.is_empty()
    }

    /// Forgets a request, and tells the shards that have it, but for one that has forgotten it.
    fn remove(&mut self, serial: u64, but: Option<usize>) {
        let Some(wait) = self.waits.remove(&serial) else { return };
        self.deadlines.remove(&(wait.until_ms, serial));
        let told = (0..u64::BITS as usize).filter(|shard| wait.sent >> shard & 1 == 1);
        for shard in told.filter(|shard| Some(*shard) != but) {
            let token = Token { shard, ..wait.token };
            self.jobs.push_back((shard, Job::new(Order::Withdraw, token)));
        }
    }
}

impl Wait {
    /// The order for the next shard.
    fn next_job(&mut self) -> Option<(usize, Job)> {
        let Run { shard, commands } = self.left.pop_front()?;
        self.sent |= 1 << shard;
        let token = Token { shard, ..self.token };
        let wait = WaitFor { claim: self.claim.clone(), commands };
        Some((shard, Job::new(Order::WaitFor(Box::new(wait)), token)))
    }
}

#[cfg(test)]
mod tests;
