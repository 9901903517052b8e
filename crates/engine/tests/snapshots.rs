//! Snapshots in turns, while a shard changes: what another number of shards loads is exactly the
//! state at the sequence of the snapshot's end, and the log continues from there.

use crate::history::{Copy, Source, digest_of, entries};
use remora_engine::{
    Applied, Digest, Durability, Eviction, Now, OperationCount, Shard, SnapshotTurn,
    split_operation,
};
use remora_log::OwnedEntry;
use remora_protocol::{Command, LoadStep};
use remora_testing::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The snapshot of one shard.
#[derive(Default)]
struct Taken {
    stream: Vec<u8>,
    /// The sequence of its end, and the digest there.
    ended: Option<(u64, Digest)>,
    turns: u64,
    waits: u64,
}

impl Taken {
    /// One turn, of few keys.
    fn turn(&mut self, shard: &mut Shard, most: usize, now: Now) {
        self.turns += 1;
        match shard.short_snapshot_turn(most, now) {
            SnapshotTurn::More => {}
            SnapshotTurn::Waits => self.waits += 1,
            SnapshotTurn::Ended { sequence } => {
                assert_eq!(sequence, shard.last_sequence());
                self.ended = Some((sequence, shard.digest()));
            }
            other => panic!("{other:?}"),
        }
        shard.take_snapshot(&mut self.stream);
    }
}

/// The operations of a snapshot.
fn operations(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut operations = Vec::new();
    while let Some((operation, rest)) = split_operation(stream).unwrap() {
        operations.push(operation.to_vec());
        stream = rest;
    }
    assert!(stream.is_empty());
    operations
}

/// How many operations a stream has, whatever the length of its pieces.
fn counted(stream: &[u8]) -> u64 {
    let counts = [1, 3, 7, 1000, usize::MAX].map(|most| {
        let mut count = OperationCount::default();
        stream.chunks(most).for_each(|piece| count.take(piece));
        count.whole()
    });
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    // The last one is not there before its last byte.
    let mut cut = OperationCount::default();
    cut.take(&stream[..stream.len().saturating_sub(1)]);
    assert_eq!(cut.whole(), counts[0].saturating_sub(1));
    counts[0]
}

/// What operations do, by name.
fn count(operations: &[Vec<u8>], counts: &mut BTreeMap<&'static str, u64>) {
    for operation in operations {
        let (_, command, _) = Command::decode_within(operation).unwrap();
        let what = match command {
            Command::Set { .. } => "set",
            Command::Restore { .. } => "restore",
            Command::Load { step: LoadStep::Make(_), .. } => "make",
            Command::Load { step: LoadStep::Fill(_), .. } => "fill",
            Command::Load { step: LoadStep::Filled, .. } => "filled",
            Command::Load { step: LoadStep::Enter { .. }, .. } => "enter",
            Command::Load { .. } => "load",
            Command::Of { .. } => "of",
            Command::Del { .. } => "del",
            Command::MultiSet { .. } => "mset",
            Command::Flush | Command::FlushAll => "flush",
            Command::SetRange { .. } => "range",
            Command::Append { .. } | Command::SetBit { .. } => "edit",
            Command::Expire { .. } | Command::Persist { .. } => "expiry",
            _ => panic!("{command:?}"),
        };
        *counts.entry(what).or_insert(0) += 1;
    }
}

/// Loads the snapshots of some shards, in any order between them.
fn load(copy: &mut Copy, snapshots: &[Vec<Vec<u8>>], random: &mut Random) {
    let mut next = vec![0; snapshots.len()];
    while next.iter().zip(snapshots).any(|(&next, of)| next < of.len()) {
        let at = random.below(snapshots.len() as u64) as usize;
        let Some(operation) = snapshots[at].get(next[at]) else { continue };
        let loaded = copy.load(at, operation);
        assert!(
            loaded.iter().all(Result::is_ok),
            "{loaded:?} {:?}",
            Command::decode_within(operation)
        );
        assert!(loaded.contains(&Ok(Applied::Done)));
        next[at] += 1;
    }
}

/// A history with a snapshot of each shard in it.
struct Run {
    source: Source,
    taken: Vec<Taken>,
}

fn run(seed: u64, shards: usize, steps: usize) -> Run {
    let eviction = if seed.is_multiple_of(2) { Eviction::S3Fifo } else { Eviction::None };
    let durability = if seed.is_multiple_of(3) { Durability::Told } else { Durability::Memory };
    let mut source = Source::with_durability(seed, shards, eviction, durability);
    source.hook = Some(Box::new(move |_, shard, _| {
        let sequence = shard.last_sequence();
        shard.set_durable(sequence.saturating_sub(seed % 7));
    }));
    source.run(steps);
    let taken: Vec<Rc<RefCell<Taken>>> = (0..shards).map(|_| Rc::default()).collect();
    let mut random = Random::new(seed * 77 + 5);
    let of_hook = taken.clone();
    // One in so many commands has a turn behind it.
    let seldom = 1 + seed % 4;
    source.hook = Some(Box::new(move |at, shard, now| {
        let sequence = shard.last_sequence();
        shard.set_durable(sequence.saturating_sub(seed % 7));
        let mut taken = of_hook[at].borrow_mut();
        if taken.ended.is_none() && random.one_in(seldom) {
            taken.turn(shard, 1 + random.below(3) as usize, now);
        }
    }));
    for shard in &mut source.shards {
        shard.begin_snapshot().unwrap();
        assert!(shard.begin_snapshot().is_err(), "one at a time");
    }
    let mut rounds = 0;
    while taken.iter().any(|taken| taken.borrow().ended.is_none()) {
        source.run(20);
        rounds += 1;
        assert!(rounds < 2_000, "the snapshot does not end");
    }
    source.run(steps / 2);
    source.wait_for_idle_stages();
    source.hook = None;
    let taken = taken.into_iter().map(|taken| taken.take()).collect();
    Run { source, taken }
}

#[test]
fn a_snapshot_is_exact_and_the_log_continues_from_it() {
    let mut counts = BTreeMap::new();
    let seeds = std::env::var("SNAPSHOT_SEEDS").map_or(32, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        let (from, to) = (1 + seed as usize % 3, [1, 2, 3, 5][seed as usize % 4]);
        let Run { source, taken } = run(seed, from, 1_200);
        let snapshots: Vec<_> = taken.iter().map(|taken| operations(&taken.stream)).collect();
        for (snapshot, taken) in snapshots.iter().zip(&taken) {
            assert_eq!(snapshot.len() as u64, counted(&taken.stream));
        }
        snapshots.iter().for_each(|of| count(of, &mut counts));
        let ends: Vec<(u64, Digest)> = taken.iter().map(|taken| taken.ended.unwrap()).collect();
        let mut random = Random::new(seed + 99);
        let mut copy = Copy::new(to, from);
        load(&mut copy, &snapshots, &mut random);
        let expected = ends.iter().fold(Digest::default(), |sum, end| sum.with(end.1));
        assert_eq!(digest_of(&copy.shards), expected, "seed {seed}: {from} to {to}");
        // The rest of the logs.
        for (log, end) in ends.iter().enumerate() {
            let epoch = source.shards[log].log().epoch();
            let shards = copy.shards.iter_mut();
            shards.for_each(|shard| shard.begin_applying_at(log as u32, (end.0, epoch)));
        }
        let rest = |(log, bytes): (usize, &Vec<u8>)| -> Vec<OwnedEntry> {
            let all = entries(log as u32, bytes).into_iter();
            all.filter(|entry| entry.sequence > ends[log].0).collect()
        };
        let logs: Vec<_> = source.logs.iter().enumerate().map(rest).collect();
        copy.apply_all(&logs, 1, &mut random);
        assert_eq!(digest_of(&copy.shards), digest_of(&source.shards), "seed {seed}, at the end");
        copy.audit();
        *counts.entry("waits").or_insert(0) += taken.iter().map(|taken| taken.waits).sum::<u64>();
        *counts.entry("turns").or_insert(0) += taken.iter().map(|taken| taken.turns).sum::<u64>();
        for shard in &source.shards {
            *counts.entry("expired").or_insert(0) += shard.stats().expired;
            *counts.entry("evicted").or_insert(0) += shard.stats().evicted;
        }
    }
    println!("{counts:?}");
    let wanted = [
        "set", "restore", "make", "fill", "filled", "load", "enter", "of", "del", "mset", "flush",
        "range", "edit", "expiry", "waits", "expired", "evicted",
    ];
    for what in wanted {
        assert!(counts.get(what).is_some_and(|&count| count > 0), "none had: {what}");
    }
}
