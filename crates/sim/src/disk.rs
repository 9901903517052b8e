//! A simulated disk for each shard's log: writes become durable late, now and then very late, and
//! those that are not durable may be lost with the process. After a failure a disk makes nothing
//! durable; the next process has another disk.
//!
//! Invariant: a change that the disk has reported as durable stays; a new incarnation begins with a
//! prefix of the changes that contains all of these, and replays it.

use crate::faults::{Fault, Faults};
use remora_engine::{Applied, Now, Origin, Shard};
use remora_fabric::sim::{Random, SimJournal, SimWorld};
use remora_log::{Assembler, Cursor, Frames, OwnedEntry};
use std::ops::RangeInclusive;

const MS: u64 = 1_000_000;
/// Mixed into the seed: whether changes are durable late changes nothing else.
const SALT: u64 = 0x6469_736b_5f6f_6666;
/// Longest values of worlds with disks: the disk reads a turn's log entries before the log drops
/// them.
const MOST_VALUE_BYTES: u64 = 2_000;

/// A seed's choice of disks.
#[derive(Clone, Debug)]
pub struct DiskSwarm {
    /// Time until a write is durable, ns.
    pub flush_ns: RangeInclusive<u64>,
}

impl DiskSwarm {
    /// Disks in one world of three, of those with short values.
    pub fn of(seed: u64, most_value_bytes: u64) -> Option<Self> {
        let mut random = Random::new(seed ^ SALT);
        let most_ns = [20_000, MS, 30 * MS][random.below(3) as usize];
        let has_disks = random.below(3) == 0 && most_value_bytes <= MOST_VALUE_BYTES;
        has_disks.then_some(Self { flush_ns: 1_000..=most_ns })
    }
}

/// The disk of one shard.
#[derive(Default)]
pub struct Disk {
    durable: u64,
    /// When the present write has become durable, virtual ns, and up to where.
    flushing: Option<(u64, u64)>,
    /// All changes that were written, in order; some are not durable.
    written: Vec<OwnedEntry>,
    /// The cursor in the shard's log.
    cursor: Option<Cursor>,
    /// Time of the disk's failure, virtual ns.
    failed_ns: Option<u64>,
}

impl Disk {
    /// Reports durable changes to the shard; then begins the next write. Returns whether anything
    /// became durable.
    pub fn turn(
        &mut self,
        shard: &mut Shard<SimJournal>,
        (world, faults): (&SimWorld, &Faults),
        swarm: &DiskSwarm,
    ) -> bool {
        self.write(shard);
        if self.failed_ns.is_some() {
            return false;
        }
        let done = self.flushing.take_if(|(due_ns, _)| *due_ns <= world.now_ns());
        if let Some((_, sequence)) = done {
            self.durable = sequence;
            shard.set_durable(sequence);
        }
        let last = shard.last_sequence();
        if self.flushing.is_none() && last > self.durable {
            if faults.strikes(Fault::DiskFailed) {
                self.fail(world);
                return done.is_some();
            }
            let longest = match faults.strikes(Fault::DiskStall) {
                true => world.draw(|random| [5, 500, 7_000][random.below(3) as usize]) * MS,
                false => *swarm.flush_ns.end(),
            };
            let takes = *swarm.flush_ns.start()..=longest;
            let due_ns = world.now_ns() + world.draw(|random| random.within(&takes));
            self.flushing = Some((due_ns, last));
        }
        done.is_some()
    }

    /// Takes the shard's log entries since the last call.
    fn write(&mut self, shard: &Shard<SimJournal>) {
        let log = shard.log();
        let first = self.written.len() as u64 + 1;
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(log.cursor(first).expect("nothing is dropped before it is read")),
        };
        let mut bytes = Vec::new();
        log.read(cursor, usize::MAX, &mut bytes).expect("nothing is dropped before it is read");
        let mut assembler = Assembler::new(first, usize::MAX);
        for frame in Frames::new(&bytes, log.key()) {
            let entry = assembler.take(frame.expect("the log wrote it"));
            let entry = entry.expect("the log wrote it in order");
            self.written.extend(entry.map(|entry| entry.to_owned()));
        }
        assert_eq!(self.written.len() as u64, shard.last_sequence());
    }

    /// Fails: nothing becomes durable until the process dies.
    pub fn fail(&mut self, world: &SimWorld) {
        (self.failed_ns, self.flushing) = (Some(world.now_ns()), None);
    }

    /// Since when it has failed, virtual ns.
    pub fn failed_ns(&self) -> Option<u64> {
        self.failed_ns
    }

    /// When something becomes durable next, virtual ns.
    pub fn due_ns(&self) -> u64 {
        self.flushing.map_or(u64::MAX, |(due_ns, _)| due_ns)
    }

    /// The process dies. The disk keeps a prefix of the changes, with all that may have been
    /// reported as durable. Returns the number of lost changes.
    pub fn crash(&mut self, shard: &Shard<SimJournal>, world: &SimWorld) -> u64 {
        self.write(shard);
        let last = shard.last_sequence();
        let done = self.flushing.take().filter(|(due_ns, _)| *due_ns <= world.now_ns());
        self.durable = done.map_or(self.durable, |(_, sequence)| sequence);
        let more = world.draw(|random| random.below(2) * random.below(last - self.durable + 1));
        self.durable += more;
        self.written.truncate(self.durable as usize);
        (self.cursor, self.failed_ns) = (None, None);
        last - self.durable
    }

    /// A new incarnation begins with the kept entries, some of them given twice.
    pub fn replay(&mut self, shard: &mut Shard<SimJournal>, world: &SimWorld) {
        let now = Now::default();
        shard.begin_applying();
        for entry in &self.written {
            let applied = shard.apply(&entry.entry(), &Origin::WHOLE, now);
            assert_eq!(applied, Ok(Applied::Done), "{:?}", entry.entry());
            if world.draw(|random| random.below(4)) == 0 {
                let again = shard.apply(&entry.entry(), &Origin::WHOLE, now);
                assert_eq!(again, Ok(Applied::Before));
            }
            while shard.wants_release() {
                shard.release_some(now);
            }
        }
        let epoch = shard.log().epoch();
        shard.end_applying(epoch).expect("there is one epoch");
        shard.set_durable(self.durable);
        assert_eq!(shard.durable_sequence(), self.written.len() as u64);
    }
}
