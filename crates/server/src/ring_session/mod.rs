//! One client process's rings at one shard: frames in, commands executed in
//! order, replies out.
//!
//! Invariants:
//! * the shard looks at a ring only if a ready bit of the client names it, or if it left something
//!   there: the cost does not depend on the number of rings;
//! * each ring that has something gets its turn, of [`FRAMES_PER_TURN`] at most,
//!   before one of them gets another;
//! * a thread of the client that takes no replies holds up its own ring set only.

mod client_end;
mod error;
mod feed;
mod frames;
mod large;
mod long_requests;
mod plans;
mod replica_feed;
mod replies;
mod rights;
mod search_turns;
mod special;
mod uploads;
mod user;
mod waiting;
mod waits;

pub use client_end::{ClientEnd, RemoteEnd, ShmEnd, StoredBy};
pub use error::SessionError;
pub use feed::{ReplicaPositions, ReplicaState};
pub use replica_feed::FeedCounts;
pub use user::{SessionRights, SessionUser};
pub use waits::{Deadline, WaitOrder};

use crate::cluster::PublishedTopology;
use crate::following::Roles;
use crate::other_searches::OtherSearches;
use crate::peer::Peer;
use crate::replica_view::TurnView;
use crate::touch_hints::TouchHints;
use frames::{request_header, session_of, sets_of};
use large::Large;
use remora_arena::{Journal, ReadView, Region};
use remora_engine::Outcome;
use remora_engine::{Now, Shard};
use remora_fabric::AnyLink;
use remora_layout::buffer_name::BufferName;
use remora_layout::database::Database;
use remora_layout::frame::ring_seed;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    FRAMES_PER_TURN, MAX_CLIENT_SESSIONS, MAX_INLINE_BYTES, STREAM_BYTES, TORN_FRAME_MS,
    TURNS_TOGETHER,
};
use remora_layout::session::{ring_number, ring_offset, set_offset};
use remora_plan::Plan;
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::message::{PIECE, RELEASE, ReplyHeader, Status, form};
use remora_replica::AskFor;
use remora_ring::{Poll, Receiver};
use replies::{Replies, ReplyOrigin};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uploads::Uploads;
use waits::RingWaits;
use zerocopy::IntoBytes;

/// The request ring of one ring set.
struct Incoming {
    receiver: Receiver,
    torn_since_s: Option<u64>,
}

/// One client's request and response rings at one shard.
pub struct RingSession {
    /// The session's number.
    pub session: u64,
    client: ClientEnd,
    seed: u64,
    shard: usize,
    to_server: ReadView,
    /// By ring set; made at the set's first use.
    incoming: Vec<Option<Box<Incoming>>>,
    /// Ring sets at which the shard must look, as far as it knows.
    pending: u64,
    /// Rings that it has looked at, since this was asked last.
    looked: u64,
    replies: Replies,
    large: Large,
    uploads: Uploads,
    waits: RingWaits,
    /// Plans that were asked for since they were taken, with the ids of their requests.
    plans: Vec<(u32, (Database, Plan))>,
    /// The shard's log on its way to the client, which is a replica.
    feed: Option<Box<replica_feed::ReplicaFeed>>,
    /// When a replica is asked for an acknowledgement.
    ask_for: AskFor,
    /// Bytes of log that the shard keeps for replicas that are away, once there is one.
    backlog_bytes: usize,
    /// Where the client is.
    peer: Peer,
    /// The role of the server, if it may change.
    roles: Option<Arc<Roles>>,
    /// Who the client is. Without a user it may do all.
    user: Option<Box<SessionUser>>,
    /// What the server tells of its cluster, if it may belong to one.
    topology: Option<Arc<PublishedTopology>>,
    /// Set when the peer broke the protocol; the control thread ends it all.
    pub violated: Arc<AtomicBool>,
    /// Turns in a row whose replies have not been sent.
    turns_untold: u32,
    frames: Vec<u8>,
    /// The arenas of all shards.
    arenas: Arc<[ReadView]>,
    touched: Arc<[Arc<TouchHints>]>,
    /// Scratch memory of a search.
    search_scratch: Vec<u8>,
    /// Scratch memory: replies that were held back.
    released: Vec<Vec<u8>>,
    searches: Arc<OtherSearches>,
    /// Threads of the client that have asked something here: it gives them the
    /// lowest numbers that are free.
    threads_seen: u16,
    /// The most that any shard has seen.
    threads: Arc<AtomicU64>,
}

/// A frame, as far as it is understood before anything is executed.
#[derive(Clone, Copy)]
enum Frame<'f> {
    /// One encoded command.
    Plain(Result<(Database, Command<'f>, u32), (Status, u32)>),
    /// A piece of one, or one that names a buffer.
    Special(&'f [u8]),
}

impl<'f> Frame<'f> {
    #[inline(always)]
    fn of(frame: &'f [u8]) -> Self {
        // The operation and the form, in the first bytes of the header.
        match *frame {
            [op, _, form, ..] if op < PIECE && form & form::MASK == 0 => {
                Self::Plain(Command::decode_within(frame))
            }
            _ => Self::Special(frame),
        }
    }

    /// The session of the client that has sent it; `None` if it is no request.
    fn session(&self) -> Option<u16> {
        let id = match self {
            Self::Plain(Ok((.., id)) | Err((_, id))) => *id,
            Self::Special(frame) => {
                let header = request_header(frame)?;
                (header.op != RELEASE).then_some(header.id.get())?
            }
        };
        Some(session_of(id))
    }
}

/// The parts of a ring session.
pub struct RingParts {
    /// The session's number.
    pub session: u64,
    /// Seed of its rings.
    pub seed: u64,
    /// The shard it is for.
    pub shard: usize,
    /// The server's incarnation.
    pub incarnation: u64,
    /// The arenas of all shards, by number.
    pub arenas: Arc<[ReadView]>,
    /// Hints to the shards: records that other threads have read. None without eviction.
    pub touched: Arc<[Arc<TouchHints>]>,
    /// The mailbox that the client writes.
    pub to_server: ReadView,
    /// A link on which the mailbox that the server writes is
    /// [`remora_fabric::remote::CLIENT_MAILBOX`].
    pub link: AnyLink,
    /// How client and shard wake each other.
    pub client: ClientEnd,
    /// The client's buffer for large replies, if it is memory of this process.
    pub large: Option<Arc<Region>>,
    /// Shared by all shards' parts of the session.
    pub violated: Arc<AtomicBool>,
    /// Gets the number of the client's threads that have asked something.
    pub threads: Arc<AtomicU64>,
    /// Counts searches of other shards' trees.
    pub searches: Arc<OtherSearches>,
    /// What clients may read.
    pub view: Arc<TurnView>,
}

impl Incoming {
    fn bear_torn_frame(&mut self, now: Now) -> Result<(), SessionError> {
        let since = *self.torn_since_s.get_or_insert(now.since_start_s);
        if (now.since_start_s - since) * 1_000 > TORN_FRAME_MS {
            return Err(SessionError::TornForever);
        }
        Ok(())
    }
}

impl RingSession {
    /// Both ends at the server.
    pub fn new(parts: RingParts) -> Self {
        let RingParts { incarnation, seed, shard, .. } = parts;
        let place = ReplyOrigin { incarnation, seed, shard, shards: parts.arenas.len() };
        Self {
            session: parts.session,
            seed: parts.seed,
            shard: parts.shard,
            incoming: Vec::new(),
            pending: 0,
            looked: 0,
            turns_untold: 0,
            replies: Replies::new(
                (place, parts.view),
                parts.to_server.clone(),
                parts.link,
                &parts.client,
            ),
            large: Large::new(parts.large, parts.client.ring_sets()),
            uploads: Uploads::default(),
            waits: RingWaits::default(),
            plans: Vec::new(),
            feed: None,
            ask_for: AskFor::default(),
            backlog_bytes: 0,
            peer: Peer::Local,
            roles: None,
            user: None,
            topology: None,
            frames: Vec::new(),
            search_scratch: Vec::new(),
            released: Vec::new(),
            threads_seen: 0,
            client: parts.client,
            to_server: parts.to_server,
            violated: parts.violated,
            threads: parts.threads,
            arenas: parts.arenas,
            touched: parts.touched,
            searches: parts.searches,
        }
    }

    /// If the client is a replica: when it is asked for an acknowledgement, and how many bytes of log
    /// the shard keeps from then on for replicas that are away.
    pub fn feeds_by(&mut self, ask_for: AskFor, backlog_bytes: usize) {
        (self.ask_for, self.backlog_bytes) = (ask_for, backlog_bytes);
    }

    /// Where the client is, and the role of the server, which may change.
    pub(crate) fn at(self, peer: Peer, roles: Arc<Roles>) -> Self {
        Self { peer, roles: Some(roles), ..self }
    }

    /// What the server tells of its cluster.
    pub(crate) fn of_cluster(self, topology: Arc<PublishedTopology>) -> Self {
        Self { topology: Some(topology), ..self }
    }

    /// The client's wake-up of the shard, if the client wakes it itself.
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.client {
            ClientEnd::Shm(end) => Some(end.eventfd()),
            ClientEnd::Remote(_) => None,
        }
    }

    /// Whether there is something to do: the last scan before sleeping.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.ready() != 0
            || self.turns_untold > 0
            || self.replies.has_newly_blocked()
            || (self.pending != 0 && !self.large.is_full())
            || self.large.may_send(&self.replies.link, self.replies.blocked())
            || self.may_feed()
    }

    /// Ring sets at which something new may be.
    #[inline]
    fn ready(&self) -> u64 {
        match &self.client {
            ClientEnd::Shm(end) => end.ready(),
            ClientEnd::Remote(end) => (end.mark().is_set() || self.sees(end)) as u64,
        }
    }

    /// Whether the memory of a far client shows the data that it waits for, if a device stores that
    /// data: its immediate may come later.
    fn sees(&self, end: &RemoteEnd) -> bool {
        end.stored_by == StoredBy::Device
            && match self.replies.blocked() {
                0 => !self.large.is_full() && self.has_frame(),
                _ => self.replies.may_flush(0),
            }
    }

    /// Whether a frame has begun to arrive in the one ring of a far client.
    fn has_frame(&self) -> bool {
        match self.incoming.first() {
            Some(Some(incoming)) => incoming.receiver.has_frame(),
            _ => self.made_receiver(0).has_frame(),
        }
    }

    /// Whether it has something under way for which it wants turns, or ticks.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.pending != 0
            || self.turns_untold > 0
            || self.replies.has_newly_blocked()
            || !self.large.is_empty()
            || !self.uploads.is_empty()
    }

    /// The shard looks at the client, which it has at this place, only when that rings,
    /// unless there is something to do. Whether it is so.
    pub fn park(&self, place: usize) -> bool {
        match &self.client {
            ClientEnd::Shm(end) => end.park(|| self.has_work()),
            ClientEnd::Remote(end) => end.mark().park(place, || self.has_work()),
        }
    }

    /// The shard looks at the client again.
    pub fn unpark(&self) {
        match &self.client {
            ClientEnd::Shm(end) => end.unpark(),
            ClientEnd::Remote(end) => end.mark().unpark(),
        }
    }

    /// Whether a look at its rings may find new data since the last one: another process, a device
    /// or another thread writes them.
    pub fn is_written_by_others(&self) -> bool {
        !matches!(self.client, ClientEnd::Remote(RemoteEnd { stored_by: StoredBy::OwnThread, .. }))
    }

    /// Whether the client's mark is set only once a frame is whole, and each time.
    fn is_marked_whole(&self) -> bool {
        matches!(&self.client, ClientEnd::Remote(end) if end.stored_by != StoredBy::Device)
    }

    /// Rings that the shard has looked at, since this was asked last.
    pub fn take_looked(&mut self) -> u64 {
        std::mem::take(&mut self.looked)
    }

    fn made_receiver(&self, set: usize) -> Receiver {
        let ring = set_offset(self.arenas.len(), set) + ring_offset(self.shard);
        let seed = ring_seed(self.seed, ring_number(set, self.shard), 0);
        let receiver = Receiver::new(self.to_server.clone(), ring, seed);
        match self.client {
            ClientEnd::Shm(_) => receiver.in_short_laps(),
            ClientEnd::Remote(_) => receiver,
        }
    }

    /// The request ring of a set; made when it is used first.
    fn incoming(&mut self, set: usize) -> &mut Incoming {
        if self.incoming.len() <= set {
            self.incoming.resize_with(set + 1, || None);
        }
        if self.incoming[set].is_none() {
            let receiver = self.made_receiver(set);
            self.incoming[set] = Some(Box::new(Incoming { receiver, torn_since_s: None }));
        }
        self.incoming[set].as_mut().expect("it was made above")
    }

    /// Takes up to [`FRAMES_PER_TURN`] frames out of each ring that has some,
    /// executes them in order and sends the replies. Gives the number of frames
    /// executed. Replies that a network carries go out with those of the next turn,
    /// if more requests wait for one.
    pub fn turn(
        &mut self,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<usize, SessionError> {
        self.large.set_durable(shard.durable_sequence());
        self.pending |= self.replies.take_newly_blocked()
            | match &self.client {
                ClientEnd::Shm(end) => end.take_ready(),
                ClientEnd::Remote(end) => (end.mark().take() || self.sees(end)) as u64,
            };
        self.replies.flush(self.pending)?;
        self.send_large(shard, now)?;
        let mut taken = 0;
        for set in sets_of(self.pending) {
            taken += self.take_frames(set, shard, now)?;
        }
        let may_put_off = self.replies.may_put_off() && taken == FRAMES_PER_TURN;
        if may_put_off && !self.has_frame() {
            // A frame that comes from here on is marked.
            self.pending = 0;
        }
        let puts_off = may_put_off && self.turns_untold + 1 < TURNS_TOGETHER && self.pending != 0;
        if puts_off {
            self.turns_untold += 1;
        } else if taken > 0 || self.turns_untold > 0 {
            self.turns_untold = 0;
            self.replies.tell_client()?;
        }
        Ok(taken)
    }

    /// Takes up to [`FRAMES_PER_TURN`] frames out of one ring and executes them.
    /// Their number.
    fn take_frames(
        &mut self,
        set: usize,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<usize, SessionError> {
        if self.replies.blocked() & 1 << set != 0 {
            // The credit that it waits for arrives with a ready bit.
            self.pending &= !(1 << set);
            return Ok(0);
        }
        if self.large.is_full() {
            return Ok(0);
        }
        self.looked += 1;
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut ends = [0usize; FRAMES_PER_TURN];
        let is_marked_whole = self.is_marked_whole();
        let incoming = self.incoming(set);
        let (mut taken, mut is_empty) = (0, false);
        while taken < FRAMES_PER_TURN && !is_empty {
            match incoming.receiver.poll(&mut frames) {
                Poll::Frame(_) => {
                    incoming.torn_since_s = None;
                    ends[taken] = frames.len();
                    taken += 1;
                    incoming.receiver.prefetch();
                }
                Poll::Empty => is_empty = true,
                // It is marked once it is whole.
                Poll::Torn if is_marked_whole => is_empty = true,
                Poll::Torn => {
                    incoming.bear_torn_frame(now)?;
                    break;
                }
                Poll::Violated(violation) => return Err(violation.into()),
            }
        }
        if is_empty {
            self.pending &= !(1 << set);
        }
        if taken > 0 {
            // All that the turn sends goes out together.
            self.replies.link.hold();
            self.execute(shard, now, &frames, &ends[..taken])?;
            if let Some(credit) = self.incoming(set).receiver.credit_due() {
                self.replies.give_credit(set, credit)?;
            }
        }
        self.frames = frames;
        Ok(taken)
    }

    /// Decodes all, prefetches all, then executes in order.
    fn execute(
        &mut self,
        shard: &mut Shard<impl Journal>,
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
            if let Frame::Plain(Ok((database, command, _))) = &taken[at] {
                hashes[at] = shard.hash_of(*database, command);
                if ends.len() > 1 && command.key().is_some() {
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
            if !self.waits.is_empty()
                && let Some(session) = frame.session()
            {
                self.end_wait_of(shard, session)?;
            }
            match frame {
                Frame::Plain(Ok((_, command, id))) => {
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
        shard: &mut Shard<impl Journal>,
        command: &Command<'_>,
        hash: KeyHash,
        id: u32,
        buffer: Option<BufferName>,
        now: Now,
    ) -> Result<(), SessionError> {
        self.see_thread(session_of(id));
        if let Command::Topology { from } = *command {
            return self.tell_topology(from, id);
        }
        if self.refuses((hash.database(), command), now) {
            return self.reply_no_permission(id);
        }
        if let (Some(topology), Some(key)) = (&self.topology, command.key())
            && topology.is_elsewhere(key)
        {
            return self.reply(&Reply::status(Status::OtherGroup), id);
        }
        if let Some(status) = self.replies.refusal()
            && !command.is_write()
            && !matches!(command, Command::Synced { .. })
        {
            return self.reply(&Reply::status(status), id);
        }
        match *command {
            command if !command.is_for_rings() => {
                return self.reply(&Reply::status(Status::Malformed), id);
            }
            // A change whose reply may not fit a frame goes in turns: it must not be lost.
            Command::Of { key, request }
                if request.is_long() || (request.is_write() && request.may_have_parts()) =>
            {
                return self.search(shard, (key, hash), (request, id), now);
            }
            Command::Plan { plan } => return self.begin_plan((hash.database(), plan), id),
            _ => {}
        }
        if matches!(command, Command::Flush | Command::FlushAll) {
            let only = matches!(command, Command::Flush).then(|| hash.database());
            return self.flush(shard, only, id, now);
        }
        let room = buffer.map_or(STREAM_BYTES, |name| STREAM_BYTES.max(name.bytes.get() as usize));
        let takes_away = match *command {
            Command::GetDel { key } | Command::GetEx { key, .. } => Some(key),
            Command::Set { key, get: true, .. } => Some(key),
            _ => None,
        };
        if let Some(key) = takes_away {
            let Reply { number, wait, .. } = shard.execute(&Command::StrLen { key }, hash, now);
            if number as usize > room {
                // The reply could not be sent, and would be lost: nothing is done.
                let reply = Reply { number, wait, ..Reply::status(Status::NeedsBuffer) };
                return self.reply(&reply, id);
            }
        }
        let outcome = shard.execute_or_stream(command, hash, now);
        if let Outcome::Reply(Reply { status: Status::NeedsBuffer, .. }) = outcome
            && let Command::Of { key, request } = *command
            && request.may_have_parts()
        {
            // It is a read, and longer than it seemed.
            return self.search(shard, (key, hash), (request, id), now);
        }
        let (reply, download) = match outcome {
            Outcome::Reply(reply) => {
                let bytes = reply.value.map_or(0, <[u8]>::len);
                if bytes <= MAX_INLINE_BYTES {
                    return self.reply(&reply, id);
                }
                return self.reply_made(&reply, id, buffer);
            }
            Outcome::Stream(reply, download) => (Reply { value: None, ..reply }, download),
        };
        self.reply_large(shard, reply, download, id, buffer, now)
    }

    /// Tells a part of the topology of the cluster, whatever this server is.
    #[cold]
    fn tell_topology(&mut self, from: u32, id: u32) -> Result<(), SessionError> {
        match self.topology.as_ref().and_then(|of| of.part(from)) {
            None => self.reply(&Reply::status(Status::NotFound), id),
            Some((version, part)) => {
                self.reply(&Reply { value: Some(&part), ..Reply::number(version as i64) }, id)
            }
        }
    }

    /// A thread of the client, by its number, has asked something.
    #[inline(always)]
    fn see_thread(&mut self, number: u16) {
        if number >= self.threads_seen {
            self.see_new_thread(number);
        }
    }

    #[cold]
    fn see_new_thread(&mut self, number: u16) {
        // A number beyond is nonsense, and counts for no more.
        self.threads_seen = number.min(MAX_CLIENT_SESSIONS as u16 - 1) + 1;
        self.threads.fetch_max(self.threads_seen.into(), Ordering::Relaxed);
    }

    /// Replies that are held back.
    pub fn held_replies(&self) -> usize {
        self.large.held()
    }

    /// Bytes of replies that are kept.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.replies.backlog_bytes() + self.large.held_bytes()
    }

    /// Frees the shard's memory that the session's large values hold.
    pub fn abandon(&mut self, shard: &mut Shard<impl Journal>, now: Now) {
        self.large.abandon(shard, now);
        self.plans.clear();
        self.uploads.abandon(shard, now);
        self.abandon_waits(shard);
        self.end_feed(shard);
    }

    /// Sends a reply once it may be seen, after earlier output to the same session of the client.
    fn reply(&mut self, reply: &Reply<'_>, id: u32) -> Result<(), SessionError> {
        let header = self.replies.header(reply, id);
        self.send_reply(&header, reply, id)
    }

    fn send_reply(
        &mut self,
        header: &ReplyHeader,
        reply: &Reply<'_>,
        id: u32,
    ) -> Result<(), SessionError> {
        let value = reply.value.unwrap_or_default();
        let session = session_of(id);
        if reply.wait != 0 || self.large.holds_up(session) {
            self.large.hold(session, [header.as_bytes(), value].concat(), reply.wait);
            return Ok(());
        }
        self.replies.send_or_keep(id, &[header.as_bytes(), value])
    }

    /// Ends the session if replies of it are held back; whether they were.
    pub fn end_if_pending(&self) -> bool {
        let is_pending = self.held_replies() > 0;
        if is_pending {
            self.violated.store(true, Ordering::Release);
        }
        is_pending
    }

    /// Gives the session up. Whether no other shard had done so before.
    pub fn give_up(&self, error: SessionError) -> bool {
        tracing::warn!(session = self.session, %error, "session ended: the peer broke the protocol");
        !self.violated.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod waiting_tests;
