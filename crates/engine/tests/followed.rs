//! Shards of a replica with a disk: they crash anywhere, are recovered from what their own logs and
//! snapshots have, with as many shards or others, and go on. In the end they have what the primary
//! has: no entry twice, and none left out.

use crate::history::{SECRET, START, Source, digest_of, entries, home, shard};
use remora_engine::{
    Applied, ApplyError, Digest, Eviction, FollowedLog, Now, Origin, Shard, SnapshotTurn,
    split_operation,
};
use remora_log::{Assembler, Cursor, Frames, Hold, Log, LogKey, LogOptions, OwnedEntry};
use remora_protocol::applied::AppliedEntry;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;
use std::collections::BTreeMap;

/// Its own clock is far ahead: it must expire nothing by it.
const NOW: Now = Now { unix_ms: START.unix_ms * 2, since_start_s: 9 };
const KEY: u64 = 0x5e7;

/// What one incarnation of the replica has left on its disk.
#[derive(Default)]
struct Incarnation {
    shards: usize,
    /// By shard, the operations of a snapshot, and the sequence at which it is exact.
    snapshot: Option<Vec<(Vec<Vec<u8>>, u64)>>,
    /// By shard, the frames of its log.
    logs: Vec<Vec<u8>>,
    first: Vec<u64>,
}

impl Incarnation {
    /// The whole entries of a shard that the snapshot has not.
    fn entries(&self, of: usize) -> Vec<OwnedEntry> {
        let mut assembler = Assembler::new(self.first[of], usize::MAX);
        let key = LogKey::new(SECRET, 100 + of as u32);
        let mut entries = Vec::new();
        for frame in Frames::new(&self.logs[of], key).map_while(Result::ok) {
            entries.extend(assembler.take(frame).unwrap().map(|entry| entry.to_owned()));
        }
        let covered = self.snapshot.as_ref().map_or(0, |snapshot| snapshot[of].1);
        entries.retain(|entry| entry.sequence > covered);
        entries
    }
}

/// A snapshot under way: by shard, the stream, and the sequence of its end.
type Taken = Vec<(Vec<u8>, Option<u64>)>;

struct Replica {
    shards: Vec<Shard>,
    cursors: Vec<(Cursor, Hold)>,
    /// Logs of the primary.
    logs: usize,
    disk: Vec<Incarnation>,
    taken: Option<Taken>,
    counts: BTreeMap<&'static str, u64>,
}

impl Replica {
    fn start(mut disk: Vec<Incarnation>, shards: usize, logs: usize) -> Self {
        let made = (0..shards as u32).map(|at| shard(100 + at, 64 << 20, Eviction::S3Fifo));
        let mut all: Vec<Shard> = made.collect();
        for (number, shard) in all.iter_mut().enumerate() {
            recover(&disk, (number, shards), shard);
            shard.begin_following((number, shards), true);
            shard.set_durable(shard.last_sequence());
        }
        let first: Vec<u64> = all.iter().map(|shard| shard.last_sequence() + 1).collect();
        let cursor = |shard: &mut Shard| {
            let cursor = shard.log().cursor(shard.last_sequence() + 1).unwrap();
            let hold = shard.hold_log(&cursor).unwrap();
            (cursor, hold)
        };
        let cursors = all.iter_mut().map(cursor).collect();
        disk.push(Incarnation { shards, snapshot: None, logs: vec![Vec::new(); shards], first });
        Self { shards: all, cursors, logs, disk, taken: None, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    /// Carries something out at each shard with keys of a log, and puts the log on the disk.
    fn each<R>(&mut self, log: usize, mut of: impl FnMut(&mut Shard, &Origin<'_>) -> R) -> Vec<R> {
        let (logs, count) = (self.logs, self.shards.len());
        let mut results = Vec::new();
        for (at, shard) in self.shards.iter_mut().enumerate() {
            if count == logs && at != log {
                continue;
            }
            let takes = |key: &[u8]| home(key, logs) == log && home(key, count) == at;
            let origin = Origin { log: log as u32, takes: &takes, cut: 0 };
            let (number, logs) = (log as u16, logs as u16);
            shard.follow_log(FollowedLog { log: number, logs, key: KEY, position: None });
            results.push(of(shard, &origin));
            let (cursor, hold) = &mut self.cursors[at];
            let kept = &mut self.disk.last_mut().unwrap().logs[at];
            shard.log().read(cursor, usize::MAX, kept).expect("it is held");
            shard.move_hold(hold, cursor).unwrap();
            while shard.wants_release() {
                shard.release_some(NOW);
            }
        }
        results
    }

    fn apply(&mut self, log: usize, entry: &OwnedEntry, marks: bool) -> Vec<Applied> {
        let applied = self.each(log, |shard, origin| {
            let applied = shard.apply(&entry.entry(), origin, NOW);
            if marks {
                shard.log_progress();
            }
            applied
        });
        applied.into_iter().map(|applied| applied.unwrap()).collect()
    }

    fn begin_copy(&mut self, log: usize) {
        self.taken = None;
        self.each(log, |shard, origin| shard.begin_copy(origin, NOW));
        assert!(self.shards.iter_mut().any(|shard| shard.begin_snapshot().is_err()));
        self.shards.iter_mut().for_each(Shard::abandon_snapshot);
    }

    /// Where a log goes on: behind what all shards have of it; `None` if it is to be copied.
    fn next(&self, log: usize) -> Option<u64> {
        let mut least = u64::MAX;
        for (at, shard) in self.shards.iter().enumerate() {
            if self.shards.len() == self.logs && at != log {
                continue;
            }
            let followed = shard.followed_logs();
            let of = followed.iter().find(|of| usize::from(of.log) == log)?;
            assert_eq!((of.key, usize::from(of.logs)), (KEY, self.logs));
            assert!(of.position.is_none_or(|at| at.0 == shard.applied(log as u32)));
            least = least.min(of.position?.0);
        }
        Some(least + 1)
    }

    /// A few turns of a snapshot of its own.
    fn snapshot_some(&mut self, random: &mut Random) {
        if self.taken.is_none() {
            if self.shards.iter_mut().any(|shard| shard.begin_snapshot().is_err()) {
                self.shards.iter_mut().for_each(Shard::abandon_snapshot);
                return;
            }
            self.taken = Some(vec![(Vec::new(), None); self.shards.len()]);
        }
        let taken = self.taken.as_mut().unwrap();
        for (shard, (stream, ended)) in self.shards.iter_mut().zip(taken.iter_mut()) {
            if ended.is_some() {
                continue;
            }
            match shard.short_snapshot_turn(1 + random.below(40) as usize, NOW) {
                SnapshotTurn::Ended { sequence } => *ended = Some(sequence),
                SnapshotTurn::GivenUp => panic!("it is taken"),
                _ => {}
            }
            shard.take_snapshot(stream);
        }
        if taken.iter().all(|(_, ended)| ended.is_some()) {
            let taken = self.taken.take().unwrap().into_iter();
            let incarnation = self.disk.pop().unwrap();
            let snapshot = taken.map(|(stream, ended)| (operations(&stream), ended.unwrap()));
            self.disk = vec![Incarnation { snapshot: Some(snapshot.collect()), ..incarnation }];
            self.count("snapshots");
        }
    }

    /// It dies. Of each shard's log the end is lost, in the middle of an entry, too.
    fn crash(mut self, random: &mut Random) -> Vec<Incarnation> {
        let incarnation = self.disk.last_mut().unwrap();
        for (at, log) in incarnation.logs.iter_mut().enumerate() {
            // What a snapshot covers was on the disk before.
            let covered = incarnation.snapshot.as_ref().map_or(0, |snapshot| snapshot[at].1);
            let least = frames_up_to(log, at, covered);
            let lost = random.below(1 + (log.len() - least).min(40_000) as u64) as usize;
            log.truncate(log.len() - if random.one_in(2) { lost } else { 0 });
        }
        self.disk
    }
}

/// Bytes of the frames of entries up to a sequence.
fn frames_up_to(log: &[u8], shard: usize, sequence: u64) -> usize {
    let mut frames = Frames::new(log, LogKey::new(SECRET, 100 + shard as u32));
    let mut bytes = 0;
    while let Some(Ok(frame)) = frames.next()
        && frame.sequence <= sequence
    {
        bytes = log.len() - frames.rest().len();
    }
    bytes
}

fn operations(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut operations = Vec::new();
    while let Some((operation, rest)) = split_operation(stream).unwrap() {
        operations.push(operation.to_vec());
        stream = rest;
    }
    operations
}

/// Brings a fresh shard to what the disk has, as the server does.
fn recover(disk: &[Incarnation], (number, shards): (usize, usize), shard: &mut Shard) {
    shard.begin_applying();
    for (at, incarnation) in disk.iter().enumerate() {
        let is_same = incarnation.shards == shards;
        let mut has_begun = false;
        for of in (0..incarnation.shards).filter(|&of| !is_same || of == number) {
            let takes = |key: &[u8]| {
                home(key, shards) == number && (is_same || home(key, incarnation.shards) == of)
            };
            let origin = Origin { log: (at * 64 + of) as u32, takes: &takes, cut: 0 };
            let mut begin = |shard: &mut Shard| {
                if !std::mem::replace(&mut has_begun, true) {
                    shard
                        .begin_recovered_incarnation(incarnation.shards, is_same.then_some(number));
                }
                shard.recover_from(of);
            };
            let mut covered = incarnation.first[of] - 1;
            if let Some(snapshot) = &incarnation.snapshot {
                begin(shard);
                covered = snapshot[of].1;
                for operation in &snapshot[of].0 {
                    shard.load(operation, &origin, NOW).unwrap();
                    while shard.wants_release() {
                        shard.release_some(NOW);
                    }
                }
            }
            shard.begin_applying_at(origin.log, (covered, 1));
            for entry in incarnation.entries(of) {
                begin(shard);
                let applied = shard.apply(&entry.entry(), &origin, NOW);
                assert!(applied.is_ok(), "{applied:?} {} {:?}", entry.sequence, name(&entry));
                while shard.wants_release() {
                    shard.release_some(NOW);
                }
            }
        }
    }
    shard.end_recovery((number, shards));
}

/// What an entry of a replica says, for a test that fails.
fn name(entry: &OwnedEntry) -> String {
    let applied = AppliedEntry::decode(entry.operation()).unwrap();
    let command = Command::decode_within(applied.operation).map(|(_, command, _)| command);
    let mut text = format!("{:?} {:?} {command:?}", applied.step, applied.position);
    text.truncate(400);
    text
}

struct Primary {
    source: Source,
    logs: Vec<Vec<OwnedEntry>>,
}

impl Primary {
    fn new(seed: u64, shards: usize) -> Self {
        let eviction = if seed.is_multiple_of(2) { Eviction::S3Fifo } else { Eviction::None };
        Self { source: Source::new(seed, shards, eviction), logs: vec![Vec::new(); shards] }
    }

    fn run(&mut self, steps: usize) {
        self.source.run(steps);
        self.source.wait_for_idle_stages();
        let all = self.source.logs.iter().enumerate();
        self.logs = all.map(|(at, bytes)| entries(at as u32, bytes)).collect();
    }

    /// A copy of a shard, exact at its last entry.
    fn copy_of(&mut self, log: usize) -> Vec<Vec<u8>> {
        let (shard, now) = (&mut self.source.shards[log], self.source.now);
        shard.begin_snapshot().unwrap();
        let mut stream = Vec::new();
        while !matches!(shard.snapshot_turn(now), SnapshotTurn::Ended { .. }) {
            shard.take_snapshot(&mut stream);
        }
        shard.take_snapshot(&mut stream);
        operations(&stream)
    }
}

/// A replica and its primary, from one crash to the next.
struct Run {
    primary: Primary,
    random: Random,
    replica: Option<Replica>,
    counts: BTreeMap<&'static str, u64>,
    /// Whether copies are snapshots, or the whole log.
    copies_state: bool,
}

impl Run {
    fn replica(&mut self) -> &mut Replica {
        self.replica.as_mut().unwrap()
    }

    fn crash(&mut self, shards: usize) {
        let replica = self.replica.take().unwrap();
        for (what, count) in &replica.counts {
            *self.counts.entry(what).or_insert(0) += count;
        }
        let logs = replica.logs;
        let changes = replica.shards.len() != shards;
        let disk = replica.crash(&mut self.random);
        self.replica = Some(Replica::start(disk, shards, logs));
        *self.counts.entry(if changes { "other shards" } else { "as many" }).or_insert(0) += 1;
    }

    /// Copies a log; false if the replica is to crash in the middle.
    fn copy(&mut self, log: usize, may_crash: bool) -> bool {
        let operations = match self.copies_state {
            true => self.primary.copy_of(log),
            false => Vec::new(),
        };
        let last = match self.copies_state {
            true => self.primary.source.shards[log].last_sequence(),
            false => 0,
        };
        self.replica().begin_copy(log);
        let crashes = may_crash && self.random.one_in(2);
        let until = match crashes {
            true => self.random.below(1 + operations.len() as u64) as usize,
            false => operations.len(),
        };
        for operation in &operations[..until] {
            let loaded =
                self.replica().each(log, |shard, origin| shard.load(operation, origin, NOW));
            assert!(loaded.iter().all(Result::is_ok), "{loaded:?}");
        }
        assert_eq!(self.replica().next(log), None, "a copy counts from its end on");
        *self.counts.entry(if crashes { "torn copies" } else { "copies" }).or_insert(0) += 1;
        if !crashes {
            self.replica().each(log, |shard, _| shard.follow_at(log as u32, (last, 1)));
            assert_eq!(self.replica().next(log), Some(last + 1));
        }
        !crashes
    }

    /// Follows all logs to their ends, with crashes on the way.
    fn follow(&mut self, mut crashes: u32, shards: impl Fn(u32) -> usize) {
        let logs = self.primary.logs.len();
        loop {
            let begins: Vec<u64> = (0..logs)
                .map_while(|log| match self.replica().next(log) {
                    Some(next) => Some(next),
                    None => self.copy(log, crashes > 0).then(|| self.replica().next(log).unwrap()),
                })
                .collect();
            if begins.len() == logs {
                *self.counts.entry("goes on").or_insert(0) += 1;
                if self.apply_from(begins, crashes > 0) {
                    return;
                }
            }
            crashes = crashes.saturating_sub(1);
            self.crash(shards(crashes));
        }
    }

    /// Applies the logs from these sequences on. False if it is to crash.
    fn apply_from(&mut self, mut next: Vec<u64>, may_crash: bool) -> bool {
        let ends: Vec<u64> = self.primary.logs.iter().map(|log| log.len() as u64).collect();
        let left: u64 = next.iter().zip(&ends).map(|(next, end)| end + 1 - next).sum();
        let most = if may_crash { self.random.below(1 + left) } else { u64::MAX };
        let marks = self.random.one_in(2);
        let mut applied = 0;
        while next.iter().zip(&ends).any(|(next, end)| next <= end) {
            if applied == most {
                return false;
            }
            let log = self.random.below(next.len() as u64) as usize;
            let Some(entry) = self.primary.logs[log].get(next[log] as usize - 1).cloned() else {
                continue;
            };
            assert_eq!(entry.sequence, next[log]);
            let done = self.replica().apply(log, &entry, marks);
            for what in done {
                let name = match what {
                    Applied::Done => "done",
                    Applied::Elsewhere => "elsewhere",
                    Applied::Before => "before",
                };
                *self.counts.entry(name).or_insert(0) += 1;
            }
            (next[log], applied) = (next[log] + 1, applied + 1);
            if self.random.one_in(4) {
                let mut random = Random::new(self.random.below(1 << 40));
                self.replica().snapshot_some(&mut random);
            }
        }
        true
    }

    fn expect_equal(&mut self, seed: u64) {
        let expected = digest_of(&self.primary.source.shards);
        assert_ne!(expected, Digest::default());
        let (replica, logs) = (self.replica.as_ref().unwrap(), &self.primary.logs);
        assert_eq!(digest_of(&replica.shards), expected, "seed {seed}");
        for (log, entries) in logs.iter().enumerate() {
            assert_eq!(replica.next(log), Some(entries.len() as u64 + 1), "seed {seed}");
        }
        replica.shards.iter().for_each(|shard| shard.audit().unwrap());
    }
}

#[test]
fn a_replica_goes_on_where_its_disk_was_whatever_it_lost() {
    let mut counts = BTreeMap::new();
    let seeds = std::env::var("FOLLOWED_SEEDS").map_or(16, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        let (from, to) = (1 + seed as usize % 3, [1, 2, 3, 5][seed as usize % 4]);
        let changes = seed % 3 == 0;
        let shards = |at: u32| if changes { 1 + (to + at as usize) % 4 } else { to };
        let mut run = Run {
            primary: Primary::new(seed, from),
            random: Random::new(seed * 31 + 7),
            replica: Some(Replica::start(Vec::new(), to, from)),
            counts: BTreeMap::new(),
            copies_state: false,
        };
        run.primary.run(700);
        run.follow(5, shards);
        run.expect_equal(seed);
        run.primary.run(500);
        run.copies_state = true;
        run.follow(4, shards);
        run.expect_equal(seed);
        // A clean end, and once more.
        let present = run.replica().shards.len();
        let disk = std::mem::take(&mut run.replica().disk);
        run.replica = Some(Replica::start(disk, present, from));
        run.expect_equal_after_restart(seed);
        for (what, count) in run.counts {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    println!("{counts:?}");
    let wanted = [
        "as many",
        "other shards",
        "copies",
        "torn copies",
        "goes on",
        "done",
        "elsewhere",
        "before",
        "snapshots",
    ];
    for what in wanted {
        assert!(counts.get(what).is_some_and(|count| *count > 0), "no history had any: {what}");
    }
}

impl Run {
    /// Behind a clean end there is nothing left to apply, or nothing that changes anything.
    fn expect_equal_after_restart(&mut self, seed: u64) {
        let begins = (0..self.primary.logs.len()).map(|log| self.replica().next(log).unwrap());
        let begins: Vec<u64> = begins.collect();
        self.apply_from(begins, false);
        self.expect_equal(seed);
    }
}

fn set(key: &[u8], sequence: u64) -> OwnedEntry {
    let mut operation = Vec::new();
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key, value: b"value", condition, expiry, get: false };
    set.encode_into(0, &mut operation);
    let mut log = Log::new(LogOptions::new(LogKey::new(KEY, 0), 0, 1));
    (1..sequence).for_each(|_| _ = log.pass());
    log.append([&operation, &[], &[]]);
    log.entries().pop().unwrap()
}

fn follower() -> Shard {
    let mut shard = shard(100, 8 << 20, Eviction::None);
    shard.begin_following((0, 1), true);
    shard.follow_log(FollowedLog { log: 0, logs: 1, key: KEY, position: None });
    // As a server does that had other data.
    shard.clear_to_follow(1, NOW);
    assert_eq!(shard.begin_snapshot(), Err(Status::ReadOnly));
    shard.follow_log(FollowedLog { log: 0, logs: 1, key: KEY, position: None });
    shard.begin_copy(&Origin::WHOLE, NOW);
    assert_eq!(shard.begin_snapshot(), Err(Status::ReadOnly));
    shard.follow_at(0, (0, 1));
    assert_eq!(shard.begin_snapshot(), Ok(()));
    shard.abandon_snapshot();
    shard
}

/// A disk that takes nothing holds a replica up; nothing is applied that it does not keep.
#[test]
fn nothing_is_applied_that_the_disk_would_not_take() {
    let mut shard = follower();
    shard.set_keeps(false);
    assert!(!shard.may_apply());
    let refused = shard.apply(&set(b"a", 1).entry(), &Origin::WHOLE, NOW);
    assert_eq!(refused, Err(ApplyError::Refused(Status::NotKept)));
    shard.set_keeps(true);
    assert_eq!(shard.apply(&set(b"a", 1).entry(), &Origin::WHOLE, NOW), Ok(Applied::Done));
    assert_eq!(shard.applied(0), 1);
}

/// What comes behind the end of following are changes of the shard's own: after a restart it follows
/// nothing.
#[test]
fn a_shard_that_was_promoted_has_no_place_in_the_log_of_its_primary_any_more() {
    let mut shard = follower();
    shard.apply(&set(b"a", 1).entry(), &Origin::WHOLE, NOW).unwrap();
    let recovered = |log: Vec<OwnedEntry>| {
        let mut again = self::shard(100, 8 << 20, Eviction::None);
        again.begin_applying();
        again.begin_recovered_incarnation(1, Some(0));
        again.recover_from(0);
        for entry in &log {
            again.apply(&entry.entry(), &Origin::WHOLE, NOW).unwrap();
        }
        again.end_recovery((0, 1));
        again
    };
    let before = recovered(shard.log().entries());
    assert_eq!(before.followed_logs()[0].position, Some((1, 1)));
    shard.end_applying(1).unwrap();
    let set = Command::Del { key: b"a" };
    shard.execute(&set, shard.hash(b"a"), NOW);
    let after = recovered(shard.log().entries());
    assert_eq!(after.followed_logs(), []);
    assert_eq!(after.digest(), shard.digest());
    // Another replica applies the log of this one, and takes it for no entry of a replica.
    let mut copy = self::shard(101, 8 << 20, Eviction::None);
    copy.begin_applying();
    let log = shard.log().entries();
    let own = &log[log.len() - 2..];
    copy.begin_applying_at(0, (own[0].sequence - 1, 1));
    assert_eq!(copy.apply(&own[0].entry(), &Origin::WHOLE, NOW), Ok(Applied::Elsewhere));
    let other = &log[1];
    let mut copy = self::shard(101, 8 << 20, Eviction::None);
    copy.begin_applying();
    copy.begin_applying_at(0, (other.sequence - 1, 1));
    let refused = copy.apply(&other.entry(), &Origin::WHOLE, NOW);
    assert_eq!(refused, Err(ApplyError::Malformed));
}
