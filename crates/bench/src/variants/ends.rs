//! The two ends of a conversation between one client and one shard, and where
//! its memory lies. All forms of messages give these two halves, so that the
//! loops around them are the same.
//!
//! The memory is a session's (`remora_layout::session`): each side writes one
//! mailbox, and of each the quarter mebibyte that the rings would take.

use remora_arena::{ReadView, Words};
use remora_fabric::shm::ShmLink;
use remora_fabric::{Link, RemoteAddress, Work};
use std::fmt;

/// A violation of the protocol by the peer, or a failed link. It ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken(pub &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the peer broke the protocol: {}", self.0)
    }
}

impl std::error::Error for Broken {}

/// The receiving half.
pub trait Receiving: Send {
    /// Whether a message has begun to arrive: the last look before sleeping.
    fn has_message(&self) -> bool;

    /// Takes the next message, if it is whole, into `into`, and replaces the former content. Reads
    /// the shared memory once. False: there is none.
    fn take(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken>;

    /// Gives the place of the message that was taken back to the sender: once
    /// after each, and before the reply to it is sent.
    fn release(&mut self) -> Result<(), Broken>;
}

/// The sending half.
pub trait Sending: Send {
    /// Sends one message, given in parts. False: there is no room now.
    fn try_send(&mut self, parts: &[&[u8]]) -> Result<bool, Broken>;

    /// Bytes that cross for a message of this length.
    fn wire_bytes(&self, payload_bytes: usize) -> usize;

    /// Most requests of which all the replies find room at once, each as long as the longest
    /// message. A client never has more outstanding, so that a shard that replies never has to
    /// wait.
    fn most_outstanding(&self) -> usize;
}

/// Both halves.
pub type Ends = (Box<dyn Receiving>, Box<dyn Sending>);

/// A role in a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The shard.
    Server,
    /// The client.
    Client,
}

/// One side's view of the memory of a conversation.
#[derive(Clone)]
pub struct Side {
    /// Whose.
    pub role: Role,
    /// The mailbox that the client writes; one form lets the server write it, too.
    pub to_server: Words,
    /// The mailbox that this side writes.
    pub own: Words,
    /// The mailbox that the other side writes.
    pub peer: ReadView,
    /// The shard.
    pub shard: usize,
    /// The session's seed.
    pub seed: u64,
}

impl Side {
    /// The shard's side.
    pub fn of_server(to_server: Words, to_client: Words, shard: usize, seed: u64) -> Self {
        let peer = to_server.view();
        Self { role: Role::Server, to_server, own: to_client, peer, shard, seed }
    }

    /// The client's side.
    pub fn of_client(to_server: Words, to_client: ReadView, shard: usize, seed: u64) -> Self {
        let own = to_server.clone();
        Self { role: Role::Client, to_server, own, peer: to_client, shard, seed }
    }
}

/// WRITEs into one mailbox, over the fabric as the product's.
pub struct Writer(ShmLink);

/// The mailbox's region on a writer's link.
pub const MAILBOX: u32 = 0;

impl Writer {
    /// A writer of `mailbox`.
    pub fn new(mailbox: Words) -> Self {
        let mut link = ShmLink::new(None);
        link.add_writable(MAILBOX, mailbox);
        Self(link)
    }

    /// Posts the writes, which are ordered.
    #[inline]
    pub fn post<const N: usize>(&mut self, writes: [(usize, &[u8]); N]) -> Result<(), Broken> {
        let works = writes.map(|(offset, bytes)| Work::Write {
            id: 0,
            to: RemoteAddress { region: MAILBOX, offset: offset as u64 },
            bytes,
            imm: None,
        });
        self.0.post(&works);
        self.finish()
    }

    /// The link, for a caller that posts by itself and calls [`Writer::finish`] then.
    pub fn link(&mut self) -> &mut ShmLink {
        &mut self.0
    }

    /// Takes the completions.
    #[inline]
    pub fn finish(&mut self) -> Result<(), Broken> {
        while self.0.poll().is_some() {}
        match self.0.failure() {
            Some(_) => Err(Broken("its link failed")),
            None => Ok(()),
        }
    }
}

/// Two sides of one conversation on the heap.
#[cfg(test)]
pub fn sides_on_the_heap() -> (Side, Side) {
    use remora_arena::Mapping;
    use remora_layout::session::mailbox_bytes;
    let mailbox = || Words::new(Mapping::heap(mailbox_bytes(1)));
    let (to_server, to_client) = (mailbox(), mailbox());
    let client = Side::of_client(to_server.clone(), to_client.view(), 0, 77);
    (Side::of_server(to_server, to_client, 0, 77), client)
}
