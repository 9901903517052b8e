//! Documents found by an index: by READs and asked, the same ones; beside changes of documents and of indexes.

use remora_client::bson::raw::{RawDocument, RawDocumentBuf};
use remora_client::bson::{Document, cstr, doc, rawdoc};
use remora_client::{
    Address, Client, FoundDocuments, Options, Path, ServedBy, Session, Transport, Wake,
};
use remora_document::{Filter, to_json};
use remora_tests::{DEADLINE, Random, ServerProcess};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=256MiB"])
}

fn session(server: &ServerProcess) -> Session {
    let options = Options::default().wake(Wake::Event).timeout(DEADLINE);
    Session::connect(&Address::unix(server.socket()), &options).expect("it runs")
}

fn insert(session: &mut Session, documents: &[RawDocumentBuf]) {
    for some in documents.chunks(100) {
        let some: Vec<&RawDocument> = some.iter().map(|document| &**document).collect();
        session.collection("shop", "items").unwrap().insert(&some).unwrap();
    }
}

fn find(session: &mut Session, filter: &RawDocument, path: Path) -> FoundDocuments {
    let mut items = session.collection("shop", "items").unwrap().by(path);
    items.find(filter, usize::MAX).unwrap()
}

/// What a find by READs gives while the read lease holds, which lapses while a thread does not run.
fn read(session: &mut Session, filter: &RawDocument) -> FoundDocuments {
    let tried = (0..1000).map(|_| find(session, filter, Path::Read));
    let mut held = tried.filter(|found| found.counts.read_lease_lapsed == 0);
    held.next().expect("a find while the lease holds")
}

/// Documents by their `_id`s, each of which is there once.
fn by_id(found: FoundDocuments) -> BTreeMap<i32, RawDocumentBuf> {
    let mut all = BTreeMap::new();
    for document in found {
        let id = document.get_i32("_id").expect("a number");
        assert!(all.insert(id, document).is_none(), "{id} is there twice");
    }
    all
}

fn text(filter: &RawDocument) -> String {
    to_json(filter).unwrap()
}

fn index(session: &mut Session, spec: &RawDocument) {
    session.collection("shop", "items").unwrap().create_index(spec).unwrap();
}

/// All kinds of indexes that are read, each with the fields of other ones.
fn indexes() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "key": { "kind": 1, "price": -1 }, "name": "compound" },
        rawdoc! { "key": { "price": -1 }, "name": "descending" },
        rawdoc! { "key": { "tags": 1 }, "name": "multikey" },
        rawdoc! { "key": { "code": "hashed" }, "name": "hashed" },
        rawdoc! { "key": { "rare": 1 }, "name": "sparse", "sparse": true },
        rawdoc! { "key": { "size.h": 1, "size.w": 1 }, "name": "nested" },
        rawdoc! {
            "key": { "part": 1 }, "name": "partial",
            "partialFilterExpression": { "price": { "$lt": 50 } },
        },
        rawdoc! { "key": { "text": 1 }, "name": "long" },
    ]
}

fn document(random: &mut Random, id: i32) -> RawDocumentBuf {
    let number = |random: &mut Random, below: i32| random.below(below as usize) as i32;
    let kind = format!("kind{}", random.below(6usize));
    let mut of = rawdoc! { "_id": id, "kind": kind, "price": number(random, 100) };
    of.append(cstr!("code"), format!("c{}", random.below(40usize)));
    of
}

/// A filter that some of the documents match, and perhaps bounds for an index.
fn filter(random: &mut Random) -> RawDocumentBuf {
    let number = |random: &mut Random, below: usize| random.below(below) as i32;
    let (low, high) = (number(random, 100), number(random, 100));
    let kind = format!("kind{}", random.below(7usize));
    match random.below(14usize) {
        0 => rawdoc! { "kind": kind },
        1 => rawdoc! { "kind": kind, "price": { "$gte": low, "$lt": high } },
        2 => rawdoc! { "price": { "$gt": low, "$lte": low + 8 } },
        3 => rawdoc! { "price": { "$in": [low, high, 7] }, "kind": { "$ne": kind } },
        4 => rawdoc! { "tags": format!("t{}", low % 12) },
        5 => rawdoc! { "tags": { "$gte": "t3", "$lt": "t5" } },
        6 => rawdoc! { "tags": { "$in": ["t1", "t9"] } },
        7 => rawdoc! { "code": format!("c{}", low % 44) },
        8 => rawdoc! { "rare": { "$gte": low % 10 } },
        9 => rawdoc! { "size.h": low % 5, "size.w": { "$lt": high % 9 } },
        10 => rawdoc! { "part": low % 7, "price": { "$lt": 40 } },
        11 => rawdoc! { "part": low % 7, "price": { "$lt": 60 } },
        12 => {
            rawdoc! { "_id": { "$gte": 3 * low, "$lt": 3 * low + 40 }, "kind": { "$exists": true } }
        }
        _ => rawdoc! { "text": { "$gt": "a".repeat(600 + low as usize) } },
    }
}

/// A document with values of all fields that indexes have, as the number says.
fn rich(random: &mut Random, id: i32) -> RawDocumentBuf {
    let of = document(random, id);
    let mut of: Document = (&*of).try_into().unwrap();
    let tags: Vec<String> =
        (0..random.below(4usize)).map(|_| format!("t{}", random.below(12usize))).collect();
    of.insert("tags", tags);
    if random.one_in(5) {
        of.insert("rare", random.below(10usize) as i32);
    }
    let size = |random: &mut Random| {
        doc! {
            "h": random.below(5usize) as i32, "w": random.below(9usize) as i32,
        }
    };
    match random.below(3usize) {
        0 => drop(of.insert("size", size(random))),
        1 => drop(of.insert("size", vec![size(random), size(random)])),
        _ => {}
    }
    of.insert("part", random.below(7usize) as i32);
    if random.one_in(8) {
        of.insert("text", "a".repeat(500 + random.below(250usize)));
    }
    (&of).try_into().unwrap()
}

#[test]
fn reading_and_asking_find_the_same_documents() {
    const DOCUMENTS: i32 = 900;
    let server = server();
    let mut session = session(&server);
    let mut random = Random::new(5);
    let all: Vec<_> = (0..DOCUMENTS).map(|id| rich(&mut random, id)).collect();
    insert(&mut session, &all);
    for spec in indexes() {
        index(&mut session, &spec);
    }
    let (mut read, mut some) = (0, 0);
    for turn in 0..600 {
        let filter = filter(&mut random);
        let asked = by_id(find(&mut session, &filter, Path::Ask));
        for path in [Path::Read, Path::Choose] {
            let found = find(&mut session, &filter, path);
            read += u32::from(path == Path::Read && found.served_by.is_read());
            assert_eq!(by_id(found), asked, "{} by {path:?}", text(&filter));
        }
        some += u32::from(!asked.is_empty());
        let limit = random.below(30usize);
        let mut items = session.collection("shop", "items").unwrap().by(Path::Read);
        let few = by_id(items.find(&filter, limit).unwrap());
        assert_eq!(few.len(), limit.min(asked.len()), "{}", text(&filter));
        assert!(few.iter().all(|(id, document)| asked.get(id) == Some(document)));
        if turn % 3 == 0 {
            // Another document in the place of one.
            let id = random.below(DOCUMENTS as usize) as i32;
            let mut items = session.collection("shop", "items").unwrap();
            items.remove_one(&rawdoc! { "_id": id }).unwrap();
            let new = rich(&mut random, id);
            insert(&mut session, &[new]);
        }
    }
    assert!(read > 400 && some > 400, "{read} of 600 were read, {some} had documents");
}

#[test]
fn a_find_by_an_index_takes_few_round_trips() {
    let server = server();
    let mut writer = session(&server);
    let mut random = Random::new(1);
    let all: Vec<_> = (0..3_000).map(|id| document(&mut random, id)).collect();
    insert(&mut writer, &all);
    index(&mut writer, &rawdoc! { "key": { "kind": 1, "price": 1 }, "name": "kind" });
    let mut reader = session(&server);
    let filter = rawdoc! { "kind": "kind3", "price": { "$gte": 10, "$lt": 15 } };
    let expected = by_id(find(&mut writer, &filter, Path::Ask));
    assert!((5..64).contains(&expected.len()), "{}", expected.len());
    let first = read(&mut reader, &filter);
    assert!(first.served_by.is_read(), "{first:?}");
    assert_eq!(by_id(first), expected);
    // The leaf, and the documents whose places are known.
    let again = read(&mut reader, &filter);
    assert_eq!((again.served_by, again.counts.asked), (ServedBy::Read, 0));
    assert_eq!(again.counts.round_trips, 2, "{:?}", again.counts);
    assert_eq!(by_id(again), expected);
    // Documents that were not read before: their buckets come between, and behind some of them another bucket,
    // or a record of the same signature.
    let other = rawdoc! { "kind": "kind3", "price": { "$gte": 20, "$lt": 22 } };
    let found = read(&mut reader, &other);
    assert!(found.served_by.is_read() && found.counts.asked == 0, "{found:?}");
    assert!(found.counts.round_trips <= 7, "{:?}", found.counts);
    assert_eq!(by_id(found), by_id(find(&mut writer, &other, Path::Ask)));
    // None: the root alone is read behind the leaf.
    let none = rawdoc! { "kind": "kind3", "price": 1_000 };
    let found = read(&mut reader, &none);
    assert!(found.served_by.is_read() && found.documents.is_empty());
    assert!(found.counts.round_trips <= 3, "{:?}", found.counts);
    // Without bounds the owner is asked.
    let whole = find(&mut reader, &rawdoc! { "code": "c7" }, Path::Read);
    assert_eq!(whole.served_by, ServedBy::Asked);
    assert_eq!(by_id(whole), by_id(find(&mut writer, &rawdoc! { "code": "c7" }, Path::Ask)));
}

#[test]
fn a_change_of_the_indexes_is_seen_before_what_it_changes() {
    let server = server();
    let (mut writer, mut reader) = (session(&server), session(&server));
    let all: Vec<_> = (0..200).map(|id| rawdoc! { "_id": id, "a": id % 10 }).collect();
    insert(&mut writer, &all);
    index(&mut writer, &rawdoc! { "key": { "a": 1 }, "name": "a_1" });
    let between = rawdoc! { "a": { "$gt": 4, "$lt": 6 } };
    let found = read(&mut reader, &between);
    assert!(found.served_by.is_read());
    assert_eq!(by_id(found).len(), 20);
    // One value is above the one end, another below the other one.
    insert(&mut writer, &[rawdoc! { "_id": 500, "a": [1, 9] }]);
    let found = read(&mut reader, &between);
    assert!(found.served_by.is_read());
    let found = by_id(found);
    assert!(found.len() == 21 && found.contains_key(&500), "one of two values is missed");
    // It has two values in the range, and is found once.
    insert(&mut writer, &[rawdoc! { "_id": 501, "a": [5, 5.5] }]);
    assert_eq!(by_id(read(&mut reader, &between)).len(), 22);
    // The index goes, and another one comes.
    let mut items = writer.collection("shop", "items").unwrap();
    assert_eq!((items.drop_index("a_1"), items.drop_index("a_1")), (Ok(true), Ok(false)));
    let found = read(&mut reader, &between);
    assert!(!found.served_by.is_read());
    assert_eq!(by_id(found).len(), 22);
    let partial = rawdoc! { "a": { "$gte": 5 } };
    let spec = rawdoc! { "key": { "a": -1 }, "name": "a_1", "partialFilterExpression": partial };
    index(&mut writer, &spec);
    // Neither condition alone implies the other one.
    let found = read(&mut reader, &rawdoc! { "a": { "$gte": 7 } });
    assert_eq!(by_id(found).len(), 61);
    let found = read(&mut reader, &rawdoc! { "a": { "$lt": 7 } });
    assert!(!found.served_by.is_read());
    assert_eq!(by_id(found).len(), 142);
    // Another collection under the name.
    assert!(writer.remove(b"shop.items").unwrap());
    assert_eq!(by_id(read(&mut reader, &between)).len(), 0);
    insert(&mut writer, &[rawdoc! { "_id": 7, "a": 5 }]);
    index(&mut writer, &rawdoc! { "key": { "a": 1 }, "name": "a_1" });
    assert_eq!(by_id(read(&mut reader, &between)).len(), 1);
}

/// Documents of even numbers stay as they are; a writer changes the others, and makes and drops indexes. Readers by
/// each path find all that stay, and of the others none that does not match.
#[test]
fn readers_beside_a_writer_find_all_that_stays() {
    const DOCUMENTS: i32 = 400;
    const ROUNDS: i32 = 900;
    let server = server();
    let over = AtomicBool::new(false);
    let mut random = Random::new(9);
    let all: Vec<_> = (0..DOCUMENTS).map(|id| rich(&mut random, id)).collect();
    let mut writer = session(&server);
    insert(&mut writer, &all);
    let even: Vec<_> = all.iter().step_by(2).cloned().collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (server, over, even) = (&server, &over, &even);
                scope.spawn(move || {
                    let mut session = session(server);
                    let mut random = Random::new(seed);
                    let (mut read, mut found_some) = (0u64, 0u64);
                    while !over.load(Ordering::Relaxed) {
                        let filter = filter(&mut random);
                        let path = if random.one_in(4) { Path::Ask } else { Path::Read };
                        let matcher = Filter::parse(&filter).unwrap();
                        let found = find(&mut session, &filter, path);
                        read += u64::from(found.served_by.is_read());
                        let served_by = found.served_by;
                        let mut stays = BTreeMap::new();
                        for document in found {
                            assert!(matcher.matches(&document), "{}", text(&filter));
                            let id = document.get_i32("_id").unwrap();
                            if id % 2 == 0 {
                                assert!(stays.insert(id, document).is_none(), "{id} twice");
                            }
                        }
                        let wanted = even.iter().filter(|document| matcher.matches(document));
                        let wanted: BTreeMap<i32, _> = wanted
                            .map(|document| (document.get_i32("_id").unwrap(), document.clone()))
                            .collect();
                        assert_eq!(stays, wanted, "{} {served_by:?}", text(&filter));
                        found_some += u64::from(!wanted.is_empty());
                    }
                    (read, found_some)
                })
            })
            .collect();
        let specs = indexes();
        let mut is_there = vec![false; specs.len()];
        for round in 0..ROUNDS {
            let mut items = writer.collection("shop", "items").unwrap();
            if round % 15 == 0 {
                let at = random.below(specs.len());
                is_there[at] = !is_there[at];
                match is_there[at] {
                    false => assert!(items.drop_index(specs[at].get_str("name").unwrap()).unwrap()),
                    true => assert!(items.create_index(&specs[at]).unwrap()),
                }
            }
            let id = 1 + 2 * (random.below(DOCUMENTS as usize / 2) as i32);
            let new = rich(&mut random, id);
            match random.below(3usize) {
                0 => {
                    items.remove_one(&rawdoc! { "_id": id }).unwrap();
                    insert(&mut writer, &[new]);
                }
                _ => drop(items.update_one(&rawdoc! { "_id": id }, &new).unwrap()),
            }
        }
        over.store(true, Ordering::Relaxed);
        let sums = readers.into_iter().map(|reader| reader.join().unwrap());
        let (read, some) = sums.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        assert!(read > 50 && some > 50, "{read} were read, {some} had documents");
    });
}

#[test]
fn clients_over_tcp_find_documents_by_an_index() {
    let server =
        ServerProcess::start(&["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"]);
    let options = Options::default().wake(Wake::Event).timeout(DEADLINE).transport(Transport::Tcp);
    let client = Client::connect(&Address::unix(server.socket()), &options).expect("it runs");
    let mut session = client.session().unwrap();
    let mut random = Random::new(2);
    let all: Vec<_> = (0..500).map(|id| rich(&mut random, id)).collect();
    insert(&mut session, &all);
    indexes().iter().for_each(|spec| index(&mut session, spec));
    for _ in 0..60 {
        let filter = filter(&mut random);
        let asked = by_id(find(&mut session, &filter, Path::Ask));
        let read = by_id(find(&mut session, &filter, Path::Read));
        assert_eq!(read, asked, "{}", text(&filter));
    }
    let long = rawdoc! { "_id": 900, "kind": "long", "a": "a".repeat(5 << 20) };
    insert(&mut session, std::slice::from_ref(&long));
    for path in [Path::Ask, Path::Read] {
        let found = find(&mut session, &rawdoc! { "kind": "long" }, path);
        assert!(found.documents == [long.clone()], "by {path:?}");
    }
}
