//! Hundreds of client processes at one server, and as many sessions as there
//! can be: each is served, and those that are killed leave nothing.

use remora_client_core::{ConnectError, Error, Options, Path, Session, SetOptions, Wake};
use remora_fabric::{client_hello, detect::Wanted, shm};
use remora_layout::hello::Refusal;
use remora_layout::limits::{MAX_CLIENT_SESSIONS, MAX_IN_FLIGHT, MAX_SESSIONS};
use remora_tests::proc::{descriptors, mappings, resident_kib};
use remora_tests::{Resp, Role, ServerProcess, Value, greet, role, wait_for, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::net::UnixStream;

const PROCESSES: usize = 200;
const KEYS: u32 = 10;

/// Sets, gets by every path, counts and removes keys of its own.
fn use_own_keys(session: &mut Session, name: &str, round: u32) {
    for number in 0..KEYS {
        let key = format!("{name}:{number}");
        let value = format!("{name} has set {number} in {round}").repeat(1 + number as usize);
        assert!(session.set(key.as_bytes(), value.as_bytes(), SetOptions::default()).unwrap());
        for path in [Path::Ask, Path::Read, Path::Choose, Path::Read] {
            let got = session.get(key.as_bytes(), path).unwrap();
            assert_eq!(got.value, Some(value.as_bytes()), "{key} {path:?}");
        }
    }
    let counter = format!("{name}:count");
    assert_eq!(session.incr(counter.as_bytes(), 1).unwrap(), i64::from(round));
    let passing = format!("{name}:passing");
    session.set(passing.as_bytes(), b"x", SetOptions::default()).unwrap();
    assert!(session.del(passing.as_bytes()).unwrap());
    assert!(!session.exists(passing.as_bytes()).unwrap());
}

#[test]
fn plays_its_part() {
    let Some((name, arguments)) = role() else { return };
    let socket = std::path::Path::new(&arguments[0]);
    if name == "has few descriptors" {
        let most = descriptors(std::process::id()) as u64 + arguments[1].parse::<u64>().unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).unwrap();
        let said = match shm::connect(socket) {
            Ok(_) => "connected".into(),
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| source.to_string());
                format!("{error}: {}", source.unwrap_or_default())
            }
        };
        return Role::say(&said);
    }
    // Asleep while it waits: there are far fewer cores than processes.
    let options = Options { wake: Wake::Event, ..remora_tests::by_pointers() };
    let mut session = Session::connect(socket, &options).unwrap();
    for round in 1.. {
        use_own_keys(&mut session, &arguments[1], round);
        Role::say(&format!("done {round}"));
        if !Role::wait_for_word() {
            return;
        }
    }
}

#[test]
fn two_hundred_processes_are_served_and_those_killed_leave_nothing() {
    let mut server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let (pid, socket) = (server.pid(), server.socket());
    let mut resp = server.resp();
    let mut other = server.session();
    use_own_keys(&mut other, "other", 1);
    assert_eq!(resp.info("connected_sessions_shm"), 1);
    let (files, maps, memory) = (descriptors(pid), mappings(pid), resident_kib(pid));
    let mut clients: Vec<Role> = (0..PROCESSES)
        .map(|number| {
            Role::start(module_path!(), "keys", &[socket.to_str().unwrap(), &format!("p{number}")])
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.hear().as_deref(), Some("done 1"), "{}", server.log());
    }
    assert_eq!(resp.info("connected_sessions_shm"), PROCESSES as u64 + 1);
    assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
    use_own_keys(&mut other, "other", 2);
    // What the processes have set is there for all.
    for number in [0, 7, PROCESSES - 1] {
        let key = format!("p{number}:0");
        let value = Value::bulk(format!("p{number} has set 0 in 1"));
        assert_eq!(resp.call(&format!("GET {key}")), value);
        let Value::Bulk(value) = value else { unreachable!("as made above") };
        assert_eq!(other.get(key.as_bytes(), Path::Read).unwrap().value, Some(&value[..]));
    }
    let (files_all, maps_all) = (descriptors(pid), mappings(pid));
    println!(
        "a session: {} descriptors, {} mappings, {} KiB at the server",
        (files_all - files) / PROCESSES,
        (maps_all - maps) / PROCESSES,
        resident_kib(pid).saturating_sub(memory) / PROCESSES as u64
    );
    let gone = clients.split_off(PROCESSES / 2);
    drop(gone);
    wait_until("the killed ones' sessions go", || {
        resp.info("connected_sessions_shm") == PROCESSES as u64 / 2 + 1
    });
    wait_until("their descriptors go", || descriptors(pid) <= files.midpoint(files_all) + 1);
    wait_until("their mappings go", || mappings(pid) <= maps.midpoint(maps_all) + 8);
    for client in &mut clients {
        client.give_word();
    }
    for client in &mut clients {
        assert_eq!(client.hear().as_deref(), Some("done 2"), "{}", server.log());
    }
    use_own_keys(&mut other, "other", 3);
    drop(clients);
    wait_until("the others' sessions go", || resp.info("connected_sessions_shm") == 1);
    wait_until("all descriptors are back", || descriptors(pid) <= files);
    wait_until("all mappings are back", || mappings(pid) <= maps + 16);
    // The records of all of them stay; they take less than a megabyte.
    let grown = resident_kib(pid).saturating_sub(memory);
    println!("{grown} KiB more than before");
    assert!(grown < 16 << 10, "{grown} KiB");
    assert_eq!(resp.info("sessions_violated"), 0);
    use_own_keys(&mut other, "other", 4);
    assert!(server.is_alive());
}

/// Raises this process's own limit of open files: a socket for each session.
fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// A session of which only the socket is kept, or why there is none.
fn bare_session(server: &ServerProcess) -> Result<UnixStream, Refusal> {
    let (socket, answer, _) = greet(&server.socket(), &client_hello(Wanted::Shm)).unwrap();
    Refusal::from_number(answer.refusal.get()).map_or(Ok(socket), Err)
}

#[test]
fn a_session_too_many_is_refused_with_the_reason() {
    raise_own_limit();
    let server = ServerProcess::start(&["--shards=1", "--max-memory=16MiB"]);
    let mut other = server.session();
    let mut all: Vec<UnixStream> =
        (1..MAX_SESSIONS).map(|_| bare_session(&server).unwrap()).collect();
    let mut resp = server.resp();
    assert_eq!(resp.info("connected_sessions_shm"), MAX_SESSIONS as u64);
    for _ in 0..3 {
        assert_eq!(bare_session(&server).err(), Some(Refusal::TooManySessions));
    }
    let refused = Session::connect(&server.socket(), &remora_tests::options()).err().unwrap();
    assert!(matches!(refused, ConnectError::Refused { .. }));
    let text = refused.to_string();
    assert!(text.contains("has reached its limit of sessions: close some clients"), "{text}");
    assert_eq!(resp.info("sessions_refused"), 4);
    use_own_keys(&mut other, "other", 1);
    // One goes, one may come.
    all.pop();
    wait_until("its place is free", || {
        resp.info("connected_sessions_shm") == MAX_SESSIONS as u64 - 1
    });
    all.push(bare_session(&server).unwrap());
    assert_eq!(bare_session(&server).err(), Some(Refusal::TooManySessions));
    drop(all);
    wait_until("all have gone", || resp.info("connected_sessions_shm") == 1);
    use_own_keys(&mut other, "other", 2);
}

/// So few that a handful of clients uses them up.
const OPEN_FILES: usize = 64;

/// Opens a RESP connection. The server takes it in, or turns it away and says
/// why; which of the two its counts tell.
fn knock(server: &ServerProcess, resp: &mut Resp) -> Result<Resp, Value> {
    let counts = |resp: &mut Resp| {
        ["total_connections_received", "rejected_connections"].map(|name| resp.info(name))
    };
    let before = counts(resp);
    let mut connection = server.resp();
    let [_, rejected] = wait_for("the connection is taken in or turned away", || {
        Some(counts(resp)).filter(|now| *now != before)
    });
    if rejected == before[1] { Ok(connection) } else { Err(connection.receive().unwrap()) }
}

/// Opens RESP connections until one is turned away; gives the reason.
fn turned_away(server: &ServerProcess, resp: &mut Resp, inside: &mut Vec<Resp>) -> String {
    loop {
        match knock(server, resp) {
            Ok(connection) => inside.push(connection),
            Err(Value::Error(text)) => return text,
            Err(told) => panic!("{told:?}"),
        }
        assert!(inside.len() < OPEN_FILES, "the limit does not hold");
    }
}

#[test]
fn whoever_is_refused_for_want_of_a_descriptor_is_told_so() {
    let mut server =
        ServerProcess::start_with_open_files(OPEN_FILES, &["--shards=1", "--max-memory=16MiB"]);
    let mut other = server.session();
    let mut resp = server.resp();
    // Accepted by now.
    assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
    let files = descriptors(server.pid());
    for round in 1..=3 {
        let mut all = Vec::new();
        let refusal = loop {
            match bare_session(&server) {
                Ok(socket) => all.push(socket),
                Err(refusal) => break refusal,
            }
            assert!(all.len() < OPEN_FILES, "the limit does not hold");
        };
        assert_eq!(refusal, Refusal::NoResources, "after {}", all.len());
        assert!(all.len() > 3, "{}", all.len());
        // RESP connections take the last ones, up to an answer that says so.
        let mut connections = Vec::new();
        let text = turned_away(&server, &mut resp, &mut connections);
        assert!(text.starts_with("ERR the server has no file descriptor left"), "{text}");
        assert!(text.contains("ulimit -n"), "{text}");
        // Now not even a hello is waited for.
        let told = text;
        for _ in 0..20 {
            let refused = shm::connect(&server.socket()).err().expect("there is no room");
            let text = format!("{refused}: {:?}", std::error::Error::source(&refused));
            assert!(text.contains("no file descriptor or memory left"), "{text}");
            assert_eq!(turned_away(&server, &mut resp, &mut connections), told);
        }
        // Those inside are served all the while.
        use_own_keys(&mut other, "other", round);
        assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
        drop((all, connections));
        wait_until("descriptors are back", || descriptors(server.pid()) <= files);
        use_own_keys(&mut server.session(), &format!("late{round}"), 1);
        assert_eq!(server.resp().call("PING"), Value::Simple("PONG".into()));
    }
    assert!(resp.info("sessions_refused") >= 3 * 21);
    assert!(resp.info("rejected_connections") >= 3 * 21);
    let log = server.log();
    assert!(log.contains("cannot accept clients"), "{log}");
    let lines = log.lines().filter(|line| line.contains("cannot accept clients")).count();
    assert!(lines <= 20, "a flood of refusals is no flood of lines: {lines}");
    assert!(server.is_alive());
}

#[test]
fn a_client_without_descriptors_says_that_it_is_its_own_fault() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=16MiB"]);
    for more in [0, 1, 2, 3, 4, 5, 20] {
        let socket = server.socket();
        let arguments = [socket.to_str().unwrap(), &more.to_string()];
        let said = Role::start(module_path!(), "has few descriptors", &arguments).hear().unwrap();
        let is_clear = said.starts_with("cannot set up the session: Too many open files");
        assert_eq!((is_clear, said == "connected"), (more < 20, more == 20), "{more}: {said}");
    }
    let mut resp = server.resp();
    wait_until("all have gone", || resp.info("connected_sessions_shm") == 0);
}

#[test]
fn a_thread_too_many_and_a_request_too_many_are_refused_with_the_reason() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=16MiB"]);
    let options = Options { wake: Wake::Event, ..remora_tests::by_pointers() };
    let client = remora_client_core::Client::connect(&server.socket(), &options).unwrap();
    let mut all: Vec<Session> =
        (0..MAX_CLIENT_SESSIONS).map(|_| client.session().unwrap()).collect();
    let refused = client.session().err();
    assert_eq!(refused, Some(Error::TooManySessions));
    let text = refused.unwrap().to_string();
    assert_eq!(text, "this process has 4096 sessions on one connection: drop some");
    all.truncate(1);
    let mut session = client.session().expect("there is room again");
    let get = remora_protocol::Command::Get { key: b"k" };
    let refused = (0..=MAX_IN_FLIGHT).map(|_| session.submit(&get)).find_map(Result::err);
    assert_eq!(refused, Some(Error::TooManySubmitted));
    let text = refused.unwrap().to_string();
    assert_eq!(text, "more than 1024 submitted requests: take their replies first");
    while session.next_reply(&mut |_, _| ()).unwrap() {}
    use_own_keys(&mut session, "session", 1);
}
