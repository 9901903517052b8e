//! What the buffers of RESP connections hold is bounded: of all, of an address, of a user.

use remora_tests::proc::anonymous_kib;
use remora_tests::{DEADLINE, Resp, ServerProcess, Value, wait_until};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const MIB: usize = 1 << 20;
const FLAGS: [&str; 5] = [
    "--shards=2",
    "--pin=false",
    "--max-client-memory=8MiB",
    "--max-client-memory-per-address=6MiB",
    "--max-client-memory-per-user=4MiB",
];

/// A connection from this address, logged in as this user.
fn connect(server: &ServerProcess, from: Ipv4Addr, user: &str) -> TcpStream {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddr::from((from, 0))).unwrap();
    rustix::net::connect(&fd, &server.resp_address()).unwrap();
    let mut stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "AUTH {user} word\r\n").unwrap();
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    stream
}

/// Begins a SET of a value that is a little longer, and sends so much of it, or as much as the server takes.
fn begin(stream: &mut TcpStream, bytes: usize) {
    let begun = write!(stream, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", bytes + 1000);
    let _ = begun.and_then(|()| stream.write_all(&vec![b'x'; bytes]));
}

/// What the server says before it closes the connection.
fn last_words(mut stream: TcpStream) -> String {
    let mut words = Vec::new();
    // It may be reset behind them.
    let _ = stream.read_to_end(&mut words);
    String::from_utf8_lossy(&words).into_owned()
}

fn of_info(resp: &mut Resp, name: &str) -> u64 {
    let Value::Bulk(info) = resp.call("INFO") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
}

#[test]
fn what_buffers_hold_is_bounded_for_all_an_address_and_a_user() {
    let server = ServerProcess::start(&FLAGS);
    let mut resp = server.resp();
    for user in ["alice", "bob", "carol"] {
        assert_eq!(resp.call(&format!("ACL SETUSER {user} on >word ~* +@all")), Value::ok());
    }
    let holds = |resp: &mut Resp, mib: usize| {
        let whole = (mib * MIB) as u64;
        wait_until("the server has taken it", || {
            let held = of_info(resp, "client_buffer_bytes");
            (whole - (128 << 10)..=whole + (256 << 10)).contains(&held)
        });
    };
    let mut first = connect(&server, NEAR, "alice");
    begin(&mut first, 3 * MIB);
    holds(&mut resp, 3);
    // The user has as much at most from all its addresses, and the address of all its users.
    let mut second = connect(&server, FAR, "alice");
    begin(&mut second, 3 * MIB);
    let words = last_words(second);
    assert!(words.starts_with("-ERR") && words.contains("max_client_memory_per_user"), "{words}");
    let mut third = connect(&server, NEAR, "bob");
    begin(&mut third, 7 * MIB / 2);
    let words = last_words(third);
    assert!(words.contains("max_client_memory_per_address"), "{words}");
    let mut fourth = connect(&server, FAR, "bob");
    begin(&mut fourth, 3 * MIB);
    holds(&mut resp, 6);
    let mut fifth = connect(&server, FAR, "carol");
    begin(&mut fifth, 5 * MIB / 2);
    let words = last_words(fifth);
    assert!(words.contains("max_client_memory):"), "{words}");
    // Small requests do not fail for it.
    let value = "v".repeat(60_000);
    assert_eq!(resp.call(&format!("SET small {value}")), Value::ok());
    assert_eq!(resp.call("STRLEN small"), Value::Integer(60_000));
    for of in ["", "_of_address", "_of_user"] {
        assert_eq!(of_info(&mut resp, &format!("client_memory_disconnections{of}")), 1, "{of}");
    }
    drop((first, fourth));
    wait_until("nothing is held", || of_info(&mut resp, "client_buffer_bytes") == 0);
}

#[test]
fn replies_that_are_not_read_count_and_who_reads_gets_all() {
    let server = ServerProcess::start(&FLAGS);
    let mut resp = server.resp();
    assert_eq!(resp.call("ACL SETUSER alice on >word ~* +@all"), Value::ok());
    let value = "v".repeat(3 * MIB);
    assert_eq!(resp.call(&format!("SET k {value}")), Value::ok());
    let mut reader = connect(&server, NEAR, "alice");
    write!(reader, "GET k\r\nQUIT\r\n").unwrap();
    assert_eq!(last_words(reader).len(), 3 * MIB + "$3145728\r\n\r\n+OK\r\n".len());
    // Each of them leaves its reply lie; the user has room for one or two of them.
    let silent: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = connect(&server, NEAR, "alice");
            write!(stream, "{}", "GET k\r\n".repeat(4)).unwrap();
            stream
        })
        .collect();
    wait_until("some are ended", || of_info(&mut resp, "client_memory_disconnections_of_user") > 0);
    assert!(of_info(&mut resp, "client_buffer_bytes") <= 4 * MIB as u64);
    assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
    drop(silent);
    wait_until("nothing is held", || of_info(&mut resp, "client_buffer_bytes") == 0);
}

/// One byte of the next request behind a large one does not keep the buffer of the large one, nor does the
/// end of a reply.
#[test]
fn a_large_request_leaves_no_large_buffer_behind() {
    let server = ServerProcess::start(&["--shards=1", "--pin=false"]);
    let mut resp = server.resp();
    let value = vec![b'v'; 32 * MIB];
    let before = anonymous_kib(server.pid());
    let begun: Vec<TcpStream> = (0..6)
        .map(|_| {
            let mut stream = TcpStream::connect(server.resp_address()).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            write!(stream, "*2\r\n$4\r\nECHO\r\n${}\r\n", value.len()).unwrap();
            stream.write_all(&value).unwrap();
            stream.write_all(b"\r\n*1").unwrap();
            let mut reply = vec![0; "$33554432\r\n".len() + value.len() + 2];
            stream.read_exact(&mut reply).unwrap();
            stream
        })
        .collect();
    assert_eq!(of_info(&mut resp, "client_buffer_bytes"), 0);
    let more = anonymous_kib(server.pid()).saturating_sub(before);
    assert!(more < 64 << 10, "{more} KiB more");
    drop(begun);
}
