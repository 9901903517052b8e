//! Operations on several sets: SINTER, SUNION, SDIFF and their STORE forms, and SMOVE.

use crate::steps::{AskKey, MOST_TRIES, Step, StepKey, Steps, is_one_shard};
use remora_frontend::OwnedReply;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_COMMAND_MEMBERS;
use remora_protocol::Items;
use remora_protocol::message::Status;
use remora_protocol::set::{Combination, MAX_SET_MEMBER_BYTES, Others, SetCommand};
use std::collections::VecDeque;

/// The sets of several keys become one. Each shard combines what the shards before it have found with the
/// sets that it owns, at one moment: the result of several shards is of no one moment.
#[derive(Debug)]
pub(super) struct Combine {
    how: Combination,
    /// Only the number of members is wanted, up to this many, if not 0.
    count_to: Option<u64>,
    /// The first key gets the result.
    stores: bool,
    /// The shards that are still to be asked: the numbers of the keys of each.
    left: VecDeque<Vec<usize>>,
}

impl Combine {
    pub fn new(how: Combination, count_to: Option<u64>) -> Self {
        Self { how, count_to, stores: false, left: VecDeque::new() }
    }

    pub fn stored(how: Combination) -> Self {
        Self { stores: true, ..Self::new(how, None) }
    }

    /// Asks the next shard.
    fn ask(&mut self, keys: &[StepKey], before: Option<&[u8]>, ask: AskKey<'_>) -> Step {
        let numbers = self.left.pop_front().expect("a shard is left");
        let mut items = Vec::new();
        if let Some(before) = before {
            Items::push(&mut items, before);
        }
        numbers.iter().skip(1).for_each(|at| Items::push(&mut items, &keys[*at].key));
        let is_last = self.left.is_empty();
        let items = Items::parse(&items).expect("just made");
        let others = Others { has_before: before.is_some(), items };
        let count_to = self.count_to.filter(|_| is_last);
        ask(numbers[0], SetCommand::Combine { how: self.how, others, count_to }.request());
        if is_last && !self.stores { Step::AskedLast } else { Step::Asked }
    }
}

/// The numbers of the keys from `first` on, by their shards; a shard has the place of its first key.
fn by_shard(keys: &[StepKey], first: usize) -> VecDeque<Vec<usize>> {
    let mut shards: VecDeque<Vec<usize>> = VecDeque::new();
    for (at, key) in keys.iter().enumerate().skip(first) {
        match shards.iter_mut().find(|numbers| keys[numbers[0]].shard == key.shard) {
            Some(numbers) => numbers.push(at),
            None => shards.push_back(vec![at]),
        }
    }
    shards
}

impl Steps for Combine {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        let Some(reply) = answer else {
            self.left = by_shard(keys, self.stores.into());
            return self.ask(keys, None, ask);
        };
        if reply.status != Status::Ok {
            return Step::Done(reply);
        }
        let items = reply.value.unwrap_or_default();
        if !self.left.is_empty() {
            return self.ask(keys, Some(&items), ask);
        }
        if reply.number > MAX_COMMAND_MEMBERS as i64 {
            let first_bytes = Items::first_bytes;
            return Step::Store { key: 0, kind: Kind::SET, items, first_bytes };
        }
        let Some(members) = Items::parse(&items) else {
            return Step::Done(OwnedReply::status(Status::Malformed));
        };
        ask(0, SetCommand::Store { members }.request());
        Step::AskedLast
    }

    fn is_read(&self) -> bool {
        !self.stores
    }
}

/// A member moves from the first key's set to the second key's; the number of the reply is 1 if it was
/// there. Between shards that is one change of both.
#[derive(Debug)]
pub(super) struct MoveMember {
    /// The member, as [`Items`].
    member: Vec<u8>,
    last: Asked,
    tries: u32,
}

/// The last question.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Whether the source has the member; it is held from now on.
    Look,
    /// It has not: whether there is a source at all.
    SourceLength,
    /// There is: whether the other key is of the right type.
    TargetLength,
    Add,
    Remove,
}

impl MoveMember {
    pub fn new(member: &[u8]) -> Self {
        let mut list = Vec::with_capacity(Items::bytes_of(member.len()));
        Items::push(&mut list, member);
        Self { member: list, last: Asked::Look, tries: 0 }
    }

    /// The next question after an answer; the status and the number of the reply at the end.
    fn after(&self, status: Status, number: i64) -> Result<Asked, (Status, i64)> {
        match self.last {
            Asked::Look if status == Status::NotFound => Ok(Asked::SourceLength),
            // The other key is on its way to another one, or its shard is held: both are over soon.
            Asked::Add | Asked::TargetLength
                if status == Status::TryAgain && self.tries < MOST_TRIES =>
            {
                Ok(Asked::Look)
            }
            _ if status != Status::Ok => Err((status, 0)),
            Asked::SourceLength if number > 0 => Ok(Asked::TargetLength),
            Asked::SourceLength | Asked::TargetLength => Err((Status::Ok, 0)),
            Asked::Look => Ok(Asked::Add),
            Asked::Add => Ok(Asked::Remove),
            Asked::Remove => Err((Status::Ok, 1)),
        }
    }
}

impl Steps for MoveMember {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        let members = Items::parse(&self.member).expect("made by new");
        let member = members.iter().flatten().next().expect("it has one");
        match answer.map(|reply| self.after(reply.status, reply.number)) {
            // A member that is too long for any set is looked for, and not moved.
            None if is_one_shard(keys) && member.len() <= MAX_SET_MEMBER_BYTES => {
                let mut to_and_member = Vec::new();
                Items::push(&mut to_and_member, &keys[1].key);
                to_and_member.extend_from_slice(&self.member);
                let to_and_member = Items::parse(&to_and_member).expect("just made");
                ask(0, SetCommand::Move { to_and_member }.request());
                return Step::AskedLast;
            }
            None => {}
            Some(Ok(next)) => {
                self.tries += u32::from(matches!(next, Asked::Look));
                self.last = next;
            }
            Some(Err((status, number))) => {
                return Step::Done(OwnedReply { number, ..OwnedReply::status(status) });
            }
        }
        let (key, command) = match self.last {
            Asked::Look => (0, SetCommand::Contains { member }),
            Asked::SourceLength => (0, SetCommand::Length),
            Asked::TargetLength => (1, SetCommand::Length),
            Asked::Add => (1, SetCommand::Add { members }),
            Asked::Remove => (0, SetCommand::Remove { members }),
        };
        ask(key, command.request());
        if matches!(self.last, Asked::Look) { Step::Joint } else { Step::Asked }
    }
}
