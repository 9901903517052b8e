//! From when on an entry counts as stored by a replica, and a replica as one that has stored
//! something.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_protocol::replication::{Acknowledge, Follow};
use remora_protocol::{Command, Condition, Expiry};
use remora_replica::{AskFor, Feed, FollowEvent, Follower};
use zerocopy::FromZeros;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn shard() -> Shard {
    let options = ShardOptions { log_secret: 9, buckets: 2, ..ShardOptions::default() };
    Shard::new(Owner::heap(8 << 20, NoJournal), options)
}

fn set(shard: &mut Shard) {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key: b"key", value: b"value", condition, expiry, get: false };
    let hash = shard.hash(b"key");
    shard.execute(&set, hash, NOW);
}

/// What a replica asks for that has the entries of the shard before this one.
fn follow(shard: &Shard, next: u64) -> Follow {
    let (key, epoch) = (shard.log().key().to_word(), shard.log().epoch());
    Follow { next: next.into(), epoch: epoch.into(), key: key.into(), ..Follow::new_zeroed() }
}

/// Sends the next message, by a WRITE with this number.
fn send(feed: &mut Feed, shard: &mut Shard, write: u64) -> Vec<u8> {
    let mut message = Vec::new();
    feed.next_message(shard, NOW, &mut message);
    assert!(!message.is_empty());
    feed.posted(write);
    message
}

fn acknowledge(received: u64) -> Acknowledge {
    Acknowledge {
        received: received.into(),
        applied: 0.into(),
        durable: 0.into(),
        failed: 0.into(),
        clock: 0.into(),
        ask: 0.into(),
        zero: 0.into(),
    }
}

#[test]
fn an_entry_counts_once_its_write_has_completed_and_not_when_it_was_sent() {
    let mut shard = shard();
    let asked = follow(&shard, 1);
    let mut feed = Feed::begin((&mut shard, 1), &asked, AskFor::Some);
    send(&mut feed, &mut shard, 1);
    assert_eq!(feed.stored(), Some(0));
    for write in 2..5 {
        set(&mut shard);
        send(&mut feed, &mut shard, write);
        assert_eq!(feed.stored(), Some(0));
    }
    feed.completed(3);
    assert_eq!(feed.stored(), Some(2));
    feed.completed(4);
    assert_eq!(feed.stored(), Some(3));
}

#[test]
fn strict_it_counts_once_the_thread_of_the_replica_has_said_so() {
    let mut shard = shard();
    let asked = follow(&shard, 1);
    let mut feed = Feed::begin((&mut shard, 1), &asked, AskFor::Each);
    send(&mut feed, &mut shard, 1);
    set(&mut shard);
    send(&mut feed, &mut shard, 2);
    feed.completed(2);
    assert_eq!(feed.stored(), Some(0));
    feed.take(&mut shard, acknowledge(1)).unwrap();
    assert_eq!(feed.stored(), Some(1));
}

#[test]
fn a_replica_with_a_copy_counts_once_it_has_said_that_it_has_taken_it_whole() {
    let mut shard = shard();
    set(&mut shard);
    let mut follower = Follower::default();
    let mut feed = Feed::begin((&mut shard, 1), &follower.ask(0), AskFor::Some);
    let mut writes = 0;
    loop {
        writes += 1;
        let message = send(&mut feed, &mut shard, writes);
        feed.completed(writes);
        assert_eq!(feed.stored(), None, "it lies in a ring that goes with its link");
        if let FollowEvent::Copied { sequence, .. } = follower.hear(&message).unwrap() {
            assert_eq!(sequence, 1);
            break;
        }
    }
    set(&mut shard);
    send(&mut feed, &mut shard, writes + 1);
    feed.completed(writes + 1);
    assert_eq!(feed.stored(), None);
    let told = follower.log().unwrap().acknowledge(0, 0, 1);
    feed.take(&mut shard, told).unwrap();
    assert_eq!(feed.stored(), Some(2));
}

#[test]
fn what_comes_again_after_a_failure_does_not_count_until_then() {
    let mut shard = shard();
    let asked = follow(&shard, 1);
    let mut feed = Feed::begin((&mut shard, 1), &asked, AskFor::Some);
    send(&mut feed, &mut shard, 1);
    for write in 2..5 {
        set(&mut shard);
        send(&mut feed, &mut shard, write);
    }
    feed.completed(3);
    assert_eq!(feed.stored(), Some(2));
    // The second entry was damaged: the third one, which is under way, is not taken either.
    feed.take(&mut shard, Acknowledge { failed: 2.into(), ..acknowledge(1) }).unwrap();
    assert_eq!(feed.stored(), Some(1));
    feed.completed(4);
    assert_eq!(feed.stored(), Some(1));
    send(&mut feed, &mut shard, 5);
    feed.completed(5);
    assert_eq!(feed.stored(), Some(3));
}
