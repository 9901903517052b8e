//! Documents found by clients: by READs and asked, the same bytes; beside a writer; large ones; what is
//! not there; searches and changes in steps.

use remora_client::bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use remora_client::bson::{Binary, oid::ObjectId, rawdoc, spec::BinarySubtype};
use remora_client::{
    Address, Client, Error, FoundDocuments, KeyType, Options, Path, Refusal, ServedBy, Session,
    Wake,
};
use remora_tests::{DEADLINE, Random, ServerProcess};
use std::sync::atomic::{AtomicBool, Ordering};

const PATHS: [Path; 3] = [Path::Ask, Path::Read, Path::Choose];

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=256MiB"])
}

fn session(server: &ServerProcess) -> Session {
    let options = Options::default().wake(Wake::Event).timeout(DEADLINE);
    Session::connect(&Address::unix(server.socket()), &options).expect("it runs")
}

/// What a find by READs gives while the read lease holds, which lapses while a thread does not run.
fn read(session: &mut Session, id: &RawBson) -> (Option<Vec<u8>>, ServedBy, u64, u64) {
    let tried = (0..1000).find_map(|_| {
        let handle = session.collection("shop", "items").unwrap().by(Path::Read);
        let got = handle.find_by_id(id).unwrap();
        let counts = got.counts;
        let told = (got.value.map(<[u8]>::to_vec), got.served_by, counts.round_trips, counts.asked);
        (counts.read_lease_lapsed == 0).then_some(told)
    });
    tried.expect("a read while the lease holds")
}

fn insert(session: &mut Session, documents: &[RawDocumentBuf]) {
    for some in documents.chunks(100) {
        let some: Vec<&RawDocument> = some.iter().map(|document| &**document).collect();
        session.collection("shop", "items").unwrap().insert(&some).unwrap();
    }
}

fn documents(found: Result<FoundDocuments, Error>) -> Vec<RawDocumentBuf> {
    found.expect("a search that is answered").documents
}

fn ids() -> Vec<RawBson> {
    let numbers = (0..400).map(RawBson::Int32);
    let others = [
        RawBson::String("a".to_owned()),
        RawBson::String(String::new()),
        RawBson::String("x".repeat(500)),
        RawBson::ObjectId(ObjectId::from_bytes([7; 12])),
        RawBson::Double(0.5),
        RawBson::Int64(1 << 60),
        RawBson::Boolean(true),
        RawBson::Null,
        RawBson::Document(rawdoc! { "a": 1, "b": "c" }),
        RawBson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 1, 255] }),
    ];
    numbers.chain(others).collect()
}

#[test]
fn a_document_is_found_by_its_id_by_every_path_with_the_same_bytes() {
    let server = server();
    let mut session = session(&server);
    let all: Vec<(RawBson, RawDocumentBuf)> = ids()
        .into_iter()
        .enumerate()
        .map(|(at, id)| {
            (id.clone(), rawdoc! { "_id": id, "at": at as i32, "tags": ["a", { "b": 1.5 }] })
        })
        .collect();
    insert(&mut session, &all.iter().map(|(_, document)| document.clone()).collect::<Vec<_>>());
    assert_eq!(session.key_type(b"shop.items"), Ok(Some(KeyType::Collection)));
    for (id, document) in &all {
        for path in PATHS {
            let handle = session.collection("shop", "items").unwrap().by(path);
            let got = handle.find_by_id(id).unwrap();
            assert_eq!(got.value, Some(document.as_bytes()), "{id:?} by {path:?}");
            assert!(path != Path::Ask || got.served_by == ServedBy::Asked);
        }
        // From now on it is one round trip, and no message.
        let asked = session.counts().asked;
        let (value, served_by, round_trips, asks) = read(&mut session, id);
        assert_eq!(value.as_deref(), Some(document.as_bytes()));
        assert!(matches!(served_by, ServedBy::Read | ServedBy::ReadAfter(_)), "{served_by:?}");
        assert_eq!((round_trips, asks), (1, 0));
        assert!(session.counts().read_lease_lapsed > 0 || session.counts().asked == asked);
    }
    // Equal numbers are one `_id`.
    let (_, seven) = &all[7];
    for id in [RawBson::Int64(7), RawBson::Double(7.0)] {
        assert_eq!(read(&mut session, &id).0.as_deref(), Some(seven.as_bytes()));
    }
}

#[test]
fn the_first_read_walks_and_sends_no_message() {
    let server = server();
    let mut writer = session(&server);
    let documents: Vec<_> = (0..2_000).map(|at| rawdoc! { "_id": at, "n": at }).collect();
    insert(&mut writer, &documents);
    let mut reader = session(&server);
    for at in (0..2_000).step_by(7) {
        let (value, served_by, round_trips, asked) = read(&mut reader, &RawBson::Int32(at));
        assert_eq!(value.as_deref(), Some(documents[at as usize].as_bytes()));
        assert!(matches!(served_by, ServedBy::Read | ServedBy::ReadAfter(_)), "{served_by:?}");
        // Bucket and record of the collection, header page, bucket and record of the document.
        assert!(round_trips <= 5 && asked == 0, "{round_trips} round trips, {asked} asked");
    }
    let counts = reader.counts();
    assert!(counts.asked <= counts.read_lease_lapsed, "{counts:?}");
}

#[test]
fn what_is_not_there_is_none_by_every_path_and_other_types_are_refused() {
    let server = server();
    let mut session = session(&server);
    let find = |session: &mut Session, id: &RawBson, path: Path| {
        let handle = session.collection("shop", "items").unwrap().by(path);
        handle.find_by_id(id).map(|got| got.value.map(<[u8]>::to_vec))
    };
    let impossible = [
        RawBson::Array([2, 3].into_iter().collect()),
        RawBson::String("x".repeat(600)),
        RawBson::Document(rawdoc! { "$gt": 0 }),
    ];
    for path in PATHS {
        assert_eq!(find(&mut session, &RawBson::Int32(1), path), Ok(None));
    }
    insert(&mut session, &[rawdoc! { "_id": 2 }, rawdoc! { "_id": 3, "a": [1] }]);
    for path in PATHS {
        assert_eq!(find(&mut session, &RawBson::Int32(1), path), Ok(None));
        for id in &impossible {
            assert_eq!(find(&mut session, id, path), Ok(None), "{id:?}");
        }
        assert!(find(&mut session, &RawBson::Int32(2), path).unwrap().is_some());
    }
    // A document that was removed, and the whole collection.
    session.collection("shop", "items").unwrap().remove_one(&rawdoc! { "_id": 2 }).unwrap();
    for path in PATHS {
        assert_eq!(find(&mut session, &RawBson::Int32(2), path), Ok(None));
    }
    assert!(find(&mut session, &RawBson::Int32(3), Path::Read).unwrap().is_some());
    assert!(session.remove(b"shop.items").unwrap());
    for path in PATHS {
        assert_eq!(find(&mut session, &RawBson::Int32(3), path), Ok(None));
    }
    // A key of another type, in the place of a collection that was known.
    session.set(b"shop.items", b"a string").unwrap();
    for path in PATHS {
        let refused = find(&mut session, &RawBson::Int32(3), path);
        assert_eq!(refused, Err(Error::Refused(Refusal::WrongType)));
    }
    // A new collection under the old name.
    assert!(session.remove(b"shop.items").unwrap());
    insert(&mut session, &[rawdoc! { "_id": 3, "new": true }]);
    for path in PATHS {
        let found = find(&mut session, &RawBson::Int32(3), path).unwrap();
        assert_eq!(found.as_deref(), Some(rawdoc! { "_id": 3, "new": true }.as_bytes()));
    }
    for (database, name) in [("", "a"), ("a.b", "c"), ("a", ""), ("a", "b$c"), ("a", ".b")] {
        assert_eq!(session.collection(database, name).err(), Some(Error::BadNamespace));
    }
}

#[test]
fn documents_of_the_longest_kind_come_by_every_path() {
    let server = server();
    let mut session = session(&server);
    for (id, bytes) in [(1, 1 << 10), (2, 200 << 10), (3, 3 << 20), (4, (16 << 20) - 100)] {
        let bytes: Vec<u8> = (0..bytes).map(|at| (at * 31 + id) as u8).collect();
        let binary = Binary { subtype: BinarySubtype::Generic, bytes };
        let document = rawdoc! { "_id": id, "bytes": binary };
        insert(&mut session, std::slice::from_ref(&document));
        for path in PATHS {
            let handle = session.collection("shop", "items").unwrap().by(path);
            let got = handle.find_by_id(id).unwrap();
            assert!(got.value == Some(document.as_bytes()), "{id} by {path:?}");
        }
        let (value, served_by, ..) = read(&mut session, &RawBson::Int32(id));
        assert!(value.as_deref() == Some(document.as_bytes()));
        assert!(matches!(served_by, ServedBy::Read | ServedBy::ReadAfter(_)), "{served_by:?}");
    }
    // A search gives what fits messages, however many documents of that kind there are.
    let mut items = session.collection("shop", "items").unwrap();
    items.remove_many(&rawdoc! { "_id": { "$gt": 1 } }).unwrap();
    let all: Vec<_> =
        (0..30).map(|at| rawdoc! { "_id": 10 + at, "a": "a".repeat(30_000) }).collect();
    insert(&mut session, &all);
    let mut items = session.collection("shop", "items").unwrap();
    assert!(documents(items.find(&rawdoc! { "_id": { "$gte": 10 } }, 100)) == all);
    // Those that fit none, too.
    let long = [(50, 200_000), (51, 3 << 20), (52, (16 << 20) - 100)];
    let long = long.map(|(id, bytes)| rawdoc! { "_id": id, "a": "a".repeat(bytes) });
    insert(&mut session, &long);
    for path in PATHS {
        let mut items = session.collection("shop", "items").unwrap().by(path);
        let found = items.find(&rawdoc! { "_id": { "$gte": 50 } }, 100);
        assert!(documents(found) == long, "by {path:?}");
        let found = items.find(&rawdoc! { "a": { "$gt": "a".repeat(30_000) } }, 100);
        assert!(documents(found) == long, "by {path:?}");
    }
}

/// What every document of the writer holds: its number twice, and as many bytes as follow from it.
fn version(id: i32, number: i32) -> RawDocumentBuf {
    let pad = "p".repeat(number as usize * 37 % 900);
    rawdoc! { "_id": id, "first": number, "pad": pad, "last": number }
}

/// A writer replaces documents, removes them, and removes the collection; readers by either path see whole
/// documents, and none older than one that they have seen.
#[test]
fn readers_beside_a_writer_see_whole_documents() {
    const DOCUMENTS: i32 = 60;
    const ROUNDS: i32 = 250;
    let server = server();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut session = session(server);
                    let mut random = Random::new(seed);
                    let mut newest = [0; DOCUMENTS as usize];
                    let mut read = 0u64;
                    while !over.load(Ordering::Relaxed) {
                        let id = random.below(DOCUMENTS as usize) as i32;
                        let path = if random.below(4) == 0 { Path::Ask } else { Path::Read };
                        let handle = session.collection("shop", "items").unwrap().by(path);
                        let got = handle.find_by_id(id).unwrap();
                        read +=
                            matches!(got.served_by, ServedBy::Read | ServedBy::ReadAfter(_)) as u64;
                        let Some(bytes) = got.value else { continue };
                        let document = RawDocument::from_bytes(bytes).expect("a document");
                        let number = document.get_i32("last").expect("it has one");
                        assert_eq!(bytes, version(id, number).as_bytes());
                        let before = &mut newest[id as usize];
                        assert!(number >= *before, "{number} after {before} by {path:?}");
                        *before = number;
                    }
                    read
                })
            })
            .collect();
        let mut writer = session(&server);
        for number in 1..=ROUNDS {
            if number % 50 == 1 {
                writer.remove(b"shop.items").unwrap();
                let all: Vec<_> = (0..DOCUMENTS).map(|id| version(id, number)).collect();
                insert(&mut writer, &all);
                continue;
            }
            for id in 0..DOCUMENTS {
                let mut items = writer.collection("shop", "items").unwrap();
                if (id + number) % 13 == 0 {
                    items.remove_one(&rawdoc! { "_id": id }).unwrap();
                    insert(&mut writer, &[version(id, number)]);
                } else {
                    let update = version(id, number);
                    let written = items.update_one(&rawdoc! { "_id": id }, &update).unwrap();
                    assert_eq!((written.matched, written.modified), (1, 1));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        let read: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(read > 100, "{read} were read");
    });
}

#[test]
fn a_session_sees_its_own_writes_by_reads() {
    let server = server();
    let mut session = session(&server);
    for number in 0..300 {
        let update = rawdoc! { "_id": 1, "n": number };
        let mut items = session.collection("shop", "items").unwrap();
        match number {
            0 => items.insert(&[&update]).unwrap(),
            _ => assert_eq!(items.update_one(&rawdoc! { "_id": 1 }, &update).unwrap().modified, 1),
        }
        let handle = session.collection("shop", "items").unwrap().by(Path::Read);
        assert_eq!(handle.find_by_id(1).unwrap().value, Some(update.as_bytes()));
    }
}

#[test]
fn searches_and_changes_of_many_documents_go_in_steps() {
    const DOCUMENTS: i32 = 12_000;
    let server = server();
    let mut session = session(&server);
    let mut items = session.collection("shop", "items").unwrap();
    assert_eq!(documents(items.find(&rawdoc! {}, 10)), []);
    let all: Vec<_> =
        (0..DOCUMENTS).map(|id| rawdoc! { "_id": id, "even": id % 2 == 0, "n": 0 }).collect();
    insert(&mut session, &all);
    let mut items = session.collection("shop", "items").unwrap();
    assert_eq!(documents(items.find(&rawdoc! {}, usize::MAX)), all);
    assert_eq!(documents(items.find(&rawdoc! {}, 7)), all[..7]);
    assert_eq!(documents(items.find(&rawdoc! {}, 0)), []);
    let even = rawdoc! { "even": true };
    assert_eq!(documents(items.find(&even, usize::MAX)).len(), DOCUMENTS as usize / 2);
    let last = rawdoc! { "even": false, "_id": { "$gte": DOCUMENTS - 3 } };
    assert_eq!(documents(items.find(&last, 5)).len(), 2);
    let written = items.update_many(&even, &rawdoc! { "$inc": { "n": 1 } }).unwrap();
    assert_eq!((written.matched, written.modified), (6_000, 6_000));
    assert_eq!(documents(items.find(&rawdoc! { "n": 1 }, usize::MAX)).len(), 6_000);
    assert_eq!(items.remove_many(&even).unwrap().modified, 6_000);
    assert_eq!(documents(items.find(&rawdoc! {}, usize::MAX)).len(), 6_000);
    assert_eq!(items.remove_one(&rawdoc! {}).unwrap().matched, 1);
    // Failures have MongoDB's codes.
    assert_eq!(items.insert(&[&rawdoc! { "_id": 3 }]), Err(Error::Documents { code: 11000 }));
    assert_eq!(items.insert(&[&rawdoc! { "a": 3 }]), Err(Error::Documents { code: 53 }));
    let wrong = items.find(&rawdoc! { "a": { "$wrong": 1 } }, 1).err();
    assert_eq!(wrong, Some(Error::Documents { code: 2 }));
    let wrong = items.update_one(&rawdoc! {}, &rawdoc! { "$set": { "_id": -1 } });
    assert_eq!(wrong, Err(Error::Documents { code: 66 }));
    assert_eq!(items.insert(&[]), Ok(()));
}

#[test]
fn clients_over_tcp_find_documents_by_every_path() {
    let server =
        ServerProcess::start(&["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"]);
    let options = Options::default()
        .wake(Wake::Event)
        .timeout(DEADLINE)
        .transport(remora_client::Transport::Tcp);
    let client = Client::connect(&Address::unix(server.socket()), &options).expect("it runs");
    let mut session = client.session().unwrap();
    let documents: Vec<_> = (0..200).map(|at| rawdoc! { "_id": at, "n": at * 2 }).collect();
    insert(&mut session, &documents);
    for (at, document) in documents.iter().enumerate() {
        for path in PATHS {
            let handle = session.collection("shop", "items").unwrap().by(path);
            let got = handle.find_by_id(at as i32).unwrap();
            assert_eq!(got.value, Some(document.as_bytes()));
        }
    }
}
