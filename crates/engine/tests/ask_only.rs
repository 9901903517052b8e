//! Values that are changed in place: the cost, when they are readable again, and threads that read
//! all the while.

use remora_arena::{Journal, NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::hash::{AskReason, walk_locally};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{ASK_ONLY_BYTES, REPUBLISH_TICK_BYTES};
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const KEY: &[u8] = b"key";

fn shard<J: Journal>(owner: Owner<J>) -> Shard<J> {
    Shard::new(owner, ShardOptions { buckets: 8, ..ShardOptions::default() })
}

fn at_second(since_start_s: u64) -> Now {
    Now { unix_ms: 1_000_000 + since_start_s * 1_000, since_start_s }
}

fn execute<J: Journal>(shard: &mut Shard<J>, command: &Command<'_>, now: Now) -> i64 {
    let hash = command.key().map_or(KeyHash(0), |key| shard.hash(key));
    let reply = shard.execute(command, hash, now);
    assert_eq!(reply.status, Status::Ok);
    reply.number
}

/// A reader's result: the value, or that it has to ask.
fn read<J: Journal>(shard: &Shard<J>) -> Option<Vec<u8>> {
    let words = shard.owner().view().clone();
    let mut scratch = Vec::new();
    match walk_locally(
        &words,
        &mut shard.table_ref(),
        KEY,
        shard.hash(KEY),
        Kind::STRING,
        &mut scratch,
    ) {
        Ok(found) => Some(found.value.to_vec()),
        Err(reason) => {
            assert_eq!(reason, AskReason::Pending);
            None
        }
    }
}

#[test]
fn a_change_while_it_is_checksummed_begins_it_again() {
    let mut shard = shard(Owner::heap(16 << 20, NoJournal));
    let ticks = 3;
    let bytes = ticks * REPUBLISH_TICK_BYTES - 100_000;
    let mut value = vec![5; bytes];
    execute(&mut shard, &Command::Append { key: KEY, value: &value }, at_second(0));
    for (change, place) in [(1, 10), (2, bytes - 1), (3, bytes / 2)] {
        let now = at_second(10 * change);
        let part = [change as u8];
        value[place] = part[0];
        let set = Command::SetRange { key: KEY, offset: place as u64, value: &part };
        execute(&mut shard, &set, now);
        // Not before a second has passed since the change.
        for second in [0, 1] {
            shard.tick(at_second(10 * change + second));
            assert_eq!((read(&shard), shard.stats().ask_only), (None, 1));
        }
        // Now some of it is checksummed; in the last round all.
        let rounds = if change == 3 { ticks } else { ticks - 1 };
        for round in 0..rounds {
            assert!(read(&shard).is_none(), "{round}");
            shard.tick(at_second(10 * change + 2));
        }
    }
    assert_eq!(shard.stats().ask_only, 0);
    assert!(read(&shard) == Some(value));
}

/// Counts the words stored.
#[derive(Default)]
struct Counting(std::sync::Arc<AtomicU64>);

impl Journal for Counting {
    const ACTIVE: bool = true;
    fn stored(&mut self, _index: usize, _value: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn fenced(&mut self) {}
}

#[test]
fn appending_costs_what_is_appended() {
    let words = std::sync::Arc::new(AtomicU64::new(0));
    let mut shard = shard(Owner::heap(32 << 20, Counting(words.clone())));
    let part = [9; 1000];
    let before = words.load(Ordering::Relaxed);
    for round in 1..=8_000 {
        // It is republished now and then, which takes its room not away.
        let now = at_second(round / 50);
        let number = execute(&mut shard, &Command::Append { key: KEY, value: &part }, now);
        assert_eq!(number as u64, round * 1000);
        shard.tick(now);
    }
    let appended = 8_000_000 / 8;
    let stored = words.load(Ordering::Relaxed) - before;
    // A copy for each growth by a quarter: five times the end; and small ones.
    assert!(stored < 8 * appended, "{stored} words for {appended}");
    // The room to grow into is bounded.
    let used = shard.stats().slots.used_bytes;
    assert!(used < 8_000_000 / 4 * 5 + 16_384, "{used}");
}

/// Stops the readers when the writer is done, or has failed.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_beside_edits_see_whole_values_only() {
    const ROUNDS: u64 = if cfg!(miri) { 3 } else { 400 };
    const VALUE_BYTES: usize = ASK_ONLY_BYTES + 5_000;
    let mut shard = shard(Owner::heap(4 << 20, NoJournal));
    let (table, hash) = (shard.table_ref(), shard.hash(KEY));
    let whole = Command::Append { key: KEY, value: &[0; VALUE_BYTES] };
    execute(&mut shard, &whole, at_second(0));
    let seen = &AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        let ending = StopAtEnd(&stop);
        let (words, table, stop) = (shard.owner().view().clone(), &table, &stop);
        let reader = scope.spawn(move || {
            let (mut found, mut last, mut scratch) = (0u64, 0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                if let Ok(record) =
                    walk_locally(&words, &mut table.clone(), KEY, hash, Kind::STRING, &mut scratch)
                {
                    let fill = record.value[0];
                    assert!(record.value.iter().all(|byte| *byte == fill), "a mixed value");
                    assert_eq!(record.value.len(), VALUE_BYTES);
                    let newer = fill.wrapping_sub(last);
                    assert!(newer < 128, "never back to an older value");
                    last = fill;
                    found += 1;
                    seen.store(found, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
            found
        });
        for round in 0..ROUNDS {
            let now = at_second(round * 3);
            // One value, in four edits that readers must not see apart.
            let part = vec![(round / 4) as u8; VALUE_BYTES.div_ceil(4)];
            for quarter in 0..4 {
                let from = quarter * part.len();
                let part = &part[..part.len().min(VALUE_BYTES - from)];
                let set = Command::SetRange { key: KEY, offset: from as u64, value: part };
                execute(&mut shard, &set, now);
            }
            shard.tick(at_second(round * 3 + 2));
            assert_eq!(shard.stats().ask_only, 0);
            // A chance for the reader, but no more than that.
            let before = seen.load(Ordering::Relaxed);
            for _ in 0..100 {
                if seen.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
            }
        }
        // At the end it gets the time that it needs: there is a whole value.
        while !cfg!(miri) && seen.load(Ordering::Relaxed) == 0 && !reader.is_finished() {
            std::thread::yield_now();
        }
        drop(ending);
        reader.join().unwrap()
    });
    assert!(found > 0 || cfg!(miri), "some reads met a whole value");
}
