//! A client by script against one production ring session and its shard.
//!
//! The client sends whole frames, frames of which something is wrong, values
//! in pieces and out of turn; it writes any word of its mailbox, tells credit
//! that it never got, and vanishes. What must hold:
//! * the session works, or ends with an error: it never panics;
//! * as long as the client keeps to the protocol, each request is answered
//!   once, the requests of one thread in their order, and a session that says
//!   that it has nothing to do has indeed nothing to do;
//! * once the session is given up the shard holds nothing for it, and other
//!   people's keys are what they were.

mod acts;
mod shapes;

use super::Script;
use super::direct::Direct;
use remora_arena::{Mapping, NoJournal, Owner, Words};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_fabric::AnyLink;
use remora_fabric::remote::{CLIENT_LARGE, CLIENT_MAILBOX};
use remora_layout::frame::ring_seed;
use remora_layout::limits::{
    FRAMES_PER_TURN, LARGE_BUFFER_BYTES, MAX_INLINE_BYTES, STREAM_BYTES, TORN_FRAME_MS,
};
use remora_layout::session::{credit_word, mailbox_bytes, ring_offset};
use remora_protocol::message::{HAS_VALUE, IN_BUFFER, MORE, ReplyHeader, Status};
use remora_protocol::{Command, Condition, Expiry};
use remora_ring::{Poll, Receiver, Sender};
use remora_server::TurnView;
use remora_server::ring_session::{ClientEnd, RemoteEnd, RingParts, RingSession, SessionError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use zerocopy::FromBytes;

const INCARNATION: u64 = 3;
const SEED: u64 = 0x5eed_0000_0000_0007;
const ARENA_BYTES: usize = 2 << 20;
const MAILBOX: u32 = 0;
/// Actions of one script at most.
const ACTIONS: usize = 400;
/// Ids of requests that are answered once come from this bit on; pieces and
/// what belongs to them have the others.
const ANSWERED: u32 = 0x8000;
/// What no key of the client contains.
const OTHERS: &[u8; 12] = b"\xf1somebody's-";
const OTHERS_KEYS: usize = 4;

const LENGTHS: [usize; 10] = [0, 1, 7, 40, 400, 5_000, 17_000, 30_000, 65_000, 90_000];
const TIMES_MS: [u64; 5] = [1, 20, TORN_FRAME_MS / 2, 2 * TORN_FRAME_MS, 70_000];

thread_local! {
    /// The client's buffer for large replies. No code reads it before it was
    /// written, so that one serves all scripts.
    static LARGE: Words = Words::new(Mapping::heap(LARGE_BUFFER_BYTES));
}

/// What came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Frames that the session executed.
    pub frames: usize,
    /// Replies that were taken and held what they must.
    pub replies: usize,
    /// Of them, with a value in the client's buffer.
    pub in_buffer: usize,
    /// Values that came whole in pieces, and were set.
    pub uploads: usize,
    /// Replies to refined searches that found something.
    pub refined: usize,
    /// How the session ended, if it did.
    pub ended: Option<SessionError>,
}

struct Peer<'s> {
    script: Script<'s>,
    shard: Shard,
    session: RingSession,
    to_server: Words,
    to_client: Words,
    sender: Sender,
    /// Bytes of ring used, and frames sent: where a broken frame has to stand.
    sent: u64,
    sequence: u32,
    link: AnyLink,
    lost: Arc<AtomicBool>,
    receiver: Receiver,
    now: Now,
    /// The client has kept to the protocol so far.
    is_honest: bool,
    next_id: u32,
    /// Unanswered requests of each of the client's threads.
    awaited: BTreeMap<u16, VecDeque<u32>>,
    /// Requests that were refined searches.
    refined: BTreeSet<u32>,
    /// Bytes of the buffers that requests named.
    named: BTreeMap<u32, u64>,
    /// Bytes that values announced last still lack.
    missing: BTreeMap<u32, usize>,
    others: Vec<Vec<u8>>,
    /// Whether the client has removed or may have changed others' keys, which
    /// it may do; and whether they may have been evicted.
    may_differ: bool,
    may_miss: bool,
    seen: Seen,
}

/// Flags of a reply that another one to the same request follows.
const PART: u8 = HAS_VALUE | MORE;

/// Plays a client.
pub fn run(script: &[u8]) -> Seen {
    let mut peer = Peer::new(Script::new(script));
    for _ in 0..ACTIONS {
        if peer.script.is_over() || peer.seen.ended.is_some() {
            break;
        }
        peer.act();
    }
    peer.come_to_an_end();
    peer.seen
}

impl<'s> Peer<'s> {
    fn new(mut script: Script<'s>) -> Self {
        let evicts = script.one_in(4);
        let eviction = if evicts { Eviction::S3Fifo } else { Eviction::None };
        let upload_idle_s = 1;
        let options = ShardOptions {
            incarnation: INCARNATION,
            eviction,
            upload_idle_s,
            ..ShardOptions::default()
        };
        let shard = Shard::new(Owner::heap(ARENA_BYTES, NoJournal), options);
        let to_server = Words::new(Mapping::heap(mailbox_bytes(1)));
        let to_client = Words::new(Mapping::heap(mailbox_bytes(1)));
        let lost = Arc::new(AtomicBool::new(false));
        // By number: the regions of the session's link.
        const { assert!(CLIENT_MAILBOX == 0 && CLIENT_LARGE == 1) };
        let back = vec![to_client.clone(), LARGE.with(Clone::clone)];
        let session = RingSession::new(RingParts {
            session: 1,
            seed: SEED,
            shard: 0,
            incarnation: INCARNATION,
            arenas: Arc::from([shard.owner().view().clone()]),
            touched: Arc::default(),
            to_server: to_server.view(),
            link: AnyLink::Other(Box::new(Direct::new(back, Arc::clone(&lost)))),
            client: ClientEnd::Remote(RemoteEnd::unmarked(0)),
            large: None,
            violated: Arc::new(AtomicBool::new(false)),
            threads: Arc::default(),
            searches: Arc::default(),
            view: TurnView::of_primary(),
        });
        let never = Arc::new(AtomicBool::new(false));
        let link = AnyLink::Other(Box::new(Direct::new(vec![to_server.clone()], never)));
        let ring = ring_offset(0);
        let mut peer = Self {
            script,
            shard,
            session,
            sender: Sender::new(MAILBOX, ring as u64, ring_seed(SEED, 0, 0)),
            receiver: Receiver::new(to_client.view(), ring, ring_seed(SEED, 0, 1)),
            to_server,
            to_client,
            sent: 0,
            sequence: 0,
            link,
            lost,
            now: Now { unix_ms: 1_700_000_000_000, since_start_s: 1 },
            is_honest: true,
            next_id: 0,
            awaited: BTreeMap::new(),
            refined: BTreeSet::new(),
            named: BTreeMap::new(),
            missing: BTreeMap::new(),
            others: vec![Vec::new(); OTHERS_KEYS],
            may_differ: false,
            may_miss: evicts,
            seen: Seen::default(),
        };
        (0..OTHERS_KEYS).for_each(|key| peer.others_set(key, 50 * key + 20));
        peer
    }

    fn act(&mut self) {
        match self.script.below(16) {
            0..=3 => self.request(),
            4 => self.announce(),
            5 | 6 => self.piece(),
            7 => self.request_with_buffer(),
            8 if self.script.one_in(4) => self.release(),
            8 => self.odd_payload(),
            9 => self.turns(4),
            10 => self.turns(1),
            11 => {
                let most = self.script.below(40);
                self.take_replies(most);
            }
            12 => self.pass(),
            13 => {
                let key = self.script.below(OTHERS_KEYS);
                let length = self.script.pick(&LENGTHS);
                self.others_set(key, length);
            }
            14 => self.take_all(),
            _ => self.misbehave(),
        }
    }

    // What the server does, and what the client sees of it.

    fn turns(&mut self, most: usize) {
        for _ in 0..most {
            // As the shard's loop does.
            if self.shard.wants_release() {
                self.shard.release_some(self.now);
            }
            let has_work = self.session.has_work();
            match self.session.turn(&mut self.shard, self.now) {
                Ok(frames) => {
                    assert!(frames <= FRAMES_PER_TURN && (has_work || frames == 0));
                    self.seen.frames += frames;
                }
                Err(error) => {
                    assert!(!self.is_honest, "an honest client was cut off: {error}");
                    self.session.give_up(error);
                    self.seen.ended = Some(error);
                    return;
                }
            }
        }
    }

    fn let_pass(&mut self, ms: u64) {
        self.now.unix_ms += ms;
        self.now.since_start_s = (self.now.unix_ms - 1_700_000_000_000) / 1_000 + 1;
    }

    fn pass(&mut self) {
        let ms = self.script.pick(&TIMES_MS);
        self.let_pass(ms);
        self.shard.tick(self.now);
        let looked = self.session.abandon_stalled(&mut self.shard, self.now);
        assert!(looked.is_ok() || !self.is_honest, "an honest client was cut off: {looked:?}");
    }

    /// Takes up to so many replies, and gives credit as it becomes due.
    fn take_replies(&mut self, most: usize) -> usize {
        for taken in 0..most {
            let mut payload = Vec::new();
            match self.receiver.poll(&mut payload) {
                Poll::Frame(_) => self.reply(&payload),
                Poll::Empty => return taken,
                poll => {
                    // Its own credit let the server write over it.
                    assert!(!self.is_honest, "the server wrote {poll:?}");
                    return taken;
                }
            }
            if let Some(credit) = self.receiver.credit_due() {
                self.to_server.store(credit_word(0), credit);
            }
        }
        most
    }

    fn reply(&mut self, payload: &[u8]) {
        let (header, value) = ReplyHeader::read_from_prefix(payload).expect("a reply's header");
        let status = Status::from_number(header.status).expect("a known status");
        let bytes = header.value_bytes.get() as usize;
        let id = header.id.get();
        match header.flags {
            0 => assert!(value.is_empty() && bytes == 0),
            HAS_VALUE => assert!(value.len() == bytes && bytes <= STREAM_BYTES),
            PART => assert!(value.len() == bytes && bytes > 0 && bytes < MAX_INLINE_BYTES),
            IN_BUFFER => {
                assert!(value.is_empty() && bytes > STREAM_BYTES);
                if self.is_honest {
                    assert!(bytes as u64 <= self.named[&id], "beyond the buffer");
                }
                self.seen.in_buffer += 1;
            }
            flags => panic!("flags {flags}"),
        }
        assert_eq!(header.incarnation.get(), INCARNATION);
        self.seen.replies += 1;
        let is_upload = id & ANSWERED == 0 && status == Status::Ok && header.pointer[0].get() != 0;
        self.seen.uploads += is_upload as usize;
        let has_found = status == Status::Ok && bytes > 0;
        self.seen.refined += (has_found && self.refined.contains(&id)) as usize;
        if !self.is_honest {
            return;
        }
        let awaited = self.awaited.entry((id >> 16) as u16).or_default();
        if header.flags == PART {
            assert_eq!(awaited.front(), Some(&id), "a part of a reply in its turn");
        } else if id & ANSWERED != 0 {
            assert_eq!(awaited.pop_front(), Some(id), "replies in the order of requests");
        }
    }

    /// Serves and takes replies until there is nothing to do.
    fn take_all(&mut self) {
        // Bounded: each turn serves what was sent, and nothing is sent.
        while self.seen.ended.is_none() && (self.take_replies(64) > 0 || self.session.has_work()) {
            let frames = self.seen.frames;
            self.turns(1);
            if !self.is_honest && self.seen.frames == frames {
                // What it broke may look like work for ever.
                self.let_pass(TORN_FRAME_MS / 16);
                self.turns(1);
                break;
            }
        }
    }

    // Somebody else, and the end.

    fn others_key(key: usize) -> Vec<u8> {
        [&OTHERS[..], &[key as u8]].concat()
    }

    fn others_set(&mut self, key: usize, length: usize) {
        let value = vec![self.script.byte(); length];
        let name = Self::others_key(key);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let command = Command::Set { key: &name, value: &value, condition, expiry, get: false };
        let hash = self.shard.hash(&name);
        match self.shard.execute(&command, hash, self.now).status {
            Status::Ok => self.others[key] = value,
            status => assert_eq!(status, Status::OutOfMemory),
        }
    }

    fn come_to_an_end(&mut self) {
        self.turns(if self.seen.ended.is_none() { 1 } else { 0 });
        self.take_all();
        if self.is_honest {
            let unanswered = self.awaited.values().map(VecDeque::len).sum::<usize>();
            assert_eq!(unanswered, 0, "a request was never answered");
        }
        self.session.abandon(&mut self.shard, self.now);
        let stats = self.shard.stats();
        assert_eq!(stats.pinned, 0, "a value is still held for the session");
        for key in 0..OTHERS_KEYS {
            let name = Self::others_key(key);
            let hash = self.shard.hash(&name);
            match self.shard.execute(&Command::Get { key: &name }, hash, self.now).value {
                Some(value) if !self.may_differ => assert!(value == self.others[key]),
                Some(_) => {}
                None => assert!(self.may_differ || self.may_miss, "somebody's key is gone"),
            }
        }
        // Without keys and leases nothing is in use: what was is a leak.
        self.shard.execute(&Command::Flush, remora_layout::hash::KeyHash(0), self.now);
        // Bounded: each turn releases something.
        while self.shard.wants_release() {
            self.shard.release_some(self.now);
        }
        self.now.unix_ms += 1_000_000;
        self.now.since_start_s += 1_000;
        self.shard.tick(self.now);
        let slots = self.shard.stats().slots;
        assert_eq!((slots.used_bytes, slots.quarantine_bytes), (0, 0), "memory is still in use");
    }
}
