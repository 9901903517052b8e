//! Sessions against a map, over long random histories, on every path.

use remora_client_core::{
    Client, Error, Options, Path, PointerCacheKind, Session, SetOptions, Ticket, Wake, Wanted,
};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_tests::{Random, ServerProcess, wait_until};
use std::collections::{HashMap, VecDeque};

const PATHS: [Path; 3] = [Path::Ask, Path::Read, Path::Choose];
const KEYS: usize = 80;
type Map = HashMap<Vec<u8>, Vec<u8>>;

/// What the reply to a submitted request has to be.
struct Awaited {
    ticket: Ticket,
    status: Status,
    number: Option<i64>,
    value: Option<Vec<u8>>,
}

struct Fixture {
    session: Session,
    map: Map,
    awaited: VecDeque<Awaited>,
    random: Random,
}

impl Fixture {
    fn key(&mut self) -> Vec<u8> {
        format!("key:{}", self.random.below(KEYS)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(40) {
            0 => self.random.below(60_000),
            1..6 => self.random.below(3_000),
            _ => self.random.below(100),
        };
        self.random.bytes(bytes)
    }

    fn path(&mut self) -> Path {
        PATHS[self.random.below(PATHS.len())]
    }

    fn submit(&mut self) {
        let key = self.key();
        let (status, number, value, ticket);
        match self.random.below(4) {
            0 => {
                let new = self.value();
                let set = Command::Set {
                    key: &key,
                    value: &new,
                    condition: Condition::Always,
                    expiry: Expiry::Never,
                    get: false,
                };
                ticket = self.session.submit(&set);
                (status, number, value) = (Status::Ok, None, None);
                self.map.insert(key, new);
            }
            1 => {
                ticket = self.session.submit(&Command::Del { key: &key });
                number = Some(self.map.remove(&key).is_some().into());
                (status, value) = (Status::Ok, None);
            }
            2 => {
                ticket = self.session.submit(&Command::Exists { key: &key });
                number = Some(self.map.contains_key(&key).into());
                (status, value) = (Status::Ok, None);
            }
            _ => {
                ticket = self.session.submit(&Command::Get { key: &key });
                value = self.map.get(&key).cloned();
                status = if value.is_some() { Status::Ok } else { Status::NotFound };
                number = None;
            }
        }
        self.awaited.push_back(Awaited { ticket: ticket.unwrap(), status, number, value });
    }

    fn take_reply(&mut self) {
        let Some(awaited) = self.awaited.pop_front() else {
            assert!(!self.session.next_reply(&mut |_, _| unreachable!()).unwrap());
            return;
        };
        let mut taken = false;
        let is_some = self.session.next_reply(&mut |ticket, reply| {
            taken = true;
            assert_eq!(ticket, awaited.ticket);
            assert_eq!(reply.status, awaited.status);
            assert_eq!(reply.value, awaited.value.as_deref());
            if let Some(number) = awaited.number {
                assert_eq!(reply.number, number);
            }
        });
        assert!(is_some.unwrap() && taken);
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..15 => {
                let (key, value) = (self.key(), self.value());
                assert!(self.session.set(&key, &value, SetOptions::default()).unwrap());
                self.map.insert(key, value);
            }
            15..22 => {
                let (key, value) = (self.key(), self.value());
                let if_absent = self.random.below(2) == 0;
                let condition = if if_absent { Condition::IfAbsent } else { Condition::IfPresent };
                let options = SetOptions { condition, expiry: Expiry::Never };
                let done = self.map.contains_key(&key) != if_absent;
                assert_eq!(self.session.set(&key, &value, options).unwrap(), done);
                if done {
                    self.map.insert(key, value);
                }
            }
            22..50 => {
                let (key, path) = (self.key(), self.path());
                let got = self.session.get(&key, path).unwrap();
                assert_eq!(got.value, self.map.get(&key).map(Vec::as_slice), "{path:?}");
            }
            50..56 => {
                let key = self.key();
                let was = self.map.remove(&key).is_some();
                assert_eq!(self.session.del(&key).unwrap(), was);
            }
            56..60 => {
                let key = self.key();
                assert_eq!(self.session.exists(&key).unwrap(), self.map.contains_key(&key));
            }
            60..66 => self.incr(),
            66..72 => self.batch(),
            72..74 => self.set_many(),
            74..90 if self.awaited.len() < 200 => self.submit(),
            _ => self.take_reply(),
        }
        assert_eq!(self.session.in_flight(), self.awaited.len());
    }

    fn incr(&mut self) {
        let key = self.key();
        let by = self.random.below(1000) as i64 - 500;
        let old = match self.map.get(&key) {
            None => Some(0),
            Some(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        };
        match old {
            Some(old)
                if self.map.get(&key).is_none_or(|text| *text == old.to_string().into_bytes()) =>
            {
                assert_eq!(self.session.incr(&key, by).unwrap(), old + by);
                self.map.insert(key, (old + by).to_string().into_bytes());
            }
            _ => {
                let refused = Err(Error::Refused(Status::NotAnInteger));
                assert_eq!(self.session.incr(&key, by), refused);
            }
        }
    }

    fn batch(&mut self) {
        let keys: Vec<Vec<u8>> = (0..self.random.below(40)).map(|_| self.key()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let path = self.path();
        let mut seen = vec![0; keys.len()];
        let map = &self.map;
        let (mut asked, mut read) = (0, 0);
        let counts = self
            .session
            .get_batch(&keys, path, &mut |at, value, via| {
                seen[at] += 1;
                assert_eq!(value, map.get(keys[at]).map(Vec::as_slice), "{path:?}");
                match via.is_read() {
                    false => asked += 1,
                    true => {
                        assert!(value.is_some(), "absence is the owner's word");
                        read += 1;
                    }
                }
            })
            .unwrap();
        assert!(seen.iter().all(|count| *count == 1), "{path:?} {seen:?}");
        let total = keys.len() as u64;
        assert_eq!((counts.asked, counts.read, counts.operations), (asked, read, total));
    }

    fn set_many(&mut self) {
        // Replies that are still out are taken first: see below.
        while !self.awaited.is_empty() {
            self.take_reply();
        }
        let pairs: Vec<_> =
            (0..self.random.below(30)).map(|_| (self.key(), self.value())).collect();
        let borrowed: Vec<(&[u8], &[u8])> = pairs.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        self.session.set_many(&borrowed).unwrap();
        self.map.extend(pairs);
    }
}

fn history(shards: &str, wake: Wake, cache: usize, steps: u32) {
    let pointer_cache = PointerCacheKind::Private;
    let options = Options {
        wake,
        pointer_cache,
        pointer_cache_entries: cache,
        ..remora_tests::by_pointers()
    };
    history_with(shards, &options, steps);
}

fn history_with(shards: &str, options: &Options, steps: u32) {
    let flags = ["--shards", shards, "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    let cache = options.pointer_cache_entries;
    let session = server.session_with(options);
    let seed = shards.len() as u64 * 1000 + cache as u64;
    let random = Random::new(seed);
    let mut fixture = Fixture { session, map: Map::new(), awaited: VecDeque::new(), random };
    for _ in 0..steps {
        fixture.step();
    }
    while !fixture.awaited.is_empty() {
        fixture.take_reply();
    }
    for key in 0..KEYS {
        let key = format!("key:{key}").into_bytes();
        for path in PATHS {
            let got = fixture.session.get(&key, path).unwrap();
            assert_eq!(got.value, fixture.map.get(&key).map(Vec::as_slice), "{path:?}");
        }
    }
    let totals = fixture.session.totals();
    println!("{shards} shard(s), cache {cache}: {totals:?}");
    assert!(totals.read > 0 && totals.asked > 0);
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

#[test]
fn a_long_history_on_one_shard_agrees_with_a_map() {
    history("1", Wake::Event, 1 << 16, 30_000);
}

#[test]
fn a_long_history_on_three_shards_agrees_with_a_map() {
    history("3", Wake::Hybrid, 1 << 16, 30_000);
}

#[test]
fn a_long_history_over_shared_pointers_agrees_with_a_map() {
    let pointer_cache = PointerCacheKind::Shared;
    let options = Options { wake: Wake::Hybrid, pointer_cache, ..remora_tests::by_pointers() };
    history_with("2", &options, 30_000);
}

#[test]
fn a_long_history_over_tcp_agrees_with_a_map() {
    let transport = Wanted::Tcp;
    let options = Options { wake: Wake::Hybrid, transport, ..remora_tests::by_pointers() };
    history_with("2", &options, 20_000);
}

#[test]
fn a_history_without_a_pointer_cache_agrees_with_a_map() {
    history("2", Wake::Event, 0, 10_000);
}

#[test]
fn a_history_while_pointers_are_pushed_out_agrees_with_a_map() {
    history("1", Wake::Hybrid, 1, 10_000);
}

#[test]
fn a_session_sees_a_write_that_it_has_only_submitted() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
    let mut session = server.session();
    for round in 0..500u32 {
        let (key, value) = ([b'k', (round % 5) as u8], round.to_string().into_bytes());
        let set = Command::Set {
            key: &key,
            value: &value,
            condition: Condition::Always,
            expiry: Expiry::Never,
            get: false,
        };
        session.submit(&set).unwrap();
        let got = session.get(&key, PATHS[round as usize % 3]).unwrap();
        assert_eq!(got.value, Some(&value[..]));
        if round % 2 == 0 {
            while session.next_reply(&mut |_, _| {}).unwrap() {}
            let got = session.get(&key, Path::Read).unwrap();
            assert_eq!(got.value, Some(&value[..]));
        }
    }
    assert!(session.totals().read > 0);
}

#[test]
fn what_was_submitted_is_sent_by_a_flush_a_read_or_the_end_of_the_session() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
    let client = Client::connect(&server.socket(), &remora_tests::options()).unwrap();
    let mut watcher = client.session().unwrap();
    watcher.set(b"other", b"value", SetOptions::default()).unwrap();
    for (round, ends) in ["flush", "read", "batch", "drop"].into_iter().enumerate() {
        let mut session = client.session().unwrap();
        let key = |number: usize| format!("{round}:{number}").into_bytes();
        // More than one, on both shards: the later ones are gathered.
        for number in 0..7 {
            let (key, value) = (key(number), b"there");
            let (condition, expiry) = (Condition::Always, Expiry::Never);
            let set = Command::Set { key: &key, value, condition, expiry, get: false };
            session.submit(&set).unwrap();
        }
        match ends {
            "flush" => session.flush().unwrap(),
            "read" => drop(session.get(b"other", Path::Read).unwrap().value),
            "batch" => drop(session.get_batch(&[b"other"], Path::Read, &mut |_, _, _| {}).unwrap()),
            _ => drop(session),
        }
        for number in 0..7 {
            wait_until(&format!("{ends} sends request {number}"), || {
                watcher.exists(&key(number)).unwrap()
            });
        }
    }
}

#[test]
fn set_many_leaves_the_replies_of_earlier_requests_alone() {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
    let mut session = server.session();
    let ticket = session.submit(&Command::Exists { key: b"none" }).unwrap();
    session.set_many(&[(b"a", b"1"), (b"b", b"2")]).unwrap();
    assert_eq!(session.in_flight(), 1, "the reply of the earlier request is still to be taken");
    assert!(session.next_reply(&mut |found, _| assert_eq!(found, ticket)).unwrap());
    assert!(!session.next_reply(&mut |_, _| ()).unwrap());
}

#[test]
fn set_many_takes_any_number_of_pairs() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=32MiB"]);
    let mut session = server.session();
    let keys: Vec<[u8; 4]> = (0..5000u32).map(u32::to_le_bytes).collect();
    let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[..])).collect();
    session.set_many(&pairs).unwrap();
    assert_eq!(session.get(&keys[4999], Path::Ask).unwrap().value, Some(&keys[4999][..]));
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for path in PATHS {
        let mut found = 0;
        session
            .get_batch(&keys, path, &mut |at, value, _| {
                found += (value == Some(keys[at])) as u32;
            })
            .unwrap();
        assert_eq!(found, 5000, "{path:?}");
    }
}
