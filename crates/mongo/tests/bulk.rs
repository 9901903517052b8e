//! `bulkWrite`: what is asked of which collection, and what the reply tells of each write.

use crate::shards::{Client, raw};
use bson::{Document, doc};
use remora_frontend::OwnedReply;
use remora_mongo::CommandError;
use remora_protocol::Items;
use remora_protocol::message::Status;

fn bulk(ops: Vec<Document>, more: Document) -> Document {
    let mut command = doc! {
        "bulkWrite": 1, "$db": "admin", "ops": ops, "nsInfo": [{ "ns": "db.a" }, { "ns": "db.b" }],
    };
    command.extend(more);
    command
}

/// What a shard says of a change: documents that matched, and the rest.
fn changed(matched: i64, told: Document) -> OwnedReply {
    let value = Some(raw(&told).into_bytes());
    OwnedReply { number: matched, value, ..OwnedReply::status(Status::Ok) }
}

fn told(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_i64("id").unwrap(), 0);
    assert_eq!(cursor.get_str("ns").unwrap(), "admin.$cmd.bulkWrite");
    let all = cursor.get_array("firstBatch").unwrap();
    all.iter().map(|of| of.as_document().unwrap().clone()).collect()
}

fn totals(reply: &Document) -> [i32; 6] {
    ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"]
        .map(|name| reply.get_i32(name).unwrap())
}

fn all_kinds() -> Vec<Document> {
    vec![
        doc! { "insert": 0, "document": { "_id": 1, "x": 1 } },
        doc! { "update": 1, "filter": { "x": 1 }, "updateMods": { "$set": { "x": 2 } }, "multi": true },
        doc! { "update": 0, "filter": { "_id": 9 }, "updateMods": { "x": 3 }, "upsert": true },
        doc! { "delete": 1, "filter": { "x": { "$lt": 3 } }, "multi": true },
        doc! { "delete": 0, "filter": {} },
    ]
}

fn answers(client: &mut Client) {
    let at = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![7] };
    client.writes.extend([
        // The first update takes two steps.
        changed(3, doc! { "modified": 2, "at": at }),
        changed(1, doc! { "modified": 1 }),
        changed(0, doc! { "modified": 0, "upserted": 9 }),
        changed(4, doc! {}),
        changed(1, doc! {}),
    ]);
}

#[test]
fn each_write_goes_to_its_collection_and_is_told_of() {
    let mut client = Client::new();
    answers(&mut client);
    let reply = client.run(bulk(all_kinds(), doc! {})).unwrap();
    assert_eq!(totals(&reply), [0, 1, 4, 3, 1, 5]);
    let wanted = [
        doc! { "ok": 1.0, "idx": 0, "n": 1 },
        doc! { "ok": 1.0, "idx": 1, "n": 4, "nModified": 3 },
        doc! { "ok": 1.0, "idx": 2, "n": 1, "nModified": 0, "upserted": { "_id": 9 } },
        doc! { "ok": 1.0, "idx": 3, "n": 4 },
        doc! { "ok": 1.0, "idx": 4, "n": 1 },
    ];
    assert_eq!(told(&reply), wanted);
    let keys: Vec<&str> = client.asked.iter().map(|asked| &asked[..4]).collect();
    assert_eq!(keys, ["db.a", "db.b", "db.b", "db.a", "db.b", "db.a"]);
    assert!(client.asked[4].contains("\"multi\": true"), "{}", client.asked[4]);
    assert!(client.asked[5].contains("\"multi\": false"), "{}", client.asked[5]);
    client.collections.clear();
    answers(&mut client);
    let reply = client.run(bulk(all_kinds(), doc! { "errorsOnly": true })).unwrap();
    assert_eq!((told(&reply), totals(&reply)), (vec![], [0, 1, 4, 3, 1, 5]));
}

#[test]
fn an_error_ends_ordered_writes_and_no_others() {
    let error =
        doc! { "error": { "code": 11000, "errmsg": "E11000 duplicate", "keyValue": { "x": 1 } } };
    for (ordered, wanted) in [(true, [1, 1, 2, 2, 0, 0]), (false, [1, 1, 2, 2, 1, 5])] {
        let mut client = Client::new();
        answers(&mut client);
        client.writes[0] = changed(2, {
            let mut told = doc! { "modified": 2 };
            told.extend(error.clone());
            told
        });
        client.writes.remove(1);
        let reply = client.run(bulk(all_kinds(), doc! { "ordered": ordered })).unwrap();
        assert_eq!(totals(&reply), wanted);
        let told = told(&reply);
        assert_eq!(told.len(), if ordered { 2 } else { 5 });
        let failed = doc! {
            "ok": 0.0, "idx": 1, "code": 11000, "errmsg": "E11000 duplicate", "keyValue": { "x": 1 }, "n": 0,
        };
        assert_eq!(told[1], failed);
    }
}

#[test]
fn an_insertion_that_fails_is_told_of() {
    let mut client = Client::new();
    let mut list = Vec::new();
    let failure = doc! { "index": 0, "code": 11000, "errmsg": "E11000 duplicate" };
    Items::push(&mut list, raw(&failure).as_bytes());
    client.refusal = Some(OwnedReply { value: Some(list), ..OwnedReply::status(Status::Ok) });
    let ops =
        vec![doc! { "insert": 0, "document": {} }, doc! { "insert": 1, "document": { "_id": [] } }];
    let reply = client.run(bulk(ops, doc! { "ordered": false })).unwrap();
    assert_eq!(totals(&reply), [2, 0, 0, 0, 0, 0]);
    let told = told(&reply);
    let of = |name: &str| told.iter().map(|of| of.get_i32(name).unwrap()).collect::<Vec<_>>();
    assert_eq!(of("idx"), [0, 1]);
    assert_eq!(of("code"), [11000, 53], "the second one has an array as its `_id`: it is not sent");
}

#[test]
fn what_is_malformed_refuses_all_of_it() {
    let refused = |client: &mut Client, op: Document| {
        let ops = vec![doc! { "insert": 0, "document": {} }, op];
        client.code(bulk(ops, doc! {}))
    };
    let mut client = Client::new();
    for (op, code) in [
        (doc! { "insert": 2, "document": {} }, 2),
        (doc! { "insert": -1, "document": {} }, 14),
        (doc! { "insert": "a", "document": {} }, 14),
        (doc! { "insert": 0 }, 40_414),
        (doc! { "insert": 0, "document": {}, "multi": true }, 40_415),
        (doc! { "replace": 0, "filter": {} }, 40_415),
        (doc! {}, 40_415),
        (doc! { "update": 0, "filter": {} }, 40_414),
        (doc! { "update": 0, "updateMods": {} }, 40_414),
        (doc! { "delete": 0 }, 40_414),
        (doc! { "delete": 0, "filter": 1 }, 14),
    ] {
        assert_eq!(refused(&mut client, op.clone()), code, "{op}");
    }
    assert!(client.asked.is_empty(), "nothing was changed: {:?}", client.asked);
    assert_eq!(client.code(bulk(vec![], doc! {})), 16, "no writes");
    assert_eq!(client.code(bulk(all_kinds(), doc! { "$db": "db" })), 13);
    assert_eq!(client.code(bulk(all_kinds(), doc! { "nsInfo": [{ "ns": "a" }] })), 73);
    assert_eq!(client.code(bulk(all_kinds(), doc! { "nsInfo": [{}] })), 40_414);
    assert_eq!(client.code(bulk(all_kinds(), doc! { "bypassDocumentValidation": true })), 72);
    let many = vec![doc! { "ns": "db.a" }; 1025];
    assert_eq!(client.code(bulk(all_kinds(), doc! { "nsInfo": many })), 2);
}

/// A refusal of the whole server is no failure of one write.
#[test]
fn a_server_that_takes_no_writes_refuses_the_command() {
    let mut client = Client::new();
    client.refusal = Some(OwnedReply::status(Status::ReadOnly));
    let error: CommandError = client.run(bulk(all_kinds(), doc! {})).unwrap_err();
    assert_eq!(error.number, 10_107);
}

/// Texts of failures end where they would make the reply too long; their codes do not.
#[test]
fn many_failures_fit_into_a_reply() {
    let mut client = Client::new();
    let text = "x".repeat(4096);
    let ops = vec![doc! { "delete": 0, "filter": {} }; 3000];
    let told_each = doc! { "error": { "code": 2, "errmsg": text } };
    client.writes.extend((0..3000).map(|_| changed(0, told_each.clone())));
    let reply = client.run(bulk(ops, doc! { "ordered": false })).unwrap();
    let told = told(&reply);
    assert_eq!(told.len(), 3000);
    assert!(told.iter().all(|of| of.get_i32("code").unwrap() == 2));
    assert!(reply.to_vec().unwrap().len() < 8 << 20);
    assert_eq!(told[0].get_str("errmsg").unwrap().len(), 4096);
    assert_eq!(told[2999].get_str("errmsg").unwrap(), "");
}
