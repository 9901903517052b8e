//! Changes of two shards, at the thread of each of them (decision 0070).
//!
//! The shard of the key that something leaves is *held*: until both parts are made its thread executes
//! no commands. Jobs that come meanwhile are put off, in their order; mail, sockets, the log and replicas
//! are served. What a held shard waits for is one answer of one other shard.
//!
//! A part for a shard that is itself held waits there if that shard has a greater number than the one
//! that asks, and is refused as `TryAgain` if not: then the asking shard is let go, and tries again
//! later. So shards wait for each other in ascending order only, and never in a circle.
//!
//! It does no I/O: jobs come in, and go out by [`JointJobs::pop_job`].

use remora_arena::Journal;
use remora_engine::{Now, PartReply, Shard};
use remora_frontend::{
    Job, Joint, JointOrder, JointStep, Order, OwnedReply, PartAnswer, PartOrder, Token,
};
use remora_layout::hash::KeyHash;
use remora_log::Part;
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::collections::VecDeque;

/// The change for which the shard is held.
struct Held {
    token: Token,
    joint: Box<dyn Joint>,
    key: Box<[u8]>,
    hash: KeyHash,
    /// The time at which the shard looked: nothing expires between the look and the part.
    now: Now,
    /// What the other shard has made, or what its state depends on.
    first: Option<Part>,
    /// The sequence that the reply waits for.
    wait: u64,
}

/// A reply to a request, and the sequence that it waits for.
pub type JointReply = (Token, OwnedReply, u64);

/// See the module's text.
#[derive(Default)]
pub struct JointJobs {
    held: Option<Held>,
    /// Parts that wait until the shard is let go.
    parts: VecDeque<(PartOrder, Token)>,
    /// All other jobs.
    put_off: VecDeque<Job>,
    out: VecDeque<(usize, Job)>,
    /// The parts that the shard has made and the durability does not know of: the sequence here, and
    /// the other part.
    made: Vec<(u64, Part)>,
}

impl JointJobs {
    /// Whether the shard executes no commands now.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a job that comes now has to wait behind others.
    #[inline]
    pub fn puts_off(&self) -> bool {
        self.held.is_some() || !self.put_off.is_empty()
    }

    /// A job waits.
    pub fn put_off(&mut self, job: Job) {
        self.put_off.push_back(job);
    }

    /// The next job that has waited long enough.
    pub fn pop_put_off(&mut self) -> Option<Job> {
        if self.held.is_some() { None } else { self.put_off.pop_front() }
    }

    /// Whether there is work for the next turn.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.out.is_empty()
            || !self.made.is_empty()
            || (!self.put_off.is_empty() && !self.is_held())
    }

    /// The next order for another shard.
    pub fn pop_job(&mut self) -> Option<(usize, Job)> {
        self.out.pop_front()
    }

    /// The parts that were made since the last call: the sequence here, and the other part.
    pub fn take_made(&mut self) -> Vec<(u64, Part)> {
        std::mem::take(&mut self.made)
    }

    /// Holds the shard, and begins a change. The reply, if that is its end already.
    pub fn begin<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (order, token): (JointOrder, Token),
        now: Now,
    ) -> Option<JointReply> {
        let JointOrder { look, joint } = order;
        let Ok((database, command, _)) = Command::decode_within(&look) else {
            return Some((token, OwnedReply::status(Status::Malformed), 0));
        };
        let hash = shard.hash_of(database, &command);
        let key: Box<[u8]> = command.key().unwrap_or_default().into();
        if let Err(refusal) = shard.hold(&key, hash) {
            // Those who wait behind it are looked at all the same.
            shard.let_go(&key, hash);
            return Some((token, OwnedReply::status(refusal), 0));
        }
        let looked = shard.look_held(&look, now);
        let (first, wait) = (None, looked.wait);
        let held = Held { token, joint, key, hash, now, first, wait };
        self.go_on(shard, held, owned(looked))
    }

    /// The other shard has made its part, or has refused it. The reply, if this was the end.
    pub fn answered<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        answer: PartAnswer,
    ) -> Option<JointReply> {
        let mut held = self.held.take().expect("a shard is held until its question is answered");
        let PartAnswer { shard: other, reply, sequence } = answer;
        held.first = (sequence != 0).then(|| Part::new(other as u32, sequence));
        self.go_on(shard, held, reply)
    }

    /// Goes on behind an answer, until another shard is asked or the change is over.
    fn go_on<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        mut held: Held,
        mut answer: OwnedReply,
    ) -> Option<JointReply> {
        let number = shard.log_number() as usize;
        // Bounded: looks, two parts and an end.
        loop {
            match held.joint.next(answer) {
                JointStep::Ask(at, command) if at == number && !is_change(&command) => {
                    let looked = shard.look_held(&command, held.now);
                    held.wait = held.wait.max(looked.wait);
                    answer = owned(looked);
                }
                JointStep::Ask(at, command) if at == number => {
                    let taken = shard.second_part(&command, held.first, held.now);
                    if let (Some(entry), Some(first)) = (taken.entry, held.first) {
                        self.made.push((entry, first));
                    }
                    held.wait = held.wait.max(taken.wait);
                    answer = owned(taken);
                }
                JointStep::Ask(at, command) => {
                    let sequence = shard.last_sequence() + 1;
                    let part = PartOrder { command, held: number, sequence };
                    self.out.push_back((at, Job::new(Order::Part(Box::new(part)), held.token)));
                    self.held = Some(held);
                    return None;
                }
                JointStep::Again(look) => {
                    let Held { token, joint, key, hash, .. } = held;
                    shard.let_go(&key, hash);
                    let order = JointOrder { look, joint };
                    self.put_off.push_back(Job::new(Order::Joint(Box::new(order)), token));
                    self.make_waiting(shard, held.now);
                    return None;
                }
                JointStep::Done(reply) => {
                    shard.let_go(&held.key, held.hash);
                    self.make_waiting(shard, held.now);
                    return Some((held.token, reply, held.wait));
                }
            }
        }
    }

    /// Makes a part for a held shard, lets it wait, or refuses it for now.
    pub fn make<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (order, token): (PartOrder, Token),
        now: Now,
    ) {
        if !self.is_held() {
            return self.make_now(shard, (order, token), now);
        }
        let number = shard.log_number() as usize;
        if order.held < number {
            return self.parts.push_back((order, token));
        }
        let reply = OwnedReply::status(Status::TryAgain);
        self.answer(order.held, PartAnswer { shard: number, reply, sequence: 0 }, token);
    }

    /// The shard is let go: the parts that wait come before all commands.
    fn make_waiting<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) {
        while let Some(part) = self.parts.pop_front() {
            self.make_now(shard, part, now);
        }
    }

    fn make_now<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (order, token): (PartOrder, Token),
        now: Now,
    ) {
        let PartOrder { command, held, sequence } = order;
        let other = Part::new(held as u32, sequence);
        let made = shard.first_part(&command, other, now);
        if let Some(entry) = made.entry {
            self.made.push((entry, other));
        }
        // Without a change here the other part still depends on what this one has found.
        let sequence = match made.status {
            Status::Ok => made.entry.unwrap_or(made.wait),
            _ => 0,
        };
        let number = shard.log_number() as usize;
        self.answer(held, PartAnswer { shard: number, reply: owned(made), sequence }, token);
    }

    fn answer(&mut self, held: usize, answer: PartAnswer, token: Token) {
        self.out.push_back((held, Job::new(Order::PartAnswer(Box::new(answer)), token)));
    }
}

fn is_change(command: &[u8]) -> bool {
    Command::decode_within(command).is_ok_and(|(_, command, _)| command.is_write())
}

fn owned(reply: PartReply) -> OwnedReply {
    let PartReply { status, number, value, .. } = reply;
    OwnedReply { status, number, value, has_more: false }
}

#[cfg(test)]
mod tests;
