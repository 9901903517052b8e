//! What the shards are asked: one of them, some, or all.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use super::pending::Waiting;
use super::unanswered::{Asked, group};
use crate::jobs::{Job, Order, Token};
use remora_engine::STREAM_CLASS;
use remora_engine::command::{Command, Pairs};
use remora_front::request::{self, Render};
use remora_layout::limits::STREAM_BYTES;
use std::sync::Arc;

impl<H: Host> Executor<H> {
    /// One command for the shard that owns its key.
    pub(super) fn ask_owner(
        &self,
        connection: &mut Connection,
        command: &Command<'_>,
        render: Render,
    ) {
        let (_, shard) = self.route(command.key().unwrap_or_default());
        let asked = vec![self.submit(connection, shard, 0, command)];
        connection.wait(Waiting::all(render, asked));
    }

    /// One command for each key, at its own shard.
    pub(super) fn ask_each<'a>(
        &self,
        connection: &mut Connection,
        commands: impl Iterator<Item = Command<'a>>,
        render: Render,
    ) {
        let mut asked = Vec::new();
        for (part, command) in commands.enumerate() {
            let (_, shard) = self.route(command.key().unwrap_or_default());
            asked.push(self.submit(connection, shard, part, &command));
        }
        connection.wait(Waiting::all(render, asked));
    }

    /// The same command for every shard.
    pub(super) fn ask_all(
        &self,
        connection: &mut Connection,
        command: &Command<'_>,
        render: Render,
    ) {
        let shards = 0..self.host.shards();
        let asked = shards.map(|shard| self.submit(connection, shard, shard, command)).collect();
        connection.wait(Waiting::all(render, asked));
    }

    /// Each shard's pairs as one change.
    pub(super) fn multi_set(&self, connection: &mut Connection, pairs: request::Pairs<'_>) {
        let mut lists: Vec<Vec<u8>> = vec![Vec::new(); self.host.shards()];
        for (key, value) in pairs {
            let (_, shard) = self.route(key);
            Pairs::push(&mut lists[shard], key, value);
        }
        let mut asked = Vec::new();
        for (shard, list) in lists.iter().enumerate() {
            if let Some(pairs) = Pairs::parse(list).filter(|_| !list.is_empty()) {
                let command = Command::MultiSet { pairs };
                asked.push(self.submit(connection, shard, asked.len(), &command));
            }
        }
        connection.wait(Waiting::all(Render::AllOk("mset"), asked));
    }

    /// Whether a command may fetch a large value, or make a small one large.
    fn may_be_large(&self, command: &Command<'_>, shard: usize) -> bool {
        if let Command::SetRange { offset, .. } = *command {
            return offset > STREAM_BYTES as u64;
        }
        if let Command::SetBit { offset, .. } = *command {
            return offset as usize / 8 > STREAM_BYTES;
        }
        command.brings_value()
            && command.key().is_some_and(|key| {
                let (hash, _) = self.route(key);
                self.tables[shard].may_hold_class(self.host.memory(shard), hash, STREAM_CLASS)
            })
    }

    /// Sends an order about a reply of which the shard still has the rest.
    pub(super) fn order(&self, token: Token, order: Order) {
        let reply_to = Arc::clone(&self.replies);
        self.host.hand(token.shard, Job { order, reply_to, token, most_objects: usize::MAX });
    }

    /// Sends a job for the request that the connection will next wait for.
    pub(super) fn submit(
        &self,
        connection: &mut Connection,
        shard: usize,
        part: usize,
        command: &Command<'_>,
    ) -> Asked {
        self.submit_some(connection, shard, part, command, usize::MAX)
    }

    /// The same, if it is a search for so many objects at most.
    pub(super) fn submit_some(
        &self,
        connection: &mut Connection,
        shard: usize,
        part: usize,
        command: &Command<'_>,
        most_objects: usize,
    ) -> Asked {
        let mut bytes = Vec::new();
        command.encode_within(self.database, 0, &mut bytes);
        if bytes.len() > STREAM_BYTES || self.may_be_large(command, shard) {
            connection.expect_large();
        }
        let token = Token {
            connection: connection.slot,
            serial: connection.serial,
            request: connection.next_request(),
            part,
            shard,
        };
        let reply_to = Arc::clone(&self.replies);
        self.host.hand(shard, Job { most_objects, ..Job::execute(bytes, reply_to, token) });
        let asked = match command.key() {
            _ if command.is_write() => Asked::Write(shard),
            Some(key) => Asked::Read(group(self.route(key).0)),
            None => Asked::Other,
        };
        connection.ask(asked);
        asked
    }
}
