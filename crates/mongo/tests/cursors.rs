//! Cursors: their bounds, their ends, and which clients may use them.

use crate::shards::{Client, batch};
use bson::{Bson, Document, doc};
use remora_frontend::OwnedReply;
use remora_layout::limits::{CURSOR_IDLE_MS, MAX_CURSORS};
use remora_protocol::message::Status;

fn numbered(count: i32) -> impl Iterator<Item = Document> {
    (0..count).map(|at| doc! { "_id": at })
}

fn client(documents: i32) -> Client {
    let mut client = Client::new();
    client.collection("c", numbered(documents));
    client
}

fn open(client: &mut Client) -> i64 {
    let reply = client.run(doc! { "find": "c", "batchSize": 2 }).unwrap();
    let (found, id) = batch(&reply);
    assert_eq!(found.len(), 2);
    assert!(id > 0);
    id
}

fn get_more(id: i64) -> Document {
    doc! { "getMore": id, "collection": "c", "batchSize": 2 }
}

#[test]
fn batches_give_each_document_once() {
    for step in 1..12 {
        let mut client = client(11);
        client.step = step;
        let mut id = open(&mut client);
        let mut found = 2;
        while id != 0 {
            let (some, next) = batch(&client.run(get_more(id)).unwrap());
            for (at, document) in some.iter().enumerate() {
                assert_eq!(document.get_i32("_id").ok(), Some(found + at as i32));
            }
            found += some.len() as i32;
            assert!(next == 0 || next == id);
            id = next;
        }
        assert_eq!(found, 11);
        assert!(client.server.cursors().is_empty());
    }
}

#[test]
fn a_whole_result_has_no_cursor() {
    let mut client = client(7);
    for command in [
        doc! { "find": "c" },
        doc! { "find": "c", "batchSize": 2, "singleBatch": true },
        doc! { "find": "c", "limit": -3 },
        doc! { "find": "c", "limit": 3, "batchSize": 9 },
        doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
    ] {
        assert_eq!(batch(&client.run(command).unwrap()).1, 0);
    }
    let reply = client.run(doc! { "find": "c", "batchSize": 0 }).unwrap();
    let (found, id) = batch(&reply);
    assert!(found.is_empty() && id != 0, "an empty first batch is one that asks nothing");
    let whole = doc! { "getMore": id, "collection": "c" };
    assert_eq!(batch(&client.run(whole).unwrap()).0.len(), 7);
}

#[test]
fn an_idle_cursor_ends_unless_it_may_not() {
    let mut client = client(9);
    let idle = open(&mut client);
    let patient = doc! { "find": "c", "batchSize": 2, "noCursorTimeout": true };
    let patient = batch(&client.run(patient).unwrap()).1;
    client.now_ms += CURSOR_IDLE_MS;
    let used = open(&mut client);
    assert_eq!(client.server.cursors().len(), 3);
    client.now_ms += 1;
    let another = open(&mut client);
    assert_eq!(client.server.cursors().timed_out, 1);
    assert_eq!(client.code(get_more(idle)), 43);
    for id in [patient, used, another] {
        assert!(client.run(get_more(id)).is_ok());
    }
}

#[test]
fn a_cursor_belongs_to_its_user_and_namespace() {
    let mut client = client(9);
    client.user = Some(b"ann".to_vec());
    let id = open(&mut client);
    let elsewhere = doc! { "getMore": id, "collection": "d" };
    assert_eq!(client.code(elsewhere), 13);
    client.user = Some(b"bob".to_vec());
    assert_eq!(client.code(get_more(id)), 43);
    let kill = doc! { "killCursors": "c", "cursors": [id] };
    let reply = client.run(kill.clone()).unwrap();
    assert_eq!(reply.get_array("cursorsNotFound").ok(), Some(&vec![Bson::Int64(id)]));
    client.user = Some(b"ann".to_vec());
    assert!(client.run(get_more(id)).is_ok());
    let reply = client.run(kill).unwrap();
    assert_eq!(reply.get_array("cursorsKilled").ok(), Some(&vec![Bson::Int64(id)]));
    assert_eq!(client.code(get_more(id)), 43);
    assert_eq!(client.server.cursors().bytes(), 0);
}

#[test]
fn one_batch_of_a_cursor_is_made_at_a_time() {
    let mut client = client(30);
    client.user = Some(b"ann".to_vec());
    let id = open(&mut client);
    let waiting = client.begin(doc! { "getMore": id, "collection": "c" }).unwrap();
    let waiting = waiting.expect_err("it has asked its shard");
    assert_eq!(client.code(get_more(id)), 12051);
    // Another user neither sees nor ends it.
    client.user = Some(b"bob".to_vec());
    assert_eq!(client.code(get_more(id)), 43);
    let kill = doc! { "killCursors": "c", "cursors": [id] };
    let reply = client.run(kill.clone()).unwrap();
    assert_eq!(reply.get_array("cursorsNotFound").map(Vec::len).ok(), Some(1));
    client.user = Some(b"ann".to_vec());
    assert_eq!(batch(&client.finish(waiting).unwrap()).0.len(), 28);
    // A batch whose client is gone ends the cursor.
    let id = open(&mut client);
    drop(client.begin(doc! { "getMore": id, "collection": "c" }).unwrap());
    assert_eq!(client.code(get_more(id)), 43);
    assert!(client.server.cursors().is_empty());
}

#[test]
fn a_cursor_that_is_killed_during_a_batch_does_not_look_like_one_that_is_over() {
    let mut client = client(30);
    let id = open(&mut client);
    let waiting = client.begin(doc! { "getMore": id, "collection": "c", "batchSize": 9 }).unwrap();
    let waiting = waiting.expect_err("it has asked its shard");
    client.run(doc! { "killCursors": "c", "cursors": [id] }).unwrap();
    assert_eq!(client.finish(waiting).unwrap_err().number, 237);
    assert!(client.server.cursors().is_empty());
}

#[test]
fn a_batch_that_fails_ends_the_cursor() {
    let mut client = client(30);
    let id = open(&mut client);
    client.refusal = Some(OwnedReply::status(Status::NotKept));
    assert_eq!(client.code(doc! { "getMore": id, "collection": "c" }), 96);
    client.refusal = None;
    assert_eq!(client.code(get_more(id)), 43);
}

#[test]
fn cursors_are_bounded() {
    let mut client = client(5);
    for _ in 0..MAX_CURSORS {
        open(&mut client);
    }
    let one_more = doc! { "find": "c", "batchSize": 2 };
    assert_eq!(client.code(one_more.clone()), 146);
    client.now_ms += CURSOR_IDLE_MS + 1;
    assert!(client.run(one_more).is_ok(), "those that nothing asks for make room");
    assert_eq!(client.server.cursors().len(), 1);
}

#[test]
fn what_stages_keep_counts() {
    let mut client = Client::new();
    let long = "x".repeat(10_000);
    client.collection("c", (0..40).map(|at| doc! { "_id": at, "text": long.as_str() }));
    let pipelines: [Vec<Document>; 4] = [
        vec![doc! { "$sort": { "_id": -1 } }, doc! { "$match": {} }],
        vec![doc! { "$limit": 40 }, doc! { "$sort": { "text": 1 } }],
        vec![doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } }],
        vec![
            doc! { "$group": { "_id": null, "all": { "$push": "$text" } } },
            doc! { "$unwind": "$all" },
        ],
    ];
    for pipeline in pipelines {
        let told = format!("{pipeline:?}");
        let command = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": { "batchSize": 1 } };
        let id = batch(&client.run(command).unwrap()).1;
        let bytes = client.server.cursors().bytes();
        assert!(bytes > 300_000, "{told}: {bytes}");
        client.run(doc! { "killCursors": "c", "cursors": [id] }).unwrap();
        assert_eq!(client.server.cursors().bytes(), 0);
    }
}

#[test]
fn what_searches_were_asked_with_counts() {
    let mut client = Client::new();
    client.collection("c", (0..9).map(|at| doc! { "_id": at, "at": [at, 0] }));
    let long = "x".repeat(15_000_000);
    let keys = doc! { "a".repeat(30_000): 1 };
    let near = doc! { "near": [0, 0], "distanceField": "far", "key": "at",
    "query": { "a": { "$ne": "x".repeat(1_000_000) } } };
    let aggregate = |stage: Document| doc! { "aggregate": "c", "pipeline": [stage], "cursor": { "batchSize": 1 } };
    for (command, least) in [
        (doc! { "find": "c", "batchSize": 2, "let": { "a": long } }, 15_000_000),
        (doc! { "find": "c", "batchSize": 2, "sort": keys.clone() }, 20_000),
        (doc! { "find": "c", "batchSize": 2, "hint": keys }, 20_000),
        // The search has the filter with the place, and a copy of it is in the stage.
        (aggregate(doc! { "$geoNear": near }), 2_000_000),
    ] {
        let id = batch(&client.run(command).unwrap()).1;
        assert_ne!(id, 0);
        let bytes = client.server.cursors().bytes();
        assert!(bytes > least, "{bytes} {least}");
        client.run(doc! { "killCursors": "c", "cursors": [id] }).unwrap();
        assert_eq!(client.server.cursors().bytes(), 0);
    }
}

#[test]
fn wrong_numbers() {
    let mut client = client(5);
    assert_eq!(client.code(doc! { "getMore": "x", "collection": "c" }), 14);
    assert_eq!(client.code(doc! { "getMore": 5_i64 }), 40414);
    assert_eq!(client.code(get_more(5)), 43);
    assert_eq!(client.code(doc! { "find": "c", "batchSize": -1 }), 51024);
    assert_eq!(client.code(doc! { "killCursors": "c", "cursors": ["x"] }), 14);
    assert_eq!(client.code(doc! { "killCursors": "c" }), 40414);
}
