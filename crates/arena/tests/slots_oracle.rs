//! The allocator against a plain oracle: long random runs over small and large
//! slots while the mix of sizes drifts, with garbage in the slots, leases and
//! generations that run out.

use remora_arena::{
    BUCKET_CLASS, NewRecord, NoJournal, Owner, Slot, SlotStats, Slots, class_bytes, flip_dead,
    publish_live, set_state_guardian, write_pending, write_root,
};
use remora_layout::database::Database;
use remora_layout::hash::checksum;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES, PAGE_BYTES, SMALL_SLOT_BYTES};
use remora_layout::record::{
    CHECKED_FROM, Guardian, Lengths, RECORD_HEADER_BYTES, Reject, State, checksum_seed,
    state_offset, verify,
};
use remora_testing::Random;
use std::collections::{BTreeMap, HashMap};

const SECRET: u64 = 0x7265_6d6f_7261_2121;
const REGION: u32 = 5;

/// Bytes that the allocator counts for a slot of a record of so many bytes.
fn taken_bytes(slot: Slot, bytes: usize) -> u64 {
    if bytes > SMALL_SLOT_BYTES {
        bytes.next_multiple_of(PAGE_BYTES) as u64
    } else {
        class_bytes(slot.class) as u64
    }
}

#[derive(Clone, Copy)]
struct Held {
    slot: Slot,
    value_bytes: usize,
    fill: u64,
}

impl Held {
    fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + 8 + self.value_bytes
    }

    fn value(&self) -> Vec<u8> {
        let words = self.value_bytes.div_ceil(8);
        let mut value: Vec<u8> = (0..words as u64)
            // Many of these words look like guardians and small lengths.
            .flat_map(|at| (self.fill.wrapping_add(at) & 0x2_0000_00ff).to_le_bytes())
            .collect();
        value.truncate(self.value_bytes);
        value
    }
}

/// Everything that must hold, against the records held.
fn check(slots: &Slots, held: &BTreeMap<u32, Held>, total: u64) -> SlotStats {
    let stats = slots.stats();
    let used: u64 = held.values().map(|one| taken_bytes(one.slot, one.bytes())).sum();
    assert_eq!(stats.used_bytes, used);
    assert_eq!(stats.total_bytes(), total, "no byte is lost or counted twice: {stats:?}");
    assert!(stats.quarantine_bytes <= slots.quarantine_limit_bytes());
    let mut end = 0;
    for one in held.values() {
        let from = one.slot.slot as u64 * 16;
        assert!(from >= end, "two slots overlap");
        end = from + taken_bytes(one.slot, one.bytes());
    }
    stats
}

fn check_contents(owner: &Owner, held: &BTreeMap<u32, Held>) {
    for one in held.values() {
        let bytes = owner.slice(one.slot.slot as usize * 16, one.bytes());
        let slot = one.slot;
        let key = one.fill.to_le_bytes();
        let found =
            verify(bytes, SECRET, REGION, slot.slot, Some(slot.generation), Kind::STRING, &key);
        assert_eq!(found.map(|found| found.value.to_vec()), Ok(one.value()));
    }
}

/// Writes its record.
fn write(owner: &mut Owner<NoJournal>, one: &Held) {
    let (key, value) = (one.fill.to_le_bytes(), one.value());
    let record = NewRecord {
        database: Database::ZERO,
        key: &key,
        value: &value,
        kind: Kind::STRING,
        expires_at_ms: 0,
    };
    write_pending(owner, SECRET, REGION, one.slot, &record);
    publish_live(owner, one.slot);
}

fn long_run(seed: u64, last_generation: u32, steps: u64) -> (SlotStats, u64) {
    const BYTES: usize = 3 << 20;
    const QUARANTINE_BYTES: u64 = 200_000;
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::with_last_generation(5000, BYTES, last_generation)
        .with_quarantine_bytes(QUARANTINE_BYTES);
    let total = (BYTES - 2 * PAGE_BYTES) as u64;
    assert_eq!(slots.stats().uncarved_bytes, total);
    let mut held: BTreeMap<u32, Held> = BTreeMap::new();
    let mut generation_of: HashMap<u32, u32> = HashMap::new();
    let mut random = Random::new(seed);
    let mut full = 0;
    for step in 0..steps {
        let r = random.bits();
        let now_s = step / 100;
        if r % 100 < 55 {
            // The usual size drifts from 32 bytes to 64 KiB and back.
            let phase = (step * 24 / steps) % 12;
            let power = 5 + if phase < 6 { 2 * phase } else { 2 * (11 - phase) };
            let value_bytes = ((r >> 8) % (2 << power)) as usize;
            let mut one =
                Held { slot: Slot { slot: 0, generation: 0, class: 0 }, value_bytes, fill: r >> 3 };
            match slots.allocate(&mut owner, one.bytes(), now_s) {
                Ok(slot) => {
                    one.slot = slot;
                    let last = generation_of.insert(slot.slot, slot.generation).unwrap_or(0);
                    assert!(slot.generation > last && slot.generation <= last_generation);
                    write(&mut owner, &one);
                    assert!(held.insert(slot.slot, one).is_none(), "handed out twice");
                }
                Err(error) => {
                    assert!(error.to_string().contains("max_memory"), "{error}");
                    full += 1;
                    // Room for the next sizes: the test frees the older half.
                    for number in held.keys().copied().step_by(2).collect::<Vec<_>>() {
                        held.remove(&number);
                        let dead = flip_dead(&mut owner, number);
                        slots.release(&mut owner, dead, None, now_s);
                    }
                }
            }
        } else if !held.is_empty() {
            let from = (r >> 16) as u32 % (BYTES as u32 / 16);
            let number = *held.range(from..).next().or(held.iter().next()).unwrap().0;
            held.remove(&number);
            let dead = flip_dead(&mut owner, number);
            let lease = (r & 1 << 40 != 0).then_some(now_s + (r >> 50) % 8);
            slots.release(&mut owner, dead, lease, now_s);
        }
        assert_eq!(slots.stats().total_bytes(), total);
        if step % 64 == 0 {
            check(&slots, &held, total);
        }
        if step % 4096 == 0 {
            check_contents(&owner, &held);
        }
    }
    check_contents(&owner, &held);
    for number in std::mem::take(&mut held).into_keys() {
        let dead = flip_dead(&mut owner, number);
        slots.release(&mut owner, dead, None, u64::MAX);
    }
    slots.end_leases(&mut owner, u64::MAX);
    let stats = check(&slots, &held, total);
    slots.take_run(2 * BYTES).unwrap_err(); // gives the pages of spares
    assert!(stats.retired_bytes > 0 || slots.stats().uncarved_bytes == total, "all is free");
    (stats, full)
}

#[test]
fn a_long_random_run_never_hands_a_slot_out_twice() {
    for seed in [0x2545_f491_4f6c_dd1d, 77] {
        let (stats, full) = long_run(seed, u32::MAX, 40_000);
        assert!(full > 0 && stats.reused_early > 0, "{full} {stats:?}");
        // Only spares are left: no class holds stranded pages.
        assert!(
            stats.retired_bytes == 0 && stats.free_bytes + stats.tail_bytes < stats.total_bytes()
        );
        assert!(stats.quarantine_bytes == 0 && stats.used_bytes == 0);
    }
}

#[test]
fn generations_that_run_out_retire_their_place() {
    let (stats, _) = long_run(99, 12, 40_000);
    assert!(stats.retired_bytes > 0, "{stats:?}");
}

#[test]
fn a_leased_slot_waits_for_its_lease() {
    for bytes in [80, 100_000] {
        let mut owner = Owner::heap(1 << 20, NoJournal);
        let mut slots = Slots::new(0, 1 << 20).with_quarantine_bytes(1 << 20);
        let first = slots.allocate(&mut owner, bytes, 10).unwrap();
        let dead = flip_dead(&mut owner, first.slot);
        slots.release(&mut owner, dead, Some(15), 10);
        slots.end_leases(&mut owner, 14);
        let other = slots.allocate(&mut owner, bytes, 14).unwrap();
        assert_ne!(other.slot, first.slot);
        let dead = flip_dead(&mut owner, other.slot);
        slots.release(&mut owner, dead, None, 14);
        assert!(slots.has_quarantine());
        slots.end_leases(&mut owner, 15);
        assert!(!slots.has_quarantine());
        assert_eq!(slots.stats().quarantine_bytes, 0);
        let mut again = slots.allocate(&mut owner, bytes, 15).unwrap();
        while again.slot > first.slot || again.slot + bytes as u32 / 16 <= first.slot {
            again = slots.allocate(&mut owner, bytes, 15).expect("the place is free again");
        }
        assert!(again.generation > first.generation);
    }
}

#[test]
fn the_quarantine_keeps_its_limit() {
    let mut owner = Owner::heap(1 << 20, NoJournal);
    let mut slots = Slots::new(0, 1 << 20).with_quarantine_bytes(30_000);
    for (bytes, waiting) in [(20_000, 20_480), (8_000, 28_672), (4_000, 12_288), (400_000, 0)] {
        let slot = slots.allocate(&mut owner, bytes, 0).unwrap();
        let dead = flip_dead(&mut owner, slot.slot);
        slots.release(&mut owner, dead, Some(60), 0);
        assert_eq!(slots.stats().quarantine_bytes, waiting, "the oldest went first");
    }
    assert_eq!(slots.stats().reused_early, 4);
}

#[test]
fn pages_serve_one_class_after_the_other() {
    const BYTES: usize = 4 << 20;
    const FROM: usize = 64 << 10;
    let mut owner = Owner::heap(FROM + BYTES, NoJournal);
    let mut slots = Slots::new(FROM, FROM + BYTES);
    for bytes in [80, 3000, 200_000, 32, 8192, 3 << 20, 80] {
        let mut held = Vec::new();
        while let Ok(slot) = slots.allocate(&mut owner, bytes, 0) {
            held.push(slot);
        }
        let fraction = (held.len() * bytes) as f64 / BYTES as f64;
        assert!(fraction > 0.7, "{bytes}: {fraction}");
        if bytes == 80 {
            assert!(fraction > 0.999, "a span wastes less than a thousandth: {fraction}");
        }
        for slot in held {
            let dead = flip_dead(&mut owner, slot.slot);
            slots.release(&mut owner, dead, None, 0);
        }
    }
}

#[test]
fn the_longest_record_fits_and_frees_what_it_took() {
    const BYTES: usize = 72 << 20;
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::new(4096, BYTES);
    let key = vec![b'k'; MAX_KEY_BYTES];
    let value = vec![b'v'; MAX_VALUE_BYTES];
    let record = NewRecord {
        database: Database::ZERO,
        key: &key,
        value: &value,
        kind: Kind::STRING,
        expires_at_ms: 0,
    };
    let slot = slots.allocate(&mut owner, record.record_bytes(), 0).unwrap();
    let pointer = write_pending(&mut owner, SECRET, REGION, slot, &record);
    publish_live(&mut owner, slot);
    // A cold reader fetches the class's bytes, as far as the region goes.
    let fetched = class_bytes(slot.class).min(BYTES - pointer.offset() as usize);
    let bytes = owner.slice(pointer.offset() as usize, fetched);
    let found = verify(bytes, SECRET, REGION, slot.slot, None, Kind::STRING, &key).unwrap();
    assert_eq!((found.value.len(), found.pointer), (value.len(), pointer));
    assert!(slots.allocate(&mut owner, record.record_bytes(), 0).is_err());
    let dead = flip_dead(&mut owner, slot.slot);
    slots.release(&mut owner, dead, None, 0);
    assert_eq!(slots.largest_run_bytes(), (BYTES - 4096) as u64);
    assert!(slots.allocate(&mut owner, 1 << 27, 0).is_err(), "beyond every class");
}

/// A whole record of `generation`, as an attacker would forge it for `slot`.
fn forged(secret: u64, slot: u32, generation: u32, key: &[u8]) -> Vec<u8> {
    let lengths = Lengths {
        database: Database::ZERO,
        key_bytes: key.len() as u32,
        kind: Kind::STRING,
        value_bytes: 8,
    };
    let guardian = Guardian { generation, state: State::Live, class: 4 };
    let mut bytes = guardian.to_word().to_le_bytes().to_vec();
    bytes.resize(24, 0);
    bytes.extend(lengths.to_word().to_le_bytes());
    bytes.extend(key);
    bytes.extend(b"mischief");
    let sum = checksum(&bytes[CHECKED_FROM..], checksum_seed(secret, REGION, slot, generation));
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_record_forged_inside_a_value_is_not_believed() {
    let mut owner = Owner::heap(1 << 20, NoJournal);
    let mut slots = Slots::new(0, 1 << 20);
    // The test gives out a pointer to a small record; then it frees all small ones.
    let small: Vec<Slot> = (0..5000).map(|_| slots.allocate(&mut owner, 80, 0).unwrap()).collect();
    let stale = small[4000];
    for slot in &small {
        let dead = flip_dead(&mut owner, slot.slot);
        slots.release(&mut owner, dead, None, 0);
    }
    // A large value takes their pages and holds a record forged for the pointer.
    let large = slots.allocate(&mut owner, 900_000, 0).unwrap();
    let at = (stale.slot - large.slot) as usize * 16 - RECORD_HEADER_BYTES - 8;
    for (guess, believed) in [(0, false), (SECRET ^ 1, false), (SECRET, true)] {
        let fake = forged(guess, stale.slot, stale.generation, b"victim!!");
        let mut value = vec![0u8; 890_000];
        value[at..at + fake.len()].copy_from_slice(&fake);
        let record = NewRecord {
            database: Database::ZERO,
            key: b"attacker",
            value: &value,
            kind: Kind::STRING,
            expires_at_ms: 0,
        };
        write_pending(&mut owner, SECRET, REGION, large, &record);
        publish_live(&mut owner, large);
        let bytes = owner.slice(stale.slot as usize * 16, 80);
        let generation = Some(stale.generation);
        let found =
            verify(bytes, SECRET, REGION, stale.slot, generation, Kind::STRING, b"victim!!");
        // With the secret the forged record would pass: only the secret prevents it.
        assert_eq!(found.is_ok(), believed);
        assert!(believed || found == Err(Reject::Torn));
    }
}

/// Writes a value of a larger record over freed pages, so that the value ends with a guardian at
/// `slot` that says live: all bytes behind it stay unchanged.
fn revive(owner: &mut Owner, slots: &mut Slots, slot: u32, generation: u32) {
    let large = slots.allocate(owner, 900_000, 0).unwrap();
    assert!(large.slot < slot, "the large record begins before it");
    let key = b"attacker";
    let before = (slot - large.slot) as usize * 16 - RECORD_HEADER_BYTES - key.len();
    let mut value = vec![0u8; before];
    let guardian = Guardian { generation, state: State::Live, class: 0 };
    value.extend(guardian.to_word().to_le_bytes());
    let record = NewRecord {
        database: Database::ZERO,
        key,
        value: &value,
        kind: Kind::STRING,
        expires_at_ms: 0,
    };
    write_pending(owner, SECRET, REGION, large, &record);
    publish_live(owner, large);
    assert_eq!(Guardian::from_word(owner.word(slot as usize * 2)), Some(guardian));
}

#[test]
fn a_dead_record_is_not_revived_by_a_guardian_that_a_value_brings() {
    for bytes in [80, SMALL_SLOT_BYTES, SMALL_SLOT_BYTES + 1] {
        let mut owner = Owner::heap(1 << 20, NoJournal);
        let mut slots = Slots::new(0, 1 << 20);
        let value = vec![b'v'; bytes - RECORD_HEADER_BYTES - 8];
        let held: Vec<Slot> = (0..500_000 / bytes as u64)
            .map(|number| {
                let slot = slots.allocate(&mut owner, bytes, 0).unwrap();
                let (key, kind) = (&number.to_le_bytes()[..], Kind::STRING);
                let record = NewRecord {
                    database: Database::ZERO,
                    key,
                    value: &value,
                    kind,
                    expires_at_ms: 0,
                };
                write_pending(&mut owner, SECRET, REGION, slot, &record);
                publish_live(&mut owner, slot);
                slot
            })
            .collect();
        let read = |owner: &Owner, number: usize| {
            let (Slot { slot, generation, .. }, key) = (held[number], number.to_le_bytes());
            let bytes = owner.slice(slot as usize * 16, bytes);
            verify(bytes, SECRET, REGION, slot, Some(generation), Kind::STRING, &key).err()
        };
        let number = held.len() / 2;
        assert_eq!(read(&owner, number), None);
        for slot in &held {
            let dead = flip_dead(&mut owner, slot.slot);
            slots.release(&mut owner, dead, None, 0);
        }
        assert_eq!(read(&owner, number), Some(Reject::Dead));
        revive(&mut owner, &mut slots, held[number].slot, held[number].generation);
        assert_eq!(read(&owner, number), Some(Reject::Torn), "{bytes}");
    }
}

#[test]
fn an_objects_state_block_is_not_revived_either() {
    let mut owner = Owner::heap(1 << 20, NoJournal);
    let mut slots = Slots::new(0, 1 << 20);
    let (key, state_bytes) = (b"a tree", 20_000);
    let held = [(); 30].map(|()| slots.allocate(&mut owner, 24_000, 0).unwrap());
    let block = |root: &Slot| root.slot + (state_offset(key.len()) / 16) as u32;
    for root in held {
        let kind = Kind::RTREE;
        write_root(&mut owner, SECRET, REGION, root, (kind, key), state_bytes, 0);
        // The stores of its type: a version, a checksum.
        owner.store(block(&root) as usize * 2 + 1, 2);
        owner.store(block(&root) as usize * 2 + 2, 0x1234);
        set_state_guardian(&mut owner, root, State::Live);
    }
    for root in held {
        set_state_guardian(&mut owner, root, State::Dead);
        let dead = flip_dead(&mut owner, root.slot);
        slots.release(&mut owner, dead, None, 0);
    }
    let root = held[28];
    revive(&mut owner, &mut slots, block(&root), root.generation);
    let words = [1, 2].map(|word| owner.word(block(&root) as usize * 2 + word));
    assert_eq!(words, [2, 0], "the version stands, the checksum is gone");
}

#[test]
fn a_recarved_place_starts_above_every_generation_it_had() {
    let mut owner = Owner::heap(1 << 20, NoJournal);
    let mut slots = Slots::new(0, 1 << 20);
    let mut highest = 0;
    for round in 0..40u64 {
        let bytes = [80, 500_000, 4000, 100][round as usize % 4];
        let mut held = Vec::new();
        while let Ok(slot) = slots.allocate(&mut owner, bytes, 0) {
            held.push(slot);
        }
        let least = held.iter().map(|slot| slot.generation).min().unwrap();
        assert!(round % 4 != 1 || least > highest, "a large run lies on every page");
        for slot in held {
            highest = highest.max(slot.generation);
            // Garbage where guardians of smaller slots would stand.
            owner.store_bytes(slot.slot as usize * 16 + 8, &vec![0x55; bytes / 8 * 8 - 8]);
            let dead = flip_dead(&mut owner, slot.slot);
            slots.release(&mut owner, dead, None, 0);
        }
    }
    assert!(highest >= 40);
}

#[test]
fn runs_for_the_table_come_and_go_back() {
    let mut owner = Owner::heap(1 << 20, NoJournal);
    let mut slots = Slots::new(0, 1 << 20);
    let record = slots.allocate(&mut owner, 1 << 19, 0).unwrap();
    assert!(slots.take_run(900_000).is_err(), "the record's pages are not given out");
    let dead = flip_dead(&mut owner, record.slot);
    slots.release(&mut owner, dead, None, 0);
    let offset = slots.take_run(900_000).unwrap();
    assert_eq!(slots.stats().run_bytes, 900_000u64.next_multiple_of(4096));
    assert!(slots.take_run(900_000).is_err());
    slots.give_run(offset, 900_000);
    assert_eq!(slots.stats().uncarved_bytes, (1 << 20) - 4096);
}

#[test]
fn the_sparsest_span_is_found_and_emptied() {
    let mut owner = Owner::heap(4 << 20, NoJournal);
    let mut slots = Slots::new(0, 4 << 20);
    assert_eq!(slots.sparsest_span(), None);
    let held: Vec<Slot> = (0..8000).map(|_| slots.allocate(&mut owner, 80, 0).unwrap()).collect();
    let bucket = slots.allocate_bucket(&mut owner, 0).unwrap();
    assert_eq!((bucket.class, class_bytes(bucket.class)), (BUCKET_CLASS, 80));
    let span_of = |slot: &Slot| slot.slot / 4096;
    let third = span_of(&held[0]) + 3;
    let (mut kept, mut at) = (Vec::new(), 0);
    for slot in held {
        at += 1;
        let keep = if span_of(&slot) == third { at % 16 == 0 } else { at % 3 > 0 };
        if keep {
            kept.push(slot.slot);
            continue;
        }
        let dead = flip_dead(&mut owner, slot.slot);
        slots.release(&mut owner, dead, None, 0);
    }
    let window = slots.sparsest_span().expect("there is room elsewhere");
    let inside = slots.slots_in(&owner, window);
    let expected: Vec<u32> = kept.into_iter().filter(|slot| slot / 4096 == third).collect();
    assert_eq!(inside, expected);
    let free = slots.stats().uncarved_bytes;
    slots.begin_emptying(window);
    for slot in inside {
        let copy = slots.allocate(&mut owner, 80, 0).unwrap();
        assert_ne!(span_of(&copy), third, "nothing is taken from the window");
        let dead = flip_dead(&mut owner, slot);
        slots.release(&mut owner, dead, None, 0);
    }
    slots.end_emptying();
    slots.take_run(1 << 24).unwrap_err(); // gives the spare's pages
    assert_eq!(slots.stats().uncarved_bytes, free + (64 << 10));
}
