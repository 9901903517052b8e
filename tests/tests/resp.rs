//! RESP over TCP, byte by byte: order, pipelining, hostile and slow clients.

use remora_tests::proc::anonymous_kib;
use remora_tests::{DEADLINE, Random, Resp, ServerProcess, Value, encode, wait_until};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=3", "--max-memory=48MiB"])
}

fn is_well(server: &mut ServerProcess) {
    assert!(server.is_alive(), "{}", server.log());
    assert!(!server.log().contains("panic"), "{}", server.log());
    let mut resp = server.resp();
    assert_eq!(resp.call("SET well yes"), Value::ok());
    assert_eq!(resp.call("GET well"), Value::bulk("yes"));
}

/// Writes while somebody else reads, so that neither side blocks.
fn write_all(resp: &Resp, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    let mut socket = resp.socket.try_clone().unwrap();
    std::thread::spawn(move || socket.write_all(&bytes).unwrap())
}

/// What was asked before HELLO is answered as it was asked, although the answer
/// comes after HELLO was understood: a key that is not there is the owner's to
/// say.
#[test]
fn a_change_of_protocol_begins_with_its_own_reply() {
    let server = server();
    let mut resp = server.resp();
    resp.send_raw(b"GET none\r\nMGET none\r\nHELLO 3\r\nGET none\r\nHELLO 2\r\nGET none\r\n")
        .unwrap();
    resp.socket.shutdown(Shutdown::Write).unwrap();
    let replies = resp.rest().unwrap();
    let replies = String::from_utf8_lossy(&replies);
    assert!(replies.starts_with("$-1\r\n*1\r\n$-1\r\n%"), "{replies}");
    assert!(replies.contains("\r\n_\r\n*") && replies.ends_with("\r\n$-1\r\n"), "{replies}");
}

/// Rewrites keys of its own until told to stop.
fn busy_neighbour(server: &ServerProcess, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (mut resp, stop) = (server.resp(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut rounds = 0;
        // Once at least, however late the thread begins.
        while rounds == 0 || !stop.load(Ordering::Relaxed) {
            let key = format!("neighbour:{}", rounds % 100);
            assert_eq!(resp.call(&format!("SET {key} {rounds}")), Value::ok());
            assert_eq!(resp.call(&format!("GET {key}")), Value::bulk(rounds.to_string()));
            rounds += 1;
        }
        rounds
    })
}

/// One random request and the reply that a map gives.
fn draw(random: &mut Random, map: &mut HashMap<Vec<u8>, Vec<u8>>) -> (Vec<Vec<u8>>, Value) {
    let key = format!("key:{}", random.below(60)).into_bytes();
    let number = format!("number:{}", random.below(10)).into_bytes();
    let value = |random: &mut Random| {
        let bytes = random.below(300);
        random.bytes(bytes)
    };
    let found = |map: &HashMap<Vec<u8>, Vec<u8>>, key: &[u8]| {
        map.get(key).map_or(Value::Null, |value| Value::Bulk(value.clone()))
    };
    match random.below(10) {
        0..3 => {
            let value = value(random);
            map.insert(key.clone(), value.clone());
            (vec![b"SET".into(), key, value], Value::ok())
        }
        3..6 => (vec![b"GET".into(), key.clone()], found(map, &key)),
        6 => {
            let gone = map.remove(&key).is_some();
            (vec![b"DEL".into(), key], Value::Integer(gone.into()))
        }
        7 => {
            let old = map
                .get(&number)
                .map_or(0, |text| std::str::from_utf8(text).unwrap().parse::<i64>().unwrap());
            map.insert(number.clone(), (old + 7).to_string().into_bytes());
            (vec![b"INCRBY".into(), number, b"7".into()], Value::Integer(old + 7))
        }
        8 => {
            let mut request = vec![b"MSET".to_vec()];
            for _ in 0..1 + random.below(6) {
                let key = format!("key:{}", random.below(60)).into_bytes();
                let value = value(random);
                map.insert(key.clone(), value.clone());
                request.extend([key, value]);
            }
            (request, Value::ok())
        }
        _ => {
            let mut request = vec![b"MGET".to_vec()];
            let mut values = Vec::new();
            for _ in 0..1 + random.below(8) {
                let key = format!("key:{}", random.below(60)).into_bytes();
                values.push(found(map, &key));
                request.push(key);
            }
            (request, Value::Array(values))
        }
    }
}

#[test]
fn ten_thousand_mixed_commands_in_one_write_agree_with_a_map() {
    let server = server();
    let stop = Arc::new(AtomicBool::new(false));
    let neighbour = busy_neighbour(&server, &stop);
    for seed in 0..3 {
        let mut resp = server.resp();
        assert!(!resp.call("MGET key:0").is_error());
        let mut random = Random::new(seed);
        let mut map = HashMap::new();
        // A fresh start for this seed's keys; the neighbour's stay.
        for key in 0..60 {
            resp.call(&format!("DEL key:{key} number:{}", key % 10));
        }
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..10_000 {
            let (request, reply) = draw(&mut random, &mut map);
            let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            bytes.extend(encode(&words));
            expected.push((request, reply));
        }
        let writer = write_all(&resp, bytes);
        for (at, (request, reply)) in expected.iter().enumerate() {
            let found = resp.receive().unwrap();
            let name = String::from_utf8_lossy(&request[0]).into_owned();
            assert_eq!(found, *reply, "seed {seed}, request {at}: {name}");
        }
        writer.join().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    println!("the neighbour did {} rounds", neighbour.join().unwrap());
}

#[test]
fn a_connection_sees_its_own_writes() {
    let server = server();
    let stop = Arc::new(AtomicBool::new(false));
    let neighbour = busy_neighbour(&server, &stop);
    let mut resp = server.resp();
    let mut bytes = Vec::new();
    for round in 0..1000 {
        let (key, value) = (format!("key:{}", round % 3), format!("value:{round}"));
        bytes.extend(encode(&[b"SET", key.as_bytes(), value.as_bytes()]));
        bytes.extend(encode(&[b"GET", key.as_bytes()]));
    }
    let writer = write_all(&resp, bytes);
    for round in 0..1000 {
        assert_eq!(resp.receive().unwrap(), Value::ok());
        assert_eq!(resp.receive().unwrap(), Value::bulk(format!("value:{round}")));
    }
    writer.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(neighbour.join().unwrap() > 0);
}

#[test]
fn a_request_may_be_cut_anywhere() {
    let server = server();
    let mut resp = server.resp();
    let mut request = encode(&[b"SET", b"k", b"a\r\n$3\r\nb"]);
    request.extend(b"PING inline\r\n");
    request.extend(encode(&[b"MGET", b"k", b"none"]));
    for cut in 1..request.len() {
        resp.send_raw(&request[..cut]).unwrap();
        std::thread::sleep(Duration::from_micros(500));
        resp.send_raw(&request[cut..]).unwrap();
        assert_eq!(resp.receive().unwrap(), Value::ok(), "cut at {cut}");
        assert_eq!(resp.receive().unwrap(), Value::bulk("inline"));
        let values = vec![Value::bulk("a\r\n$3\r\nb"), Value::Null];
        assert_eq!(resp.receive().unwrap(), Value::Array(values));
    }
    for byte in &request {
        resp.send_raw(&[*byte]).unwrap();
    }
    assert_eq!(resp.receive().unwrap(), Value::ok());
}

/// What comes until the server closes, and whether it does.
fn until_closed(socket: &mut TcpStream) -> (Vec<u8>, bool) {
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    loop {
        match socket.read(&mut some) {
            Ok(0) => return (bytes, true),
            Ok(count) => bytes.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return (bytes, true);
            }
            Err(_) => return (bytes, false),
        }
    }
}

#[test]
fn senseless_bytes_end_in_a_protocol_error_and_nobody_else_suffers() {
    let mut server = server();
    let mut other = server.resp();
    let long_inline = vec![b'x'; 80 << 10];
    let deep: Vec<u8> = b"*1\r\n".repeat(1000);
    let cases: [&[u8]; 10] = [
        b"*1048577\r\n",
        b"*99999999999999999999\r\n",
        b"*x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$-2\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*2\r\n$3\r\nGET\r\n:5\r\n",
        &deep,
        &long_inline,
        b"SET \"unbalanced\r\n",
    ];
    for case in cases {
        let mut socket = server.resp().socket;
        socket.write_all(case).unwrap();
        let (said, closed) = until_closed(&mut socket);
        let (shown, said) = (case[..case.len().min(40)].escape_ascii(), said.escape_ascii());
        assert!(said.to_string().starts_with("-ERR Protocol error"), "{shown}: {said}");
        assert!(closed, "{shown}");
        assert_eq!(other.call("PING"), Value::Simple("PONG".into()));
    }
    is_well(&mut server);
}

#[test]
fn random_bytes_harm_nobody() {
    let mut server = server();
    let mut other = server.resp();
    let mut random = Random::new(5);
    for round in 0..60 {
        let mut socket = server.resp().socket;
        let count = random.below(20_000);
        let mut bytes = random.bytes(count);
        if round % 2 == 0 {
            // Nearer to the grammar.
            const SOME: &[u8] = b"*$:-+_123\r\n\r\nGETSET k";
            bytes.iter_mut().for_each(|byte| *byte = SOME[*byte as usize % SOME.len()]);
        }
        // The server may have closed already.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let (_, closed) = until_closed(&mut socket);
        assert!(closed, "round {round}");
        assert_eq!(other.call("PING"), Value::Simple("PONG".into()));
    }
    is_well(&mut server);
}

#[test]
fn a_slow_reader_holds_up_only_itself() {
    let mut server = server();
    let mut other = server.resp();
    let value = vec![b'v'; 60_000];
    assert_eq!(other.try_call(&[b"SET", b"large", &value]).unwrap(), Value::ok());
    let resident = anonymous_kib(server.pid());
    let mut slow = server.resp();
    const ASKED: usize = 3000;
    slow.send_raw(&encode(&[b"GET", b"large"]).repeat(ASKED)).unwrap();
    for _ in 0..5_000 {
        assert_eq!(other.call("SET k v"), Value::ok());
        assert_eq!(other.call("GET k"), Value::bulk("v"));
    }
    let grown = anonymous_kib(server.pid()).saturating_sub(resident);
    println!("{grown} KiB more for 180 MB that nobody reads");
    assert!(grown < 80 << 10, "{grown} KiB");
    for at in 0..ASKED {
        assert_eq!(slow.receive().unwrap(), Value::Bulk(value.clone()), "reply {at}");
    }
    is_well(&mut server);
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let server = server();
    for _ in 0..20 {
        let mut resp = server.resp();
        let mut bytes = Vec::new();
        for round in 0..200u32 {
            let value = round.to_string();
            bytes.extend(encode(&[b"SET", b"half", value.as_bytes()]));
            bytes.extend(encode(&[b"GET", b"half"]));
        }
        resp.send_raw(&bytes).unwrap();
        resp.socket.shutdown(Shutdown::Write).unwrap();
        for round in 0..200u32 {
            assert_eq!(resp.receive().unwrap(), Value::ok());
            assert!(matches!(resp.receive().unwrap(), Value::Bulk(_)), "{round}");
        }
        assert!(resp.rest().unwrap().is_empty(), "then the server closes");
    }
}

#[test]
fn requests_over_several_shards_are_whole() {
    let server = server();
    let mut resp = server.resp();
    let keys: Vec<String> = (0..1000).map(|key| format!("key:{key}")).collect();
    let mut set: Vec<&[u8]> = vec![b"MSET"];
    let mut get: Vec<&[u8]> = vec![b"MGET"];
    for key in &keys {
        set.extend([key.as_bytes(), key.as_bytes()]);
        get.push(key.as_bytes());
    }
    assert_eq!(resp.try_call(&set).unwrap(), Value::ok());
    let values = keys.iter().map(|key| Value::bulk(key.as_bytes())).collect();
    assert_eq!(resp.try_call(&get).unwrap(), Value::Array(values));
    assert_eq!(resp.call("DBSIZE"), Value::Integer(1000));
    get[0] = b"EXISTS";
    assert_eq!(resp.try_call(&get).unwrap(), Value::Integer(1000));
    get[0] = b"DEL";
    assert_eq!(resp.try_call(&get).unwrap(), Value::Integer(1000));
    assert_eq!(resp.call("DBSIZE"), Value::Integer(0));
}

#[test]
fn quit_answers_and_closes_and_executes_nothing_more() {
    let server = server();
    let mut resp = server.resp();
    resp.send_raw(b"SET k before\r\nQUIT\r\nSET k after\r\n").unwrap();
    assert_eq!(resp.receive().unwrap(), Value::ok());
    assert_eq!(resp.receive().unwrap(), Value::ok());
    // The rest may be thrown away by a reset.
    assert!(resp.rest().unwrap_or_default().is_empty());
    assert_eq!(server.resp().call("GET k"), Value::bulk("before"));
}

#[test]
fn two_hundred_connections_at_once() {
    let mut server = server();
    let mut all: Vec<Resp> = (0..200).map(|_| server.resp()).collect();
    wait_until("all are taken in", || all[0].info("connected_clients") == 200);
    for round in 0..5 {
        for (number, resp) in all.iter_mut().enumerate() {
            resp.send_raw(format!("SET c{number} {round}\r\nGET c{number}\r\n").as_bytes())
                .unwrap();
        }
        for resp in &mut all {
            assert_eq!(resp.receive().unwrap(), Value::ok());
            assert_eq!(resp.receive().unwrap(), Value::bulk(round.to_string()));
        }
    }
    drop(all);
    let mut resp = server.resp();
    wait_until("they are closed", || resp.info("connected_clients") == 1);
    is_well(&mut server);
}
