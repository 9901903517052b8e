//! Commands and their one encoding: an encoded command is decoded as the same command, a decoded
//! one is encoded to the same bytes, and strays are refused.

use proptest::prelude::*;
use remora_geometry::{Refine, Shape};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, MAX_VALUE_BYTES};
use remora_protocol::message::{Op, REQUEST_HEADER_BYTES, Status};
use remora_protocol::sorted::{Scored, SortedCommand};
use remora_protocol::tree::TreeCommand;
use remora_protocol::{
    Command, Condition, Dumped, ExpireCondition, Expiry, LoadStep, Operation, Pairs, Request,
    Source,
};
use zerocopy::IntoBytes;

fn load(load: u64, step: LoadStep<'_>) -> Command<'_> {
    Command::Load { key: b"k", load, step }
}

fn enter(replaces: bool, from: Option<Source<'_>>) -> Command<'_> {
    load(3, LoadStep::Enter { replaces, from })
}

#[test]
fn commands_round_trip() {
    let mut list = Vec::new();
    Pairs::push(&mut list, b"a", b"1");
    Pairs::push(&mut list, b"", b"");
    let pairs = Pairs::parse(&list).unwrap();
    let listed: Vec<_> = pairs.iter().collect();
    assert_eq!(listed, [(&b"a"[..], &b"1"[..]), (b"", b"")]);
    let commands = [
        Command::Get { key: b"k" },
        Command::Set {
            key: b"k",
            value: b"v",
            condition: Condition::IfPresent,
            expiry: Expiry::At(77),
            get: true,
        },
        Command::Set {
            key: b"",
            value: b"",
            condition: Condition::IfAbsent,
            expiry: Expiry::Keep,
            get: false,
        },
        Command::Del { key: b"k" },
        Command::Exists { key: b"k" },
        Command::Touch { key: b"k" },
        Command::Incr { key: b"k", by: -5 },
        Command::Expire { key: b"k", at_ms: 9, condition: ExpireCondition::IfEarlier },
        Command::Expire { key: b"k", at_ms: u64::MAX, condition: ExpireCondition::IfSomeEarlier },
        Command::Ttl { key: b"k" },
        Command::MultiSet { pairs },
        Command::Append { key: b"k", value: b"tail" },
        Command::SetRange { key: b"k", offset: u64::MAX, value: b"part" },
        Command::GetRange { key: b"k", start: 3, end: -1 },
        Command::GetRange { key: b"k", start: i32::MIN, end: i32::MAX },
        Command::SetBit { key: b"k", offset: u32::MAX, bit: true },
        Command::SetBit { key: b"k", offset: 0, bit: false },
        Command::GetBit { key: b"k", offset: 7 },
        Command::StrLen { key: b"k" },
        Command::GetDel { key: b"k" },
        Command::GetEx { key: b"k", at_ms: Some(u64::MAX) },
        Command::GetEx { key: b"k", at_ms: None },
        Command::RandomKey { random: u32::MAX, place: None },
        Command::RandomKey { random: 0, place: Some(0) },
        Command::RandomKey { random: 1, place: Some(u32::MAX) },
        Command::Count,
        Command::Synced { until: 0, begins: true },
        Command::Synced { until: u64::MAX, begins: false },
        Command::Replicated { until: 0, replicas: 1 },
        Command::Replicated { until: u64::MAX, replicas: u8::MAX },
        Command::Elements { key: b"k", start: 0, stop: -1 },
        Command::Elements { key: b"", start: i64::MIN, stop: i64::MAX },
        Command::Topology { from: 0 },
        Command::Topology { from: u32::MAX },
        Command::Plan { plan: b"" },
        Command::Plan { plan: b"some plan" },
        Command::Digest { key: None },
        Command::Digest { key: Some(b"key") },
        Command::Flush,
        Command::FlushAll,
    ];
    commands.into_iter().for_each(round_trip);
}

#[test]
fn commands_that_move_objects_round_trip() {
    let (mut whole, mut root) = (Vec::new(), Vec::new());
    Dumped::push(&mut whole, Kind::HASH.whole(), 7, 9, b"value");
    Dumped::push(&mut root, Kind::HASH, 0, u64::MAX, b"");
    let [whole, dumped] = [&whole, &root].map(|bytes| Dumped::parse(bytes).unwrap());
    let database = Database::new(13).unwrap();
    let commands = [
        Command::Transfer { key: b"k", to: b"", database, replaces: true, keeps: false },
        Command::Dump { key: b"k", holds: false },
        Command::Dump { key: b"k", holds: true },
        Command::DumpPart { key: b"k", dump: u64::MAX },
        Command::EndDump { key: b"k", dump: 1 },
        Command::Restore { key: b"k", dumped: whole, replaces: true },
        Command::DelDumped { key: b"k", dump: 1 },
        load(0, LoadStep::Begin { dumped, replaces: false }),
        load(u64::MAX, LoadStep::Begin { dumped, replaces: true }),
        load(3, LoadStep::Piece(b"piece")),
        load(3, LoadStep::Drop),
        load(0, LoadStep::Make(dumped)),
        load(0, LoadStep::Fill(b"piece")),
        load(0, LoadStep::Filled),
        enter(true, None),
        enter(false, Some(Source { key: b"from", database })),
    ];
    commands.into_iter().for_each(round_trip);
}

/// A command within each database, whole and cut anywhere.
fn round_trip(command: Command<'_>) {
    let (id, mut bytes) = (77, Vec::new());
    command.encode_into(id, &mut bytes);
    assert_eq!(Command::decode(&bytes), Ok((command, id)));
    for database in Database::all() {
        let mut within = Vec::new();
        command.encode_within(database, id, &mut within);
        assert_eq!(Command::decode_within(&within), Ok((database, command, id)));
        assert_eq!(Command::decode(&within).is_ok(), database == Database::ZERO);
    }
    for cut in 0..bytes.len() {
        assert!(Command::decode(&bytes[..cut]).is_err());
    }
}

#[test]
fn strays_and_too_long_values_are_refused() {
    // One byte too many in the parts that the operation does not use: reserved, flags, argument.
    let strays = [
        (Command::Get { key: b"k" }, 3),
        (Command::Get { key: b"k" }, 1),
        (Command::Append { key: b"k", value: b"v" }, 16),
        (Command::SetBit { key: b"k", offset: 1, bit: true }, 1),
        (Command::SetBit { key: b"k", offset: 1, bit: true }, 20),
        (Command::GetBit { key: b"k", offset: 1 }, 23),
        (Command::StrLen { key: b"k" }, 16),
        (load(3, LoadStep::Drop), 1),
        (load(0, LoadStep::Filled), 16),
        (load(0, LoadStep::Fill(b"piece")), 16),
        (load(3, LoadStep::Piece(b"")), 1),
        (enter(true, None), 1),
        (Command::GetDel { key: b"k" }, 1),
        (Command::GetEx { key: b"k", at_ms: None }, 16),
    ];
    for (command, at) in strays {
        let mut bytes = Vec::new();
        command.encode_into(1, &mut bytes);
        bytes[at] |= 0x20;
        assert_eq!(Command::decode(&bytes), Err((Status::Malformed, 1)), "{command:?} {at}");
    }
    let big = vec![0; MAX_VALUE_BYTES + 1];
    for command in [
        Command::Append { key: b"k", value: &big },
        Command::SetRange { key: b"k", offset: 0, value: &big },
    ] {
        let mut bytes = Vec::new();
        command.encode_into(1, &mut bytes);
        assert_eq!(Command::decode(&bytes), Err((Status::TooLarge, 1)));
    }
}

/// Every operation's type and number, and some that are none.
fn operations() -> Vec<[u8; 2]> {
    let types = Request::TYPES.iter();
    let typed = types.flat_map(|&(kind, count)| (0..=count).map(move |op| [kind.0, op]));
    let digest = [[0, Op::Digest as u8]];
    (0..=38).map(|op| [0, op]).chain(digest).chain(typed).collect()
}

/// The value of a request for a refined search.
fn refine() -> Vec<u8> {
    let shape = Shape::from_wkt("POINT (1 2)").unwrap();
    let refine = Refine::Intersects(shape).to_bytes();
    let mut searched = Vec::new();
    TreeCommand::Refine { refine: &refine, of: None }.encode(&mut searched);
    let mut counted = Vec::new();
    TreeCommand::CountRefined { refine: &refine }.encode(&mut counted);
    assert_eq!(counted, searched, "flags tell them apart");
    searched
}

/// Bytes that are a request often enough: a header of sensible parts.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        Just(0i64),
        0i64..10,
        Just(i64::from(u32::MAX)),
        Just(i64::from(u32::MAX) + 1),
        any::<i64>(),
    ];
    let text = || prop::collection::vec(any::<u8>(), 0..4);
    let pairs = Just([&[1u8, 0, 0, 0, 1, 0, 0, 0][..], b"kv"].concat());
    let numbers = prop::collection::vec(prop_oneof![Just(0.5f64), Just(2.0), Just(f64::NAN)], 0..6);
    let numbers = numbers.prop_map(|all| all.as_bytes().to_vec());
    let value = prop_oneof![
        4 => Just(Vec::new()), 4 => text(), 1 => pairs, 4 => numbers, 1 => Just(refine())
    ];
    let flags = prop_oneof![4 => Just(0u8), 2 => 0u8..40, 1 => any::<u8>()];
    let numbers_of = prop::sample::select(operations());
    (numbers_of, flags, text(), value, prop_oneof![9 => Just(0u8), 1 => any::<u8>()], argument)
        .prop_map(|([of, op], flags, key, value, form, argument)| {
            let mut bytes = vec![op, flags, form, of, key.len() as u8, 0, 0, 0];
            bytes.extend([value.len() as u8, 0, 0, 0, 7, 0, 0, 0]);
            bytes.extend(argument.to_le_bytes());
            bytes.extend(key);
            bytes.extend(value);
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_command_has_one_encoding(bytes in request()) {
        if let Ok((database, command, id)) = Command::decode_within(&bytes) {
            prop_assert_eq!(id, 7);
            let mut encoded = Vec::new();
            command.encode_within(database, id, &mut encoded);
            prop_assert_eq!(&encoded, &bytes, "{:?}", command);
        }
    }
}

/// Each operation is decoded from a plain header, or the property above would
/// say nothing of it.
#[test]
fn every_operation_can_be_asked() {
    let is_one = |[of, op]: [u8; 2]| match of {
        0 => Op::from_number(op).is_some(),
        of => Request::TYPES.iter().any(|&(kind, count)| kind.0 == of && op < count),
    };
    let strings = (0..=u8::MAX).map(|op| [0, op]);
    for [of, op] in strings.chain(operations()).filter(|&numbers| is_one(numbers)) {
        assert!(operations().contains(&[of, op]), "the property above has to try it too");
        // Nothing is in it that has no meaning: some operations need numbers.
        let values = [0, 4, 8, 16, 24, 32, 36, 40, 48].map(|bytes| vec![0; bytes]);
        // An empty item, and one of 8 bytes.
        let items = [0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
        // One item of 8 bytes, two of them, and a number behind these.
        let one = [vec![8, 0, 0, 0], vec![0; 8]].concat();
        let two = [&one[..], &one].concat();
        let bounds = [&two[..], &[0; 8]].concat();
        // Settings of an ordered tree.
        let settings = vec![0, 0, 16, 0, 8, 0, 8, 0];
        // An empty document, and a list of one.
        let document = vec![5, 0, 0, 0, 0];
        let documents = [&[5, 0, 0, 0][..], &document].concat();
        let more = [refine(), items, settings, one, two, bounds, document, documents];
        let values = values.into_iter().chain(more);
        let numbers = [(0, 0), (30, 0), (0, 1), (30, 1)];
        let plain = values.flat_map(|value| numbers.map(|numbers| (value.clone(), numbers)));
        let plain = plain.into_iter().find_map(|(value, (argument, flags))| {
            let mut bytes = vec![0; REQUEST_HEADER_BYTES];
            (bytes[0], bytes[3], bytes[8]) = (op, of, value.len() as u8);
            bytes.extend(value);
            (bytes[1], bytes[16]) = (flags, argument);
            Command::decode(&bytes).ok().map(|(command, _)| command.encode(0, &mut Vec::new()).0)
        });
        assert_eq!(plain.map(|header| [header.of, header.op]), Some([of, op]));
    }
}

/// One command is one turn of its shard, also where a client sends it over rings.
#[test]
fn a_command_gives_no_more_members_than_a_turn_takes() {
    let with = |members: usize| {
        let mut list = Vec::new();
        (0..members).for_each(|_| Scored::push(&mut list, 1.0, b"m"));
        let members = Scored::parse(&list).unwrap();
        let mut bytes = Vec::new();
        let request = SortedCommand::Store { members }.request();
        Command::Of { key: b"k", request }.encode_into(1, &mut bytes);
        Command::decode(&bytes).err()
    };
    assert_eq!(with(MAX_COMMAND_MEMBERS), None);
    assert_eq!(with(MAX_COMMAND_MEMBERS + 1), Some((Status::TooLarge, 1)));
}
