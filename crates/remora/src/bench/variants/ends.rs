//! The two ends of a conversation between one client and one shard, and where
//! its memory lies. All forms of messages give these two halves, so that the
//! loops around them are the same.
//!
//! The memory is a session's (`remora_layout::session`): each side writes one
//! mailbox, and of each the quarter mebibyte that the rings would take.

use super::Messages;
use super::{indicator, ring_ends, sendrecv};
use remora_arena::{ReadView, Words};
use remora_fabric::shm::ShmLink;
use remora_fabric::{Link, RemoteAddress, Work};
use std::fmt;

/// What a peer did that no honest peer does, or a link that failed. It ends
/// the connection.
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

    /// Takes the next message, if it is whole, into `into`, whose former
    /// content goes. The shared memory is read once. False: there is none.
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

    /// Requests of which all the replies find room at once, each as long as
    /// the longest message. A client never has more outstanding: a shard that
    /// replies never has to wait.
    fn most_outstanding(&self) -> usize;
}

/// Both halves.
pub type Ends = (Box<dyn Receiving>, Box<dyn Sending>);

/// Who somebody is in a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The shard.
    Server,
    /// Who asks.
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

    /// The side of who asks.
    pub fn of_client(to_server: Words, to_client: ReadView, shard: usize, seed: u64) -> Self {
        let own = to_server.clone();
        Self { role: Role::Client, to_server, own, peer: to_client, shard, seed }
    }
}

/// The ends of one side, for messages of up to `message_bytes`.
pub fn ends(form: Messages, side: &Side, message_bytes: usize) -> Ends {
    match form {
        Messages::Ring => ring_ends::ends(side, message_bytes),
        Messages::Sendrecv => sendrecv::ends(side, message_bytes),
        Messages::Indicator => indicator::ends(side),
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

    /// The link, for who posts by itself and calls [`Writer::finish`] then.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form carries every length, both ways, many times around.
    #[test]
    fn every_form_carries_every_length_both_ways() {
        const LONGEST: usize = 3_000;
        for form in [Messages::Ring, Messages::Sendrecv, Messages::Indicator] {
            let (server, client) = sides_on_the_heap();
            let (mut requests, mut replies) = ends(form, &server, LONGEST);
            let (mut answers, mut asks) = ends(form, &client, LONGEST);
            let mut taken = Vec::new();
            for round in 0..2_000usize {
                let length = round * 37 % (LONGEST + 1);
                // Words of ones: what a former message left must not be taken.
                let message: Vec<u8> =
                    (0..length).map(|at| !((round + at / 64) as u8 & 3)).collect();
                let (head, tail) = message.split_at(length / 3);
                assert!(asks.try_send(&[head, tail]).unwrap(), "{form:?} {round}");
                assert!(requests.has_message());
                assert!(requests.take(&mut taken).unwrap());
                assert_eq!(taken, message, "{form:?} {round}");
                requests.release().unwrap();
                assert!(replies.try_send(&[tail, head]).unwrap());
                assert!(answers.has_message() && answers.take(&mut taken).unwrap());
                assert_eq!(taken, [tail, head].concat(), "{form:?} {round}");
                answers.release().unwrap();
                assert!(!answers.has_message() && !requests.has_message());
            }
        }
    }

    /// As many requests as are allowed, before any is taken: all replies fit.
    #[test]
    fn replies_to_all_that_is_outstanding_fit() {
        for form in [Messages::Ring, Messages::Sendrecv, Messages::Indicator] {
            for longest in [64, 5_000, 70_000] {
                let (server, client) = sides_on_the_heap();
                let (mut requests, mut replies) = ends(form, &server, longest);
                let (mut answers, mut asks) = ends(form, &client, longest);
                let message = vec![7u8; longest];
                let most = asks.most_outstanding();
                assert!(most >= 1, "{form:?} {longest}");
                let mut taken = Vec::new();
                for _ in 0..20 {
                    let mut sent = 0;
                    while sent < most && asks.try_send(&[&message]).unwrap() {
                        sent += 1;
                    }
                    assert!(sent > 0, "{form:?} {longest}");
                    for _ in 0..sent {
                        assert!(requests.take(&mut taken).unwrap());
                        requests.release().unwrap();
                        assert!(replies.try_send(&[&taken]).unwrap(), "{form:?} {longest}");
                    }
                    for _ in 0..sent {
                        assert!(answers.take(&mut taken).unwrap() && taken == message);
                        answers.release().unwrap();
                    }
                }
            }
        }
    }
}
