//! Every limit that a user can meet says so, in the words of docs/limits.md,
//! and the client that met it continues. (Sessions and descriptors: `many_clients`;
//! sizes at the rings: `bounds`; unread output: `hostile`.)

use remora_client_core::{ConnectError, Options, PointerCacheKind, SetOptions, Wanted};
use remora_layout::limits::{
    MAX_KEY_BYTES, MAX_VALUE_BYTES, RESP_MAX_CONNECTIONS, RESP_MAX_INLINE_BYTES,
};
use remora_tests::{Resp, ServerProcess, Value, encode, remora, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn server(flags: &[&str]) -> ServerProcess {
    ServerProcess::start(flags)
}

fn error(text: &str) -> Value {
    Value::Error(text.into())
}

/// The table of the documentation names an error's text.
fn is_documented(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/limits.md");
    let table = std::fs::read_to_string(path).expect("the documentation is there");
    // Numbers of the very case, and their units, stand there as they like.
    let words = text.split(|c: char| c.is_ascii_digit());
    let words: Vec<&str> = words
        .map(|word| word.trim_start_matches(['K', 'M', 'G']).trim_start_matches("iB"))
        .collect();
    let found = table.lines().any(|line| {
        let mut rest = line;
        words
            .iter()
            .filter(|word| word.len() > 3)
            .all(|word| rest.find(word).map(|at| rest = &rest[at + word.len()..]).is_some())
    });
    assert!(found, "docs/limits.md does not tell: {text}");
}

#[test]
fn keys_and_values_over_resp() {
    let server = server(&["--shards=1", "--max-memory=200MiB"]);
    let mut resp = server.resp();
    let (key, value) = (vec![b'k'; MAX_KEY_BYTES + 1], vec![b'v'; MAX_VALUE_BYTES + 1]);
    let too_long_key = format!("ERR key is longer than {MAX_KEY_BYTES} bytes");
    let too_long_value = format!("ERR value is longer than {MAX_VALUE_BYTES} bytes");
    is_documented(&too_long_key);
    is_documented(&too_long_value);
    let requests: [(&[&[u8]], &str); 7] = [
        (&[b"SET", &key, b"v"], &too_long_key),
        (&[b"GET", &key], &too_long_key),
        (&[b"DEL", b"k", &key], &too_long_key),
        (&[b"MSET", b"k", b"v", &key, b"v"], &too_long_key),
        (&[b"SET", b"k", &value], &too_long_value),
        (&[b"MSET", b"k", &value], &too_long_value),
        (&[b"SETRANGE", b"k", b"67108863", b"12"], STRING_TOO_LONG),
    ];
    is_documented(STRING_TOO_LONG);
    for (request, text) in requests {
        assert_eq!(resp.try_call(request).unwrap(), error(text));
    }
    assert_eq!(resp.call("DBSIZE"), Value::Integer(0), "nothing was done by halves");
    let longest = &value[1..];
    assert_eq!(resp.try_call(&[b"SET", &key[1..], longest]).unwrap(), Value::ok());
    assert_eq!(resp.try_call(&[b"GET", &key[1..]]).unwrap(), Value::bulk(longest));
    assert_eq!(resp.try_call(&[b"APPEND", &key[1..], b"x"]).unwrap(), error(STRING_TOO_LONG));
    assert_eq!(resp.call("SELECT 16"), error("ERR DB index is out of range"));
    is_documented("ERR DB index is out of range");
}

const STRING_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

#[test]
fn full_memory_over_resp() {
    let server = server(&["--shards=1", "--max-memory=1MiB", "--buckets=64"]);
    let mut resp = server.resp();
    let value = vec![b'v'; 10_000];
    let mut kept = 0;
    let refused = loop {
        let key = format!("k{kept}");
        match resp.try_call(&[b"SET", key.as_bytes(), &value]).unwrap() {
            Value::Simple(_) => kept += 1,
            refused => break refused,
        }
        assert!(kept < 1000, "memory never gets full");
    };
    let text = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(refused, error(text));
    is_documented(text);
    for number in 0..kept {
        assert_eq!(resp.call(&format!("GET k{number}")), Value::bulk(&value[..]));
    }
    assert_eq!(resp.call("DEL k0"), Value::Integer(1));
    assert!(!resp.call("GET k1").is_error());
}

/// Protocol errors end their connection, after the reason.
#[test]
fn requests_that_are_too_large() {
    let server = server(&["--shards=1", "--max-memory=16MiB"]);
    let inline = vec![b'x'; RESP_MAX_INLINE_BYTES + 5000];
    let cases: [(&[u8], &str); 6] = [
        (b"*1048577\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$68157441\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$68157440\r\n", "ERR Protocol error: request is longer than 68157440 bytes"),
        (&inline, "ERR Protocol error: too big inline request"),
        (
            &[b"*".as_slice(), &[b'1'; 70_000]].concat(),
            "ERR Protocol error: too big mbulk count string",
        ),
        (
            &[b"*1\r\n$".as_slice(), &[b'1'; 70_000]].concat(),
            "ERR Protocol error: too big bulk count string",
        ),
    ];
    let mut other = server.resp();
    for (number, (bytes, text)) in cases.into_iter().enumerate() {
        let mut resp = server.resp();
        resp.send_raw(bytes).unwrap();
        assert_eq!(resp.receive().unwrap(), error(text));
        is_documented(text);
        assert!(resp.rest().unwrap_or_default().is_empty(), "then it is closed");
        assert_eq!(other.info("protocol_errors"), number as u64 + 1);
    }
    // Many small ones, whose ends never come.
    let mut resp = server.resp();
    resp.send_raw(b"*1000000\r\n").unwrap();
    let word = [b"$60000\r\n".as_slice(), &[b'x'; 60_000], b"\r\n"].concat();
    // It may close while this is still being sent.
    let _ = (0..1200).try_for_each(|_| resp.send_raw(&word));
    let said = resp.receive();
    if let Ok(said) = said {
        let Value::Error(text) = &said else { panic!("{said:?}") };
        assert!(text.starts_with("ERR Protocol error: "), "{text}");
        is_documented(text);
    }
    remora_tests::wait_until("it is cut off", || other.info("protocol_errors") == 7);
    assert_eq!(other.call("SET k v"), Value::ok());
}

#[test]
fn a_reply_that_is_too_large() {
    let server = server(&["--shards=2", "--max-memory=16MiB"]);
    let mut resp = server.resp();
    let value = vec![b'v'; 60_000];
    assert_eq!(resp.try_call(&[b"SET", b"large", &value]).unwrap(), Value::ok());
    let mut request: Vec<&[u8]> = vec![b"MGET"];
    request.resize(1 + 1200, b"large");
    let text = "ERR reply is longer than 67108864 bytes: ask for fewer keys";
    assert_eq!(resp.try_call(&request).unwrap(), error(text));
    is_documented(text);
    // Asked from a shard it is no different.
    resp.send_raw(&[encode(&[b"SET", b"large", &value]), encode(&request)].concat()).unwrap();
    assert_eq!(resp.receive().unwrap(), Value::ok());
    assert_eq!(resp.receive().unwrap(), error(text));
    assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn more_keys_than_a_reply_may_have() {
    let server = server(&["--shards=2", "--max-memory=192MiB"]);
    let mut resp = server.resp();
    let keys: Vec<Vec<u8>> = (0..1_040u32)
        .map(|at| [&at.to_le_bytes()[..], &vec![b'k'; MAX_KEY_BYTES - 4]].concat())
        .collect();
    for some in keys.chunks(100) {
        let mut request: Vec<&[u8]> = vec![b"MSET"];
        some.iter().for_each(|key| request.extend([&key[..], b""]));
        assert_eq!(resp.try_call(&request).unwrap(), Value::ok());
    }
    let text = "ERR more than 67108864 bytes of keys found: use SCAN, or a pattern that fewer keys \
                match";
    assert_eq!(resp.try_call(&[b"KEYS", b"*"]).unwrap(), error(text));
    is_documented(text);
    // Only those that match count.
    let Value::Array(found) = resp.try_call(&[b"KEYS", b"\x00*"]).unwrap() else { panic!() };
    assert_eq!(found.len(), 5);
}

#[test]
fn too_many_command_names() {
    let server = server(&["--shards=1", "--max-memory=16MiB"]);
    let mut resp = server.resp();
    let text = "ERR more than 1024 command names";
    for what in [b"INFO".as_slice(), b"DOCS"] {
        let mut request: Vec<&[u8]> = vec![b"COMMAND", what];
        request.resize(2 + 1024, b"get");
        assert!(!resp.try_call(&request).unwrap().is_error());
        request.push(b"get");
        assert_eq!(resp.try_call(&request).unwrap(), error(text));
    }
    is_documented(text);
}

#[test]
fn too_many_keys_to_wait_for() {
    let server = server(&["--shards=1", "--max-memory=16MiB"]);
    let mut resp = server.resp();
    let text = "ERR more than 1024 keys to wait for in one command: use several";
    let mut request: Vec<&[u8]> = vec![b"BLPOP"];
    request.resize(1 + 1024, b"k");
    request.push(b"0.001");
    assert_eq!(resp.try_call(&request).unwrap(), Value::Null);
    request.insert(1, b"k");
    assert_eq!(resp.try_call(&request).unwrap(), error(text));
    is_documented(text);
}

#[test]
fn a_connection_too_many_over_resp() {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    assert!(hard > RESP_MAX_CONNECTIONS as u64 + 200, "this test needs more open files: {hard}");
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let server = server(&["--shards=1", "--max-memory=16MiB"]);
    let mut first = server.resp();
    let connect = || std::net::TcpStream::connect(server.resp_address()).unwrap();
    let mut all = Vec::with_capacity(RESP_MAX_CONNECTIONS);
    while all.len() < RESP_MAX_CONNECTIONS - 1 {
        // No more at once than wait in the listener's queue.
        all.extend((all.len()..RESP_MAX_CONNECTIONS - 1).take(100).map(|_| connect()));
        let open = all.len() as u64 + 1;
        remora_tests::wait_until("they are taken", || first.info("connected_clients") == open);
    }
    let text = "ERR max number of clients reached";
    for round in 1..4 {
        let mut refused = server.resp();
        assert_eq!(refused.receive().unwrap(), error(text));
        assert!(refused.rest().unwrap_or_default().is_empty(), "then it is closed");
        assert_eq!(first.info("rejected_connections"), round);
    }
    is_documented(text);
    all.truncate(10);
    remora_tests::wait_until("they are gone", || first.info("connected_clients") == 11);
    assert_eq!(server.resp().call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn settings_that_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    for (flags, text) in [
        (&["--shards=0"][..], "shards: 0 is not in 1..=64"),
        (&["--shards=65"], "shards: 65 is not in 1..=64"),
        (
            &["--shards=2", "--max-memory=1MiB"],
            "max_memory: 1MiB for 2 shard(s) leaves each 512KiB; a shard takes 1MiB to 64GiB",
        ),
        (
            &["--shards=1", "--max-memory=65GiB"],
            "max_memory: 65GiB for 1 shard(s) leaves each 65GiB; a shard takes 1MiB to 64GiB",
        ),
        (
            &["--shards=1", "--max-memory=1MiB", "--buckets=100000"],
            "buckets = 100000: a table of 131072 buckets takes more than half of a shard's 1048576 bytes; raise max_memory or lower buckets",
        ),
        (&["--lease-min-ms=99999999"], "lease_min_ms = 99999999: must be at most 16384000"),
    ] {
        let mut command = remora();
        command.args(["serve", "--port=0", "--socket"]).arg(&socket).args(flags);
        let finished = run(&mut command);
        assert_eq!(finished.code, Some(2), "{finished:?}");
        assert!(finished.err.contains(text), "{}", finished.err);
        is_documented(text);
        assert!(!socket.exists(), "{flags:?} leaves a socket");
    }
}

#[test]
fn shared_pointers_that_are_not_to_be_had() {
    let server = server(&["--shards=1", "--max-memory=16MiB", "--pointer-sharing=false"]);
    let options =
        Options { pointer_cache: PointerCacheKind::Shared, ..remora_tests::by_pointers() };
    let refused = remora_client_core::Session::connect(&server.socket(), &options).err().unwrap();
    assert!(matches!(refused, ConnectError::NoPointerSharing { .. }));
    let text = refused.to_string();
    is_documented(&text.replace(&server.socket().display().to_string(), "SERVER"));
    assert!(server.session().set(b"k", b"v", SetOptions::default()).unwrap());
    let mut resp: Resp = server.resp();
    assert_eq!(resp.call("GET k"), Value::bulk("v"));

    // Over TCP the clients need a directory of their own.
    let server = self::server(&["--max-memory=16MiB", "--fabric-address=127.0.0.1:0"]);
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    let pointer_directory = Some(open.path().to_owned());
    let options = Options { transport: Wanted::Tcp, pointer_directory, ..options };
    let refused = remora_client_core::Session::connect(&server.socket(), &options).err().unwrap();
    assert!(matches!(refused, ConnectError::PointerFile { .. }), "{refused}");
    is_documented(&refused.to_string().replace(&open.path().display().to_string(), "PATH"));
}
