//! Apply mode: only entries change a copy, each once; a refused entry has changed nothing, and may
//! come again.

use crate::give::{How, KeyRef, give_some};
use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Applied, ApplyError, Eviction, LargeSet, Now, Origin, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::rect::Rect;
use remora_log::{KnownLog, Log, LogKey, LogOptions, OwnedEntry, Part, consistent_cut};
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, ObjectId, PutObject, TreeCommand};
use remora_protocol::{Command, Condition, Expiry, Items, LoadStep, Request};
use std::collections::BTreeMap;

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn shard(bytes: usize) -> Shard {
    let options = ShardOptions {
        hash_seed: 3,
        record_secret: 7,
        buckets: 2,
        eviction: Eviction::S3Fifo,
        ..ShardOptions::default()
    };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// An entry of its own making, as a log would give it.
fn entry(sequence: u64, epoch: u64, command: &Command<'_>) -> OwnedEntry {
    let mut log = Log::new(LogOptions::new(LogKey::new(1, 0), 0, epoch));
    while log.last_sequence() + 1 < sequence {
        log.pass();
    }
    let mut bytes = Vec::new();
    command.encode_into(0, &mut bytes);
    log.append([&bytes, &[], &[]]);
    log.entries().remove(0)
}

fn set<'a>(key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Command<'a> {
    Command::Set { key, value, condition: Condition::Always, expiry, get: false }
}

#[test]
fn a_copy_is_changed_by_entries_alone() {
    let mut copy = shard(4 << 20);
    let apply =
        |shard: &mut Shard, entry: &OwnedEntry| shard.apply(&entry.entry(), &Origin::WHOLE, START);
    let first = entry(1, 3, &set(b"key", b"value", Expiry::At(START.unix_ms + 10)));
    assert_eq!(apply(&mut copy, &first), Err(ApplyError::NotApplying));
    copy.begin_applying();
    assert_eq!(apply(&mut copy, &first), Ok(Applied::Done));
    assert_eq!(copy.log().last_sequence(), 1);
    let hash = copy.hash(b"key");
    let own = copy.execute(&set(b"key", b"mine", Expiry::Never), hash, START);
    assert_eq!(own.status, Status::ReadOnly);
    let large = LargeSet {
        key: b"key",
        hash,
        value_bytes: 10,
        condition: Condition::Always,
        expiry: Expiry::Never,
        get: false,
    };
    assert_eq!(copy.begin_upload(large, START).err(), Some(Status::ReadOnly));
    let get = Command::Get { key: b"key" };
    assert_eq!(copy.execute(&get, hash, START).value, Some(&b"value"[..]));
    // It has expired: no command sees it, and it is there until the log removes it.
    let later = Now { unix_ms: START.unix_ms + 10, ..START };
    assert_eq!(copy.execute(&get, hash, later).status, Status::NotFound);
    (0..9).for_each(|_| copy.tick(later));
    assert_eq!((copy.stats().keys, copy.log().last_sequence()), (1, 1));
    let append = entry(2, 3, &Command::Append { key: b"key", value: b"+" });
    let at = later;
    assert_eq!(copy.apply(&append.entry(), &Origin::WHOLE, at), Ok(Applied::Done));
    assert_eq!(copy.execute(&get, hash, START).value, Some(&b"value+"[..]));
    // Epochs only grow; an entry that is not a change is refused; so is an impossible one.
    let old = entry(3, 2, &Command::Del { key: b"key" });
    let refused = ApplyError::OldEpoch { before: 3, epoch: 2 };
    assert_eq!(apply(&mut copy, &old), Err(refused));
    assert_eq!(apply(&mut copy, &entry(3, 3, &get)), Err(ApplyError::Malformed));
    let wrong = entry(3, 3, &Command::Del { key: b"none" });
    assert_eq!(apply(&mut copy, &wrong), Err(ApplyError::Refused(Status::NotDone)));
    let full = vec![1; 5 << 20];
    let full = entry(3, 3, &set(b"full", &full[..60_000], Expiry::Never));
    assert_eq!(apply(&mut copy, &full), Ok(Applied::Done));
    assert_eq!(copy.applied(0), 3);
    // It continues by itself, after the entries that it has applied.
    assert_eq!(copy.end_applying(2), Err(ApplyError::OldEpoch { before: 3, epoch: 2 }));
    copy.end_applying(4).unwrap();
    assert_eq!(copy.execute(&get, hash, later).status, Status::NotFound);
    assert_eq!(copy.stats().expired, 1);
    let entries = copy.log().entries();
    assert_eq!((entries.len(), entries[0].sequence, entries[0].epoch), (1, 4, 4));
}

/// The entries of this log, from sequence 1 on.
fn all_entries(epoch: u64, commands: &[Command<'_>]) -> Vec<OwnedEntry> {
    (1..).zip(commands).map(|(sequence, command)| entry(sequence, epoch, command)).collect()
}

fn apply(shard: &mut Shard, entry: &OwnedEntry) -> Result<Applied, ApplyError> {
    shard.apply(&entry.entry(), &Origin::WHOLE, START)
}

/// A copy that took its own changes for a while, and one that began at a snapshot, know which
/// entries they have applied: APPEND and HDEL are executed once.
#[test]
fn what_was_applied_is_not_applied_again_when_apply_mode_begins_anew() {
    let mut list = Vec::new();
    ["one", "1", "two", "2"].iter().for_each(|item| Items::push(&mut list, item.as_bytes()));
    let pairs = HashCommand::Set { pairs: Items::parse(&list).unwrap() };
    let mut name = Vec::new();
    Items::push(&mut name, b"one");
    let remove = HashCommand::Remove { names: Items::parse(&name).unwrap() };
    let append = Command::Append { key: b"key", value: b"+" };
    let commands = [
        set(b"key", b"value", Expiry::Never),
        append,
        Command::Of { key: b"hash", request: pairs.request() },
        Command::Of { key: b"hash", request: remove.request() },
        append,
    ];
    let entries = all_entries(3, &commands);
    let mut copy = shard(4 << 20);
    copy.begin_applying();
    for entry in &entries[..4] {
        assert_eq!(apply(&mut copy, entry), Ok(Applied::Done));
    }
    let digest = copy.digest();
    copy.end_applying(4).unwrap();
    copy.begin_applying();
    for entry in &entries[..4] {
        assert_eq!(apply(&mut copy, entry), Ok(Applied::Before));
    }
    assert_eq!((copy.digest(), copy.applied(0)), (digest, 4));
    // The shard that wrote it had been replaced.
    let old = ApplyError::OldEpoch { before: 4, epoch: 3 };
    assert_eq!(apply(&mut copy, &entries[4]), Err(old));
    assert_eq!(apply(&mut copy, &entry(5, 4, &append)), Ok(Applied::Done));
    let hash = copy.hash(b"key");
    let get = Command::Get { key: b"key" };
    assert_eq!(copy.execute(&get, hash, START).value, Some(&b"value++"[..]));

    // The entries that a snapshot covers.
    let mut copy = shard(4 << 20);
    for command in &commands[..4] {
        let hash = copy.hash(command.key().unwrap());
        assert_eq!(copy.execute(command, hash, START).status, Status::Ok);
    }
    copy.begin_applying_at(0, (4, 3));
    assert_eq!((copy.digest(), copy.applied(0)), (digest, 4));
    for entry in &entries[..4] {
        assert_eq!(apply(&mut copy, entry), Ok(Applied::Before));
    }
    let old = ApplyError::OldEpoch { before: 3, epoch: 2 };
    assert_eq!(apply(&mut copy, &entry(5, 2, &append)), Err(old));
    assert_eq!(apply(&mut copy, &entries[4]), Ok(Applied::Done));
    // It never goes back.
    copy.begin_applying_at(0, (2, 1));
    assert_eq!((copy.applied(0), apply(&mut copy, &entries[4])), (5, Ok(Applied::Before)));
}

/// An entry of two shards is applied in both or in none.
#[test]
fn a_part_is_applied_once_the_cut_says_that_all_are_there() {
    let command = set(b"key", b"value", Expiry::Never);
    let mut bytes = Vec::new();
    command.encode_into(0, &mut bytes);
    let parts = [Part::new(0, 2), Part::new(1, 2)];
    let log = |shard: u32| {
        let mut log = Log::new(LogOptions::new(LogKey::new(1, shard), shard, 1));
        log.append([&bytes, &[], &[]]);
        log.append_part(&parts, [&bytes, &[], &[]]);
        log.append([&bytes, &[], &[]]);
        log.entries()
    };
    let known = |entries: &[OwnedEntry]| {
        let last = entries.last().map_or(0, |entry| entry.sequence);
        let shared = entries.iter().filter(|entry| !entry.entry().parts.is_empty());
        let shared = shared.map(|entry| (entry.sequence, entry.entry().parts.iter().collect()));
        KnownLog { covered: 0, last, shared: shared.collect() }
    };
    let entries = log(0);
    let cut_with = |other: &[OwnedEntry]| {
        consistent_cut(&BTreeMap::from([(0, known(&entries)), (1, known(other))]))[&0]
    };
    let mut copy = shard(4 << 20);
    copy.begin_applying();
    assert_eq!(apply(&mut copy, &entries[0]), Ok(Applied::Done));
    let digest = copy.digest();
    // Without a check for the other part; then with a check that finds it missing.
    let cut = cut_with(&log(1)[..1]);
    for cut in [0, cut] {
        let origin = Origin { cut, ..Origin::WHOLE };
        let torn = Err(ApplyError::Torn { sequence: 2, cut });
        assert_eq!(copy.apply(&entries[1].entry(), &origin, START), torn);
        let gap = Err(ApplyError::Gap { expected: 2, sequence: 3 });
        assert_eq!(copy.apply(&entries[2].entry(), &origin, START), gap);
        assert_eq!((copy.applied(0), copy.digest()), (1, digest));
    }
    assert_eq!(cut, 1);
    let origin = Origin { cut: cut_with(&log(1)), ..Origin::WHOLE };
    for entry in &entries[1..] {
        assert_eq!(copy.apply(&entry.entry(), &origin, START), Ok(Applied::Done));
    }
    assert_eq!(apply(&mut copy, &entries[1]), Ok(Applied::Before), "it is there already");
}

/// Makes a large object of one of the types at a key of its name.
fn make(shard: &mut Shard, key: &[u8]) {
    let mut ask = |request: Request<'_>| {
        let hash = shard.hash(key);
        assert_eq!(shard.execute(&Command::Of { key, request }, hash, START).number, 1);
    };
    for at in 0..600u64 {
        let name = format!("the name of part {at}");
        match key {
            b"hash" => {
                let mut list = Vec::new();
                Items::push(&mut list, name.as_bytes());
                Items::push(&mut list, &vec![at as u8; at as usize % 300]);
                ask(HashCommand::Set { pairs: Items::parse(&list).unwrap() }.request());
            }
            b"geo" => {
                let score = (at * 7_000_000_000) as f64;
                ask(scored::add(&scored::scored([(score, name.as_bytes())])).request());
            }
            _ => {
                let id = if at % 2 == 0 { ObjectId::from(&name[..]) } else { at.into() };
                let rect = Rect::point((at % 31) as f64, (at % 29) as f64).unwrap();
                let data = vec![at as u8; at as usize % 300];
                let fields = Fields::encode([(&b"kind"[..], &b"cafe"[..])]).unwrap();
                let fields = (at % 4 == 0).then(|| Fields::parse(&fields).unwrap());
                let expiry = match at % 3 {
                    0 => Expiry::At(START.unix_ms + 1_000 + at),
                    _ => Expiry::Keep,
                };
                let put =
                    PutObject { data: Some(&data), fields, expiry, ..PutObject::new(id, rect) };
                ask(TreeCommand::Put(put).checked().map(TreeCommand::request).unwrap());
            }
        }
    }
}

/// A copy with so little memory that it refuses each step of a load several times,
/// some of them in the middle of a piece.
#[test]
fn an_entry_that_found_no_room_is_applied_once_there_is_some() {
    let (mut refused_pieces, mut refused_enters) = (0, 0);
    for key in [&b"hash"[..], b"geo", b"tree"] {
        let mut source = shard(8 << 20);
        make(&mut source, key);
        let mut ask = |_, _, command: &Command<'_>| {
            let hash = source.hash(command.key().unwrap());
            let reply = source.execute(command, hash, START);
            (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
        };
        let place = |key| KeyRef { shard: 0, database: Database::ZERO, key };
        let rename = How { replaces: true, keeps: false };
        let given = give_some(&mut ask, place(key), place(b"to"), rename, usize::MAX);
        assert_eq!(given, (Status::Ok, 1));

        let mut copy = shard(2 << 20);
        copy.begin_applying();
        // Another log's keys take the free memory, the last of it in small pieces.
        let mut filled = 0;
        let mut fill = |copy: &mut Shard, command: &Command<'_>| {
            let origin = Origin { log: 1, ..Origin::WHOLE };
            let done = copy.apply(&entry(filled + 1, 1, command).entry(), &origin, START);
            filled += done.is_ok() as u64;
            done
        };
        let entries = source.log().entries();
        let is_load = |entry: &&OwnedEntry| {
            let (_, command, _) = Command::decode_within(entry.operation()).unwrap();
            matches!(command, Command::Load { .. })
        };
        let first = entries.iter().find(is_load).unwrap().sequence;
        for entry in &entries[..first as usize - 1] {
            assert_eq!(apply(&mut copy, entry), Ok(Applied::Done));
        }
        let name = |at: u64| format!("filler {at}").into_bytes();
        let mut fillers = 0;
        for length in [50_000, 3_000, 300, 20] {
            while fill(&mut copy, &set(&name(fillers), &vec![0; length], Expiry::Never)).is_ok() {
                fillers += 1;
            }
        }
        // The latest and smallest go first.
        let mut left = fillers;
        for entry in &entries[first as usize - 1..] {
            let (_, command, _) = Command::decode_within(entry.operation()).unwrap();
            loop {
                let before = (copy.stats().keys, copy.applied(0), copy.last_sequence());
                match apply(&mut copy, entry) {
                    Ok(done) => break assert_eq!(done, Applied::Done),
                    Err(error) => assert_eq!(error, ApplyError::Refused(Status::OutOfMemory)),
                }
                let after = (copy.stats().keys, copy.applied(0), copy.last_sequence());
                assert_eq!(before, after);
                if let Command::Load { step, .. } = command {
                    refused_pieces += matches!(step, LoadStep::Piece(_)) as u32;
                    refused_enters += matches!(step, LoadStep::Enter { .. }) as u32;
                }
                left -= 1;
                fill(&mut copy, &Command::Del { key: &name(left) }).unwrap();
            }
        }
        while left > 0 {
            left -= 1;
            fill(&mut copy, &Command::Del { key: &name(left) }).unwrap();
        }
        assert_eq!(copy.digest(), source.digest());
        while copy.wants_release() {
            copy.release_some(START);
        }
        copy.audit().unwrap();
    }
    assert!(refused_pieces > 20 && refused_enters > 0, "{refused_pieces} {refused_enters}");
}
