//! What the shards are asked: one of them, some, or all. The thread's own shard
//! executes at once what it can, if the connection waits for nothing else of it;
//! what it cannot, and what other shards are asked, goes as jobs.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use super::pending::Waiting;
use super::unanswered::{Asked, What, group};
use crate::jobs::{Job, Order, OwnedReply, Token};
use crate::large_jobs::{Here, is_one_step};
use remora_engine::STREAM_CLASS;
use remora_layout::hash::KeyHash;
use remora_layout::limits::STREAM_BYTES;
use remora_protocol::{Command, Pairs};
use remora_resp::form::Part;
use remora_resp::{ReplyForm, keys};

/// Room for an encoded command with a key and a value of usual lengths; others grow.
const COMMAND_BYTES: usize = 128;

impl<H: Host> Executor<H> {
    /// One command for the shard that owns its key: executed, read or asked.
    #[inline]
    pub(super) fn key_command(
        &mut self,
        connection: &mut Connection,
        command: &Command<'_>,
        render: ReplyForm,
    ) {
        let at = self.route(command.key().unwrap_or_default());
        if self.is_for_here(connection, at.1, command) {
            self.execute_here(connection, (command, at.0), render);
        } else if !self.look(connection, (command, at), render) {
            self.ask_owner(connection, (command, at), render, usize::MAX);
        }
    }

    /// One command for the shard that owns its key, of which a search gives so many
    /// objects at most.
    pub(super) fn ask_one(
        &mut self,
        connection: &mut Connection,
        (command, (hash, shard)): (&Command<'_>, (KeyHash, usize)),
        render: ReplyForm,
        most: usize,
    ) {
        if self.is_for_here(connection, shard, command) {
            return self.execute_here(connection, (command, hash), render);
        }
        self.ask_owner(connection, (command, (hash, shard)), render, most);
    }

    pub(super) fn ask_owner(
        &mut self,
        connection: &mut Connection,
        (command, at): (&Command<'_>, (KeyHash, usize)),
        render: ReplyForm,
        most: usize,
    ) {
        let asked = [self.submit_some(connection, at, 0, command, most)];
        connection.wait(Waiting::all(render, asked));
    }

    /// Whether the thread's own shard may execute a command at once: it overtakes
    /// nothing that the connection has asked before.
    #[inline]
    pub(super) fn is_for_here(
        &mut self,
        connection: &Connection,
        shard: usize,
        command: &Command<'_>,
    ) -> bool {
        if shard != self.host.home() || !connection.is_quiet(shard) || !is_one_step(command) {
            return false;
        }
        // The rest of a long reply may be under way, though its first piece came.
        let token = self.token_of(connection, shard, 0);
        self.host.with_own(|_, jobs, _| jobs.is_free(&token)).unwrap_or(false)
    }

    /// Executes a command in the thread's own shard. What is not answered at once,
    /// as it is not durable or large, the connection waits for.
    #[inline]
    fn execute_here(
        &mut self,
        connection: &mut Connection,
        (command, hash): (&Command<'_>, KeyHash),
        render: ReplyForm,
    ) {
        self.host.counts().executed_here.add(1);
        let home = self.host.home();
        let token = self.token_of(connection, home, 0);
        let is_answered = self.host.with_own(|shard, jobs, now| {
            match jobs.execute_here(shard, (command, hash), token, now) {
                Here::Reply(reply) if render.is_long() => {
                    connection.wait(Waiting::answered(render, reply.into()));
                }
                Here::Reply(reply) => {
                    let part = [Part::from(&reply)];
                    connection.reply(|out, protocol| render.write(out, protocol, &part));
                }
                Here::Held => return false,
                Here::Large => {
                    connection.expect_large();
                    return false;
                }
            }
            true
        });
        if is_answered != Some(true) {
            let asked = asked_of(command, hash, home, 0);
            connection.ask(asked, self.host.shards());
            connection.wait(Waiting::all(render, [asked]));
        }
    }

    /// Executes one of a request's commands in the thread's own shard. What it asks,
    /// and the reply, unless that comes later, for this part of the request.
    fn execute_part_here(
        &mut self,
        connection: &mut Connection,
        (command, hash): (&Command<'_>, KeyHash),
        part: usize,
    ) -> (Asked, Option<OwnedReply>) {
        self.host.counts().executed_here.add(1);
        let home = self.host.home();
        let token = self.token_of(connection, home, part);
        let reply = self.host.with_own(|shard, jobs, now| {
            match jobs.execute_here(shard, (command, hash), token, now) {
                Here::Reply(reply) => Some(OwnedReply::from(reply)),
                Here::Held => None,
                Here::Large => {
                    connection.expect_large();
                    None
                }
            }
        });
        let reply = reply.flatten();
        let asked = asked_of(command, hash, home, 0);
        if reply.is_none() {
            connection.ask(asked, self.host.shards());
        }
        (asked, reply)
    }

    /// The same command for every shard.
    pub(super) fn ask_all(
        &mut self,
        connection: &mut Connection,
        command: &Command<'_>,
        render: ReplyForm,
    ) {
        let shards = 0..self.host.shards();
        let asked: Vec<_> =
            shards.map(|shard| self.submit(connection, shard, shard, command)).collect();
        connection.wait(Waiting::all(render, asked));
    }

    /// Each shard's pairs as one change.
    pub(super) fn multi_set(&mut self, connection: &mut Connection, pairs: keys::Pairs<'_>) {
        let mut lists: Vec<Vec<u8>> = vec![Vec::new(); self.host.shards()];
        for (key, value) in pairs {
            let (_, shard) = self.route(key);
            Pairs::push(&mut lists[shard], key, value);
        }
        let mut waiting = Waiting::all(ReplyForm::AllOk("mset"), []);
        for (shard, list) in lists.iter().enumerate() {
            let Some(pairs) = Pairs::parse(list).filter(|_| !list.is_empty()) else { continue };
            let (command, part) = (Command::MultiSet { pairs }, waiting.parts.len());
            let hash = KeyHash::without_key(self.database);
            let is_here =
                list.len() <= STREAM_BYTES && self.is_for_here(connection, shard, &command);
            let (asked, reply) = match is_here {
                true => self.execute_part_here(connection, (&command, hash), part),
                false => (self.submit(connection, shard, part, &command), None),
            };
            waiting.add(asked, reply);
        }
        connection.wait(waiting);
    }

    /// Names a part of the request that the connection will next wait for.
    pub(super) fn token_of(&self, connection: &Connection, shard: usize, part: usize) -> Token {
        let (serial, request) = (connection.serial, connection.next_request());
        let home = self.host.home();
        Token { home, connection: connection.slot, serial, request, part, shard }
    }

    /// Whether a command may fetch a large value, or make a small one large.
    fn may_be_large(&self, command: &Command<'_>, (hash, shard): (KeyHash, usize)) -> bool {
        if let Command::SetRange { offset, .. } = *command {
            return offset > STREAM_BYTES as u64;
        }
        if let Command::SetBit { offset, .. } = *command {
            return offset as usize / 8 > STREAM_BYTES;
        }
        command.brings_value()
            && command.key().is_some()
            && self.tables[shard].may_hold_class(self.host.memory(shard), hash, STREAM_CLASS)
    }

    /// Sends an order about a reply of which the shard still has the rest.
    pub(super) fn order(&mut self, token: Token, order: Order) {
        self.host.hand(token.shard, Job { order, token, most_objects: usize::MAX, hash: None });
    }

    /// Sends a job for the request that the connection will next wait for.
    pub(super) fn submit(
        &mut self,
        connection: &mut Connection,
        shard: usize,
        part: usize,
        command: &Command<'_>,
    ) -> Asked {
        let hash = command.key().map_or(KeyHash(0), |key| self.route(key).0);
        self.submit_some(connection, (hash, shard), part, command, usize::MAX)
    }

    /// The same for the key with this hash, if there is one; of a search so many
    /// objects at most.
    fn submit_some(
        &mut self,
        connection: &mut Connection,
        (hash, shard): (KeyHash, usize),
        part: usize,
        command: &Command<'_>,
        most_objects: usize,
    ) -> Asked {
        let mut bytes = Vec::with_capacity(COMMAND_BYTES);
        command.encode_within(self.database, 0, &mut bytes);
        if bytes.len() > STREAM_BYTES || self.may_be_large(command, (hash, shard)) {
            connection.expect_large();
        }
        let token = self.token_of(connection, shard, part);
        let of_key = command.key().map(|_| hash);
        let asked = asked_of(command, hash, shard, bytes.len());
        self.host.hand(shard, Job { most_objects, hash: of_key, ..Job::execute(bytes, token) });
        connection.ask(asked, self.host.shards());
        asked
    }
}

fn asked_of(command: &Command<'_>, hash: KeyHash, shard: usize, bytes: usize) -> Asked {
    let what = match command.key() {
        _ if command.is_write() => What::Write,
        Some(_) => What::Read(group(hash)),
        None => What::Other,
    };
    Asked { shard, what, bytes }
}
