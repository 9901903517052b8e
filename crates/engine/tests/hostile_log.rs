//! A log that a hostile primary has made: whatever its entries and the operations of its copies are, a
//! shard that follows it does not panic, and can be emptied.

use crate::history::{Source, entries, shard};
use crate::scored;
use remora_engine::{Applied, Eviction, FollowedLog, Now, Origin, Shard};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_log::{Entry, Log, LogKey, LogOptions, OwnedEntry};
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, SortedRead, When};
use remora_protocol::{Command, Dumped, Items};
use remora_testing::Random;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 9 };

/// An operation of an honest log, mostly damaged; or that of another place; or any bytes.
fn operation(random: &mut Random, honest: &[Vec<u8>], at: usize) -> Vec<u8> {
    let mut operation =
        honest[if random.one_in(6) { random.below(honest.len()) } else { at }].clone();
    match random.below(12) {
        0..6 => {}
        6 => operation.truncate(random.below(operation.len() + 1)),
        7 => operation = (0..random.below(60)).map(|_| random.bits() as u8).collect(),
        _ => {
            for _ in 0..random.within(1..4) {
                // The words before a value, mostly.
                let most = operation.len().min(if random.one_in(3) { usize::MAX } else { 40 });
                if most > 0 {
                    operation[random.below(most)] = match random.below(3) {
                        0 => random.bits() as u8,
                        1 => 0,
                        _ => u8::MAX,
                    };
                }
            }
        }
    }
    operation
}

fn follow(shard: &mut Shard, keeps: bool) {
    shard.begin_following((0, 1), keeps);
    shard.follow_log(FollowedLog { log: 0, logs: 1, key: 7, position: None });
}

fn release(shard: &mut Shard) {
    while shard.wants_release() {
        shard.release_some(NOW);
    }
}

#[test]
fn no_operation_makes_a_shard_that_follows_panic() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut source = Source::new(seed, 1, Eviction::None);
        source.run(700);
        let honest = entries(0, &source.logs[0]);
        let operations: Vec<_> = honest.iter().map(|entry| entry.operation().to_vec()).collect();
        let mut random = Random::new(seed);
        // One with little memory refuses some for that.
        let bytes = [1 << 20, 24 << 20][seed as usize % 2];
        let mut copy = shard(100, bytes, Eviction::None);
        follow(&mut copy, seed % 3 == 0);
        for (at, entry) in honest.iter().enumerate() {
            let operation = operation(&mut random, &operations, at);
            let sequence = copy.applied(0) + 1;
            let entry = Entry { sequence, operation: &operation, ..entry.entry() };
            // What is refused comes again, with each tick.
            for _ in 0..3 {
                let before = copy.last_sequence();
                match copy.apply(&entry, &Origin::WHOLE, NOW) {
                    Ok(Applied::Before) => break,
                    Ok(_) => done += 1,
                    Err(_) => {
                        refused += 1;
                        assert_eq!(copy.last_sequence(), before, "what is refused is not logged");
                    }
                }
                copy.tick(NOW);
            }
            if random.one_in(4) {
                let _ = copy.load(&operation, &Origin::WHOLE, NOW);
            }
        }
        release(&mut copy);
        // Its objects may make no sense, such as one without parts. They can be read and removed.
        copy.digest();
        copy.end_applying(u64::MAX >> 1).unwrap();
        let hash = KeyHash::without_key(Database::ZERO);
        assert_eq!(copy.execute(&Command::FlushAll, hash, NOW).status, Status::Ok);
        release(&mut copy);
        assert_eq!(copy.keys(), 0);
        copy.audit().unwrap();
    }
    assert!(done > 9_000 && refused > 3_000, "{done} {refused}");
}

fn entry(sequence: u64, operation: &[u8]) -> OwnedEntry {
    let mut log = Log::new(LogOptions::new(LogKey::new(1, 0), 0, 1));
    (1..sequence).for_each(|_| _ = log.pass());
    log.append([operation, &[], &[]]);
    log.entries().remove(0)
}

/// The bytes of a list that lies whole in its record are those of another server, and need not encode
/// entries. It can be added to until it has chunks.
#[test]
fn lists_of_any_bytes_are_changed() {
    let mut done = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut copy = shard(100, 4 << 20, Eviction::None);
        follow(&mut copy, false);
        let value: Vec<u8> = match seed {
            // The head of a text that is not there.
            0 => vec![0x85],
            _ => (0..random.within(1..40)).map(|_| random.bits() as u8).collect(),
        };
        let mut dump = Vec::new();
        Dumped::push(&mut dump, Kind::LIST.whole(), 0, 0, &value);
        let dumped = Dumped::parse(&dump).unwrap();
        let restore = Command::Restore { key: b"l", dumped, replaces: true };
        apply(&mut copy, &restore).unwrap();
        for _ in 0..6 {
            let text = vec![b'x'; random.below(300)];
            let mut list = Vec::new();
            (0..random.within(1..200))
                .for_each(|_| Items::push(&mut list, &text[..text.len() / 9]));
            let items = Items::parse(&list).unwrap();
            let side = if random.one_in(2) { Side::Left } else { Side::Right };
            let index = random.below(4) as u64;
            let command = match random.below(5) {
                0 => ListCommand::SetAt { index: index as i64, value: &text },
                1 => ListCommand::InsertAt { index, value: &text },
                2 => ListCommand::Keep { from: index, keep: random.below(200) as u64 },
                3 if random.one_in(3) => ListCommand::RemoveAt { indexes: &[1, 0, 0, 0] },
                _ => ListCommand::Push { side, if_there: false, items },
            };
            let change = Command::Of { key: b"l", request: command.request() };
            done += u32::from(apply(&mut copy, &change).is_ok());
            copy.digest();
            copy.audit().unwrap();
        }
        copy.end_applying(u64::MAX >> 1).unwrap();
        let hash = copy.hash(b"l");
        let read = ListCommand::Range { start: 0, stop: -1 }.request();
        let told = copy.execute(&Command::Of { key: b"l", request: read }, hash, NOW).status;
        assert_eq!(told, Status::Ok);
        assert_eq!(copy.execute(&Command::Del { key: b"l" }, hash, NOW).status, Status::Ok);
        release(&mut copy);
        copy.audit().unwrap();
    }
    assert!(done > 900, "{done}");
}

/// The bytes of a sorted set that lies whole in its record: any, or members in no order, twice, too
/// long, too many, with scores that are NaN.
fn packed_scores(random: &mut Random) -> Vec<u8> {
    if random.one_in(4) {
        return (0..random.within(0..90)).map(|_| random.bits() as u8).collect();
    }
    let mut packed = Vec::new();
    let most = random.pick(&[3, 20, 300]);
    for _ in 0..random.within(1..most) {
        let score = match random.below(30) {
            0 => f64::NAN,
            at => f64::from(at) - 9.0,
        };
        let member = random.below(200).to_string().repeat(if random.one_in(40) { 60 } else { 1 });
        packed.extend(score.to_le_bytes());
        packed.push(member.len() as u8);
        packed.extend(member.as_bytes());
    }
    packed
}

#[test]
fn sorted_sets_of_any_bytes_are_changed_and_read() {
    let mut done = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut copy = shard(100, 4 << 20, Eviction::None);
        follow(&mut copy, false);
        let (value, mut dump) = (packed_scores(&mut random), Vec::new());
        Dumped::push(&mut dump, Kind::SORTED_SET.whole(), 0, 0, &value);
        let dumped = Dumped::parse(&dump).unwrap();
        apply(&mut copy, &Command::Restore { key: b"z", dumped, replaces: true }).unwrap();
        for _ in 0..6 {
            let (mut list, most) = (Vec::new(), random.pick(&[3, 200]));
            for _ in 0..random.within(1..most) {
                let member = random.below(220).to_string();
                let member = member.repeat(if random.one_in(40) { 90 } else { 1 });
                Scored::push(&mut list, random.below(20) as f64 - 9.0, member.as_bytes());
            }
            let names = scored::names(&list);
            let command =
                if random.one_in(3) { scored::remove(&names) } else { scored::add(&list) };
            let change = Command::Of { key: b"z", request: command.request() };
            done += u32::from(apply(&mut copy, &change).is_ok());
            copy.digest();
            copy.audit().unwrap();
        }
        copy.end_applying(u64::MAX >> 1).unwrap();
        let member = &b"17"[..];
        let read = SortedRead { limit: 100, ..SortedRead::of(SortedRange::ALL) };
        let count = random.below(9) as u64;
        for command in [
            SortedCommand::Range(read),
            SortedCommand::Range(SortedRead { is_reverse: true, ..read }),
            SortedCommand::Rank { member, is_reverse: true },
            SortedCommand::Increment { when: When::default(), by: 1.5, member },
            SortedCommand::Random { count: -9 },
            SortedCommand::Pop { count, from_greatest: true },
            SortedCommand::RemoveRange { range: SortedRange::Index { start: 1, stop: 9 } },
        ] {
            let (status, ..) = scored::of(&mut copy, b"z", command, NOW);
            assert!(matches!(status, Status::Ok | Status::NotFound), "{command:?}: {status:?}");
        }
        let hash = copy.hash(b"z");
        copy.execute(&Command::Del { key: b"z" }, hash, NOW);
        release(&mut copy);
        copy.audit().unwrap();
    }
    assert!(done > 1_200, "{done}");
}

/// Carries the next entry of the log out.
fn apply(copy: &mut Shard, command: &Command<'_>) -> Result<(), Status> {
    let mut operation = Vec::new();
    command.encode_into(0, &mut operation);
    let next = entry(copy.applied(0) + 1, &operation);
    copy.apply(&next.entry(), &Origin::WHOLE, NOW).map(drop).map_err(|_| Status::Malformed)
}

/// A record that says of itself what it is not would be taken for a tree, or for nothing.
#[test]
fn a_key_is_restored_only_as_what_a_record_may_be() {
    let mut copy = shard(100, 1 << 20, Eviction::None);
    follow(&mut copy, false);
    for kind in (0..=u8::MAX).map(Kind) {
        let (mut dump, mut operation) = (Vec::new(), Vec::new());
        Dumped::push(&mut dump, kind, 0, 0, b"value");
        let Some(dumped) = Dumped::parse(&dump) else { continue };
        let restore = Command::Restore { key: &[kind.0], dumped, replaces: true };
        restore.encode_into(0, &mut operation);
        let next = entry(copy.applied(0) + 1, &operation);
        let wholes = [Kind::HASH, Kind::LIST, Kind::SET, Kind::SORTED_SET].map(Kind::whole);
        let may_be = kind == Kind::STRING || wholes.contains(&kind);
        let applied = copy.apply(&next.entry(), &Origin::WHOLE, NOW);
        assert_eq!(applied.is_ok(), may_be, "{kind:?}");
    }
    copy.digest();
    copy.audit().unwrap();
}
