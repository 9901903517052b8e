//! Sessions over rings that wait for elements of several lists, and that move elements between lists: over
//! shared memory and TCP, beside clients that wait over RESP.

use remora_client_core::{Error, Options, Session, Side, Wake, Wanted};
use remora_protocol::message::Status;
use remora_tests::{Random, Resp, Role, ServerProcess, Value, free_port, role, wait_until};
use std::collections::BTreeMap;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// Of several shards, whatever the server's slots are.
const KEYS: [&[u8]; 6] = [b"queue", b"a", b"b", b"c", b"d", b"e"];
const TRANSPORTS: [Wanted; 2] = [Wanted::Shm, Wanted::Tcp];

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=3", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"])
}

fn session(server: &ServerProcess, transport: Wanted) -> Session {
    server.session_with(&Options { transport, wake: Wake::Event, ..remora_tests::by_pointers() })
}

/// A thread with a session that waits, once the server says that one more client does.
fn waits<T: Send + 'static>(
    mut session: Session,
    control: &mut Resp,
    wait: impl FnOnce(&mut Session) -> T + Send + 'static,
) -> JoinHandle<T> {
    let before = control.info("blocked_clients");
    let thread = std::thread::spawn(move || wait(&mut session));
    settle(control, before + 1);
    thread
}

/// A RESP connection that waits.
fn waits_by_resp(server: &ServerProcess, control: &mut Resp, call: &str) -> Resp {
    let before = control.info("blocked_clients");
    let mut resp = server.resp();
    let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    resp.send(&words).unwrap();
    settle(control, before + 1);
    resp
}

/// So many clients wait at the shard of `queue`: what was on its way there has come once a request has
/// made two turns of it.
fn settle(control: &mut Resp, clients: u64) {
    wait_until("it waits", || control.info("blocked_clients") == clients);
    for _ in 0..2 {
        assert_eq!(control.call("LLEN queue"), Value::Integer(0));
    }
}

/// The server says that no client waits: it counts the answered ones soon after it has answered them.
fn nobody_waits(control: &mut Resp) {
    wait_until("nobody waits", || control.info("blocked_clients") == 0);
}

fn length(control: &mut Resp, key: &[u8]) -> i64 {
    match control.try_call(&[b"LLEN", key]).unwrap() {
        Value::Integer(length) => length,
        other => panic!("{other:?}"),
    }
}

fn push(control: &mut Resp, key: &[u8], element: &[u8]) {
    let Value::Integer(_) = control.try_call(&[b"RPUSH", key, element]).unwrap() else {
        panic!("an element is pushed")
    };
}

fn first(list: Vec<Vec<u8>>) -> Vec<u8> {
    list.into_iter().next().unwrap()
}

/// Each of them waits for `queue` first. They are served in the order in which they came there, whatever
/// they wait with.
#[test]
fn sessions_and_connections_are_served_in_the_order_in_which_they_came() {
    for transport in TRANSPORTS {
        let server = server();
        let mut control = server.resp();
        let one = waits(session(&server, transport), &mut control, |session| {
            let found = session.list_wait_any(&KEYS, (Side::Left, 1), None).unwrap().unwrap();
            assert_eq!(found.key, b"queue");
            first(found.items)
        });
        let mut two = waits_by_resp(&server, &mut control, "BLPOP queue a b c 0");
        let three = waits(session(&server, transport), &mut control, |session| {
            let list = session.open_list(b"queue").unwrap();
            session.list_wait(&list, Side::Left, None).unwrap().unwrap()
        });
        let moves: Vec<_> = KEYS[1..]
            .iter()
            .map(|&to| {
                waits(session(&server, transport), &mut control, move |session| {
                    let list = session.open_list(b"queue").unwrap();
                    let sides = (Side::Left, Side::Right);
                    session.list_wait_to_move(&list, to, sides, None).unwrap().unwrap()
                })
            })
            .collect();
        let mut last = waits_by_resp(&server, &mut control, "BLMOVE queue e LEFT RIGHT 0");
        control.call("RPUSH queue 1 2 3 4 5 6 7 8 9");
        assert_eq!(one.join().unwrap(), b"1");
        let pair = Value::Array(vec![Value::bulk("queue"), Value::bulk("2")]);
        assert_eq!(two.receive().unwrap(), pair);
        assert_eq!(three.join().unwrap(), b"3");
        let moved: Vec<_> = moves.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(moved, [b"4", b"5", b"6", b"7", b"8"]);
        assert_eq!(last.receive().unwrap(), Value::bulk("9"));
        for (key, element) in [("a", "4"), ("b", "5"), ("c", "6"), ("d", "7")] {
            let elements = control.call(&format!("LRANGE {key} 0 -1"));
            assert_eq!(elements, Value::Array(vec![Value::bulk(element)]), "{key}");
        }
        assert_eq!((length(&mut control, b"e"), length(&mut control, b"queue")), (2, 0));
        nobody_waits(&mut control);
    }
}

#[test]
fn a_session_waits_for_keys_of_all_shards_and_takes_from_the_first_that_has_something() {
    let server = server();
    let mut control = server.resp();
    for transport in TRANSPORTS {
        // Whichever key gets something while it waits.
        for key in KEYS {
            nobody_waits(&mut control);
            let thread = waits(session(&server, transport), &mut control, |session| {
                session.list_wait_any(&KEYS, (Side::Right, 2), None).unwrap().unwrap()
            });
            let value = vec![b'v'; 200_000];
            push(&mut control, key, &value);
            let found = thread.join().unwrap();
            assert!(found.key == key && found.items == [value], "{:?}", found.key);
            // It waits nowhere any more.
            for key in KEYS {
                push(&mut control, key, b"stays");
                assert_eq!(length(&mut control, key), 1);
            }
            let mut session = session(&server, transport);
            // All hold something: they are emptied in the order in which they are asked for.
            for at in 0..KEYS.len() {
                let mut keys = KEYS;
                keys.rotate_left(at);
                let found = session.list_wait_any(&keys, (Side::Left, 9), None).unwrap().unwrap();
                assert_eq!((&found.key[..], &found.items[..]), (keys[0], &[b"stays".to_vec()][..]));
            }
            let time = Some(Duration::from_millis(2));
            assert_eq!(session.list_wait_any(&KEYS, (Side::Left, 1), time).unwrap(), None);
        }
        nobody_waits(&mut control);
    }
}

#[test]
fn what_cannot_wait_is_refused_and_what_has_waited_leaves_nothing() {
    let server = server();
    let mut control = server.resp();
    let mut session = session(&server, Wanted::Shm);
    let time = Some(Duration::from_millis(2));
    let malformed = Err(Error::Refused(Status::Malformed));
    assert_eq!(session.list_wait_any(&[], (Side::Left, 1), time), malformed);
    let many = vec![&b"a"[..]; 1025];
    assert_eq!(session.list_wait_any(&many, (Side::Left, 1), time), malformed);
    assert_eq!(session.list_wait_any(&many[1..], (Side::Left, 1), time), Ok(None));
    control.call("SET text x");
    let wrong = Error::Refused(Status::WrongType);
    let with_text: [[&[u8]; 2]; 3] = [[b"text", b"a"], [b"a", b"text"], [b"b", b"text"]];
    for keys in with_text {
        assert_eq!(session.list_wait_any(&keys, (Side::Left, 1), None), Err(wrong));
    }
    // Whether the shards of the two keys are one or two.
    for key in KEYS {
        let list = session.open_list(key).unwrap();
        let sides = (Side::Left, Side::Left);
        assert_eq!(session.list_wait_to_move(&list, b"to", sides, time).unwrap(), None);
        push(&mut control, key, b"x");
        assert_eq!(session.list_wait_to_move(&list, b"text", sides, None), Err(wrong));
        assert_eq!(length(&mut control, key), 1, "it stays where it is");
        let moved = session.list_wait_to_move(&list, b"to", sides, None).unwrap();
        assert_eq!(moved.as_deref(), Some(&b"x"[..]));
        // Within one list.
        push(&mut control, key, b"y");
        let moved = session.list_wait_to_move(&list, key, sides, None).unwrap();
        assert_eq!(moved.as_deref(), Some(&b"y"[..]));
        assert_eq!(length(&mut control, key), 1, "nobody waits for it");
        control.try_call(&[b"DEL", key]).unwrap();
    }
    assert_eq!(length(&mut control, b"to"), KEYS.len() as i64);
    nobody_waits(&mut control);
}

#[test]
fn plays_its_part() {
    let Some((name, arguments)) = role() else { return };
    let (socket, options) = (Path::new(&arguments[0]), remora_tests::by_pointers());
    let mut session = Session::connect(socket, &options).unwrap();
    Role::say("waits");
    match name.as_str() {
        "several keys" => _ = session.list_wait_any(&KEYS, (Side::Left, 1), None),
        _ => {
            let list = session.open_list(b"queue").unwrap();
            let to = name.strip_prefix("move to ").unwrap().as_bytes();
            _ = session.list_wait_to_move(&list, to, (Side::Left, Side::Left), None);
        }
    }
}

#[test]
fn a_client_that_is_killed_while_it_waits_takes_nothing() {
    let server = server();
    let mut control = server.resp();
    for name in ["several keys", "move to a", "move to b", "move to c", "move to d"] {
        let socket = server.socket();
        let mut client = Role::start(module_path!(), name, &[socket.to_str().unwrap()]);
        assert_eq!(client.hear().as_deref(), Some("waits"));
        wait_until("it waits", || control.info("blocked_clients") == 1);
        client.kill();
        wait_until("its end is found", || control.info("blocked_clients") == 0);
        wait_until("its session is taken down", || control.info("connected_sessions_shm") == 0);
        for key in KEYS {
            push(&mut control, key, b"x");
            assert_eq!(length(&mut control, key), 1, "{name}");
            control.try_call(&[b"DEL", key]).unwrap();
        }
    }
}

#[test]
fn a_server_that_becomes_a_replica_ends_the_waits_of_sessions() {
    let addresses = [0, 1].map(|_| format!("127.0.0.1:{}", free_port()));
    let [primary, server] = addresses.each_ref().map(|address| {
        let fabric = format!("--fabric-address={address}");
        ServerProcess::start(&["--shards=3", "--max-memory=64MiB", &fabric])
    });
    assert_eq!(primary.resp().call("SET k v"), Value::ok());
    let mut control = server.resp();
    let several = waits(session(&server, Wanted::Shm), &mut control, |session| {
        session.list_wait_any(&KEYS, (Side::Left, 1), None).map(drop)
    });
    let moves = KEYS.map(|to| {
        waits(session(&server, Wanted::Tcp), &mut control, move |session| {
            let list = session.open_list(b"queue").unwrap();
            session.list_wait_to_move(&list, to, (Side::Left, Side::Left), None).map(drop)
        })
    });
    assert_eq!(control.call(&format!("REPLICAOF {}", addresses[0])), Value::ok());
    let ended = Err(Error::Refused(Status::WaitEnded));
    assert_eq!(several.join().unwrap(), ended);
    assert!(moves.into_iter().all(|thread| thread.join().unwrap() == ended));
    nobody_waits(&mut control);
    let refused = session(&server, Wanted::Shm).list_wait_any(&KEYS, (Side::Left, 1), None);
    assert_eq!(refused, Err(Error::Refused(Status::ReadOnly)));
    // A server that ends ends them, too.
    assert_eq!(control.call("REPLICAOF NO ONE"), Value::ok());
    let last = waits(session(&server, Wanted::Shm), &mut control, |session| {
        session.list_wait_any(&KEYS, (Side::Left, 1), None).map(drop)
    });
    server.terminate();
    assert!(last.join().unwrap().is_err());
}

/// Some move elements between lists of all shards, by sessions and RESP; others take them and put them back.
#[test]
fn elements_that_are_moved_and_taken_are_there_once() {
    const ELEMENTS: usize = 60;
    let server = server();
    let mut control = server.resp();
    for number in 0..ELEMENTS {
        push(&mut control, KEYS[number % KEYS.len()], number.to_string().as_bytes());
    }
    let time = Some(Duration::from_millis(5));
    let threads: Vec<_> = (0..6)
        .map(|seed| {
            let mut session = session(&server, TRANSPORTS[seed % 2]);
            let mut resp = server.resp();
            std::thread::spawn(move || {
                let (mut random, mut done) = (Random::new(seed as u64), 0);
                for _ in 0..300 {
                    let [from, to] = [0; 2].map(|_| random.pick(&KEYS));
                    let sides = (Side::Left, random.pick(&[Side::Left, Side::Right]));
                    done += match random.below(4) {
                        0 | 1 => {
                            let list = session.open_list(from).unwrap();
                            let moved = session.list_wait_to_move(&list, to, sides, time).unwrap();
                            u32::from(moved.is_some())
                        }
                        2 => {
                            let words = [b"BLMOVE", from, to, b"LEFT", b"RIGHT", b"0.005"];
                            let moved = resp.try_call(&words).unwrap();
                            assert!(!moved.is_error(), "{moved:?}");
                            u32::from(moved != Value::Null)
                        }
                        _ => {
                            let of = (Side::Right, 2);
                            match session.list_wait_any(&[from, to], of, time).unwrap() {
                                None => 0,
                                Some(taken) => {
                                    let list = session.open_list(&taken.key).unwrap();
                                    let items: Vec<_> =
                                        taken.items.iter().map(|item| &item[..]).collect();
                                    session.list_push(&list, Side::Left, &items).unwrap();
                                    1
                                }
                            }
                        }
                    };
                }
                done
            })
        })
        .collect();
    let done: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(done > 100, "{done} of them did something");
    let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for key in KEYS {
        let Value::Array(items) = control.try_call(&[b"LRANGE", key, b"0", b"-1"]).unwrap() else {
            panic!("a list")
        };
        for item in items {
            let Value::Bulk(item) = item else { panic!("an element") };
            *found.entry(item).or_default() += 1;
        }
    }
    assert!(found.len() == ELEMENTS && found.values().all(|times| *times == 1), "{found:?}");
}
