//! The reserve of an arena: apply mode takes it when nothing else is free, and only then; afterwards
//! the shard has at most its memory again, before it takes anything more.

use remora_arena::{NoJournal, Owner};
use remora_engine::{ApplyError, Eviction, Now, Origin, Shard, ShardOptions};
use remora_layout::limits::{EVICTION_SLACK_BYTES, LENT_TURN_BYTES};
use remora_log::{Log, LogKey, LogOptions};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

const MEMORY: usize = 2 << 20;
const RESERVE: usize = 256 << 10;
/// More entries than there is memory for.
const MANY: u64 = 2_000;
const VALUE: [u8; 4000] = [7; 4000];
const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn shard(reserve_bytes: usize, eviction: Eviction) -> Shard {
    let options =
        ShardOptions { reserve_bytes: reserve_bytes as u64, eviction, ..ShardOptions::default() };
    Shard::new(Owner::heap(MEMORY + reserve_bytes, NoJournal), options)
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn set(key: &[u8]) -> Command<'_> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Set { key, value: &VALUE, condition, expiry, get: false }
}

fn execute(shard: &mut Shard, key: &[u8], command: &Command<'_>) -> Status {
    let hash = shard.hash(key);
    shard.execute(command, hash, NOW).status
}

/// Applies entries with new keys, until the memory is full or so many are applied. The number of the
/// next one.
fn apply(shard: &mut Shard, (epoch, from): (u64, u64), most: u64) -> u64 {
    let mut log = Log::new(LogOptions::new(LogKey::new(1, 0), 0, epoch));
    (0..from).for_each(|_| _ = log.pass());
    for number in from..from + most {
        let mut operation = Vec::new();
        set(&key(number)).encode_into(0, &mut operation);
        log.append([&operation, &[], &[]]);
        let entry = log.entries().pop().expect("it was just appended");
        match shard.apply(&entry.entry(), &Origin::WHOLE, NOW) {
            Ok(_) => {}
            Err(ApplyError::Refused(Status::OutOfMemory)) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    from + most
}

/// Bytes that are taken, whatever for.
fn taken(shard: &Shard) -> u64 {
    let of = shard.stats().slots;
    of.total_bytes() - of.uncarved_bytes - of.reserve_bytes
}

fn promoted(eviction: Eviction) -> (Shard, u64) {
    let mut shard = shard(RESERVE, eviction);
    shard.begin_applying();
    let keys = apply(&mut shard, (1, 0), MANY);
    shard.audit().unwrap();
    shard.end_applying(2).unwrap();
    (shard, keys)
}

#[test]
fn a_shard_that_applies_takes_the_reserve_when_nothing_else_is_free() {
    let count = |reserve| {
        let mut shard = shard(reserve, Eviction::None);
        shard.begin_applying();
        let keys = apply(&mut shard, (1, 0), MANY);
        (shard, keys)
    };
    let (none, least) = count(0);
    assert_eq!(none.stats().slots.lent_bytes, 0);
    let (with, most) = count(RESERVE);
    let each = taken(&none) / least;
    assert!(most >= least + RESERVE as u64 / each, "{least} without, {most} with the reserve");
    assert_eq!(with.stats().slots.lent_bytes, RESERVE as u64);
    assert_eq!(with.memory_bytes(), MEMORY as u64);
    with.audit().unwrap();
    // Another one takes none as long as its memory suffices.
    let mut half = shard(RESERVE, Eviction::None);
    half.begin_applying();
    assert_eq!(apply(&mut half, (1, 0), least / 2), least / 2);
    assert_eq!(half.stats().slots.lent_bytes, 0);
    assert_eq!(half.stats().slots.reserve_bytes, RESERVE as u64);
}

#[test]
fn changes_of_its_own_never_take_the_reserve() {
    let mut with = shard(RESERVE, Eviction::None);
    let mut none = shard(0, Eviction::None);
    let mut number = 0;
    // Bounded by the memory.
    loop {
        let key = key(number);
        let both = [&mut with, &mut none].map(|shard| execute(shard, &key, &set(&key)));
        assert_eq!(both[0], both[1], "at key {number}");
        if both[0] == Status::OutOfMemory {
            break;
        }
        number += 1;
    }
    assert_eq!(with.stats().slots.lent_bytes, 0);
    with.audit().unwrap();
}

#[test]
fn a_promoted_shard_takes_no_page_until_it_has_no_more_than_its_memory() {
    let (mut shard, keys) = promoted(Eviction::None);
    let most = taken(&shard);
    assert!(most > MEMORY as u64);
    // Longer than a slot: it needs pages.
    let long = [9; 20_000];
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let new = Command::Set { key: b"new", value: &long, condition, expiry, get: false };
    assert_eq!(execute(&mut shard, b"new", &new), Status::OutOfMemory);
    let get = Command::Get { key: b"key-00001" };
    assert_eq!(execute(&mut shard, b"key-00001", &get), Status::Ok);
    let mut gone = 0;
    while execute(&mut shard, b"new", &new) == Status::OutOfMemory {
        assert!(taken(&shard) <= most, "nothing makes it more");
        let key = key(gone);
        assert_eq!(execute(&mut shard, &key, &Command::Del { key: &key }), Status::Ok);
        gone += 1;
    }
    assert!(taken(&shard) <= MEMORY as u64, "{} after {gone} of {keys}", taken(&shard));
    assert!(gone < keys / 3, "not much more than the reserve has to go: {gone} of {keys}");
    shard.audit().unwrap();
    // It may be a replica again, and has the reserve again.
    shard.begin_applying_at(0, (1_000, 2));
    assert!(apply(&mut shard, (2, 1_000), MANY) > 1_000);
    assert!(taken(&shard) > MEMORY as u64);
    shard.audit().unwrap();
}

#[test]
fn a_promoted_shard_that_evicts_gives_back_what_it_has_too_much_by_itself() {
    let (mut shard, keys) = promoted(Eviction::S3Fifo);
    assert!(taken(&shard) > MEMORY as u64);
    let mut ticks = 0;
    while taken(&shard) > MEMORY as u64 {
        assert!(shard.wants_ticks());
        let (before, evicted) = (taken(&shard), shard.stats().evicted);
        shard.tick(NOW);
        ticks += 1;
        assert!(taken(&shard) < before, "each tick gives something back");
        let most = (2 * LENT_TURN_BYTES + EVICTION_SLACK_BYTES) / VALUE.len() as u64;
        let evicted = shard.stats().evicted - evicted;
        assert!(evicted <= most, "a tick is bounded: {evicted} of {most}");
    }
    assert!(ticks > 1);
    assert!(shard.keys() > keys * 3 / 4, "not much more than the reserve goes");
    shard.audit().unwrap();
    let left = shard.stats().evicted;
    shard.tick(NOW);
    assert_eq!(shard.stats().evicted, left, "and then nothing more");
    assert_eq!(execute(&mut shard, b"new", &set(b"new")), Status::Ok);
}
