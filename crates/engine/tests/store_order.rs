//! The order of the stores that set a key (KELI 5.2; K13): a slot, the record's content, and then the
//! word in the table. Every store is recorded. A reader that walks to the key after any of them finds
//! nothing or the whole record, never one that is not there yet.

use remora_arena::{Journal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::hash::{AskReason, Lookup, TableRef};
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;
use remora_walk::{Proof, Step, Walk};
use std::cell::RefCell;
use std::rc::Rc;

const BYTES: usize = 4 << 20;
const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const REGION: u32 = 0;
const KEYS: usize = 150;

/// Every store, in order.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<(usize, u64)>>>);

impl Journal for Recorder {
    const ACTIVE: bool = true;
    fn stored(&mut self, index: usize, value: u64) {
        self.0.borrow_mut().push((index, value));
    }
    fn fenced(&mut self) {}
}

/// What a walk to a key finds in these bytes of an arena.
fn walk(memory: &[u8], shard: &Shard<Recorder>, key: &[u8]) -> Result<Vec<u8>, AskReason> {
    let view = || TableRef::parse(REGION, BYTES as u64, memory).unwrap();
    let mut lookup = Lookup::begin(key, shard.hash(key), Kind::STRING, &view());
    while let Some(want) = lookup.next_want() {
        let bytes = &memory[want.offset as usize..][..want.bytes];
        match lookup.feed(want, bytes, Proof::Checksum) {
            Step::More => {}
            Step::Found(found) => return Ok(found.record(bytes).value.to_vec()),
            Step::Ask(reason) => return Err(reason),
            Step::Restart => lookup.restart(&view())?,
        }
    }
    panic!("it wants nothing, and has not ended");
}

#[test]
fn a_new_key_is_in_the_table_only_when_its_record_is_whole() {
    let recorder = Recorder::default();
    let owner = Owner::heap(BYTES, recorder.clone());
    let mut shard = Shard::new(owner, ShardOptions { buckets: 4, ..ShardOptions::default() });
    let mut random = Random::new(13);
    let mut stores = 0;
    for number in 0..KEYS {
        let (key, value) = (format!("key:{number}"), vec![number as u8; random.below(400)]);
        let key = key.as_bytes();
        let mut memory = shard.owner().slice(0, BYTES).to_vec();
        recorder.0.borrow_mut().clear();
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key, value: &value, condition, expiry, get: false };
        assert_eq!(shard.execute(&set, shard.hash(key), NOW).status, Status::Ok);
        let mut is_found = false;
        for &(index, word) in recorder.0.borrow().iter() {
            memory[index * 8..][..8].copy_from_slice(&word.to_le_bytes());
            match walk(&memory, &shard, key) {
                Ok(found) => {
                    assert_eq!(found, value, "{number}");
                    is_found = true;
                }
                Err(reason) => {
                    assert_eq!(reason, AskReason::NotFound, "{number}: a record that is not whole");
                }
            }
            stores += 1;
        }
        assert!(is_found && walk(&memory, &shard, key) == Ok(value), "{number}");
    }
    assert!(stores > 20 * KEYS, "{stores} stores");
}
