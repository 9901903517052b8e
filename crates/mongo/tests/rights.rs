//! What commands tell a user with few rights.

use crate::shards::{Client, batch};
use bson::{Document, doc};

/// A user that may not ask for `db.d` and `other.e`.
fn client() -> Client {
    let mut client = Client::new();
    client.user = Some(b"ann".to_vec());
    for key in ["db.c", "db.d", "other.e", "third.f"] {
        client.collections.insert(key.to_owned(), vec![doc! { "_id": 1 }]);
    }
    client.denied = vec!["doc.info db.d".to_owned(), "doc.info other.e".to_owned()];
    client
}

fn names(reply: &Document) -> Vec<String> {
    let name = |of: &Document| of.get_str("name").unwrap().to_owned();
    match reply.get_array("databases") {
        Ok(all) => all.iter().map(|of| name(of.as_document().unwrap())).collect(),
        Err(_) => batch(reply).0.iter().map(name).collect(),
    }
}

#[test]
fn lists_of_collections_need_the_right_to_each_or_leave_it_out() {
    let mut client = client();
    for refused in [
        doc! { "listCollections": 1 },
        doc! { "listCollections": 1, "nameOnly": true },
        doc! { "listCollections": 1, "authorizedCollections": true },
    ] {
        assert_eq!(client.code(refused), 13);
    }
    let own = doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true };
    assert_eq!(names(&client.run(own).unwrap()), ["c"]);
    client.denied.clear();
    assert_eq!(names(&client.run(doc! { "listCollections": 1 }).unwrap()), ["c", "d"]);
}

#[test]
fn lists_of_databases_leave_out_what_the_user_may_not_see() {
    let mut client = client();
    for name_only in [false, true] {
        let list = doc! { "listDatabases": 1, "nameOnly": name_only, "$db": "admin" };
        assert_eq!(names(&client.run(list.clone()).unwrap()), ["db", "third"]);
        let mut all = list;
        all.insert("authorizedDatabases", false);
        assert_eq!(client.code(all.clone()), 13);
        all.insert("authorizedDatabases", true);
        assert_eq!(names(&client.run(all).unwrap()), ["db", "third"]);
    }
}

#[test]
fn numbers_of_a_database_need_the_right_to_each_collection() {
    let mut client = client();
    let error = client.run(doc! { "dbStats": 1 }).unwrap_err();
    assert_eq!(error.number, 13);
    assert!(!error.message.contains("db.d"), "{}", error.message);
    let third = client.run(doc! { "dbStats": 1, "$db": "third" }).unwrap();
    assert_eq!(third.get_i64("collections").unwrap(), 1);
}

#[test]
fn a_database_is_removed_as_a_whole_or_not_at_all() {
    let mut client = client();
    client.denied = vec!["del db.d".to_owned()];
    assert_eq!(client.code(doc! { "dropDatabase": 1 }), 13);
    assert!(client.asked.is_empty(), "{:?}", client.asked);
}

#[test]
fn a_document_is_given_to_users_that_may_find_it() {
    let mut client = client();
    let command = doc! { "findAndModify": "c", "query": {}, "remove": true };
    client.denied = vec!["doc.find db.c".to_owned()];
    assert_eq!(client.code(command), 13);
    assert!(client.asked.is_empty(), "{:?}", client.asked);
}
