//! Links in fields of hashes, against a map: what is a link stays one until it is set over, and its hint
//! leads to the record that its key has, or had.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_index::hash::{find_locally, record_key, record_value};
use remora_layout::bucket::BucketSlot;
use remora_layout::chain::{Entry, entries as chain_entries, join_hints, split_hints};
use remora_layout::kind::Kind;
use remora_layout::limits::LINK_MENDS_PER_SECOND;
use remora_layout::link::Linked;
use remora_layout::packed::{self, Field};
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, Items, Request};
use remora_testing::Random;
use std::collections::BTreeMap;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

/// Values, and whether they are links.
type Hash = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

fn shard(bytes: usize) -> Shard {
    let options =
        ShardOptions { eviction: Eviction::None, record_secret: 7, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn of(shard: &mut Shard, key: &[u8], command: HashCommand<'_>) -> (Status, Option<Vec<u8>>) {
    let hash = shard.hash(key);
    let reply = shard.execute(&Command::Of { key, request: command.request() }, hash, NOW);
    (reply.status, reply.value.map(<[u8]>::to_vec))
}

fn set(shard: &mut Shard, key: &[u8], fields: &[(&[u8], Field<'_>)]) -> Status {
    let mut list = Vec::new();
    for (name, field) in fields {
        Items::push(&mut list, name);
        Items::push_field(&mut list, *field);
    }
    of(shard, key, HashCommand::Set { pairs: Items::parse(&list).unwrap() }).0
}

fn link(value: &[u8]) -> Field<'_> {
    Field { value, is_link: true }
}

fn all(shard: &mut Shard, key: &[u8]) -> Hash {
    let value = of(shard, key, HashCommand::All { told: Told::Both }).1.unwrap();
    let items: Vec<Field<'_>> = Items::parse(&value).unwrap().fields().flatten().collect();
    let pair = |two: &[Field<'_>]| {
        assert!(!two[0].is_link, "no name is a link");
        (two[0].value.to_vec(), (two[1].value.to_vec(), two[1].is_link))
    };
    items.chunks(2).map(pair).collect()
}

/// The values of some fields, by one look at the hash.
fn many(shard: &mut Shard, key: &[u8], names: &[&[u8]]) -> Vec<Option<(Vec<u8>, bool)>> {
    let mut list = Vec::new();
    names.iter().for_each(|name| Items::push(&mut list, name));
    let names = Items::parse(&list).unwrap();
    let value = of(shard, key, HashCommand::GetMany { names }).1.unwrap();
    let field = |field: Field<'_>| (field.value.to_vec(), field.is_link);
    Items::parse(&value).unwrap().fields().map(|item| item.map(field)).collect()
}

#[test]
fn random_operations_agree_with_a_map() {
    let (mut links, mut whole, mut parts) = (0, 0, 0);
    for seed in 0..6 {
        let mut shard = shard(8 << 20);
        let (mut model, mut random) = (BTreeMap::<Vec<u8>, Hash>::new(), Random::new(seed));
        for _ in 0..6_000 {
            let number = random.below(6);
            let key = format!("item {number}").into_bytes();
            // Some stay small.
            let name = format!("f{}", random.below(if number < 3 { 20 } else { 400 })).into_bytes();
            let target = format!("item {}", random.below(8)).repeat(1 + random.below(20) as usize);
            let is_link = random.one_in(2);
            let hash = model.entry(key.clone()).or_default();
            match random.below(5) {
                0 => {
                    let mut list = Vec::new();
                    Items::push(&mut list, &name);
                    let names = Items::parse(&list).unwrap();
                    of(&mut shard, &key, HashCommand::Remove { names });
                    hash.remove(&name);
                }
                1 => {
                    let told = many(&mut shard, &key, &[&name, b"nowhere"]);
                    assert_eq!(told, [hash.get(&name).cloned(), None]);
                }
                _ => {
                    let field = Field { value: target.as_bytes(), is_link };
                    assert_eq!(set(&mut shard, &key, &[(&name, field)]), Status::Ok);
                    hash.insert(name, (target.into_bytes(), is_link));
                }
            }
        }
        shard.audit().unwrap();
        for (key, hash) in &model {
            assert_eq!(&all(&mut shard, key), hash, "{}", key.escape_ascii());
            links += hash.values().filter(|(_, is_link)| *is_link).count();
            let is_small = hash.len() <= 20 && hash.values().all(|(value, _)| value.len() <= 64);
            *(if is_small { &mut whole } else { &mut parts }) += 1;
        }
    }
    assert!(links > 1_000 && parts > 5, "{links} links, {whole} small hashes, {parts} large ones");
}

/// The hint of the first link of the record that holds a field.
fn hint(shard: &mut Shard, key: &[u8], name: &[u8]) -> u64 {
    let hash = shard.hash(key);
    let command = Command::Of { key, request: HashCommand::Get { name }.request() };
    let pointer = shard.execute(&command, hash, NOW).pointer;
    let value = record_value(shard.owner(), pointer.slot);
    let linked = Linked::of(value).expect("it has a link");
    assert_eq!(linked.len(), 1);
    linked.hint(0)
}

#[test]
fn a_hint_leads_to_the_record_of_its_key_and_is_no_part_of_the_content() {
    for target_bytes in [8, 200] {
        let mut shard = shard(8 << 20);
        let target = vec![b't'; target_bytes];
        // Nothing is there yet.
        assert_eq!(set(&mut shard, b"item", &[(b"link", link(&target))]), Status::Ok);
        assert_eq!(hint(&mut shard, b"item", b"link"), 0);
        assert_eq!(set(&mut shard, &target, &[(b"name", Field::plain(b"x"))]), Status::Ok);
        assert_eq!(set(&mut shard, b"item", &[(b"link", link(&target))]), Status::Ok);
        let word = hint(&mut shard, b"item", b"link");
        let slot = BucketSlot::from_word(word);
        assert_eq!(record_key(shard.owner(), slot.slot), target);
        // What a hint says changes nothing of the content.
        let mut other = self::shard(8 << 20);
        assert_eq!(set(&mut other, b"item", &[(b"link", link(&target))]), Status::Ok);
        assert_eq!(set(&mut other, &target, &[(b"name", Field::plain(b"x"))]), Status::Ok);
        assert_eq!(hint(&mut other, b"item", b"link"), 0);
        let before = shard.digest();
        assert_eq!(other.digest(), before);
        shard.audit().unwrap();
        // A link is not its key's text.
        assert_eq!(set(&mut shard, b"item", &[(b"link", Field::plain(&target))]), Status::Ok);
        assert_ne!(shard.digest(), before);
    }
}

fn list(shard: &mut Shard, key: &[u8], command: ListCommand<'_>) -> (Status, Vec<(Vec<u8>, bool)>) {
    let hash = shard.hash(key);
    let reply = shard.execute(&Command::Of { key, request: command.request() }, hash, NOW);
    let items = reply.value.and_then(Items::parse).into_iter().flat_map(Items::fields).flatten();
    (reply.status, items.map(|field| (field.value.to_vec(), field.is_link)).collect())
}

fn push(shard: &mut Shard, key: &[u8], elements: &[Field<'_>]) {
    let mut items = Vec::new();
    elements.iter().for_each(|element| Items::push_field(&mut items, *element));
    let items = Items::parse(&items).unwrap();
    let push = ListCommand::Push { side: Side::Right, if_there: false, items };
    assert_eq!(list(shard, key, push).0, Status::Ok);
}

fn elements(shard: &mut Shard, key: &[u8]) -> Vec<(Vec<u8>, bool)> {
    list(shard, key, ListCommand::Range { start: 0, stop: 99 }).1
}

#[test]
fn elements_of_lists_are_links_until_they_are_set_over() {
    // One lies whole in its record, one has chunks.
    for count in [10, 90] {
        let mut shard = shard(8 << 20);
        let texts: Vec<Vec<u8>> = (0..count).map(|n| format!("user:{n}").into_bytes()).collect();
        let is_link = |number: usize| !number.is_multiple_of(3);
        let mut model: Vec<(Vec<u8>, bool)> =
            texts.iter().enumerate().map(|(n, text)| (text.clone(), is_link(n))).collect();
        for (value, is_link) in &model {
            push(&mut shard, b"list", &[Field { value, is_link: *is_link }]);
        }
        assert_eq!(elements(&mut shard, b"list"), model);
        let set = ListCommand::SetAt { index: 4, value: b"user:4" };
        assert_eq!(list(&mut shard, b"list", set).0, Status::Ok);
        model[4].1 = false;
        // By their texts they are found.
        let remove = ListCommand::Remove { count: 0, value: b"user:7" };
        assert_eq!(list(&mut shard, b"list", remove).0, Status::Ok);
        model.remove(7);
        let mut pair = Vec::new();
        Items::push(&mut pair, b"user:5");
        Items::push(&mut pair, b"user:1");
        let pair = Items::parse(&pair).unwrap();
        let insert = ListCommand::Insert { after: false, pivot_and_value: pair };
        assert_eq!(list(&mut shard, b"list", insert).0, Status::Ok);
        model.insert(5, (b"user:1".to_vec(), false));
        assert_eq!(elements(&mut shard, b"list"), model);
        // LMOVE keeps a link a link, and the reply to a pop marks it as one.
        for _ in 0..2 {
            let (from, to) = (Side::Left, Side::Right);
            assert_eq!(
                list(&mut shard, b"list", ListCommand::Move { from, to, other: b"other" }).0,
                Status::Ok
            );
        }
        let moved: Vec<_> = model.drain(..2).collect();
        assert_eq!(
            (elements(&mut shard, b"list"), elements(&mut shard, b"other")),
            (model.clone(), moved)
        );
        let pop = ListCommand::Pop { side: Side::Left, count: 2, fits_frame: true };
        assert_eq!(list(&mut shard, b"list", pop).1, model[..2]);
        shard.audit().unwrap();
        // The same elements without marks are another content.
        let before = shard.digest();
        let rest = model.drain(2..).map(|(text, _)| text).collect::<Vec<_>>();
        let list_hash = shard.hash(b"list");
        shard.execute(&Command::Del { key: b"list" }, list_hash, NOW);
        rest.iter().for_each(|text| push(&mut shard, b"list", &[Field::plain(text)]));
        assert_ne!(shard.digest(), before);
    }
}

fn mend(shard: &mut Shard, key: &[u8], request: Request<'_>, now: Now) -> i64 {
    let hash = shard.hash(key);
    let reply = shard.execute(&Command::Of { key, request }, hash, now);
    assert_eq!(reply.status, Status::Ok);
    reply.number
}

/// The hint of the link of this index, in a list that lies whole in its record.
fn hint_in_list(shard: &mut Shard, key: &[u8], index: usize) -> u64 {
    let hash = shard.hash(key);
    let mut table = shard.table_ref();
    let mut record = Vec::new();
    let view = shard.owner().view();
    let found = find_locally(view, &mut table, key, hash, Kind::LIST, &mut record).unwrap();
    let value = record_value(shard.owner(), found.pointer.slot);
    let entries = join_hints(Linked::of(value).unwrap());
    match chain_entries(&entries).nth(index) {
        Some(Entry::Link { hint, .. }) => hint,
        other => panic!("{other:?}"),
    }
}

#[test]
fn owners_mend_hints_by_what_they_know_themselves_at_a_bounded_rate() {
    let mut shard = shard(8 << 20);
    let fields: Vec<Vec<u8>> = (0..300).map(|n| format!("f{n}").into_bytes()).collect();
    // A small hash and a large one, a short list and one of chunks: all link to the same key.
    let target = b"target".as_slice();
    set(&mut shard, b"small", &[(b"name", Field::plain(b"x")), (b"f1", link(target))]);
    for field in &fields {
        set(&mut shard, b"large", &[(field, link(target))]);
        push(&mut shard, b"long", &[link(target)]);
    }
    push(&mut shard, b"short", &[Field::plain(b"x"), link(target)]);
    let digest = shard.digest();
    assert_eq!(hint(&mut shard, b"small", b"f1"), 0);
    assert_eq!(set(&mut shard, target, &[(b"name", Field::plain(b"x"))]), Status::Ok);
    let with_target = shard.digest();
    assert_ne!(digest, with_target);
    let sequence = shard.last_sequence();
    let all: [(&[u8], Request<'_>); 4] = [
        (b"small", HashCommand::Mend { name: b"f1" }.request()),
        (b"large", HashCommand::Mend { name: b"f77" }.request()),
        (b"short", ListCommand::Mend { index: 1, target }.request()),
        (b"long", ListCommand::Mend { index: 150, target }.request()),
    ];
    for (key, request) in all {
        assert_eq!(mend(&mut shard, key, request, NOW), 1, "{}", key.escape_ascii());
        assert_eq!(mend(&mut shard, key, request, NOW), 0, "it is right now");
    }
    for word in [
        hint(&mut shard, b"small", b"f1"),
        hint(&mut shard, b"large", b"f77"),
        hint_in_list(&mut shard, b"short", 1),
    ] {
        assert_eq!(record_key(shard.owner(), BucketSlot::from_word(word).slot), target);
    }
    assert_eq!(hint(&mut shard, b"large", b"f78"), 0, "its neighbour is as it was");
    // It is no change: neither the content nor the log has it.
    assert_eq!((shard.digest(), shard.last_sequence()), (with_target, sequence));
    shard.audit().unwrap();
    // What is no link, or one to another key, is left alone.
    let none: [(&[u8], Request<'_>); 6] = [
        (b"small", HashCommand::Mend { name: b"name" }.request()),
        (b"small", HashCommand::Mend { name: b"nowhere" }.request()),
        (b"nowhere", HashCommand::Mend { name: b"f1" }.request()),
        (b"short", ListCommand::Mend { index: 0, target }.request()),
        (b"long", ListCommand::Mend { index: 149, target: b"small" }.request()),
        (b"long", ListCommand::Mend { index: 9_999, target }.request()),
    ];
    for (key, request) in none {
        assert_eq!(mend(&mut shard, key, request, NOW), 0);
    }
    // So many in a second, and no more.
    let (mended, refused) = (shard.stats().links_mended, shard.stats().link_mends_refused);
    assert_eq!((mended, refused), (4, 0));
    for _ in 0..LINK_MENDS_PER_SECOND {
        mend(&mut shard, all[0].0, all[0].1, NOW);
    }
    assert!((1..100).contains(&shard.stats().link_mends_refused));
    let one = ListCommand::Mend { index: 7, target }.request();
    assert_eq!(mend(&mut shard, b"long", one, NOW), 0);
    let later = Now { since_start_s: NOW.since_start_s + 1, ..NOW };
    assert_eq!(mend(&mut shard, b"long", one, later), 1);
}

#[test]
fn only_values_of_fields_that_are_set_may_be_links() {
    let mut list = Vec::new();
    Items::push_field(&mut list, link(b"name"));
    Items::push(&mut list, b"value");
    let names = Items::parse(&list).unwrap();
    let bytes = |command: HashCommand<'_>| {
        let mut bytes = Vec::new();
        let command = Command::Of { key: b"k", request: command.request() };
        command.encode_into(0, &mut bytes);
        Command::decode(&bytes).map(drop).map_err(|(status, _)| status)
    };
    let (set, remove) = (HashCommand::Set { pairs: names }, HashCommand::Remove { names });
    assert_eq!((bytes(set), bytes(remove)), (Err(Status::Malformed), Err(Status::Malformed)));
    let mut list = Vec::new();
    Items::push(&mut list, b"name");
    Items::push_field(&mut list, link(b"key"));
    let pairs = Items::parse(&list).unwrap();
    assert_eq!(bytes(HashCommand::Set { pairs }), Ok(()));
    assert_eq!(bytes(HashCommand::SetAbsent { pair: pairs }), Err(Status::Malformed));
}

/// Gives a key's value to the key itself, as a dump that comes from elsewhere.
fn restore(shard: &mut Shard, key: &[u8]) {
    let hash = shard.hash(key);
    let dump = Command::Dump { key, holds: false };
    let bytes = shard.execute(&dump, hash, NOW).value.expect("it is there").to_vec();
    let dumped = Dumped::parse(&bytes).expect("it was just made");
    let restore = Command::Restore { key, dumped, replaces: true };
    assert_eq!(shard.execute(&restore, hash, NOW).number, 1);
}

/// A record that came as a dump, over RENAME, a snapshot or a copy, has its links with the hints of what is
/// there already, and the others when they are reported.
#[test]
fn links_of_restored_records_have_hints_as_any_other() {
    let mut shard = shard(1 << 20);
    let target = b"item".as_slice();
    assert_eq!(set(&mut shard, b"hash", &[(b"boss", link(target))]), Status::Ok);
    push(&mut shard, b"list", &[link(target)]);
    restore(&mut shard, b"hash");
    restore(&mut shard, b"list");
    assert_eq!(hint(&mut shard, b"hash", b"boss"), 0);
    assert_eq!(set(&mut shard, target, &[(b"name", Field::plain(b"x"))]), Status::Ok);
    let of_hash = HashCommand::Mend { name: b"boss" }.request();
    assert_eq!(mend(&mut shard, b"hash", of_hash, NOW), 1);
    let of_list = ListCommand::Mend { index: 0, target }.request();
    assert_eq!(mend(&mut shard, b"list", of_list, NOW), 1);
    let mended = hint(&mut shard, b"hash", b"boss");
    assert_ne!(mended, 0);
    restore(&mut shard, b"hash");
    restore(&mut shard, b"list");
    assert_eq!(hint(&mut shard, b"hash", b"boss"), mended);
    // Nothing is left to mend.
    assert_eq!(mend(&mut shard, b"hash", of_hash, NOW), 0);
    assert_eq!(mend(&mut shard, b"list", of_list, NOW), 0);
    shard.audit().unwrap();
    assert_eq!(all(&mut shard, b"hash")[&b"boss"[..]], (target.to_vec(), true));
}

/// Such a record was not written here: it may be whatever fits a dump, and a report of its links ends nothing.
#[test]
fn a_restored_record_with_more_links_than_a_value_has_is_read_and_not_mended() {
    let mut shard = shard(1 << 20);
    let (mut packed, mut entries) = (Vec::new(), Vec::new());
    for number in 0..300 {
        let target = Field { value: b"item", is_link: true };
        packed::push(&mut packed, format!("f{number}").as_bytes(), target);
        Entry::Link { key: b"item", hint: 0 }.push(&mut entries);
    }
    let entries = split_hints(&entries).0;
    let whole =
        [(b"hash".as_slice(), Kind::HASH.whole(), packed), (b"list", Kind::LIST.whole(), entries)];
    for (key, kind, value) in whole {
        let hash = shard.hash(key);
        let mut bytes = Vec::new();
        Dumped::push(&mut bytes, kind, 0, 0, &value);
        let dumped = Dumped::parse(&bytes).expect("it was just made");
        let restore = Command::Restore { key, dumped, replaces: true };
        assert_eq!(shard.execute(&restore, hash, NOW).number, 1);
    }
    assert_eq!(set(&mut shard, b"item", &[(b"name", Field::plain(b"x"))]), Status::Ok);
    assert_eq!(mend(&mut shard, b"hash", HashCommand::Mend { name: b"f299" }.request(), NOW), 0);
    let of_list = ListCommand::Mend { index: 299, target: b"item" }.request();
    assert_eq!(mend(&mut shard, b"list", of_list, NOW), 0);
    assert_eq!(all(&mut shard, b"hash").len(), 300);
}
