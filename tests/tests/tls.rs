//! RESP over TLS: real clients, certificates that change, hostile ones.

use remora_testing::{Authority, Identity};
use remora_tests::{
    DEADLINE, Resp, ServerProcess, encode, is_skipped, run_redis_py_with, run_remora, wait_until,
};
use remora_tls::{ClientTls, TlsStream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

pub(crate) struct Place {
    pub directory: TempDir,
    pub authority: Authority,
    pub server: Identity,
}

impl Place {
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let authority = Authority::new(directory.path(), "ours");
        let server = authority.certify("server");
        Self { directory, authority, server }
    }

    /// The flags of a server with TLS.
    pub fn flags(&self) -> [String; 2] {
        let (certificate, key) = (&self.server.certificate, &self.server.key);
        [format!("--tls-cert={}", certificate.display()), format!("--tls-key={}", key.display())]
    }

    pub fn start(&self, flags: &[&str]) -> ServerProcess {
        let own = self.flags();
        ServerProcess::start(&[&[own[0].as_str(), &own[1]], flags].concat())
    }

    pub fn ca(&self) -> String {
        format!("--tls-ca={}", self.authority.file().display())
    }

    pub fn client(&self, identity: Option<&Identity>) -> ClientTls {
        let identity = identity.map(|of| (of.certificate.as_path(), of.key.as_path()));
        ClientTls::load(self.authority.file(), identity).unwrap()
    }
}

/// A connection, or why there is none. In TLS 1.3 a client learns with its first read that it is
/// refused.
pub(crate) fn connect(server: SocketAddr, client: &ClientTls) -> Result<TlsStream, String> {
    let socket = TcpStream::connect(server).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut session = client.begin("localhost").unwrap();
    session.handshake(&mut &socket).map_err(|error| error.to_string())?;
    Ok(TlsStream::waiting(socket, session))
}

/// One request; its reply is a line, or a bulk string of one line.
pub(crate) fn call(stream: &mut TlsStream, request: &str) -> Result<String, String> {
    let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    stream.write_all(&encode(&words)).map_err(|error| error.to_string())?;
    let mut line = || {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).map_err(|error| error.to_string())?;
            line.push(byte[0]);
        }
        Ok::<_, String>(String::from_utf8(line).unwrap().trim_end().to_owned())
    };
    let first = line()?;
    if first.starts_with('$') && first != "$-1" { line() } else { Ok(first) }
}

pub(crate) fn info(stream: &mut TlsStream, name: &str) -> u64 {
    stream.write_all(&encode(&[b"INFO"])).unwrap();
    let mut text = String::new();
    let mut bytes = [0; 65536];
    while !text.ends_with("\r\n") || !text.contains("# Keyspace") {
        let read = stream.read(&mut bytes).unwrap();
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    let field = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn replies_over_tls_are_those_over_tcp_however_long() {
    let place = Place::new();
    let server = place.start(&["--shards=2"]);
    let mut stream = connect(server.resp_address(), &place.client(None)).unwrap();
    assert_eq!(call(&mut stream, "PING").unwrap(), "+PONG");
    // More than the sockets and any buffer hold, both ways at once.
    let value = b"0123456789abcdef".repeat(500_000);
    stream.write_all(&encode(&[b"SET", b"k", &value])).unwrap();
    for _ in 0..5 {
        stream.write_all(&encode(&[b"GET", b"k"])).unwrap();
    }
    let mut replies = vec![0; 5 + 5 * (value.len() + 12)];
    stream.read_exact(&mut replies).unwrap();
    assert!(replies.starts_with(b"+OK\r\n$8000000\r\n0123"));
    assert!(replies[5..].chunks(value.len() + 12).all(|reply| reply[10..][..value.len()] == value));
    // Many requests at once.
    let pings = encode(&[b"PING"]).repeat(50_000);
    std::thread::scope(|scope| {
        let mut writer = connect(server.resp_address(), &place.client(None)).unwrap();
        scope.spawn(move || {
            writer.write_all(&pings).unwrap();
            let mut pongs = vec![0; 50_000 * 7];
            writer.read_exact(&mut pongs).unwrap();
            assert!(pongs.chunks(7).all(|pong| pong == b"+PONG\r\n"));
        });
    });
    assert_eq!(call(&mut stream, "QUIT").unwrap(), "+OK");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end is announced");
}

/// The client announces its end behind its last request, and leaves the socket open: no event tells of
/// that end, as it came with the request.
#[test]
fn an_end_that_comes_with_a_request_is_seen() {
    let place = Place::new();
    let server = place.start(&[]);
    let socket = TcpStream::connect(server.resp_address()).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut session = place.client(None).begin("localhost").unwrap();
    session.handshake(&mut &socket).unwrap();
    let mut together = Vec::new();
    session.send(&mut together, &encode(&[b"PING"])).unwrap();
    session.close(&mut together);
    (&socket).write_all(&together).unwrap();
    let mut replies = Vec::new();
    TlsStream::waiting(socket, session).read_to_end(&mut replies).unwrap();
    assert_eq!(replies, b"+PONG\r\n");
}

#[test]
fn a_client_without_tls_is_told_and_counted() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut plain = Resp::connect(server.resp_address()).unwrap();
    plain.send(&[b"PING"]).unwrap();
    let rest = plain.rest().unwrap_or_default();
    assert!(rest.is_empty() || rest[0] == 21, "an alert, if anything: {rest:?}");
    let mut stream = connect(server.resp_address(), &place.client(None)).unwrap();
    assert_eq!(info(&mut stream, "tls_handshakes_failed"), 1);
    assert_eq!(info(&mut stream, "tls_handshakes"), 1);
}

#[test]
fn certificates_say_who_may_come_and_who_it_is() {
    let place = Place::new();
    let alice = place.authority.certify("alice");
    let ca = place.ca();
    let users = place.directory.path().join("users");
    let rules = "user default on >top ~* &* +@all\nuser alice on >pass ~a* +@all\n";
    std::fs::write(&users, rules).unwrap();
    let users = format!("--users={}", users.display());
    let server = place.start(&[&ca, &users, "--tls-auth-clients-user=cn"]);
    let address = server.resp_address();
    let refused =
        connect(address, &place.client(None)).and_then(|mut stream| call(&mut stream, "PING"));
    assert!(refused.is_err(), "a client has to show a certificate: {refused:?}");
    let mut stream = connect(address, &place.client(Some(&alice))).unwrap();
    assert_eq!(call(&mut stream, "ACL WHOAMI").unwrap(), "alice");
    assert_eq!(call(&mut stream, "SET a1 v").unwrap(), "+OK");
    assert!(call(&mut stream, "SET b v").unwrap().starts_with("-NOPERM"));
    // A certificate whose name is no user's logs nobody in.
    let nobody = place.authority.certify("nobody");
    let mut stream = connect(address, &place.client(Some(&nobody))).unwrap();
    assert!(call(&mut stream, "GET a1").unwrap().starts_with("-NOAUTH"));
    assert_eq!(call(&mut stream, "AUTH top").unwrap(), "+OK");
    assert_eq!(call(&mut stream, "GET a1").unwrap(), "v");
    // A change of the user holds at once.
    let mut of_alice = connect(address, &place.client(Some(&alice))).unwrap();
    assert_eq!(call(&mut of_alice, "GET a1").unwrap(), "v");
    assert_eq!(call(&mut stream, "ACL DELUSER alice").unwrap(), ":1");
    assert!(call(&mut of_alice, "GET a1").is_err());
}

#[test]
fn new_certificates_are_taken_without_a_pause() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut old = connect(server.resp_address(), &place.client(None)).unwrap();
    let next = Authority::new(place.directory.path(), "next");
    let made = next.certify("server");
    assert_eq!(made, place.server, "the same files");
    let trusts_next = ClientTls::load(next.file(), None).unwrap();
    wait_until("the new one is shown", || connect(server.resp_address(), &trusts_next).is_ok());
    assert_eq!(call(&mut old, "PING").unwrap(), "+PONG", "old connections go on");
    assert!(connect(server.resp_address(), &place.client(None)).is_err());
    // A wrong file changes nothing, and is named.
    std::fs::write(&place.server.key, "no key").unwrap();
    wait_until("it is looked at", || server.log().contains("TLS stays as it is"));
    assert!(server.log().contains("server.key holds no private key"));
    let mut new = connect(server.resp_address(), &trusts_next).unwrap();
    assert_eq!(info(&mut new, "tls_reloads"), 1);
    assert!(info(&mut new, "tls_reloads_failed") >= 1);
}

#[test]
fn silent_clients_shut_nobody_out() {
    let place = Place::new();
    let server = place.start(&[]);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let silent: Vec<TcpStream> =
        (0..1_500).map(|_| TcpStream::connect(server.resp_address()).unwrap()).collect();
    let mut stream = connect(server.resp_address(), &place.client(None)).unwrap();
    assert_eq!(call(&mut stream, "PING").unwrap(), "+PONG");
    let gone = |stream: &mut TlsStream| {
        info(stream, "tls_handshakes_dropped") + info(stream, "tls_handshakes_timed_out")
    };
    assert!(gone(&mut stream) >= 400, "of one address half of the room: {}", gone(&mut stream));
    wait_until("all have gone", || gone(&mut stream) == silent.len() as u64);
}

#[test]
fn redis_cli_and_redis_py_speak_tls() {
    let place = Place::new();
    let alice = place.authority.certify("alice");
    let ca = place.ca();
    let server = place.start(&[&ca, "--tls-min-version=1.3"]);
    let port = server.resp_address().port().to_string();
    if is_skipped("redis-cli") {
        println!("not run: redis-cli is missing, as REMORA_SKIP says");
    } else {
        let text = |path: &Path| path.display().to_string();
        let (cert, key) = (text(&alice.certificate), text(&alice.key));
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"])
            .args([&text(place.authority.file()), "--cert", &cert, "--key", &key, "PING"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "PONG\n", "{output:?}");
    }
    let text = |path: &Path| path.display().to_string();
    let arguments = [
        "127.0.0.1".to_owned(),
        port,
        text(place.authority.file()),
        text(&alice.certificate),
        text(&alice.key),
    ];
    run_redis_py_with("tls.py", &arguments, "over TLSv1.3");
}

#[test]
fn what_cannot_be_is_said_before_the_server_starts() {
    let place = Place::new();
    let (cert, key) = (&place.server.certificate, &place.server.key);
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let ca = place.authority.file().to_str().unwrap();
    let open_users = place.directory.path().join("users");
    std::fs::write(&open_users, "user alice on >pass ~* +@all\n").unwrap();
    let open_users = open_users.display().to_string();
    for (flags, text) in [
        (vec!["--tls-cert", cert], "tls_cert needs tls_key"),
        (vec!["--tls-key", key], "tls_key needs tls_cert"),
        (vec!["--tls-ca", ca], "there is no TLS without tls_cert"),
        (
            vec!["--tls-cert", cert, "--tls-key", key, "--tls-auth-clients=yes"],
            "Name their authority, tls_ca",
        ),
        (vec!["--tls-cert", cert, "--tls-key", cert], "holds no private key"),
        (vec!["--tls-cert", "/nosuch", "--tls-key", key], "/nosuch cannot be read"),
        (vec!["--bind=0.0.0.0"], "--protected-mode=false"),
        (vec!["--fabric-address=0.0.0.0:0"], "--protected-mode=false"),
        // A file of users that leaves `default` open is no protection, nor is TLS of RESP to sessions.
        (vec!["--bind=0.0.0.0", "--users", &open_users], "--protected-mode=false"),
        (
            vec!["--tls-cert", cert, "--tls-key", key, "--fabric-address=0.0.0.0:0"],
            "--protected-mode=false",
        ),
    ] {
        let ended = run_remora(&[&["serve", "--port=0"], &flags[..]].concat());
        assert_eq!(ended.code, Some(2), "{flags:?}: {}", ended.err);
        assert!(ended.err.contains(text), "{flags:?}: {}", ended.err);
    }
    // In these words it listens.
    for flags in [vec!["--protected-mode=false"], vec!["--requirepass=x"]] {
        let served = ServerProcess::start(&[&["--bind=0.0.0.0"], &flags[..]].concat());
        let local = SocketAddr::from(([127, 0, 0, 1], served.resp_address().port()));
        let said = Resp::connect(local).unwrap().call("PING");
        assert_eq!(said.is_error(), flags[0].starts_with("--requirepass"));
        let warns = served.log().contains("NO AUTHENTICATION");
        assert_eq!(warns, flags[0].starts_with("--protected"));
    }
}
