//! What clients would send to make a key again: a backup is restored into a server that runs by
//! ordinary requests.

use crate::history::shard;
use crate::snapshot_objects::{KEY, NOW, change_of};
use remora_engine::{Eviction, Now, Shard, types};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_INLINE_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};
use remora_testing::Random;

/// Sends a key's commands to another shard, encoded as clients send them.
fn copy(source: &mut Shard, key: &[u8], to: &mut Shard, now: Now) -> Result<usize, Status> {
    let (hash, mut sent) = (source.hash_of(Database::ZERO, &Command::Exists { key }), 0);
    source.rebuild((key, hash), now, &mut |command| {
        assert!(command.is_for_rings() && command.is_write(), "{command:?}");
        let mut bytes = Vec::new();
        command.encode_into(1, &mut bytes);
        let is_value = matches!(command, Command::Set { .. });
        assert!(is_value || bytes.len() < 4 * MAX_INLINE_BYTES, "{} bytes", bytes.len());
        let (command, _) = Command::decode(&bytes).unwrap();
        let hash = to.hash_of(Database::ZERO, &command);
        assert_eq!(to.execute(&command, hash, now).status, Status::Ok, "{command:?}");
        sent += 1;
    })?;
    Ok(sent)
}

#[test]
fn an_object_of_any_type_and_size_is_made_again_by_ordinary_commands() {
    for kind in [vec![Kind::STRING], types::kinds()].concat() {
        let (change, mut most) = (change_of(kind), 0);
        for seed in 1..=20 {
            let mut random = Random::new(seed);
            let mut source = shard(1, 64 << 20, Eviction::None);
            let mut target = shard(9, 64 << 20, Eviction::None);
            let size = if seed % 2 == 0 { 20 } else { 4_000 };
            (0..size / 7).for_each(|_| change(&mut source, &mut random, size));
            if seed % 3 == 0 {
                let (at_ms, condition) = (NOW.unix_ms + 5_000, ExpireCondition::Always);
                let expire = Command::Expire { key: KEY, at_ms, condition };
                let hash = source.hash(KEY);
                source.execute(&expire, hash, NOW);
            }
            match copy(&mut source, KEY, &mut target, NOW) {
                Ok(sent) => most = most.max(sent),
                Err(status) => assert_eq!(status, Status::NotFound),
            }
            assert_eq!(target.digest(), source.digest(), "{kind:?}, seed {seed}");
            target.audit().unwrap();
        }
        assert!(most > 0, "{kind:?} was never there");
        assert!(kind == Kind::STRING || most > 5, "{kind:?}: {most} commands at most");
    }
}

#[test]
fn a_key_that_has_expired_or_is_not_there_gives_nothing() {
    let mut source = shard(1, 8 << 20, Eviction::None);
    let mut target = shard(9, 8 << 20, Eviction::None);
    let (condition, expiry) = (Condition::Always, Expiry::At(NOW.unix_ms + 10));
    let set = Command::Set { key: b"k", value: b"v", condition, expiry, get: false };
    let hash = source.hash(b"k");
    source.execute(&set, hash, NOW);
    assert_eq!(copy(&mut source, b"other", &mut target, NOW), Err(Status::NotFound));
    assert_eq!(copy(&mut source, b"k", &mut target, NOW), Ok(1));
    assert_eq!(target.digest(), source.digest());
    let later = Now { unix_ms: NOW.unix_ms + 11, ..NOW };
    assert_eq!(copy(&mut source, b"k", &mut target, later), Err(Status::NotFound));
}
