//! The connections of one thread that speak MongoDB's protocol, and the commands that are under way there.

use super::FIRST_SLOT;
use super::executor::{Commands, MongoExecutor};
use crate::client_memory::HeldMemory;
use crate::client_stream::ClientStream;
use crate::resp::ShardHost;
use remora_frontend::{Connection, Connections, OwnedReply, Token};
use remora_mongo::frontend::Mongo;

/// See the module's text. Each call is lent the thread's shard.
pub struct MongoThread {
    connections: Connections<ClientStream, Mongo, HeldMemory>,
    commands: Commands,
}

impl MongoThread {
    /// Without connections.
    pub fn new() -> Self {
        let connections = Connections::numbered_from(FIRST_SLOT);
        Self { connections, commands: Commands::default() }
    }

    /// Whether a slot is one of these connections.
    pub const fn has_slot(slot: usize) -> bool {
        slot >= FIRST_SLOT && slot < 2 * FIRST_SLOT
    }

    /// The connections, for what needs no shard.
    pub const fn connections(&mut self) -> &mut Connections<ClientStream, Mongo, HeldMemory> {
        &mut self.connections
    }

    /// Whether none has anything to do.
    pub fn are_idle(&self) -> bool {
        self.connections.are_idle()
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.connections.open()
    }

    /// Whether some hold replies back.
    pub fn holds_replies(&self) -> bool {
        self.connections.holds_replies()
    }

    /// Replies that they hold back.
    pub fn held_replies(&self) -> usize {
        self.connections.held_replies()
    }

    /// Whether some wait for the rest of a long message.
    pub fn wait_for_parts(&self) -> bool {
        self.connections.wait_for_parts()
    }

    /// Takes a connection in.
    pub fn add(&mut self, stream: ClientStream, connection: Connection<Mongo>) {
        self.connections.add(stream, connection);
    }

    /// One turn: how many were served.
    pub fn serve(&mut self, host: &mut ShardHost, closed: impl FnMut(ClientStream)) -> usize {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.serve(executor, closed)
    }

    /// Takes the answer of a shard.
    pub fn take_reply(&mut self, host: &mut ShardHost, token: Token, reply: OwnedReply) {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.take_reply(executor, token, reply);
    }

    /// Ends those that hold replies back.
    pub fn end_holding(&mut self, host: &mut ShardHost, closed: impl FnMut(ClientStream)) {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.end_holding(executor, closed);
    }

    /// The server ends: each reads what has come, and no more.
    pub fn stop_reading(&mut self, host: &mut ShardHost, closed: impl FnMut(ClientStream)) {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.stop_reading(executor, closed);
    }

    /// The same of one of them.
    pub fn stop_reading_of(
        &mut self,
        host: &mut ShardHost,
        slot: usize,
        closed: impl FnMut(ClientStream),
    ) {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.stop_reading_of(executor, slot, closed);
    }

    /// The users have changed: those end that may not stay.
    pub fn tell(&mut self, host: &mut ShardHost, closed: impl FnMut(ClientStream)) {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.tell(executor, closed);
    }

    /// Refuses long messages without new bytes for longer than this.
    pub fn count_idle(
        &mut self,
        host: &mut ShardHost,
        upload_idle_s: u64,
        closed: impl FnMut(ClientStream),
    ) {
        let executor = &mut MongoExecutor::new(host, &mut self.commands);
        self.connections.count_idle(executor, upload_idle_s, closed);
    }
}
