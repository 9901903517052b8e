//! Trees of places over RESP: real clients on real places, pipelines, large
//! replies, hostile arguments, full memory.

use remora_tests::{
    DEADLINE, Random, Resp, ServerProcess, Value, encode, run_redis_py, wait_until,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=64MiB"])
}

fn is_well(server: &mut ServerProcess) {
    assert!(server.is_alive(), "{}", server.log());
    assert!(!server.log().contains("panic"), "{}", server.log());
    let mut resp = server.resp();
    assert_eq!(resp.call("SET well yes"), Value::ok());
    assert_eq!(resp.call("GET well"), Value::bulk("yes"));
}

/// The ids of an array of integers; no one may come twice.
fn ids(value: &Value) -> BTreeSet<i64> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    let ids: BTreeSet<i64> = items
        .iter()
        .map(|item| match item {
            Value::Integer(id) => *id,
            other => panic!("no id: {other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), items.len(), "an object twice");
    ids
}

/// Adds points (i, 0) for each i below `count`.
fn add_row(resp: &mut Resp, name: &str, count: u64) {
    for from in (0..count).step_by(1_000) {
        let to = count.min(from + 1_000);
        let add = |id| format!("RTREE.ADDPOINT {name} {id} {id} 0");
        let requests = (from..to).map(|id| encode(&split(&add(id))));
        resp.send_raw(&requests.collect::<Vec<_>>().concat()).unwrap();
        for id in from..to {
            assert_eq!(resp.receive().unwrap(), Value::Integer(1), "{id}");
        }
    }
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

#[test]
fn redis_py_on_places() {
    run_redis_py("places.py", "hold against brute force");
}

/// Random requests in pipelines: each sees what those before it did, and
/// nothing of those behind it.
#[test]
fn pipelines_are_answered_in_order() {
    let mut server = server();
    let mut resp = server.resp();
    let mut random = Random::new(11);
    let mut model: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    assert_eq!(resp.call("RTREE.CREATE t CAPACITY 4"), Value::ok());
    for _ in 0..200 {
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..random.below(40) {
            let id = random.below(300) as i64;
            let at = (random.below(100) as i64, random.below(100) as i64);
            let to = (at.0 + random.below(40) as i64, at.1 + random.below(40) as i64);
            let within = |model: &BTreeMap<i64, (i64, i64)>| {
                let holds =
                    |p: &(i64, i64)| (at.0..=to.0).contains(&p.0) && (at.1..=to.1).contains(&p.1);
                model.iter().filter(|(_, p)| holds(p)).map(|(id, _)| *id).collect::<BTreeSet<_>>()
            };
            let window = format!("{} {} {} {}", at.0, at.1, to.0, to.1);
            let (line, reply) = match random.below(6) {
                0..2 => {
                    let is_new = model.insert(id, at).is_none();
                    (format!("RTREE.ADDPOINT t {id} {} {}", at.0, at.1), Ok(is_new as i64))
                }
                2 => {
                    let gone = [id, id, id + 1].map(|id| model.remove(&id).is_some() as i64);
                    let line = format!("RTREE.REM t {id} {id} {}", id + 1);
                    (line, Ok(gone.iter().sum()))
                }
                3 => (format!("RTREE.COUNT t {window}"), Ok(within(&model).len() as i64)),
                4 => (format!("RTREE.SEARCH t {window} LIMIT 1000"), Err(within(&model))),
                _ => (format!("RTREE.SEARCH t {window}"), Err(within(&model))),
            };
            requests.extend(encode(&split(&line)));
            expected.push((line, reply));
        }
        resp.send_raw(&requests).unwrap();
        for (line, reply) in expected {
            let found = resp.receive().unwrap();
            match reply {
                Ok(number) => assert_eq!(found, Value::Integer(number), "{line}"),
                Err(objects) => assert_eq!(ids(&found), objects, "{line}"),
            }
        }
    }
    is_well(&mut server);
}

/// A reply of 100,000 objects, again and again: others are answered in
/// between, many times for each.
#[test]
fn others_are_served_while_large_replies_are_made() {
    let mut server = server();
    let objects = 100_000;
    add_row(&mut server.resp(), "t", objects);
    let searches = 12;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let neighbour = {
        let (mut resp, stop) = (server.resp(), Arc::clone(&stop));
        let answered = Arc::clone(&answered);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(resp.call("RTREE.COUNT t 5 0 7 0"), Value::Integer(3));
                assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
                answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut resp = server.resp();
    let search = encode(&split("RTREE.SEARCH t -1 -1 100000 1 WITHRECT"));
    // A busy machine may run the neighbour little for a while: then again.
    wait_until("the neighbour is answered many times for each of some replies", || {
        let before = answered.load(Ordering::Relaxed);
        resp.send_raw(&search.repeat(searches)).unwrap();
        (0..searches).for_each(|_| take_row(&mut resp, objects));
        let meanwhile = answered.load(Ordering::Relaxed) - before;
        println!("{meanwhile} rounds of the neighbour in {searches} replies");
        meanwhile > 5 * searches as u64
    });
    stop.store(true, Ordering::Relaxed);
    neighbour.join().unwrap();
    is_well(&mut server);
}

/// Takes a reply with all objects of a row.
fn take_row(resp: &mut Resp, objects: u64) {
    let Value::Array(found) = resp.receive().unwrap() else { panic!("no array") };
    let mut seen = vec![false; objects as usize];
    for object in &found {
        let Value::Array(items) = object else { panic!("no object: {object:?}") };
        let Value::Integer(id) = items[0] else { panic!("no id: {object:?}") };
        assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} twice");
        let x = Value::bulk(id.to_string());
        assert_eq!(items[1..], [x.clone(), Value::bulk("0"), x, Value::bulk("0")]);
    }
    assert_eq!(found.len() as u64, objects);
}

/// A client that asks for much and reads nothing costs the server what it
/// found, not its text, and only once.
#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let mut server = server();
    add_row(&mut server.resp(), "t", 20_000);
    let search = encode(&split("RTREE.SEARCH t -1 -1 100000 1 WITHRECT"));
    let mut idle: Vec<Resp> = (0..8).map(|_| server.resp()).collect();
    for resp in &mut idle {
        resp.send_raw(&search.repeat(50)).unwrap();
    }
    let mut resp = server.resp();
    for _ in 0..200 {
        assert_eq!(resp.call("RTREE.COUNT t 5 0 7 0"), Value::Integer(3));
    }
    assert_eq!(resp.info("client_output_buffer_limit_disconnections"), 0);
    // Those that read after all get everything.
    let mut last = idle.pop().unwrap();
    for _ in 0..50 {
        let Value::Array(found) = last.receive().unwrap() else { panic!("no array") };
        assert_eq!(found.len(), 20_000);
    }
    drop(idle);
    is_well(&mut server);
}

/// Small searches are read beside the shard, which changes the tree all the
/// while: what stands still is found each time, and nothing twice.
#[test]
fn searches_are_read_while_the_tree_changes() {
    let mut server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    let (still, moving) = (2_000, 500);
    assert_eq!(server.resp().call("RTREE.CREATE t CAPACITY 8"), Value::ok());
    add_row(&mut server.resp(), "t", still);
    let stop = Arc::new(AtomicBool::new(false));
    let mover = {
        let (mut resp, stop) = (server.resp(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut random = Random::new(5);
            while !stop.load(Ordering::Relaxed) {
                let moved = (0..20).flat_map(|_| {
                    let (id, x) = (still + random.below(moving) as u64, random.below(2_000));
                    match random.below(4) {
                        0 => encode(&split(&format!("RTREE.REM t {id}"))),
                        _ => encode(&split(&format!("RTREE.ADDPOINT t {id} {x}.5 0"))),
                    }
                });
                resp.send_raw(&moved.collect::<Vec<_>>()).unwrap();
                for _ in 0..20 {
                    assert!(!resp.receive().unwrap().is_error());
                }
            }
        })
    };
    let (mut resp, mut random) = (server.resp(), Random::new(6));
    let before = resp.info("optimistic_reads");
    let is_read = |resp: &mut Resp| resp.info("optimistic_reads") - before > 1_000;
    let (began, mut round) = (Instant::now(), 0);
    while round < 20_000 || !is_read(&mut resp) {
        assert!(began.elapsed() < DEADLINE, "searches are asked for");
        round += 1;
        let from = random.below(still as usize - 60) as i64;
        let to = from + random.below(60) as i64;
        let line = format!("RTREE.SEARCH t {from} 0 {to}.75 0");
        let found = ids(&resp.call(&line));
        let stood: Vec<i64> = found.iter().copied().filter(|id| *id < still as i64).collect();
        assert_eq!(stood, (from..=to).collect::<Vec<_>>(), "round {round}: {line}");
    }
    let read = resp.info("optimistic_reads") - before;
    let asked = resp.info("asked_reads");
    stop.store(true, Ordering::Relaxed);
    mover.join().unwrap();
    println!("{read} searches were read, {asked} were asked for after reading");
    is_well(&mut server);
}

/// Trees come and go under searches of them: each search finds one tree whole,
/// or is told that there is none.
#[test]
fn trees_that_are_dropped_under_searches() {
    let mut server = server();
    let objects = 3_000;
    let stop = Arc::new(AtomicBool::new(false));
    // Searches that found a tree, and that found none.
    let seen = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let searcher = {
        let (mut resp, stop, seen) = (server.resp(), Arc::clone(&stop), Arc::clone(&seen));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let found = resp.call("RTREE.SEARCH t -1 -1 100000 1");
                if let Value::Error(text) = &found {
                    assert!(text.starts_with("ERR no such tree"), "{text}");
                } else {
                    ids(&found);
                }
                seen[usize::from(found.is_error())].fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut resp = server.resp();
    let mut round = 0;
    wait_until("searches find a tree, and none", || {
        assert_eq!(resp.call("RTREE.CREATE t"), Value::ok());
        add_row(&mut resp, "t", objects);
        let error = "ERR a tree of that name exists";
        assert_eq!(resp.call("RTREE.CREATE t KIND guttman"), Value::Error(error.into()));
        let dropped = ["FLUSHALL", "RTREE.DROP t"][round % 2];
        assert!(!resp.call(dropped).is_error());
        assert_eq!(resp.call("RTREE.DROP t"), Value::Integer(0));
        assert_eq!(resp.call("RTREE.REM t 1 2"), Value::Integer(0));
        round += 1;
        let has_both = seen.iter().all(|count| count.load(Ordering::Relaxed) > 0);
        searcher.is_finished() || (round >= 20 && has_both)
    });
    stop.store(true, Ordering::Relaxed);
    searcher.join().unwrap();
    println!("{seen:?} searches found a tree, and none");
    // A shard shows its counts every 10 ms.
    wait_until("INFO shows that no tree is left", || {
        ["trees", "tree_objects", "tree_bytes"].iter().all(|field| resp.info(field) == 0)
    });
    is_well(&mut server);
}

#[test]
fn trees_are_keys() {
    let server = server();
    let mut resp = server.resp();
    let wrong = |value: &Value| matches!(value, Value::Error(why) if why.starts_with("WRONGTYPE"));
    assert_eq!(resp.call("RTREE.ADD t 1 0 0 2 2 DATA x"), Value::Integer(1));
    for (request, number) in
        [("EXISTS t", 1), ("DBSIZE", 1), ("TTL t", -1), ("RTREE.ADD t 1 0 0 1 1", 0)]
    {
        assert_eq!(resp.call(request), Value::Integer(number), "{request}");
    }
    assert_eq!(resp.call("TYPE t"), Value::Simple("rtree".into()));
    for request in ["GET t", "INCR t", "APPEND t x", "GEOADD t 1 1 m", "SET t x GET"] {
        assert!(wrong(&resp.call(request)), "{request}");
    }
    assert_eq!(resp.call("MGET t"), Value::Array(vec![Value::Null]));
    let corners = ["0", "0", "1", "1"].map(Value::bulk).to_vec();
    let object = |data| Value::Array([corners.clone(), vec![data]].concat());
    assert_eq!(resp.call("RTREE.GET t 1"), object(Value::bulk("x")), "moved, and keeps its data");
    assert_eq!(resp.call("RTREE.ADD t 1 0 0 1 1 DATA "), Value::Integer(0));
    assert_eq!(resp.call("RTREE.GET t 1"), object(Value::Null));
    wait_until("INFO shows the tree and its object", || {
        ["trees", "tree_objects"].iter().all(|field| resp.info(field) == 1)
    });
    // A string in its place, and a tree in the string's: but by SET alone.
    assert_eq!(resp.call("SET t value"), Value::ok());
    assert!(wrong(&resp.call("RTREE.ADD t 1 0 0 1 1")));
    assert!(wrong(&resp.call("RTREE.DROP t")));
    assert_eq!(resp.call("GET t"), Value::bulk("value"));
    assert_eq!(resp.call("DEL t"), Value::Integer(1));
    assert_eq!(resp.call("RTREE.ADD t 1 0 0 1 1"), Value::Integer(1));
    assert_eq!(resp.call("RTREE.COUNT t 0 0 9 9"), Value::Integer(1));
    assert_eq!(resp.call("FLUSHALL"), Value::ok());
    assert!(resp.call("RTREE.INFO t").is_error());
    wait_until("all memory has come back", || resp.info("tree_bytes") == 0);
}

/// What the family of EXPIRE answers for a tree is what it answers for a string, of
/// which `tests/redis_cli.rs` and others compare it with Redis.
#[test]
fn trees_expire_as_strings_do() {
    let server = server();
    let mut resp = server.resp();
    add_row(&mut resp, "tree", 100);
    assert_eq!(resp.call("SET string x"), Value::ok());
    for request in [
        "TTL K",
        "PERSIST K",
        "EXPIRE K 1000 XX",
        "EXPIRE K 1000 GT",
        "EXPIRE K 1000 NX",
        "EXPIRE K 2000 NX",
        "EXPIRE K 500 GT",
        "EXPIRE K 500 LT",
        "EXPIRE K 700 XX",
        "TTL K",
        "EXISTS K",
        "PERSIST K",
        "TTL K",
        "PTTL K",
        "EXPIRETIME K",
        "EXPIREAT K 4000000000",
        "EXPIRETIME K",
        "PEXPIREAT K 4000000000123 GT",
        "PEXPIRETIME K",
        "EXPIRE K x",
        "EXPIRE K 9223372036854775807",
        "EXPIRE K 100 NX XX",
        "PERSIST K",
        "PERSIST K",
    ] {
        let of_string = resp.call(&request.replace('K', "string"));
        assert_eq!(resp.call(&request.replace('K', "tree")), of_string, "{request}");
    }
    assert_eq!(resp.call("RTREE.COUNT tree -1 -1 1000 1000"), Value::Integer(100));
    // A change keeps the expiry.
    assert_eq!(resp.call("EXPIREAT tree 4000000000"), Value::Integer(1));
    assert_eq!(resp.call("RTREE.ADD tree 7 0 0 1 1"), Value::Integer(0));
    assert_eq!(resp.call("EXPIRETIME tree"), Value::Integer(4_000_000_000));
    // One that lies in the past removes it, one that passes does so too.
    for end in ["EXPIRE K -1", "PEXPIRE K 1"] {
        resp.call("DEL tree");
        add_row(&mut resp, "tree", 100);
        assert_eq!(resp.call(&end.replace('K', "tree")), Value::Integer(1));
        wait_until("the tree is gone", || resp.call("EXISTS tree") == Value::Integer(0));
        assert_eq!(resp.call("TTL tree"), Value::Integer(-2));
        assert!(resp.call("RTREE.INFO tree").is_error());
    }
    // Those that no command looks at go, too, with all their memory.
    for tree in 0..20 {
        add_row(&mut resp, &format!("t{tree}"), 50);
        assert_eq!(resp.call(&format!("PEXPIRE t{tree} 1")), Value::Integer(1));
    }
    wait_until("all memory has come back", || {
        resp.info("trees") == 0 && resp.info("tree_bytes") == 0
    });
}

#[test]
fn hostile_arguments_are_refused() {
    let mut server = server();
    let mut resp = server.resp();
    add_row(&mut resp, "t", 100);
    let long = "9".repeat(100_000);
    for request in [
        format!("RTREE.ADDPOINT t 1 {long} 0"),
        format!("RTREE.ADDPOINT t {long} 0 0"),
        format!("RTREE.ADDPOINT {long} 1 0 0"),
        format!("RTREE.ADDPOINT t 1 0 0 DATA {long}"),
        format!("RTREE.SEARCH t 0 0 1 {long}"),
        format!("RTREE.SEARCH t 0 0 1 1 {long}"),
        "RTREE.SEARCH t -inf -inf inf inf".into(),
        "RTREE.SEARCH t 0 0 1 1 LIMIT -1".into(),
        "RTREE.NEAREST t 0 0 99999999999".into(),
        "RTREE.CREATE u CAPACITY 65536".into(),
        format!("RTREE.REM t 1 2 3 {long}"),
        "RTREE.ADD t 1 0 0 1 -1".into(),
    ] {
        let found = resp.call(&request);
        let Value::Error(text) = &found else { panic!("{request:.60}: {found:?}") };
        assert!(text.len() < 200 && text.starts_with("ERR "), "{request:.60}: {text}");
    }
    assert_eq!(resp.call("RTREE.COUNT t -1e308 -1e308 1e308 1e308"), Value::Integer(100));
    let far = "1.7976931348623157e308";
    assert_eq!(resp.call(&format!("RTREE.ADD t 7 -{far} 0 {far} 0")), Value::Integer(0));
    let Value::Array(found) = resp.call("RTREE.GET t 7") else { panic!("no object") };
    assert_eq!(found[..2], [Value::bulk(format!("-{far}")), Value::bulk("0")]);
    // An odd name is a name.
    for name in [&b""[..], b"\r\n\0", b"\xff"] {
        let words: [&[u8]; 5] = [b"RTREE.ADDPOINT", name, b"1", b"2", b"3"];
        assert_eq!(resp.try_call(&words).unwrap(), Value::Integer(1));
        let words: [&[u8]; 6] = [b"RTREE.COUNT", name, b"2", b"3", b"2", b"3"];
        assert_eq!(resp.try_call(&words).unwrap(), Value::Integer(1));
    }
    is_well(&mut server);
}

/// Memory runs full: what was refused is not there, what was accepted stays;
/// a tree that goes makes room.
#[test]
fn full_memory_refuses_objects_and_keeps_the_others() {
    let mut server = ServerProcess::start(&["--shards=1", "--max-memory=4MiB"]);
    let mut resp = server.resp();
    let mut accepted = BTreeSet::new();
    let mut refused = 0;
    for id in 0_i64..100_000 {
        let x = id * 7_919 % 10_007;
        match resp.call(&format!("RTREE.ADDPOINT t {id} {x} {id} DATA object-{id}")) {
            Value::Integer(1) => assert!(accepted.insert(id)),
            Value::Error(text) => {
                assert!(text.starts_with("OOM "), "{text}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        if refused == 300 {
            break;
        }
    }
    assert!(accepted.len() > 1_000 && refused == 300, "{} {refused}", accepted.len());
    assert_eq!(ids(&resp.call("RTREE.SEARCH t 0 0 20000 200000")), accepted);
    for id in accepted.iter().step_by(97) {
        let Value::Array(found) = resp.call(&format!("RTREE.GET t {id}")) else { panic!("{id}") };
        assert_eq!(found[4], Value::bulk(format!("object-{id}")));
    }
    assert_eq!(resp.call("RTREE.DROP t"), Value::Integer(1));
    add_row(&mut resp, "t", 1_000);
    is_well(&mut server);
}
