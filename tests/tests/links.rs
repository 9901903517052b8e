//! Links in fields of hashes: over RESP, read by clients, and over a restart.

use remora_client_core::Path;
use remora_tests::{Resp, ServerProcess, Value, options, wait_until};

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

fn bulk(text: impl Into<String>) -> Value {
    Value::bulk(text.into())
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
fn elements_of_lists_are_links_to_those_that_ask() {
    let server = ServerProcess::start(&["--shards=2"]);
    let mut resp = server.resp();
    // One that lies whole in its record, and one with chunks.
    for count in [5, 400] {
        let key = format!("list:{count}");
        assert_eq!(resp.call(&format!("RPUSH {key} plain")), Value::Integer(1));
        for number in 1..count {
            let pushed = resp.call(&format!("LINK.PUSH {key} person:{number}"));
            assert_eq!(pushed, Value::Integer(number + 1));
        }
        let links = Value::Array(vec![Value::Null, bulk("person:1"), bulk("person:2")]);
        assert_eq!(resp.call(&format!("LINK.RANGE {key} 0 2")), links);
        assert_eq!(resp.call(&format!("LINDEX {key} 2")), bulk("person:2"));
        assert_eq!(resp.call(&format!("LPOS {key} person:3")), Value::Integer(3));
        // Between shards too a link moves as a link.
        for number in 0..8 {
            let to = format!("to:{count}:{number}");
            resp.call(&format!("LINK.PUSH {to} person:0"));
            let moved = resp.call(&format!("LMOVE {key} {to} RIGHT RIGHT"));
            let Value::Bulk(name) = moved else { panic!("an element moves") };
            let name = Value::Bulk(name);
            resp.call(&format!("LSET {to} 0 person:0"));
            let links = Value::Array(vec![Value::Null, name.clone()]);
            assert_eq!(resp.call(&format!("LINK.RANGE {to} 0 -1")), links);
            assert_eq!(resp.call(&format!("LMOVE {to} {key} RIGHT RIGHT")), name);
        }
        assert_eq!(resp.call(&format!("LREM {key} 0 person:1")), Value::Integer(1));
        let links = Value::Array(vec![Value::Null, bulk("person:2")]);
        assert_eq!(resp.call(&format!("LINK.RANGE {key} 0 1")), links);
        resp.call(&format!("COPY {key} copy:{count}"));
        assert_eq!(resp.call(&format!("LINK.RANGE copy:{count} 0 1")), links);
    }
    assert!(resp.call("LINK.PUSH list:5").is_error());
    assert!(resp.call("LINK.RANGE list:5 a b").is_error());
}

#[test]
fn a_path_of_links_is_chased_in_one_request() {
    let server = ServerProcess::start(&["--shards=3"]);
    let mut resp = server.resp();
    write(&mut resp, 100);
    resp.call("LINK.SET person:0 motto text");
    resp.call("SET text hello");
    let person = |number: u64| {
        let supervisor = format!("person:{}", number / 3);
        Value::Array(["name", &format!("p{number}"), "supervisor", &supervisor].map(bulk).to_vec())
    };
    assert_eq!(resp.call("LINK.CHASE person:99 supervisor"), person(33));
    assert_eq!(resp.call("LINK.CHASE person:99 supervisor supervisor supervisor"), person(3));
    assert_eq!(resp.call("LINK.CHASE everybody m99 supervisor"), person(33));
    assert_eq!(resp.call("LINK.CHASE person:2 supervisor motto"), bulk("hello"));
    for nothing in ["person:99 name", "person:99 nowhere", "nowhere supervisor", "text supervisor"]
    {
        assert_eq!(resp.call(&format!("LINK.CHASE {nothing}")), Value::Null, "{nothing}");
    }
    // A target that has gone, and one that is there again.
    resp.call("DEL person:33");
    assert_eq!(resp.call("LINK.CHASE person:99 supervisor"), Value::Null);
    resp.call("HSET person:33 name new");
    let new = Value::Array(vec![bulk("name"), bulk("new")]);
    assert_eq!(resp.call("LINK.CHASE person:99 supervisor"), new);
    assert!(resp.call("LINK.CHASE person:99").is_error());
    let long = format!("LINK.CHASE person:99{}", " supervisor".repeat(100));
    let Value::Error(why) = resp.call(&long) else { panic!("too many steps") };
    assert!(why.contains("steps"), "{why}");
}

#[test]
fn links_are_removed_and_counted() {
    let server = ServerProcess::start(&["--shards=2"]);
    let mut resp = server.resp();
    write(&mut resp, 300);
    assert_eq!(resp.call("LINK.DEL person:7 name supervisor nowhere"), Value::Integer(1));
    assert_eq!(resp.call("HGETALL person:7"), Value::Array(vec![bulk("name"), bulk("p7")]));
    assert_eq!(resp.call("LINK.DEL everybody m1 m2 m2 m300"), Value::Integer(2));
    assert_eq!(resp.call("HLEN everybody"), Value::Integer(298));
    assert_eq!(resp.call("LINK.SET alone a b"), Value::Integer(1));
    assert_eq!(resp.call("LINK.DEL alone a"), Value::Integer(1));
    assert_eq!(resp.call("EXISTS alone"), Value::Integer(0));
    let Value::Bulk(stats) = resp.call("LINK.STATS") else { panic!("LINK.STATS gives a text") };
    let stats = String::from_utf8(stats).unwrap();
    assert_eq!(stats, "# Links\r\nlinks_mended:0\r\nlink_mends_refused:0\r\n");
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
            assert!(!resp.call("BGSAVE").is_error());
            wait_until("it is written", || resp.info("snapshots_written") == 1);
        }
    }
}
