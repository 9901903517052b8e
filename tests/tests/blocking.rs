//! Clients that wait for keys: BLPOP and its kin, held against a real redis-server, and what ends a
//! wait.

use remora_client_core::Side;
use remora_tests::{
    DEADLINE, Random, RedisServer, Resp, ServerProcess, Value, encode, free_port, is_skipped,
    wait_until,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Clients of one random program.
pub const CLIENTS: usize = 6;
const KEYS: &[&str] = &["{t}a", "{t}b", "c", "d", "e"];
/// Calls that are refused, or that end at once.
const BAD_CALLS: &[&str] = &[
    "BLPOP a x",
    "BLPOP a -1",
    "BLPOP a 1e300",
    "BLPOP a inf",
    "BLPOP a nan",
    "BLPOP a",
    "BLPOP",
    "BLMOVE a b LEFT UP 0",
    "BLMOVE a b LEFT RIGHT x",
    "BLMOVE a b X RIGHT x",
    "BLMPOP 0 0 a LEFT",
    "BLMPOP x 1 a LEFT",
    "BLMPOP 0 2 a LEFT",
    "BLMPOP 0 1 a UP",
    "BLMPOP 0 1 a LEFT COUNT 0",
    "BLMPOP 0 1 a LEFT COUNT",
    "BLMPOP 0 1 a LEFT COUNT 1 COUNT 1",
    "BLMPOP 0 1 a LEFT COUNT 0 COUNT 1",
    "BLMPOP 0 x a LEFT",
    "BLMPOP 0 -1 a LEFT",
    "BLMPOP 0 1 a LEFT FOO 1",
    "BLPOP a 9223372036854776",
    "BRPOPLPUSH a b -0.1",
    "CLIENT UNBLOCK x",
    "CLIENT UNBLOCK",
    "CLIENT UNBLOCK 1 FOO",
    "CLIENT UNBLOCK 1 ERROR x",
    "CLIENT UNBLOCK -5",
    "CLIENT UNBLOCK 99999999",
    "COMMAND GETKEYS BLPOP a b 0",
    "COMMAND GETKEYS BLMPOP 0 2 a b LEFT",
    "COMMAND GETKEYS BLMOVE a b LEFT LEFT 0",
];

trait Stream: Read + Write {
    fn block(&self, blocks: bool);
}

impl Stream for TcpStream {
    fn block(&self, blocks: bool) {
        self.set_nonblocking(!blocks).unwrap();
    }
}

impl Stream for UnixStream {
    fn block(&self, blocks: bool) {
        self.set_nonblocking(!blocks).unwrap();
    }
}

/// A connection whose replies can be looked for.
pub struct Client {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    id: Vec<u8>,
}

/// Bytes of the first reply, if all of it is there.
fn reply_bytes(input: &[u8]) -> Option<usize> {
    let line = input.windows(2).position(|end| end == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&input[1..line - 2]).unwrap().parse::<i64>().unwrap();
    match input[0] {
        b'$' if number() >= 0 => {
            Some(line + number() as usize + 2).filter(|bytes| *bytes <= input.len())
        }
        b'*' => (0..number()).try_fold(line, |at, _| Some(at + reply_bytes(&input[at..])?)),
        _ => Some(line),
    }
}

impl Client {
    fn new(stream: Box<dyn Stream>) -> Self {
        let mut client = Self { stream, input: Vec::new(), id: Vec::new() };
        let id = client.call(&["CLIENT", "ID"]);
        client.id = id[1..id.len() - 2].to_vec();
        client
    }

    fn send(&mut self, words: &[impl AsRef<[u8]>]) {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        self.stream.block(true);
        self.stream.write_all(&encode(&words)).unwrap();
    }

    /// The next reply, if it is there.
    fn look(&mut self) -> Option<Vec<u8>> {
        self.stream.block(false);
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let bytes = reply_bytes(&self.input)?;
        Some(self.input.drain(..bytes).collect())
    }

    fn take(&mut self) -> Vec<u8> {
        let began = Instant::now();
        loop {
            if let Some(reply) = self.look() {
                return reply;
            }
            assert!(began.elapsed() < DEADLINE, "no reply");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub fn call(&mut self, words: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.send(words);
        self.take()
    }

    /// Clients of its server that wait.
    fn blocked(&mut self) -> usize {
        let text = String::from_utf8(self.call(&["INFO", "clients"])).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        line.unwrap().parse().unwrap()
    }
}

/// The clients of both servers, ours first, and those of them that wait.
pub struct Both {
    clients: [Vec<Client>; 2],
    pub control: [Client; 2],
    pub blocked: BTreeSet<usize>,
    pub served: usize,
}

/// Whether our reply says what that of Redis says.
pub type Agree<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

impl Both {
    pub fn connect(ours: &ServerProcess, redis: &RedisServer) -> Self {
        let to_ours = || {
            let stream = TcpStream::connect(ours.resp_address()).unwrap();
            stream.set_nodelay(true).unwrap();
            Client::new(Box::new(stream))
        };
        let to_redis = || Client::new(Box::new(redis.socket().unwrap()));
        let clients =
            [(0..CLIENTS).map(|_| to_ours()).collect(), (0..CLIENTS).map(|_| to_redis()).collect()];
        let (blocked, served) = (BTreeSet::new(), 0);
        let mut both = Self { clients, control: [to_ours(), to_redis()], blocked, served };
        both.control(&["FLUSHALL"], "at first");
        both
    }

    /// A call that both answer at once, and in the same way.
    pub fn control(&mut self, words: &[&str], trace: &str) -> Vec<u8> {
        let [ours, theirs] = [0, 1].map(|of| self.control[of].call(words));
        let shown = |reply: &[u8]| reply.escape_ascii().to_string();
        assert_eq!(shown(&ours), shown(&theirs), "{words:?}, {trace}");
        theirs
    }

    /// A call of a client that does not wait. If Redis lets it wait, so do we.
    pub fn call(
        &mut self,
        client: usize,
        words: &[impl AsRef<[u8]>],
        agree: Agree<'_>,
        trace: &str,
    ) {
        (0..2).for_each(|of| self.clients[of][client].send(words));
        let reply = loop {
            if let Some(reply) = self.clients[1][client].look() {
                break Some(reply);
            }
            // It serves nobody if it waits.
            if self.control[1].blocked() > self.blocked.len() {
                break None;
            }
        };
        match reply {
            None => {
                self.blocked.insert(client);
                let (all, ours) = (self.blocked.len(), &mut self.control[0]);
                wait_until("it waits at ours, too", || ours.blocked() == all);
            }
            Some(reply) => self.expect(client, &reply, agree, trace),
        }
        self.take_served(trace);
    }

    fn expect(&mut self, client: usize, theirs: &[u8], agree: Agree<'_>, trace: &str) {
        let ours = self.clients[0][client].take();
        let shown = |reply: &[u8]| reply.escape_ascii().to_string();
        if !agree(&ours, theirs) {
            assert_eq!(shown(&ours), shown(theirs), "client {client}, {trace}");
        }
    }

    /// Those that Redis has served are served by us, too, with the same.
    fn take_served(&mut self, trace: &str) {
        let remain = self.control[1].blocked();
        while self.blocked.len() > remain {
            for client in self.blocked.clone() {
                if let Some(reply) = self.clients[1][client].look() {
                    self.expect(client, &reply, &|ours, theirs| ours == theirs, trace);
                    self.blocked.remove(&client);
                    self.served += 1;
                }
            }
        }
        // The server counts those that it has answered soon after that.
        wait_until(&format!("{remain} wait, {trace}"), || self.control[0].blocked() == remain);
    }

    /// CLIENT UNBLOCK of a client, which has another number at each server.
    pub fn unblock(&mut self, client: usize, how: &[&str], trace: &str) {
        let replies = [0, 1].map(|of| {
            let id = String::from_utf8(self.clients[of][client].id.clone()).unwrap();
            self.control[of].call(&[&["CLIENT", "UNBLOCK", &id[..]], how].concat())
        });
        assert_eq!(replies[0], replies[1], "{trace}");
        self.take_served(trace);
    }
}

/// A random call.
pub fn draw(random: &mut Random) -> Vec<String> {
    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }
    let mut key = || random.pick(KEYS);
    let (one, two) = (key(), key());
    let keys: Vec<&str> = (0..1 + random.below(3)).map(|_| random.pick(KEYS)).collect();
    let mut side = || random.pick(&["LEFT", "RIGHT", "left"]);
    let sides = (side(), side());
    let value = random.below(1_000).to_string();
    match random.below(100) {
        0..12 => {
            let name = random.pick(&["BLPOP", "BRPOP"]);
            words(&[&[name], &keys[..], &["0"]].concat())
        }
        12..20 => words(&["BLMOVE", one, two, sides.0, sides.1, "0"]),
        20..24 => words(&["BRPOPLPUSH", one, two, "0"]),
        24..32 => {
            let (count, most) = (keys.len().to_string(), (1 + random.below(4)).to_string());
            let call = [&["BLMPOP", "0", &count], &keys[..], &[sides.0]].concat();
            match random.below(2) {
                0 => words(&call),
                _ => words(&[&call[..], &["COUNT", &most]].concat()),
            }
        }
        32..55 => {
            let name = random.pick(&["LPUSH", "RPUSH"]);
            let more: Vec<String> =
                (0..random.below(4)).map(|_| random.below(1_000).to_string()).collect();
            [words(&[name, one, &value]), more].concat()
        }
        55..58 => words(&["DEL", one]),
        58..61 => words(&["SET", one, "text"]),
        61..66 => words(&["RENAME", one, two]),
        66..70 => words(&["COPY", one, two, "REPLACE"]),
        70..75 => words(&[random.pick(&["LPOP", "RPOP"]), one]),
        75..80 => words(&["LRANGE", one, "0", "-1"]),
        80..82 => words(&["LPUSHX", one, "x"]),
        82..84 => words(&["LINSERT", one, "BEFORE", "1", "w"]),
        84..86 => words(&["LTRIM", one, "0", "1"]),
        86..87 => words(&["FLUSHALL"]),
        _ => random.pick(BAD_CALLS).split(' ').map(str::to_owned).collect(),
    }
}

#[test]
fn random_programs_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    for (seed, shards) in [(1, "1"), (2, "3"), (3, "3")] {
        let flag = format!("--shards={shards}");
        let ours = ServerProcess::start(&[&flag, "--max-memory=64MiB"]);
        let mut both = Both::connect(&ours, &redis);
        let mut random = Random::new(seed);
        for step in 0..1_500 {
            let free: Vec<usize> =
                (0..CLIENTS).filter(|client| !both.blocked.contains(client)).collect();
            let trace = format!("seed {seed}, step {step}, waiting {:?}", both.blocked);
            if free.len() < 2 || random.below(20) == 0 {
                let how = random.pick(&["", "TIMEOUT", "ERROR"]);
                let how: Vec<&str> = how.split(' ').filter(|word| !word.is_empty()).collect();
                both.unblock(random.below(CLIENTS), &how, &trace);
                continue;
            }
            let (client, call) = (free[random.below(free.len())], draw(&mut random));
            let call: Vec<&str> = call.iter().map(String::as_str).collect();
            let moves = matches!(call[0], "BLMOVE" | "BRPOPLPUSH");
            let is_of_one = || call[1..3].iter().all(|key| key.starts_with("{t}"));
            if shards != "1" && (call[0] == "SET" || moves && !is_of_one()) {
                // A request over shards may not have come to all of its keys yet: it would be refused.
                // And what two clients move over shards arrives in any order.
                continue;
            }
            let trace_of = format!("{trace}, {call:?} by {client}");
            both.call(client, &call, &|ours, theirs| ours == theirs, &trace_of);
            if step % 20 == 0 {
                for key in KEYS {
                    both.control(&["LRANGE", key, "0", "-1"], &trace);
                    both.control(&["TYPE", key], &trace);
                }
            }
        }
        // Who waits still is woken by nothing else.
        for client in both.blocked.clone() {
            both.unblock(client, &["ERROR"], "at the end");
        }
        assert!(both.blocked.is_empty() && both.served > 100, "{} were served", both.served);
    }
}

fn server(shards: usize) -> ServerProcess {
    ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=64MiB"])
}

/// A connection that waits.
fn waiting(server: &ServerProcess, control: &mut Resp, call: &str) -> Resp {
    let before = control.info("blocked_clients");
    let mut resp = server.resp();
    let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    resp.send(&words).unwrap();
    wait_until("it waits", || control.info("blocked_clients") > before);
    resp
}

fn pair(key: &str, element: &str) -> Value {
    Value::Array(vec![Value::bulk(key), Value::bulk(element)])
}

#[test]
fn a_client_that_goes_while_it_waits_takes_nothing() {
    let server = server(3);
    let mut control = server.resp();
    for call in ["BLPOP a b c d 0", "BLMOVE a b LEFT LEFT 0", "BLMPOP 0 2 a b LEFT"] {
        for half in [true, false] {
            let resp = waiting(&server, &mut control, call);
            match half {
                true => resp.socket.shutdown(Shutdown::Write).unwrap(),
                false => drop(resp),
            }
            wait_until("its end is found", || control.info("blocked_clients") == 0);
        }
    }
    assert_eq!(control.call("RPUSH a 1"), Value::Integer(1));
    assert_eq!(control.call("LRANGE a 0 -1"), Value::Array(vec![Value::bulk("1")]));
}

#[test]
fn commands_behind_one_that_waits_come_after_it() {
    let server = server(2);
    let mut control = server.resp();
    let mut resp = waiting(&server, &mut control, "BLPOP a b 0");
    resp.send_raw(b"RPUSH c 1\r\nBLPOP c 0\r\nPING\r\n").unwrap();
    assert_eq!(control.call("EXISTS c"), Value::Integer(0));
    assert_eq!(control.call("RPUSH b x"), Value::Integer(1));
    assert_eq!(resp.receive().unwrap(), pair("b", "x"));
    assert_eq!(resp.receive().unwrap(), Value::Integer(1));
    assert_eq!(resp.receive().unwrap(), pair("c", "1"));
    assert_eq!(resp.receive().unwrap(), Value::Simple("PONG".into()));
    // A client that has closed its side gets what is there.
    assert_eq!(control.call("RPUSH b y"), Value::Integer(1));
    let mut last = server.resp();
    last.send_raw(b"BLPOP a b 0\r\n").unwrap();
    last.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(last.receive().unwrap(), pair("b", "y"));
}

#[test]
fn waits_end_in_time_and_the_shorter_ones_first() {
    let server = server(3);
    let mut control = server.resp();
    let mut forever = waiting(&server, &mut control, "BLPOP a b c 0");
    let mut long = waiting(&server, &mut control, "BLPOP a b c 1000");
    let mut short = server.resp();
    for call in ["BLPOP a b c 0.02", "BLMOVE a b LEFT LEFT 0.02", "BLMPOP 0.001 1 c LEFT"] {
        assert_eq!(short.call(call), Value::Null, "{call}");
    }
    assert_eq!(control.info("blocked_clients"), 2);
    assert_eq!(control.call("RPUSH c 1 2"), Value::Integer(2));
    assert_eq!(forever.receive().unwrap(), pair("c", "1"));
    assert_eq!(long.receive().unwrap(), pair("c", "2"));
}

#[test]
fn a_client_is_unblocked_whatever_thread_it_is_of() {
    let server = server(4);
    let mut control = server.resp();
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut resp = server.resp();
        let Value::Integer(id) = resp.call("CLIENT ID") else { panic!("an id") };
        resp.send_raw(b"BLPOP a b c d e 0\r\n").unwrap();
        clients.push((id, resp));
    }
    wait_until("all wait", || control.info("blocked_clients") == 12);
    for (at, (id, resp)) in clients.iter_mut().enumerate() {
        let (how, reply) = match at % 2 {
            0 => ("ERROR", Value::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into())),
            _ => ("TIMEOUT", Value::Null),
        };
        assert_eq!(control.call(&format!("CLIENT UNBLOCK {id} {how}")), Value::Integer(1));
        assert_eq!(resp.receive().unwrap(), reply);
        assert_eq!(control.call(&format!("CLIENT UNBLOCK {id}")), Value::Integer(0));
    }
    assert_eq!(control.call("RPUSH a 1"), Value::Integer(1));
    assert_eq!(control.call("LLEN a"), Value::Integer(1), "nobody waits");
}

/// A wait for replicas is one of each shard: it is ended at all of them, and counts once.
#[test]
fn a_client_that_waits_for_replicas_is_unblocked() {
    let server = server(3);
    let mut control = server.resp();
    let error = || Value::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into());
    // This client has written nothing.
    let both = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
    for (call, how, reply) in [
        ("WAIT 1 0", "", Value::Integer(0)),
        ("WAIT 1 0", "ERROR", error()),
        ("WAITAOF 0 1 0", "TIMEOUT", both),
        ("WAITAOF 0 1 0", "ERROR", error()),
    ] {
        let mut resp = server.resp();
        let Value::Integer(id) = resp.call("CLIENT ID") else { panic!("an id") };
        resp.send_raw(format!("{call}\r\n").as_bytes()).unwrap();
        let unblock = format!("CLIENT UNBLOCK {id} {how}");
        let mut answer = Value::Null;
        wait_until("it is unblocked", || {
            answer = control.call(unblock.trim_end());
            answer != Value::Integer(0)
        });
        assert_eq!(answer, Value::Integer(1));
        // At some shards it may have come only after that.
        wait_until("it waits at none", || control.call(unblock.trim_end()) == Value::Integer(0));
        assert_eq!(resp.receive().unwrap(), reply, "{call} {how}");
    }
}

#[test]
fn a_hundred_clients_that_wait_come_before_the_next_command() {
    let server = server(2);
    let mut control = server.resp();
    let mut clients: Vec<Resp> =
        (0..100).map(|_| waiting(&server, &mut control, "BLPOP k 0")).collect();
    for taker in ["LPOP k", "DEL k", "DBSIZE"] {
        let elements: Vec<String> = (0..100).map(|at| at.to_string()).collect();
        let pipeline = format!("RPUSH k {}\r\n{taker}\r\n", elements.join(" "));
        control.send_raw(pipeline.as_bytes()).unwrap();
        assert_eq!(control.receive().unwrap(), Value::Integer(100));
        let nothing = if taker == "LPOP k" { Value::Null } else { Value::Integer(0) };
        assert_eq!(control.receive().unwrap(), nothing, "{taker}");
        // In the order in which they wait.
        for (client, element) in clients.iter_mut().zip(&elements) {
            assert_eq!(client.receive().unwrap(), pair("k", element), "{taker}");
        }
        clients = (0..100).map(|_| waiting(&server, &mut control, "BLPOP k 0")).collect();
    }
}

#[test]
fn a_server_that_becomes_a_replica_or_stops_answers_those_who_wait() {
    const ENDED: &str = "UNBLOCKED force unblock from blocking operation, instance state changed \
                         (master -> replica?)";
    let addresses = [0, 1].map(|_| format!("127.0.0.1:{}", free_port()));
    let [primary, server] = addresses.each_ref().map(|address| {
        let fabric = format!("--fabric-address={address}");
        ServerProcess::start(&["--shards=2", "--max-memory=64MiB", &fabric])
    });
    assert_eq!(primary.resp().call("SET k v"), Value::ok());
    let mut control = server.resp();
    let mut waits: Vec<Resp> = ["BLPOP a b c 0", "BLMOVE a b LEFT LEFT 1000", "BRPOP d 0"]
        .map(|call| waiting(&server, &mut control, call))
        .into();
    assert_eq!(control.call(&format!("REPLICAOF {}", addresses[0])), Value::ok());
    for resp in &mut waits {
        assert_eq!(resp.receive().unwrap(), Value::Error(ENDED.into()));
        let Value::Error(refused) = resp.call("BLPOP a 0") else { panic!("a replica") };
        assert!(refused.starts_with("READONLY "), "{refused}");
    }
    assert_eq!(control.info("blocked_clients"), 0);
    assert_eq!(control.call("REPLICAOF NO ONE"), Value::ok());
    let mut last = waiting(&server, &mut control, "BLPOP a b 0");
    server.terminate();
    assert_eq!(last.receive().unwrap(), Value::Error(ENDED.into()));
    assert_eq!(last.rest().unwrap(), b"");
}

/// Turns of all shards while the server is left alone for a while.
fn turns_at_rest(control: &mut Resp) -> u64 {
    let before = control.info("shard_turns");
    std::thread::sleep(Duration::from_secs(2));
    control.info("shard_turns") - before
}

#[test]
fn a_thousand_clients_that_wait_take_no_turn() {
    const MANY: usize = 1_000;
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB", "--wake=event"]);
    let mut control = server.resp();
    let at_rest = turns_at_rest(&mut control);
    let mut clients = Vec::new();
    for number in 0..MANY {
        let mut resp = server.resp();
        let timeout = [0, 1_000][number % 2];
        let call = format!("BLPOP queue other {timeout}\r\n");
        resp.send_raw(call.as_bytes()).unwrap();
        clients.push(resp);
    }
    wait_until("all wait", || control.info("blocked_clients") == MANY as u64);
    let waiting = turns_at_rest(&mut control);
    println!("{at_rest} turns at rest, {waiting} with {MANY} waiting clients");
    assert!(waiting <= at_rest + 2, "{waiting} turns, {at_rest} at rest");
    // They are served in the order in which they came, as far as it is known.
    let elements: Vec<String> = (0..MANY).map(|number| number.to_string()).collect();
    for some in elements.chunks(100) {
        control.call(&format!("RPUSH queue {}", some.join(" ")));
    }
    let mut got: BTreeMap<String, usize> = BTreeMap::new();
    for resp in &mut clients {
        let Value::Array(items) = resp.receive().unwrap() else { panic!("an element") };
        let Value::Bulk(element) = &items[1] else { panic!("an element") };
        *got.entry(String::from_utf8(element.clone()).unwrap()).or_default() += 1;
    }
    assert!(got.len() == MANY && got.values().all(|times| *times == 1));
    assert_eq!(control.call("LLEN queue"), Value::Integer(0));
}

#[test]
fn sessions_wait_in_the_order_in_which_they_came_and_go_on_afterwards() {
    let server = server(2);
    let mut control = server.resp();
    let mut threads = Vec::new();
    for number in 1..=3 {
        let mut session = server.session();
        threads.push(std::thread::spawn(move || {
            let list = session.open_list(b"queue").unwrap();
            let element = session.list_wait(&list, Side::Left, None).unwrap();
            let none = session.list_wait(&list, Side::Right, Some(Duration::from_millis(5)));
            assert_eq!(none.unwrap(), None);
            assert_eq!(session.list_len(&list).unwrap(), 0);
            element
        }));
        wait_until("it waits", || control.info("blocked_clients") == number);
    }
    assert_eq!(control.call("RPUSH queue a b c"), Value::Integer(3));
    let elements: Vec<_> =
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    assert_eq!(elements, [b"a", b"b", b"c"]);
    // One that goes leaves nothing behind.
    let mut session = server.session();
    let list = session.open_list(b"other").unwrap();
    assert_eq!(session.list_wait(&list, Side::Left, Some(Duration::from_millis(1))).unwrap(), None);
    drop(session);
    assert_eq!(control.call("RPUSH other x"), Value::Integer(1));
    assert_eq!(control.call("LLEN other"), Value::Integer(1));
}
