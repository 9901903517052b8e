//! Queries whose shards answer in steps: the reply is the same wherever the steps end.

use crate::shards::{Client, batch};
use bson::{Bson, Document, doc};
use remora_frontend::OwnedReply;
use remora_protocol::message::Status;

/// The documents of a query, by all its batches.
fn all(client: &mut Client, command: Document) -> Vec<Document> {
    let (mut found, mut id) = batch(&client.run(command).unwrap());
    while id != 0 {
        let more = doc! { "getMore": id, "collection": "c", "batchSize": 2 };
        let (some, next) = batch(&client.run(more).unwrap());
        found.extend(some);
        id = next;
    }
    found
}

fn ids(found: &[Document]) -> Vec<i32> {
    found.iter().map(|of| of.get_i32("_id").unwrap()).collect()
}

fn client(step: usize) -> Client {
    let mut client = Client::new();
    client.step = step;
    client.collection("c", (0..20).map(|at| doc! { "_id": at, "a": (at * 7) % 20, "b": at % 3 }));
    client
}

#[test]
fn steps_change_nothing() {
    for step in [1, 2, 3, 7, 50] {
        let mut client = client(step);
        for size in [0, 1, 4, 100] {
            let query = |more: Document| {
                let mut command = doc! { "find": "c", "batchSize": size };
                command.extend(more);
                command
            };
            let found = all(&mut client, query(doc! { "filter": { "b": 1 } }));
            assert_eq!(ids(&found), [1, 4, 7, 10, 13, 16, 19]);
            let found = all(&mut client, query(doc! { "skip": 3, "limit": 4 }));
            assert_eq!(ids(&found), [3, 4, 5, 6]);
            let sorted = query(doc! { "sort": { "a": -1 }, "skip": 1, "limit": 3 });
            let a: Vec<i32> =
                all(&mut client, sorted).iter().map(|of| of.get_i32("a").unwrap()).collect();
            assert_eq!(a, [18, 17, 16]);
            let projected = query(doc! { "projection": { "_id": 1 }, "limit": 1 });
            assert_eq!(all(&mut client, projected), [doc! { "_id": 0 }]);
        }
        let count = doc! { "count": "c", "query": { "b": 1 } };
        assert_eq!(client.run(count).unwrap().get_i32("n").ok(), Some(7));
        let count = doc! { "count": "c", "skip": 18, "limit": 5 };
        assert_eq!(client.run(count).unwrap().get_i32("n").ok(), Some(2));
        let mut values = client.run(doc! { "distinct": "c", "key": "b" }).unwrap();
        let Some(Bson::Array(values)) = values.remove("values") else { panic!() };
        assert_eq!(values, [Bson::Int32(0), Bson::Int32(1), Bson::Int32(2)]);
    }
}

#[test]
fn no_more_is_asked_than_is_wanted() {
    let mut client = client(1);
    all(&mut client, doc! { "find": "c", "limit": 2 });
    assert_eq!(client.asked.len(), 2);
    client.asked.clear();
    let pipeline = vec![
        doc! { "$match": { "b": { "$gte": 0 } } },
        doc! { "$project": { "a": 1 } },
        doc! { "$limit": 3 },
    ];
    let found = all(&mut client, doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
    assert_eq!(found.len(), 3);
    assert!(client.asked.len() <= 4, "{:?}", client.asked);
}

#[test]
fn a_sorted_search_tells_its_limit() {
    for (is_sorted, step) in [(true, 100), (true, 2), (false, 100), (false, 2)] {
        let mut client = client(step);
        client.is_sorted = is_sorted;
        let command = doc! { "find": "c", "sort": { "_id": 1 }, "skip": 1, "limit": 4 };
        let limits = |client: &Client| -> Vec<Option<i64>> {
            let of = |asked: &String| {
                let number = asked.split_once("\"limit\": ")?.1;
                number.split([' ', ',', '}']).next()?.parse().ok()
            };
            client.asked.iter().map(of).collect()
        };
        assert_eq!(ids(&all(&mut client, command.clone())), [1, 2, 3, 4], "{is_sorted} {step}");
        let asked = limits(&client);
        // The plan depends on it, so it is in the first question.
        assert_eq!(asked[0], Some(5), "{:?}", client.asked);
        match is_sorted {
            true => {
                assert_eq!(asked.len(), 5_usize.div_ceil(step));
                assert!(asked.iter().all(Option::is_some), "{asked:?}");
            }
            // All have to be seen. A limit would only make steps short.
            false => assert!(asked[1..].iter().all(Option::is_none), "{asked:?}"),
        }
        // Explaining asks for the same plan.
        for verbosity in ["queryPlanner", "executionStats"] {
            client.asked.clear();
            let explain = doc! { "explain": command.clone(), "verbosity": verbosity };
            client.run(explain).unwrap();
            assert_eq!(limits(&client)[0], Some(5), "{:?}", client.asked);
        }
    }
    // What comes in another order is sorted, wherever the limit ends the first step.
    let mut client = client(3);
    let last = doc! { "find": "c", "sort": { "_id": -1 }, "limit": 2 };
    assert_eq!(ids(&all(&mut client, last)), [19, 18]);
    let explain =
        doc! { "explain": { "find": "c", "sort": { "a": 1 } }, "verbosity": "queryPlanner" };
    client.asked.clear();
    client.run(explain).unwrap();
    assert_eq!(client.asked.len(), 1);
    assert!(!client.asked[0].contains("limit"), "{:?}", client.asked);
}

#[test]
fn lookups_nest() {
    for step in [1, 2, 5] {
        let mut client = client(step);
        client.collection("d", (0..6).map(|at| doc! { "_id": at, "b": at % 3, "e": at }));
        client.collection("e", (0..6).map(|at| doc! { "_id": 10 * at, "of": at }));
        let inner = vec![
            doc! { "$match": { "$expr": { "$eq": ["$b", "$$b"] } } },
            doc! { "$lookup": { "from": "e", "localField": "e", "foreignField": "of", "as": "es" } },
            doc! { "$project": { "es": "$es._id" } },
        ];
        let pipeline = vec![
            doc! { "$match": { "_id": { "$lt": 4 } } },
            doc! { "$lookup": { "from": "d", "let": { "b": "$b" }, "pipeline": inner, "as": "ds" } },
            doc! { "$project": { "ds": 1 } },
        ];
        let found = all(
            &mut client,
            doc! { "aggregate": "c", "pipeline": pipeline, "cursor": { "batchSize": 1 } },
        );
        let wanted: Vec<Document> = (0..4)
            .map(|at| {
                let b = at % 3;
                let ds = vec![
                    doc! { "_id": b, "es": [10 * b] },
                    doc! { "_id": b + 3, "es": [10 * (b + 3)] },
                ];
                doc! { "_id": at, "ds": ds }
            })
            .collect();
        assert_eq!(found, wanted);
    }
}

#[test]
fn other_collections_follow() {
    let mut client = client(4);
    client.collection("d", (30..33).map(|at| doc! { "_id": at }));
    let pipeline = vec![
        doc! { "$match": { "_id": { "$lt": 2 } } },
        doc! { "$project": { "_id": 1 } },
        doc! { "$unionWith": "d" },
    ];
    let found = all(&mut client, doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
    assert_eq!(ids(&found), [0, 1, 30, 31, 32]);
    let links = vec![
        doc! { "$match": { "_id": 1 } },
        doc! { "$graphLookup": { "from": "c", "startWith": "$a", "connectFromField": "a",
        "connectToField": "_id", "as": "way" } },
        doc! { "$unwind": "$way" },
        doc! { "$replaceRoot": { "newRoot": "$way" } },
    ];
    let found = all(&mut client, doc! { "aggregate": "c", "pipeline": links, "cursor": {} });
    let mut way = ids(&found);
    way.sort_unstable();
    // 7 times each, without the remainder by 20.
    assert_eq!(way, [1, 3, 7, 9]);
}

#[test]
fn long_work_is_done_in_turns() {
    let mut client = Client::new();
    client.step = 200;
    client.collection(
        "c",
        (0..200).map(|at| doc! { "_id": at, "all": (0..50).collect::<Vec<i32>>() }),
    );
    let pipeline = vec![doc! { "$unwind": "$all" }, doc! { "$count": "n" }];
    let found = all(&mut client, doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
    assert_eq!(found, [doc! { "n": 10_000 }]);
    assert!(client.yields > 1, "{}", client.yields);
}

#[test]
fn inserts_give_ids_and_go_in_steps() {
    let mut client = Client::new();
    let documents: Vec<Document> = (0..2_500).map(|at| doc! { "a": at }).collect();
    let reply = client.run(doc! { "insert": "c", "documents": documents }).unwrap();
    assert_eq!(reply.get_i32("n").ok(), Some(2_500));
    assert!(client.asked.len() > 1);
    let ids: std::collections::BTreeSet<_> =
        client.collections["db.c"].iter().map(|of| of.get_object_id("_id").unwrap()).collect();
    assert_eq!(ids.len(), 2_500);
    assert!(client.collections["db.c"].iter().all(|of| of.keys().next().unwrap() == "_id"));
    assert_eq!(client.code(doc! { "insert": "c", "documents": [] }), 16);
    let wrong = doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": [1] }, { "_id": 2 }] };
    let reply = client.run(wrong.clone()).unwrap();
    let errors = reply.get_array("writeErrors").map(Vec::len);
    assert_eq!((reply.get_i32("n").ok(), errors.ok()), (Some(1), Some(1)));
    let mut unordered = wrong;
    unordered.insert("ordered", false);
    assert_eq!(client.run(unordered).unwrap().get_i32("n").ok(), Some(2));
}

#[test]
fn refusals_of_shards_are_errors_of_mongodb() {
    let mut client = client(3);
    for (status, code) in [
        (Status::WrongType, 20),
        (Status::OutOfMemory, 146),
        (Status::ReadOnly, 10107),
        (Status::Fenced, 10107),
        (Status::NotKept, 96),
        (Status::Copying, 13435),
        (Status::NoPermission, 13),
        (Status::TryAgain, 12587),
        (Status::Malformed, 1),
    ] {
        client.refusal = Some(OwnedReply::status(status));
        assert_eq!(client.code(doc! { "find": "c" }), code, "{status:?}");
        assert_eq!(client.code(doc! { "count": "c" }), code, "{status:?}");
    }
    let text = Some(b"a text".to_vec());
    let told = OwnedReply { number: 11_000, value: text, ..OwnedReply::status(Status::Refused) };
    client.refusal = Some(told);
    let error = client.run(doc! { "find": "c" }).unwrap_err();
    assert_eq!((error.number, &error.message[..]), (11_000, "a text"));
}

#[test]
fn answers_without_sense_are_errors() {
    let mut client = client(3);
    for value in [None, Some(vec![]), Some(vec![1, 2, 3]), Some(vec![0xff; 40])] {
        client.refusal = Some(OwnedReply { number: 1, value, ..OwnedReply::status(Status::Ok) });
        assert_eq!(client.code(doc! { "find": "c" }), 1);
    }
}

/// The shard here has one ring, which has everything.
#[test]
fn documents_come_by_their_distance() {
    let mut client = Client::new();
    client.step = 2;
    client.collection("c", (0..6).map(|at| doc! { "_id": at, "at": [(at * 5) % 6, 0] }));
    let near = |x: i32| doc! { "at": { "$near": [x, 0] } };
    let found = all(&mut client, doc! { "find": "c", "filter": near(0) });
    assert_eq!(ids(&found), [0, 5, 4, 3, 2, 1]);
    let found = all(&mut client, doc! { "find": "c", "filter": near(9), "skip": 1, "limit": 2 });
    assert_eq!(ids(&found), [2, 3]);
    let sorted = doc! { "find": "c", "filter": near(0), "sort": { "_id": -1 }, "limit": 2 };
    assert_eq!(ids(&all(&mut client, sorted)), [5, 4]);
    let distinct = client.run(doc! { "distinct": "c", "key": "_id", "query": near(0) }).unwrap();
    assert_eq!(distinct.get_array("values").unwrap().len(), 6);

    let stage = doc! { "near": [0, 0], "distanceField": "far", "key": "at", "query": { "_id": { "$ne": 4 } },
    "distanceMultiplier": 10, "includeLocs": "place" };
    let pipeline = vec![doc! { "$geoNear": stage }, doc! { "$match": { "far": { "$gt": 0 } } }];
    let found = all(&mut client, doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
    assert_eq!(ids(&found), [5, 3, 2, 1]);
    let nearest = doc! { "_id": 5, "at": [1, 0], "far": 10.0, "place": [1, 0] };
    assert_eq!(found[0], nearest);
}

#[test]
fn regions_need_no_index() {
    let mut client = Client::new();
    client.step = 2;
    client.collection("c", (0..4).map(|at| doc! { "_id": at, "at": [at, 0] }));
    let region = doc! { "at": { "$geoWithin": { "$box": [[1, 0], [2, 1]] } } };
    let found = all(&mut client, doc! { "find": "c", "filter": region.clone() });
    assert_eq!(ids(&found), [1, 2]);
    let count = client.run(doc! { "count": "c", "query": region }).unwrap();
    assert_eq!(count.get_i32("n").ok(), Some(2));
}
