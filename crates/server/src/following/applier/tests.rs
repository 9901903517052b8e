//! What takes away many keys at a shard that serves is done in bounded turns, and as one for readers.
//! An entry that cannot be applied costs little.

use super::*;
use remora_arena::{NoJournal, Owner};
use remora_engine::ShardOptions;
use remora_layout::limits::FLUSH_TURN_KEYS;
use remora_log::{Log, LogKey, LogOptions};
use remora_protocol::{Command, Condition, Expiry};

const NOW: Now = Now { unix_ms: 1, since_start_s: 1 };
/// Many times what one turn removes.
const KEYS: u64 = 40 * FLUSH_TURN_KEYS;

/// A shard of a server with one, that follows so many logs.
struct World {
    shard: Shard,
    applier: Applier,
    slots: SlotTable,
    following: Arc<Following>,
    logs: usize,
    logged: Vec<Log>,
}

impl World {
    fn new(logs: usize) -> Self {
        let arena = Owner::heap(64 << 20, NoJournal);
        let mut shard = Shard::new(arena, ShardOptions::default());
        shard.begin_following_anew((0, 1), false);
        let following = Following::new("/primary".parse().unwrap(), 1);
        let log = |log| Log::new(LogOptions::new(LogKey::new(7, log), log, 1));
        Self {
            shard,
            applier: Applier::default(),
            slots: SlotTable::even(1),
            following: Arc::new(following),
            logs,
            logged: (0..logs as u32).map(log).collect(),
        }
    }

    fn give(&mut self, body: Body) {
        let following = Arc::clone(&self.following);
        self.applier.take(Arc::new(Batch { following, body }));
    }

    fn part(&mut self, log: usize, part: LogPart) {
        self.give(Body::Log { log, logs: self.logs, key: 7, part });
    }

    /// Appends a command to a log.
    fn append(&mut self, log: usize, command: &Command<'_>) {
        let mut operation = Vec::new();
        command.encode_into(0, &mut operation);
        self.logged[log].append([&operation, &[], &[]]);
    }

    /// Gives the shard what was appended to a log since this entry.
    fn ship(&mut self, log: usize, since: u64) {
        let mut entries = self.logged[log].entries();
        entries.retain(|entry| entry.sequence > since);
        self.part(log, LogPart::Entries(entries));
    }

    /// Keys that the table still has.
    fn records(&self) -> u64 {
        self.shard.stats().databases.iter().map(|of| of.keys).sum()
    }

    fn turn(&mut self) {
        if self.shard.wants_release() {
            self.shard.release_some(NOW);
        }
        self.applier.turn((0, &mut self.shard), &self.slots, NOW);
    }

    fn settle(&mut self) {
        while !self.applier.is_empty() {
            self.turn();
        }
    }

    fn log_of(&self, key: &[u8]) -> usize {
        SlotTable::even(self.logs).shard_of(key)
    }

    /// So many keys of all logs, and their number by log.
    fn fill(&mut self) -> Vec<u64> {
        let mut counts = vec![0; self.logs];
        for at in 0..KEYS {
            let key = at.to_le_bytes();
            let (log, value, expiry) = (self.log_of(&key), b"value", Expiry::Never);
            counts[log] += 1;
            let condition = Condition::Always;
            self.append(log, &Command::Set { key: &key, value, condition, expiry, get: false });
        }
        (0..self.logs).for_each(|log| self.ship(log, 0));
        self.settle();
        assert_eq!(self.shard.keys(), KEYS);
        counts
    }

    fn applied(&self, log: usize) -> u64 {
        self.following.applied_of(log, 0..1)
    }

    /// Whether a command finds a key: it is looked up in the middle of the turns.
    fn finds(&mut self, key: u64) -> bool {
        let key = key.to_le_bytes();
        let hash = self.shard.hash(&key);
        self.shard.execute(&Command::Get { key: &key }, hash, NOW).status == Status::Ok
    }

    /// Carries out a part that leaves `gone` keys fewer: it removes those of some logs.
    fn removes(&mut self, gone: u64, is_gone: impl Fn(usize) -> bool) {
        let before = self.records();
        let (mut turns, mut seen) = (0, 0);
        while !self.applier.is_empty() {
            let (had, done) = (self.records(), self.done());
            self.turn();
            let removed = had - self.records();
            assert!(removed <= 2 * FLUSH_TURN_KEYS, "{removed} keys went in one turn");
            turns += 1;
            let is_under_way = self.shard.is_flushing();
            assert!(!is_under_way || self.done() == done, "it counts before it has ended");
            if turns == 3 {
                assert!(is_under_way, "it takes many turns");
                for key in (0..KEYS).step_by(101) {
                    let log = self.log_of(&key.to_le_bytes());
                    assert_eq!(self.finds(key), !is_gone(log), "key {key} of log {log}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 50 && turns > gone / (2 * FLUSH_TURN_KEYS));
        assert_eq!(before - self.records(), gone);
        self.shard.audit().unwrap();
    }

    fn done(&self) -> u64 {
        self.following.done[0].load(Ordering::Acquire)
    }
}

#[test]
fn an_entry_that_is_no_change_is_told_of_once_and_tried_again_seldom() {
    let mut world = World::new(1);
    world.logged[0].append([b"no command", &[], &[]]);
    world.ship(0, 0);
    let mut tries = Vec::new();
    for second in 1..=200 {
        let now = Now { unix_ms: 1, since_start_s: second };
        // Some of the ticks of a second.
        for _ in 0..10 {
            world.applier.tick(now);
            if world.applier.has_work() {
                world.applier.turn((0, &mut world.shard), &world.slots, now);
                tries.push(second);
            }
        }
        assert!(world.applier.waits());
    }
    assert_eq!(tries, [1, 1, 2, 4, 8, 16, 32, 64, 128, 192]);
    let why = world.following.trouble();
    assert!(
        why.contains("shard 0 cannot apply the log: an entry of the log is no change"),
        "{why}"
    );
    assert!(!world.following.set_shard_trouble(0, &why), "the log has it once");
    assert_eq!((world.applied(0), world.done()), (0, 0));
    // The link goes up and down meanwhile.
    world.following.set_trouble("no link");
    assert_eq!(world.following.trouble(), format!("{why}; no link"));
    world.following.set_trouble("");
    assert_eq!(world.following.trouble(), why);
}

#[test]
fn memory_that_is_full_is_tried_again_each_tick() {
    let mut applier = Applier::default();
    for _ in 0..3 {
        applier.refuse(ApplyError::Refused(Status::OutOfMemory), NOW);
        assert!(applier.waits());
        applier.tick(NOW);
        assert!(!applier.waits());
    }
}

#[test]
fn a_flush_is_swept_in_turns_and_counts_once_it_has_ended() {
    let mut world = World::new(1);
    world.fill();
    let before = world.applied(0);
    world.append(0, &Command::FlushAll);
    let (key, value) = (&KEYS.to_le_bytes()[..], &b"value"[..]);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    world.append(0, &Command::Set { key, value, condition, expiry, get: false });
    world.ship(0, before);
    world.turn();
    assert_eq!((world.shard.keys(), world.applied(0)), (0, before), "gone, and not applied");
    world.removes(KEYS - 1, |_| true);
    assert_eq!((world.shard.keys(), world.applied(0)), (1, before + 2));
}

#[test]
fn a_copy_begins_in_turns() {
    for is_clear in [false, true] {
        let mut world = World::new(1);
        world.fill();
        match is_clear {
            true => world.give(Body::Clear { logs: 1 }),
            false => world.part(0, LogPart::Begin),
        }
        world.turn();
        assert_eq!(world.shard.keys(), 0);
        world.removes(KEYS, |_| true);
        assert_eq!(world.applied(0), if is_clear { KEYS } else { 0 });
    }
}

#[test]
fn keys_of_one_log_go_in_turns_and_those_of_others_stay() {
    for is_flush in [false, true] {
        let mut world = World::new(3);
        let counts = world.fill();
        match is_flush {
            true => {
                let before = world.applied(1);
                world.append(1, &Command::FlushAll);
                world.ship(1, before);
            }
            false => world.part(1, LogPart::Begin),
        }
        world.removes(counts[1], |log| log == 1);
        assert_eq!(world.shard.keys(), KEYS - counts[1]);
        assert_eq!(world.applied(1), if is_flush { counts[1] + 1 } else { 0 });
    }
}
