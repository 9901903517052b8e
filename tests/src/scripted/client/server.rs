//! The server's side: its arena, its answers, and what no server does.

use crate::scripted::Script;
use remora_arena::{Mapping, NoJournal, Owner, Words};
use remora_client_core::{Clock, Parts};
use remora_engine::{Now, Shard, ShardOptions};
use remora_fabric::sim::{SimJournal, SimLink, SimTarget, SimWorld};
use remora_fabric::{AnyLink, Link, RemoteAddress, Work};
use remora_index::hash::TableRef;
use remora_layout::buffer_name::BufferName;
use remora_layout::frame::{first_word, ring_seed};
use remora_layout::hello::ServerHello;
use remora_layout::lag::Lag;
use remora_layout::limits::{LARGE_BUFFER_BYTES, MAX_VALUE_BYTES};
use remora_layout::pointer::RemotePointer;
use remora_layout::session::{
    CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat, WITHDRAWN_WORD, credit_word, mailbox_bytes,
    ring_offset,
};
use remora_protocol::message::{
    CALL_OFF, HAS_VALUE, IN_BUFFER, PIECE, RELEASE, ReplyHeader, RequestHeader, Status, form,
};
use remora_protocol::{Command, Condition, Expiry};
use remora_ring::{Poll, Receiver, SendError, Sender, WRITE_ID};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const INCARNATION: u64 = 3;
const SEED: u64 = 0x5eed_0000_0000_0008;
const SESSION: u64 = 9;
const ARENA_BYTES: usize = 1 << 20;
/// Regions of the client's end, as the server's link has them.
const TO_CLIENT: u32 = 0;
const LARGE: u32 = 1;
/// Keys in the arena.
pub const KEYS: usize = 40;
/// Turns of one script's server at most, and the time between two.
const TURNS: u32 = 4_000;
const TURN_NS: u64 = 100_000;
/// Looks at the clock that a script takes at most: far more than it can need.
const MOST_LOOKS: u64 = 2_000_000;
/// An arena as an honest server leaves it.
struct Arena {
    bytes: Vec<u8>,
    pointers: Vec<RemotePointer>,
}

thread_local! {
    static ARENA: Arena = arena();
    /// No code reads it before it was written, so that one serves all scripts.
    static BUFFER: Words = Words::new(Mapping::heap(LARGE_BUFFER_BYTES));
}

/// A key's bytes.
pub fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// What is its value.
pub fn value(number: usize) -> Vec<u8> {
    vec![number as u8; if number == 0 { 70_000 } else { 37 * number }]
}

fn arena() -> Arena {
    let mut shard = Shard::new(Owner::heap(ARENA_BYTES, NoJournal), ShardOptions::default());
    let now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
    let mut pointers = Vec::new();
    for number in 0..KEYS {
        let (key, value) = (key(number), value(number));
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key: &key, value: &value, condition, expiry, get: false };
        let hash = shard.hash(&key);
        let reply = shard.execute(&set, hash, now);
        assert_eq!(reply.status, Status::Ok);
        pointers.push(reply.pointer);
    }
    let mut bytes = vec![0; ARENA_BYTES];
    shard.owner().view().copy_out(0, &mut bytes);
    // The rest is zero in a fresh arena too.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    Arena { bytes, pointers }
}

/// A request, as far as the server looks at it.
struct Request {
    id: u32,
    /// The number of its key, if it is one of ours.
    key: Option<usize>,
    buffer: Option<BufferName>,
}

/// The server.
pub struct Server {
    script: Vec<u8>,
    /// How many of 256 answers are odd ones, and turns with a further oddity.
    temper: u8,
    at: usize,
    turns: u32,
    arena: Words,
    to_server: Words,
    receiver: Receiver,
    sender: Sender,
    link: AnyLink,
    /// Replies that are sent when this turn has come, and there is room.
    late: VecDeque<Vec<u8>>,
    late_until: u32,
    beats: u64,
    pointers: Vec<RemotePointer>,
    /// Words of the arena up to the last one that is not 0.
    used_words: usize,
}

impl Server {
    /// A server, and what a client needs to connect to it.
    pub fn new(world: &SimWorld, mut script: Script<'_>) -> (Arc<Mutex<Self>>, Parts) {
        let arena = Words::new(Mapping::heap(ARENA_BYTES));
        let (pointers, used_words) = ARENA.with(|honest| {
            arena.copy_in(0, &honest.bytes);
            (honest.pointers.clone(), honest.bytes.len() / 8)
        });
        let table = TableRef::read(0, &arena.view()).expect("an honest arena");
        let to_server = Words::new(Mapping::heap(mailbox_bytes(1)));
        let to_client = Words::new(Mapping::heap(mailbox_bytes(1)));
        let buffer = BUFFER.with(Clone::clone);
        let (target, back) = (SimTarget::new(), SimTarget::new());
        target.expose(0, arena.view(), SimJournal::new());
        target.mailbox(1, to_server.clone());
        back.mailbox(TO_CLIENT, to_client.clone());
        back.mailbox(LARGE, buffer.clone());
        let mut hello = ServerHello::new_zeroed();
        hello.session = SESSION.into();
        hello.incarnation = INCARNATION.into();
        hello.session_seed = SEED.into();
        hello.shards = 1.into();
        let looks = AtomicU64::new(0);
        let time = world.clone();
        let clock = Clock::Given(Arc::new(move || {
            let looks = looks.fetch_add(1, Ordering::Relaxed);
            assert!(looks < MOST_LOOKS, "an operation does not end");
            time.now_ns() + 1
        }));
        let ring = ring_offset(0);
        let server = Self {
            temper: script.byte(),
            script: script.rest().to_vec(),
            at: 0,
            turns: 0,
            arena,
            receiver: Receiver::new(to_server.view(), ring, ring_seed(SEED, 0, 0)),
            sender: Sender::new(TO_CLIENT, ring as u64, ring_seed(SEED, 0, 1)),
            to_server,
            link: AnyLink::Other(Box::new(SimLink::new(world, &back))),
            late: VecDeque::new(),
            late_until: 0,
            beats: 0,
            pointers,
            used_words,
        };
        let world = world.clone();
        let link = move || {
            let mut link = SimLink::new(&world, &target);
            link.listen(&back);
            AnyLink::Other(Box::new(link))
        };
        let parts = Parts {
            hello,
            tables: vec![table],
            to_client: to_client.view(),
            large: buffer.view(),
            link: Box::new(link),
            clock,
            pointers: None,
        };
        (Arc::new(Mutex::new(server)), parts)
    }

    /// Lets the server have its turns while time passes.
    pub fn turn_again(server: Arc<Mutex<Self>>, world: &SimWorld) {
        let again = world.clone();
        world.schedule(TURN_NS, move || {
            let more = server.lock().expect("one thread").turn();
            if more {
                Self::turn_again(server, &again);
            }
        });
    }

    /// One turn. Whether there may be another.
    fn turn(&mut self) -> bool {
        self.turns += 1;
        while self.link.poll().is_some() {}
        while self.turns >= self.late_until
            && let Some(reply) = self.late.front()
        {
            let reply = reply.clone();
            if !self.put_into_ring(&reply) {
                break;
            }
            self.late.pop_front();
        }
        for _ in 0..16 {
            let mut payload = Vec::new();
            match self.receiver.poll(&mut payload) {
                Poll::Frame(_) => {}
                Poll::Empty | Poll::Torn => break,
                Poll::Violated(violation) => panic!("the client: {violation}"),
            }
            if let Some(credit) = self.receiver.credit_due() {
                self.write(TO_CLIENT, credit_word(0), &credit.to_le_bytes());
            }
            self.request(&payload);
        }
        let bytes = std::mem::take(&mut self.script);
        let mut script = Script::new(&bytes[self.at..]);
        if script.byte() < self.temper {
            self.meddle(&mut script);
        } else {
            self.beat();
        }
        self.at = bytes.len() - script.rest().len();
        self.script = bytes;
        self.turns < TURNS
    }

    fn request(&mut self, payload: &[u8]) {
        let (header, rest) = RequestHeader::read_from_prefix(payload).expect("an honest client");
        if [PIECE, RELEASE, CALL_OFF].contains(&header.op) {
            // A request in pieces is answered when it begins, as if refused.
            return;
        }
        let key = &rest[..(header.key_bytes.get() as usize).min(rest.len())];
        let key = (0..KEYS).find(|number| self::key(*number) == key);
        let names_buffer = header.form & form::BUFFER != 0;
        let buffer = BufferName::read_from_suffix(payload).ok().filter(|_| names_buffer);
        let request = Request { id: header.id.get(), key, buffer: buffer.map(|(_, name)| name) };
        let bytes = std::mem::take(&mut self.script);
        let mut script = Script::new(&bytes[self.at..]);
        // One that answers well is at a long step now and then, for up to 2.5
        // of the client's time-outs.
        if self.temper < 8 && script.one_in(16) {
            self.late_until = self.turns + 2 * script.byte() as u32;
        }
        self.answer(&request, &mut script);
        self.at = bytes.len() - script.rest().len();
        self.script = bytes;
    }

    fn answer(&mut self, request: &Request, script: &mut Script<'_>) {
        let mut reply = ReplyHeader::new_zeroed();
        reply.id = request.id.into();
        reply.incarnation = INCARNATION.into();
        let mut value = Vec::new();
        let is_odd = script.byte() < self.temper;
        match script.below(9) + if is_odd { 7 } else { 0 } {
            // As an honest server answers one request or another.
            0..=4 => {
                if let Some(key) = request.key {
                    value = self::value(key);
                    value.truncate(60_000);
                    let [low, high] = self.pointers[key].to_words();
                    reply.pointer = [low.into(), high.into()];
                    reply.lease_ms = 1_000.into();
                }
                reply.flags = HAS_VALUE;
                reply.value_bytes = (value.len() as u32).into();
            }
            5 => reply.number = 1.into(),
            6 => reply.status = Status::NotFound as u8,
            7 | 8 if request.buffer.is_none() => {
                reply.status = Status::NeedsBuffer as u8;
                let numbers = [0, 100, 70_000, MAX_VALUE_BYTES as i64 + 1, i64::MAX, i64::MIN];
                reply.number = script.pick(&numbers).into();
            }
            7 | 8 => {
                let whole = request.buffer.map_or(0, |name| name.bytes.get());
                reply.flags = IN_BUFFER;
                let bytes = whole.min(if script.one_in(64) { whole } else { 100_000 });
                let odd = script.pick(&[whole + 1, u32::MAX]);
                reply.value_bytes = if is_odd { odd } else { bytes }.into();
                if let Some(name) = request.buffer {
                    self.write(LARGE, name.address.get() as usize / 8, &[8; 400]);
                }
            }
            // As none does.
            9 => {
                reply.status = script.pick(&[0, 0, 1, 2, 9, 77]);
                reply.flags = script.byte() % 5;
                value = vec![1; script.pick(&[0, 0, 5, 99])];
                let bytes = script.pick(&[value.len() as u32, 0, 1, 70_000, u32::MAX]);
                reply.value_bytes = bytes.into();
            }
            10 => reply.id = (request.id ^ script.pick(&[1, 1 << 16, 1 << 17, u32::MAX])).into(),
            11 => {
                let [low, high] = [script.word(), script.word()];
                reply.pointer = [low.into(), high.into()];
                reply.lease_ms = (script.word() as u32).into();
            }
            12 => self.send(&[reply.as_bytes()]),
            13 => return,
            14 => {
                reply.incarnation = script.pick(&[INCARNATION, 0, INCARNATION + 1, u64::MAX]).into()
            }
            _ => return self.send(&[script.bytes()]),
        }
        self.send(&[reply.as_bytes(), &value]);
    }

    /// Sends a reply, behind those that are late.
    fn send(&mut self, parts: &[&[u8]]) {
        let reply = parts.concat();
        if self.turns < self.late_until || !self.late.is_empty() || !self.put_into_ring(&reply) {
            self.late.push_back(reply);
        }
    }

    /// False if there is no room.
    fn put_into_ring(&mut self, reply: &[u8]) -> bool {
        // The client is honest: its credit makes sense.
        self.sender.take_credit(self.to_server.load(credit_word(0))).expect("the client's credit");
        match self.sender.send(&mut self.link, &[reply]) {
            Ok(()) => true,
            Err(SendError::Full) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn write(&mut self, region: u32, word: usize, bytes: &[u8]) {
        let to = RemoteAddress { region, offset: word as u64 * 8 };
        self.link.post(&[Work::Write { id: WRITE_ID, to, bytes, imm: None }]);
    }

    fn beat(&mut self) {
        self.beats += 1;
        let beat = Heartbeat {
            sequence: self.beats,
            utilisation_ppm_plus_1: 1,
            wait_ns: 0,
            incarnation: INCARNATION,
            epoch: 1,
            topology: 0,
            server_unix_ms: 1_700_000_000_000,
            echoed_client_clock_ns: self.to_server.load(CLIENT_CLOCK_WORD),
            session: SESSION,
            lag: Lag::PRIMARY,
        };
        self.write_beat(beat);
    }

    fn write_beat(&mut self, beat: Heartbeat) {
        let bytes: Vec<u8> = beat.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(TO_CLIENT, HEARTBEAT_WORD, &bytes);
    }

    /// Something that no server does.
    fn meddle(&mut self, script: &mut Script<'_>) {
        match script.below(10) {
            0 => {
                let beat = Heartbeat {
                    sequence: script.pick(&[0, self.beats + 1, u64::MAX]),
                    utilisation_ppm_plus_1: script.word() as u32,
                    wait_ns: script.word() as u32,
                    incarnation: INCARNATION + script.one_in(16) as u64,
                    epoch: script.word(),
                    topology: 0,
                    server_unix_ms: script.word(),
                    echoed_client_clock_ns: script.word() >> script.below(64),
                    session: SESSION,
                    lag: Lag::PRIMARY,
                };
                self.write_beat(beat);
            }
            1 => self.write(TO_CLIENT, credit_word(0), &script.word().to_le_bytes()),
            2 => {
                let seed = ring_seed(SEED, 0, 1);
                let word = first_word(script.byte() as u32, script.word() as u32, seed);
                let at = ring_offset(0) / 8 + script.below(64) * 8;
                self.write(TO_CLIENT, at, &[&word.to_le_bytes()[..], script.bytes()].concat());
            }
            3 => {
                let word = script.word() as usize % (mailbox_bytes(1) / 8);
                self.write(TO_CLIENT, word, &script.word().to_le_bytes());
            }
            4 if script.one_in(8) => self.write(TO_CLIENT, WITHDRAWN_WORD, &[1]),
            // A reply without a request.
            5 => {
                let mut reply = ReplyHeader::new_zeroed();
                reply.id = (script.word() as u32 & 0x0001_0003).into();
                reply.incarnation = INCARNATION.into();
                self.send(&[reply.as_bytes()]);
            }
            // The arena: its header page, its table, any word, any bit.
            6 => self.arena.store(script.below(64), script.word()),
            7 => self.arena.store(512 + script.word() as usize % 1_024, script.word()),
            8 => self.arena.store(script.word() as usize % self.used_words, script.word()),
            _ => {
                let index = script.word() as usize % self.used_words;
                let bit = 1 << script.below(64);
                self.arena.store(index, self.arena.load(index) ^ bit);
            }
        }
    }
}
