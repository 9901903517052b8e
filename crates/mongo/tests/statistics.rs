//! Numbers about collections and databases.

use crate::shards::Client;
use bson::{Bson, doc};

#[test]
fn a_database_has_the_numbers_of_its_collections() {
    let mut client = Client::new();
    client.collection("c", (0..3).map(|at| doc! { "_id": at }));
    client.collection("d", (0..2).map(|at| doc! { "_id": at }));
    client.collections.insert("other.e".to_owned(), vec![doc! { "_id": 1 }]);
    for one in [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0)] {
        let reply = client.run(doc! { "dbStats": one.clone() }).unwrap();
        let number = |name: &str| reply.get_i64(name).unwrap();
        assert_eq!(reply.get_str("db").unwrap(), "db");
        assert_eq!((number("collections"), number("objects"), number("indexes")), (2, 5, 4));
        let sizes = (number("dataSize"), number("storageSize"), number("indexSize"));
        assert_eq!(sizes, (5 * 14, 2 * 5 * 14, 240), "{one}");
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    }
    let scaled = client.run(doc! { "dbStats": 1, "scale": 10 }).unwrap();
    assert_eq!(scaled.get_i64("dataSize").unwrap(), 7);
    for other in [Bson::Int32(2), Bson::Double(1.5)] {
        assert_eq!(client.code(doc! { "dbStats": other }), 2);
    }
}
