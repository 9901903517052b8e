//! Requests about the objects of several keys, which go from shard to shard: each shard gets the keys
//! that it owns, and what those before it found. And an element that moves from one key's object to
//! another's.
//!
//! A shard combines its objects as they are at one moment. Those of several shards are looked at one
//! after the other: the result is of no one moment. If it is stored, the key gets it as one change
//! ([`Storing`] if it is large).

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use super::key_steps::encoded;
use remora_engine::moving::KeyAt;
use remora_engine::storing::{Parts, Storing};
use remora_frontend::{OwnedReply, Waiting};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_COMMAND_MEMBERS;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Request as On};
use remora_resp::ReplyForm;
use remora_resp::keys::Keys;
use remora_resp::request::{Chain, ChainLink, ElementMove, Request};
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
struct Link {
    shard: usize,
    /// The first of them.
    key: Box<[u8]>,
    /// The others, an encoded list.
    others: Vec<u8>,
}

/// A request on its way from shard to shard.
pub(super) struct Chaining {
    chain: &'static Chain,
    database: Database,
    /// The shards that are still to be asked.
    links: VecDeque<Link>,
    count_to: Option<u64>,
    /// The key that gets the result.
    to: Option<KeyAt>,
}

impl Chaining {
    /// Asks the next shard.
    fn ask<R>(&mut self, before: Option<&[u8]>, asked: impl FnOnce(usize, &Command<'_>) -> R) -> R {
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

impl<H: Host> RespExecutor<H> {
    /// A request that goes from shard to shard.
    pub(super) fn of_several_objects(&mut self, responder: &mut Responder, request: Request<'_>) {
        match request {
            Request::Steps { steps, form } => self.steps(responder, *steps, form),
            Request::Chain { keys, chain, count_to, form, to } => {
                self.chain(responder, (keys, chain), (count_to, to), form);
            }
            Request::MoveElement { key, to, element, how, form } => {
                self.move_element(responder, (key, to, element), how, form);
            }
            other => unreachable!("it stays at one shard: {other:?}"),
        }
    }

    /// One operation on the objects of several keys; its result may be stored at another one.
    fn chain(
        &mut self,
        responder: &mut Responder,
        (keys, chain): (Keys<'_>, &'static Chain),
        (count_to, to): (Option<u64>, Option<&[u8]>),
        form: ReplyForm,
    ) {
        let database = self.database;
        let mut links: VecDeque<Link> = VecDeque::new();
        let mut first: Option<KeyHash> = None;
        for key in keys {
            let (hash, shard) = self.route(key);
            first.get_or_insert(hash);
            match links.iter_mut().find(|link| link.shard == shard) {
                Some(link) => Items::push(&mut link.others, key),
                None => links.push_back(Link { shard, key: key.into(), others: Vec::new() }),
            }
        }
        let to = to.map(|key| KeyAt { key: key.into(), database, shard: self.route(key).1 });
        let goes_on = links.len() > 1 || to.is_some();
        let mut chaining = Chaining { chain, database, links, count_to, to };
        // Later requests would wait for it anyway.
        responder.expect_large();
        let hash = first.unwrap_or(KeyHash(0));
        let asked =
            chaining.ask(None, |shard, command| self.submit(responder, (hash, shard), 0, command));
        if goes_on {
            self.go_on_with(responder, 0, GoingOn::Chain(Box::new(chaining)));
        }
        responder.wait(Waiting::all(form, [asked]));
    }

    /// An element moves from one key's object to another's.
    fn move_element(
        &mut self,
        responder: &mut Responder,
        (key, to, element): (&[u8], &[u8], &[u8]),
        how: &'static ElementMove,
        form: ReplyForm,
    ) {
        let (at, (_, to_shard)) = (self.route(key), self.route(to));
        if at.1 == to_shard {
            let mut list = Vec::new();
            Items::push(&mut list, to);
            Items::push(&mut list, element);
            let items = Items::parse(&list).expect("just made");
            let command = Command::Of { key, request: (how.at_once)(items) };
            return self.ask_one(responder, (&command, at), form, usize::MAX);
        }
        let database = self.database;
        let place = |key: &[u8], shard| KeyAt { key: key.into(), database, shard };
        let (from, to) = (place(key, at.1), place(to, to_shard));
        let element = Box::from(element);
        let moving = ElementMoving { how, from, to, element, last: Asked::Contains };
        responder.expect_large();
        let command = Command::Of { key, request: (how.contains)(&moving.element) };
        let asked = [self.submit(responder, at, 0, &command)];
        self.go_on_with(responder, 0, GoingOn::MovingElement(Box::new(moving)));
        responder.wait(Waiting::all(form, asked));
    }
}
