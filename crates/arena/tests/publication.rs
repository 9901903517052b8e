//! Records that are replaced while other threads read them: what Miri and
//! ThreadSanitizer judge beside the test's own assertions.

use remora_arena::{
    NewRecord, NoJournal, Owner, Slots, Words, class_bytes, flip_dead, publish_live, write_pending,
};
use remora_layout::record::{Reject, verify};
use std::sync::atomic::{AtomicBool, Ordering};

/// Room for a span of each size class.
const BYTES: usize = 4 << 20;
/// The word that stands for a bucket: slot and class of the present record.
const BUCKET_WORD: usize = 0;
const FIRST_SLOT_BYTE: usize = 4096;
const KEY: &[u8] = b"the key";
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 20_000 };

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

/// Reads until told to stop. Gives how many records it saw whole.
fn read(words: &Words, stop: &AtomicBool) -> u64 {
    let mut seen = 0;
    let mut bytes = vec![0u8; 4096];
    while !stop.load(Ordering::Relaxed) {
        let bucket = words.load_acquire(BUCKET_WORD);
        let (slot, class) = (bucket as u32, (bucket >> 32) as u8);
        let bytes = &mut bytes[..class_bytes(class)];
        words.copy_out(slot as usize * 16, bytes);
        match verify(bytes, SECRET, 0, slot, None, KEY) {
            Ok(found) => {
                seen += 1;
                let first = found.value[0];
                assert!(found.value.iter().all(|byte| *byte == first), "a mixed value");
            }
            Err(Reject::Dead | Reject::Pending | Reject::Torn) => {}
            Err(Reject::OtherKey) => panic!("there is one key only"),
        }
        std::thread::yield_now();
    }
    seen
}

fn replace_while_others_read() -> u64 {
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::new(FIRST_SLOT_BYTE, BYTES);
    let stop = AtomicBool::new(false);
    let mut present = None;
    let mut replace = |owner: &mut Owner, round: u64| {
        let value = value(round);
        let record = NewRecord { key: KEY, value: &value, kind: 0, expires_at_ms: 0 };
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
        let ending = StopAtEnd(&stop);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (words, stop) = (owner.words().clone(), &stop);
                scope.spawn(move || read(&words, stop))
            })
            .collect();
        for round in 2..ROUNDS {
            replace(&mut owner, round);
            if round % 16 == 0 {
                std::thread::yield_now();
            }
        }
        drop(ending);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    })
}

#[test]
fn readers_see_one_record_or_the_other() {
    let seen = replace_while_others_read();
    assert!(seen > 0 || cfg!(miri), "nobody read anything");
}

/// The control arm of the tools: each must report a data race here. Without a
/// tool it passes, since checksums keep what is torn from being believed.
#[cfg(feature = "plants")]
#[test]
fn planted_plain_copy() {
    remora_layout::plant::choose(Some(remora_layout::plant::Plant::PlainCopy));
    replace_while_others_read();
}
