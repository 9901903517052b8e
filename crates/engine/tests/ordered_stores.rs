//! The order of a change's stores when a value lies in a record. Every store of a history of changes
//! is recorded. A reader finds a key's leaf by a walk after any of them; after the same or any later
//! one it reads the record that the leaf named. What it takes is the value before the change, as long
//! as no reader sees the next one, or the value after it; and a leaf names a new record only once that
//! is whole and live. (Worlds cannot see it: all stores of a change happen at one instant there.)

use remora_arena::{Journal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::btree::Get;
use remora_layout::btree::{
    LongValue, ORDERED_ROOT_BYTES, OrderedInfo, Value, ValueKind, verify_ordered_header,
};
use remora_layout::node::{Home, NodeRef, Proof};
use remora_layout::packed::Field;
use remora_layout::record::Reject;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedSettings};
use remora_testing::Random;
use remora_walk::{Step, Walk};
use std::cell::RefCell;
use std::rc::Rc;
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const HOME: Home = Home { secret: 77, region: 0 };
const NAME: &[u8] = b"tree";
const KEYS: u64 = 30;
const CHANGES: usize = 500;
const VALUE_BYTES: usize = 20;

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

fn ask(shard: &mut Shard<Recorder>, command: OrderedCommand<'_>) -> (Status, Vec<u8>) {
    let request = command.request();
    let reply = shard.execute(&Command::Of { key: NAME, request }, shard.hash(NAME), NOW);
    (reply.status, reply.value.unwrap_or_default().to_vec())
}

/// Memory after some of the stores.
struct Memory(Vec<u64>);

/// A value as a leaf has it: its kind and its bytes.
type InLeaf = (ValueKind, Vec<u8>);

fn long_of((kind, bytes): &InLeaf) -> Option<LongValue> {
    LongValue::of(Value { kind: *kind, bytes })
}

impl Memory {
    fn read(&self, from: usize, bytes: usize) -> Vec<u8> {
        let words = &self.0[from / 8..(from + bytes).div_ceil(8)];
        let mut read: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        read.truncate(bytes);
        read
    }

    /// What a walk finds at a key; `None` if it would have to begin again.
    fn find(&self, at: NodeRef, key: &[u8]) -> Option<Option<InLeaf>> {
        let header = self.read(at.offset(), ORDERED_ROOT_BYTES);
        let header = verify_ordered_header(&header, HOME, at, Proof::Checksum).ok()?;
        let mut walk = Get::begin(key, HOME, at, header, self.0.len() as u64 * 8);
        while let Some(want) = walk.next_want() {
            let node = self.read(want.offset as usize, want.bytes);
            match walk.feed(want, &node, Proof::Checksum) {
                Step::More => {}
                Step::Found(is_there) => {
                    let value = walk.value();
                    return Some(is_there.then(|| (value.kind, value.bytes.to_vec())));
                }
                Step::Restart | Step::Ask(_) => return None,
            }
        }
        None
    }

    fn record(&self, at: NodeRef, long: LongValue) -> Result<Vec<u8>, Reject> {
        let bytes = self.read(long.at.offset() as usize, long.at.length as usize);
        long.verify(&bytes, HOME.secret, at).map(<[u8]>::to_vec)
    }
}

/// A change, and the key's value before and after it.
struct Change {
    key: Vec<u8>,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

fn change(shard: &mut Shard<Recorder>, random: &mut Random, step: usize) -> Change {
    let key = format!("key {}", random.below(KEYS)).into_bytes();
    let (status, value) = ask(shard, OrderedCommand::Get { key: &key });
    let before = (status == Status::Ok).then_some(value);
    let bytes = [4, VALUE_BYTES, VALUE_BYTES + 1, 300, 3_000][random.below(5) as usize];
    let after = (!random.one_in(6)).then(|| vec![step as u8; bytes]);
    let status = match &after {
        None => ask(shard, OrderedCommand::Delete { key: &key }).0,
        Some(value) => {
            let value = Field { value, is_link: false };
            ask(shard, OrderedCommand::Set { key: &key, value }).0
        }
    };
    assert_eq!(status, Status::Ok);
    Change { key, before, after }
}

/// What readers see of one change, store by store.
struct Looks {
    change: Change,
    tree: NodeRef,
    /// The record of the value before.
    old: Option<LongValue>,
    /// A reader has seen the value after it.
    is_shown: bool,
    /// Looks at records.
    records: usize,
}

impl Looks {
    fn look(&mut self, memory: &Memory) {
        let Change { key, before, after } = &self.change;
        if let Some(found) = memory.find(self.tree, key) {
            let long = found.as_ref().and_then(long_of);
            let value = match long {
                None => found.map(|(_, bytes)| bytes),
                Some(long) => match memory.record(self.tree, long) {
                    Ok(value) => Some(value),
                    Err(_) if Some(long) == self.old => return,
                    Err(reject) => panic!("a leaf names a record that is {reject:?}"),
                },
            };
            assert!(value == *before || value == *after, "a value that never was");
            self.is_shown |= value == *after && before != after;
            assert!(!self.is_shown || value == *after, "the value before, after the next one");
        }
        // A reader that holds the leaf as it was.
        let Some(old) = self.old else { return };
        self.records += 1;
        if let Ok(value) = memory.record(self.tree, old) {
            assert_eq!(Some(&value), before.as_ref(), "another value in the same place");
            assert!(!self.is_shown, "the value before is read when others have seen the next one");
        }
    }
}

#[test]
fn a_value_is_read_from_a_live_record_only_while_no_reader_sees_the_next_one() {
    let recorder = Recorder::default();
    let options = ShardOptions { record_secret: HOME.secret, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(1 << 20, recorder.clone()), options);
    let settings = OrderedSettings {
        fan_out: 4,
        key_bytes: 16,
        value_bytes: VALUE_BYTES,
        ..OrderedSettings::of(remora_layout::btree::KeyForm::Bytes)
    };
    ask(&mut shard, OrderedCommand::Create(settings));
    let (_, info) = ask(&mut shard, OrderedCommand::Info);
    let info = OrderedInfo::from_words(&FromBytes::read_from_bytes(&info).unwrap()).unwrap();
    let words = shard.owner().region_bytes() / 8;
    let mut memory = Memory((0..words).map(|word| shard.owner().word(word)).collect());
    recorder.0.borrow_mut().clear();
    let mut random = Random::new(3);
    let (mut shown, mut records) = (0, 0);
    for step in 0..CHANGES {
        let change = change(&mut shard, &mut random, step);
        let before = memory.find(info.at, &change.key).expect("nothing changes it");
        let old = before.as_ref().and_then(long_of);
        let tree = info.at;
        let mut looks = Looks { change, tree, old, is_shown: false, records: 0 };
        looks.look(&memory);
        for (index, word) in recorder.0.borrow_mut().drain(..) {
            memory.0[index] = word;
            looks.look(&memory);
        }
        let Change { before, after, .. } = &looks.change;
        assert!(looks.is_shown || before == after, "the change is never seen");
        shown += usize::from(looks.is_shown);
        records += looks.records;
    }
    shard.audit().unwrap();
    assert!(shown > CHANGES / 2 && records > 20 * CHANGES, "{shown} changes, {records} records");
}
