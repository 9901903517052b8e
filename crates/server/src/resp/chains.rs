//! Requests about the objects of several keys, which go from shard to shard: each shard gets the keys
//! that it owns, and what those before it found. And an element that moves from one key's object to
//! another's.
//!
//! A shard combines its objects as they are at one moment. Those of several shards are looked at one
//! after the other: the result is of no one moment. If it is stored, the key gets it as one change
//! ([`remora_engine::storing::Storing`] if it is large).

use super::chaining::{Chaining, ElementMoving, Link};
use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use remora_engine::moving::KeyAt;
use remora_frontend::Waiting;
use remora_layout::hash::KeyHash;
use remora_protocol::{Command, Items};
use remora_resp::ReplyForm;
use remora_resp::keys::Keys;
use remora_resp::request::{Chain, ElementMove, Request};
use std::collections::VecDeque;

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
        let moving = ElementMoving::new(how, (from, to), element);
        responder.expect_large();
        let command = Command::Of { key, request: moving.first() };
        let asked = [self.submit(responder, at, 0, &command)];
        self.go_on_with(responder, 0, GoingOn::MovingElement(Box::new(moving)));
        responder.wait(Waiting::all(form, asked));
    }
}
