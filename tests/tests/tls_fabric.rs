//! TLS on every path of TCP beside RESP: sessions, replicas, the servers of a cluster, Remora's commands.

use crate::tls::{Place, call, connect, info};
use remora_client::{ClusterClient, ClusterConnectError, ConnectFailure};
use remora_client_core::{
    Address, Credentials, Options, Path, Session, SetOptions, Transport, Wanted,
};
use remora_fabric::ClientTlsSettings;
use remora_testing::{Authority, Identity};
use remora_tests::{
    DEADLINE, ServerProcess, TestCluster, free_port, remora, run, run_remora, wait_for, wait_until,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SMALL: [&str; 4] = ["--shards=2", "--max-memory=64MiB", "--pin=false", "--wake=event"];

/// A server with TLS, and its address for sessions.
fn start(place: &Place, flags: &[&str]) -> (ServerProcess, Address) {
    let address = format!("127.0.0.1:{}", free_port());
    let fabric = format!("--fabric-address={address}");
    let server = place.start(&[&SMALL[..], &[fabric.as_str()], flags].concat());
    (server, address.parse().unwrap())
}

fn settings(authority: &FilePath, identity: Option<&Identity>) -> ClientTlsSettings {
    let settings = ClientTlsSettings::new(authority);
    match identity {
        Some(of) => settings.with_identity(&of.certificate, &of.key),
        None => settings,
    }
}

fn options(tls: Option<ClientTlsSettings>) -> Options {
    Options { transport: Wanted::Tcp, tls, timeout: DEADLINE, ..Options::default() }
}

/// Why there is no session.
fn refused(address: &Address, options: &Options) -> String {
    match Session::connect(address, options) {
        Ok(_) => panic!("there is a session"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_session_over_tls_reads_and_asks_for_values_of_any_length() {
    let place = Place::new();
    let (server, address) = start(&place, &[]);
    let options = options(Some(settings(place.authority.file(), None)));
    let mut session = Session::connect(&address, &options).unwrap();
    assert_eq!(session.transport(), Transport::Tcp);
    for bytes in [0, 1, 1000, 16 << 10, 100_000, 1 << 20, 8 << 20] {
        let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        session.set(b"k", &value, SetOptions::default()).unwrap();
        for path in [Path::Ask, Path::Read, Path::Read] {
            let got = session.get(b"k", path).unwrap();
            assert!(got.value == Some(&value[..]), "{bytes} bytes by {path:?}");
        }
    }
    // Threads share a connection: one sends while another one receives.
    let client = remora_client_core::Client::connect(&address, &options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut session = client.session().unwrap();
            scope.spawn(move || {
                let key = format!("key-{thread}");
                for round in 0..300usize {
                    let value = vec![thread as u8; round * 37 % 5000];
                    session.set(key.as_bytes(), &value, SetOptions::default()).unwrap();
                    let path = if round % 2 == 0 { Path::Read } else { Path::Ask };
                    let got = session.get(key.as_bytes(), path).unwrap();
                    assert_eq!(got.value, Some(&value[..]));
                }
            });
        }
    });
    let mut resp = connect(server.resp_address(), &place.client(None)).unwrap();
    assert_eq!(info(&mut resp, "tls_handshakes"), 3);
    // Its end is seen.
    drop((session, client));
    wait_until("the sessions have ended", || info(&mut resp, "connected_sessions_tcp") == 0);
}

/// Copies a connection, and keeps what it has copied.
fn tapped(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), Arc::default());
    let keeps = Arc::clone(&taken);
    std::thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let to = TcpStream::connect(server).unwrap();
        for (mut from, mut to) in
            [(client.try_clone().unwrap(), to.try_clone().unwrap()), (to, client)]
        {
            let keeps: Arc<Mutex<Vec<u8>>> = Arc::clone(&keeps);
            std::thread::spawn(move || {
                let mut bytes = vec![0; 65536];
                while let Ok(read @ 1..) = from.read(&mut bytes) {
                    keeps.lock().unwrap().extend_from_slice(&bytes[..read]);
                    let _ = to.write_all(&bytes[..read]);
                }
            });
        }
    });
    (address, taken)
}

#[test]
fn nothing_of_a_session_is_in_clear() {
    const SECRET: &str = "a-password-of-some-length";
    let place = Place::new();
    let (server, address) = start(&place, &[&format!("--requirepass={SECRET}")]);
    let Address::Tcp(address) = address else { panic!("it is one of TCP") };
    let (tap, taken) = tapped(address);
    let options = Options {
        credentials: Credentials::new("", SECRET),
        ..options(Some(settings(place.authority.file(), None)))
    };
    let mut session = Session::connect(Address::Tcp(tap), &options).unwrap();
    session.set(b"a-key-of-some-length", b"a-value-of-some-length", Default::default()).unwrap();
    let got = session.get(b"a-key-of-some-length", Path::Read).unwrap();
    assert_eq!(got.value, Some(&b"a-value-of-some-length"[..]));
    let taken = taken.lock().unwrap();
    assert!(taken.len() > 2000);
    for word in [SECRET.as_bytes(), b"of-some-length"] {
        assert!(!taken.windows(word.len()).any(|of| of == word), "{word:?}");
    }
    drop(server);
}

#[test]
fn a_client_without_a_session_learns_what_to_do() {
    let place = Place::new();
    let (server, address) = start(&place, &[]);
    let trusted = settings(place.authority.file(), None);
    let plain = refused(&address, &options(None));
    assert!(plain.contains("speaks TLS") && plain.contains("REMORA_TLS_CA"), "{plain}");
    let other = Authority::new(place.directory.path(), "other");
    let error = refused(&address, &options(Some(settings(other.file(), None))));
    assert!(error.contains("of another authority"), "{error}");
    let error = refused(&address, &options(Some(settings(FilePath::new("/nosuch"), None))));
    assert!(error.contains("/nosuch cannot be read"), "{error}");
    let resp = Address::Tcp(server.resp_address());
    let error = refused(&resp, &options(Some(trusted.clone())));
    assert!(error.contains("name its address for sessions"), "{error}");
    // Without TLS at the server.
    let fabric = format!("127.0.0.1:{}", free_port());
    let flag = format!("--fabric-address={fabric}");
    let _without = ServerProcess::start(&[&SMALL[..], &[&flag]].concat());
    let error = refused(&fabric.parse().unwrap(), &options(Some(trusted.clone())));
    assert!(error.contains("no TLS is spoken there"), "{error}");
    // By a name that the certificate does not have.
    let port = free_port();
    let flag = format!("--fabric-address=0.0.0.0:{port}");
    let _other = place.start(&[&SMALL[..], &[&flag, "--protected-mode=false"]].concat());
    let named: Address = format!("127.0.0.2:{port}").parse().unwrap();
    let error = refused(&named, &options(Some(trusted.clone())));
    assert!(error.contains("a name or an address that its certificate holds"), "{error}");
    let named: Address = format!("localhost:{port}").parse().unwrap();
    Session::connect(&named, &options(Some(trusted.clone()))).unwrap();
    // Certificates of clients.
    for least in ["1.2", "1.3"] {
        let least = format!("--tls-min-version={least}");
        let (_server, address) = start(&place, &[&place.ca(), &least]);
        let error = refused(&address, &options(Some(trusted.clone())));
        assert!(error.contains("asks for a certificate of the client"), "{error}");
        let stranger = other.certify("stranger");
        let of = settings(place.authority.file(), Some(&stranger));
        let error = refused(&address, &options(Some(of)));
        assert!(error.contains("does not take the client's certificate"), "{error}");
        let late = place.authority.certify_expired("late");
        let of = settings(place.authority.file(), Some(&late));
        let error = refused(&address, &options(Some(of)));
        assert!(error.contains("the client's certificate has expired"), "{error}");
        let alice = place.authority.certify("alice");
        let of = settings(place.authority.file(), Some(&alice));
        Session::connect(&address, &options(Some(of))).unwrap();
    }
    let mut expired = Place::new();
    expired.server = expired.authority.certify_expired("server");
    let (_server, address) = start(&expired, &[]);
    let error = refused(&address, &options(Some(settings(expired.authority.file(), None))));
    assert!(error.contains("the server's certificate has expired"), "{error}");
}

#[test]
fn a_certificate_may_be_the_login_of_a_session() {
    let place = Place::new();
    let users = place.directory.path().join("users");
    let rules = "user default on >top ~* &* +@all\nuser alice on >pass ~* &* +@all\n\
                 user bob on >pass ~b* +@all\n";
    std::fs::write(&users, rules).unwrap();
    let users = format!("--users={}", users.display());
    let (server, address) = start(&place, &[&place.ca(), &users, "--tls-auth-clients-user=cn"]);
    let of = |name: &str| {
        let identity = place.authority.certify(name);
        options(Some(settings(place.authority.file(), Some(&identity))))
    };
    let mut session = Session::connect(&address, &of("alice")).unwrap();
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    // His rights are looked at.
    let mut bob = Session::connect(&address, &of("bob")).unwrap();
    bob.set(b"b", b"v", SetOptions::default()).unwrap();
    assert!(bob.get(b"k", Path::Read).is_err_and(|error| !error.is_final()));
    let error = refused(&address, &of("nobody"));
    assert!(error.contains("the server has users"), "{error}");
    // A password says another one.
    let bob = Options { credentials: Credentials::new("", "top"), ..of("bob") };
    Session::connect(&address, &bob).unwrap();
    // Rights that change end it.
    let alice = place.authority.certify("alice");
    let mut admin = connect(server.resp_address(), &place.client(Some(&alice))).unwrap();
    assert_eq!(call(&mut admin, "AUTH top").unwrap(), "+OK");
    assert_eq!(call(&mut admin, "ACL DELUSER alice").unwrap(), ":1");
    wait_until("it ends", || session.get(b"k", Path::Read).is_err());
}

#[test]
fn sessions_go_on_when_a_certificate_is_replaced() {
    let place = Place::new();
    let (_server, address) = start(&place, &[]);
    let old = options(Some(settings(place.authority.file(), None)));
    let mut session = Session::connect(&address, &old).unwrap();
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    let next = Authority::new(place.directory.path(), "next");
    assert_eq!(next.certify("server"), place.server, "the same files");
    let trusts_next = options(Some(settings(next.file(), None)));
    wait_until("the new one is shown", || {
        assert_eq!(session.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
        Session::connect(&address, &trusts_next).is_ok()
    });
    assert!(Session::connect(&address, &old).is_err());
    assert_eq!(session.get(b"k", Path::Ask).unwrap().value, Some(&b"v"[..]));
}

/// Handshakes that do not go on hold up neither heartbeats nor other handshakes.
#[test]
fn silent_clients_hold_up_no_session() {
    let place = Place::new();
    let (server, address) = start(&place, &[]);
    let options = options(Some(settings(place.authority.file(), None)));
    let mut session = Session::connect(&address, &options).unwrap();
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    let Address::Tcp(to) = address else { panic!("it is one of TCP") };
    let _silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(to).unwrap()).collect();
    let (began, mut most) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        assert_eq!(session.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
        most = most.max(asked.elapsed());
    }
    Session::connect(&address, &options).unwrap();
    let mut resp = connect(server.resp_address(), &place.client(None)).unwrap();
    wait_until("all have gone", || info(&mut resp, "tls_handshakes_timed_out") == 400);
    assert!(most < Duration::from_secs(1), "{most:?}");
}

#[test]
fn a_replica_follows_over_tls() {
    let place = Place::new();
    let (primary, address) = start(&place, &[&place.ca()]);
    let own = connect(primary.resp_address(), &place.client(Some(&place.server)));
    let mut writer = own.unwrap();
    assert_eq!(call(&mut writer, "SET k v").unwrap(), "+OK");
    let of = format!("--replica-of={address}");
    let follows = [&SMALL[..], &[of.as_str(), "--replica-reads=stale"]].concat();
    let replica = place.start(&[&follows[..], &[&place.ca()]].concat());
    let mut reader = connect(replica.resp_address(), &place.client(Some(&place.server))).unwrap();
    wait_until("it follows", || call(&mut reader, "GET k").is_ok_and(|value| value == "v"));
    assert_eq!(call(&mut writer, "SET k w").unwrap(), "+OK");
    wait_until("and goes on", || call(&mut reader, "GET k").is_ok_and(|value| value == "w"));
    // It says whom it does not trust, and who does not trust it.
    let other = Authority::new(place.directory.path(), "other");
    let ca = format!("--peer-tls-ca={}", other.file().display());
    let wrong = place.start(&[&follows[..], &[&ca]].concat());
    wait_until("it says why", || wrong.log().contains("of another authority"));
    let ca = format!("--peer-tls-ca={}", place.authority.file().display());
    let nameless = ServerProcess::start(&[&follows[..], &[&ca]].concat());
    wait_until("it says why", || nameless.log().contains("asks for a certificate of the client"));
    let plain = ServerProcess::start(&follows);
    wait_until("it says why", || plain.log().contains("peer_tls_ca of a server"));
    // Without authorities it does not start, and follows nobody later.
    let [cert, key] = place.flags();
    let ended = run_remora(&["serve", "--port=0", &cert, &key, &of]);
    assert!(ended.code == Some(2) && ended.err.contains("peer_tls_ca"), "{}", ended.err);
    let alone = place.start(&SMALL);
    let mut resp = connect(alone.resp_address(), &place.client(None)).unwrap();
    let port = match address {
        Address::Tcp(address) => address.port(),
        _ => 0,
    };
    let said = call(&mut resp, &format!("REPLICAOF 127.0.0.1 {port}")).unwrap();
    assert!(said.contains("--peer-tls-ca"), "{said}");
}

#[test]
fn servers_of_a_cluster_speak_tls_with_each_other() {
    let Some(cluster) = TestCluster::init(&[]) else { return };
    let place = Place::new();
    let [cert, key] = place.flags();
    let ca = place.ca();
    let flags = [cert.as_str(), &key, &ca, "--requirepass=top", "--peer-password=top"];
    let addresses: Vec<_> = (0..3).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    let start = |address: &String| {
        cluster.start(&[&flags[..], &[&format!("--fabric-address={address}")]].concat())
    };
    let mut servers: Vec<_> = addresses.iter().map(start).collect();
    let whole = |servers: &[ServerProcess], count| {
        wait_for("all are in sync", || cluster.group(0).whole(servers, count))
    };
    let first = whole(&servers, 3);
    let client = place.client(Some(&place.server));
    let open = |server: &ServerProcess| {
        let mut stream = connect(server.resp_address(), &client)?;
        call(&mut stream, "AUTH top").map(|_| stream)
    };
    let mut stream = open(&servers[first]).unwrap();
    assert_eq!(call(&mut stream, "SET k v").unwrap(), "+OK");
    servers[first].kill();
    let next = wait_for("another one leads", || {
        cluster.group(0).primary(&servers).filter(|of| *of != first)
    });
    wait_for("and takes changes", || {
        let mut stream = open(&servers[next]).ok()?;
        let is_taken = call(&mut stream, "SET l w").ok()? == "+OK";
        (is_taken && call(&mut stream, "GET k").ok()? == "v").then_some(())
    });
    // A client that follows the cluster over TCP.
    let seeds: Vec<remora_client::Address> =
        addresses.iter().map(|address| address.parse().unwrap()).collect();
    let options = remora_client::Options::default()
        .transport(remora_client::Transport::Tcp)
        .timeout(DEADLINE)
        .user("", "top");
    match ClusterClient::connect(&seeds, &options) {
        Err(ClusterConnectError::Connect(why)) => assert_eq!(why.kind(), ConnectFailure::Tls),
        other => panic!("it speaks no TLS: {}", other.is_ok()),
    }
    let (certificate, key) = (&place.server.certificate, &place.server.key);
    let options = options.tls_as(place.authority.file(), certificate, key);
    let client = ClusterClient::connect(&seeds, &options).unwrap();
    let mut session = client.session();
    session.set(b"l", b"x").unwrap();
    assert_eq!(session.get(b"l").unwrap().value, Some(&b"x"[..]));
    // One whose authority is another one does not come in, and says why.
    let other = Place::new();
    let [cert, key] = other.flags();
    let ca = other.ca();
    let logins = ["--requirepass=top", "--peer-password=top"];
    let stranger = cluster.start(&[&[cert.as_str(), &key, &ca], &logins[..]].concat());
    wait_until("it is refused", || stranger.log().contains("of another authority"));
    let address = format!("--cluster=zk://{}/test", cluster.zookeeper().address());
    let [cert, key] = place.flags();
    let ended = run_remora(&["serve", "--port=0", &cert, &key, &address]);
    assert!(ended.code == Some(2) && ended.err.contains("peer_tls_ca"), "{}", ended.err);
}

#[test]
fn remoras_commands_speak_tls_as_their_environment_says() {
    let place = Place::new();
    let (server, _) = start(&place, &[&place.ca()]);
    let alice = place.authority.certify("alice");
    let resp = server.resp_address().to_string();
    let bench = |environment: &[(&str, &FilePath)]| {
        let mut command = remora();
        command.envs(environment.iter().map(|(name, path)| (*name, path.as_os_str())));
        let words = ["bench", "keys", "--records=100", "--ops=100", "--transport=tcp", "--server"];
        run(command.args(words).arg(&resp))
    };
    let own = [
        ("REMORA_TLS_CA", place.authority.file()),
        ("REMORA_TLS_CERT", alice.certificate.as_path()),
        ("REMORA_TLS_KEY", alice.key.as_path()),
    ];
    let served = bench(&own);
    assert_eq!(served.code, Some(0), "{}{}", served.out, served.err);
    let refused = bench(&own[..1]);
    let asked = "asks for a certificate of the client";
    assert!(refused.code != Some(0) && refused.err.contains(asked), "{}", refused.err);
    let refused = bench(&[]);
    assert!(refused.code != Some(0) && refused.err.contains("speaks TLS"), "{}", refused.err);
}
