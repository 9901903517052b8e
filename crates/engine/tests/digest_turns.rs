//! DEBUG DIGEST in turns.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Digest, DigestRead, Now, Shard, ShardOptions};
use remora_layout::limits::{DIGEST_RESTARTS, DIGEST_TURN_PARTS};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn set<'a>(key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Command<'a> {
    Command::Set { key, value, condition: Condition::Always, expiry, get: false }
}

/// The digest in turns is that of one moment, whatever happens between them.
#[test]
fn a_digest_in_turns_is_of_one_moment() {
    let options = ShardOptions::default();
    let mut shard = Shard::new(Owner::heap(32 << 20, NoJournal), options);
    let many = 3 * DIGEST_TURN_PARTS as u64;
    let put = |shard: &mut Shard, at: u64| {
        let key = at.to_le_bytes();
        let hash = shard.hash(&key);
        shard.execute(&set(&key, b"value", Expiry::Never), hash, START);
    };
    (0..many).for_each(|at| put(&mut shard, at));
    let mut read = DigestRead::default();
    let mut turns = 0;
    let whole = loop {
        turns += 1;
        match shard.digest_turn(&mut read).unwrap() {
            Some(digest) => break digest,
            None => assert!(turns < 100),
        }
    };
    assert!(turns >= 3, "{turns}");
    assert_eq!(whole, shard.digest());
    // Two changes, and then none.
    let mut read = DigestRead::default();
    for turn in 0.. {
        if let Some(digest) = shard.digest_turn(&mut read).unwrap() {
            assert!(turn > 3 && digest == shard.digest() && digest != whole);
            break;
        }
        assert!(turn < 100);
        if turn < 2 {
            put(&mut shard, many + turn);
        }
    }
    // With a change after each turn it is refused, and no turn is longer than others.
    let mut read = DigestRead::default();
    for turn in 0.. {
        match shard.digest_turn(&mut read) {
            Ok(None) => put(&mut shard, many + 2 + turn),
            refused => {
                assert_eq!(refused, Err(Status::TryAgain));
                assert_eq!(turn, u64::from(DIGEST_RESTARTS) + 1);
                break;
            }
        }
    }
    // The digest of a value: only the name does not count.
    let value = |shard: &mut Shard, key: &[u8]| {
        let hash = shard.hash(key);
        shard.digest_value(key, hash, START)
    };
    let [one, two] = [1u64.to_le_bytes(), 2u64.to_le_bytes()];
    assert_eq!(value(&mut shard, b"none"), None);
    assert_eq!(value(&mut shard, &one), value(&mut shard, &two));
    let hash = shard.hash(&two);
    shard.execute(&Command::Append { key: &two, value: b"!" }, hash, START);
    assert_ne!(value(&mut shard, &one), value(&mut shard, &two));
}

/// A large table without keys takes turns, too.
#[test]
fn empty_buckets_count() {
    let buckets = 4 * DIGEST_TURN_PARTS as u64;
    let options = ShardOptions { buckets, ..ShardOptions::default() };
    let shard = Shard::new(Owner::heap(32 << 20, NoJournal), options);
    let mut read = DigestRead::default();
    for turn in 1.. {
        if let Some(digest) = shard.digest_turn(&mut read).unwrap() {
            assert_eq!((digest, turn >= 4), (Digest::default(), true), "{turn} turns");
            break;
        }
    }
}
