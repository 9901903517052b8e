//! Long use over the wire: values of sizes that drift, set, overwritten,
//! removed and expired by RESP and by rings. Memory is bounded from above by
//! what was allowed and never runs out as long as what is alive fits.

use remora_client_core::{Path, Session, SetOptions};
use remora_protocol::{Condition, Expiry};
use remora_tests::proc::resident_kib;
use remora_tests::{Random, Resp, ServerProcess, Value, in_own_process};
use std::time::{SystemTime, UNIX_EPOCH};

const MEMORY_BYTES: usize = 64 << 20;
/// Of all memory, for what is alive; half of it for each client.
const ALIVE_PERCENT: usize = 60;
const ROUNDS: usize = 24;
const STEPS: usize = 1200;
/// Header and key, rounded up as a size class may do.
const AROUND_BYTES: usize = 64;

/// What a client has set and not removed. Values are made from their number.
struct Oracle {
    random: Random,
    alive: Vec<Record>,
    bytes: usize,
    next: u64,
    /// Keys that expire soon, and when; Unix ms.
    passing: Vec<(u64, u64)>,
}

#[derive(Clone, Copy)]
struct Record {
    key: u64,
    fill: u64,
    bytes: usize,
}

fn value_of(fill: u64, bytes: usize) -> Vec<u8> {
    Random::new(fill).bytes(bytes)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A way to the server.
trait Client {
    const NAME: &'static str;
    fn set(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>);
    fn del(&mut self, key: &[u8]) -> bool;
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>>;
}

impl Client for Resp {
    const NAME: &'static str = "resp";

    fn set(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) {
        let at = expires_at_ms.unwrap_or_default().to_string();
        let words: &[&[u8]] = match expires_at_ms {
            None => &[b"SET", key, value],
            Some(_) => &[b"SET", key, value, b"PXAT", at.as_bytes()],
        };
        assert_eq!(self.try_call(words).unwrap(), Value::ok());
    }

    fn del(&mut self, key: &[u8]) -> bool {
        self.try_call(&[b"DEL", key]).unwrap() == Value::Integer(1)
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        match self.try_call(&[b"GET", key]).unwrap() {
            Value::Bulk(value) => Some(value),
            Value::Null => None,
            other => panic!("{other:?}"),
        }
    }
}

impl Client for Session {
    const NAME: &'static str = "ring";

    fn set(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) {
        let expiry = expires_at_ms.map_or(Expiry::Never, Expiry::At);
        let options = SetOptions { condition: Condition::Always, expiry };
        assert_eq!(Session::set(self, key, value, options), Ok(true));
    }

    fn del(&mut self, key: &[u8]) -> bool {
        Session::del(self, key).unwrap()
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let path = if key.len().is_multiple_of(2) { Path::Read } else { Path::Choose };
        Session::get(self, key, path).unwrap().value.map(<[u8]>::to_vec)
    }
}

impl Oracle {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            alive: Vec::new(),
            bytes: 0,
            next: 0,
            passing: Vec::new(),
        }
    }

    fn key<C: Client>(number: u64) -> Vec<u8> {
        format!("{}:{number}", C::NAME).into_bytes()
    }

    fn remove<C: Client>(&mut self, client: &mut C) {
        let at = self.random.below(self.alive.len());
        let gone = self.alive.swap_remove(at);
        self.bytes -= gone.bytes + AROUND_BYTES;
        assert!(client.del(&Self::key::<C>(gone.key)));
    }

    fn set<C: Client>(&mut self, client: &mut C, most: usize) {
        let bytes = most / 8 + self.random.below(most);
        let fill = self.random.bits();
        while self.bytes + bytes + AROUND_BYTES > MEMORY_BYTES * ALIVE_PERCENT / 200 {
            self.remove(client);
        }
        let again = self.random.below(3) == 0 && !self.alive.is_empty();
        let at = if again { self.random.below(self.alive.len()) } else { self.alive.len() };
        if !again {
            self.next += 1;
            self.alive.push(Record { key: self.next, fill: 0, bytes: 0 });
            self.bytes += AROUND_BYTES;
        }
        let record = &mut self.alive[at];
        self.bytes += bytes;
        self.bytes -= record.bytes;
        *record = Record { fill, bytes, ..*record };
        client.set(&Self::key::<C>(record.key), &value_of(fill, bytes), None);
    }

    /// Few and small: the counts of live values ignore them.
    fn set_passing<C: Client>(&mut self, client: &mut C) {
        self.next += 1;
        let at = unix_ms() + 20 + self.random.below(100) as u64;
        client.set(&Self::key::<C>(self.next), &value_of(self.next, 100), Some(at));
        self.passing.push((self.next, at));
    }

    fn look<C: Client>(&mut self, client: &mut C, record: Record) {
        let found = client.get(&Self::key::<C>(record.key));
        assert!(found == Some(value_of(record.fill, record.bytes)), "key {}", record.key);
    }

    fn step<C: Client>(&mut self, client: &mut C, most: usize) {
        match self.random.below(10) {
            0 if !self.alive.is_empty() => self.remove(client),
            1..4 if !self.alive.is_empty() => {
                let at = self.random.below(self.alive.len());
                self.look(client, self.alive[at]);
            }
            4 => self.set_passing(client),
            _ => self.set(client, most),
        }
    }

    fn check_all<C: Client>(&mut self, client: &mut C) {
        for record in self.alive.clone() {
            self.look(client, record);
        }
        for (key, at) in std::mem::take(&mut self.passing) {
            // The server's clock is cut to ms and may lag by as much.
            let asked_at = unix_ms();
            let found = client.get(&Self::key::<C>(key));
            if asked_at <= at + 2 {
                self.passing.push((key, at));
            } else {
                assert!(found.is_none(), "key {key} outlives its time");
            }
        }
    }
}

#[test]
fn sizes_that_drift_for_long_need_no_more_memory_than_allowed() {
    let memory = format!("--max-memory={MEMORY_BYTES}");
    let server = ServerProcess::start(&["--shards=2", &memory]);
    let (mut resp, mut session) = (server.resp(), server.session());
    let (mut first, mut second) = (Oracle::new(1), Oracle::new(2));
    let before = resident_kib(server.pid());
    // All memory, both clients' rings and buffers, and what the allocator of
    // the process keeps.
    let most = before + ((MEMORY_BYTES >> 10) + (12 << 10)) as u64;
    let mut highest = 0;
    for round in 0..ROUNDS {
        // From 128 bytes to 32 KiB and back, twice: classes of slots come and go.
        let phase = round % 12;
        let step = if phase < 6 { phase } else { 11 - phase };
        let usual = 128usize << (step * 8 / 5);
        for _ in 0..STEPS {
            first.step(&mut resp, usual);
            second.step(&mut session, usual);
        }
        let resident = resident_kib(server.pid());
        highest = highest.max(resident);
        assert!(resident < most, "round {round}: {resident} of {most} KiB");
        if round % 6 == 5 {
            first.check_all(&mut resp);
            second.check_all(&mut session);
        }
    }
    let (written, moved) = (resp.info("last_sequence"), resp.info("records_moved"));
    println!("{written} changes, {moved} records moved, {highest} of {most} KiB");
    assert!(first.bytes + second.bytes > MEMORY_BYTES / 3, "it was never tight");
    // What is let go can be used again: everything goes, the same comes.
    assert_eq!(resp.call("FLUSHALL"), Value::ok());
    let (mut first, mut second) = (Oracle::new(3), Oracle::new(4));
    for _ in 0..STEPS {
        first.step(&mut resp, 20_000);
        second.step(&mut session, 20_000);
    }
    first.check_all(&mut resp);
    second.check_all(&mut session);
    assert!(resident_kib(server.pid()) < most);
}

/// Memory is promised, not taken: unused pages are not resident.
#[test]
fn a_fresh_server_of_eight_gibibytes_takes_only_what_it_uses() {
    in_own_process(|| {
        let server = ServerProcess::start(&["--shards=2", "--max-memory=8GiB"]);
        let mut resp = server.resp();
        assert_eq!(resp.call("PING"), Value::Simple("PONG".into()));
        assert_eq!(resp.info("maxmemory"), 8 << 30);
        let fresh = resident_kib(server.pid());
        println!("{fresh} KiB resident");
        assert!(fresh < 64 << 10, "{fresh} KiB");
        // And so it is with a client that has mapped all of it.
        let mut session = server.session();
        session.set(b"k", &[1; 1000], SetOptions::default()).unwrap();
        assert_eq!(session.get(b"k", Path::Read).unwrap().value, Some(&[1; 1000][..]));
        assert!(resident_kib(server.pid()) < 64 << 10);
        assert!(resident_kib(std::process::id()) < 256 << 10);
    });
}
