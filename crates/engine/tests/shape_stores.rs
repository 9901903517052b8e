//! The order of a change's stores when an object carries a geometry. Every store of a history of
//! changes is recorded. A reader finds an object by a walk after any of them; after the same or any
//! later one it reads the record that the walk named. Both together are the object as it was, or
//! the record is no longer live. (Worlds cannot see it: all stores of a change happen at one
//! instant there.)

use remora_arena::{Journal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_geometry::{Refine, Shape, Wkb};
use remora_index::rtree::{Query, Search};
use remora_layout::kind::Kind;
use remora_layout::node::{Home, NodeRef, Proof};
use remora_layout::object::{Payload, VERDICT_BYTES, Verdict, object_key};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::verify;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeInfo, verify_header};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::tree::{ReadObjects, TreeCommand, TreeSettings};
use remora_testing::Random;
use remora_walk::{Step, Walk};
use std::cell::RefCell;
use std::rc::Rc;
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const HOME: Home = Home { secret: 77, region: 0 };
const NAME: &[u8] = b"land";
const IDS: u64 = 30;
const CHANGES: usize = 400;

/// Every store so far, in order.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<(usize, u64)>>>);

impl Journal for Recorder {
    const ACTIVE: bool = true;
    fn stored(&mut self, index: usize, value: u64) {
        self.0.borrow_mut().push((index, value));
    }
    fn fenced(&mut self) {}
}

fn ask(shard: &mut Shard<Recorder>, command: TreeCommand<'_>) -> (Status, Vec<u8>) {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let reply = shard.execute(&Command::Of { key: NAME, request }, shard.hash(NAME), NOW);
    (reply.status, reply.value.unwrap_or_default().to_vec())
}

/// The server's answer for the place of an object's record.
fn told(shard: &mut Shard<Recorder>, tree: NodeRef, id: u64) -> Option<RemotePointer> {
    let everything = Shape::of_rect(&Rect::new(-1.0, 1e6, -1.0, 1e6).unwrap());
    let (refine, words) = (Refine::Intersects(everything).to_bytes(), id.to_le_bytes());
    let of = Some(ReadObjects { tree, words: &words });
    let (_, value) = ask(shard, TreeCommand::Refine { refine: &refine, of });
    let verdict = Verdict::read_from_bytes(value.get(..VERDICT_BYTES)?).unwrap();
    Some(verdict.pointer()).filter(|pointer| pointer.is_some())
}

/// Memory after some of the stores.
struct Memory(Vec<u64>);

impl Memory {
    fn read(&self, from: usize, bytes: usize) -> Vec<u8> {
        let words = &self.0[from / 8..(from + bytes).div_ceil(8)];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Whether the header says that objects may have geometries, and where a
    /// walk finds the object; `None` if it would have to begin again.
    fn find(&self, at: NodeRef, id: u64) -> Option<(bool, Option<Rect>)> {
        let header = self.read(at.offset(), TREE_HEADER_BYTES);
        let header = verify_header(&header, HOME, at, Proof::Checksum).ok()?;
        let window = Rect::new(-1.0, 1e6, -1.0, 1e6).unwrap();
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let mut walk = Search::begin(query, HOME, header, self.0.len() as u64 * 8);
        while let Some(want) = walk.next_want() {
            let node = self.read(want.offset as usize, want.bytes);
            match walk.feed(want, &node, Proof::Checksum) {
                Step::More => {}
                Step::Found(()) => {
                    let found = walk.results().iter().find(|object| object.word == id);
                    return Some((header.has_geometries, found.map(|object| object.rect)));
                }
                Step::Restart | Step::Ask(_) => return None,
            }
        }
        None
    }

    /// The value of an object's record, if it is live.
    fn record(&self, pointer: RemotePointer, id: u64) -> Option<Vec<u8>> {
        let bytes = self.read(pointer.offset() as usize, pointer.length as usize);
        let (generation, key) = (Some(pointer.generation), object_key(id));
        let record =
            verify(&bytes, HOME.secret, HOME.region, pointer.slot, generation, Kind::OBJECT, &key);
        record.ok().map(|record| record.value.to_vec())
    }
}

/// One change of an object, of any kind.
fn change(shard: &mut Shard<Recorder>, random: &mut Random, id: u64) {
    let (x, y) = (random.below(500), random.below(500));
    let (width, height) = (1 + random.below(9), 1 + random.below(9));
    let line = format!("LINESTRING ({x} {y}, {} {})", x + width, y + height);
    let shape = Shape::from_wkt(&line).unwrap();
    let (rect, wkb) = (shape.bounds(), shape.to_wkb());
    let data = [None, Some(&b""[..]), Some(&b"bytes"[..])][random.below(3) as usize];
    let status = match random.below(8) {
        0 => ask(shard, TreeCommand::Remove { id: id.into() }).0,
        1 => ask(shard, TreeCommand::put(id, rect, data, None)).0,
        _ => ask(shard, TreeCommand::put(id, rect, data, Some(Wkb::known(&wkb, rect)))).0,
    };
    assert_eq!(status, Status::Ok);
}

#[test]
fn who_reads_a_live_record_has_found_the_object_as_it_was() {
    let recorder = Recorder::default();
    let options = ShardOptions { record_secret: HOME.secret, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(1 << 20, recorder.clone()), options);
    ask(&mut shard, TreeCommand::Create(TreeSettings { capacity: 4, ..TreeSettings::default() }));
    let (_, info) = ask(&mut shard, TreeCommand::Info);
    let info: Vec<u64> = info.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let at = TreeInfo::from_words(&info).unwrap().at;
    let words = shard.owner().region_bytes() / 8;
    let mut memory = Memory((0..words).map(|word| shard.owner().word(word)).collect());
    recorder.0.borrow_mut().clear();
    let mut random = Random::new(3);
    let (mut hidden, mut looks) = (0, 0);
    for step in 0..CHANGES {
        let id = random.below(IDS);
        let pointer = told(&mut shard, at, id);
        let (_, was_at) = memory.find(at, id).expect("nothing changes it");
        let payload = pointer.map(|pointer| memory.record(pointer, id).expect("it was told"));
        change(&mut shard, &mut random, id);
        let now = told(&mut shard, at, id);
        let has_geometry = |memory: &Memory| {
            let value = now.and_then(|now| memory.record(now, id)).unwrap_or_default();
            Payload::parse(&value).is_some_and(|payload| !payload.geometry.is_empty())
        };
        // The results of walks that a READ of the record may follow.
        let mut other = None;
        let mut denied = false;
        let stores = std::mem::take(&mut *recorder.0.borrow_mut());
        for (index, value) in stores {
            memory.0[index] = value;
            if let Some((says, found)) = memory.find(at, id) {
                looks += 1;
                let is_other = found.is_some() && found != was_at;
                other = other.or(found.filter(|_| is_other));
                denied |= is_other && !says;
            }
            let Some(pointer) = pointer else { continue };
            match memory.record(pointer, id) {
                Some(value) => {
                    assert_eq!(Some(value), payload, "change {step}: a record stays what it is");
                    assert_eq!(
                        other, None,
                        "change {step}: found at {other:?}, record of {was_at:?}"
                    );
                }
                None => hidden += 1,
            }
        }
        assert!(!denied || !has_geometry(&memory), "change {step}: the header denies geometries");
    }
    assert!(hidden > 1_000 && looks > 1_000, "{hidden} hidden, {looks} looks");
}
