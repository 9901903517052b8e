//! The way to the client: replies, credit, and waking it.

use super::{RingParts, SessionError};
use remora_arena::ReadView;
use remora_engine::Reply;
use remora_fabric::far::CLIENT_MAILBOX;
use remora_fabric::shm::Bell;
use remora_fabric::{AnyLink, Link, RemoteAddress, Transport, Work};
use remora_layout::frame::ring_seed;
use remora_layout::immediate;
use remora_layout::message::{HAS_VALUE, ReplyHeader};
use remora_layout::session::{credit_word, ring_offset};
use remora_ring::{SendError, Sender};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How client and shard wake each other.
pub enum ClientEnd {
    /// By bells.
    Shm {
        /// Wakes the client.
        bell: Bell,
        /// By which the client wakes the shard: its own, so that no other
        /// client can take a signal away.
        eventfd: Arc<OwnedFd>,
    },
    /// What arrives wakes the client; the agent wakes the shard.
    Far,
}

/// One client's response ring at one shard, and what the client sees of the
/// request ring: its credit.
pub struct Replies {
    life: u64,
    to_server: ReadView,
    credit_word: usize,
    sender: Sender,
    /// What carries them, and large values.
    pub link: AnyLink,
    client: ClientEnd,
    /// Replies that wait for room: a slow reader holds up only itself.
    backlog: VecDeque<Vec<u8>>,
}

impl Replies {
    /// Nothing is sent yet.
    pub fn new(parts: RingParts) -> Self {
        let ring = ring_offset(parts.shard) as u64;
        let sender = Sender::new(CLIENT_MAILBOX, ring, ring_seed(parts.seed, parts.shard, 1));
        // A device stores a WRITE without a word; only one with an immediate
        // wakes a client that sleeps.
        let sender = match parts.link.transport() {
            Transport::Verbs => {
                sender.with_immediate(immediate::of(immediate::Kind::Reply, parts.shard))
            }
            _ => sender,
        };
        Self {
            life: parts.life,
            sender,
            credit_word: credit_word(parts.shard),
            to_server: parts.to_server,
            link: parts.link,
            client: parts.client,
            backlog: VecDeque::new(),
        }
    }

    /// By which the client wakes the shard, if it does so itself.
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.client {
            ClientEnd::Shm { eventfd, .. } => Some(eventfd.as_fd()),
            ClientEnd::Far => None,
        }
    }

    /// Tells the client what was sent: wakes it, or lets all of it go out by one
    /// WRITE.
    pub fn tell_client(&mut self) -> Result<(), SessionError> {
        match &self.client {
            ClientEnd::Shm { bell, .. } => _ = bell.ring(),
            ClientEnd::Far => {
                self.sender.post(&mut self.link).map_err(link_failure)?;
                self.pass_over_writes();
            }
        }
        self.link.release();
        Ok(())
    }

    /// Whether [`Replies::tell_client`] may be put off: a network carries the
    /// replies, and each write to it costs as much as some of them.
    pub fn may_put_off(&self) -> bool {
        matches!(self.client, ClientEnd::Far)
    }

    /// Completions of WRITEs mean nothing here. Bounded by what was posted.
    fn pass_over_writes(&mut self) {
        while self.link.poll().is_some() {}
    }

    /// Whether replies wait for room.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Bytes of replies that wait for room.
    #[cfg(test)]
    pub fn backlog_bytes(&self) -> usize {
        self.backlog.iter().map(Vec::len).sum()
    }

    /// Whether the client has given credit since the backlog began.
    pub fn may_flush(&self) -> bool {
        let credit = self.to_server.load_acquire(self.credit_word);
        credit != self.sender.credit()
    }

    /// The server's life, which each reply tells.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The header of an encoded reply.
    pub fn header(&self, reply: &Reply<'_>, id: u32) -> ReplyHeader {
        header_of(reply, id, self.life)
    }

    /// Sends a reply, or keeps it until there is room.
    pub fn send_or_keep(&mut self, parts: &[&[u8]]) -> Result<(), SessionError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if self.backlog.is_empty() {
            if !self.sender.has_room(bytes) {
                self.take_credit()?;
            }
            if self.sender.has_room(bytes) {
                return self.send(parts);
            }
        }
        self.backlog.push_back(parts.concat());
        Ok(())
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), SessionError> {
        // What another process polls for is there at once; what goes over a
        // network goes together.
        match &self.client {
            ClientEnd::Shm { .. } => {
                self.sender.send(&mut self.link, parts).map_err(link_failure)?;
                self.pass_over_writes();
            }
            ClientEnd::Far => self.sender.gather(&mut self.link, parts).map_err(link_failure)?,
        }
        Ok(())
    }

    fn take_credit(&mut self) -> Result<(), SessionError> {
        let credit = self.to_server.load_acquire(self.credit_word);
        Ok(self.sender.take_credit(credit)?)
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&mut self) -> Result<(), SessionError> {
        self.take_credit()?;
        let mut sent = false;
        while let Some(reply) = self.backlog.front() {
            if !self.sender.has_room(reply.len()) {
                break;
            }
            let reply = self.backlog.pop_front().expect("it is there");
            self.send(&[&reply])?;
            sent = true;
        }
        if sent { self.tell_client() } else { Ok(()) }
    }

    /// Tells the client how many bytes of its requests have been consumed.
    pub fn give_credit(&mut self, consumed: u64) -> Result<(), SessionError> {
        let to = RemoteAddress { region: CLIENT_MAILBOX, offset: self.credit_word as u64 * 8 };
        let bytes = consumed.to_le_bytes();
        self.link.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: None }]);
        self.pass_over_writes();
        match self.link.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}

/// Room was looked for, and replies fit a frame: only the link can fail.
fn link_failure(error: SendError) -> SessionError {
    match error {
        SendError::Link(error) => error.into(),
        other => unreachable!("room was looked for, replies fit a frame: {other}"),
    }
}

/// The header of an encoded reply, in a server's life.
pub fn header_of(reply: &Reply<'_>, id: u32, life: u64) -> ReplyHeader {
    let value = reply.value.unwrap_or_default();
    let [low, high] = reply.pointer.to_words();
    ReplyHeader {
        status: reply.status as u8,
        flags: if reply.value.is_some() { HAS_VALUE } else { 0 },
        reserved: 0.into(),
        value_bytes: (value.len() as u32).into(),
        id: id.into(),
        lease_ms: reply.lease_ms.into(),
        pointer: [low.into(), high.into()],
        number: reply.number.into(),
        life: life.into(),
    }
}
