//! Links in fields of hashes: over RESP, read by clients, and over a restart.

use remora_client_core::Path;
use remora_tests::{Resp, ServerProcess, Value, options};

/// A graph as any Redis client writes it: `link` is LINK.SET, or HSET for the same with keys.
fn write(resp: &mut Resp, people: u64) {
    for number in 0..people {
        let supervisor = number / 3;
        assert!(!resp.call(&format!("HSET person:{number} name p{number}")).is_error());
        let links = format!("LINK.SET person:{number} supervisor person:{supervisor}");
        assert_eq!(resp.call(&links), Value::Integer(1));
    }
    // A large hash: a field for each.
    for number in 0..people {
        let link = format!("LINK.SET everybody m{number} person:{number}");
        assert_eq!(resp.call(&link), Value::Integer(1));
    }
}

fn bulk(text: &str) -> Value {
    Value::bulk(text.to_owned())
}

#[test]
fn a_link_is_its_keys_name_to_all_commands_and_a_link_to_those_that_ask() {
    let server = ServerProcess::start(&["--shards=2"]);
    let mut resp = server.resp();
    write(&mut resp, 300);
    assert_eq!(resp.call("HGET person:7 supervisor"), bulk("person:2"));
    assert_eq!(resp.call("HGET everybody m299"), bulk("person:299"));
    let told = resp.call("LINK.GET person:7 name supervisor nowhere");
    assert_eq!(told, Value::Array(vec![Value::Null, bulk("person:2"), Value::Null]));
    assert_eq!(resp.call("LINK.GET everybody m5"), Value::Array(vec![bulk("person:5")]));
    // What is set over is plain, though it may be the same text.
    assert_eq!(resp.call("HSET person:7 supervisor person:2"), Value::Integer(0));
    assert_eq!(resp.call("LINK.GET person:7 supervisor"), Value::Array(vec![Value::Null]));
    assert_eq!(resp.call("LINK.SET person:7 supervisor person:2"), Value::Integer(0));
    // COPY and RENAME keep links.
    assert_eq!(resp.call("COPY everybody all"), Value::Integer(1));
    assert_eq!(resp.call("LINK.GET all m5"), Value::Array(vec![bulk("person:5")]));
    assert_eq!(resp.call("RENAME person:7 other"), Value::Simple("OK".into()));
    assert_eq!(resp.call("LINK.GET other supervisor"), Value::Array(vec![bulk("person:2")]));
    for (wrong, why) in [
        ("LINK.SET person:1 supervisor", "wrong number of arguments"),
        ("LINK.SET person:1 a b c", "wrong number of arguments"),
        ("LINK.GET person:1", "wrong number of arguments"),
    ] {
        let Value::Error(text) = resp.call(wrong) else { panic!("{wrong}") };
        assert!(text.contains(why), "{text}");
    }
    resp.call("SET text x");
    assert!(resp.call("LINK.SET text a b").is_error());
}

#[test]
fn a_client_reads_a_link_as_any_field() {
    let server = ServerProcess::start(&["--shards=1"]);
    let mut resp = server.resp();
    write(&mut resp, 300);
    let mut session = server.session_with(&options());
    for (key, field, target) in
        [("person:7", "supervisor", "person:2"), ("everybody", "m299", "person:299")]
    {
        let mut open = session.open_hash(key.as_bytes()).unwrap();
        for _ in 0..3 {
            let got = session.hash_get(&mut open, field.as_bytes(), Path::Read).unwrap();
            assert_eq!(got.value, Some(target.as_bytes()), "{key}");
        }
    }
}

#[test]
fn links_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--durability=fsync", "--shards=2"];
    let server = ServerProcess::start_with_data(directory.path(), &flags);
    let mut resp = server.resp();
    write(&mut resp, 200);
    let digest = resp.call("DEBUG DIGEST");
    drop(server);
    // Another number of shards, and from a snapshot too.
    for (shards, saves) in [(3, true), (1, false)] {
        let flags = ["--durability=fsync".to_owned(), format!("--shards={shards}")];
        let flags: Vec<&str> = flags.iter().map(|flag| &flag[..]).collect();
        let server = ServerProcess::start_with_data(directory.path(), &flags);
        let mut resp = server.resp();
        assert_eq!(resp.call("DEBUG DIGEST"), digest);
        assert_eq!(resp.call("LINK.GET everybody m5"), Value::Array(vec![bulk("person:5")]));
        assert_eq!(resp.call("LINK.GET person:7 supervisor"), Value::Array(vec![bulk("person:2")]));
        if saves {
            assert!(!resp.call("SAVE").is_error());
        }
    }
}
