//! A replica has room for all that its primary has, up to the limit of its memory and at it, with
//! any number of shards.

use crate::replicas::{catch_up, keys, says};
use remora_tests::{Random, Resp, ServerProcess, Value, free_port, wait_until};

const MIB: usize = 32;

fn primary(eviction: &str, address: &str) -> ServerProcess {
    let own = [
        format!("--fabric-address={address}"),
        format!("--max-memory={MIB}MiB"),
        format!("--eviction={eviction}"),
    ];
    let own = own.each_ref().map(String::as_str);
    ServerProcess::start(&[&["--pin=false", "--wake=event", "--shards=2"], &own[..]].concat())
}

fn replica(of: &str, (shards, mib): (usize, usize)) -> ServerProcess {
    let own = [
        format!("--replica-of={of}"),
        format!("--shards={shards}"),
        format!("--max-memory={mib}MiB"),
        format!("--fabric-address=127.0.0.1:{}", free_port()),
    ];
    let own = own.each_ref().map(String::as_str);
    let common = ["--pin=false", "--wake=event", "--replica-reads=stale"];
    ServerProcess::start(&[&common, &own[..]].concat())
}

/// One random change: strings of all sizes, hashes, trees, and some of it gone again.
fn change(random: &mut Random, resp: &mut Resp) -> Value {
    let (key, small) = (random.below(6_000u64), random.below(40u64));
    let bytes = match random.below(20u64) {
        0 => random.below(90_000u64),
        1..5 => random.below(6_000u64),
        _ => random.below(300u64),
    };
    let value = "v".repeat(bytes as usize);
    match random.below(12u64) {
        0 => resp.call(&format!("DEL string-{key} string-{}", key / 2)),
        1 => resp.call(&format!("APPEND string-{key} x{value}")),
        2 | 3 => resp.call(&format!("HSET hash-{small} field-{key} x{value}")),
        4 => resp.call(&format!("HDEL hash-{small} field-{key} field-{}", key / 2)),
        5 => {
            resp.call(&format!("RTREE.CREATE tree-{small}"));
            resp.call(&format!("RTREE.ADD tree-{small} {key} 1 2 {small} {small}"))
        }
        6 => resp.call(&format!("GEOADD places-{small} 13.{key} 38.5 place-{key}")),
        _ => resp.call(&format!("SET string-{key} x{value}")),
    }
}

/// Changes a primary until its memory has been full so many times; then the replicas have the same.
fn fill_to_the_limit(eviction: &str, full: impl Fn(&mut Resp, &Value) -> bool) {
    let address = format!("127.0.0.1:{}", free_port());
    let server = primary(eviction, &address);
    let replicas = [(2, MIB), (1, MIB), (3, 3 * MIB), (4, 2 * MIB)].map(|of| replica(&address, of));
    let (mut resp, mut random) = (server.resp(), Random::new(7));
    let mut refused = 0;
    for at in 0.. {
        let reply = change(&mut random, &mut resp);
        if at % 16 == 0 || reply.is_error() {
            refused += u64::from(full(&mut resp, &reply));
        }
        if refused >= 300 {
            break;
        }
        assert!(at < 400_000, "the memory is never full");
    }
    // One that comes when the memory is full, and copies it while changes go on.
    let late = replica(&address, (2, MIB));
    (0..2_000).for_each(|_| _ = change(&mut random, &mut resp));
    for replica in replicas.iter().chain([&late]) {
        let mut replica = replica.resp();
        catch_up(&mut resp, &mut replica);
        assert!(says(&mut replica, "master_trouble:\r\n"));
        assert_eq!(replica.info("slave_copies_for_room"), 0, "the reserve is enough");
    }
    assert_eq!(resp.info("reserve_lent_bytes"), 0, "the primary takes none of its own");
}

#[test]
fn replicas_hold_all_of_a_full_primary_that_refuses_more() {
    fill_to_the_limit(
        "none",
        |_, reply| matches!(reply, Value::Error(text) if text.starts_with("OOM ")),
    );
}

#[test]
fn replicas_hold_all_of_a_full_primary_that_evicts() {
    fill_to_the_limit("s3-fifo", |resp, _| resp.info("evicted_keys") > 0);
}

#[test]
fn a_replica_with_too_little_memory_says_how_much_it_needs() {
    let address = format!("127.0.0.1:{}", free_port());
    let server = primary("none", &address);
    server.resp().call("SET key 1");
    for (of, needs) in
        [((2, MIB / 2), MIB), ((1, MIB - 8), MIB), ((4, MIB), 2 * MIB), ((3, MIB), 3 * MIB)]
    {
        let replica = replica(&address, of);
        let mut replica = replica.resp();
        let needed = format!("it needs max_memory = {} bytes", needs << 20);
        wait_until("it says how much it needs", || says(&mut replica, &needed));
        assert_eq!(keys(&mut replica), 0);
    }
}

#[test]
fn a_replica_for_which_the_reserve_is_too_small_copies_anew_what_fits_again() {
    let address = format!("127.0.0.1:{}", free_port());
    let own = ["--pin=false", "--wake=event", "--shards=1", "--max-memory=8MiB"];
    let server =
        ServerProcess::start(&[&own[..], &[&format!("--fabric-address={address}")]].concat());
    // Its table takes a quarter of the memory, from the beginning: more than the reserve.
    let of = format!("--replica-of={address}");
    let fabric = format!("--fabric-address=127.0.0.1:{}", free_port());
    let other = ["--replica-reads=stale", "--buckets=32768", &of, &fabric];
    let replica = ServerProcess::start(&[&own[..], &other].concat());
    let (mut resp, mut replica) = (server.resp(), replica.resp());
    catch_up(&mut resp, &mut replica);
    let value = "v".repeat(3_000);
    let last = (0..).find(|key| resp.call(&format!("SET key-{key} {value}")).is_error());
    let last: usize = last.expect("the memory has an end");
    wait_until("it has no memory", || says(&mut replica, "OutOfMemory"));
    let reserve_bytes = 1 << 20;
    assert_eq!(replica.info("reserve_lent_bytes"), reserve_bytes, "all of it is taken");
    assert_eq!(resp.info("reserve_lent_bytes"), 0, "the primary takes none");
    assert_eq!(resp.info("reserve_bytes"), reserve_bytes);
    // The removals stand in the log behind what finds no memory.
    (0..last / 2).for_each(|key| _ = resp.call(&format!("DEL key-{key}")));
    wait_until("it copies anew", || replica.info("slave_copies_for_room") > 0);
    catch_up(&mut resp, &mut replica);
    assert!(says(&mut replica, "master_trouble:\r\n"));
    let copies = replica.info("slave_copies_for_room");
    assert_eq!(resp.call(&format!("SET key-0 {value}")), Value::ok());
    catch_up(&mut resp, &mut replica);
    assert_eq!(replica.info("slave_copies_for_room"), copies, "and then no more");
}
