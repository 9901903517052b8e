//! A reader of the shared pointers finds only pointers that a client put, whatever
//! another writes meanwhile, and however stale each word is that it sees. (Two
//! that write at once: the unit tests of the table try every order of stores.)

use loom::thread;
use remora_layout::hash::KeyHash;
use remora_layout::limits::POINTER_WINDOW_LINES;
use remora_layout::pointer::RemotePointer;
use remora_layout::pointer_table::{Hint, LINE_WORDS, home_line};
use remora_models::pointer_table::SharedPointers;
use remora_models::sync::Words;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const SEED: u64 = 0x5eed;
const HASH: KeyHash = KeyHash(5);
const HOME: usize = home_line(HASH, POINTER_WINDOW_LINES);
/// What stands in the table before anybody writes.
const OLD: u32 = 1;

fn hint(number: u32) -> Hint {
    let pointer = RemotePointer { region: 1, slot: number, length: 80, generation: number };
    Hint { hash: HASH, pointer, lease_end_ns: 1_000 + number as u64, term_ms: 1_000 }
}

#[derive(Clone, Copy)]
enum Write {
    Put(u32),
    Remove,
    ForgetOld,
}

impl Write {
    fn run(self, table: &SharedPointers) {
        match self {
            Self::Put(number) => table.put(&hint(number), 1),
            Self::Remove => table.remove(HASH),
            Self::ForgetOld => table.forget(HASH, hint(OLD).pointer, u64::MAX),
        }
    }
}

/// A reader: the pointer and the lease's end that it believes in.
type Reader = fn(&Words) -> Option<(RemotePointer, u64)>;

fn find(words: &Words) -> Option<(RemotePointer, u64)> {
    let entry = SharedPointers::new(words.clone(), SEED).find(HASH)?;
    Some((entry.pointer(entry.region_low()), entry.lease_end_ns()))
}

/// The control: takes the line as it is.
fn without_checksum(words: &Words) -> Option<(RemotePointer, u64)> {
    let word = |at| words.load(HOME * LINE_WORDS + at);
    Some((RemotePointer::from_words([word(1), word(2)]), word(3)))
}

/// What readers found in all runs.
#[derive(Default)]
struct Found {
    runs: AtomicUsize,
    /// Bit N: hint N; bit 0: nothing.
    hints: AtomicU32,
    /// A pointer that no client has put.
    invented: AtomicUsize,
}

impl Found {
    fn judge(&self, seen: Option<(RemotePointer, u64)>) {
        let number = seen.map_or(0, |(pointer, _)| pointer.slot);
        let put = |number| Some((hint(number).pointer, hint(number).lease_end_ns));
        if seen.is_none() || number <= 3 && seen == put(number) {
            self.hints.fetch_or(1 << number, Ordering::Relaxed);
        } else {
            self.invented.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One thread writes, one reads. A thread that could go
/// on is interrupted at most once.
fn read_while(writes: &'static [Write], reader: Reader) -> (u32, usize) {
    let found: &'static Found = Box::leak(Box::default());
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(1);
    model.max_branches = 10_000;
    model.check(move || {
        let words = Words::zeroed(POINTER_WINDOW_LINES, HOME..HOME + 1);
        Write::Put(OLD).run(&SharedPointers::new(words.clone(), SEED));
        found.runs.fetch_add(1, Ordering::Relaxed);
        let table = SharedPointers::new(words.clone(), SEED);
        thread::spawn(move || found.judge(reader(&words)));
        writes.iter().for_each(|write| write.run(&table));
    });
    let (hints, invented) = (found.hints.load(Ordering::Relaxed), &found.invented);
    println!("{} runs, found {hints:#b}", found.runs.load(Ordering::Relaxed));
    (hints, invented.load(Ordering::Relaxed))
}

#[test]
fn a_reader_finds_what_was_put() {
    use Write::{ForgetOld, Put, Remove};
    assert_eq!(read_while(&[Put(2)], find), (0b111, 0));
    assert_eq!(read_while(&[Remove, Put(2)], find), (0b111, 0));
    assert_eq!(read_while(&[Put(2), ForgetOld], find), (0b111, 0));
    assert_eq!(read_while(&[Put(2), Put(3)], find), (0b1111, 0));
    assert!(read_while(&[Put(2)], without_checksum).1 > 0, "the control");
}
