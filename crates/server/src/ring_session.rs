//! One client's rings at one shard.

use crate::large::{self, Complete, Large};
use remora_arena::{NoJournal, Region, Words};
use remora_engine::command::Command;
use remora_engine::shard::{Download, Outcome};
use remora_engine::{Now, Reply, Shard};
use remora_fabric::shm::Bell;
use remora_fabric::{AnyLink, Link, LinkError};
use remora_layout::frame::ring_seed;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{FRAMES_PER_TURN, MAX_CLIENT_SESSIONS, MAX_VALUE_BYTES, TORN_FRAME_MS};
use remora_layout::message::{
    BufferName, HAS_VALUE, IN_BUFFER, PIECE, RELEASE, REQUEST_HEADER_BYTES, ReplyHeader,
    RequestHeader, Status, form,
};
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
    /// More requests in pieces than the client can have threads.
    #[error("more than {MAX_CLIENT_SESSIONS} values are on their way in at once")]
    TooManyUploads,
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
    large: Large,
    torn_since_ms: Option<u64>,
    frames: Vec<u8>,
}

/// A frame, as far as it is understood before anything is executed.
#[derive(Clone, Copy)]
enum Frame<'f> {
    /// One encoded command.
    Plain(Result<(Command<'f>, u32), (Status, u32)>),
    /// A piece of one, or one that names a buffer.
    Special(&'f [u8]),
}

impl<'f> Frame<'f> {
    #[inline(always)]
    fn of(frame: &'f [u8]) -> Self {
        // The operation and the form, in the first bytes of the header.
        match *frame {
            [op, _, form, ..] if op < PIECE && form == 0 => Self::Plain(Command::decode(frame)),
            _ => Self::Special(frame),
        }
    }
}

/// Region id of the client's mailbox on the server's link.
pub const CLIENT_MAILBOX: u32 = 0;
/// Region id of the client's buffer for large replies on the server's link.
pub const CLIENT_LARGE: u32 = 1;

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
    /// The client's buffer for large replies, if it is memory of this process.
    pub large: Option<Arc<Region>>,
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
            large: Large::new(parts.large),
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
        if !self.backlog.is_empty() {
            return self.may_flush();
        }
        self.large.may_send(&self.link) || (!self.large.is_full() && self.receiver.has_frame())
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
        self.send_large(shard, now)?;
        if self.large.is_full() || !self.backlog.is_empty() || !self.receiver.has_frame() {
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
        let mut taken = [Frame::Special(&[]); FRAMES_PER_TURN];
        for (at, &end) in ends.iter().enumerate() {
            taken[at] = Frame::of(&frames[from..end]);
            from = end;
            if let Frame::Plain(Ok((command, _))) = &taken[at]
                && let Some(key) = command.key()
            {
                hashes[at] = shard.hash(key);
                if ends.len() > 1 {
                    shard.prefetch(hashes[at]);
                }
            }
        }
        if ends.len() > 1 {
            for hash in &hashes[..ends.len()] {
                shard.prefetch_record(*hash);
            }
        }
        for (frame, hash) in taken.iter().zip(hashes).take(ends.len()) {
            match frame {
                Frame::Plain(Ok((command, id))) => {
                    self.command(shard, command, hash, *id, None, now)?
                }
                Frame::Plain(Err((status, id))) => self.reply(&Reply::status(*status), *id)?,
                Frame::Special(frame) => self.special(shard, frame, now)?,
            }
        }
        Ok(())
    }

    /// Executes one command and replies. A large value goes into the buffer
    /// that the request named.
    fn command(
        &mut self,
        shard: &mut Shard<NoJournal>,
        command: &Command<'_>,
        hash: KeyHash,
        id: u32,
        buffer: Option<BufferName>,
        now: Now,
    ) -> Result<(), SessionError> {
        let takes_away = matches!(
            command,
            Command::GetDel { .. } | Command::GetEx { .. } | Command::Set { get: true, .. }
        );
        let holds_any = buffer.is_some_and(|name| name.bytes.get() >= MAX_VALUE_BYTES as u64);
        if takes_away && !holds_any {
            // Its value could not be given, and would be gone.
            return self.reply(&Reply::status(Status::Malformed), id);
        }
        let outcome = shard.execute_or_stream(command, hash, now);
        let (reply, download) = match outcome {
            Outcome::Reply(reply) => return self.reply(&reply, id),
            Outcome::Stream(reply, download) => (Reply { value: None, ..reply }, download),
        };
        self.reply_large(shard, reply, download, id, buffer, now)
    }

    /// Replies with a large value: into the buffer, or not at all.
    fn reply_large(
        &mut self,
        shard: &mut Shard<NoJournal>,
        reply: Reply<'static>,
        download: Download,
        id: u32,
        buffer: Option<BufferName>,
        now: Now,
    ) -> Result<(), SessionError> {
        let bytes = download.len();
        match buffer.filter(|name| name.bytes.get() >= bytes as u64) {
            Some(name) => {
                let mut header = self.header(&reply, id);
                header.flags = IN_BUFFER;
                header.value_bytes = (bytes as u32).into();
                let session = large::session_of(id);
                let header = header.as_bytes().to_vec();
                self.large.send_value(session, header, download, name.offset.get());
                Ok(())
            }
            None => {
                shard.end_download(download, now);
                let (status, number) = (Status::NeedsBuffer, bytes as i64);
                self.reply(&Reply { status, number, ..reply }, id)
            }
        }
    }

    /// A frame that is more, or less, than one encoded command.
    fn special(
        &mut self,
        shard: &mut Shard<NoJournal>,
        frame: &[u8],
        now: Now,
    ) -> Result<(), SessionError> {
        let Some(header) = large::header_of(frame) else {
            return self.reply(&Reply::status(Status::Malformed), 0);
        };
        let (id, body) = (header.id.get(), &frame[REQUEST_HEADER_BYTES..]);
        let malformed = Reply::status(Status::Malformed);
        match (header.op, header.form) {
            (PIECE, 0) => match self.large.piece(shard, id, body, now) {
                Ok(None) => Ok(()),
                Ok(Some(complete)) => self.complete(shard, complete, id, now),
                Err(status) => self.reply(&Reply::status(status), id),
            },
            (RELEASE, form::BUFFER) => {
                if let Some((_, name)) = large::split_name(frame) {
                    self.large.release(&name);
                }
                Ok(())
            }
            (_, form::IN_PIECES) => {
                let whole = RequestHeader { form: 0, ..header };
                let mut bytes = frame.to_vec();
                bytes[..REQUEST_HEADER_BYTES].copy_from_slice(whole.as_bytes());
                match self.large.begin(shard, &bytes, &whole, now)? {
                    None => Ok(()),
                    Some(status) => self.reply(&Reply::status(status), id),
                }
            }
            (_, form::BUFFER) => {
                let named = large::split_name(frame);
                let Some((frame, name)) =
                    named.and_then(|(frame, name)| Some((frame, large::checked(&name)?)))
                else {
                    return self.reply(&malformed, id);
                };
                let whole = RequestHeader { form: 0, ..header };
                let mut bytes = frame.to_vec();
                bytes[..REQUEST_HEADER_BYTES].copy_from_slice(whole.as_bytes());
                self.decoded(shard, &bytes, Some(name), now)
            }
            _ => self.reply(&malformed, id),
        }
    }

    fn complete(
        &mut self,
        shard: &mut Shard<NoJournal>,
        complete: Complete,
        id: u32,
        now: Now,
    ) -> Result<(), SessionError> {
        match complete {
            Complete::Command(bytes) => self.decoded(shard, &bytes, None, now),
            Complete::Set(upload) => {
                let outcome = shard.finish_upload(upload, now);
                let (reply, download) = match outcome {
                    Outcome::Reply(reply) => return self.reply(&reply, id),
                    Outcome::Stream(reply, download) => (Reply { value: None, ..reply }, download),
                };
                self.reply_large(shard, reply, download, id, None, now)
            }
        }
    }

    fn decoded(
        &mut self,
        shard: &mut Shard<NoJournal>,
        bytes: &[u8],
        buffer: Option<BufferName>,
        now: Now,
    ) -> Result<(), SessionError> {
        match Command::decode(bytes) {
            Ok((command, id)) => {
                let hash = command.key().map_or(KeyHash(0), |key| shard.hash(key));
                self.command(shard, &command, hash, id, buffer, now)
            }
            Err((status, id)) => self.reply(&Reply::status(status), id),
        }
    }

    /// Lets a value on its way go on by a piece.
    fn send_large(&mut self, shard: &mut Shard<NoJournal>, now: Now) -> Result<(), SessionError> {
        if !self.large.may_send(&self.link) {
            return Ok(());
        }
        let mut replies = Vec::new();
        self.large.send_piece(shard, &mut self.link, now, &mut replies)?;
        for reply in &replies {
            self.send_or_keep(&[reply])?;
        }
        if !replies.is_empty() {
            self.tell_client();
        }
        Ok(())
    }

    /// Gives back what the session's large values hold of the shard.
    pub fn abandon(&mut self, shard: &mut Shard<NoJournal>, now: Now) {
        self.large.abandon(shard, now);
    }

    fn header(&self, reply: &Reply<'_>, id: u32) -> ReplyHeader {
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
            life: self.life.into(),
        }
    }

    fn reply(&mut self, reply: &Reply<'_>, id: u32) -> Result<(), SessionError> {
        let header = self.header(reply, id);
        let value = reply.value.unwrap_or_default();
        let session = large::session_of(id);
        if self.large.holds_up(session) {
            self.large.behind(session, [header.as_bytes(), value].concat());
            return Ok(());
        }
        self.send_or_keep(&[header.as_bytes(), value])
    }

    /// Sends a reply, or keeps it until there is room.
    fn send_or_keep(&mut self, parts: &[&[u8]]) -> Result<(), SessionError> {
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
