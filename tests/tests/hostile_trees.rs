//! Searches that a thread answers which does not own the tree: of trees that a
//! client has forged in a value of its own, and of what is too large.

use remora_arena::ReadView;
use remora_client_core::{Client, Options, Path, Predicate, Query, Rect, ServedBy, TreeSettings};
use remora_layout::arena_header::word::{RECORD_SECRET, REGION};
use remora_layout::node::{
    CheckedPart, ENTRY_BYTES, Entry, Home, NODE_CHECKED_FROM, NodeRef, NodeShape, node_bytes,
};
use remora_layout::record::{Guardian, ROOT_WORDS_BYTES, State};
use remora_layout::tree::{RootPlace, TreeHeader, TreeKind};
use remora_protocol::Command;
use remora_protocol::message::{ReplyHeader, Status};
use remora_protocol::tree::TreeCommand;
use remora_tests::proc::peak_resident_kib;
use remora_tests::{RawSession, Resp, ServerProcess, Value, wait_until};
use zerocopy::{FromBytes, IntoBytes};

const KEY: &[u8] = b"forgery";
const VALUE_BYTES: usize = 4 << 20;
const MARK: &[u8] = b"the value begins";
const WINDOW: Rect = Rect { min_x: 0.0, max_x: 1.0, min_y: 0.0, max_y: 1.0 };

/// A value that its writer knows the place of, and changes where it lies.
struct OwnValue {
    resp: Resp,
    arenas: Vec<ReadView>,
    /// The shard, and the offset of the value's first byte.
    shard: usize,
    offset: usize,
}

impl OwnValue {
    fn new(server: &ServerProcess, arenas: &[ReadView]) -> Self {
        let mut resp = server.resp();
        let value = [MARK, &vec![0; VALUE_BYTES - MARK.len()]].concat();
        assert_eq!(resp.try_call(&[b"SET", KEY, &value]).unwrap(), Value::ok());
        // From now on it is changed in place.
        let written = resp.try_call(&[b"SETRANGE", KEY, b"0", MARK]).unwrap();
        assert_eq!(written, Value::Integer(VALUE_BYTES as i64));
        let places = arenas.iter().enumerate().filter_map(|(shard, words)| {
            let mut memory = vec![0; words.bytes()];
            words.copy_out(0, &mut memory);
            // The last one: an earlier place is no longer the value's.
            let found = memory.windows(MARK.len()).rposition(|bytes| bytes == MARK);
            found.map(|offset| (shard, offset))
        });
        let places: Vec<_> = places.collect();
        let &[(shard, offset)] = &places[..] else { panic!("{places:?}") };
        Self { resp, arenas: arenas.to_vec(), shard, offset }
    }

    /// Puts bytes at an offset of the arena.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let offset = (at - self.offset).to_string();
        self.resp.try_call(&[b"SETRANGE", KEY, offset.as_bytes(), bytes]).unwrap();
        let mut there = vec![0; bytes.len()];
        self.arenas[self.shard].copy_out(at, &mut there);
        assert_eq!(there, bytes, "the value stays where it is");
    }

    fn home(&self) -> Home {
        let word = |word| self.arenas[self.shard].load_acquire(word);
        Home { secret: word(RECORD_SECRET), region: word(REGION) as u32 }
    }

    /// Forges a tree of so many levels, one node each: every entry of a node
    /// leads to the same one below. Gives the place of its header.
    fn forge(&mut self, height: u8, entries: u16) -> NodeRef {
        let home = self.home();
        let record = self.offset.next_multiple_of(16);
        let first = record + ROOT_WORDS_BYTES;
        let place = |number: usize| NodeRef {
            slot: ((first + number * node_bytes(entries.into()).next_multiple_of(16)) / 16) as u32,
            generation: 1,
        };
        let node = |level: usize| place(1 + level);
        for level in 0..height {
            let shape = NodeShape { entries, level, kind: TreeKind::RStar };
            let mut checked = [shape.to_word(), 0, 0, 0, 0].map(u64::to_le_bytes).concat();
            for id in 0..u64::from(entries) {
                let word = if level == 0 { id } else { node(level as usize - 1).to_word() };
                checked.extend_from_slice(Entry { rect: WINDOW, word }.as_bytes());
            }
            self.write_checked(home, CheckedPart::Node, node(level.into()), &checked);
        }
        let header = TreeHeader {
            kind: TreeKind::RStar,
            capacity: entries,
            height,
            root: node(height as usize - 1),
            counter: 0,
            bounds: Rect::default(),
            has_geometries: false,
        };
        let checked = header.to_words().map(u64::to_le_bytes).concat();
        self.write_checked(home, CheckedPart::Header, place(0), &checked);
        let guardian = Guardian { generation: 1, state: State::Live, class: 0 };
        self.write(record, &[guardian.to_word(), 0].map(u64::to_le_bytes).concat());
        place(0)
    }

    fn write_checked(&mut self, home: Home, part: CheckedPart, at: NodeRef, checked: &[u8]) {
        let guardian = Guardian { generation: at.generation, state: State::Live, class: 0 };
        let sum = home.checksum(part, at, 2, checked);
        let mut bytes = [guardian.to_word(), 2, sum].map(u64::to_le_bytes).concat();
        assert_eq!(bytes.len(), NODE_CHECKED_FROM);
        bytes.extend_from_slice(checked);
        self.write(at.offset(), &bytes);
    }
}

/// Asks shard 0 for a search of the tree at `at` of a shard; whether there was room.
fn ask(session: &mut RawSession, shard: usize, at: NodeRef, id: u32) -> bool {
    let predicate = Predicate::Intersects;
    let root = RootPlace { record: at.slot.wrapping_sub(1), at };
    let command = TreeCommand::SearchAt { window: WINDOW, predicate, shard: shard as u8, root };
    let request = command.checked().map(TreeCommand::request).unwrap();
    session.send(&Command::Of { key: b"", request }, id)
}

/// The next reply: its status, whether more of them follow, and its objects.
fn answer(session: &mut RawSession) -> (u8, bool, Vec<Entry>) {
    let mut reply = None;
    wait_until("there is a reply", || {
        reply = session.receive();
        reply.is_some()
    });
    let reply = reply.unwrap();
    let (header, rest) = ReplyHeader::read_from_prefix(&reply).unwrap();
    let objects = rest[..header.value_bytes.get() as usize].as_chunks::<ENTRY_BYTES>().0;
    let objects = objects.iter().map(Entry::from_bytes).collect();
    (header.status, header.flags & remora_protocol::message::MORE != 0, objects)
}

#[test]
fn a_forged_tree_costs_its_forger_a_small_search() {
    let mut server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut session = RawSession::connect(&server.socket());
    let mut value = OwnValue::new(&server, &session.connected.arenas.clone());
    let shard = value.shard;
    // More than a turn: 931 nodes, but only 30 objects in the end.
    let at = value.forge(3, 30);
    assert!(ask(&mut session, shard, at, 1));
    assert_eq!(answer(&mut session), (Status::AskOwner as u8, false, vec![]));
    // As much as there is memory for, sixteen at a time.
    let before = peak_resident_kib(server.pid());
    for (height, entries) in [(3, 30), (6, 30), (40, 30), (5, 1000), (40, 1000)] {
        let at = value.forge(height, entries);
        for round in 0..8 {
            for id in 0..16 {
                assert!(ask(&mut session, shard, at, round * 16 + id));
            }
            assert_eq!(value.resp.call("PING"), Value::Simple("PONG".into()));
            for _ in 0..16 {
                let asked = (Status::AskOwner as u8, false, vec![]);
                assert_eq!(answer(&mut session), asked, "{height} {entries}");
            }
        }
    }
    let more = peak_resident_kib(server.pid()) - before;
    println!("at its peak the server had {more} KiB more");
    assert!(before > 0 && more < 8 << 10, "the server had {more} KiB more");
    assert_eq!(value.resp.info("searches_beyond_a_turn"), 1 + 5 * 8 * 16);
    // A small one gives the forged objects, once, and only to the forger.
    let at = value.forge(2, 30);
    assert!(ask(&mut session, shard, at, 1));
    let (status, is_followed, objects) = answer(&mut session);
    assert_eq!((status, is_followed, objects.len()), (Status::Ok as u8, false, 30));
    // A header alone, whose root is anywhere.
    let nowhere = NodeRef { slot: u32::MAX, generation: 1 };
    for at in [nowhere, NodeRef::default(), NodeRef { slot: at.slot + 1, ..at }] {
        assert!(ask(&mut session, shard, at, 1));
        assert_eq!(answer(&mut session), (Status::AskOwner as u8, false, vec![]));
    }
    assert_eq!(value.resp.info("searches_by_others"), 1);
    assert_eq!(value.resp.info("searches_unsettled"), 3);
    assert!(server.is_alive() && !session.is_withdrawn(), "{}", server.log());
    assert!(!server.log().contains("panic"), "{}", server.log());
}

#[test]
fn what_takes_more_than_a_turn_its_owner_answers() {
    const OBJECTS: u64 = 50_000;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let client = Client::connect(&server.socket(), &Options::default()).unwrap();
    let mut sessions = [client.session().unwrap(), client.session().unwrap()];
    let settings = TreeSettings::default();
    sessions[0].create_tree(b"row", &settings).unwrap();
    let all = (0..OBJECTS).map(|id| (id, Rect::point(id as f64, 0.0).unwrap()));
    sessions[0].load_tree(b"row", &mut all.clone(), &mut |_| {}).unwrap();
    // Sizes about the limit of objects, about that of nodes, and far beyond.
    let sizes = [1, 100, 1638, 1639, 2_000, 9_000, 49_999];
    let mut resp = server.resp();
    let mut ways = Vec::new();
    for (number, session) in sessions.iter_mut().enumerate() {
        let mut tree = session.open_tree(b"row").unwrap().unwrap();
        for size in sizes {
            let before = ["searches_by_others", "searches_beyond_a_turn"].map(|n| resp.info(n));
            let window = Rect::new(-0.5, size as f64 - 0.5, -1.0, 1.0).unwrap();
            let query = Query::Window { window, predicate: Predicate::Intersects };
            let found = session.search_tree(&mut tree, &query, Path::Ask).unwrap();
            let mut objects: Vec<_> = found.objects.iter().map(|o| (o.word, o.rect)).collect();
            objects.sort_by_key(|object| object.0);
            assert!(objects.into_iter().eq(all.clone().take(size)), "{number} {size}");
            assert_eq!((found.served_by, found.counts.asked), (ServedBy::Asked, 1));
            let after = ["searches_by_others", "searches_beyond_a_turn"].map(|n| resp.info(n));
            ways.push((number, size, [after[0] - before[0], after[1] - before[1]]));
        }
    }
    // One of the two asks the tree's owner.
    let by_owner = ways.iter().filter(|(.., way)| *way == [0, 0]).count();
    assert_eq!(by_owner, sizes.len());
    let by_other: Vec<_> = ways.iter().filter(|(.., way)| *way != [0, 0]).collect();
    for (_, size, way) in by_other {
        assert_eq!(*way, if *size <= 1638 { [1, 0] } else { [0, 1] }, "{size}");
    }
    assert_eq!(resp.info("searches_unsettled"), 0);
}
