//! Snapshots of large objects of every type, which change between any two pieces of them; and what
//! a turn may write.

use crate::history::shard;
use crate::scored;
use remora_engine::{
    Applied, ApplyError, Digest, Eviction, Now, Origin, Shard, SnapshotTurn, split_operation, types,
};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    DUMP_PIECE_BYTES, DUMP_PIECE_PARTS, SNAPSHOT_BUFFER_BYTES, SNAPSHOT_HELD_BYTES,
    SNAPSHOT_OPERATION_BYTES, SNAPSHOT_PIECE_BYTES, SNAPSHOT_TURN_BYTES, SNAPSHOT_TURN_KEYS,
    SNAPSHOT_WAIT_S,
};
use remora_layout::packed::Field;
use remora_layout::rect::Rect;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Position, Shape};
use remora_protocol::hash::HashCommand;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::ordered::OrderedCommand;
use remora_protocol::set::SetCommand;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, When};
use remora_protocol::tree::{Fields, ObjectId, Objects, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{
    Command, Condition, Dumped, ExpireCondition, Expiry, Items, LoadStep, Pairs,
};
use remora_testing::Random;

pub const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
pub const KEY: &[u8] = b"large";

fn ask(shard: &mut Shard, command: &Command<'_>) -> (Status, i64) {
    let hash = shard.hash_of(Database::ZERO, command);
    let reply = shard.execute(command, hash, NOW);
    (reply.status, reply.number)
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let (condition, expiry, get) = (Condition::Always, Expiry::Never, false);
    Command::Set { key, value, condition, expiry, get }
}

/// One change of a hash: fields come, change and go.
fn change_hash(shard: &mut Shard, random: &mut Random, fields: u64) {
    let (mut list, mut names) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(40) {
        let name = format!("f{}", random.below(fields)).into_bytes();
        Items::push(&mut names, &name);
        Items::push(&mut list, &name);
        let (value, is_link) = (random.bytes_up_to(80), random.one_in(4));
        Items::push_field(&mut list, Field { value: &value, is_link });
    }
    let (pairs, names) = (Items::parse(&list).unwrap(), Items::parse(&names).unwrap());
    let command = match random.below(3) {
        0 => HashCommand::Remove { names },
        _ => HashCommand::Set { pairs },
    };
    ask(shard, &Command::Of { key: KEY, request: command.request() });
}

/// One change of a set: members come and go, and bins split; some are too long for a bin.
fn change_set(shard: &mut Shard, random: &mut Random, members: u64) {
    let mut list = Vec::new();
    for _ in 0..1 + random.below(40) {
        let number = random.below(members);
        let repeated = if number.is_multiple_of(17) { 30 } else { 1 };
        Items::push(&mut list, format!("m{number}").repeat(repeated).as_bytes());
    }
    let members = Items::parse(&list).unwrap();
    let command = match random.below(4) {
        0 => SetCommand::Remove { members },
        1 if random.one_in(4) => SetCommand::Pop { count: random.below(20) },
        _ => SetCommand::Add { members },
    };
    ask(shard, &Command::Of { key: KEY, request: command.request() });
}

fn change_ordered(shard: &mut Shard, random: &mut Random, keys: u64) {
    for _ in 0..1 + random.below(20) {
        let number = random.below(keys);
        let key = format!("{} k{number}", number % 7);
        // Some lie in records.
        let most = if random.one_in(5) { 700 } else { 50 };
        let value = random.bytes_up_to(most);
        let command = match random.below(4) {
            0 => OrderedCommand::Delete { key: key.as_bytes() },
            _ => {
                let value = Field { value: &value, is_link: number.is_multiple_of(5) };
                OrderedCommand::Set { key: key.as_bytes(), value }
            }
        };
        ask(shard, &Command::Of { key: KEY, request: command.request() });
    }
}

fn change_documents(shard: &mut Shard, random: &mut Random, documents: u64) {
    let mut list = Vec::new();
    for _ in 0..1 + random.below(20) {
        let text = "t".repeat(random.below(60) as usize);
        let (id, a) = (random.below(documents) as i64, random.below(30));
        let document = bson::doc! { "_id": id, "a": a, "b": [a, text] };
        Items::push(&mut list, &document.to_vec().unwrap());
    }
    let documents = Items::parse(&list).unwrap();
    let (field, above) = (random.pick(&["a", "b"]), random.below(30));
    let spec = bson::doc! { "spec": { "key": { field: 1, "_id": -1 }, "name": field } };
    let removal = bson::doc! { "q": { "a": above }, "multi": true };
    let update = bson::doc! { "q": { "a": above }, "u": { "$set": { "b": above } }, "multi": true };
    let bytes = match random.below(10) {
        0 => spec.to_vec(),
        1 => removal.to_vec(),
        _ => update.to_vec(),
    };
    let bytes = bytes.unwrap();
    let command = match random.below(12) {
        _ if bytes == spec.to_vec().unwrap() => CollectionCommand::CreateIndex { request: &bytes },
        0 => CollectionCommand::DropIndex { name: field.as_bytes() },
        1..=3 => CollectionCommand::Write { request: &bytes },
        4 => CollectionCommand::Put { documents },
        _ => CollectionCommand::Insert { documents, ordered: false },
    };
    ask(shard, &Command::Of { key: KEY, request: command.request() });
}

/// One change of a sorted set: members come, get other scores and go; some are too long for a bin, or
/// for a key of the tree. Searches let it get places, which no snapshot has.
fn change_sorted(shard: &mut Shard, random: &mut Random, members: u64) {
    let mut list = Vec::new();
    for _ in 0..1 + random.below(20) {
        let number = random.below(members);
        let score = match random.below(4) {
            0 => random.below(50) as f64 - 25.0,
            1 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY][number as usize % 4],
            _ => {
                let (east, north) = (random.below(3600) as f64, random.below(1600) as f64);
                Position::new(east / 10.0 - 180.0, north / 10.0 - 80.0).unwrap().score()
            }
        };
        let repeated = if number.is_multiple_of(17) { 60 } else { 1 };
        Scored::push(&mut list, score, format!("m{number}").repeat(repeated).as_bytes());
    }
    let names = scored::names(&list);
    let (when, member) = (When::default(), names.get(4..).unwrap_or_default());
    let (start, from_greatest) = (random.below(members) as i64, random.one_in(2));
    let range = SortedRange::Index { start, stop: start + 9 };
    let command = match random.below(16) {
        0..=3 => scored::remove(&names),
        4 => SortedCommand::Increment { when, by: 0.5, member },
        5 if random.one_in(4) => SortedCommand::Pop { count: random.below(20), from_greatest },
        6 if random.one_in(4) => SortedCommand::RemoveRange { range },
        _ => scored::add(&list),
    };
    ask(shard, &Command::Of { key: KEY, request: command.request() });
    if random.one_in(50) {
        let mut query = Vec::new();
        let centre = Centre::At(Position::new(0.0, 0.0).unwrap());
        let search = GeoSearch { centre, shape: Shape::Circle { radius: 9.0 }, enough: 1 };
        search.write(&mut query);
        let query = GeoQuery::parse(&query).unwrap();
        let request = SortedCommand::Search { query }.request();
        ask(shard, &Command::Of { key: KEY, request });
        shard.release_some(NOW);
    }
}

fn change_tree(shard: &mut Shard, random: &mut Random, objects: u64) {
    for _ in 0..1 + random.below(10) {
        let id = random.below(objects);
        let name = format!("n{id}");
        let id = if id.is_multiple_of(4) { ObjectId::from(&name[..]) } else { id.into() };
        let [x_min, x_max, y_min, y_max] = random.rectangle(1_000, 9);
        let rect = Rect::new(x_min, x_max, y_min, y_max).unwrap();
        let expiry = match random.below(12) {
            0 => Expiry::At(NOW.unix_ms + random.below(9_000) + 1),
            1 => Expiry::Never,
            _ => Expiry::Keep,
        };
        let data = random.bytes_up_to(60);
        let field = [b'a' + random.below(3) as u8];
        let fields = Fields::encode([(&field[..], &data[..])]).unwrap();
        let fields = Fields::parse(&fields).unwrap();
        let bare = PutObject { expiry, ..PutObject::new(id, rect) };
        let command = match random.below(9) {
            0 | 1 => TreeCommand::Remove { id },
            2 => TreeCommand::SetFields { id, fields },
            3 => TreeCommand::Put(PutObject { fields: Some(fields), ..bare }),
            4..=6 => TreeCommand::Put(bare),
            _ => TreeCommand::Put(PutObject { data: Some(&data), ..bare }),
        };
        let request = command.checked().unwrap().request();
        ask(shard, &Command::Of { key: KEY, request });
    }
}

fn change_string(shard: &mut Shard, random: &mut Random, bytes: u64) {
    let value = random.bytes_up_to(3_000);
    let offset = random.below(bytes);
    let key = KEY;
    let long = vec![7; bytes as usize];
    let command = match random.below(24) {
        0 => set(key, &value),
        1 | 2 => set(key, &long),
        3 => Command::Del { key },
        4..=9 => Command::Append { key, value: &value },
        10..=14 => Command::SetBit { key, offset: 8 * offset as u32, bit: random.one_in(2) },
        15 => Command::Expire { key, at_ms: NOW.unix_ms + 9, condition: ExpireCondition::Always },
        _ => Command::SetRange { key, offset, value: &value },
    };
    ask(shard, &command);
}

fn change_list(shard: &mut Shard, random: &mut Random, elements: u64) {
    for _ in 0..1 + random.below(10) {
        let value = match random.below(30) {
            0 => random.bytes_up_to(9_000),
            _ => format!("element {}", random.below(300)).into_bytes(),
        };
        // A list that is stored is short again: seldom, or none would be long.
        let which = if random.below(5_000) == 0 { 16 } else { random.below(16) };
        let mut list = Vec::new();
        // It stays at about so many elements.
        let length = of_list(shard, ListCommand::Length).1;
        let count = if (length as u64) < elements { 1 + random.below(8) } else { 0 };
        let element = Field { value: &value, is_link: which <= 2 };
        (0..count.max(1)).for_each(|_| Items::push_field(&mut list, element));
        let items = Items::parse(&list).unwrap();
        let side = if random.one_in(2) { Side::Left } else { Side::Right };
        let index = random.below(elements) as i64 - elements as i64 / 2;
        let command = match which {
            16 => ListCommand::Store { items },
            0..=5 => ListCommand::Push { side, if_there: false, items },
            6..=8 => ListCommand::Pop { side, count: 1 + random.below(4), fits_frame: false },
            9 | 10 => ListCommand::SetAt { index, value: &value },
            11 | 12 => {
                let (_, _, pivot) = of_list(shard, ListCommand::Index { index });
                list.clear();
                Items::push(&mut list, pivot.as_deref().unwrap_or(b"nowhere"));
                Items::push(&mut list, &value);
                let pivot_and_value = Items::parse(&list).unwrap();
                ListCommand::Insert { after: random.one_in(2), pivot_and_value }
            }
            13 | 14 => ListCommand::Remove { count: random.below(5) as i64 - 2, value: &value },
            _ => {
                let (start, stop) = (random.below(4) as i64, -1 - random.below(4) as i64);
                ListCommand::Trim { start, stop }
            }
        };
        of_list(shard, command);
    }
}

fn of_list(shard: &mut Shard, command: ListCommand<'_>) -> (Status, i64, Option<Vec<u8>>) {
    let command = Command::Of { key: KEY, request: command.request() };
    let hash = shard.hash_of(Database::ZERO, &command);
    let reply = shard.execute(&command, hash, NOW);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

/// The change of an object of this type. A new type needs one.
pub fn change_of(kind: Kind) -> fn(&mut Shard, &mut Random, u64) {
    match kind {
        Kind::STRING => change_string,
        Kind::HASH => change_hash,
        Kind::LIST => change_list,
        Kind::SET => change_set,
        Kind::ORDERED => change_ordered,
        Kind::COLLECTION => change_documents,
        Kind::SORTED_SET => change_sorted,
        Kind::RTREE => change_tree,
        other => panic!("no test of a snapshot of {other:?}"),
    }
}

/// Splits the operations off, counts them, and gives those that are pieces.
fn operations(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut operations = Vec::new();
    while let Some((operation, rest)) = split_operation(stream).unwrap() {
        operations.push(operation);
        stream = rest;
    }
    assert!(stream.is_empty());
    operations
}

fn is_piece(operation: &[u8]) -> bool {
    let command = Command::decode_within(operation).unwrap().1;
    match command {
        Command::Load { step, .. } => matches!(step, LoadStep::Fill(_)),
        Command::SetRange { value, .. } => value.len() == SNAPSHOT_PIECE_BYTES,
        _ => false,
    }
}

/// What loads the snapshot of one shard.
fn loaded(stream: &[u8]) -> Shard {
    let mut copy = shard(9, 64 << 20, Eviction::None);
    copy.begin_applying();
    for operation in operations(stream) {
        let done = copy.load(operation, &Origin::WHOLE, NOW);
        let command = Command::decode_within(operation).unwrap().1;
        assert_eq!(done, Ok(Applied::Done), "{command:?}");
    }
    copy
}

fn audit(shard: &mut Shard) {
    while shard.wants_release() {
        shard.release_some(Now { since_start_s: 1 << 30, ..NOW });
    }
    shard.audit().unwrap();
}

/// Between two pieces of an object it changes in every way: the snapshot has it as it is at the
/// end, and ends, although the changes go on.
#[test]
fn a_large_object_of_any_type_may_change_between_its_pieces() {
    for kind in [vec![Kind::STRING], types::kinds()].concat() {
        let change = change_of(kind);
        let mut all_pieces = 0;
        for seed in 1..=12 {
            let mut random = Random::new(seed);
            let mut source = shard(1, 64 << 20, Eviction::None);
            let size = if kind == Kind::STRING { 1_500_000 } else { 4_000 };
            // In some it grows all the time; in others it is of its size at the beginning.
            let first = if seed % 3 == 0 { size / 20 } else { size };
            (0..600).for_each(|_| change(&mut source, &mut random, first));
            if kind == Kind::STRING {
                ask(&mut source, &set(KEY, &vec![9; first as usize]));
            }
            source.begin_snapshot().unwrap();
            let (mut stream, mut turns) = (Vec::new(), 0);
            let (sequence, digest) = loop {
                turns += 1;
                assert!(turns < 3_000, "{kind:?}: it does not end");
                match source.short_snapshot_turn(1, NOW) {
                    SnapshotTurn::More | SnapshotTurn::Full => {}
                    SnapshotTurn::Ended { sequence } => break (sequence, source.digest()),
                    other => panic!("{other:?}"),
                }
                source.take_snapshot(&mut stream);
                (0..random.below(6)).for_each(|_| change(&mut source, &mut random, size));
            };
            source.take_snapshot(&mut stream);
            assert_eq!(sequence, source.last_sequence());
            let pieces = operations(&stream).into_iter().filter(|piece| is_piece(piece)).count();
            all_pieces += pieces;
            let mut copy = loaded(&stream);
            assert_eq!(copy.digest(), digest, "{kind:?}, seed {seed}");
            audit(&mut copy);
            audit(&mut source);
        }
        assert!(all_pieces > 80, "{kind:?}: {all_pieces} pieces");
    }
}

/// Takes a snapshot to its end, while nothing else happens.
fn finish(source: &mut Shard, stream: &mut Vec<u8>) {
    loop {
        let turn = source.snapshot_turn(NOW);
        source.take_snapshot(stream);
        match turn {
            SnapshotTurn::More | SnapshotTurn::Full => {}
            SnapshotTurn::Ended { .. } => return,
            other => panic!("{other:?}"),
        }
    }
}

fn stage(shard: &mut Shard, load: u64, first: bool, ids: std::ops::Range<u64>) -> Status {
    let mut list = Vec::new();
    ids.for_each(|id| Objects::push(&mut list, id, &Rect::point(id as f64, 1.0).unwrap()));
    let objects = Objects::parse(&list).unwrap();
    let request = TreeCommand::Stage { load, first, objects }.checked().unwrap().request();
    ask(shard, &Command::Of { key: KEY, request }).0
}

fn tree(shard: &mut Shard, command: &TreeCommand<'_>) -> Status {
    let request = command.checked().unwrap().request();
    ask(shard, &Command::Of { key: KEY, request }).0
}

/// A turn writes a bounded number of keys, of parts and of bytes, whatever the shard holds.
#[test]
fn a_turn_writes_a_bounded_part() {
    let mut source = shard(1, 256 << 20, Eviction::None);
    for at in 0..30_000u64 {
        ask(&mut source, &set(&at.to_le_bytes(), &vec![1; at as usize % 60]));
    }
    for at in 0..400u64 {
        // Among them strings that go whole, and some in pieces.
        let bytes = SNAPSHOT_PIECE_BYTES - 200 + at as usize;
        ask(&mut source, &set(&[b"long", &at.to_le_bytes()[..]].concat(), &vec![2; bytes]));
    }
    ask(&mut source, &set(b"longest", &vec![3; 5 << 20]));
    let mut random = Random::new(3);
    let change = |shard: &mut Shard, random: &mut Random, key: usize| {
        [change_hash, change_sorted, change_tree, change_set][key](shard, random, 9_000);
    };
    for key in 0..4 {
        (0..900).for_each(|_| change(&mut source, &mut random, key));
        let kept = [&b"kept"[..], &[key as u8]].concat();
        let mut ask = |_: usize, _: Database, command: &Command<'_>| {
            let hash = source.hash_of(Database::ZERO, command);
            let reply = source.execute(command, hash, NOW);
            (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
        };
        let place = |key| crate::give::KeyRef { shard: 0, database: Database::ZERO, key };
        let how = crate::give::How { replaces: true, keeps: false };
        let given = crate::give::give_some(&mut ask, place(KEY), place(&kept), how, usize::MAX);
        assert_eq!(given, (Status::Ok, 1));
    }
    source.begin_snapshot().unwrap();
    let (mut whole, mut turns, mut most_keys, mut most_parts) = (Vec::new(), 0, 0, 0);
    loop {
        let mut stream = Vec::new();
        let turn = source.snapshot_turn(NOW);
        source.take_snapshot(&mut stream);
        turns += 1;
        let (mut keys, mut parts) = (0, 0);
        for operation in operations(&stream) {
            match Command::decode_within(operation).unwrap().1 {
                Command::Load { key, step: LoadStep::Fill(piece), .. } => match key {
                    b"kept\0" => parts += Items::parse(piece).unwrap().iter().count() / 2,
                    b"kept\x03" => parts += Items::parse(piece).unwrap().iter().count(),
                    b"kept\x01" => parts += Scored::parse(piece).unwrap().iter().count(),
                    _ => {
                        let mut rest = piece;
                        while !rest.is_empty() {
                            rest = PutObject::split(rest).unwrap().1;
                            parts += 1;
                        }
                    }
                },
                _ => keys += 1,
            }
        }
        most_keys = most_keys.max(keys);
        most_parts = most_parts.max(parts);
        // The last bucket, or the last piece, may exceed it.
        let most_bytes = SNAPSHOT_TURN_BYTES + 16 * SNAPSHOT_PIECE_BYTES + DUMP_PIECE_BYTES;
        assert!(stream.len() <= most_bytes, "{} bytes", stream.len());
        assert!(keys + parts <= SNAPSHOT_TURN_KEYS + DUMP_PIECE_PARTS + 64, "{keys} {parts}");
        whole.extend(stream);
        if let SnapshotTurn::Ended { .. } = turn {
            break;
        }
        assert_eq!(turn, SnapshotTurn::More);
    }
    assert!(turns > 200 && most_keys > 150 && most_parts > DUMP_PIECE_PARTS, "{turns}");
    assert_eq!(loaded(&whole).digest(), source.digest());
}

/// Output that is not taken is bounded: keys wait, changes do not, and the snapshot is given up at
/// last. Nothing else is harmed, and another one may begin.
#[test]
fn a_snapshot_that_nobody_takes_is_given_up() {
    let mut source = shard(1, 64 << 20, Eviction::None);
    for at in 0..40_000u64 {
        ask(&mut source, &set(&at.to_le_bytes(), &[1; 60]));
    }
    source.begin_snapshot().unwrap();
    let full = (0..).find(|_| source.snapshot_turn(NOW) == SnapshotTurn::Full).unwrap();
    assert!(full < 1_000);
    assert_eq!(source.snapshot_turn(NOW), SnapshotTurn::Full);
    // Changes of passed keys are written all the same.
    let long = vec![5; 1 << 20];
    let mut given_up = None;
    'changes: for round in 0..40 {
        for at in 0..100u64 {
            ask(&mut source, &set(&at.to_le_bytes(), &long[..(1 << 19) - round]));
            if source.snapshot_turn(NOW) == SnapshotTurn::GivenUp {
                given_up = Some(100 * round as u64 + at);
                break 'changes;
            }
        }
    }
    // About half of the keys are passed.
    let forwarded = given_up.unwrap() << 19;
    assert!((SNAPSHOT_HELD_BYTES as u64..6 * SNAPSHOT_HELD_BYTES as u64).contains(&forwarded));
    let mut stream = Vec::new();
    source.take_snapshot(&mut stream);
    assert!(stream.is_empty() && source.snapshot_turn(NOW) == SnapshotTurn::GivenUp);
    source.begin_snapshot().unwrap();
    source.take_snapshot(&mut stream);
    source.abandon_snapshot();
    assert_eq!(source.snapshot_turn(NOW), SnapshotTurn::GivenUp);
    source.begin_snapshot().unwrap();
    finish(&mut source, &mut stream);
    let mut copy = shard(9, 128 << 20, Eviction::None);
    copy.begin_applying();
    operations(&stream).iter().for_each(|operation| {
        copy.load(operation, &Origin::WHOLE, NOW).unwrap();
    });
    assert_eq!(copy.digest(), source.digest());
    const { assert!(SNAPSHOT_BUFFER_BYTES < SNAPSHOT_HELD_BYTES) };
}

/// A piece of an object ends behind the part that makes it long enough.
#[test]
fn fields_of_many_bytes_go_one_by_one() {
    let mut source = shard(1, 256 << 20, Eviction::None);
    for at in 0..40u32 {
        let mut list = Vec::new();
        Items::push(&mut list, &at.to_le_bytes());
        Items::push(&mut list, &vec![at as u8; 3 << 20]);
        let request = HashCommand::Set { pairs: Items::parse(&list).unwrap() }.request();
        assert_eq!(ask(&mut source, &Command::Of { key: KEY, request }).1, 1);
    }
    source.begin_snapshot().unwrap();
    let mut stream = Vec::new();
    finish(&mut source, &mut stream);
    let longest = operations(&stream).into_iter().map(<[u8]>::len).max();
    assert!(longest.is_some_and(|bytes| bytes < (3 << 20) + 2 * DUMP_PIECE_BYTES), "{longest:?}");
    let mut copy = shard(9, 256 << 20, Eviction::None);
    copy.begin_applying();
    for operation in operations(&stream) {
        assert_eq!(copy.load(operation, &Origin::WHOLE, NOW), Ok(Applied::Done));
    }
    assert_eq!(copy.digest(), source.digest());
}

/// A tree whose objects are arriving is left for later; a snapshot that could only wait is given
/// up.
#[test]
fn a_snapshot_waits_for_what_began_before_it() {
    let settings = TreeCommand::Create(TreeSettings::default());
    for is_built in [true, false] {
        let mut source = shard(1, 64 << 20, Eviction::None);
        ask(&mut source, &set(b"other", b"value"));
        tree(&mut source, &settings);
        assert_eq!(stage(&mut source, 7, true, 0..500), Status::Ok);
        source.begin_snapshot().unwrap();
        let mut stream = Vec::new();
        assert_eq!(source.snapshot_turn(NOW), SnapshotTurn::Waits);
        stage(&mut source, 7, false, 500..900);
        let later = |seconds| Now { since_start_s: NOW.since_start_s + seconds, ..NOW };
        assert_eq!(source.snapshot_turn(later(SNAPSHOT_WAIT_S)), SnapshotTurn::Waits);
        source.take_snapshot(&mut stream);
        if !is_built {
            assert_eq!(source.snapshot_turn(later(SNAPSHOT_WAIT_S + 1)), SnapshotTurn::GivenUp);
            continue;
        }
        while tree(&mut source, &TreeCommand::Build { load: 7 }) == Status::InPieces {
            assert_eq!(source.snapshot_turn(NOW), SnapshotTurn::Waits);
        }
        // One that begins now is in it from its beginning on.
        finish(&mut source, &mut stream);
        assert_eq!(loaded(&stream).digest(), source.digest());
    }
}

/// Objects that arrive for a tree that is written are written, too: the tree is built by the
/// entries of the log behind the snapshot.
#[test]
fn a_stage_that_begins_after_its_tree_is_written_is_in_the_snapshot() {
    let mut at_turns = [0; 2];
    for seed in 0..40u64 {
        let mut source = shard(1, 64 << 20, Eviction::None);
        tree(&mut source, &TreeCommand::Create(TreeSettings::default()));
        (0..3_000u64).for_each(|at| {
            ask(&mut source, &set(&at.to_le_bytes(), b"value"));
        });
        source.begin_snapshot().unwrap();
        let mut stream = Vec::new();
        for _ in 0..1 + 2 * seed {
            assert_eq!(source.short_snapshot_turn(40, NOW), SnapshotTurn::More);
        }
        assert_eq!(stage(&mut source, 9, true, 0..90), Status::Ok);
        let turn = loop {
            match source.short_snapshot_turn(40, NOW) {
                SnapshotTurn::More => {}
                turn => break turn,
            }
        };
        at_turns[usize::from(turn == SnapshotTurn::Waits)] += 1;
        if turn == SnapshotTurn::Waits {
            // The sweep came to the tree later.
            continue;
        }
        source.take_snapshot(&mut stream);
        let mut copy = loaded(&stream);
        assert_eq!(copy.digest(), source.digest());
        let sequence = source.last_sequence();
        stage(&mut source, 9, false, 90..200);
        while tree(&mut source, &TreeCommand::Build { load: 9 }) == Status::InPieces {}
        copy.begin_applying_at(0, (sequence, source.log().epoch()));
        for entry in source.log().entries().iter().filter(|entry| entry.sequence > sequence) {
            copy.apply(&entry.entry(), &Origin::WHOLE, NOW).unwrap();
        }
        assert_eq!(copy.digest(), source.digest());
        assert_eq!(source.stats().tree_objects, 200);
        audit(&mut copy);
    }
    assert!(at_turns.iter().all(|&times| times > 0), "{at_turns:?}");
}

/// A change of many keys is written for the keys that the sweep has passed, and for no other: a key
/// that is removed before the sweep comes to it does not come back.
#[test]
fn of_a_change_of_many_keys_the_passed_ones_are_written() {
    let mut source = shard(1, 16 << 20, Eviction::None);
    (0..2_000u64).for_each(|at| {
        ask(&mut source, &set(&at.to_le_bytes(), b"old"));
    });
    source.begin_snapshot().unwrap();
    (0..40).for_each(|_| assert_eq!(source.short_snapshot_turn(9, NOW), SnapshotTurn::More));
    let mut list = Vec::new();
    (1_000..3_000u64).for_each(|at| Pairs::push(&mut list, &at.to_le_bytes(), b"new"));
    ask(&mut source, &Command::MultiSet { pairs: Pairs::parse(&list).unwrap() });
    (0..3_000u64).step_by(3).for_each(|at| {
        ask(&mut source, &Command::Del { key: &at.to_le_bytes() });
    });
    let mut stream = Vec::new();
    finish(&mut source, &mut stream);
    let pairs =
        operations(&stream).into_iter().find_map(|operation| {
            match Command::decode_within(operation).unwrap().1 {
                Command::MultiSet { pairs } => Some(pairs.iter().count()),
                _ => None,
            }
        });
    assert!(pairs.is_some_and(|pairs| (100..1_900).contains(&pairs)), "{pairs:?}");
    assert_eq!(loaded(&stream).digest(), source.digest());
}

/// Lengths that make no sense end the stream; a stream that ends too early gives what is whole.
#[test]
fn a_stream_is_split_at_lengths_that_make_sense() {
    let mut source = shard(1, 16 << 20, Eviction::None);
    (0..50u64).for_each(|at| {
        ask(&mut source, &set(&at.to_le_bytes(), b"value"));
    });
    source.begin_snapshot().unwrap();
    assert_eq!(source.begin_snapshot(), Err(Status::TryAgain));
    let mut stream = Vec::new();
    finish(&mut source, &mut stream);
    assert_eq!(operations(&stream).len(), 50);
    for cut in 0..stream.len() {
        let mut rest = &stream[..cut];
        while let Some((operation, behind)) = split_operation(rest).unwrap() {
            assert!(Command::decode_within(operation).is_ok());
            rest = behind;
        }
        assert!(rest.len() < 64);
    }
    for bytes in [0u32, 23, SNAPSHOT_OPERATION_BYTES as u32 + 1, u32::MAX] {
        let damaged = [&bytes.to_le_bytes()[..], &[0; 64]].concat();
        let error = split_operation(&damaged).unwrap_err();
        assert_eq!(error.bytes, bytes as usize);
    }
    assert_eq!(split_operation(&[]), Ok(None));
}

/// A snapshot is loaded in apply mode only, its steps occur in no log and in no request, and a
/// shard that applies takes no snapshot.
#[test]
fn steps_of_a_snapshot_are_for_loading_alone() {
    let mut source = shard(1, 16 << 20, Eviction::None);
    change_hash(&mut source, &mut Random::new(1), 9_000);
    (0..30).for_each(|at| change_hash(&mut source, &mut Random::new(at), 9_000));
    source.begin_snapshot().unwrap();
    let mut stream = Vec::new();
    finish(&mut source, &mut stream);
    let mut copy = shard(9, 16 << 20, Eviction::None);
    for operation in operations(&stream) {
        let command = Command::decode_within(operation).unwrap().1;
        assert!(!command.is_for_rings());
        assert_eq!(copy.load(operation, &Origin::WHOLE, NOW), Err(ApplyError::NotApplying));
        assert_eq!(ask(&mut copy, &command).0, Status::Malformed);
    }
    source.begin_snapshot().unwrap();
    source.begin_applying();
    assert_eq!(source.snapshot_turn(NOW), SnapshotTurn::GivenUp, "it was given up");
    assert_eq!(source.begin_snapshot(), Err(Status::ReadOnly));
    copy.begin_applying();
    let operation = operations(&stream)[0];
    let key = remora_log::LogKey::new(1, 0);
    let mut log = remora_log::Log::new(remora_log::LogOptions::new(key, 0, 1));
    log.append([operation, &[], &[]]);
    let entry = &log.entries()[0];
    assert_eq!(copy.apply(&entry.entry(), &Origin::WHOLE, NOW), Err(ApplyError::Malformed));
    let mut get = Vec::new();
    Command::Get { key: KEY }.encode_into(0, &mut get);
    assert_eq!(copy.load(&get, &Origin::WHOLE, NOW), Err(ApplyError::Malformed));
    assert_eq!(copy.load(b"no command", &Origin::WHOLE, NOW), Err(ApplyError::Malformed));
    // A piece of an object that is not being filled.
    let mut fill = Vec::new();
    let step = LoadStep::Fill(b"piece");
    Command::Load { key: KEY, load: 0, step }.encode_into(0, &mut fill);
    let refused = Err(ApplyError::Refused(Status::NotFound));
    assert_eq!(copy.load(&fill, &Origin::WHOLE, NOW), refused);
}

/// An object goes to another key, as by RENAME and COPY, and a snapshot begins before any step of
/// that, or between two: the other key is written as what it is at the end.
#[test]
fn a_key_may_get_an_object_while_a_snapshot_is_under_way() {
    let mut waited = 0;
    for (kind, change) in types::kinds().into_iter().map(|kind| (kind, change_of(kind))) {
        for seed in 0..60u64 {
            let mut random = Random::new(seed);
            let mut source = shard(1, 64 << 20, Eviction::None);
            (0..200u64).for_each(|at| {
                ask(&mut source, &set(&at.to_le_bytes(), b"value"));
            });
            (0..120).for_each(|_| change(&mut source, &mut random, 1_000));
            // Another object is there, or a string, or nothing.
            let to = format!("to {seed}").into_bytes();
            if seed % 3 == 0 {
                ask(&mut source, &set(&to, b"a string"));
            }
            let (mut stream, mut ended, mut steps) = (Vec::new(), None, 0);
            let begins_at = seed / 3 % 8;
            let mut turn = |source: &mut Shard, stream: &mut Vec<u8>| {
                let turn = source.short_snapshot_turn(1 + random.below(60) as usize, NOW);
                source.take_snapshot(stream);
                waited += u64::from(turn == SnapshotTurn::Waits);
                match turn {
                    SnapshotTurn::Ended { sequence } => ended = Some((sequence, source.digest())),
                    SnapshotTurn::GivenUp => panic!("it was given up"),
                    _ => {}
                }
                ended.is_some()
            };
            let mut has_ended = false;
            let mut ask_step = |_: usize, _: Database, command: &Command<'_>| {
                let hash = source.hash_of(Database::ZERO, command);
                let reply = source.execute(command, hash, NOW);
                let answer = (reply.status, reply.number, reply.value.map(<[u8]>::to_vec));
                if steps == begins_at {
                    source.begin_snapshot().unwrap();
                }
                let enters = matches!(command, Command::Load { step: LoadStep::Enter { .. }, .. });
                if enters && seed % 5 == 3 {
                    // It goes before the snapshot's next turn.
                    assert_eq!(ask(&mut source, &Command::Del { key: &to }).1, 1);
                }
                let turns = if seed % 2 == 0 { 3 } else { 40 };
                for _ in 0..turns {
                    has_ended = has_ended || steps >= begins_at && turn(&mut source, &mut stream);
                }
                steps += 1;
                answer
            };
            let place = |key| crate::give::KeyRef { shard: 0, database: Database::ZERO, key };
            let how = crate::give::How { replaces: true, keeps: seed % 4 < 2 };
            let (from, to) = (place(KEY), place(&to[..]));
            let most = if seed % 10 == 9 { 1 } else { usize::MAX };
            crate::give::give_some(&mut ask_step, from, to, how, most);
            if most == 1 {
                // The load goes when it was not continued for long.
                let at = |since_start_s| Now { since_start_s, ..NOW };
                (0..30).for_each(|at_s| source.tick(at(NOW.since_start_s + at_s)));
            }
            if steps <= begins_at {
                source.begin_snapshot().unwrap();
            }
            // Bounded: nothing is under way any more.
            while !has_ended && !turn(&mut source, &mut stream) {}
            let (sequence, digest) = ended.unwrap();
            let mut copy = loaded(&stream);
            assert_eq!(copy.digest(), digest, "{kind:?}, seed {seed}");
            copy.begin_applying_at(0, (sequence, source.log().epoch()));
            for entry in source.log().entries().iter().filter(|entry| entry.sequence > sequence) {
                let applied = copy.apply(&entry.entry(), &Origin::WHOLE, NOW);
                assert_eq!(applied, Ok(Applied::Done), "{kind:?}, seed {seed}");
            }
            assert_eq!(copy.digest(), source.digest(), "{kind:?}, seed {seed}");
        }
    }
    assert!(waited > 20, "{waited}");
}

/// All parts of an object that are written go before the others are: what loads it keeps the key,
/// with its expiry.
#[test]
fn an_object_that_is_being_filled_may_be_empty_for_a_moment() {
    for kind in [Kind::HASH, Kind::SORTED_SET, Kind::SET] {
        let mut source = shard(1, 64 << 20, Eviction::None);
        let mut random = Random::new(7);
        (0..300).for_each(|_| change_of(kind)(&mut source, &mut random, 1_000));
        let (at_ms, condition) = (NOW.unix_ms + 77, ExpireCondition::Always);
        ask(&mut source, &Command::Expire { key: KEY, at_ms, condition });
        source.begin_snapshot().unwrap();
        let mut stream = Vec::new();
        while !operations(&stream).iter().any(|operation| is_piece(operation)) {
            assert_eq!(source.short_snapshot_turn(1, NOW), SnapshotTurn::More);
            source.take_snapshot(&mut stream);
        }
        let written = operations(&stream).into_iter().find(|operation| is_piece(operation));
        let Command::Load { step: LoadStep::Fill(piece), .. } =
            Command::decode_within(written.unwrap()).unwrap().1
        else {
            panic!("a piece")
        };
        let mut list = Vec::new();
        let request = match kind {
            Kind::HASH => {
                let names = Items::parse(piece).unwrap();
                names.iter().step_by(2).for_each(|name| Items::push(&mut list, name.unwrap()));
                HashCommand::Remove { names: Items::parse(&list).unwrap() }.request()
            }
            Kind::SET => SetCommand::Remove { members: Items::parse(piece).unwrap() }.request(),
            _ => {
                list = scored::names(piece);
                scored::remove(&list).request()
            }
        };
        assert!(ask(&mut source, &Command::Of { key: KEY, request }).1 > 50);
        finish(&mut source, &mut stream);
        let mut copy = loaded(&stream);
        assert_eq!(copy.digest(), source.digest(), "{kind:?}");
        // From now on it goes with its last part, as any other.
        ask(&mut source, &Command::Del { key: KEY });
        assert_eq!(source.digest(), Digest::default());
        audit(&mut copy);
    }
}

/// An object that goes before it is filled leaves no mark: what gets its slot goes with its last
/// part, as any other.
#[test]
fn what_was_being_filled_and_went_leaves_no_mark() {
    let mut source = shard(1, 64 << 20, Eviction::None);
    let mut random = Random::new(7);
    (0..100).for_each(|_| change_hash(&mut source, &mut random, 1_000));
    source.begin_snapshot().unwrap();
    let mut stream = Vec::new();
    while !operations(&stream).iter().any(|operation| is_piece(operation)) {
        assert_eq!(source.short_snapshot_turn(1, NOW), SnapshotTurn::More);
        source.take_snapshot(&mut stream);
    }
    ask(&mut source, &Command::Del { key: KEY });
    finish(&mut source, &mut stream);
    let mut copy = loaded(&stream);
    assert_eq!(copy.digest(), Digest::default());
    copy.end_applying(1).unwrap();
    audit(&mut copy);
    let value = vec![1; 100];
    let mut list = Vec::new();
    Items::push(&mut list, b"name");
    let names = Items::parse(&list).unwrap();
    let mut pair = list.clone();
    Items::push(&mut pair, &value);
    let pairs = Items::parse(&pair).unwrap();
    let keys: Vec<[u8; 5]> = (0..50u8).map(|at| [b'l', b'a', b'r', b'g', at]).collect();
    for key in &keys {
        ask(&mut copy, &Command::Of { key, request: HashCommand::Set { pairs }.request() });
    }
    for key in &keys {
        let remove = Command::Of { key, request: HashCommand::Remove { names }.request() };
        assert_eq!(ask(&mut copy, &remove), (Status::Ok, 1));
        assert_eq!(ask(&mut copy, &Command::Exists { key }), (Status::Ok, 0), "{key:?}");
    }
}

/// Keys that a flush in turns is to remove are not written, if it began before the snapshot; and if
/// it begins meanwhile, it is in the stream.
#[test]
fn a_flush_in_turns_may_be_under_way() {
    for seed in 0..40u64 {
        let mut random = Random::new(seed);
        let mut source = shard(1, 64 << 20, Eviction::None);
        let other = Database::new(3).unwrap();
        for at in 0..3_000u64 {
            let key = at.to_le_bytes();
            let command = set(&key, b"old");
            let on = if at.is_multiple_of(3) { other } else { Database::ZERO };
            source.execute(&command, source.hash_of(on, &command), NOW);
        }
        (0..80).for_each(|_| change_hash(&mut source, &mut random, 2_000));
        let only = [None, Some(Database::ZERO), Some(other)][seed as usize % 3];
        let (mut stream, mut flush) = (Vec::new(), None);
        let (flush_at, mut turns) = (seed / 3 % 5 * 4, 0);
        if flush_at == 0 {
            flush = Some(source.begin_flush(only).unwrap());
        }
        source.begin_snapshot().unwrap();
        let digest = loop {
            match source.short_snapshot_turn(1 + random.below(60) as usize, NOW) {
                SnapshotTurn::Ended { .. } => break source.digest(),
                SnapshotTurn::More => {}
                turn => panic!("{turn:?}"),
            }
            let mut written = Vec::new();
            source.take_snapshot(&mut written);
            turns += 1;
            // In some while an object is being filled.
            let is_due = match seed % 2 {
                0 => turns == flush_at,
                _ => operations(&written).into_iter().any(is_piece),
            };
            if is_due && flush.is_none() {
                flush = Some(source.begin_flush(only).unwrap());
            }
            stream.extend(written);
            for _ in 0..3 {
                let key = u64::to_le_bytes(random.below(4_000));
                let command =
                    if random.one_in(3) { Command::Del { key: &key } } else { set(&key, b"new") };
                let on = if random.one_in(3) { other } else { Database::ZERO };
                source.execute(&command, source.hash_of(on, &command), NOW);
            }
            if random.one_in(9) {
                change_hash(&mut source, &mut random, 2_000);
            }
            if random.one_in(20) {
                source.release_some(NOW);
            }
        };
        source.take_snapshot(&mut stream);
        assert_eq!(loaded(&stream).digest(), digest, "seed {seed}");
        assert!(flush.is_some(), "seed {seed}");
    }
}

/// Loads that are under way at the end of a log go when apply mode ends: no mover continues them,
/// and later ones of the same key have numbers of their own.
#[test]
fn loads_at_the_end_of_a_log_go() {
    let mut source = shard(1, 16 << 20, Eviction::None);
    let mut head = Vec::new();
    Dumped::push(&mut head, Kind::HASH, 0, 0, &[]);
    let dumped = Dumped::parse(&head).unwrap();
    let begin =
        Command::Load { key: KEY, load: 0, step: LoadStep::Begin { dumped, replaces: true } };
    let (_, number) = ask(&mut source, &begin);
    let log = source.log().entries();
    let mut copy = shard(9, 16 << 20, Eviction::None);
    copy.begin_applying();
    for entry in &log {
        assert_eq!(copy.apply(&entry.entry(), &Origin::WHOLE, NOW), Ok(Applied::Done));
    }
    copy.end_applying(1).unwrap();
    let piece = Command::Load { key: KEY, load: number as u64, step: LoadStep::Piece(b"") };
    assert_eq!(ask(&mut copy, &piece).0, Status::TryAgain, "it is gone");
    let dropped = copy.log().entries();
    assert_eq!(dropped.len(), 1);
    assert_eq!(ask(&mut copy, &begin), (Status::Ok, 3));
    audit(&mut copy);
    let digests: [Digest; 2] = [copy.digest(), source.digest()];
    assert_eq!(digests, [Digest::default(); 2]);
}
