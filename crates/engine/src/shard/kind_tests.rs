//! Keys that are no strings: the commands about strings refuse them, those
//! about any key do not; no key names a part.

use super::{Now, Shard, ShardOptions, Store};
use crate::{LargeSet, Outcome};
use remora_arena::{NewRecord, NoJournal, Owner, publish_live, write_pending, write_root};
use remora_layout::bucket::BucketSlot;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::record::state_offset;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Reply};

const KEY: &[u8] = b"7";
const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

/// A shard whose table leads from the key to a record of this kind.
fn shard_with(kind: Kind) -> Shard {
    let mut shard = Shard::new(Owner::heap(1 << 20, NoJournal), ShardOptions::default());
    let record =
        NewRecord { database: Database::ZERO, key: KEY, value: b"7", kind, expires_at_ms: 0 };
    let (hash, options) = (shard.hash(KEY), shard.store.options);
    let store: &mut Store = &mut shard.store;
    let bytes = if kind.is_root() { state_offset(KEY.len()) + 16 } else { record.record_bytes() };
    let slot = store.slots.allocate(&mut store.owner, bytes, 0).unwrap();
    let (secret, region) = (options.record_secret, options.region);
    if kind.is_root() {
        write_root(&mut store.owner, secret, region, slot, (kind, KEY), 16, 0);
    } else {
        write_pending(&mut store.owner, secret, region, slot, &record);
    }
    publish_live(&mut store.owner, slot);
    let word = BucketSlot {
        slot: slot.slot,
        class: slot.class,
        generation_low: slot.generation as u8,
        signature: hash.signature(),
    };
    store.table.insert(&mut store.owner, hash, word, None);
    store.stats.count(Database::ZERO, 1, 0);
    store.evictor.note_linked(&store.owner, (slot, hash), None);
    shard
}

fn status(shard: &mut Shard, command: &Command<'_>) -> (Status, i64) {
    let Reply { status, number, .. } = shard.execute(command, shard.hash(KEY), NOW);
    (status, number)
}

fn set(get: bool) -> Command<'static> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Set { key: KEY, value: b"new", condition, expiry, get }
}

#[test]
fn a_command_about_strings_refuses_another_kind() {
    let key = KEY;
    let commands = [
        Command::Get { key },
        Command::Incr { key, by: 1 },
        Command::Append { key, value: b"x" },
        Command::SetRange { key, offset: 0, value: b"x" },
        Command::GetRange { key, start: 0, end: -1 },
        Command::SetBit { key, offset: 0, bit: true },
        Command::GetBit { key, offset: 0 },
        Command::StrLen { key },
        Command::GetDel { key },
        Command::GetEx { key, at_ms: None },
        Command::GetEx { key, at_ms: Some(1) },
        set(true),
    ];
    let mut shard = shard_with(Kind::HASH);
    for command in &commands {
        assert_eq!(status(&mut shard, command).0, Status::WrongType, "{command:?}");
    }
    let (value, condition, expiry) = (b"new", Condition::Always, Expiry::Never);
    let (hash, value_bytes) = (shard.hash(key), value.len());
    let large = LargeSet { key, hash, value_bytes, condition, expiry, get: true };
    let mut upload = shard.begin_upload(large, NOW).unwrap();
    shard.upload(&mut upload, value).unwrap();
    let outcome = shard.finish_upload(upload, NOW);
    assert!(matches!(outcome, Outcome::Reply(Reply { status: Status::WrongType, .. })));
    assert_eq!(shard.log().last_sequence(), 0, "nothing was changed");
    shard.audit().unwrap();
    for command in &commands {
        let mut string = shard_with(Kind::STRING);
        assert_eq!(status(&mut string, command).0, Status::Ok, "{command:?}");
    }
}

#[test]
fn a_command_about_any_key_takes_every_kind() {
    let (key, at_ms) = (KEY, NOW.unix_ms + 1000);
    let condition = ExpireCondition::Always;
    let mut shard = shard_with(Kind::HASH);
    for (command, number) in [
        (Command::Exists { key }, 1),
        (Command::Ttl { key }, -1),
        (Command::Expire { key, at_ms, condition }, 1),
        (Command::Ttl { key }, 1000),
        (Command::Del { key }, 1),
        (Command::Exists { key }, 0),
    ] {
        assert_eq!(status(&mut shard, &command), (Status::Ok, number), "{command:?}");
    }
    let mut shard = shard_with(Kind::HASH);
    assert_eq!(status(&mut shard, &set(false)).0, Status::Ok);
    assert_eq!(status(&mut shard, &Command::StrLen { key }), (Status::Ok, 3));
    shard.audit().unwrap();
}

#[test]
fn a_part_that_a_key_names_does_not_pass_the_audit() {
    shard_with(Kind::HASH).audit().unwrap();
    let mut shard = shard_with(Kind::STRING);
    // What `Table::insert` asserts cannot be undone after it: the kind is
    // changed under the table.
    let (_, slot) = shard.store.table.find(&shard.store.owner, KEY, shard.hash(KEY)).unwrap();
    let lengths = remora_arena::lengths_of(&shard.store.owner, slot.slot);
    let part = remora_layout::record::Lengths { kind: Kind::OBJECT, ..lengths };
    shard.store.owner.store(slot.slot as usize * 2 + 3, part.to_word());
    assert!(shard.audit().unwrap_err().contains("leads to a part"));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "no key names a part")]
fn no_key_names_a_part() {
    shard_with(Kind::SORTED_PLACE);
}
