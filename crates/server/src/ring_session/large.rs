//! Large values on one client's ring pair: requests that come in pieces, and
//! replies whose value is written into the buffer that the request named. And
//! searches of trees, answered by as many replies as they need.
//!
//! What it keeps true:
//! * a piece a turn: between two pieces the shard serves everybody else;
//! * replies to one session of the client come in the order of its requests:
//!   what follows a value on its way waits behind it, what belongs to other
//!   threads of the process does not;
//! * whatever a request holds at the shard, memory or a pin, is given back when
//!   it ends, and when the client goes.

use super::SessionError;
use super::searching::{Scratch, Searching};
use remora_arena::{Journal, Region};
use remora_engine::command::Command;
use remora_engine::shard::{Download, LargeSet, Upload};
use remora_engine::{Now, Shard};
use remora_fabric::{AnyLink, Link, Transport};
use remora_layout::limits::{
    DISCARD_BYTES, LARGE_BUFFER_BYTES, MAX_CLIENT_SESSIONS, MAX_STREAMS, MAX_VALUE_BYTES,
    STREAM_PIECE_BYTES,
};
use remora_layout::message::{BufferName, Op, REQUEST_HEADER_BYTES, RequestHeader, Status};
use remora_layout::plant::{Plant, planted};
use remora_ring::WRITE_ID;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A name of memory that this transport lets us write. Over RDMA the client's
/// device checks it; else it lies in the buffer that was agreed on.
pub fn checked(name: &BufferName, transport: Transport) -> Option<BufferName> {
    let (address, bytes) = (name.address.get(), name.bytes.get() as u64);
    let end = address.checked_add(bytes)?;
    let is_known =
        transport == Transport::Verbs || (name.key.get() == 0 && end <= LARGE_BUFFER_BYTES as u64);
    (address.is_multiple_of(8) && is_known).then_some(*name)
}

/// A request whose value comes in pieces.
enum Incoming {
    /// A SET, written straight into its slot.
    Set(Upload),
    /// Any other command: put together, then executed.
    Command {
        /// The encoded command, as far as it has come.
        bytes: Vec<u8>,
        missing: usize,
    },
    /// It was refused; its pieces are passed over.
    Refused { missing: usize },
}

/// What a finished request is to be done with.
pub enum Complete {
    /// The SET is to be carried out.
    Set(Upload),
    /// The encoded command is to be executed.
    Command(Vec<u8>),
}

/// A value on its way into the client's buffer.
struct Outgoing {
    /// The encoded reply that follows it.
    reply: Vec<u8>,
    download: Download,
    /// What it goes into.
    name: BufferName,
    sent: usize,
}

/// What waits to be sent to one session of the client.
enum Item {
    Value(Outgoing),
    Search(Searching),
    Reply(Vec<u8>),
}

/// The large values of one ring pair.
pub struct Large {
    incoming: BTreeMap<u32, Incoming>,
    /// By number of the client's session; none is empty, and each begins with
    /// a value or a search.
    outgoing: VecDeque<(u16, VecDeque<Item>)>,
    /// The client's buffer, where its unused pages can be given back.
    buffer: Option<Arc<Region>>,
    /// What a search works in.
    scratch: Scratch,
}

/// The session of the client that a request's id names.
pub fn session_of(id: u32) -> u16 {
    (id >> 16) as u16
}

impl Large {
    /// Nothing under way. `buffer` is the client's, if it is memory of this
    /// process.
    pub fn new(buffer: Option<Arc<Region>>) -> Self {
        let scratch = Scratch::default();
        Self { incoming: BTreeMap::new(), outgoing: VecDeque::new(), buffer, scratch }
    }

    /// Whether so much is under way that no further request may begin.
    pub fn is_full(&self) -> bool {
        let values = self.outgoing.iter().map(|(_, items)| items.len()).sum::<usize>();
        values >= MAX_STREAMS
    }

    /// Whether a value could go on now.
    pub fn may_send(&self, link: &AnyLink) -> bool {
        !self.outgoing.is_empty() && link.has_room()
    }

    /// Begins a request whose value comes in pieces. The status is to be
    /// replied with if it is refused; its pieces are passed over then. A
    /// session has one such request at a time: more than there can be sessions
    /// are a peer's attempt to make us keep them.
    pub fn begin(
        &mut self,
        shard: &mut Shard<impl Journal>,
        frame: &[u8],
        header: &RequestHeader,
        now: Now,
    ) -> Result<Option<Status>, SessionError> {
        if self.incoming.len() >= MAX_CLIENT_SESSIONS {
            return Err(SessionError::TooManyUploads);
        }
        let id = header.id.get();
        let missing = header.value_bytes.get() as usize;
        let begun = self.try_begin(shard, frame, header, now);
        let refused = begun.as_ref().err().copied();
        let before = self.incoming.insert(id, begun.unwrap_or(Incoming::Refused { missing }));
        self.drop_incoming(shard, before, now);
        if missing == 0 {
            // Nothing would ever complete it.
            let nothing = self.incoming.remove(&id);
            self.drop_incoming(shard, nothing, now);
            return Ok(refused.or(Some(Status::Malformed)));
        }
        Ok(refused)
    }

    fn try_begin(
        &mut self,
        shard: &mut Shard<impl Journal>,
        frame: &[u8],
        header: &RequestHeader,
        now: Now,
    ) -> Result<Incoming, Status> {
        let value_bytes = header.value_bytes.get() as usize;
        if self.incoming.len() >= MAX_STREAMS {
            return Err(Status::OutOfMemory);
        }
        if value_bytes > MAX_VALUE_BYTES {
            return Err(Status::TooLarge);
        }
        if header.op != Op::Set as u8 {
            let mut bytes = Vec::with_capacity(frame.len() + value_bytes);
            bytes.extend_from_slice(frame);
            return Ok(Incoming::Command { bytes, missing: value_bytes });
        }
        // Decoded without its value.
        let mut without = *header;
        without.value_bytes = 0.into();
        let bytes = [without.as_bytes(), &frame[REQUEST_HEADER_BYTES..]].concat();
        match Command::decode(&bytes) {
            // With GET the old value would have nowhere to go.
            Ok((Command::Set { key, condition, expiry, get: false, .. }, _)) => {
                let hash = shard.hash(key);
                let set = LargeSet { key, hash, value_bytes, condition, expiry, get: false };
                Ok(Incoming::Set(shard.begin_upload(set, now)?))
            }
            Ok(_) => Err(Status::Malformed),
            Err((status, _)) => Err(status),
        }
    }

    /// Takes the next piece of a request's value. What is complete comes back;
    /// an error is the status to reply with.
    pub fn piece(
        &mut self,
        shard: &mut Shard<impl Journal>,
        id: u32,
        piece: &[u8],
        now: Now,
    ) -> Result<Option<Complete>, Status> {
        // A piece of nothing: a peer's whim, without a reply to wait for.
        let Some(incoming) = self.incoming.get_mut(&id) else { return Ok(None) };
        let left = match incoming {
            Incoming::Set(upload) => match shard.upload(upload, piece) {
                Ok(()) => upload.missing(),
                Err(status) => {
                    let refused = self.incoming.remove(&id);
                    self.drop_incoming(shard, refused, now);
                    return Err(status);
                }
            },
            Incoming::Command { bytes, missing } => {
                let taken = piece.len().min(*missing);
                bytes.extend_from_slice(&piece[..taken]);
                *missing -= taken;
                *missing
            }
            Incoming::Refused { missing } => {
                *missing = missing.saturating_sub(piece.len());
                *missing
            }
        };
        if left > 0 {
            return Ok(None);
        }
        Ok(match self.incoming.remove(&id) {
            Some(Incoming::Set(upload)) => Some(Complete::Set(upload)),
            Some(Incoming::Command { bytes, .. }) => Some(Complete::Command(bytes)),
            Some(Incoming::Refused { .. }) | None => None,
        })
    }

    /// Queues a value for this memory, with the reply that follows.
    pub fn send_value(
        &mut self,
        session: u16,
        reply: Vec<u8>,
        download: Download,
        name: BufferName,
    ) {
        self.push(session, Item::Value(Outgoing { reply, download, name, sent: 0 }));
    }

    /// Queues what is left of a search.
    pub fn search(&mut self, session: u16, searching: Searching) {
        self.push(session, Item::Search(searching));
    }

    fn push(&mut self, session: u16, item: Item) {
        match self.outgoing.iter_mut().find(|(number, _)| *number == session) {
            Some((_, items)) => items.push_back(item),
            None => self.outgoing.push_back((session, VecDeque::from([item]))),
        }
    }

    /// Keeps a reply that has to wait behind a value for the same session.
    pub fn behind(&mut self, session: u16, reply: Vec<u8>) {
        let queue = self.outgoing.iter_mut().find(|(number, _)| *number == session);
        let (_, items) = queue.expect("asked by holds_up");
        items.push_back(Item::Reply(reply));
    }

    /// Whether replies to this session have to wait.
    pub fn holds_up(&self, session: u16) -> bool {
        self.outgoing.iter().any(|(number, _)| *number == session)
    }

    /// Sends one piece of the value whose turn it is, or lets a search go on for
    /// a turn. Replies that may go out now are given to `replies`, in order.
    pub fn send_piece<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        link: &mut AnyLink,
        now: Now,
        replies: &mut Vec<Vec<u8>>,
    ) -> Result<(), SessionError> {
        let Some((session, mut items)) = self.outgoing.pop_front() else { return Ok(()) };
        if let Some(Item::Value(value)) = items.front_mut() {
            let piece = shard.piece(&value.download, value.sent, STREAM_PIECE_BYTES);
            link.post_to_named(WRITE_ID, &value.name, value.sent, piece);
            value.sent += piece.len();
            // Bounded by what was posted.
            while link.poll().is_some() {}
            if let Some(failure) = link.failure() {
                self.outgoing.push_front((session, items));
                return Err(failure.into());
            }
        }
        if let Some(Item::Search(searching)) = items.front_mut()
            && searching.turn(shard, &mut self.scratch, |header, objects| {
                replies.push([header.as_bytes(), objects].concat());
                Ok(())
            })?
        {
            items.pop_front();
        }
        // Bounded: each turn takes an item away, up to the next value or search.
        loop {
            match items.pop_front() {
                Some(Item::Value(value)) if value.is_sent() => {
                    shard.end_download(value.download, now);
                    replies.push(value.reply);
                }
                Some(Item::Reply(reply)) => replies.push(reply),
                Some(value) => {
                    items.push_front(value);
                    break;
                }
                None => break,
            }
        }
        if !items.is_empty() {
            // The others' turn comes first.
            self.outgoing.push_back((session, items));
        }
        Ok(())
    }

    /// The client has taken what stood in a part of its buffer.
    pub fn release(&self, name: &BufferName) {
        let Some(name) = checked(name, Transport::Shm) else { return };
        let (address, bytes) = (name.address.get() as usize, name.bytes.get() as usize);
        if let Some(buffer) = &self.buffer
            && bytes >= DISCARD_BYTES
        {
            buffer.discard(address, bytes);
        }
    }

    /// The client has gone.
    pub fn abandon(&mut self, shard: &mut Shard<impl Journal>, now: Now) {
        let incoming = std::mem::take(&mut self.incoming);
        for (_, incoming) in incoming.into_iter().filter(|_| !planted(Plant::UploadOutlivesClient))
        {
            self.drop_incoming(shard, Some(incoming), now);
        }
        for (_, items) in self.outgoing.drain(..) {
            for item in items {
                if let Item::Value(value) = item {
                    shard.end_download(value.download, now);
                }
            }
        }
    }

    fn drop_incoming(&self, shard: &mut Shard<impl Journal>, incoming: Option<Incoming>, now: Now) {
        if let Some(Incoming::Set(upload)) = incoming {
            shard.abandon_upload(upload, now);
        }
    }
}

impl Outgoing {
    fn is_sent(&self) -> bool {
        self.sent >= self.download.len()
    }
}

/// The header of a frame, if it is long enough for one.
pub fn header_of(frame: &[u8]) -> Option<RequestHeader> {
    RequestHeader::read_from_prefix(frame).ok().map(|(header, _)| header)
}

/// Takes the buffer's name from a frame's end.
pub fn split_name(frame: &[u8]) -> Option<(&[u8], BufferName)> {
    BufferName::read_from_suffix(frame).ok()
}
