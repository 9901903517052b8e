//! Copies, and the log behind them, over links that are cut at any moment: what a replica has in the
//! end is what its primary has, and never a mixture of two states.

use super::{NOW, SECRET, append, set};
use remora_arena::{NoJournal, Owner};
use remora_engine::{
    Durability, EpochHistory, FollowedLog, LogHistory, Origin, Shard, ShardOptions, split_operation,
};
use remora_layout::limits::FEED_REASON_BYTES;
use remora_protocol::replication::{FeedKind, Follow, RefusalReason};
use remora_protocol::{Command, message::Status};
use remora_replica::{AskFor, Feed, FeedError, FollowEvent, Follower};
use remora_testing::Random;
use zerocopy::FromZeros;

const PORT: u16 = 6379;

fn primary(log_secret: u64, epoch: u64) -> Shard {
    durable_as(Durability::Memory, log_secret, epoch)
}

fn durable_as(durability: Durability, log_secret: u64, epoch: u64) -> Shard {
    let options = ShardOptions {
        durability,
        hash_seed: 3,
        record_secret: 7,
        log_secret,
        epoch,
        buckets: 2,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(8 << 20, NoJournal), options)
}

fn del(shard: &mut Shard, key: &[u8]) {
    let hash = shard.hash(key);
    shard.execute(&Command::Del { key }, hash, NOW);
}

fn follow(feed: &mut Follower) -> Follow {
    feed.ask(PORT)
}

/// A replica: what it makes of messages, and the shard that it fills.
struct Replica {
    follower: Follower,
    shard: Shard,
    copies: u32,
}

impl Replica {
    fn new() -> Self {
        let mut shard = primary(1, 1);
        shard.begin_following((0, 1), false);
        Self { follower: Follower::default(), shard, copies: 0 }
    }

    /// Takes one message, as a server does.
    fn take(&mut self, message: &[u8]) -> Result<FollowEvent, FeedError> {
        let heard = self.follower.hear(message)?;
        let key = self.follower.key();
        self.shard.follow_log(FollowedLog { log: 0, logs: 1, key, position: None });
        match &heard {
            FollowEvent::Begins { copies: true, .. } => {
                self.copies += 1;
                self.shard.begin_copy(&Origin::WHOLE, NOW);
                while self.shard.is_flushing() {
                    self.shard.release_some(NOW);
                }
            }
            FollowEvent::Operations(stream) => {
                let mut left = &stream[..];
                while let Ok(Some((operation, rest))) = split_operation(left) {
                    self.shard.load(operation, &Origin::WHOLE, NOW).unwrap();
                    left = rest;
                }
            }
            FollowEvent::Copied { sequence, epoch } => {
                self.shard.follow_at(0, (*sequence, *epoch));
            }
            FollowEvent::Entries { .. } => {
                let log = self.follower.log().expect("it follows");
                while let Some(entry) = log.next_entry() {
                    self.shard.apply(&entry.entry(), &Origin::WHOLE, NOW).unwrap();
                }
            }
            FollowEvent::Resumes { rest, at, .. } => {
                for entry in rest {
                    self.shard.apply(&entry.entry(), &Origin::WHOLE, NOW).unwrap();
                }
                self.shard.follow_at(0, *at);
            }
            FollowEvent::Begins { copies: false, .. }
            | FollowEvent::Lost { .. }
            | FollowEvent::HasMore { .. }
            | FollowEvent::UnknownEpoch
            | FollowEvent::Refused(_) => {}
        }
        Ok(heard)
    }

    /// Follows over one link, which is cut after so many messages, or once nothing more comes.
    fn link(&mut self, primary: &mut Shard, most: usize, mut between: impl FnMut(&mut Shard)) {
        let mut feed = Feed::begin((primary, 1), &follow(&mut self.follower), AskFor::Some);
        let mut message = Vec::new();
        for _ in 0..most {
            if !feed.has_news(primary) {
                break;
            }
            message.clear();
            feed.next_message(primary, NOW, &mut message);
            between(primary);
            if message.is_empty() {
                continue;
            }
            if let Ok(FollowEvent::Lost { is_same_log: true }) = self.take(&message) {
                self.follower.lose_place();
                break;
            }
        }
        feed.end(primary);
    }
}

fn same(one: &Shard, two: &Shard) {
    assert_eq!(one.digest(), two.digest());
}

#[test]
fn an_interrupted_copy_begins_anew_and_leaves_no_mixture() {
    let (mut interrupted, mut most_copies) = (0, 0);
    for seed in 0..60 {
        let (mut random, mut of) = (Random::new(seed), primary(SECRET, 1));
        let mut replica = Replica::new();
        for at in 0..400 {
            set(&mut of, format!("key-{at}").as_bytes(), &[b'v'; 3000]);
        }
        for _ in 0..6 {
            let most = random.below(40) as usize;
            let mut at = random.below(400);
            replica.link(&mut of, most, |of| {
                // Keys go and come while the copy is under way.
                at = (at + 7) % 400;
                del(of, format!("key-{at}").as_bytes());
                append(of, format!("grows-{}", at % 5).as_bytes(), b"x");
            });
            interrupted += u64::from(replica.follower.log().is_none());
            del(&mut of, format!("key-{}", random.below(400)).as_bytes());
        }
        replica.link(&mut of, usize::MAX, |_| {});
        same(&of, &replica.shard);
        most_copies = most_copies.max(replica.copies);
    }
    assert!(interrupted > 30 && most_copies > 2, "{interrupted} were interrupted, {most_copies}");
}

/// A primary that was started again with the first entries of an earlier epoch, which it counts anew.
fn restarted(kept: u64, memory_only: bool) -> Shard {
    let mut after = primary(SECRET, 2);
    (0..kept).for_each(|at| set(&mut after, format!("key-{at}").as_bytes(), b"same"));
    // It has no entries of before in its log, which begins with other numbers.
    set(&mut after, b"more", b"than an entry for each");
    del(&mut after, b"more");
    let first = after.last_sequence() + 1;
    let epochs = vec![EpochHistory { epoch: 1, last: kept, is_empty: false }];
    after.set_history(LogHistory { epochs, first, memory_only, ..LogHistory::default() });
    after
}

/// What a replica with so many entries hears of that primary, all of them committed or none.
fn hears(replica: &mut Replica, after: &mut Shard) -> FollowEvent {
    let mut feed = Feed::begin((after, 1), &follow(&mut replica.follower), AskFor::Some);
    let mut message = Vec::new();
    feed.next_message(after, NOW, &mut message);
    feed.end(after);
    replica.take(&message).unwrap()
}

fn replica_of(entries: u64) -> Replica {
    let mut before = primary(SECRET, 1);
    let mut replica = Replica::new();
    replica.link(&mut before, usize::MAX, |_| {});
    (0..entries).for_each(|at| set(&mut before, format!("key-{at}").as_bytes(), b"same"));
    replica.link(&mut before, usize::MAX, |_| {});
    replica
}

#[test]
fn nothing_is_acknowledged_before_the_primary_has_answered() {
    let (mut replica, mut after) = (replica_of(8), restarted(8, false));
    assert!(replica.follower.may_acknowledge(), "over the link before");
    let mut feed = Feed::begin((&mut after, 1), &follow(&mut replica.follower), AskFor::Some);
    assert!(!replica.follower.may_acknowledge(), "its entries have other numbers there");
    let mut answer = Vec::new();
    feed.next_message(&mut after, NOW, &mut answer);
    replica.take(&answer).unwrap();
    assert!(replica.follower.may_acknowledge());
    let log = replica.follower.log().expect("it goes on");
    assert_eq!(log.received(), after.last_sequence(), "in the numbers of the new epoch");
    feed.end(&mut after);
}

#[test]
fn behind_a_restart_of_the_primary_a_replica_goes_on_copies_or_keeps_what_it_has() {
    // All that was kept: the entries of the new epoch follow, whatever their numbers are.
    let (mut replica, mut after) = (replica_of(8), restarted(8, false));
    (8..14).for_each(|at| set(&mut after, format!("other-{at}").as_bytes(), b"new"));
    replica.link(&mut after, usize::MAX, |_| {});
    assert_eq!(replica.copies, 1, "the first one");
    same(&after, &replica.shard);
    append(&mut after, b"grows", b"x");
    replica.link(&mut after, usize::MAX, |_| {});
    same(&after, &replica.shard);
    // Less: a copy.
    let mut replica = replica_of(5);
    replica.link(&mut after, usize::MAX, |_| {});
    replica.link(&mut after, usize::MAX, |_| {});
    assert_eq!(replica.copies, 2);
    same(&after, &replica.shard);
    // More, and committed: nothing is thrown away, however often it asks.
    let mut replica = replica_of(10);
    let before = replica.shard.digest();
    for _ in 0..2 {
        let heard = hears(&mut replica, &mut after);
        assert_eq!(heard, FollowEvent::HasMore { received: 10, kept: 8 });
        assert_eq!(replica.shard.digest(), before);
    }
    // Until it is told.
    replica.follower = Follower::default();
    replica.link(&mut after, usize::MAX, |_| {});
    same(&after, &replica.shard);
    // The epoch is too long ago.
    let mut replica = replica_of(8);
    after.set_history(LogHistory::default());
    assert_eq!(hears(&mut replica, &mut after), FollowEvent::UnknownEpoch);
}

/// A replica that has received ten entries, of which it knows that three are committed.
fn with_uncommitted() -> Replica {
    let mut before = primary(SECRET, 1);
    let mut replica = Replica::new();
    replica.link(&mut before, usize::MAX, |_| {});
    (0..10).for_each(|at| set(&mut before, format!("key-{at}").as_bytes(), b"same"));
    let mut feed = Feed::begin((&mut before, 1), &follow(&mut replica.follower), AskFor::Some);
    let mut message = Vec::new();
    while feed.has_news(&before) {
        message.clear();
        feed.next_message(&mut before, NOW, &mut message);
        if FeedKind::from_number(message[0]) == Some(FeedKind::Entries) {
            // The commit position stays behind.
            message[8..16].copy_from_slice(&3u64.to_le_bytes());
        }
        replica.take(&message).unwrap();
    }
    replica
}

/// Its primary is started again, with so many entries: the replica goes on, or copies it.
fn goes_on_or_copies(mut replica: Replica, kept: u64, copies: bool) {
    let mut after = restarted(kept, false);
    let heard = hears(&mut replica, &mut after);
    assert_eq!(heard == FollowEvent::Lost { is_same_log: true }, copies, "{heard:?}");
    if copies {
        replica.follower.lose_place();
    }
    replica.link(&mut after, usize::MAX, |_| {});
    same(&after, &replica.shard);
}

#[test]
fn what_a_failed_promotion_has_applied_is_no_part_of_what_the_primary_goes_on_with() {
    for (kept, is_lost) in [(10, false), (8, true)] {
        let mut replica = with_uncommitted();
        let (rest, beyond) = replica.follower.log().unwrap().take_rest();
        assert_eq!((rest.len(), beyond), (7, 7));
        for entry in &rest {
            replica.shard.apply(&entry.entry(), &Origin::WHOLE, NOW).unwrap();
        }
        // It stays a replica, and its primary is started again.
        goes_on_or_copies(replica, kept, is_lost);
    }
}

/// A replica with another number of shards goes on from the one that is furthest behind.
#[test]
fn what_the_furthest_shard_of_a_replica_has_counts_as_committed() {
    let key = primary(SECRET, 1).log().key().to_word();
    let lost = FollowEvent::Lost { is_same_log: true };
    for (kept, answer) in [(10, FollowEvent::HasMore { received: 12, kept: 10 }), (12, lost)] {
        let follower = Follower::resumed(key, (8, 1), 12);
        let mut replica = Replica { follower, ..Replica::new() };
        assert_eq!(hears(&mut replica, &mut restarted(kept, false)), answer);
    }
}

#[test]
fn what_was_never_committed_goes_unless_it_may_have_been_acknowledged() {
    for (memory_only, kept, received) in [(false, 8, 10), (true, 8, 10), (false, 10, 10)] {
        let mut replica = with_uncommitted();
        assert_eq!(replica.follower.log().unwrap().received(), received);
        assert_eq!(replica.shard.applied(0), 3);
        let mut after = restarted(kept, memory_only);
        match hears(&mut replica, &mut after) {
            FollowEvent::HasMore { .. } => assert!(memory_only),
            FollowEvent::Resumes { rest, .. } => {
                assert!(!memory_only);
                assert_eq!(rest.len() as u64, kept - 3);
                set(&mut after, b"next", b"1");
                replica.link(&mut after, usize::MAX, |_| {});
                same(&after, &replica.shard);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_copy_with_what_the_primary_has_lost_is_made_anew() {
    let mut before = primary(SECRET, 1);
    (0..10).for_each(|at| set(&mut before, format!("key-{at}").as_bytes(), b"same"));
    for (kept, is_lost) in [(10, false), (8, true)] {
        let mut replica = Replica::new();
        let mut feed = Feed::begin((&mut before, 1), &follow(&mut replica.follower), AskFor::Some);
        let mut message = Vec::new();
        // The link is cut at the end of the copy: no commit position has come.
        while replica.follower.log().is_none() {
            message.clear();
            feed.next_message(&mut before, NOW, &mut message);
            if !message.is_empty() {
                replica.take(&message).unwrap();
            }
        }
        feed.end(&mut before);
        goes_on_or_copies(replica, kept, is_lost);
    }
}

#[test]
fn another_log_is_never_copied_unasked() {
    let (mut of, mut other) = (primary(SECRET, 1), primary(SECRET + 1, 1));
    set(&mut of, b"key", b"kept");
    // Whether it has all of it, or its copy was cut.
    for most in [usize::MAX, 1] {
        let mut replica = Replica::new();
        replica.link(&mut of, most, |_| {});
        let before = replica.shard.digest();
        let mut feed = Feed::begin((&mut other, 1), &follow(&mut replica.follower), AskFor::Some);
        let mut message = Vec::new();
        feed.next_message(&mut other, NOW, &mut message);
        assert_eq!(replica.take(&message), Ok(FollowEvent::Lost { is_same_log: false }));
        assert_eq!(replica.shard.digest(), before);
        // Nor if the other server answers as if it were asked to.
        let mut feed = Feed::begin((&mut other, 1), &Follow::new_zeroed(), AskFor::Some);
        message.clear();
        feed.next_message(&mut other, NOW, &mut message);
        assert_eq!(replica.take(&message), Err(FeedError::Malformed));
        assert_eq!(replica.shard.digest(), before);
    }
}

#[test]
fn a_promoted_shard_has_another_log_under_a_later_epoch() {
    let mut of = primary(SECRET, 3);
    (0..20).for_each(|at| set(&mut of, format!("key-{at}").as_bytes(), b"v"));
    let mut replica = Replica::new();
    replica.link(&mut of, usize::MAX, |_| {});
    assert!(replica.shard.promote(replica.shard.last_epoch() - 1, 5).is_err(), "an earlier epoch");
    let (key, epoch) = (replica.shard.log().key(), replica.shard.last_epoch() + 1);
    assert_eq!(epoch, 4);
    let before = replica.shard.last_sequence();
    replica.shard.promote(epoch, 5).unwrap();
    assert!(replica.shard.log().key() != key);
    let hash = replica.shard.hash(b"new");
    let stored = replica.shard.execute(&Command::Append { key: b"new", value: b"1" }, hash, NOW);
    assert_eq!(stored.status, Status::Ok);
    assert_eq!(replica.shard.last_sequence(), before + 1, "its sequences go on");
    // The old primary copies it.
    let mut old = Replica { follower: Follower::default(), shard: of, copies: 0 };
    old.shard.begin_applying();
    old.link(&mut replica.shard, usize::MAX, |_| {});
    same(&replica.shard, &old.shard);
}

/// Two replicas of one primary, which dies: the one that has more of it is promoted. The other goes on
/// behind it, without a copy, if it has as much of the old log, and drops what it has beyond.
#[test]
fn a_replica_goes_on_with_another_one_that_was_promoted() {
    for (first, second, has_tail, copies) in
        [(20, 20, false, 1), (20, 23, false, 1), (20, 19, false, 2), (20, 12, true, 1)]
    {
        let mut of = durable_as(Durability::Told, SECRET, 3);
        let (mut promoted, mut other) = (Replica::new(), Replica::new());
        promoted.link(&mut of, usize::MAX, |_| {});
        other.link(&mut of, usize::MAX, |_| {});
        for at in 0..first.max(second) {
            set(&mut of, format!("key-{at}").as_bytes(), b"v");
            // Neither has acknowledged more, so no commit position is beyond; the last entries lie with both
            // uncommitted.
            of.set_durable(of.last_sequence().min(first.min(second)).saturating_sub(2));
            let has = of.last_sequence();
            for (replica, most) in [(&mut promoted, first), (&mut other, second)] {
                if has <= most {
                    replica.link(&mut of, usize::MAX, |_| {});
                }
            }
        }
        let (rest, _) = promoted.follower.log().unwrap().take_rest();
        for entry in rest {
            promoted.shard.apply(&entry.entry(), &Origin::WHOLE, NOW).unwrap();
        }
        promoted.shard.promote(promoted.shard.last_epoch() + 1, 5).unwrap();
        let tail = promoted.follower.log().unwrap().take_tail();
        promoted.shard.go_on_with_former_log(if has_tail { tail } else { Vec::new() });
        set(&mut promoted.shard, b"new", b"1");
        let mut feed =
            Feed::begin((&mut promoted.shard, 1), &follow(&mut other.follower), AskFor::Some);
        // What lies in its ring it may lose with the link; what it has received it has.
        assert_eq!(feed.stored().is_some(), second >= first, "{first} and {second}");
        feed.end(&mut promoted.shard);
        other.link(&mut promoted.shard, usize::MAX, |_| {});
        if copies == 2 {
            assert!(other.follower.log().is_none(), "it has lost its place");
            other.follower = Follower::default();
            other.link(&mut promoted.shard, usize::MAX, |_| {});
        }
        assert_eq!(other.copies, copies, "{first} and {second}");
        same(&promoted.shard, &other.shard);
        // It has the log of the new one from now on.
        set(&mut promoted.shard, b"new", b"2");
        other.link(&mut promoted.shard, usize::MAX, |_| {});
        same(&promoted.shard, &other.shard);
        assert_eq!(other.copies, copies);
        // What has followed another log does not.
        let mut stranger = Replica::new();
        stranger.link(&mut primary(SECRET + 1, 3), usize::MAX, |_| {});
        let mut feed =
            Feed::begin((&mut promoted.shard, 1), &follow(&mut stranger.follower), AskFor::Some);
        let mut message = Vec::new();
        feed.next_message(&mut promoted.shard, NOW, &mut message);
        assert_eq!(stranger.take(&message), Ok(FollowEvent::Lost { is_same_log: false }));
    }
}

#[test]
fn a_refusal_is_bounded_and_says_why() {
    let mut of = primary(SECRET, 1);
    let mut feed = Feed::refused(RefusalReason::IsReplica, &"é".repeat(FEED_REASON_BYTES));
    assert!(feed.has_news(&of) && feed.is_over());
    let mut message = Vec::new();
    feed.next_message(&mut of, NOW, &mut message);
    let mut replica = Replica::new();
    let Ok(FollowEvent::Refused(why)) = replica.take(&message) else { panic!("it refuses") };
    assert_eq!(why.len(), FEED_REASON_BYTES);
    assert!(!feed.has_news(&of));
}
