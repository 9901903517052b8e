//! Fields that any command may have: what is taken is kept to, and all else is an error.

use crate::shards::Client;
use bson::{Bson, Document, doc};
use remora_mongo::Command;
use remora_mongo::commands::COMMANDS;
use remora_mongo::fields::Common;
use remora_mongo::running::MongoServer;
use std::sync::Arc;

fn with(field: &str, value: impl Into<Bson>) -> Document {
    let mut command = doc! { "find": "c" };
    command.insert(field, value);
    command
}

#[test]
fn an_unknown_field_is_an_error_of_every_command() {
    let mut client = Client::new();
    for spec in COMMANDS.iter().copied().flatten() {
        for name in spec.names {
            let mut command = doc! { *name: "c" };
            command.insert("surprise", 1);
            assert_eq!(client.code(command), 40415, "{name}");
        }
    }
}

#[test]
fn a_command_has_one_line_in_the_table() {
    let all: Vec<&str> =
        COMMANDS.iter().copied().flatten().flat_map(|spec| spec.names).copied().collect();
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
    for spec in COMMANDS.iter().copied().flatten() {
        assert!(spec.summary.ends_with('.'), "{:?}", spec.names);
        let fields: std::collections::BTreeSet<_> = spec.fields.iter().collect();
        assert_eq!(fields.len(), spec.fields.len(), "{:?}", spec.names);
    }
}

#[test]
fn read_concerns_are_those_that_reads_have() {
    let mut client = Client::new();
    for level in ["local", "available", "majority"] {
        assert!(client.run(with("readConcern", doc! { "level": level })).is_ok());
    }
    assert!(client.run(with("readConcern", doc! {})).is_ok());
    for level in ["linearizable", "snapshot", "any"] {
        assert_eq!(client.code(with("readConcern", doc! { "level": level })), 72);
    }
    let after =
        doc! { "afterClusterTime": Bson::Timestamp(bson::Timestamp { time: 1, increment: 1 }) };
    assert_eq!(client.code(with("readConcern", after)), 72);
    assert_eq!(client.code(with("readConcern", 5)), 14);
}

#[test]
fn write_concerns_are_those_that_are_kept() {
    let mut client = Client::new();
    let insert = |concern: Document| {
        doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": concern }
    };
    for kept in [
        doc! {},
        doc! { "w": 1 },
        doc! { "w": 0 },
        doc! { "w": 1.0 },
        doc! { "w": "majority", "wtimeout": 5 },
        doc! { "j": false },
    ] {
        assert!(client.run(insert(kept)).is_ok());
    }
    for more in [doc! { "w": 2 }, doc! { "w": "other" }, doc! { "j": true }, doc! { "x": 1 }] {
        assert_eq!(client.code(insert(more)), 100);
    }
    // Where each reply waits for the disk, that may be asked for.
    let mut server = MongoServer::new(("0", 1), 0, [7; 32]);
    server.is_synced = true;
    client.server = Arc::new(server);
    for kept in [doc! { "j": true }, doc! { "w": 1, "j": true }, doc! { "j": false }] {
        assert!(client.run(insert(kept)).is_ok());
    }
    for more in [doc! { "j": 1 }, doc! { "w": 2, "j": true }] {
        assert_eq!(client.code(insert(more)), 100);
    }
}

#[test]
fn transactions_are_refused() {
    let mut client = Client::new();
    assert_eq!(client.code(with("txnNumber", 1_i64)), 20);
    assert_eq!(client.code(with("startTransaction", true)), 20);
    assert_eq!(client.code(with("autocommit", false)), 20);
    assert!(client.run(with("lsid", doc! { "id": 1 })).is_ok());
    assert_eq!(client.code(with("apiVersion", "2")), 322);
    assert!(client.run(with("apiVersion", "1")).is_ok());
}

#[test]
fn a_command_may_have_an_end_of_time() {
    let until = |ms: Bson| {
        use crate::fixture::{body, msg, op_msg, whole};
        let command = doc! { "find": "c", "$db": "db", "maxTimeMS": ms };
        let bytes = msg(0, &[body(crate::shards::raw(&command).as_bytes())]);
        let message = whole(&bytes);
        let msg = op_msg(&message);
        Common::of(&Command::of(&msg).unwrap(), &[], (1_000, false)).map(|common| common.until_ms)
    };
    assert_eq!(until(Bson::Int32(0)), Ok(None));
    assert_eq!(until(Bson::Int32(5)), Ok(Some(1_005)));
    assert_eq!(until(Bson::Double(7.0)), Ok(Some(1_007)));
    assert_eq!(until(Bson::Int64(0x7fff_ffff)), Ok(Some(0x7fff_ffff + 1_000)));
    for wrong in [Bson::Int32(-1), Bson::Int64(1 << 31), Bson::Int64(i64::MAX), Bson::Double(0.5)] {
        assert_eq!(until(wrong).unwrap_err().number, 2);
    }
    assert_eq!(until(Bson::String("5".to_owned())).unwrap_err().number, 14);
}

#[test]
fn names_are_those_that_mongodb_takes() {
    let mut client = Client::new();
    for name in ["", ".a", "a.", "a$b"] {
        assert_eq!(client.code(doc! { "find": name }), 73, "{name}");
    }
    assert_eq!(client.code(doc! { "find": "a".repeat(253) }), 73);
    assert!(client.run(doc! { "find": "a".repeat(252) }).is_ok());
    assert!(client.run(doc! { "find": "a.b" }).is_ok());
    assert_eq!(client.code(doc! { "find": 5 }), 73);
}
