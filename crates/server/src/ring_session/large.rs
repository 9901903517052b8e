//! Output that waits on one client's ring pair. Large values: the shard writes a reply's value into
//! the buffer that the request named. Searches of trees: the shard answers them by as many replies
//! as they need. Held replies: they wait until the changes that they show are durable.
//!
//! Invariants:
//! * a piece a turn: between two pieces the shard serves all other clients;
//! * replies to one session of the client come in the order of its requests: replies behind a value
//!   under way wait, replies to other threads of the process do not;
//! * a reply is sent only once its sequence is durable; beyond [`HELD_REPLIES`] waiting replies the
//!   further requests stay in the ring (back-pressure);
//! * a value's pin is released when the value is sent, and when the client goes;
//! * a search begins only once earlier results have found room in the ring, so that a client that
//!   takes nothing makes the shard keep only the results of one turn.

use super::SessionError;
use super::frames::{Answering, Stamp, reply_header};
use super::search_turns::Searching;
use remora_arena::{Journal, Region};
use remora_engine::Download;
use remora_engine::{Now, Shard};
use remora_fabric::{AnyLink, Link, Transport};
use remora_frontend::OwnedReply;
use remora_layout::buffer_name::BufferName;
use remora_layout::limits::{
    DISCARD_BYTES, HELD_REPLIES, HELD_REPLY_BYTES, LARGE_BUFFER_BYTES, MAX_INLINE_BYTES,
    MAX_STREAMS, PLANS_AT_ONCE, PLANS_HELD_BYTES, STREAM_PIECE_BYTES,
};
use remora_protocol::Reply;
use remora_protocol::message::{MORE, ReplyHeader};
use remora_ring::WRITE_ID;
use std::collections::VecDeque;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A name of memory that this transport lets the server write. Over RDMA the client's device checks
/// it; otherwise it lies in the buffer from the hello.
pub fn checked(name: &BufferName, transport: Transport) -> Option<BufferName> {
    let (address, bytes) = (name.address.get(), name.bytes.get() as u64);
    let end = address.checked_add(bytes)?;
    let is_known =
        transport == Transport::Verbs || (name.key.get() == 0 && end <= LARGE_BUFFER_BYTES as u64);
    (address.is_multiple_of(8) && is_known).then_some(*name)
}

/// A value on its way into the client's buffer.
struct Outgoing {
    /// The encoded reply that follows it.
    reply: Vec<u8>,
    /// Sequence that the reply waits for.
    wait: u64,
    from: Source,
    /// The buffer that receives it.
    name: BufferName,
    sent: usize,
}

/// Where a value on its way lies.
enum Source {
    /// In the shard's memory.
    Download(Download),
    /// Here: it was made for this reply.
    Made(Vec<u8>),
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Self::Download(download) => download.len(),
            Self::Made(bytes) => bytes.len(),
        }
    }

    /// Bytes of it that are held here.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Download(_) => 0,
            Self::Made(bytes) => bytes.len(),
        }
    }

    fn end<J: Journal>(self, shard: &mut Shard<J>, now: Now) {
        if let Self::Download(download) = self {
            shard.end_download(download, now);
        }
    }
}

/// An item that waits to be sent to one session of the client. Most are replies: an item takes
/// little more than one, as it is moved several times.
enum Item {
    Value(Box<Outgoing>),
    Search(Box<Searching>),
    /// A search that has not begun: its encoded command.
    Command(Vec<u8>),
    /// The outcome of a plan, which may not be there yet.
    Plan(Box<PlanReply>),
    /// An encoded reply, and the sequence that it waits for.
    Reply(Vec<u8>, u64),
}

/// The reply to a plan.
struct PlanReply {
    id: u32,
    /// Of the time before the first read.
    stamp: Stamp,
    outcome: Option<OwnedReply>,
    /// The most bytes that the outcome has, by the plan's limit.
    most_bytes: u64,
    sent: usize,
}

impl PlanReply {
    /// The next part, and whether it is the last one.
    fn part(&mut self) -> Option<(Vec<u8>, bool)> {
        let outcome = self.outcome.as_ref()?;
        let value = outcome.value.as_deref();
        let rest = value.map(|value| &value[self.sent..]);
        let part = rest.map(|rest| &rest[..rest.len().min(PLAN_PART_BYTES)]);
        let is_last = part.map(<[u8]>::len) == rest.map(<[u8]>::len);
        let reply = Reply { number: outcome.number, value: part, ..Reply::status(outcome.status) };
        let mut header = reply_header(&reply, self.id, self.stamp);
        header.flags |= if is_last { 0 } else { MORE };
        let part = part.unwrap_or_default();
        self.sent += part.len();
        Some(([header.as_bytes(), part].concat(), is_last))
    }
}

/// Bytes of an outcome in one reply.
const PLAN_PART_BYTES: usize = 32 << 10;
const _: () = assert!(PLAN_PART_BYTES + size_of::<ReplyHeader>() <= MAX_INLINE_BYTES);

impl Item {
    /// Whether something can be done with it once changes are durable up to here.
    fn can_go(&self, durable: u64) -> bool {
        match self {
            Self::Reply(_, wait) => *wait <= durable,
            Self::Plan(plan) => plan.outcome.is_some(),
            Self::Value(_) | Self::Search(_) | Self::Command(_) => true,
        }
    }

    /// Whether it makes more replies than one.
    fn makes_replies(&self) -> bool {
        matches!(self, Self::Search(_) | Self::Command(_) | Self::Plan(_))
    }
}

/// Empty queues that are kept, and the longest of them.
const SPARE_QUEUES: usize = 16;
/// See [`SPARE_QUEUES`].
const SPARE_ITEMS: usize = 64;

/// The large values on their way out on one ring pair.
pub struct Large {
    /// By number of the client's session; no queue is empty, and each begins with a value, a
    /// search, or a reply that is not durable.
    outgoing: VecDeque<(u16, VecDeque<Item>)>,
    /// Empty queues, to be used again.
    spare: Vec<VecDeque<Item>>,
    /// Sequence up to which replies may go.
    durable: u64,
    /// Replies in `outgoing`, their bytes and those of values that were made for one, and the other items there.
    held: usize,
    held_bytes: usize,
    streams: usize,
    /// Plans whose outcomes are not sent, and the most bytes that these have.
    plans: (usize, usize),
    /// A mask that takes a session's number to its ring set.
    set_mask: u16,
    /// The client's buffer, where its unused pages can be given back.
    buffer: Option<Arc<Region>>,
    /// Scratch memory of a search.
    scratch: Vec<u8>,
    /// Something was sent since the last call of [`Large::had_to_wait`].
    has_sent: bool,
}

/// An id of a request of this session, whichever.
pub fn id_of(session: u16) -> u32 {
    (session as u32) << 16
}

impl Large {
    /// Starts with nothing under way, for a client with this many ring sets. `buffer` is the
    /// client's, if it is memory of this process.
    pub fn new(buffer: Option<Arc<Region>>, ring_sets: usize) -> Self {
        Self {
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            durable: 0,
            held: 0,
            held_bytes: 0,
            streams: 0,
            plans: (0, 0),
            set_mask: ring_sets as u16 - 1,
            buffer,
            scratch: Vec::new(),
            has_sent: false,
        }
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Replies that wait for this sequence, or an earlier one, may go.
    pub fn set_durable(&mut self, sequence: u64) {
        self.durable = sequence;
    }

    /// Replies that are held back.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Their bytes.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether too much is under way for a further request.
    pub fn is_full(&self) -> bool {
        self.streams >= MAX_STREAMS || self.holds_enough()
    }

    fn holds_enough(&self) -> bool {
        self.held >= HELD_REPLIES || self.held_bytes >= HELD_REPLY_BYTES
    }

    /// Whether requests had to wait since the last call: the output is full and moves, or it waits
    /// for the shard.
    pub fn had_to_wait(&mut self) -> bool {
        std::mem::take(&mut self.has_sent) && self.is_full() || self.holds_enough()
    }

    /// Whether something could continue now, except for the `blocked` ring sets.
    #[inline]
    pub fn may_send(&self, link: &AnyLink, blocked: u64) -> bool {
        !self.outgoing.is_empty() && self.next(blocked).is_some() && link.has_room()
    }

    /// Whether the session that comes next has only to be sent a reply that is durable now.
    pub fn may_release(&self, blocked: u64) -> bool {
        let next = self.next(blocked).and_then(|at| self.outgoing[at].1.front());
        matches!(next, Some(Item::Reply(_, wait)) if *wait <= self.durable)
    }

    /// The session of the client with which something can be done.
    fn next(&self, blocked: u64) -> Option<usize> {
        let fronts = || self.outgoing.iter().filter_map(|(_, items)| items.front());
        // Searches wait while enough output is held that is sent by itself, once it is durable.
        let wait = self.holds_enough() && !fronts().all(|item| item.can_go(self.durable));
        let can_go = |item: &Item| item.can_go(self.durable) && !(wait && item.makes_replies());
        self.outgoing.iter().position(|(session, items)| {
            let is_blocked = blocked & 1 << (session & self.set_mask) != 0;
            !is_blocked && items.front().is_some_and(can_go)
        })
    }

    /// Queues a value for this memory, with the reply that follows.
    pub fn send_value(
        &mut self,
        session: u16,
        (reply, wait): (Vec<u8>, u64),
        download: Download,
        name: BufferName,
    ) {
        let from = Source::Download(download);
        self.push(session, Item::Value(Box::new(Outgoing { reply, wait, from, name, sent: 0 })));
    }

    /// The same of a value that was made for the reply. While it is held, it counts as held replies do.
    pub fn send_made(
        &mut self,
        session: u16,
        (reply, wait): (Vec<u8>, u64),
        value: Vec<u8>,
        name: BufferName,
    ) {
        let from = Source::Made(value);
        self.push(session, Item::Value(Box::new(Outgoing { reply, wait, from, name, sent: 0 })));
    }

    /// Queues the rest of a search.
    pub fn search(&mut self, session: u16, searching: Searching) {
        self.push(session, Item::Search(Box::new(searching)));
    }

    /// Queues a search that is to begin later.
    pub fn ask(&mut self, session: u16, command: Vec<u8>) {
        self.push(session, Item::Command(command));
    }

    /// Whether there may be a further plan, whose outcome has so many bytes at most.
    pub fn may_run_plan(&self, most_bytes: u64) -> bool {
        let (plans, bytes) = self.plans;
        plans == 0 || (plans < PLANS_AT_ONCE && bytes as u64 + most_bytes <= PLANS_HELD_BYTES)
    }

    /// Keeps the place of a plan's outcome, which has so many bytes at most.
    pub fn await_outcome(&mut self, session: u16, (id, stamp): (u32, Stamp), most_bytes: u64) {
        let plan = PlanReply { id, stamp, outcome: None, most_bytes, sent: 0 };
        self.push(session, Item::Plan(Box::new(plan)));
    }

    /// The outcome of the plan with this id is there.
    pub fn end_plan(&mut self, id: u32, outcome: OwnedReply) {
        for item in self.outgoing.iter_mut().flat_map(|(_, items)| items) {
            if let Item::Plan(plan) = item
                && plan.id == id
                && plan.outcome.is_none()
            {
                plan.outcome = Some(outcome);
                return;
            }
        }
    }

    /// Keeps a reply until its sequence is durable, and all earlier output for the same session was
    /// sent.
    pub fn hold(&mut self, session: u16, reply: Vec<u8>, wait: u64) {
        self.push(session, Item::Reply(reply, wait));
    }

    /// One item more, or one less.
    fn count(&mut self, item: &Item, more: bool) {
        let by =
            |count: &mut usize, by: usize| *count = if more { *count + by } else { *count - by };
        match item {
            Item::Reply(reply, _) => {
                by(&mut self.held, 1);
                by(&mut self.held_bytes, reply.len());
            }
            Item::Value(value) => {
                by(&mut self.streams, 1);
                by(&mut self.held_bytes, value.from.held_bytes());
            }
            Item::Search(_) | Item::Command(_) => by(&mut self.streams, 1),
            Item::Plan(plan) => {
                let bytes = plan.most_bytes;
                by(&mut self.plans.0, 1);
                by(&mut self.plans.1, bytes as usize);
            }
        }
    }

    fn push(&mut self, session: u16, item: Item) {
        self.count(&item, true);
        match self.outgoing.iter_mut().find(|(number, _)| *number == session) {
            Some((_, items)) => items.push_back(item),
            None => {
                let mut items = self.spare.pop().unwrap_or_default();
                items.push_back(item);
                self.outgoing.push_back((session, items));
            }
        }
    }

    /// Whether replies to this session have to wait.
    pub fn holds_up(&self, session: u16) -> bool {
        self.outgoing.iter().any(|(number, _)| *number == session)
    }

    /// Continues one session of the client: sends the replies that may go, one piece of a value, or
    /// runs a turn of a search; nothing of the `blocked` ring sets. Returns its number; passes its
    /// replies that may be sent now to `replies`, in order.
    pub fn send_piece<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (link, blocked): (&mut AnyLink, u64),
        (by, now): (Answering, Now),
        replies: &mut Vec<Vec<u8>>,
    ) -> Result<Option<u16>, SessionError> {
        let next = self.next(blocked).and_then(|at| self.outgoing.remove(at));
        let Some((session, mut items)) = next else { return Ok(None) };
        self.has_sent = true;
        if let Some(Item::Value(value)) = items.front_mut() {
            let piece = match &value.from {
                Source::Download(download) => shard.piece(download, value.sent, STREAM_PIECE_BYTES),
                Source::Made(bytes) => {
                    let rest = &bytes[value.sent..];
                    &rest[..rest.len().min(STREAM_PIECE_BYTES)]
                }
            };
            link.post_to_named(WRITE_ID, &value.name, value.sent, piece);
            value.sent += piece.len();
            // Bounded by the posted operations.
            while link.poll().is_some() {}
            if let Some(failure) = link.failure() {
                self.outgoing.push_front((session, items));
                return Err(failure.into());
            }
        }
        self.begin_search(shard, &mut items, (by, now));
        if let Some(Item::Search(searching)) = items.front_mut() {
            let mut found = Vec::new();
            let ended =
                searching.turn(shard, (&mut self.scratch, now), |header, objects, wait| {
                    found.push(Item::Reply([header.as_bytes(), objects].concat(), wait));
                    Ok(())
                })?;
            if ended && let Some(search) = items.pop_front() {
                self.count(&search, false);
            }
            for reply in found.into_iter().rev() {
                self.count(&reply, true);
                items.push_front(reply);
            }
        }
        self.take_outcome(&mut items, by);
        // Bounded: each turn takes an item away, up to the next value or search.
        while let Some(item) = items.pop_front() {
            self.count(&item, false);
            let kept = match item {
                Item::Value(value) if value.is_sent() => {
                    value.from.end(shard, now);
                    Item::Reply(value.reply, value.wait)
                }
                Item::Reply(reply, wait) if wait <= self.durable => {
                    replies.push(reply);
                    continue;
                }
                kept => kept,
            };
            self.count(&kept, true);
            let goes_on = matches!(&kept, Item::Reply(_, wait) if *wait <= self.durable);
            items.push_front(kept);
            if !goes_on {
                break;
            }
        }
        self.put_back(session, items);
        Ok(Some(session))
    }

    /// Begins the search that a session has asked for next; it ends at once if searches are refused now.
    fn begin_search<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        items: &mut VecDeque<Item>,
        (by, now): (Answering, Now),
    ) {
        if let Some(Item::Command(command)) = items.front() {
            let begun = Searching::begin(shard, command, (by.stamp, now));
            let asked = items.pop_front().expect("it was there");
            self.count(&asked, false);
            let begun = match begun {
                Ok(searching) => Item::Search(Box::new(searching)),
                Err((reply, wait)) => Item::Reply(reply, wait),
            };
            self.count(&begun, true);
            items.push_front(begun);
        }
        if let (Some(Item::Search(searching)), Some(status)) = (items.front(), by.refusal) {
            let refused = Item::Reply(searching.refused(status, by.stamp), 0);
            let search = items.pop_front().expect("it was there");
            self.count(&search, false);
            self.count(&refused, true);
            items.push_front(refused);
        }
    }

    /// Makes the next part of a plan's outcome a reply, if it is there.
    fn take_outcome(&mut self, items: &mut VecDeque<Item>, by: Answering) {
        let Some(Item::Plan(plan)) = items.front_mut() else { return };
        if let (Some(outcome), Some(status)) = (&mut plan.outcome, by.refusal)
            && plan.sent == 0
        {
            *outcome = OwnedReply::status(status);
        }
        let part = plan.part();
        if part.as_ref().is_some_and(|(_, is_last)| *is_last)
            && let Some(plan) = items.pop_front()
        {
            self.count(&plan, false);
        }
        if let Some((reply, _)) = part {
            let reply = Item::Reply(reply, 0);
            self.count(&reply, true);
            items.push_front(reply);
        }
    }

    /// Puts what is left for a session behind the others: their turn comes first.
    fn put_back(&mut self, session: u16, items: VecDeque<Item>) {
        if !items.is_empty() {
            self.outgoing.push_back((session, items));
        } else if items.capacity() <= SPARE_ITEMS && self.spare.len() < SPARE_QUEUES {
            self.spare.push(items);
        }
    }

    /// The client has taken the content of a part of its buffer.
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
        (self.held, self.held_bytes, self.streams) = (0, 0, 0);
        self.plans = (0, 0);
        for (_, items) in self.outgoing.drain(..) {
            for item in items {
                if let Item::Value(value) = item {
                    value.from.end(shard, now);
                }
            }
        }
    }
}

impl Outgoing {
    fn is_sent(&self) -> bool {
        self.sent >= self.from.len()
    }
}

/// Takes the buffer's name from a frame's end.
pub fn split_name(frame: &[u8]) -> Option<(&[u8], BufferName)> {
    BufferName::read_from_suffix(frame).ok()
}
