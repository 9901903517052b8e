//! What a request does: answered here, read optimistically, or handed to the
//! shards that own its keys.

use super::connection::Connection;
use super::info;
use super::pending::{Render, Waiting};
use crate::jobs::{Job, Message, OwnedReply, ReplyQueue, Token};
use crate::shared::{Counts, Shared, count};
use remora_engine::command::{Command, Pairs};
use remora_engine::shard::STREAM_CLASS;
use remora_front::request::{ClientAttribute, Hello, Request};
use remora_front::resp::{Args, encode};
use remora_front::{CommandError, reply, request, table};
use remora_index::hash::{TableRef, walk_locally};
use remora_layout::limits::{RESP_MAX_REPLY_BYTES, STREAM_BYTES};
use remora_layout::message::Status;
use std::sync::Arc;

/// Bytes read in one turn of a connection, so that a flood from one does not
/// hold up the others.
const READ_BYTES: usize = 64 << 10;

/// Room for a record that is kept between requests.
const KEEP_RECORD_BYTES: usize = 256 << 10;

/// Executes requests for all connections of a thread.
pub struct Executor {
    shared: Arc<Shared>,
    /// Where the shards' replies come back.
    pub replies: Arc<ReplyQueue>,
    /// This thread's views of the shards' tables.
    tables: Vec<TableRef>,
    /// The record that an optimistic read found.
    pub(super) record: Vec<u8>,
    /// Where sockets are read into.
    pub scratch: Vec<u8>,
    /// Unix ms of the present turn's requests.
    now_ms: u64,
}

/// What an optimistic read found.
pub(super) enum Read {
    /// The record, unexpired: its value is in the scratch; expiry in Unix ms.
    Found { from: usize, to: usize, expires_at_ms: u64 },
    /// Only the owner can say.
    Ask,
}

impl Executor {
    /// An executor whose replies come back through `replies`.
    pub fn new(shared: Arc<Shared>, replies: Arc<ReplyQueue>) -> Self {
        let tables = shared.shards.iter().enumerate().map(|(number, shard)| {
            TableRef::read(number as u32, &shard.words).expect("the shard wrote this page")
        });
        Self {
            tables: tables.collect(),
            shared,
            replies,
            record: Vec::new(),
            scratch: vec![0; READ_BYTES],
            now_ms: 0,
        }
    }

    /// The server's counts.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Executes one request of a connection.
    pub fn request(&mut self, connection: &mut Connection, args: &Args, bytes: &[u8]) {
        count(&self.shared.counts.commands, 1);
        self.now_ms = self.shared.clock.now().unix_ms;
        match request(args, bytes, self.now_ms) {
            Ok(request) => self.execute(connection, request),
            Err(error) => connection.reply(|out, _| error.write(out)),
        }
        if self.record.capacity() > KEEP_RECORD_BYTES {
            self.record = Vec::new();
        }
    }

    fn execute(&mut self, connection: &mut Connection, request: Request<'_>) {
        match request {
            Request::Get { key } => self.get(connection, key),
            Request::Set { key, value, condition, expiry, get } => {
                let command = Command::Set { key, value, condition, expiry, get };
                self.ask_owner(connection, key, &command, Render::Set { get });
            }
            Request::Incr { key, by } => {
                self.ask_owner(connection, key, &Command::Incr { key, by }, Render::Number("incr"));
            }
            Request::Expire { key, at_ms, condition } => {
                let command = Command::Expire { key, at_ms, condition };
                self.ask_owner(connection, key, &command, Render::Number("expire"));
            }
            Request::Ttl { key, unit } => self.ttl(connection, key, unit),
            Request::Del(keys) => {
                let commands = keys.map(|key| Command::Del { key });
                self.ask_each(connection, commands, Render::Sum);
            }
            Request::Exists(keys) => {
                self.read_each(connection, keys.map(|key| Command::Exists { key }), Render::Sum)
            }
            Request::MGet(keys) => {
                self.read_each(connection, keys.map(|key| Command::Get { key }), Render::Values);
            }
            Request::MSet(pairs) => self.multi_set(connection, pairs),
            Request::DbSize => self.ask_all(connection, &Command::Count, Render::Sum),
            Request::FlushAll => {
                self.ask_all(connection, &Command::Flush, Render::AllOk("flushall"));
            }
            Request::StrLen { .. }
            | Request::GetRange { .. }
            | Request::GetBit { .. }
            | Request::Append { .. }
            | Request::SetRange { .. }
            | Request::SetBit { .. }
            | Request::SetNx { .. }
            | Request::GetDel { .. }
            | Request::GetEx { .. } => self.string(connection, request),
            own => self.own_answer(connection, own),
        }
    }

    /// What the session answers itself.
    fn own_answer(&mut self, connection: &mut Connection, request: Request<'_>) {
        match request {
            Request::Ping(None) => connection.reply(|out, _| encode::simple(out, "PONG")),
            Request::Ping(Some(text)) | Request::Echo(text) => {
                connection.reply(|out, _| encode::bulk(out, text));
            }
            Request::Hello(hello) => self.hello(connection, &hello),
            Request::ClientSetName(name) => {
                connection.name = name.to_vec();
                connection.reply(|out, _| encode::ok(out));
            }
            Request::ClientGetName => {
                let name = connection.name.clone();
                connection.reply(|out, protocol| {
                    encode::bulk_or_null(out, protocol, Some(&name[..]).filter(|n| !n.is_empty()));
                });
            }
            Request::ClientSetInfo { attribute, value } => {
                let at = match attribute {
                    ClientAttribute::LibraryName => 0,
                    ClientAttribute::LibraryVersion => 1,
                };
                connection.library[at] = value.to_vec();
                connection.reply(|out, _| encode::ok(out));
            }
            Request::ClientId => {
                let id = connection.serial as i64;
                connection.reply(|out, _| encode::integer(out, id));
            }
            Request::ClientInfo => {
                let text = info::client(connection);
                connection.reply(|out, protocol| encode::verbatim(out, protocol, "txt", &text));
            }
            Request::Help(spec) => connection.reply(|out, _| reply::help(out, spec)),
            Request::Info(sections) => {
                let text = info::server(&self.shared, &sections);
                connection.reply(|out, protocol| {
                    encode::verbatim(out, protocol, "txt", text.as_bytes());
                });
            }
            Request::ConfigGet(patterns) => {
                let parameters = info::parameters(&self.shared);
                let parameters: Vec<(&str, &str)> =
                    parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
                connection.reply(|out, protocol| {
                    reply::config_get(out, protocol, &patterns, &parameters);
                });
            }
            Request::Command(query) => {
                connection.reply(|out, protocol| table::answer(out, protocol, &query));
            }
            Request::Quit => {
                connection.reply(|out, _| encode::ok(out));
                connection.quit();
            }
            // SELECT 0; data requests never come here.
            _ => connection.reply(|out, _| encode::ok(out)),
        }
    }

    fn hello(&self, connection: &mut Connection, hello: &Hello<'_>) {
        // There are no users: the default one has no password, and any other
        // is refused rather than believed.
        if hello.auth.is_some_and(|(user, _)| user != b"default") {
            return connection.reply(|out, _| CommandError::WrongPassword.write(out));
        }
        if let Some(name) = hello.name {
            connection.name = name.to_vec();
        }
        if let Some(protocol) = hello.protocol {
            connection.protocol = protocol;
        }
        let facts = reply::ServerFacts {
            server: "remora",
            version: env!("CARGO_PKG_VERSION"),
            connection: connection.serial as i64,
            mode: "standalone",
            role: "master",
        };
        connection.reply(|out, protocol| reply::hello(out, protocol, &facts));
    }

    /// Reads a key's record from its shard's memory, if this session may.
    pub(super) fn read(&mut self, connection: &Connection, key: &[u8]) -> Read {
        let (hash, shard) = self.shared.route(key);
        if !connection.may_read(shard) {
            return Read::Ask;
        }
        let handle = &self.shared.shards[shard];
        let table = &mut self.tables[shard];
        match walk_locally(&handle.words, table, key, hash, &mut self.record) {
            Ok(found) => {
                let expires_at_ms = found.mutable.expires_at_ms;
                if expires_at_ms != 0 && expires_at_ms <= self.now_ms {
                    // The owner removes what has expired.
                    return Read::Ask;
                }
                let to = found.pointer.length as usize;
                let from = to - found.value.len();
                count(&self.shared.counts.optimistic_reads, 1);
                handle.touched.push(found.pointer);
                Read::Found { from, to, expires_at_ms }
            }
            Err(_) => {
                count(&self.shared.counts.asked_reads, 1);
                Read::Ask
            }
        }
    }

    fn get(&mut self, connection: &mut Connection, key: &[u8]) {
        match self.read(connection, key) {
            Read::Found { from, to, .. } => {
                let value = &self.record[from..to];
                connection.reply(|out, _| encode::bulk(out, value));
            }
            Read::Ask => self.ask_owner(connection, key, &Command::Get { key }, Render::Value),
        }
    }

    fn ttl(&mut self, connection: &mut Connection, key: &[u8], unit: remora_front::request::Unit) {
        match self.read(connection, key) {
            Read::Found { expires_at_ms, .. } => {
                let ttl_ms = match expires_at_ms {
                    0 => -1,
                    at_ms => (at_ms - self.now_ms) as i64,
                };
                connection.reply(|out, _| encode::integer(out, unit.from_ms(ttl_ms)));
            }
            Read::Ask => self.ask_owner(connection, key, &Command::Ttl { key }, Render::Ttl(unit)),
        }
    }

    /// One command for the shard that owns `key`.
    pub(super) fn ask_owner(
        &self,
        connection: &mut Connection,
        key: &[u8],
        command: &Command<'_>,
        render: Render,
    ) {
        let (_, shard) = self.shared.route(key);
        let writes_at = if command.is_write() { vec![shard] } else { Vec::new() };
        self.submit(connection, shard, 0, command);
        connection.wait(Waiting { render, parts: vec![None], missing: 1, bytes: 0, writes_at });
    }

    /// One command for each key, at its own shard.
    fn ask_each<'a>(
        &self,
        connection: &mut Connection,
        commands: impl Iterator<Item = Command<'a>>,
        render: Render,
    ) {
        let mut writes_at = Vec::new();
        for (part, command) in commands.enumerate() {
            let (_, shard) = self.shared.route(command.key().unwrap_or_default());
            self.submit(connection, shard, part, &command);
            writes_at.push(shard);
        }
        let parts = vec![None; writes_at.len()];
        connection.wait(Waiting { render, missing: parts.len(), parts, bytes: 0, writes_at });
    }

    /// One reading command for each key: read where that concludes, else asked.
    fn read_each<'a>(
        &mut self,
        connection: &mut Connection,
        commands: impl Iterator<Item = Command<'a>>,
        render: Render,
    ) {
        let mut parts = Vec::new();
        let mut missing = 0;
        let mut bytes = 0;
        for (part, command) in commands.enumerate() {
            let key = command.key().unwrap_or_default();
            if bytes > RESP_MAX_REPLY_BYTES {
                // A small request must not make a huge reply.
                parts.push(Some(OwnedReply::status(Status::TooLarge)));
                continue;
            }
            parts.push(match self.read(connection, key) {
                Read::Found { from, to, .. } => {
                    let wants_value = matches!(command, Command::Get { .. });
                    bytes += if wants_value { to - from } else { 0 };
                    if bytes > RESP_MAX_REPLY_BYTES {
                        parts.push(Some(OwnedReply::status(Status::TooLarge)));
                        continue;
                    }
                    let value = wants_value.then(|| self.record[from..to].to_vec());
                    Some(OwnedReply { status: Status::Ok, number: 1, value })
                }
                Read::Ask => {
                    let (_, shard) = self.shared.route(key);
                    self.submit(connection, shard, part, &command);
                    missing += 1;
                    None
                }
            });
        }
        if missing > 0 {
            return connection.wait(Waiting {
                render,
                parts,
                missing,
                bytes,
                writes_at: Vec::new(),
            });
        }
        let parts: Vec<OwnedReply> = parts.into_iter().flatten().collect();
        connection.reply(|out, protocol| render.write(out, protocol, &parts));
    }

    /// The same command for every shard.
    fn ask_all(&self, connection: &mut Connection, command: &Command<'_>, render: Render) {
        let shards = self.shared.shards.len();
        for shard in 0..shards {
            self.submit(connection, shard, shard, command);
        }
        let writes_at = if command.is_write() { (0..shards).collect() } else { Vec::new() };
        connection.wait(Waiting {
            render,
            parts: vec![None; shards],
            missing: shards,
            bytes: 0,
            writes_at,
        });
    }

    /// Each shard's pairs as one change.
    fn multi_set(&self, connection: &mut Connection, pairs: remora_front::request::Pairs<'_>) {
        let mut lists: Vec<Vec<u8>> = vec![Vec::new(); self.shared.shards.len()];
        for (key, value) in pairs {
            let (_, shard) = self.shared.route(key);
            Pairs::push(&mut lists[shard], key, value);
        }
        let mut writes_at = Vec::new();
        for (shard, list) in lists.iter().enumerate() {
            if let Some(pairs) = Pairs::parse(list).filter(|_| !list.is_empty()) {
                self.submit(connection, shard, writes_at.len(), &Command::MultiSet { pairs });
                writes_at.push(shard);
            }
        }
        let parts = vec![None; writes_at.len()];
        let render = Render::AllOk("mset");
        connection.wait(Waiting { render, missing: parts.len(), parts, bytes: 0, writes_at });
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
                let (hash, _) = self.shared.route(key);
                let words = &self.shared.shards[shard].words;
                self.tables[shard].may_hold_class(words, hash, STREAM_CLASS)
            })
    }

    /// Sends a job for the request that the connection will next wait for.
    fn submit(
        &self,
        connection: &mut Connection,
        shard: usize,
        part: usize,
        command: &Command<'_>,
    ) {
        let mut bytes = Vec::new();
        command.encode_into(0, &mut bytes);
        if bytes.len() > STREAM_BYTES || self.may_be_large(command, shard) {
            connection.expect_large();
        }
        let token = Token {
            connection: connection.slot,
            serial: connection.serial,
            request: connection.next_request(),
            part,
        };
        let reply_to = Arc::clone(&self.replies);
        self.shared.shards[shard].inbox.push(Message::Job(Job { command: bytes, reply_to, token }));
    }
}
