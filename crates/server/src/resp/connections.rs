//! The RESP connections of one thread: each has a slot, gets its replies, and
//! is served in turn. Where their bytes come from is the thread's business.

use super::connection::{Connection, Flow};
use super::execute::Executor;
use super::host::Host;
use super::trees::OWN;
use crate::jobs::{Order, OwnedReply, ReplyQueue, Token};
use crate::shared::count;
use remora_layout::plant::{Plant, planted};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The connections, by slot, each with its stream of bytes.
pub struct Connections<S, H: Host> {
    executor: Executor<H>,
    slots: Vec<Option<(S, Connection)>>,
    free: Vec<usize>,
    /// Connections that may have more to read or parse, although no event
    /// will say so: their turn had ended.
    unfinished: BTreeSet<usize>,
    /// Connections that keep much of a request that is not all there.
    with_part: BTreeSet<usize>,
    next_serial: u64,
}

impl<S: Read + Write, H: Host> Connections<S, H> {
    /// None yet. The shards' replies come back through `replies`.
    pub fn new(host: Arc<H>, replies: Arc<ReplyQueue>) -> Self {
        Self {
            executor: Executor::new(host, replies),
            slots: Vec::new(),
            free: Vec::new(),
            unfinished: BTreeSet::new(),
            with_part: BTreeSet::new(),
            next_serial: 1,
        }
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot that the next connection gets.
    pub fn next_slot(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Takes a connection in. It is served with the next turn.
    pub fn add(&mut self, stream: S, peer: SocketAddr) {
        let slot = self.next_slot();
        if self.free.pop().is_none() {
            self.slots.push(None);
        }
        let host = &self.executor.host;
        self.slots[slot] =
            Some((stream, Connection::new(peer, slot, self.next_serial, host.shards())));
        self.next_serial += 1;
        count(&host.counts().connections, 1);
        count(&host.counts().connections_total, 1);
        self.unfinished.insert(slot);
    }

    /// Something has happened to a stream: it is served with the next turn.
    pub fn stir(&mut self, slot: usize) {
        self.unfinished.insert(slot);
    }

    /// The peer of a stream has closed its side.
    pub fn announce_end(&mut self, slot: usize) {
        if let Some(Some((_, connection))) = self.slots.get_mut(slot) {
            connection.announce_end();
        }
    }

    /// Whether none has anything to do until something happens.
    pub fn are_idle(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// One turn of each that may have something to do. Streams of connections
    /// that are over go to `closed`.
    pub fn serve(&mut self, mut closed: impl FnMut(S)) {
        for slot in std::mem::take(&mut self.unfinished) {
            let serve = |stream: &mut S, connection: &mut Connection, executor: &mut _| {
                connection.serve(stream, executor)
            };
            self.with(slot, serve).into_iter().for_each(&mut closed);
        }
    }

    /// Whether some wait for the rest of a large request.
    pub fn wait_for_parts(&self) -> bool {
        !self.with_part.is_empty()
    }

    /// Refuses large requests of which nothing came for longer than
    /// `upload_idle_s`. To be called once a second while
    /// [`Connections::wait_for_parts`].
    pub fn count_idle(&mut self, upload_idle_s: u64, mut closed: impl FnMut(S)) {
        for slot in std::mem::take(&mut self.with_part) {
            let look = |_: &mut S, connection: &mut Connection, executor: &mut Executor<H>| {
                connection.count_idle(upload_idle_s, executor)
            };
            self.with(slot, look).into_iter().for_each(&mut closed);
        }
    }

    /// The last turn in which each takes requests: what has arrived is still
    /// read, nothing after it.
    pub fn stop_reading(&mut self, mut closed: impl FnMut(S)) {
        for slot in 0..self.slots.len() {
            let stop = |stream: &mut S, connection: &mut Connection, executor: &mut _| {
                let flow = connection.serve(stream, executor);
                connection.stop_reading();
                if flow == Flow::Close { Flow::Close } else { Flow::Again }
            };
            self.with(slot, stop).into_iter().for_each(&mut closed);
        }
    }

    /// Lets a connection do something, and gives its stream back if it is over.
    fn with(
        &mut self,
        slot: usize,
        act: impl FnOnce(&mut S, &mut Connection, &mut Executor<H>) -> Flow,
    ) -> Option<S> {
        let (stream, connection) = self.slots.get_mut(slot)?.as_mut()?;
        let flow = act(stream, connection, &mut self.executor);
        if flow != Flow::Close && connection.keeps_part() {
            self.with_part.insert(slot);
        } else {
            self.with_part.remove(&slot);
        }
        match flow {
            Flow::Go => None,
            Flow::Again => {
                self.unfinished.insert(slot);
                None
            }
            Flow::Close => {
                connection.abandon(&self.executor);
                let gone = self.slots[slot].take();
                self.free.push(slot);
                self.executor.host.counts().connections.fetch_sub(1, Ordering::Relaxed);
                gone.map(|(stream, _)| stream)
            }
        }
    }

    /// Takes what the shards have answered.
    pub fn take_replies(&mut self) {
        while let Some((token, reply)) = self.executor.replies.pop() {
            self.take_reply(token, reply);
        }
    }

    fn take_reply(&mut self, token: Token, reply: OwnedReply) {
        if token.connection == OWN {
            return self.executor.learn_place(token.request, &reply);
        }
        let slot = self.slots.get(token.connection).and_then(Option::as_ref);
        let is_there = slot.is_some_and(|(_, connection)| connection.serial == token.serial);
        let Some(reply) = self.executor.go_on(token, reply) else { return };
        let on = self.executor.go_on_with_key(token, reply, is_there);
        let Some(reply) = on else { return };
        if !is_there && reply.has_more {
            self.executor.order(token, Order::Abandon);
        }
        let Some(Some((_, connection))) = self.slots.get_mut(token.connection) else { return };
        // A connection that has gone needs no reply; its slot may have a new one.
        let is_planted = token.part == 0 && planted(Plant::RespAnswersSlot);
        if connection.serial == token.serial || is_planted {
            connection.answer(token, reply);
            self.unfinished.insert(token.connection);
        }
    }
}
