//! Records written in each way: whole, in pieces, as a copy, and edited in place. A reader verifies
//! each, and does not accept it before it is live.

use remora_arena::{
    NewRecord, NoJournal, Owner, PieceSum, PieceWriter, Slot, Slots, begin_pending, class_bytes,
    copy_pending, flip_dead, is_live, lengths_of, mutable_of, publish_live, set_mutable,
    set_value_bytes, slot_of, withhold, write_pending,
};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Mutable, RECORD_HEADER_BYTES, Reject, State, verify};

const BYTES: usize = 1 << 20;
const SECRET: u64 = 99;
const REGION: u32 = 6;
const EXPIRY: u64 = 1_234_567;
/// Key and value bytes: of every fit of words, and some of several steps.
const LENGTHS: [(usize, usize); 9] =
    [(0, 0), (1, 1), (3, 5), (8, 8), (7, 100), (16, 4096), (9, 5000), (5, 8192), (250, 100_001)];

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + seed * 7 + 1) as u8).collect()
}

struct Arena {
    owner: Owner,
    slots: Slots,
}

impl Arena {
    /// All of it is free and holds garbage.
    fn new() -> Self {
        let mut owner = Owner::heap(BYTES, NoJournal);
        let mut slots = Slots::new(0, BYTES);
        let all = slots.allocate(&mut owner, BYTES - (8 << 10), 0).unwrap().slot;
        owner.store_bytes(all as usize * 16 + 8, &vec![0xa5; BYTES - (9 << 10)]);
        let dead = flip_dead(&mut owner, all);
        slots.release(&mut owner, dead, None, 0);
        Self { owner, slots }
    }

    fn slot(&mut self, key: &[u8], value_bytes: usize) -> Slot {
        let bytes = RECORD_HEADER_BYTES + key.len() + value_bytes;
        self.slots.allocate(&mut self.owner, bytes, 0).unwrap()
    }

    fn read(&self, pointer: RemotePointer, key: &[u8]) -> Result<(Vec<u8>, Mutable), Reject> {
        let bytes = self.owner.slice(pointer.offset() as usize, pointer.length as usize);
        let generation = Some(pointer.generation);
        let found = verify(bytes, SECRET, REGION, pointer.slot, generation, Kind::STRING, key)?;
        assert_eq!(found.pointer, pointer);
        Ok((found.value.to_vec(), found.mutable))
    }

    /// Readers reject the record before its publication, and accept it afterwards.
    fn publish_and_check(&mut self, slot: Slot, pointer: RemotePointer, key: &[u8], value: &[u8]) {
        assert_eq!(self.read(pointer, key), Err(Reject::Pending));
        assert!(!is_live(&self.owner, slot.slot));
        publish_live(&mut self.owner, slot);
        assert!(is_live(&self.owner, slot.slot));
        let mutable = Mutable { expires_at_ms: EXPIRY, ..Mutable::default() };
        assert_eq!(self.read(pointer, key), Ok((value.to_vec(), mutable)));
        assert_eq!(slot_of(&self.owner, slot.slot), slot);
        let lengths = lengths_of(&self.owner, slot.slot);
        assert_eq!(lengths.record_bytes(), RECORD_HEADER_BYTES + key.len() + value.len());
    }
}

fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Pieces of growing length.
    let mut at = 0;
    (1usize..).map_while(move |step| {
        let from = at;
        at = (at + step * 13).min(value.len());
        (from < at).then(|| &value[from..at])
    })
}

/// A key of database 0.
fn named(key: &[u8]) -> (Database, &[u8]) {
    (Database::ZERO, key)
}

#[test]
fn a_record_written_whole_and_its_copy_are_the_same_to_a_reader() {
    for (keys, values) in LENGTHS {
        let mut arena = Arena::new();
        let (key, value) = (bytes(1, keys), bytes(2, values));
        let record = NewRecord {
            database: Database::ZERO,
            key: &key,
            value: &value,
            kind: Kind::STRING,
            expires_at_ms: EXPIRY,
        };
        assert_eq!(record.record_bytes(), RECORD_HEADER_BYTES + keys + values);
        let slot = arena.slot(&key, values);
        let pointer = write_pending(&mut arena.owner, SECRET, REGION, slot, &record);
        arena.publish_and_check(slot, pointer, &key, &value);
        // The copy lies in a larger slot, so that it is another place.
        let other = arena.slot(&key, values + 500);
        let before = arena.owner.slice(0, BYTES).to_vec();
        let copy = copy_pending(&mut arena.owner, SECRET, REGION, slot.slot, other);
        let from = copy.offset() as usize;
        let to = from + record.record_bytes().next_multiple_of(8);
        let after = arena.owner.slice(0, BYTES);
        assert!(after[..from] == before[..from] && after[to..] == before[to..], "nothing else");
        arena.publish_and_check(other, copy, &key, &value);
        flip_dead(&mut arena.owner, slot.slot);
        assert_eq!(arena.read(pointer, &key), Err(Reject::Dead));
        assert!(arena.read(copy, &key).is_ok());
    }
}

#[test]
fn a_record_written_in_pieces_is_the_same_to_a_reader() {
    for (keys, values) in LENGTHS {
        let mut arena = Arena::new();
        let (key, value) = (bytes(3, keys), bytes(4, values));
        let slot = arena.slot(&key, values);
        let mut writer =
            PieceWriter::begin(&mut arena.owner, SECRET, REGION, slot, named(&key), values);
        assert_eq!(writer.slot(), slot);
        let mut missing = values;
        for piece in pieces(&value) {
            assert_eq!(writer.missing(), missing);
            assert!(!writer.write(&mut arena.owner, &vec![9; missing + 1]), "more than is missing");
            assert!(writer.write(&mut arena.owner, piece));
            missing -= piece.len();
        }
        let pointer = writer.finish(&mut arena.owner, REGION, EXPIRY);
        arena.publish_and_check(slot, pointer, &key, &value);
    }
}

#[test]
fn a_record_filled_in_place_and_summed_in_steps_is_the_same_to_a_reader() {
    for (keys, values) in LENGTHS {
        for step in [1, 100, 8192, usize::MAX] {
            if step == 1 && values > 1000 {
                continue;
            }
            let mut arena = Arena::new();
            let (key, value) = (bytes(5, keys), bytes(6, values));
            let slot = arena.slot(&key, values);
            // The owner first announces a longer value, as far as the slot goes.
            let at = begin_pending(&mut arena.owner, slot, named(&key), values + 1, EXPIRY);
            assert_eq!(at, slot.slot as usize * 16 + RECORD_HEADER_BYTES + keys);
            set_value_bytes(&mut arena.owner, slot.slot, values);
            arena.owner.store_within(at, &value);
            let mut sum = PieceSum::begin(SECRET, REGION, slot);
            let mut summed = 0;
            loop {
                let taken = sum.advance(&arena.owner, step);
                summed += taken;
                assert!(taken <= step && summed <= RECORD_HEADER_BYTES + keys + values);
                if taken == 0 {
                    break;
                }
            }
            let stored = sum.store(&mut arena.owner);
            assert_eq!(stored, slot);
            let length = (RECORD_HEADER_BYTES + keys + values) as u32;
            let Slot { slot: number, generation, .. } = slot;
            let pointer = RemotePointer { region: REGION, slot: number, length, generation };
            arena.publish_and_check(slot, pointer, &key, &value);
        }
    }
}

#[test]
fn a_withheld_record_is_asked_for_until_it_is_published_again() {
    let mut arena = Arena::new();
    let record = NewRecord {
        database: Database::ZERO,
        key: b"key",
        value: b"value",
        kind: Kind::STRING,
        expires_at_ms: EXPIRY,
    };
    let slot = arena.slot(b"key", 5);
    let pointer = write_pending(&mut arena.owner, SECRET, REGION, slot, &record);
    arena.publish_and_check(slot, pointer, b"key", b"value");
    withhold(&mut arena.owner, slot, State::AskOnly);
    assert_eq!(arena.read(pointer, b"key"), Err(Reject::AskOnly));
    withhold(&mut arena.owner, slot, State::Pending);
    arena.publish_and_check(slot, pointer, b"key", b"value");
    assert!(class_bytes(slot.class) >= pointer.length as usize);
}

#[test]
fn the_mutable_word_changes_alone() {
    let mut arena = Arena::new();
    let record = NewRecord {
        database: Database::ZERO,
        key: b"key",
        value: b"value",
        kind: Kind::STRING,
        expires_at_ms: EXPIRY,
    };
    let slot = arena.slot(b"key", 5);
    let pointer = write_pending(&mut arena.owner, SECRET, REGION, slot, &record);
    publish_live(&mut arena.owner, slot);
    let mutable = Mutable { expires_at_ms: 7, lease_end_s: 300, popularity: 4 };
    set_mutable(&mut arena.owner, slot.slot, mutable);
    assert_eq!(mutable_of(&arena.owner, slot.slot), mutable);
    assert_eq!(arena.read(pointer, b"key"), Ok((b"value".to_vec(), mutable)));
}
