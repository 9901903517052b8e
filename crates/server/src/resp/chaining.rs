//! Requests on their way from shard to shard: what is asked next, after an answer.

use super::key_steps::encoded;
use remora_engine::moving::KeyAt;
use remora_engine::storing::{Parts, Storing};
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_layout::limits::MAX_COMMAND_MEMBERS;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Request as On};
use remora_resp::request::{Chain, ChainLink, ElementMove};
use std::collections::VecDeque;

/// The next step after an answer.
pub(super) enum Step {
    Reply(OwnedReply),
    /// The encoded command for this shard.
    Ask(usize, Vec<u8>),
    /// The encoded command for this shard, whose answer is the reply.
    Last(usize, Vec<u8>),
    /// The result is stored in pieces.
    Store(Storing),
}

/// The keys of one shard, in order.
pub(super) struct Link {
    pub(super) shard: usize,
    /// The first of them.
    pub(super) key: Box<[u8]>,
    /// The others, an encoded list.
    pub(super) others: Vec<u8>,
}

/// A request on its way from shard to shard.
pub(super) struct Chaining {
    pub(super) chain: &'static Chain,
    pub(super) database: Database,
    /// The shards that are still to be asked.
    pub(super) links: VecDeque<Link>,
    pub(super) count_to: Option<u64>,
    /// The key that gets the result.
    pub(super) to: Option<KeyAt>,
}

impl Chaining {
    /// Asks the next shard.
    pub(super) fn ask<R>(
        &mut self,
        before: Option<&[u8]>,
        asked: impl FnOnce(usize, &Command<'_>) -> R,
    ) -> R {
        let link = self.links.pop_front().expect("a shard is left");
        let mut items = Vec::new();
        if let Some(before) = before {
            Items::push(&mut items, before);
        }
        items.extend_from_slice(&link.others);
        let items = Items::parse(&items).expect("just made");
        let count_to = self.count_to.filter(|_| self.links.is_empty());
        let has_before = before.is_some();
        let request = (self.chain.ask)(ChainLink { has_before, items, count_to });
        asked(link.shard, &Command::Of { key: &link.key, request })
    }

    /// Continues after an answer.
    pub(super) fn next(&mut self, reply: OwnedReply) -> Step {
        if reply.status != Status::Ok {
            return Step::Reply(reply);
        }
        let database = self.database;
        if !self.links.is_empty() {
            let before = reply.value.unwrap_or_default();
            return self
                .ask(Some(&before), |shard, command| Step::Ask(shard, encoded(database, command)));
        }
        let Some(to) = self.to.take() else { return Step::Reply(reply) };
        let list = reply.value.unwrap_or_default();
        let Some(items) = Items::parse(&list) else {
            return Step::Reply(OwnedReply::status(Status::Malformed));
        };
        if reply.number > MAX_COMMAND_MEMBERS as i64 {
            let first_bytes = |list: &[u8]| {
                let item = Items::split(list).and_then(|(item, _)| item);
                item.map_or(0, |item| Items::bytes_of(item.len()))
            };
            let parts = Parts { kind: self.chain.kind, list, first_bytes };
            return Step::Store(Storing::new(to, parts));
        }
        let command = Command::Of { key: &to.key, request: (self.chain.store)(items) };
        Step::Last(to.shard, encoded(database, &command))
    }
}

/// An element on its way between keys of two shards.
pub(super) struct ElementMoving {
    how: &'static ElementMove,
    from: KeyAt,
    to: KeyAt,
    element: Box<[u8]>,
    last: Asked,
}

/// The last question.
#[derive(Clone, Copy)]
enum Asked {
    /// Whether the source has the element.
    Contains,
    /// It has not: whether there is a source at all.
    SourceLength,
    /// And whether the other key is of the right type.
    Length,
    Add,
    /// The other key had it already, or not.
    Remove {
        was_new: bool,
    },
    /// Another client was faster, or the source cannot be changed: this is the reply.
    Undo(Status, i64),
}

impl ElementMoving {
    /// It begins with the question whether the source has the element, which is not put here.
    pub(super) fn new(
        how: &'static ElementMove,
        (from, to): (KeyAt, KeyAt),
        element: Box<[u8]>,
    ) -> Self {
        Self { how, from, to, element, last: Asked::Contains }
    }

    /// The first question.
    pub(super) fn first(&self) -> On<'_> {
        (self.how.contains)(&self.element)
    }

    fn encoded(&self, at: &KeyAt, request: On<'_>) -> Step {
        Step::Ask(at.shard, encoded(at.database, &Command::Of { key: &at.key, request }))
    }

    fn list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        Items::push(&mut list, &self.element);
        list
    }

    /// Continues after an answer.
    pub(super) fn next(&mut self, reply: &OwnedReply) -> Step {
        let told =
            |status, number| Step::Reply(OwnedReply { number, ..OwnedReply::status(status) });
        let OwnedReply { status, number, .. } = *reply;
        let list = self.list();
        match self.last {
            Asked::Contains if status == Status::NotFound => {
                self.last = Asked::SourceLength;
                self.encoded(&self.from, self.how.length)
            }
            Asked::Remove { was_new: true } if status != Status::Ok || number == 0 => {
                self.last = Asked::Undo(status, number);
                self.encoded(&self.to, (self.how.remove)(&list))
            }
            Asked::Undo(status, number) => told(status, number),
            _ if status != Status::Ok => told(status, 0),
            Asked::Contains => {
                self.last = Asked::Add;
                self.encoded(&self.to, (self.how.add)(&list))
            }
            Asked::SourceLength if number > 0 => {
                self.last = Asked::Length;
                self.encoded(&self.to, self.how.length)
            }
            Asked::SourceLength | Asked::Length => told(Status::Ok, 0),
            Asked::Add => {
                self.last = Asked::Remove { was_new: number == 1 };
                self.encoded(&self.from, (self.how.remove)(&list))
            }
            Asked::Remove { .. } => told(Status::Ok, number),
        }
    }
}
