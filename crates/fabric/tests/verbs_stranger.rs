//! A client names another machine's end of a queue pair as its own: the server sends nothing to
//! that machine. The test needs devices, and a server's binary as `REMORA_BIN`: the virtual machine
//! of `make rxe` runs it.

use crate::verbs_world::{Raw, devices, side};
use remora_arena::{Mapping, Words};
use remora_fabric::client_hello;
use remora_fabric::conformance::DEADLINE;
use remora_fabric::detect::Wanted;
use remora_fabric::verbs::{Registration, Unconnected, access, key_of, open, read_arenas};
use remora_layout::hello::ServerHello;
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD};
use remora_layout::verbs::{VerbsEnd, VerbsReady};
use remora_verbs_sys::IBV_WC_SUCCESS;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const ADDRESS: &str = "127.0.0.1:7001";
/// Words that the server may write. The heartbeats are among the first ones.
const MAILBOX_BYTES: usize = 1 << 20;

struct Server(Child);

impl Server {
    fn start(directory: &std::path::Path) -> Self {
        let binary = std::env::var("REMORA_BIN").expect("the virtual machine says which");
        let mut command = Command::new(binary);
        command.args(["serve", "--port", "6380", "--shards", "1", "--max-memory", "64mb"]);
        command.args(["--pin=false", "--fabric-address", ADDRESS]);
        command.arg("--socket").arg(directory.join("socket"));
        Self(command.spawn().unwrap())
    }

    /// The server's answer to a client that wants RDMA.
    fn greets(&self) -> (TcpStream, VerbsEnd) {
        let end = Instant::now() + DEADLINE;
        let mut stream = loop {
            match TcpStream::connect(ADDRESS) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < end, "the server does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.write_all(client_hello(Wanted::Verbs).as_bytes()).unwrap();
        let (mut hello, mut end) = (ServerHello::new_zeroed(), VerbsEnd::new_zeroed());
        stream.read_exact(hello.as_mut_bytes()).unwrap();
        assert_eq!(hello.refusal.get(), 0);
        stream.read_exact(end.as_mut_bytes()).unwrap();
        read_arenas(&mut stream, 1).unwrap();
        (stream, end)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Packets that the server's device has sent.
fn sent() -> u64 {
    let device = &devices().0[0];
    let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// A client's session, and its memory that the server may write. It announces `told` as its end, or
/// its real end.
fn session(server: &Server, told: Option<&VerbsEnd>) -> (Raw, VerbsEnd, Words) {
    let (mut stream, end) = server.greets();
    let (domain, place) = open(None, &devices().1).unwrap();
    let unconnected = Unconnected::new(&domain, &place).unwrap();
    let own = unconnected.end();
    let pair = unconnected.connect(&end).unwrap();
    let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
    let memory = Registration::of(&domain, &mailbox, access::WRITE).unwrap();
    let key = key_of(&memory, memory.rkey());
    stream.write_all(side(told.unwrap_or(&own), key).as_bytes()).unwrap();
    let mut ready = VerbsReady::new_zeroed();
    stream.read_exact(ready.as_mut_bytes()).unwrap();
    assert_eq!(ready.refusal.get(), 0);
    let mut raw = Raw::new(pair, domain, stream);
    raw.mailbox = ready.mailbox;
    raw.keep(memory);
    (raw, own, mailbox)
}

#[test]
fn nothing_is_sent_to_an_end_that_has_sent_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (mut honest, end, mailbox) = session(&server, None);
    let before = sent();
    let (mut stranger, _, _) = session(&server, Some(&end));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(sent(), before, "it sends to who has not sent");
    // The stranger's own device has no access either.
    let clock = CLIENT_CLOCK_WORD as u64 * 8;
    let key = stranger.mailbox;
    assert_ne!(stranger.write(key.address.get() + clock, key.rkey.get(), 7), IBV_WC_SUCCESS);
    assert_eq!(mailbox.load_acquire(HEARTBEAT_WORD), 0);
    // The control: a client that announced its own end receives heartbeats, and the stranger has
    // not broken its connection.
    let key = honest.mailbox;
    assert_eq!(honest.write(key.address.get() + clock, key.rkey.get(), 7), IBV_WC_SUCCESS);
    let end = Instant::now() + DEADLINE;
    while mailbox.load_acquire(HEARTBEAT_WORD) == 0 {
        assert!(Instant::now() < end, "no heartbeat comes");
    }
    assert!(sent() > before);
}
