//! Operations on several lists: LMOVE and LMPOP, and what BLMOVE does once it has an element.
//!
//! Within a shard LMOVE is one question. Between shards it is one change of both.

use crate::steps::{AfterWait, AskKey, MOST_TRIES, Step, StepKey, Steps, is_one_shard};
use remora_frontend::OwnedReply;
use remora_layout::packed::Field;
use remora_protocol::Items;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;

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
    /// What is at the end of the first list, which is held from now on.
    Look,
    /// To add these elements, the one that was found.
    Put(Vec<u8>),
    /// To take it.
    Take(Vec<u8>),
}

impl MoveElement {
    pub fn new((from, to): (Side, Side)) -> Self {
        Self { from, to, last: Asked::Look, tries: 0 }
    }

    /// The look, which says also whether there is anything to wait for.
    pub fn look(from: Side) -> remora_protocol::Request<'static> {
        let index = if from == Side::Left { 0 } else { -1 };
        ListCommand::Index { index }.request()
    }

    /// Goes on to the next question, or ends.
    fn answered(&mut self, reply: OwnedReply) -> Result<(), OwnedReply> {
        self.last = match std::mem::replace(&mut self.last, Asked::Look) {
            // The other key is on its way to another one, or its shard is held: both are over soon.
            Asked::Put(_) if reply.status == Status::TryAgain && self.tries < MOST_TRIES => {
                self.tries += 1;
                Asked::Look
            }
            _ if reply.status != Status::Ok => return Err(OwnedReply::status(reply.status)),
            Asked::Look => {
                let mut list = Vec::new();
                let value = reply.value.as_deref().unwrap_or_default();
                Items::push_field(&mut list, Field { value, is_link: reply.number == 1 });
                Asked::Put(list)
            }
            Asked::Put(list) => Asked::Take(list),
            Asked::Take(list) => {
                let element = Items::split(&list).and_then(|(item, _)| item).map(<[u8]>::to_vec);
                return Err(OwnedReply { value: element, ..OwnedReply::status(Status::Ok) });
            }
        };
        Ok(())
    }
}

/// A move that waits for an element.
#[derive(Debug)]
pub(super) struct MoveAfterWait(pub Side, pub Side);

impl AfterWait for MoveAfterWait {
    fn steps(&self) -> Box<dyn Steps> {
        Box::new(MoveElement::new((self.0, self.1)))
    }
}

fn push(side: Side, list: &[u8]) -> remora_protocol::Request<'_> {
    let items = Items::parse(list).expect("made of an element");
    ListCommand::Push { side, if_there: false, items }.request()
}

impl Steps for MoveElement {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        let Self { from, to, .. } = *self;
        match answer.map(|reply| self.answered(reply)) {
            None if is_one_shard(keys) => {
                ask(0, ListCommand::Move { from, to, other: &keys[1].key }.request());
                return Step::AskedLast;
            }
            None | Some(Ok(())) => {}
            Some(Err(done)) => return Step::Done(done),
        }
        match &self.last {
            Asked::Look => {
                ask(0, Self::look(from));
                return Step::Joint;
            }
            Asked::Put(list) => ask(1, push(to, list)),
            Asked::Take(_) => {
                ask(0, ListCommand::Pop { side: from, count: 1, fits_frame: false }.request());
            }
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
