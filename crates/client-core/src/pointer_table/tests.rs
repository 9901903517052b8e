//! One writer against a map; many at once; and a kill between any two stores.

use crate::pointer_cache::POPULAR_USES;
use crate::pointer_table::{SharedPointers, Stores};
use remora_arena::{Mapping, Region, RegionKind, Words};
use remora_layout::hash::{KeyHash, mix};
use remora_layout::limits::{CACHE_LINE_BYTES, POINTER_WINDOW_LINES};
use remora_layout::pointer::RemotePointer;
use remora_layout::pointer_table::{CHECKSUM_WORD, Hint, LINE_WORDS, home_line};
use remora_testing::Random;
use std::collections::HashMap;

const SEED: u64 = 0x5eed;
const S: u64 = 1_000_000_000;

fn table(lines: usize) -> SharedPointers {
    SharedPointers::new(Words::new(Mapping::heap(lines * CACHE_LINE_BYTES)), SEED)
}

/// A hint that proves itself: everything in it follows from hash and number.
fn hint(hash: u64, number: u32, lease_end_ns: u64) -> Hint {
    let proof = mix(mix(hash, number as u64), lease_end_ns);
    let pointer = RemotePointer {
        region: (proof >> 32) as u32 % 3,
        slot: number,
        length: 80,
        generation: proof as u32,
    };
    Hint { hash: KeyHash(hash), pointer, lease_end_ns, term_ms: 1_000 }
}

fn is_proven(hash: u64, seen: (RemotePointer, u64)) -> bool {
    hint(hash, seen.0.slot, seen.1).pointer == seen.0
}

fn seen(table: &SharedPointers, hash: u64) -> Option<(RemotePointer, u64)> {
    table.find(KeyHash(hash)).map(|entry| (entry.pointer(entry.region_low()), entry.lease_end_ns()))
}

fn of(hint: &Hint) -> (RemotePointer, u64) {
    (hint.pointer, hint.lease_end_ns)
}

#[test]
fn never_gives_a_pointer_that_was_not_put_last() {
    let table = table(1 << 12);
    let mut oracle: HashMap<u64, Hint> = HashMap::new();
    let mut random = Random::new(5);
    let (mut hits, mut lookups) = (0, 0);
    for step in 0..200_000u32 {
        let draw = random.bits();
        let hash = mix(draw % 2_000, 1);
        match draw >> 40 & 7 {
            0 => {
                let hint = hint(hash, step, S + step as u64);
                table.put(&hint, step as u64);
                oracle.insert(hash, hint);
            }
            1 if draw >> 50 & 3 == 0 => {
                table.remove(KeyHash(hash));
                oracle.remove(&hash);
            }
            2 if draw >> 50 & 3 == 0 => {
                // Only what it still holds is forgotten.
                if let Some(held) = oracle.get(&hash) {
                    let other = RemotePointer { slot: held.pointer.slot + 1, ..held.pointer };
                    table.forget(KeyHash(hash), other, u64::MAX);
                    table.forget(KeyHash(hash), held.pointer, held.lease_end_ns - 1);
                }
            }
            3 if draw >> 50 & 3 == 0 => {
                if let Some(held) = oracle.remove(&hash) {
                    table.forget(KeyHash(hash), held.pointer, held.lease_end_ns);
                }
            }
            _ => {
                lookups += oracle.contains_key(&hash) as u32;
                if let Some(found) = seen(&table, hash) {
                    hits += 1;
                    assert_eq!(Some(found), oracle.get(&hash).map(of));
                }
            }
        }
    }
    assert!(lookups > 50_000 && hits * 100 > lookups * 99, "it keeps what fits: {hits}/{lookups}");
}

#[test]
fn a_key_takes_its_own_line_or_one_whose_lease_has_ended() {
    let table = table(POINTER_WINDOW_LINES);
    let lines = POINTER_WINDOW_LINES as u64;
    for hash in 0..lines {
        table.put(&hint(hash, 1, 10 * S + hash), S);
    }
    // Another's lease ends before that of the last one.
    table.put(&hint(lines - 1, 2, 20 * S), S);
    assert_eq!(seen(&table, lines - 1), Some(of(&hint(lines - 1, 2, 20 * S))));
    for hash in 0..lines - 1 {
        assert_eq!(seen(&table, hash), Some(of(&hint(hash, 1, 10 * S + hash))), "all have theirs");
    }
    // Two leases have ended; that it was this very moment is enough.
    table.put(&hint(50, 1, 30 * S), 10 * S + 1);
    table.put(&hint(51, 1, 30 * S), 10 * S + 1);
    let left: Vec<u64> = (0..60).filter(|&hash| seen(&table, hash).is_some()).collect();
    assert_eq!(left, (2..lines).chain([50, 51]).collect::<Vec<_>>());
}

#[test]
fn what_two_writers_left_twice_stands_once_after_the_next_put() {
    let table = table(4 * POINTER_WINDOW_LINES);
    table.put(&hint(7, 1, 10 * S), S);
    let window: Vec<usize> = table.window(KeyHash(7)).collect();
    let has = |line: usize| table.hint_of(line, KeyHash(7)).is_some();
    let held: Vec<usize> = window.iter().copied().filter(|&line| has(line)).collect();
    for at in 0..LINE_WORDS {
        let word = table.words.load(held[0] * LINE_WORDS + at);
        window.iter().for_each(|&line| table.words.store(line * LINE_WORDS + at, word));
    }
    assert!(window.iter().all(|&line| has(line)));
    table.put(&hint(7, 2, 20 * S), S);
    assert_eq!(window.iter().filter(|&&line| has(line)).count(), 1);
    assert_eq!(seen(&table, 7), Some(of(&hint(7, 2, 20 * S))));
}

#[test]
fn what_is_pushed_out_has_expired_or_ends_first() {
    let table = table(POINTER_WINDOW_LINES);
    let lines = POINTER_WINDOW_LINES as u64;
    for hash in 0..lines {
        table.put(&hint(hash, 1, 10 * S + hash), S);
    }
    table.put(&hint(100, 1, 20 * S), S);
    let left: Vec<u64> = (0..lines).filter(|&hash| seen(&table, hash).is_some()).collect();
    assert_eq!(left, (1..lines).collect::<Vec<_>>(), "the one whose lease ends first has gone");
    // A lease that no server gives out does not hold a line for ever.
    table.put(&hint(2, 1, u64::MAX), S);
    table.put(&hint(101, 1, 20 * S), S);
    assert!(seen(&table, 101).is_some() && seen(&table, 2).is_none());
    // All but the two have expired: any number of others fits before those go.
    for hash in 200..200 + lines - 2 {
        table.put(&hint(hash, 1, 19 * S), 15 * S);
    }
    assert!(seen(&table, 100).is_some() && seen(&table, 101).is_some());
}

#[test]
fn uses_are_counted_up_to_what_makes_a_key_popular() {
    let table = table(64);
    table.put(&Hint { term_ms: 8_000, ..hint(1, 1, 8 * S) }, 0);
    let late = 8 * S - 100_000_000;
    for _ in 1..POPULAR_USES {
        assert!(!table.find(KeyHash(1)).unwrap().wants_renewal(late));
    }
    for _ in 0..2 {
        let entry = table.find(KeyHash(1)).unwrap();
        assert!(entry.wants_renewal(late) && !entry.wants_renewal(6 * S));
    }
    table.put(&Hint { term_ms: 8_000, ..hint(1, 2, 16 * S) }, 8 * S);
    let entry = table.find(KeyHash(1)).unwrap();
    assert!(!entry.wants_renewal(16 * S - 1), "a new lease counts anew");
}

/// Threads that each map the table themselves, as processes do.
#[test]
fn many_at_once_never_see_what_nobody_put() {
    const HASHES: u64 = 24;
    const BYTES: usize = 64 * CACHE_LINE_BYTES;
    let region = Region::create("test", RegionKind::Hints, BYTES).unwrap();
    let view = || {
        let mapping = Mapping::of_peer(region.fd(), BYTES).unwrap();
        SharedPointers::new(Words::new(mapping), SEED)
    };
    let hash = |draw: u64| mix(draw % HASHES, 3);
    let hits: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=4u64)
            .map(|thread| {
                let table = view();
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    let mut hits = 0;
                    for step in 0..100_000u32 {
                        let draw = random.bits();
                        let hash = hash(draw);
                        match draw >> 40 & 7 {
                            0 | 1 => {
                                let number = step << 3 | thread as u32;
                                table.put(&hint(hash, number, S + draw % S), 1);
                            }
                            2 => table.remove(KeyHash(hash)),
                            _ => {
                                if let Some(found) = seen(&table, hash) {
                                    hits += 1;
                                    assert!(is_proven(hash, found), "{hash:x}: {found:?}");
                                    if draw >> 50 & 15 == 0 {
                                        table.forget(KeyHash(hash), found.0, u64::MAX);
                                    }
                                }
                            }
                        }
                    }
                    hits
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(hits.iter().all(|&hits| hits > 1_000), "{hits:?}");
    // In peace again: whatever was left behind, forgetting and putting work.
    let (one, other) = (view(), view());
    for hash in (0..HASHES).map(hash) {
        for _ in 0..POINTER_WINDOW_LINES {
            let Some(found) = seen(&one, hash) else { break };
            assert!(is_proven(hash, found));
            one.forget(KeyHash(hash), found.0, found.1);
        }
        assert_eq!(seen(&other, hash), None);
        one.put(&hint(hash, 7, 2 * S), 1);
        assert_eq!(seen(&other, hash), Some(of(&hint(hash, 7, 2 * S))));
    }
}

/// What a writer does, and is killed at.
#[derive(Clone, Copy, Debug)]
enum Write {
    Put(Hint),
    Remove(u64),
    Forget(Hint),
}

impl Write {
    fn stores(&self, table: &SharedPointers) -> Stores {
        match self {
            Self::Put(hint) => table.stores_of_put(hint, 1),
            Self::Remove(hash) => table.stores_of_emptying(KeyHash(*hash), |_| true),
            Self::Forget(dead) => {
                table.stores_of_emptying(dead.hash, |hint| hint.pointer == dead.pointer)
            }
        }
    }
}

/// Two writers on one table, and what readers may see whenever either dies.
struct Fixture {
    table: SharedPointers,
    allowed: Vec<Hint>,
    states: u64,
    /// States in which a reader without the checksum would be misled.
    mixed: u64,
}

impl Fixture {
    /// Both writers may be killed now: no other client is affected.
    fn check(&mut self) {
        self.states += 1;
        for hash in self.allowed.iter().map(|hint| hint.hash.0) {
            let found = seen(&self.table, hash);
            let is_allowed =
                |found| self.allowed.iter().any(|hint| hint.hash.0 == hash && of(hint) == found);
            assert!(found.is_none_or(is_allowed), "{hash:x}: {found:?}");
        }
        for line in 0..self.table.lines {
            let words: Vec<u64> = (0..CHECKSUM_WORD)
                .map(|at| self.table.words.load(line * LINE_WORDS + at))
                .collect();
            let is_put = |hint: &Hint| hint.to_words(SEED)[..CHECKSUM_WORD] == words;
            let is_empty = self.table.words.load(line * LINE_WORDS + CHECKSUM_WORD) == 0;
            self.mixed += (!is_empty && !self.allowed.iter().any(is_put)) as u64;
        }
        // The next writer needs to know nothing of it.
        let after = self.copy();
        for later in self.allowed.iter().map(|hint| self::hint(hint.hash.0, 999, 90 * S)) {
            after.put(&later, 1);
            assert_eq!(seen(&after, later.hash.0), Some(of(&later)));
            after.forget(later.hash, later.pointer, u64::MAX);
            assert_eq!(seen(&after, later.hash.0), None, "it stands nowhere a second time");
        }
    }

    fn copy(&self) -> SharedPointers {
        let copy = table(self.table.lines);
        for word in 0..self.table.lines * LINE_WORDS {
            copy.words.store(word, self.table.words.load(word));
        }
        copy
    }

    /// Every order in which what is left of two operations can go on.
    fn interleave(&mut self, one: &[(usize, u64)], other: &[(usize, u64)]) {
        self.check();
        for (first, rest) in [(one, other), (other, one)] {
            let Some((&(word, content), first)) = first.split_first() else { continue };
            let before = self.table.words.load(word);
            self.table.words.store(word, content);
            self.interleave(first, rest);
            self.table.words.store(word, before);
        }
    }
}

/// The first writer is at any of its stores when the second one reads.
fn kill_everywhere(before: &[Hint], one: Write, other: Write) -> (u64, u64) {
    let table = table(POINTER_WINDOW_LINES);
    for hint in before {
        table.put(hint, 1);
    }
    let puts = [one, other].into_iter().filter_map(|write| match write {
        Write::Put(hint) => Some(hint),
        Write::Remove(_) | Write::Forget(_) => None,
    });
    let allowed = before.iter().copied().chain(puts).collect();
    let mut fixture = Fixture { table, allowed, states: 0, mixed: 0 };
    let stores = one.stores(&fixture.table);
    let stores = stores.as_slice();
    assert!(!stores.is_empty());
    for done in 0..=stores.len() {
        let others = other.stores(&fixture.table);
        fixture.interleave(&stores[done..], others.as_slice());
        if let Some(&(word, content)) = stores.get(done) {
            fixture.table.words.store(word, content);
        }
    }
    (fixture.states, fixture.mixed)
}

#[test]
fn a_writer_killed_between_any_two_stores_harms_nobody() {
    let old = hint(5, 1, 10 * S);
    let (new, other) = (hint(5, 2, 11 * S), hint(6, 3, 12 * S));
    let newer = hint(5, 4, 13 * S);
    let full: Vec<Hint> =
        (0..POINTER_WINDOW_LINES as u64).map(|hash| hint(hash + 50, 1, 10 * S + hash)).collect();
    let renewed = Hint { lease_end_ns: 14 * S, ..old };
    let cases: [(&[Hint], Write, Write); 9] = [
        (&[], Write::Put(new), Write::Put(newer)),
        (&[], Write::Put(new), Write::Put(other)),
        (&[old], Write::Put(new), Write::Put(newer)),
        (&[old], Write::Put(new), Write::Remove(5)),
        (&[old], Write::Put(new), Write::Forget(old)),
        (&[old], Write::Forget(old), Write::Put(new)),
        (&[old], Write::Put(renewed), Write::Put(new)),
        (&full, Write::Put(new), Write::Put(other)),
        (&full, Write::Put(new), Write::Put(newer)),
    ];
    let (mut states, mut mixed) = (0, 0);
    for (before, one, other) in cases {
        let (case_states, case_mixed) = kill_everywhere(before, one, other);
        assert!(case_states > 10);
        states += case_states;
        mixed += case_mixed;
    }
    println!("{states} states, {mixed} of them with lines that only the checksum tells apart");
    assert!(mixed > 1_000, "the control: without its checksum a reader would be misled");
}

#[test]
fn garbage_says_nothing_and_is_written_over() {
    let table = table(64);
    let mut random = Random::new(77);
    for _ in 0..50 {
        for word in 0..64 * LINE_WORDS {
            table.words.store(word, random.bits());
        }
        for hash in 0..40 {
            // Even a line that names the hash.
            table.words.store(home_line(KeyHash(hash), 64) * LINE_WORDS, hash);
            assert_eq!(seen(&table, hash), None);
        }
        for hash in 0..8 {
            table.put(&hint(hash, 1, S), 1);
            assert_eq!(seen(&table, hash), Some(of(&hint(hash, 1, S))));
        }
    }
}
