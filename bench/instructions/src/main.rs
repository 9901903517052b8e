//! Executes one kind of operation some times in a function of its own, so that
//! callgrind can count what they take: `bench/instructions.sh` runs it.
//!
//! `remora-bench-instructions WHAT TIMES [SOCKET]`, or
//! `remora-bench-instructions tcp-get TIMES ADDRESS IDLE PID`, where the server with this
//! PID is what callgrind runs

use remora_arena::{NoJournal, Owner};
use remora_client_core::{Options, Path, Session, SetOptions, Wanted};
use remora_protocol::{Command, Condition, Expiry};
use remora_protocol::tree::TreeCommand;
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use std::hint::black_box;

const KEYS: u64 = 10_000;
const OBJECTS: u64 = 100_000;
/// A window with about 100 of the objects.
const WINDOW: f64 = 0.0316;
const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let times: u64 = arguments.next().and_then(|text| text.parse().ok()).expect("TIMES");
    match what.as_str() {
        "cached-get" => {
            let socket = arguments.next().expect("SOCKET");
            let mut session = Session::connect(std::path::Path::new(&socket), &Options::default()).unwrap();
            for number in 0..64 {
                session.set(&key(number), &[7; 32], SetOptions::default()).unwrap();
                session.get(&key(number), Path::Ask).unwrap();
            }
            counted(times, |at| {
                let got = session.get(&key(at % 64), Path::Read).unwrap();
                assert!(got.value.is_some());
            });
        }
        "tcp-get" => {
            let mut next = || arguments.next().expect("ADDRESS IDLE PID");
            tcp_get(times, &next(), next().parse().expect("IDLE"), &next());
        }
        "asked-get" | "asked-set" => {
            let mut shard = shard(64 << 20);
            let requests: Vec<Vec<u8>> = (0..KEYS).map(|at| set_request(at)).collect();
            requests.iter().for_each(|request| ask(&mut shard, request));
            let requests = match what == "asked-set" {
                true => requests,
                false => (0..KEYS).map(get_request).collect(),
            };
            counted(times, |at| ask(&mut shard, &requests[(at * 7919 % KEYS) as usize]));
        }
        "search" | "insert" => {
            let mut shard = shard(256 << 20);
            for id in 0..OBJECTS {
                put(&mut shard, id);
            }
            if what == "insert" {
                counted(times, |at| put(&mut shard, OBJECTS + at));
            } else {
                counted(times, |at| search(&mut shard, at));
            }
        }
        _ => panic!("cached-get, asked-get, asked-set, tcp-get, search or insert, not {what}"),
    }
}

/// One session asks over TCP, and so many others that have asked once do not: callgrind
/// looks at the server meanwhile.
fn tcp_get(times: u64, address: &str, idle: usize, pid: &str) {
    let address: std::net::SocketAddr = address.parse().expect("ADDRESS");
    let options = Options { transport: Wanted::Tcp, ..Options::default() };
    let connect = || {
        let mut session = Session::connect(address, &options).unwrap();
        session.set(&key(0), &[7; 32], SetOptions::default()).unwrap();
        session
    };
    let _idle: Vec<Session> = (0..idle).map(|_| connect()).collect();
    let mut active = connect();
    let mut ask = |times| {
        for _ in 0..times {
            assert!(active.get(&key(0), Path::Ask).unwrap().value.is_some());
        }
    };
    // Until the idle ones are parked.
    for _ in 0..20 {
        ask(20);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let instrument = |state| {
        let control = std::process::Command::new("callgrind_control").args(["-i", state, pid]).output();
        assert!(control.expect("callgrind_control").status.success());
    };
    instrument("on");
    ask(times);
    instrument("off");
}

/// What callgrind collects.
#[inline(never)]
fn counted(times: u64, mut operation: impl FnMut(u64)) {
    (0..times).for_each(|at| operation(black_box(at)));
}

fn shard(bytes: usize) -> Shard {
    let options = ShardOptions { buckets: 4096, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

fn request(command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode_into(1, &mut bytes);
    bytes
}

fn set_request(number: u64) -> Vec<u8> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let key = key(number);
    request(&Command::Set { key: &key, value: &[7; 32], condition, expiry, get: false })
}

fn get_request(number: u64) -> Vec<u8> {
    request(&Command::Get { key: &key(number) })
}

/// What a shard does with a request between two frames.
fn ask(shard: &mut Shard, request: &[u8]) {
    let (command, hash) = {
        let (database, command, _) = Command::decode_within(request).expect("it was encoded");
        (command, shard.hash_of(database, &command))
    };
    shard.prefetch(hash);
    shard.prefetch_record(hash);
    black_box(shard.execute_or_stream(&command, hash, NOW));
}

/// Points that fill the unit square evenly, in no order.
fn point(number: u64) -> (f64, f64) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) as f64 / u32::MAX as f64, (mixed as u32).reverse_bits() as f64 / u32::MAX as f64)
}

fn put(shard: &mut Shard, id: u64) {
    let (x, y) = point(id);
    let rect = Rect::point(x, y).expect("finite");
    tree(shard, TreeCommand::Put(remora_protocol::tree::PutObject::new(id, rect)));
}

fn search(shard: &mut Shard, at: u64) {
    let (x, y) = point(at.wrapping_mul(31));
    let (x, y) = (x * (1.0 - WINDOW), y * (1.0 - WINDOW));
    let window = Rect { min_x: x, min_y: y, max_x: x + WINDOW, max_y: y + WINDOW };
    tree(shard, TreeCommand::Count { window, predicate: Predicate::Intersects });
}

fn tree(shard: &mut Shard, command: TreeCommand<'_>) {
    let key = b"places";
    let hash = shard.hash(key);
    let command = Command::Of { key, request: command.checked().map(TreeCommand::request).expect("sound") };
    black_box(shard.execute(&command, hash, NOW));
}
