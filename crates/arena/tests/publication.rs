//! Replaces records while other threads read them: Miri and ThreadSanitizer check the accesses,
//! beside the test's own assertions.

use remora_arena::{
    NewRecord, NoJournal, Owner, ReadView, Slots, class_bytes, flip_dead, publish_live,
    write_pending,
};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::record::{Reject, verify};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Room for a span of each size class.
const BYTES: usize = 4 << 20;
/// The word that stands for a bucket: slot and class of the present record.
const BUCKET_WORD: usize = 0;
const FIRST_SLOT_BYTE: usize = 4096;
const KEY: &[u8] = b"the key";
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 20_000 };
/// How long the readers may take to begin.
const DEADLINE: Duration = Duration::from_secs(120);

/// Stops the readers when the writer is done, or has failed.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn value(round: u64) -> Vec<u8> {
    vec![round as u8; 8 + round as usize % 90]
}

const SECRET: u64 = 0x5ec2_e7ed;

/// Reads until told to stop. Counts the records that it saw whole.
fn read(words: &ReadView, stop: &AtomicBool, seen: &AtomicU64) {
    let mut bytes = vec![0u8; 4096];
    while !stop.load(Ordering::Relaxed) {
        let bucket = words.load_acquire(BUCKET_WORD);
        let (slot, class) = (bucket as u32, (bucket >> 32) as u8);
        let bytes = &mut bytes[..class_bytes(class)];
        words.copy_out(slot as usize * 16, bytes);
        match verify(bytes, SECRET, 0, slot, None, Kind::STRING, KEY) {
            Ok(found) => {
                seen.fetch_add(1, Ordering::Relaxed);
                let first = found.value[0];
                assert!(found.value.iter().all(|byte| *byte == first), "a mixed value");
            }
            Err(Reject::Dead | Reject::Pending | Reject::AskOnly | Reject::Torn) => {}
            Err(Reject::OtherKey | Reject::OtherKind) => panic!("there is one record only"),
        }
        std::thread::yield_now();
    }
}

/// Replaces records [`ROUNDS`] times, and continues until the readers have seen one.
#[test]
fn readers_see_one_record_or_the_other() {
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::new(FIRST_SLOT_BYTE, BYTES);
    let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut present = None;
    let mut replace = |owner: &mut Owner, round: u64| {
        let value = value(round);
        let record = NewRecord {
            database: Database::ZERO,
            key: KEY,
            value: &value,
            kind: Kind::STRING,
            expires_at_ms: 0,
        };
        let slot = slots.allocate(owner, record.record_bytes(), 0).unwrap();
        write_pending(owner, SECRET, 0, slot, &record);
        publish_live(owner, slot);
        let old = present.replace(slot).map(|old| flip_dead(owner, old.slot));
        owner.store_release(BUCKET_WORD, slot.slot as u64 | (slot.class as u64) << 32);
        if let Some(old) = old {
            slots.release(owner, old, None, 0);
        }
    };
    replace(&mut owner, 1);
    std::thread::scope(|scope| {
        let _ending = StopAtEnd(&stop);
        for _ in 0..2 {
            let (words, stop, seen) = (owner.view().clone(), &stop, &seen);
            scope.spawn(move || read(&words, stop, seen));
        }
        // A busy machine may run the readers late.
        let began = Instant::now();
        let is_seen = || cfg!(miri) || seen.load(Ordering::Relaxed) > 0;
        for round in 2.. {
            if round >= ROUNDS && is_seen() {
                break;
            }
            assert!(round < ROUNDS || began.elapsed() < DEADLINE, "nobody reads anything");
            replace(&mut owner, round);
            if round % 16 == 0 {
                std::thread::yield_now();
            }
        }
    });
}
