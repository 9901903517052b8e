//! What the client sends and writes.

use super::shapes::{geometry, refine};
use super::{ANSWERED, LENGTHS, OTHERS, Peer, SEED, TIMES_MS};
use remora_engine::{Now, Shard};
use remora_geometry::Wkb;
use remora_layout::buffer_name::BufferName;
use remora_layout::frame::{FRAME_HEADER_BYTES, WRAP, first_word, frame_bytes, frame_checksum};
use remora_layout::frame::{MAX_PAYLOAD_BYTES, ring_seed};
use remora_layout::kind::Kind;
use remora_layout::limits::{LARGE_BUFFER_BYTES, MAX_VALUE_BYTES, RING_BYTES, STREAM_PIECE_BYTES};
use remora_layout::node::NodeRef;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::session::{credit_word, ring_offset};
use remora_layout::tree::{RootPlace, TreeInfo, TreeKind};
use remora_protocol::message::{Op, PIECE, RELEASE, RequestHeader, form};
use remora_protocol::tree::{Objects, ReadObjects, TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, Expiry, Operation, Request};
use remora_ring::SendError;
use zerocopy::{FromZeros, IntoBytes};

const KEYS: [&[u8]; 8] = [b"a", b"a", b"a", b"b", b"key:2", b"", &[b'k'; 300], &[b'l'; 9000]];
const NUMBERS: [f64; 6] = [9.0, 9.0, 4.0, -1.0, f64::NAN, f64::INFINITY];
const LARGE_LENGTHS: [usize; 9] =
    [0, 1, 1_000, 65_537, 70_000, 200_000, 1_500_000, MAX_VALUE_BYTES + 1, u32::MAX as usize];
const PIECES: [usize; 6] = [0, 1, 1_000, 60_000, 65_536, 90_000];
const OFFSETS: [u64; 9] =
    [0, 0, 8, 65_536, 4, 65_536, LARGE_BUFFER_BYTES as u64 - 8, u64::MAX - 7, 1 << 27];
const BUFFERS: [u32; 8] = [
    0,
    100,
    70_000,
    1 << 21,
    MAX_VALUE_BYTES as u32,
    MAX_VALUE_BYTES as u32,
    LARGE_BUFFER_BYTES as u32,
    u32::MAX,
];

fn header(op: u8, form: u8, id: u32) -> RequestHeader {
    RequestHeader { op, form, id: id.into(), ..RequestHeader::new_zeroed() }
}

impl Peer<'_> {
    // What a client asks for.

    fn id(&mut self, answered: bool) -> u32 {
        let thread = self.script.pick(&[0u32, 0, 1, 4095, 65_535]);
        let bit = if answered { ANSWERED } else { 0 };
        if answered {
            self.next_id = (self.next_id + 1) % ANSWERED;
        }
        let number = if answered { self.next_id } else { self.script.below(4) as u32 };
        thread << 16 | bit | number
    }

    /// One encoded command with this id.
    fn command(&mut self, id: u32) -> Vec<u8> {
        let script = &mut self.script;
        let key = script.pick(&KEYS);
        let value = vec![script.byte(); script.pick(&LENGTHS)];
        let value = &value[..];
        let at_ms = self.now.unix_ms + script.pick(&TIMES_MS) - 10;
        let condition =
            script.pick(&[Condition::Always, Condition::IfAbsent, Condition::IfPresent]);
        let command = match script.below(26) {
            0 | 1 => Command::Get { key },
            2 | 3 => {
                Command::Set { key, value, condition, expiry: Expiry::Never, get: script.one_in(4) }
            }
            4 => Command::Set { key, value, condition, expiry: Expiry::At(at_ms), get: false },
            5 => Command::Set { key, value, condition, expiry: Expiry::Keep, get: false },
            6 => Command::Del { key },
            7 => Command::Exists { key },
            8 => Command::Incr { key, by: script.word() as i64 },
            9 => Command::Expire { key, at_ms, condition: Default::default() },
            10 => Command::Ttl { key },
            11 => Command::Append { key, value },
            12 => Command::SetRange { key, offset: script.word() % (1 << 21), value },
            13 => Command::GetRange { key, start: script.word() as i32, end: -1 },
            14 => Command::SetBit { key, offset: script.word() as u32 % (1 << 23), bit: true },
            15 => Command::GetBit { key, offset: script.word() as u32 },
            16 => Command::StrLen { key },
            17 => Command::GetDel { key },
            18 => Command::GetEx { key, at_ms: Some(at_ms) },
            19..=25 if !script.one_in(16) => return self.tree_command(id),
            _ if script.one_in(16) => Command::Flush,
            _ => Command::Count,
        };
        let mut bytes = Vec::new();
        command.encode_into(id, &mut bytes);
        bytes
    }

    /// One encoded command about a tree with this id, or something like it.
    fn tree_command(&mut self, id: u32) -> Vec<u8> {
        let script = &mut self.script;
        let name = script.pick(&[&b"t"[..], b"t", b"t", b"t", b"u", b"a"]);
        let number = script.pick(&NUMBERS);
        let (x, y) = (script.below(8) as f64, script.below(8) as f64);
        let rect = Rect { min_x: x, max_x: x + script.below(3) as f64, min_y: y, max_y: y };
        let window = Rect { min_x: 0.0, max_x: number, min_y: -9.0, max_y: 9.0 };
        let predicate = script.pick(&[Predicate::Intersects, Predicate::Within]);
        let object = script.below(40) as u64;
        let data = vec![script.byte(); script.pick(&LENGTHS)];
        let choice = script.below(22);
        let is_put = (1..=6).contains(&choice);
        let shape = if is_put { geometry(script) } else { None };
        let (wkb, rect) = match shape {
            // Now and then not within its bounds.
            Some(shape) if !script.one_in(8) => (Some(shape.to_wkb()), shape.bounds()),
            shape => (shape.map(|shape| shape.to_wkb()), rect),
        };
        let refine = if (15..=18).contains(&choice) { refine(script) } else { Vec::new() };
        let ids: Vec<u8> = (0..40_u64).flat_map(u64::to_le_bytes).collect();
        let mut list = Vec::new();
        let is_list = choice == 19;
        for more in 0..if is_list { script.below(60) as u64 } else { 0 } {
            Objects::push(&mut list, more * 7 % 57, &rect);
        }
        let objects = Objects::parse(&list).expect("a list");
        let kind = script.pick(&[TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert]);
        let capacity = script.pick(&[0, 0, 4, 5, 30, 1024, 70_000]);
        let load = script.below(2) as u64;
        let at = NodeRef { slot: script.word() as u32, generation: 1 };
        // No byte more of the script: its seeds found much.
        let root = RootPlace { record: at.slot.rotate_left(8), at };
        let command = match choice {
            0 | 20 | 21 => TreeCommand::Create(TreeSettings { kind, capacity, bounds: window }),
            1 if script.one_in(4) => TreeCommand::Drop,
            1..=6 => {
                let geometry = wkb.as_deref().map(|wkb| Wkb::known(wkb, rect));
                TreeCommand::put(object, rect, script.one_in(3).then_some(&data), geometry)
            }
            7 => TreeCommand::Remove { id: object.into() },
            8 => TreeCommand::Get { id: object.into() },
            9 | 10 => TreeCommand::Search { window, predicate },
            11 => TreeCommand::SearchAt { window, predicate, shard: script.byte() % 64, root },
            12 => TreeCommand::Count { window, predicate },
            13 => TreeCommand::Nearest { x, y: number, wanted: script.word() as u32 % 3_000 },
            14 => TreeCommand::Info,
            15..=18 => {
                let objects = objects_of(&mut self.shard, (name, at), &ids, self.now);
                let of = script.one_in(2).then_some(objects);
                TreeCommand::Refine { refine: &refine, of }
            }
            _ if script.one_in(3) => TreeCommand::Build { load },
            _ => TreeCommand::Stage { load, first: script.one_in(3), objects },
        };
        let mut bytes = Vec::new();
        match command.checked().map(TreeCommand::request) {
            Ok(request) => Command::Of { key: name, request }.encode_into(id, &mut bytes),
            // What no client would send: any numbers.
            Err(_) => {
                let mut scratch = Vec::new();
                let value = command.encode(&mut scratch).value;
                let op = script.below(16) as u8;
                let header = RequestHeader {
                    of: script.pick(&[Kind::RTREE.0, Kind::SORTED_SET.0, 255]),
                    flags: script.pick(&[0, 0, 1, 2, 255]),
                    key_bytes: (name.len() as u32).into(),
                    value_bytes: (value.len() as u32).into(),
                    argument: (script.word() as i64).into(),
                    ..header(op, 0, id)
                };
                bytes = [header.as_bytes(), name, value].concat();
            }
        }
        bytes
    }

    pub(super) fn request(&mut self) {
        let id = self.id(true);
        let payload = self.command(id);
        if payload.len() <= MAX_PAYLOAD_BYTES && self.send(&payload) {
            self.await_reply(id);
            if is_refined(&payload) {
                self.refined.insert(id);
            }
        }
    }

    pub(super) fn request_with_buffer(&mut self) {
        let id = self.id(true);
        let mut payload = if self.script.one_in(3) {
            self.command(id)
        } else {
            let mut get = Vec::new();
            Command::Get { key: self.script.pick(&KEYS) }.encode_into(id, &mut get);
            get
        };
        payload[2] = form::BUFFER;
        let name = self.name();
        payload.extend(name.as_bytes());
        if payload.len() <= MAX_PAYLOAD_BYTES && self.send(&payload) {
            self.await_reply(id);
            self.named.insert(id, name.bytes.get() as u64);
        }
    }

    /// A name, often of memory that there is not.
    fn name(&mut self) -> BufferName {
        BufferName {
            address: self.script.pick(&OFFSETS).into(),
            bytes: self.script.pick(&BUFFERS).into(),
            // Only over RDMA there are keys.
            key: (self.script.one_in(16) as u32).into(),
        }
    }

    /// Announces a value that comes in pieces.
    pub(super) fn announce(&mut self) {
        let op = self.script.pick(&[Op::Set, Op::Set, Op::Append, Op::SetRange, Op::MultiSet]);
        let key = self.script.pick(&KEYS);
        let value_bytes = self.script.pick(&LARGE_LENGTHS);
        let id = self.id(false);
        let flags = if self.script.one_in(8) { self.script.byte() } else { 0 };
        let header = RequestHeader {
            flags,
            key_bytes: (key.len() as u32).into(),
            value_bytes: (value_bytes as u32).into(),
            ..header(op as u8, form::IN_PIECES, id)
        };
        if self.send(&[header.as_bytes(), key].concat()) {
            self.missing.insert(id, value_bytes);
        }
    }

    /// A piece of a value that was announced, and seldom of another.
    pub(super) fn piece(&mut self) {
        let any = self.id(false);
        let announced = self.missing.keys().nth(self.script.below(4)).copied();
        let id = announced.unwrap_or(any);
        let missing = self.missing.get(&id).copied().unwrap_or_default();
        let bytes = match self.script.below(8) {
            0 => self.script.pick(&PIECES),
            _ => missing.min(STREAM_PIECE_BYTES),
        };
        let piece = vec![self.script.byte(); bytes];
        if self.send(&[header(PIECE, 0, id).as_bytes(), &piece].concat()) {
            match missing.saturating_sub(bytes) {
                0 => self.missing.remove(&id),
                left => self.missing.insert(id, left),
            };
        }
    }

    /// Gives a part of the buffer back that it may never have had.
    pub(super) fn release(&mut self) {
        let name = self.name();
        self.send(&[header(RELEASE, form::BUFFER, 0).as_bytes(), name.as_bytes()].concat());
    }

    /// A whole frame with any payload: an honest client sends none, but no
    /// more than a reply that says so comes of it.
    pub(super) fn odd_payload(&mut self) {
        let mut payload = self.script.bytes().to_vec();
        if let Some(byte) = payload.get_mut(13) {
            // Its id is none of those that are awaited.
            *byte &= !((ANSWERED >> 8) as u8);
        }
        self.send(&payload);
    }

    /// Sends a frame if there is room.
    fn send(&mut self, payload: &[u8]) -> bool {
        let credit = self.to_client.load(credit_word(0));
        match self.sender.take_credit(credit) {
            Err(violation) if self.is_honest => panic!("the session's credit: {violation}"),
            // The client has led it astray.
            Err(_) => return false,
            Ok(()) => {}
        }
        match self.sender.send(&mut self.link, &[payload]) {
            Ok(()) => {}
            Err(SendError::Full) => return false,
            Err(error) => panic!("{error}"),
        }
        let left = RING_BYTES as u64 - self.sent % RING_BYTES as u64;
        let frame = frame_bytes(payload.len()) as u64;
        if frame > left {
            (self.sent, self.sequence) = (self.sent + left, self.sequence + 1);
        }
        (self.sent, self.sequence) = (self.sent + frame, self.sequence + 1);
        let contains = |part: &[u8]| payload.windows(part.len()).any(|window| window == part);
        self.may_differ |= payload.first() == Some(&(Op::Flush as u8)) || contains(&OTHERS[..6]);
        true
    }

    fn await_reply(&mut self, id: u32) {
        self.awaited.entry((id >> 16) as u16).or_default().push_back(id);
    }

    // What a client does that breaks the protocol.

    pub(super) fn misbehave(&mut self) {
        self.is_honest = false;
        let words = self.to_server.bytes() / 8;
        match self.script.below(5) {
            0 => {
                // A word of a line that means something, or of the ring.
                let index = match self.script.below(3) {
                    0 => self.script.below(24),
                    1 => (ring_offset(0) + (self.sent % RING_BYTES as u64) as usize) / 8,
                    _ => self.script.word() as usize % words,
                };
                let word = self.script.word();
                self.to_server.store(index, word);
            }
            1 => {
                // The next frame's place: its length or its checksum is wrong.
                let payload = self.script.bytes();
                let lengths =
                    [payload.len() as u32, 0, 96 << 10, WRAP, WRAP - 1, RING_BYTES as u32];
                let claimed = self.script.pick(&lengths);
                let seed = ring_seed(SEED, 0, 0);
                let word = first_word(self.sequence, claimed, seed);
                let claims = &payload[..payload.len().min(claimed as usize)];
                let sum = frame_checksum(word, claims, seed) ^ (self.script.byte() & 1) as u64;
                let at = (self.sent % RING_BYTES as u64) as usize;
                let mut frame = vec![0; FRAME_HEADER_BYTES];
                frame[..8].copy_from_slice(&word.to_le_bytes());
                frame[8..].copy_from_slice(&sum.to_le_bytes());
                frame.extend_from_slice(payload);
                frame.truncate(RING_BYTES - at);
                self.to_server.copy_in(ring_offset(0) + at, &frame);
            }
            2 => {
                // Credit for what it did not take.
                let word = self.to_server.load(credit_word(0));
                let more = self.script.pick(&[1u64, 64, 4096, RING_BYTES as u64, u64::MAX]);
                self.to_server.store(credit_word(0), word.wrapping_add(more));
            }
            3 => {
                let word = self.script.word();
                self.to_server.store(credit_word(0), word);
            }
            _ => self.lost.store(true, std::sync::atomic::Ordering::Relaxed),
        }
    }
}

/// Objects mostly of the tree that is there, as a client that has read it asks; else of
/// one at a place that is made up.
fn objects_of<'a>(
    shard: &mut Shard,
    (key, made_up): (&[u8], NodeRef),
    words: &'a [u8],
    now: Now,
) -> ReadObjects<'a> {
    let there = tree_at(shard, key, now).filter(|_| !made_up.slot.is_multiple_of(4));
    ReadObjects { tree: there.unwrap_or(made_up), words }
}

/// Where the header of a tree lies.
fn tree_at(shard: &mut Shard, key: &[u8], now: Now) -> Option<NodeRef> {
    let info = Command::Of { key, request: Request::Tree(TreeCommand::Info) };
    let words = shard.execute(&info, shard.hash(key), now).value?;
    let (words, _) = words.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    TreeInfo::from_words(&words).map(|info| info.at)
}

/// Whether a payload asks for a refined search.
fn is_refined(payload: &[u8]) -> bool {
    let Ok((Command::Of { request, .. }, _)) = Command::decode(payload) else { return false };
    matches!(request, Request::Tree(TreeCommand::Refine { .. }))
}
