//! Real redis-cli and redis-benchmark against the server.

use remora_tests::{ServerProcess, encode, is_skipped};
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=64MiB"])
}

fn tool(name: &str, server: &ServerProcess) -> Option<Command> {
    if is_skipped(name) {
        println!("not run: {name} is missing, as REMORA_SKIP says");
        return None;
    }
    let mut command = Command::new(name);
    let address = server.resp_address();
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    Some(command)
}

fn output(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool is installed");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

/// redis-cli with words split at spaces; what it prints, without the last
/// line break.
fn cli(server: &ServerProcess, words: &str) -> Option<String> {
    let mut command = tool("redis-cli", server)?;
    command.args(words.split(' '));
    let output = output(command, b"");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.is_empty(), "{words}: {error}");
    Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Stands for the rest of a time to live that was just set to [`LONG`] seconds.
const REST: &str = "(what is left of it)";
/// So many that a busy machine does not see the end of them.
const LONG: u64 = 1_000_000;

/// Requests with what redis-cli has to print.
fn expect(server: &ServerProcess, cases: &[(&str, &str)]) {
    for (words, printed) in cases {
        let Some(found) = cli(server, words) else { return };
        let found = found.trim_end();
        match found.parse::<u64>() {
            Ok(rest) if *printed == REST => {
                assert!((LONG / 2..=LONG).contains(&rest), "{words}: {rest}");
            }
            _ => assert_eq!(found, *printed, "{words}"),
        }
    }
}

#[test]
fn keys_and_values() {
    let server = server();
    expect(
        &server,
        &[
            ("PING", "PONG"),
            ("PING hello", "hello"),
            ("ECHO hi", "hi"),
            ("SET k v", "OK"),
            ("GET k", "v"),
            ("GET none", ""),
            ("EXISTS k none k", "2"),
            ("MSET a 1 b 2 c 3", "OK"),
            ("MGET a b none c", "1\n2\n\n3"),
            ("DBSIZE", "4"),
            ("INCR a", "2"),
            ("INCRBY a 40", "42"),
            ("DECR a", "41"),
            ("INCR k", "ERR value is not an integer or out of range"),
            ("DEL a b none", "2"),
            ("DBSIZE", "2"),
            ("FLUSHALL", "OK"),
            ("DBSIZE", "0"),
            ("GET k", ""),
        ],
    );
}

#[test]
fn every_option_of_set() {
    let server = server();
    expect(
        &server,
        &[
            ("SET k 1 XX", ""),
            ("SET k 1 NX", "OK"),
            ("SET k 2 NX", ""),
            ("SET k 2 XX", "OK"),
            ("SET k 3 GET", "2"),
            ("SET new 1 GET", ""),
            ("SET k 4 NX GET", "3"),
            ("GET k", "3"),
            ("SET k 5 EX 1000000", "OK"),
            ("TTL k", REST),
            ("SET k 6 KEEPTTL", "OK"),
            ("TTL k", REST),
            ("SET k 7", "OK"),
            ("TTL k", "-1"),
            ("SET k 8 PX 1000000000", "OK"),
            ("TTL k", REST),
            ("SET k 9 EXAT 4102444800", "OK"),
            ("SET k 9 PXAT 4102444800000", "OK"),
            ("GET k", "9"),
            ("SET k 9 EXAT 1", "OK"),
            ("GET k", ""),
            ("SET k 9 NX XX", "ERR syntax error"),
            ("SET k 9 EX 1 PX 1", "ERR syntax error"),
            ("SET k 9 EX 0", "ERR invalid expire time in 'set' command"),
            ("SET k 9 EX x", "ERR value is not an integer or out of range"),
            ("SET k", "ERR wrong number of arguments for 'set' command"),
        ],
    );
}

#[test]
fn trees_of_places() {
    let server = server();
    expect(
        &server,
        &[
            ("RTREE.CREATE t KIND hilbert CAPACITY 8 BOUNDS -180 -90 180 90", "OK"),
            ("RTREE.CREATE t", "ERR a tree of that name exists"),
            ("RTREE.ADDPOINT t 1 13.4 52.5 DATA Berlin", "1"),
            ("RTREE.ADDPOINT t 2 2.35 48.85", "1"),
            ("RTREE.ADD t 3 5 45 15 55", "1"),
            ("RTREE.SEARCH t 13 52 14 53 WITHIN", "1"),
            ("RTREE.SEARCH t 13 52 14 53 CONTAINS", "3"),
            ("RTREE.COUNT t 0 0 90 90", "3"),
            ("RTREE.GET t 1", "13.4\n52.5\n13.4\n52.5\nBerlin"),
            ("RTREE.GET t 9", ""),
            ("RTREE.NEAREST t 2 48.85 2 WITHDIST", "2\n0.3500000000000001\n3\n3"),
            ("-3 RTREE.SEARCH t 0 48 3 49 WITHRECT", "2\n2.35\n48.85\n2.35\n48.85"),
            ("RTREE.REM t 3 4", "1"),
            (
                "RTREE.COUNT none 0 0 1 1",
                "ERR no such tree: make it with RTREE.CREATE, or add an object",
            ),
            ("RTREE.DROP t", "1"),
            ("RTREE.DROP t", "0"),
        ],
    );
}

#[test]
fn expiry() {
    let server = server();
    expect(
        &server,
        &[
            ("TTL none", "-2"),
            ("PTTL none", "-2"),
            ("EXPIRE none 10", "0"),
            ("SET k v", "OK"),
            ("PTTL k", "-1"),
            ("EXPIRE k 1000000", "1"),
            ("TTL k", REST),
            ("EXPIRE k 500000 GT", "0"),
            ("EXPIRE k 2000000 GT", "1"),
            ("EXPIRE k 3000000 NX", "0"),
            ("EXPIRE k -1", "1"),
            ("EXISTS k", "0"),
            ("SET k v PX 30", "OK"),
        ],
    );
    std::thread::sleep(std::time::Duration::from_millis(40));
    expect(&server, &[("GET k", ""), ("TTL k", "-2")]);
}

#[test]
fn what_the_server_tells_of_itself() {
    let server = server();
    let port = server.resp_address().port();
    let Some(info) = cli(&server, "INFO") else { return };
    for line in ["# Server", "# Clients", &format!("tcp_port:{port}"), "shards:2", "# Memory"] {
        assert!(info.lines().any(|found| found.trim_end() == line), "{line}\n{info}");
    }
    let count: usize = cli(&server, "COMMAND COUNT").unwrap().parse().unwrap();
    assert!(count > 20, "{count}");
    let docs = cli(&server, "COMMAND DOCS get").unwrap();
    assert!(docs.contains("summary") && docs.contains("arguments"), "{docs}");
    expect(
        &server,
        &[
            ("CONFIG GET maxmemory", &format!("maxmemory\n{}", 64 << 20)),
            ("-3 CONFIG GET maxmemory", &format!("maxmemory {}", 64 << 20)),
            ("CLIENT SETNAME me", "OK"),
            ("-n 0 PING", "PONG"),
        ],
    );
    let hello = cli(&server, "-3 --no-raw HELLO 3").unwrap();
    assert!(hello.contains("\"proto\" => (integer) 3"), "{hello}");
    assert!(hello.contains("\"server\" => \"remora\""), "{hello}");
    let hello = cli(&server, "-3 --no-raw GET none").unwrap();
    assert_eq!(hello, "(nil)");
    let unknown = cli(&server, "NOSUCH a b").unwrap();
    let expected = "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'";
    assert_eq!(unknown.trim_end(), expected);
}

#[test]
fn values_are_binary_safe() {
    let server = server();
    let value: Vec<u8> = (0..=255u8).cycle().take(5_000).collect();
    let Some(mut set) = tool("redis-cli", &server) else { return };
    set.args(["-x", "SET", "binary"]);
    assert_eq!(output(set, &value).stdout, b"OK\n");
    let mut get = tool("redis-cli", &server).unwrap();
    get.args(["--raw", "GET", "binary"]);
    let printed = output(get, b"").stdout;
    assert_eq!(printed.strip_suffix(b"\n"), Some(&value[..]));
}

#[test]
fn ten_thousand_sets_by_a_pipe() {
    let server = server();
    let mut input = Vec::new();
    for number in 0..10_000 {
        let (key, value) = (format!("key:{number}"), format!("value:{number}"));
        input.extend(encode(&[b"SET", key.as_bytes(), value.as_bytes()]));
    }
    let Some(mut pipe) = tool("redis-cli", &server) else { return };
    pipe.arg("--pipe");
    let output = output(pipe, &input);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("errors: 0, replies: 10000"), "{text}");
    assert!(output.status.success());
    expect(&server, &[("DBSIZE", "10000"), ("GET key:9999", "value:9999")]);
}

#[test]
fn redis_benchmark_runs_without_errors() {
    let server = server();
    for more in [&[][..], &["-P", "16"]] {
        let Some(mut bench) = tool("redis-benchmark", &server) else { return };
        bench.args(["-n", "20000", "-t", "set,get", "-q", "-r", "1000"]).args(more);
        let output = output(bench, b"");
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{error}");
        assert!(!text.contains("rror") && !error.contains("rror"), "{text}{error}");
        for line in text.lines().filter(|line| line.contains("requests per second")) {
            println!("{} {line}", more.join(" "));
        }
        assert_eq!(text.matches("requests per second").count(), 2, "{text}");
    }
}
