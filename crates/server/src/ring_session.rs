//! One client's rings at one shard.

use remora_arena::{NoJournal, Words};
use remora_engine::command::Command;
use remora_engine::{Now, Reply, Shard};
use remora_fabric::shm::Bell;
use remora_fabric::{AnyLink, Link, LinkError};
use remora_layout::frame::ring_seed;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{FRAMES_PER_TURN, MAX_INLINE_BYTES, TORN_FRAME_MS};
use remora_layout::message::{REPLY_HEADER_BYTES, ReplyHeader, Status};
use remora_layout::session::{credit_word, ring_offset};
use remora_ring::{Poll, Receiver, SendError, Sender, Violation};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes;

/// Why a session's rings are no longer served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// The peer wrote what no honest peer writes.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A frame began and did not end.
    #[error("a frame stayed incomplete for more than {TORN_FRAME_MS} ms")]
    TornForever,
    /// The link has failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// One client's request and response ring at one shard.
pub struct RingSession {
    /// The session's number.
    pub session: u64,
    life: u64,
    to_server: Words,
    credit_word: usize,
    receiver: Receiver,
    sender: Sender,
    link: AnyLink,
    client: ClientEnd,
    /// Set when the peer broke the protocol; the control thread ends it all.
    pub violated: Arc<AtomicBool>,
    /// Replies that wait for room: a slow reader holds up only itself.
    backlog: VecDeque<Vec<u8>>,
    torn_since_ms: Option<u64>,
    frames: Vec<u8>,
}

/// Region id of the client's mailbox on the server's link.
pub const CLIENT_MAILBOX: u32 = 0;

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
    Tcp,
}

/// What a ring session is made of.
pub struct RingParts {
    /// The session's number.
    pub session: u64,
    /// Seed of its rings.
    pub seed: u64,
    /// The shard it is for.
    pub shard: usize,
    /// The server's life.
    pub life: u64,
    /// The mailbox that the client writes.
    pub to_server: Words,
    /// A link on which the mailbox that the server writes is
    /// [`CLIENT_MAILBOX`].
    pub link: AnyLink,
    /// How client and shard wake each other.
    pub client: ClientEnd,
    /// Shared by all shards' parts of the session.
    pub violated: Arc<AtomicBool>,
}

impl RingSession {
    /// Both ends at the server.
    pub fn new(parts: RingParts) -> Self {
        let ring = ring_offset(parts.shard);
        Self {
            session: parts.session,
            life: parts.life,
            receiver: Receiver::new(
                parts.to_server.clone(),
                ring,
                ring_seed(parts.seed, parts.shard, 0),
            ),
            sender: Sender::new(CLIENT_MAILBOX, ring as u64, ring_seed(parts.seed, parts.shard, 1)),
            credit_word: credit_word(parts.shard),
            to_server: parts.to_server,
            link: parts.link,
            client: parts.client,
            violated: parts.violated,
            backlog: VecDeque::new(),
            torn_since_ms: None,
            frames: Vec::new(),
        }
    }

    /// By which the client wakes the shard, if it does so itself.
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.client {
            ClientEnd::Shm { eventfd, .. } => Some(eventfd.as_fd()),
            ClientEnd::Tcp => None,
        }
    }

    /// Tells the client what was sent: wakes it, or lets it go out.
    fn tell_client(&mut self) {
        if let ClientEnd::Shm { bell, .. } = &self.client {
            bell.ring();
        }
        self.link.release();
    }

    /// Whether there is something to do: the last scan before sleeping.
    pub fn has_work(&self) -> bool {
        if self.backlog.is_empty() { self.receiver.has_frame() } else { self.may_flush() }
    }

    fn may_flush(&self) -> bool {
        // The client has given credit since the backlog began.
        let credit = self.to_server.load_acquire(self.credit_word);
        credit != self.sender.credit()
    }

    /// Takes up to [`FRAMES_PER_TURN`] frames, executes them in order and
    /// sends the replies. Gives the number of frames executed.
    pub fn turn(&mut self, shard: &mut Shard<NoJournal>, now: Now) -> Result<usize, SessionError> {
        if !self.backlog.is_empty() {
            self.flush()?;
            if !self.backlog.is_empty() {
                return Ok(0);
            }
        }
        if !self.receiver.has_frame() {
            return Ok(0);
        }
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut ends = [0usize; FRAMES_PER_TURN];
        let mut taken = 0;
        while taken < FRAMES_PER_TURN {
            match self.receiver.poll(&mut frames) {
                Poll::Frame(_) => {
                    self.torn_since_ms = None;
                    ends[taken] = frames.len();
                    taken += 1;
                    self.receiver.prefetch();
                }
                Poll::Empty => break,
                Poll::Torn => {
                    self.bear_torn_frame(now)?;
                    break;
                }
                Poll::Violated(violation) => return Err(violation.into()),
            }
        }
        // All replies of the turn go out together.
        if taken > 0 {
            self.link.hold();
        }
        self.execute(shard, now, &frames, &ends[..taken])?;
        self.frames = frames;
        if let Some(credit) = self.receiver.credit_due() {
            self.give_credit(credit)?;
        }
        if taken > 0 {
            self.tell_client();
        }
        Ok(taken)
    }

    fn bear_torn_frame(&mut self, now: Now) -> Result<(), SessionError> {
        let since = *self.torn_since_ms.get_or_insert(now.unix_ms);
        if now.unix_ms - since > TORN_FRAME_MS {
            return Err(SessionError::TornForever);
        }
        Ok(())
    }

    /// Decodes all, prefetches all, then executes in order.
    fn execute(
        &mut self,
        shard: &mut Shard<NoJournal>,
        now: Now,
        frames: &[u8],
        ends: &[usize],
    ) -> Result<(), SessionError> {
        let mut hashes = [KeyHash(0); FRAMES_PER_TURN];
        let mut from = 0;
        let mut commands = [None; FRAMES_PER_TURN];
        for (at, &end) in ends.iter().enumerate() {
            let command = Command::decode(&frames[from..end]);
            from = end;
            if let Ok((command, _)) = &command
                && let Some(key) = command.key()
            {
                hashes[at] = shard.hash(key);
                if ends.len() > 1 {
                    shard.prefetch(hashes[at]);
                }
            }
            commands[at] = Some(command);
        }
        if ends.len() > 1 {
            for hash in &hashes[..ends.len()] {
                shard.prefetch_record(*hash);
            }
        }
        for (command, hash) in commands.into_iter().flatten().zip(hashes) {
            let (reply, id) = match &command {
                Ok((command, id)) => (shard.execute(command, hash, now), *id),
                Err((status, id)) => (Reply::status(*status), *id),
            };
            self.reply(&reply, id)?;
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply<'_>, id: u32) -> Result<(), SessionError> {
        // What one frame does not carry is refused.
        let fits = reply.value.is_none_or(|value| value.len() <= MAX_INLINE_BYTES);
        let reply = if fits { *reply } else { Reply::status(Status::TooLarge) };
        let value = reply.value.unwrap_or_default();
        let [low, high] = reply.pointer.to_words();
        let header = ReplyHeader {
            status: reply.status as u8,
            flags: reply.value.is_some() as u8,
            reserved: 0.into(),
            value_bytes: (value.len() as u32).into(),
            id: id.into(),
            lease_ms: reply.lease_ms.into(),
            pointer: [low.into(), high.into()],
            number: reply.number.into(),
            life: self.life.into(),
        };
        let bytes = REPLY_HEADER_BYTES + value.len();
        if self.backlog.is_empty() {
            if !self.sender.has_room(bytes) {
                self.take_credit()?;
            }
            if self.sender.has_room(bytes) {
                return self.send(&[header.as_bytes(), value]);
            }
        }
        self.backlog.push_back([header.as_bytes(), value].concat());
        Ok(())
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), SessionError> {
        match self.sender.send(&mut self.link, parts) {
            Ok(()) => {}
            Err(SendError::Link(error)) => return Err(error.into()),
            Err(other) => unreachable!("room was looked for, replies fit a frame: {other}"),
        }
        // Bounded by what was posted.
        while self.link.poll().is_some() {}
        Ok(())
    }

    fn take_credit(&mut self) -> Result<(), SessionError> {
        let credit = self.to_server.load_acquire(self.credit_word);
        Ok(self.sender.take_credit(credit)?)
    }

    fn flush(&mut self) -> Result<(), SessionError> {
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
        if sent {
            self.tell_client();
        }
        Ok(())
    }

    fn give_credit(&mut self, consumed: u64) -> Result<(), SessionError> {
        let to = remora_fabric::RemoteAddress {
            region: CLIENT_MAILBOX,
            offset: self.credit_word as u64 * 8,
        };
        let bytes = consumed.to_le_bytes();
        self.link.post(&[remora_fabric::Work::Write { id: 0, to, bytes: &bytes, imm: None }]);
        while self.link.poll().is_some() {}
        match self.link.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// Gives the session up. Whether no other shard had done so before.
    pub fn give_up(&self, error: SessionError) -> bool {
        tracing::warn!(session = self.session, %error, "session ended: the peer broke the protocol");
        !self.violated.swap(true, Ordering::AcqRel)
    }
}
