//! A hostile primary or replica: nothing that it sends makes the other panic, and what is kept of it
//! is bounded. `fuzz/fuzz_targets/replica_feed.rs` goes on where these histories end.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_layout::limits::{FEED_BYTES, FEED_WAITING_BYTES, SNAPSHOT_OPERATION_BYTES};
use remora_log::{Log, LogKey, LogOptions, OwnedEntry, Part};
use remora_protocol::message::Status;
use remora_protocol::replication::{
    Acknowledge, Begins, FEED_HEADER_BYTES, FeedHeader, FeedKind, Follow,
};
use remora_protocol::{Command, Condition, Expiry};
use remora_replica::{AskFor, Feed, Follower, LogReceiver, LogSender};
use remora_testing::Random;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const NOW: Now = Now { unix_ms: 1, since_start_s: 1 };
const SECRET: u64 = 9;

fn shard() -> Shard {
    let options = ShardOptions {
        log_secret: SECRET,
        durability: Durability::Told,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(32 << 20, NoJournal), options)
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

fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    (0..random.below(most + 1)).map(|_| random.bits() as u8).collect()
}

/// A number as a hostile peer likes them.
fn number(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => 0,
        1 => u64::MAX - random.below(3u64),
        2 => 1 << random.below(64),
        _ => random.below(12u64),
    }
}

fn message(kind: u8, commit: u64, body: &[u8]) -> Vec<u8> {
    let mut header = FeedHeader::new_zeroed();
    header.kind = kind;
    header.commit = commit.into();
    [header.as_bytes(), body].concat()
}

/// What a primary answers that is asked for a copy.
fn begins(primary: &mut Shard) -> Vec<u8> {
    let mut feed = Feed::begin((primary, 1), &Follow::new_zeroed(), AskFor::Some);
    let mut begins = Vec::new();
    feed.next_message(primary, NOW, &mut begins);
    begins
}

/// Numbers, or any bytes, or what an honest primary sends, damaged or not.
fn body(random: &mut Random, honest: &[Vec<u8>]) -> Vec<u8> {
    match random.below(3) {
        0 => (0..random.below(9)).flat_map(|_| number(random).to_le_bytes()).collect(),
        1 => bytes(random, 300),
        _ => {
            let mut body = honest[random.below(honest.len())][FEED_HEADER_BYTES..].to_vec();
            if random.one_in(3) && !body.is_empty() {
                let at = random.below(body.len());
                body[at] ^= 1 << random.below(8);
            }
            body
        }
    }
}

#[test]
fn nothing_that_a_primary_sends_makes_a_replica_panic() {
    let mut primary = shard();
    let mut honest = Vec::new();
    let mut feed = Feed::begin((&mut primary, 1), &Follow::new_zeroed(), AskFor::Each);
    for at in 0..200u8 {
        set(&mut primary, &[at % 8], &[at; 100]);
        let mut message = Vec::new();
        feed.next_message(&mut primary, NOW, &mut message);
        honest.extend(Some(message).filter(|message| !message.is_empty()));
    }
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut follower = Follower::default();
        for _ in 0..60 {
            let message = match random.below(4) {
                0 => bytes(&mut random, 40),
                1 => honest[random.below(honest.len())].clone(),
                _ => {
                    let body = body(&mut random, &honest);
                    message(random.below(9u8), number(&mut random), &body)
                }
            };
            match follower.hear(&message) {
                Ok(_) => taken += 1,
                Err(_) => {
                    refused += 1;
                    follower.ask(0);
                }
            }
            if let Some(log) = follower.log() {
                while log.next_entry().is_some() {}
                log.acknowledge(number(&mut random), number(&mut random), number(&mut random));
            }
        }
    }
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}

/// The epoch after it has to be a number: the replica takes that one when it is promoted.
#[test]
fn a_replica_takes_no_epoch_that_has_no_next_one() {
    for (epoch, is_taken) in [(1 << 48, true), ((1 << 48) + 1, false), (u64::MAX, false)] {
        let begins = begins(&mut shard());
        let (header, body) = begins.split_at(FEED_HEADER_BYTES);
        let mut body = Begins::read_from_bytes(body).unwrap();
        body.epoch = epoch.into();
        let mut follower = Follower::default();
        let heard = follower.hear(&[header, body.as_bytes()].concat());
        assert_eq!(heard.is_ok(), is_taken, "epoch {epoch}");
        assert!(follower.epoch() <= 1 << 48);

        let mut primary = shard();
        primary.begin_applying();
        primary.end_applying(epoch).unwrap();
        set(&mut primary, b"key", b"value");
        let mut receiver = LogReceiver::new(LogKey::new(SECRET, 0), 1);
        let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
        let mut message = Vec::new();
        sender.next_message(&mut primary, NOW, &mut message).unwrap();
        assert_eq!(receiver.take(&message).is_ok(), is_taken, "an entry of epoch {epoch}");
    }
}

/// The positions of all logs are added up.
#[test]
fn a_replica_takes_no_position_that_no_log_reaches() {
    let mut follower = Follower::default();
    follower.hear(&begins(&mut shard())).unwrap();
    let end_at = |sequence: u64| message(FeedKind::Copied as u8, 0, &sequence.to_le_bytes());
    assert!(follower.hear(&end_at(u64::MAX - 1)).is_err());
    follower.hear(&end_at(7)).unwrap();
    assert!(follower.hear(&message(FeedKind::Entries as u8, u64::MAX, &[])).is_err());
    follower.hear(&message(FeedKind::Entries as u8, 7, &[])).unwrap();
    assert_eq!(follower.log().unwrap().commit(), 7);
}

#[test]
fn what_waits_for_its_commit_position_is_bounded() {
    let mut primary = shard();
    let mut sender = LogSender::begin(&mut primary, 1, AskFor::Some).unwrap();
    let mut receiver = LogReceiver::new(LogKey::new(SECRET, 0), 1);
    let (value, mut bytes, mut messages) = (vec![7; 16 << 10], 0, 0);
    // Nothing is ever committed.
    while receiver.has_room() {
        set(&mut primary, b"key", &value);
        let mut message = Vec::new();
        sender.next_message(&mut primary, NOW, &mut message).unwrap();
        receiver.take(&message).unwrap();
        assert!(receiver.next_entry().is_none());
        (bytes, messages) = (bytes + message.len(), messages + 1);
        assert!(messages < 10_000, "it has room without end");
    }
    assert!(bytes < FEED_WAITING_BYTES + 2 * FEED_BYTES, "{bytes} bytes wait");
}

/// Entries without an operation take memory as well, and so do their parts.
#[test]
fn empty_entries_that_wait_are_bounded_too() {
    for has_parts in [false, true] {
        let key = LogKey::new(SECRET, 0);
        let mut log = Log::new(LogOptions::new(key, 0, 1));
        let mut cursor = log.cursor(1).unwrap();
        let mut receiver = LogReceiver::new(key, 1);
        while receiver.has_room() {
            for _ in 0..64 {
                let parts = [Part::new(0, log.last_sequence() + 1), Part::new(1, 1)];
                match has_parts {
                    true => log.append_part(&parts, [&[]; 3]),
                    false => log.append([&[]; 3]),
                };
            }
            let mut frames = Vec::new();
            log.read(&mut cursor, FEED_BYTES, &mut frames).unwrap();
            receiver.take(&message(FeedKind::Entries as u8, 0, &frames)).unwrap();
            let least = size_of::<OwnedEntry>() + usize::from(has_parts) * size_of::<[Part; 2]>();
            let bytes = receiver.received() as usize * least;
            assert!(bytes < FEED_WAITING_BYTES + FEED_BYTES, "{bytes} bytes wait");
        }
        assert!(receiver.received() > 1_000);
    }
}

#[test]
fn an_operation_of_a_copy_that_never_ends_is_refused() {
    let mut primary = shard();
    let mut follower = Follower::default();
    follower.hear(&begins(&mut primary)).unwrap();
    let part = vec![0xff; FEED_BYTES - FEED_HEADER_BYTES];
    let mut came = 0;
    while follower.hear(&message(FeedKind::Copy as u8, 0, &part)).is_ok() {
        came += part.len();
        assert!(came < SNAPSHOT_OPERATION_BYTES + 2 * FEED_BYTES, "{came} bytes are kept");
    }
}

#[test]
fn nothing_that_a_replica_says_makes_a_primary_panic() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut primary = shard();
        let key = primary.log().key().to_word();
        let mut feed = None;
        for at in 0..80u8 {
            match random.below(5) {
                0 => set(&mut primary, &[at % 8], &[at; 100]),
                1 => {
                    let mut follow = Follow::new_zeroed();
                    follow.next = number(&mut random).into();
                    follow.epoch = [1, number(&mut random)][random.below(2)].into();
                    follow.key = [key, number(&mut random)][random.below(2)].into();
                    feed.iter_mut().for_each(|feed: &mut Feed| feed.end(&mut primary));
                    feed = Some(Feed::begin((&mut primary, 1), &follow, AskFor::Some));
                }
                2 => {
                    let words: Vec<_> =
                        (0..32).flat_map(|_| number(&mut random).to_le_bytes()).collect();
                    let (told, _) = Acknowledge::read_from_prefix(&words).unwrap();
                    if let Some(feed) = &mut feed {
                        match feed.take(&mut primary, told) {
                            Ok(()) => taken += 1,
                            Err(_) => refused += 1,
                        }
                    }
                }
                _ => {
                    let mut message = Vec::new();
                    if let Some(feed) = &mut feed {
                        feed.next_message(&mut primary, NOW, &mut message);
                        feed.posted(at.into());
                        feed.completed(number(&mut random));
                    }
                    assert!(message.len() <= FEED_BYTES);
                }
            }
            let stored = feed.as_ref().and_then(Feed::stored).unwrap_or(0);
            assert!(stored <= primary.last_sequence(), "it has what was never written");
        }
    }
    assert!(taken > 300 && refused > 300, "{taken} {refused}");
}
