//! A server over its limit of memory, with each setting of `eviction`.

use remora_client_core::{Error, Path, SetOptions};
use remora_protocol::message::Status;
use remora_tests::{ServerProcess, Value, wait_until};

const LIMIT: &str = "--max-memory=4MiB";

fn value_of(number: u32) -> Vec<u8> {
    (0..1000 + number as usize % 100).map(|at| (at as u32 + number) as u8).collect()
}

/// A field of INFO.
fn info(server: &ServerProcess, field: &str) -> String {
    let Value::Bulk(text) = server.resp().call("INFO") else { panic!("INFO is text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("{field} is not in {text}")).to_string()
}

#[test]
fn without_eviction_both_protocols_say_that_memory_is_full() {
    for flags in [vec!["--shards=1", LIMIT], vec!["--shards=1", LIMIT, "--eviction=none"]] {
        let server = ServerProcess::start(&flags);
        let mut session = server.session();
        let mut kept = 0u32;
        let error = loop {
            match session.set(&kept.to_le_bytes(), &value_of(kept), SetOptions::default()) {
                Ok(_) => kept += 1,
                Err(error) => break error,
            }
            assert!(kept < 100_000, "memory never gets full");
        };
        assert_eq!(error, Error::Refused(Status::OutOfMemory));
        assert!(error.to_string().contains("raise max_memory"), "{error}");
        let mut resp = server.resp();
        let value = value_of(kept);
        let refused = resp.try_call(&[b"SET", b"one more", &value]).unwrap();
        let expected = "OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(refused, Value::Error(expected.into()));
        assert_eq!(resp.call("DBSIZE"), Value::Integer(kept as i64), "nothing went");
        assert_eq!(info(&server, "maxmemory_policy"), "noeviction");
        assert_eq!(info(&server, "evicted_keys"), "0");
    }
}

#[test]
fn with_eviction_writes_go_on_and_what_is_there_is_right() {
    const WRITTEN: u32 = 20_000;
    const HOT: u32 = 200;
    let server = ServerProcess::start(&["--shards=1", LIMIT, "--eviction=s3-fifo"]);
    let (mut session, mut resp) = (server.session(), server.resp());
    let set = |session: &mut remora_client_core::Session, number: u32| {
        let done = session.set(&number.to_le_bytes(), &value_of(number), SetOptions::default());
        assert_eq!(done, Ok(true), "{number}");
    };
    for number in 0..HOT {
        set(&mut session, number);
    }
    for number in HOT..WRITTEN {
        set(&mut session, number);
        if number % 8 == 0 {
            // The hot ones are read over RESP, which the shard does not serve.
            let key = (number / 8 % HOT).to_le_bytes();
            resp.try_call(&[b"GET", &key]).unwrap();
        }
    }
    let (mut there, mut hot) = (0u32, 0);
    for number in 0..WRITTEN {
        // A pointer to an evicted record is never believed, whatever the path.
        let path = [Path::Ask, Path::Read, Path::Choose][number as usize % 3];
        let got = session.get(&number.to_le_bytes(), path).unwrap().value;
        assert!(got.is_none_or(|value| value == value_of(number)), "{number}");
        there += got.is_some() as u32;
        hot += (got.is_some() && number < HOT) as u32;
    }
    println!("{there} of {WRITTEN} records are there, {hot} of {HOT} hot ones");
    assert!(there > 2_000, "{there}: the memory is used");
    assert!(hot >= HOT * 9 / 10, "{hot} of {HOT}: a scan does not push out what is read");
    assert_eq!(info(&server, "maxmemory_policy"), "allkeys-s3-fifo");
    assert_eq!(
        resp.call("CONFIG GET maxmemory-policy"),
        Value::Array(vec![Value::bulk("maxmemory-policy"), Value::bulk("allkeys-s3-fifo")])
    );
    wait_until("INFO shows that each key is there, or was evicted", || {
        let evicted: u32 = info(&server, "evicted_keys").parse().unwrap();
        let Value::Integer(keys) = resp.call("DBSIZE") else { panic!("a number") };
        evicted + keys as u32 == WRITTEN
    });
    let used: u64 = info(&server, "used_memory").parse().unwrap();
    assert!(used <= 4 << 20, "{used}");
}

#[test]
fn objects_of_all_types_make_room_for_each_other() {
    let server = ServerProcess::start(&["--shards=1", LIMIT, "--eviction=s3-fifo"]);
    let mut resp = server.resp();
    const OBJECTS: usize = 600;
    let is_refused = |value: &Value| matches!(value, Value::Error(_));
    for object in 0..OBJECTS {
        let key = format!("object {object}");
        for part in 0..40 {
            let (name, at) = (format!("part {part}"), format!("{}", part));
            let field = value_of(part);
            let (key, name, at) = (key.as_bytes(), name.as_bytes(), at.as_bytes());
            let added = match object % 3 {
                0 => resp.try_call(&[b"HSET", key, name, &field]),
                1 => resp.try_call(&[b"GEOADD", key, at, at, name]),
                _ => resp.try_call(&[b"RTREE.ADD", key, name, at, at, at, at]),
            };
            let added = added.unwrap();
            assert!(!is_refused(&added), "{object} {part}: {added:?}");
        }
    }
    wait_until("INFO shows that each key is there, or was evicted", || {
        let evicted: usize = info(&server, "evicted_keys").parse().unwrap();
        let Value::Integer(keys) = resp.call("DBSIZE") else { panic!("a number") };
        evicted > OBJECTS / 4 && evicted + keys as usize == OBJECTS
    });
    // What is there is whole, and a view of what has gone finds nothing.
    let (mut session, mut there) = (server.session(), 0);
    for object in (0..OBJECTS).step_by(3) {
        let mut view = session.open_hash(format!("object {object}").as_bytes()).unwrap();
        let mut fields = 0;
        for part in 0..40u32 {
            let path = [Path::Ask, Path::Read, Path::Choose][part as usize % 3];
            let got = session.hash_get(&mut view, format!("part {part}").as_bytes(), path);
            let value = got.unwrap().value;
            assert!(value.as_ref().is_none_or(|value| *value == value_of(part)), "{object} {part}");
            fields += value.is_some() as u32;
        }
        assert!(fields == 0 || fields == 40, "{object}: {fields}");
        there += (fields == 40) as u32;
    }
    assert!(there > 5, "{there}: the memory is used");
}

#[test]
fn object_freq_says_what_eviction_counts() {
    let freq =
        |server: &ServerProcess, key: &str| server.resp().call(&format!("OBJECT FREQ {key}"));
    let server = ServerProcess::start(&["--shards=1", LIMIT]);
    server.resp().call("SET k v");
    let Value::Error(error) = freq(&server, "k") else { panic!("it is not counted") };
    assert!(error.starts_with("ERR An LFU maxmemory policy is not selected"), "{error}");
    assert_eq!(freq(&server, "none"), Value::Null);
    let server = ServerProcess::start(&["--shards=1", LIMIT, "--eviction=s3-fifo"]);
    server.resp().call("SET k v");
    assert_eq!(freq(&server, "k"), Value::Integer(0));
    let mut session = server.session();
    for _ in 0..3 {
        assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
        assert_eq!(freq(&server, "k"), Value::Integer(1), "a new key counts to one");
    }
    assert_eq!(freq(&server, "none"), Value::Null);
    // A tree counts as any other key.
    server.resp().call("RTREE.CREATE t");
    assert_eq!(freq(&server, "t"), Value::Integer(0));
    server.resp().call("RTREE.INFO t");
    assert_eq!(freq(&server, "t"), Value::Integer(1));
}
