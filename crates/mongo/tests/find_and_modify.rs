//! `findAndModify` while others change the same documents.

use crate::shards::Client;
use bson::{Document, doc};
use remora_frontend::OwnedReply;
use remora_protocol::message::Status;

fn told(matched: i64, told: &Document) -> OwnedReply {
    let value = Some(told.to_vec().unwrap());
    OwnedReply { number: matched, value, ..OwnedReply::status(Status::Ok) }
}

#[test]
fn a_race_that_is_lost_again_and_again_is_a_conflict() {
    let command = doc! { "findAndModify": "c", "query": { "a": 0 }, "sort": { "_id": 1 },
    "update": { "$set": { "a": 1 } } };
    let mut client = Client::new();
    client.collection("c", (0..3).map(|at| doc! { "_id": at, "a": 0 }));
    let lost = told(0, &doc! { "modified": 0_i64 });
    client.writes = std::iter::repeat_n(lost.clone(), 100).collect();
    let error = client.run(command.clone()).unwrap_err();
    assert_eq!(error.number, 112, "{error:?}");
    let tries = 100 - client.writes.len();
    assert!(tries > 10, "{tries}");
    // One that is won in between is answered.
    let document = doc! { "_id": 0, "a": 0 };
    let won = told(1, &doc! { "modified": 1_i64, "document": document.clone() });
    client.writes = [lost.clone(), lost, won].into();
    let reply = client.run(command.clone()).unwrap();
    assert_eq!(reply.get_document("value").unwrap(), &document);
    // Nothing that matches is no conflict.
    client.collection("c", []);
    client.writes = [told(0, &doc! { "modified": 0_i64 })].into();
    assert!(client.run(command).unwrap().get("value") == Some(&bson::Bson::Null));
}
