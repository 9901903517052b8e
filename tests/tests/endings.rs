//! How a server ends and how the next one begins: draining, taken places,
//! what a killed one leaves.

use remora_tests::{ServerDirectory, ServerProcess, Value, encode, remora, run, wait_until};
use rustix::process::Signal;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

const FLAGS: [&str; 2] = ["--shards=2", "--max-memory=32MiB"];
/// How long a server that ends waits for clients to take their replies.
const DRAIN: Duration = Duration::from_secs(2);

#[test]
fn a_burst_that_was_accepted_is_answered_before_the_end() {
    for _ in 0..5 {
        let mut server = ServerProcess::start(&FLAGS);
        let socket = server.socket();
        let mut resp = server.resp();
        let mut idle = server.resp();
        // Within what one turn of the server takes.
        let mut bytes = Vec::new();
        for round in 0..500u32 {
            let key = (round % 97).to_string();
            bytes.extend(encode(&[b"SET", key.as_bytes(), round.to_string().as_bytes()]));
            bytes.extend(encode(&[b"GET", key.as_bytes()]));
        }
        resp.send_raw(&bytes).unwrap();
        assert_eq!(resp.receive().unwrap(), Value::ok());
        server.terminate();
        assert_eq!(resp.receive().unwrap(), Value::bulk("0"));
        for round in 1..500 {
            assert_eq!(resp.receive().unwrap(), Value::ok(), "{round}");
            assert_eq!(resp.receive().unwrap(), Value::bulk(round.to_string()));
        }
        assert!(resp.rest().unwrap().is_empty());
        assert!(idle.rest().unwrap().is_empty(), "an idle connection is closed");
        assert_eq!(server.ended(), Some(0), "{}", server.log());
        assert!(!socket.exists());
    }
}

/// Nothing is left to be answered: there is nothing to wait for. (A server that
/// waits all the same takes at least [`DRAIN`] each time; one that does not may
/// take as long on a busy machine, but not always.)
#[test]
fn idle_clients_do_not_delay_the_end() {
    wait_until("a server ends without waiting", || {
        let mut server = ServerProcess::start(&FLAGS);
        let (mut resp, mut session) = (server.resp(), server.session());
        assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
        assert!(!session.exists(b"k").unwrap());
        let told = Instant::now();
        server.terminate();
        assert_eq!(server.ended(), Some(0), "{}", server.log());
        println!("ended after {:?}", told.elapsed());
        told.elapsed() < DRAIN
    });
}

#[test]
fn a_burst_that_is_under_way_is_answered_in_whole_replies_up_to_a_point() {
    let mut server = ServerProcess::start(&FLAGS);
    let mut resp = server.resp();
    let value = [b'v'; 1000];
    let bytes = encode(&[b"SET", b"k", &value]).repeat(20_000);
    let mut socket = resp.socket.try_clone().unwrap();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut socket, &bytes).is_ok());
    assert_eq!(resp.receive().unwrap(), Value::ok());
    server.terminate();
    let mut answered = 1;
    while let Ok(reply) = resp.receive() {
        assert_eq!(reply, Value::ok());
        answered += 1;
    }
    println!("{answered} of 20000 answered, all sent: {}", writer.join().unwrap());
    assert_eq!(server.ended(), Some(0), "{}", server.log());
}

#[test]
fn a_taken_place_is_refused_with_a_clear_word() {
    let mut server = ServerProcess::start(&FLAGS);
    let port = server.resp_address().port().to_string();
    let other = ServerDirectory::new();
    std::fs::create_dir_all(other.socket().parent().unwrap()).unwrap();
    let mut command = remora();
    command.args(["serve", "--port", &port, "--socket"]).arg(other.socket());
    let finished = run(&mut command);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.err.contains(&port), "{}", finished.err);
    assert!(finished.err.contains("in use"), "{}", finished.err);
    let mut command = remora();
    command.args(["serve", "--port", "0", "--socket"]).arg(server.socket());
    let finished = run(&mut command);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.err.contains(server.socket().to_str().unwrap()), "{}", finished.err);
    assert!(finished.out.is_empty());
    // The first one is unharmed.
    assert!(server.is_alive());
    assert_eq!(server.resp().call("PING"), Value::Simple("PONG".into()));
    assert!(server.session().set(b"k", b"v", Default::default()).unwrap());
}

#[test]
fn the_socket_of_a_killed_server_is_replaced_and_other_files_are_not() {
    let place = ServerDirectory::new();
    let mut first = ServerProcess::start_at(&place, &FLAGS);
    first.kill();
    assert!(place.socket().exists(), "kill -9 leaves it");
    let second = ServerProcess::start_at(&place, &FLAGS);
    assert!(second.session().set(b"k", b"v", Default::default()).unwrap());
    drop(second);
    std::fs::remove_file(place.socket()).unwrap();
    std::fs::write(place.socket(), "mine").unwrap();
    let mut command = remora();
    command.args(["serve", "--port", "0", "--socket"]).arg(place.socket());
    let finished = run(&mut command);
    assert!(matches!(finished.code, Some(1 | 2)), "{finished:?}");
    assert!(finished.err.contains("not a socket"), "{}", finished.err);
    assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "mine");
}

/// Somebody takes the socket's file away while the first server drains. The
/// second one puts its own there, and the first one ends after that.
#[test]
fn a_server_that_drains_leaves_the_socket_of_its_successor_alone() {
    let place = ServerDirectory::new();
    let mut first = ServerProcess::start_at(&place, &FLAGS);
    let mut resp = first.resp();
    // The drain waits for a client that does not read its replies.
    assert_eq!(resp.call(&format!("SET k {}", "v".repeat(1 << 20))), Value::ok());
    resp.send_raw(&b"GET k\r\n".repeat(64)).unwrap();
    first.terminate();
    wait_until("it drains", || first.log().contains("draining"));
    first.signal(Signal::STOP);
    std::fs::remove_file(place.socket()).unwrap();
    let second = ServerProcess::start_at(&place, &FLAGS);
    first.signal(Signal::CONT);
    assert_eq!(first.ended(), Some(0), "{}", first.log());
    assert!(place.socket().exists(), "it was not the first one's to remove");
    assert!(second.session().set(b"k", b"v", Default::default()).unwrap());
    second.terminate();
    wait_until("the second one removes it", || !place.socket().exists());
}

#[test]
fn a_socket_of_another_program_is_left_alone() {
    let place = ServerDirectory::new();
    std::fs::create_dir_all(place.socket().parent().unwrap()).unwrap();
    let _listener = UnixListener::bind(place.socket()).unwrap();
    let mut command = remora();
    command.args(["serve", "--port", "0", "--socket"]).arg(place.socket());
    let finished = run(&mut command);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(place.socket().exists());
}
