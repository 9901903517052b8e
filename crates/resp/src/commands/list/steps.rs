//! Operations on several lists: LMOVE and LMPOP, and what BLMOVE does once it has an element.
//!
//! Within a shard LMOVE is one question. Between shards the element leaves one list, then the other list
//! gets it: for a moment it is in neither. If the other list cannot have it, it goes back.

use crate::steps::{AskKey, Step, StepKey, Steps, is_one_shard};
use remora_frontend::OwnedReply;
use remora_protocol::Items;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;

/// Questions that are put again while RENAME holds a key, at most: that lasts for bounded time, and
/// other requests are served between two questions.
const MOST_TRIES: u32 = 1 << 16;

/// An element moves from one end of the first key's list to an end of the second key's. The value of the
/// reply is the element; `NotFound` without the first list.
#[derive(Debug)]
pub(super) struct MoveElement {
    from: Side,
    to: Side,
    last: Asked,
    tries: u32,
}

/// The last question.
#[derive(Debug)]
enum Asked {
    /// Whether there is anything to move: that counts before the type of the other key.
    SourceLength,
    /// Whether the other key may have it.
    TargetLength,
    Take,
    /// The same of a request that waited: its answer begins with the key.
    TakeOrWait,
    /// To add these elements.
    Put(Vec<u8>),
    /// To add them to the list that they come from; the reply is this status.
    PutBack(Vec<u8>, Status),
}

impl MoveElement {
    pub fn new((from, to): (Side, Side)) -> Self {
        Self { from, to, last: Asked::SourceLength, tries: 0 }
    }

    /// The element is taken by a request that may wait, whose answer is the first one.
    pub fn after_wait(sides: (Side, Side)) -> Self {
        Self { last: Asked::TakeOrWait, ..Self::new(sides) }
    }

    /// Whether the last question is put again: the element must not be lost.
    fn tries_again(&mut self, status: Status) -> bool {
        let has_element = matches!(self.last, Asked::Put(_) | Asked::PutBack(..));
        self.tries += u32::from(has_element);
        has_element && status == Status::TryAgain && self.tries < MOST_TRIES
    }

    /// Goes on to the next question, or ends.
    fn answered(&mut self, reply: OwnedReply) -> Result<(), OwnedReply> {
        let taken = |list: Option<&[u8]>| match list.filter(|list| Items::parse(list).is_some()) {
            Some(list) => Ok(Asked::Put(list.to_vec())),
            None => Err(OwnedReply::status(Status::Malformed)),
        };
        let value = reply.value.as_deref();
        self.last = match std::mem::replace(&mut self.last, Asked::SourceLength) {
            Asked::Put(list) if reply.status == Status::Ok => {
                let element = Items::split(&list).and_then(|(item, _)| item).map(<[u8]>::to_vec);
                return Err(OwnedReply { value: element, ..OwnedReply::status(Status::Ok) });
            }
            Asked::Put(list) => Asked::PutBack(list, reply.status),
            Asked::PutBack(_, status) => return Err(OwnedReply::status(status)),
            _ if reply.status != Status::Ok => return Err(reply),
            Asked::SourceLength if reply.number == 0 => {
                return Err(OwnedReply::status(Status::NotFound));
            }
            Asked::SourceLength => Asked::TargetLength,
            Asked::TargetLength => Asked::Take,
            Asked::Take => taken(value)?,
            Asked::TakeOrWait => {
                let behind_key = value.and_then(Items::split).map(|(_, rest)| rest);
                taken(behind_key.and_then(Items::split).and_then(|(elements, _)| elements))?
            }
        };
        Ok(())
    }
}

fn push(side: Side, list: &[u8]) -> remora_protocol::Request<'_> {
    let items = Items::parse(list).expect("checked when it came");
    ListCommand::Push { side, if_there: false, items }.request()
}

impl Steps for MoveElement {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        if let Some(reply) = answer
            && !self.tries_again(reply.status)
            && let Err(done) = self.answered(reply)
        {
            return Step::Done(done);
        }
        let Self { from, to, .. } = *self;
        match &self.last {
            Asked::SourceLength if is_one_shard(keys) => {
                ask(0, ListCommand::Move { from, to, other: &keys[1].key }.request());
                return Step::AskedLast;
            }
            Asked::SourceLength => ask(0, ListCommand::Length.request()),
            Asked::TargetLength => ask(1, ListCommand::Length.request()),
            Asked::Take | Asked::TakeOrWait => {
                ask(0, ListCommand::Pop { side: from, count: 1, fits_frame: false }.request());
            }
            Asked::Put(list) => ask(1, push(to, list)),
            Asked::PutBack(list, _) => ask(0, push(from, list)),
        }
        Step::Asked
    }
}

/// Up to `count` elements leave the first list that there is. The value of the reply is the key and the
/// elements, as [`Items`]; `number` counts them; `NotFound` without a list.
#[derive(Debug)]
pub(super) struct PopFirst {
    pub side: Side,
    pub count: u64,
    /// The key that is asked: 0 at first.
    pub at: usize,
}

impl Steps for PopFirst {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        match answer {
            None => {}
            Some(reply) if reply.status == Status::NotFound => self.at += 1,
            Some(reply) if reply.status == Status::Ok => {
                let mut list = Vec::new();
                Items::push(&mut list, &keys[self.at].key);
                list.extend_from_slice(reply.value.as_deref().unwrap_or_default());
                let number = reply.number + 1;
                return Step::Done(OwnedReply { number, value: Some(list), ..reply });
            }
            Some(reply) => return Step::Done(reply),
        }
        if self.at == keys.len() {
            return Step::Done(OwnedReply::status(Status::NotFound));
        }
        let Self { side, count, at } = *self;
        ask(at, ListCommand::Pop { side, count, fits_frame: false }.request());
        Step::Asked
    }
}
