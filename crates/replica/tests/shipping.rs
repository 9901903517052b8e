//! A log arrives whole at a replica, in order and no further than its commit position, over links
//! that are cut at any moment.

mod copying;

use remora_arena::{NoJournal, Owner};
use remora_engine::{Applied, Durability, Now, Origin, Shard, ShardOptions};
use remora_layout::limits::{ASK_ENTRIES, FEED_BYTES};
use remora_log::LogKey;
use remora_protocol::message::Status;
use remora_protocol::replication::{Echo, FEED_HEADER_BYTES};
use remora_protocol::{Command, Condition, Expiry};
use remora_replica::{AskFor, FreshAt, LogReceiver, LogSender, Received, Violation};
use remora_testing::Random;
use std::collections::VecDeque;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const SECRET: u64 = 9;

fn shard(durability: Durability) -> Shard {
    let options = ShardOptions {
        hash_seed: 3,
        record_secret: 7,
        log_secret: SECRET,
        epoch: 1,
        buckets: 2,
        durability,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(8 << 20, NoJournal), options)
}

fn copy() -> Shard {
    let mut copy = shard(Durability::Memory);
    copy.begin_applying();
    copy
}

fn set(shard: &mut Shard, key: &[u8], value: &[u8]) {
    let set = Command::Set {
        key,
        value,
        condition: Condition::Always,
        expiry: Expiry::Never,
        get: false,
    };
    let hash = shard.hash(key);
    assert_eq!(shard.execute(&set, hash, NOW).status, Status::Ok);
}

fn append(shard: &mut Shard, key: &[u8], value: &[u8]) {
    let hash = shard.hash(key);
    let appended = shard.execute(&Command::Append { key, value }, hash, NOW);
    assert_eq!(appended.status, Status::Ok);
}

fn receiver(next: u64) -> LogReceiver {
    LogReceiver::new(LogKey::new(SECRET, 0), next)
}

fn message(sender: &mut LogSender, shard: &mut Shard) -> Vec<u8> {
    let mut message = Vec::new();
    sender.next_message(shard, NOW, &mut message).unwrap();
    assert!(message.len() <= FEED_BYTES);
    message
}

/// Applies what may be applied; the entries' number.
fn apply(receiver: &mut LogReceiver, copy: &mut Shard) -> u64 {
    let mut applied = 0;
    while let Some(entry) = receiver.next_entry() {
        assert!(entry.sequence <= receiver.commit());
        let outcome = copy.apply(&entry.entry(), &Origin::WHOLE, NOW);
        assert_eq!(outcome, Ok(Applied::Done));
        applied += 1;
    }
    applied
}

/// A replica and the link to it, which is cut now and then.
struct Replica {
    receiver: LogReceiver,
    copy: Shard,
    sender: LogSender,
    /// Messages in its ring, oldest first.
    ring: VecDeque<Vec<u8>>,
    /// WRITEs so far, and how many of them have completed.
    writes: u64,
    completed: u64,
    cuts: u64,
}

impl Replica {
    fn begin(primary: &mut Shard) -> Self {
        let sender = LogSender::begin(primary, 1, AskFor::Some).unwrap();
        Self {
            receiver: receiver(1),
            copy: copy(),
            sender,
            ring: VecDeque::new(),
            writes: 0,
            completed: 0,
            cuts: 0,
        }
    }

    /// The link is lost with what is under way; the replica keeps what it has received.
    fn cut(&mut self, primary: &mut Shard, random: &mut Random) {
        // Some of the WRITEs were carried out.
        let stored = random.below(self.ring.len() + 1);
        self.ring.truncate(stored);
        while let Some(message) = self.ring.pop_front() {
            self.receiver.take(&message).unwrap();
        }
        self.sender.end(primary);
        let next = self.receiver.received() + 1;
        self.receiver.reconnected();
        self.sender = LogSender::begin(primary, next, AskFor::Some).unwrap();
        self.cuts += 1;
    }

    fn send(&mut self, primary: &mut Shard) {
        let message = message(&mut self.sender, primary);
        self.ring.push_back(message);
        self.writes += 1;
        self.sender.posted(self.writes);
    }

    fn step(&mut self, primary: &mut Shard, random: &mut Random) {
        match random.below(8) {
            0..3 if self.sender.has_news(primary) => {
                self.send(primary);
            }
            3 => {
                self.completed += random.below(self.writes - self.completed + 1);
                self.sender.completed(self.completed);
            }
            4..6 => {
                if let Some(message) = self.ring.pop_front() {
                    assert!(matches!(self.receiver.take(&message), Ok(Received::Entries { .. })));
                }
            }
            6 => {
                apply(&mut self.receiver, &mut self.copy);
                let told = self.receiver.acknowledge(self.copy.applied(0), 0, 1 + self.writes);
                self.sender.take(primary, told).unwrap().unwrap();
            }
            _ if random.one_in(40) => self.cut(primary, random),
            _ => {}
        }
        assert!(self.copy.applied(0) <= primary.durable_sequence());
        assert!(self.sender.stored() <= primary.last_sequence());
    }

    fn finish(&mut self, primary: &mut Shard) {
        // The first acknowledgement may answer an ask; the others are heartbeats.
        for _ in 0..3 {
            while self.sender.has_news(primary) || !self.ring.is_empty() {
                if self.sender.has_news(primary) {
                    self.send(primary);
                }
                while let Some(message) = self.ring.pop_front() {
                    let took = self.receiver.take(&message).unwrap();
                    assert!(matches!(took, Received::Entries { .. }), "nothing is missing");
                }
            }
            apply(&mut self.receiver, &mut self.copy);
            let told = self.receiver.acknowledge(self.copy.applied(0), 0, 1 + self.writes);
            self.sender.take(primary, told).unwrap().unwrap();
        }
    }
}

#[test]
fn a_replica_has_the_log_of_its_primary_whatever_is_cut() {
    let mut cuts = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut primary = shard(Durability::Told);
        let mut replica = Replica::begin(&mut primary);
        for _ in 0..3000 {
            let key = [b'a' + random.below(8u8)];
            match random.below(12) {
                0 => append(&mut primary, &key, b"+"),
                1 if random.one_in(30) => {
                    let value = vec![random.below(200u8); random.within(60_000..200_000)];
                    set(&mut primary, &key, &value);
                }
                2 => {
                    let last = primary.last_sequence();
                    let durable = primary.durable_sequence();
                    primary.set_durable(durable + random.below(last - durable + 1));
                }
                3 => {
                    let value = random.bits().to_le_bytes();
                    set(&mut primary, &key, &value);
                }
                _ => replica.step(&mut primary, &mut random),
            }
        }
        let last = primary.last_sequence();
        primary.set_durable(last);
        replica.finish(&mut primary);
        assert_eq!(replica.copy.applied(0), last, "seed {seed}");
        assert_eq!(replica.copy.digest(), primary.digest(), "seed {seed}");
        cuts += replica.cuts;
    }
    assert!(cuts > 100, "{cuts} links were cut");
}

#[test]
fn no_entry_is_given_out_behind_the_commit_position() {
    let mut primary = shard(Durability::Told);
    let (mut receiver, mut copy) = (receiver(1), copy());
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    (0..3).for_each(|at| set(&mut primary, &[at], b"value"));
    primary.set_durable(2);
    receiver.take(&message(&mut sender, &mut primary)).unwrap();
    assert_eq!((receiver.received(), apply(&mut receiver, &mut copy)), (3, 2));
    // Its WRITE has not completed, as far as the primary knows; the acknowledgement says more.
    assert_eq!(sender.stored(), 0);
    sender.take(&mut primary, receiver.acknowledge(2, 0, 1)).unwrap().unwrap();
    assert_eq!((sender.stored(), sender.told().applied.get()), (3, 2));
    primary.set_durable(3);
    assert!(sender.has_news(&primary));
    receiver.take(&message(&mut sender, &mut primary)).unwrap();
    assert_eq!(apply(&mut receiver, &mut copy), 1);
    assert!(!sender.has_news(&primary));
}

fn fresh(clock_ns: u64) -> Option<FreshAt> {
    Some(FreshAt { clock_ns, time_ms: NOW.unix_ms })
}

/// What is given out for a promotion that fails is shown once it is committed, as a copy is.
#[test]
fn a_failed_promotion_leaves_nothing_that_counts_as_fresh() {
    let mut primary = shard(Durability::Told);
    let (mut receiver, mut copy) = (receiver(1), copy());
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    (0..3).for_each(|at| set(&mut primary, &[at], b"value"));
    primary.set_durable(2);
    receiver.take(&message(&mut sender, &mut primary)).unwrap();
    assert_eq!(apply(&mut receiver, &mut copy), 2);
    let mut hears = |receiver: &mut LogReceiver, clock_ns: u64, durable: u64| {
        primary.set_durable(durable);
        let told = receiver.acknowledge(2, 0, clock_ns);
        sender.take(&mut primary, told).unwrap().unwrap();
        receiver.take(&message(&mut sender, &mut primary)).unwrap();
    };
    hears(&mut receiver, 5, 2);
    assert_eq!(receiver.fresh_at(2, NOW.unix_ms), fresh(5));
    let (rest, beyond) = receiver.take_rest();
    assert_eq!((rest.len(), beyond), (1, 1));
    assert_eq!(receiver.fresh_at(3, NOW.unix_ms), None, "it has what is not committed");
    hears(&mut receiver, 7, 2);
    assert_eq!(receiver.fresh_at(3, NOW.unix_ms), None);
    hears(&mut receiver, 9, 3);
    assert_eq!(receiver.fresh_at(3, NOW.unix_ms), fresh(9));
}

/// A change costs one message, and not a second one for its commit position.
#[test]
fn a_commit_position_goes_with_the_next_entries_or_answers_a_heartbeat() {
    let mut primary = shard(Durability::Told);
    let mut receiver = receiver(1);
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    let mut messages = 0;
    for at in 1..=20 {
        set(&mut primary, &[at], b"value");
        while sender.has_news(&primary) {
            receiver.take(&message(&mut sender, &mut primary)).unwrap();
            messages += 1;
        }
        primary.set_durable(at.into());
    }
    assert_eq!((messages, receiver.received(), receiver.commit()), (20, 20, 19));
    assert!(!sender.has_news(&primary));
    sender.take(&mut primary, receiver.acknowledge(0, 0, 1)).unwrap().unwrap();
    assert!(sender.has_news(&primary));
    receiver.take(&message(&mut sender, &mut primary)).unwrap();
    assert_eq!(receiver.commit(), 20);
    assert!(!sender.has_news(&primary));
    // Some tens at once wait for no heartbeat.
    for at in 0..ASK_ENTRIES as u8 {
        set(&mut primary, &[at], b"value");
        receiver.take(&message(&mut sender, &mut primary)).unwrap();
    }
    primary.set_durable(20 + ASK_ENTRIES - 1);
    assert!(!sender.has_news(&primary));
    primary.set_durable(20 + ASK_ENTRIES);
    assert!(sender.has_news(&primary));
}

#[test]
fn the_primary_goes_back_to_the_first_entry_that_failed() {
    let mut primary = shard(Durability::Memory);
    let (mut receiver, mut copy) = (receiver(1), copy());
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    let mut messages = Vec::new();
    for at in 0..4 {
        set(&mut primary, &[at], b"value");
        messages.push(message(&mut sender, &mut primary));
    }
    receiver.take(&messages[0]).unwrap();
    // The second one does not come.
    assert_eq!(receiver.take(&messages[2]), Ok(Received::Gap));
    let told = receiver.acknowledge(1, 0, 1);
    assert_eq!((told.received.get(), told.failed.get()), (1, 2));
    sender.take(&mut primary, told).unwrap().unwrap();
    // What was under way before that comes all the same.
    assert_eq!(receiver.take(&messages[3]), Ok(Received::Gap));
    receiver.take(&message(&mut sender, &mut primary)).unwrap();
    assert_eq!((receiver.received(), apply(&mut receiver, &mut copy)), (4, 4));
    assert_eq!(receiver.acknowledge(4, 0, 1).failed.get(), 0);
    // Twice is once.
    receiver.take(&messages[1]).unwrap();
    assert_eq!((receiver.received(), apply(&mut receiver, &mut copy)), (4, 0));
    assert_eq!(copy.digest(), primary.digest());
}

#[test]
fn the_log_keeps_what_a_replica_has_not_received_and_little_more() {
    let mut primary = shard(Durability::Memory);
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    let mut receiver = receiver(1);
    // Six times what the log keeps by itself, a few entries in each message.
    for at in 0..6000 {
        set(&mut primary, b"key", &[7; 1000]);
        if at % 5 == 4 {
            receiver.take(&message(&mut sender, &mut primary)).unwrap();
        }
    }
    assert_eq!(primary.log().oldest_sequence(), 1);
    let mut told = receiver.acknowledge(0, 0, 1);
    // Segments of the log go as a whole, once another one begins.
    let segment = (256 << 10) / 1000;
    let slack = 2 * segment + 2 * ASK_ENTRIES;
    for received in [1, 3000, 3001, 4444, 6000] {
        told.received = received.into();
        sender.take(&mut primary, told).unwrap().unwrap();
        (0..segment).for_each(|_| set(&mut primary, b"key", &[7; 1000]));
        let oldest = primary.log().oldest_sequence();
        assert!(oldest <= received + 1, "{oldest} is not received, of {received}");
        assert!(oldest + slack > received, "{oldest} for {received}");
    }
}

#[test]
fn a_relaxed_primary_asks_after_some_tens_of_entries_and_a_strict_one_each_time() {
    for (ask_for, asked) in [(AskFor::Some, 100 / ASK_ENTRIES), (AskFor::Each, 100)] {
        let mut primary = shard(Durability::Memory);
        let mut sender = LogSender::begin(&mut primary, 1, ask_for).unwrap();
        let mut receiver = receiver(1);
        let mut asks = 0;
        for at in 0..100 {
            set(&mut primary, &[at], b"value");
            let took = receiver.take(&message(&mut sender, &mut primary)).unwrap();
            asks += u64::from(took == Received::Entries { asks: true });
        }
        assert_eq!(asks, asked, "{ask_for:?}");
    }
}

#[test]
fn a_replica_cannot_acknowledge_what_it_was_not_sent() {
    let mut primary = shard(Durability::Memory);
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    set(&mut primary, b"key", b"value");
    let honest = receiver(1).acknowledge(0, 0, 1);
    let told = remora_protocol::replication::Acknowledge { received: 1.into(), ..honest };
    assert_eq!(sender.take(&mut primary, told), Err(Violation::NotSent { told: 1, sent: 0 }));
    message(&mut sender, &mut primary);
    sender.take(&mut primary, told).unwrap().unwrap();
    assert_eq!(sender.take(&mut primary, honest), Err(Violation::Order));
    let ahead = remora_protocol::replication::Acknowledge { applied: 2.into(), ..told };
    assert_eq!(sender.take(&mut primary, ahead), Err(Violation::Order));
    let kept = remora_protocol::replication::Acknowledge { durable: 2.into(), ..told };
    assert_eq!(sender.take(&mut primary, kept), Err(Violation::Order));
    assert_eq!(sender.told().durable.get(), 0);
}

#[test]
fn what_no_primary_sends_is_refused() {
    let mut primary = shard(Durability::Memory);
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    set(&mut primary, b"key", b"value");
    let honest = message(&mut sender, &mut primary);
    for at in 0..honest.len() {
        let mut damaged = honest.clone();
        damaged[at] ^= 4;
        let mut receiver = receiver(1);
        let took = receiver.take(&damaged);
        // The header has no checksum of its own: the ring's frame has one.
        assert!(at < FEED_HEADER_BYTES || took.is_err(), "byte {at}");
        assert!(at < FEED_HEADER_BYTES || receiver.received() == 0);
    }
    for bytes in 0..honest.len() {
        let took = receiver(1).take(&honest[..bytes]);
        assert!(took.is_err() || bytes == FEED_HEADER_BYTES, "{bytes} bytes");
    }
}

#[test]
fn a_primary_echoes_the_newest_clock_of_a_replica_with_its_commit_position() {
    let mut primary = shard(Durability::Memory);
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    let mut receiver = receiver(1);
    set(&mut primary, b"key", b"value");
    receiver.take(&message(&mut sender, &mut primary)).unwrap();
    assert!(!sender.has_news(&primary));
    for clock_ns in [5, 7] {
        let told = receiver.acknowledge(1, 0, clock_ns);
        sender.take(&mut primary, told).unwrap().unwrap();
    }
    assert!(sender.has_news(&primary), "a clock");
    let echo = message(&mut sender, &mut primary);
    let bytes = FEED_HEADER_BYTES + size_of::<Echo>();
    assert_eq!((echo.len(), sender.has_news(&primary)), (bytes, false));
    receiver.take(&echo).unwrap();
    let time_ms = NOW.unix_ms;
    assert_eq!((receiver.take_time(), receiver.take_time()), (Some(time_ms), None));
    assert_eq!(receiver.fresh_at(0, time_ms), None, "it is not applied");
    assert_eq!(receiver.fresh_at(1, time_ms - 1), None, "the clock is behind");
    assert_eq!(receiver.fresh_at(1, time_ms), Some(FreshAt { clock_ns: 7, time_ms }));
    // A clock that was not sent, and one that goes back.
    let mut forged = echo;
    forged[16] = 9;
    assert!(receiver.take(&forged).is_err());
    let told = remora_protocol::replication::Acknowledge {
        clock: 6.into(),
        ..receiver.acknowledge(1, 0, 8)
    };
    assert_eq!(sender.take(&mut primary, told), Err(Violation::Order));
}
