//! Floods of garbage, readers that do not read, and sockets whose other end
//! is silent or gone, in hundreds: an honest client is served rightly all the
//! while, and afterwards the server holds no more than before.

use remora_client_core::{Path, Session, SetOptions};
use remora_layout::frame::first_word;
use remora_layout::hello::{ClientHello, HELLO_MAGIC, PROTOCOL_VERSION};
use remora_layout::session::{credit_word, ring_offset};
use remora_tests::proc::{anonymous_kib, descriptors, resident_kib};
use remora_tests::{DEADLINE, Random, RawSession, Resp, ServerProcess, Value, encode, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// A server, honest clients, and what the server held before the attack.
struct Scene {
    server: ServerProcess,
    session: Session,
    resp: Resp,
    rounds: u64,
    files: usize,
    resident_kib: u64,
}

impl Scene {
    fn new() -> Self {
        let server = ServerProcess::start(&["--shards=2", "--max-memory=32MiB"]);
        let (session, resp) = (server.session(), server.resp());
        let mut scene = Self { server, session, resp, rounds: 0, files: 0, resident_kib: 0 };
        for _ in 0..300 {
            scene.honest_round();
        }
        scene.files = descriptors(scene.server.pid());
        scene.resident_kib = resident_kib(scene.server.pid());
        scene
    }

    /// What an honest client does, by every path; all of it has to be right.
    fn honest_round(&mut self) {
        self.rounds += 1;
        let (number, value) = (self.rounds % 50, self.rounds.to_string());
        let key = format!("honest:{number}");
        let written = self.session.set(key.as_bytes(), value.as_bytes(), SetOptions::default());
        assert!(written.unwrap());
        for path in [Path::Ask, Path::Read, Path::Choose] {
            let got = self.session.get(key.as_bytes(), path).unwrap();
            assert_eq!(got.value, Some(value.as_bytes()), "{path:?}");
        }
        assert_eq!(self.resp.call(&format!("GET {key}")), Value::bulk(value.as_bytes()));
        assert_eq!(self.resp.call(&format!("SET by:{key} {value}")), Value::ok());
        let got = self.session.get(format!("by:{key}").as_bytes(), Path::Read).unwrap();
        assert_eq!(got.value, Some(value.as_bytes()));
    }

    /// Honest rounds while threads attack, until they have done so for a while
    /// and the attack has had its effect.
    fn while_attacked(
        &mut self,
        threads: u64,
        attack: impl Fn(u64, &AtomicBool) + Sync,
        mut has_effect: impl FnMut(&mut Self) -> bool,
    ) {
        let stop = AtomicBool::new(false);
        let before = self.rounds;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (attack, stop) = (&attack, &stop);
                scope.spawn(move || attack(thread, stop));
            }
            let since = Instant::now();
            // Also if a round fails the attackers have to end.
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                while since.elapsed() < Duration::from_millis(1500)
                    || self.rounds - before < 20
                    || !has_effect(self)
                {
                    self.honest_round();
                    assert!(since.elapsed() < DEADLINE, "the attack has no effect");
                }
            }));
            stop.store(true, Ordering::Relaxed);
            if let Err(panic) = held {
                std::panic::resume_unwind(panic);
            }
        });
        let rounds = self.rounds - before;
        println!("{rounds} honest rounds meanwhile");
    }

    /// The server is as it was, give or take what an allocator keeps.
    fn is_as_before(&mut self) {
        assert!(self.server.is_alive(), "{}", self.server.log());
        assert!(!self.server.log().contains("panic"), "{}", self.server.log());
        wait_until("only the honest are connected", || {
            self.resp.info("connected_clients") == 1
                && self.resp.info("connected_sessions_shm") == 1
        });
        let pid = self.server.pid();
        wait_until("descriptors are closed", || descriptors(pid) <= self.files);
        let grown = resident_kib(pid).saturating_sub(self.resident_kib);
        println!("{grown} KiB more than before");
        assert!(grown < 24 << 10, "{grown} KiB");
        self.honest_round();
        let (mut session, resp) = (self.server.session(), self.server.resp());
        std::mem::swap(&mut self.session, &mut session);
        drop((std::mem::replace(&mut self.resp, resp), session));
        self.honest_round();
    }

    /// Attacks that make the server hold up to about 200 MiB for a moment.
    /// Its allocator may keep as much, but four times do not add up.
    fn again_and_again(&mut self, mut attack: impl FnMut(&mut Self)) {
        for _ in 0..4 {
            attack(self);
        }
        self.resident_kib += 240 << 10;
        self.is_as_before();
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.server.resp_address()).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        socket
    }
}

#[test]
fn fifty_connections_that_flood_garbage() {
    let mut scene = Scene::new();
    let address = scene.server.resp_address();
    let attack = |thread, stop: &AtomicBool| {
        let mut random = Random::new(thread);
        let open = || {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
            socket
        };
        let mut sockets: Vec<TcpStream> = (0..25).map(|_| open()).collect();
        while !stop.load(Ordering::Relaxed) {
            for socket in &mut sockets {
                let mut bytes = random.bytes(8 << 10);
                if random.below(2) == 0 {
                    const SOME: &[u8] = b"*$:-+_123\r\n\r\nGETSET k";
                    bytes.iter_mut().for_each(|byte| *byte = SOME[*byte as usize % SOME.len()]);
                }
                // It closes what makes no sense; then there is a new one.
                if socket.write_all(&bytes).is_err() {
                    *socket = open();
                }
            }
        }
    };
    // Connections are closed for what they said.
    scene.while_attacked(2, attack, |scene| scene.resp.info("protocol_errors") >= 50);
    scene.is_as_before();
}

const LARGE_BYTES: usize = 6000;

/// Each pipelines requests whose replies are a thousand times as long. Behind
/// a SET the replies wait for a shard, and are held as parts until then.
#[test]
fn readers_that_ask_for_much_and_do_not_read() {
    let mut scene = Scene::new();
    let value = vec![b'v'; LARGE_BYTES];
    assert_eq!(scene.resp.try_call(&[b"SET", b"large", &value]).unwrap(), Value::ok());
    const KEYS: usize = 1000;
    let mut many: Vec<&[u8]> = vec![b"MGET"];
    many.resize(KEYS + 1, b"large");
    let single = encode(&[b"GET", b"large"]).repeat(2000);
    let pair = [encode(&[b"SET", b"mine", b"1"]), encode(&many)].concat();
    const PAIRS: usize = 20;
    let several = pair.repeat(PAIRS);
    let before = anonymous_kib(scene.server.pid());
    scene.again_and_again(|scene| {
        let mut slow: Vec<TcpStream> = (0..50).map(|_| scene.connect()).collect();
        let mut greedy: Vec<Resp> = (0..5).map(|_| scene.server.resp()).collect();
        for socket in &mut slow {
            // As much as the server takes from a peer that does not read.
            let _ = socket.write_all(&single);
        }
        let writers: Vec<_> = greedy
            .iter()
            .map(|resp| {
                let (mut socket, bytes) = (resp.socket.try_clone().unwrap(), several.clone());
                std::thread::spawn(move || socket.write_all(&bytes))
            })
            .collect();
        scene.while_attacked(0, |_, _| (), |_| true);
        let grown = anonymous_kib(scene.server.pid()).saturating_sub(before);
        println!("{grown} KiB more for 1200 MB that nobody reads");
        // About two mebibytes for each of the fifty; two long replies, as parts
        // and as output, for each of the five; as much is kept from before.
        assert!(grown < (50 * 2 + 2 * 5 * 4 * 6) << 10, "{grown} KiB");
        // They are slow, not lost: all of it comes, and is right.
        let mut last = greedy.pop().unwrap();
        drop(greedy);
        for pair in 0..PAIRS {
            assert_eq!(last.receive().unwrap(), Value::ok(), "{pair}");
            let Value::Array(values) = last.receive().unwrap() else { panic!("no array") };
            assert_eq!(values.len(), KEYS);
            assert!(values.iter().all(|found| *found == Value::Bulk(value.clone())), "{pair}");
        }
        drop((last, slow));
        writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));
    });
}

/// More unread output than the limit ends the connection, and is counted.
#[test]
fn unread_replies_of_a_connection_are_bounded_and_nothing_of_them_is_lost() {
    let mut scene = Scene::new();
    let value = vec![b'v'; 60_000];
    assert_eq!(scene.resp.try_call(&[b"SET", b"large", &value]).unwrap(), Value::ok());
    let mut many: Vec<&[u8]> = vec![b"MGET"];
    many.resize(1001, b"large");
    // Behind the SET both are asked of the shard, and come at once.
    let bytes = [encode(&[b"SET", b"mine", b"1"]), encode(&many).repeat(2)].concat();
    scene.again_and_again(|scene| {
        let mut slow = scene.server.resp();
        slow.send_raw(&bytes).unwrap();
        scene.honest_round();
        // The pause holds the rest back, so that it need not be cut off.
        assert_eq!(slow.receive().unwrap(), Value::ok());
        for _ in 0..2 {
            let Value::Array(values) = slow.receive().unwrap() else { panic!("an array") };
            assert!(values.len() == 1000 && values.iter().all(|v| *v == Value::bulk(&value[..])));
        }
    });
    assert_eq!(scene.resp.info("client_output_buffer_limit_disconnections"), 0);
}

/// The timer of each of this server's connections, as the kernel tells it; 2
/// is one that probes an idle peer.
fn timers(port: u16) -> Vec<u8> {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let connections = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let local = words.get(1)?.ends_with(&format!(":{port:04X}"));
        // 01: established.
        let timer = words.get(5)?.get(..2)?;
        (local && words.get(3) == Some(&"01")).then(|| u8::from_str_radix(timer, 16).unwrap())
    });
    connections.collect()
}

#[test]
fn hundreds_of_half_open_connections() {
    let mut scene = Scene::new();
    let half = &encode(&[b"SET", b"half", &[b'x'; 5000]])[..3000];
    for round in 0..3 {
        let mut all: Vec<TcpStream> = (0..300).map(|_| scene.connect()).collect();
        for (number, socket) in all.iter_mut().enumerate() {
            // One half has begun to speak, the other never does.
            if number % 2 == 0 {
                socket.write_all(&half[..1 + number * 9]).unwrap();
            }
        }
        wait_until("all are accepted", || scene.resp.info("connected_clients") == 301);
        scene.while_attacked(0, |_, _| (), |_| true);
        if round == 0 {
            // The server notices a peer that vanishes without closing.
            let timers = timers(scene.server.resp_address().port());
            let probed = timers.iter().filter(|timer| **timer == 2).count();
            assert!(timers.len() >= 300 && probed >= 300, "{probed} of {}", timers.len());
        }
        for socket in all {
            // A reset instead of an end.
            let linger = Some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&socket, linger).unwrap();
        }
        wait_until("all are gone", || scene.resp.info("connected_clients") == 1);
    }
    assert_eq!(scene.resp.call("EXISTS half"), Value::Integer(0), "half a command was executed");
    scene.is_as_before();
}

#[test]
fn hundreds_of_half_hellos() {
    let mut scene = Scene::new();
    let hello = remora_fabric::client_hello(remora_fabric::detect::Wanted::Shm);
    let hello =
        ClientHello { magic: HELLO_MAGIC.into(), version: PROTOCOL_VERSION.into(), ..hello };
    let mut silent: Vec<UnixStream> = Vec::new();
    for number in 0..300 {
        let mut socket = UnixStream::connect(scene.server.socket()).unwrap();
        socket.write_all(&hello.as_bytes()[..number % hello.as_bytes().len()]).unwrap();
        silent.push(socket);
        // The next ones come in at once.
        if number % 30 == 0 {
            let mut session = scene.server.session();
            assert!(session.set(b"k", b"v", SetOptions::default()).unwrap());
        }
    }
    wait_until("the silent ones are cut off", || {
        scene.honest_round();
        scene.resp.info("hellos_timed_out") == 300
    });
    for mut socket in silent {
        assert_eq!(socket.read(&mut [0; 8]).unwrap_or_default(), 0, "cut off");
    }
    scene.is_as_before();
}

#[test]
fn sessions_that_flood_their_rings_with_garbage() {
    let mut scene = Scene::new();
    let socket = scene.server.socket();
    let attack = |thread, stop: &AtomicBool| {
        let mut random = Random::new(thread);
        while !stop.load(Ordering::Relaxed) {
            let raw = RawSession::connect(&socket);
            for round in 0..20 {
                let bytes = random.bytes(64 << 10);
                raw.to_server().copy_in(ring_offset(0), &bytes);
                raw.to_server().copy_in(credit_word(0) * 8, &random.bits().to_le_bytes());
                if round % 2 == 0 {
                    // A first word that is looked at.
                    let length = random.below(1 << (4 + round)) as u32;
                    let word = first_word(0, length, raw.seed());
                    raw.to_server().copy_in(ring_offset(0), &word.to_le_bytes());
                }
                raw.ring_bell();
                if raw.is_withdrawn() {
                    break;
                }
            }
        }
    };
    // Sessions are ended for what they wrote.
    scene.while_attacked(2, attack, |scene| scene.resp.info("sessions_violated") >= 10);
    assert!(scene.server.log().contains("it broke the protocol"));
    scene.is_as_before();
}
