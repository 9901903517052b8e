//! Users of sessions: who gets one over which transport, and how long it lasts.

use remora_client_core::{
    Address, ConnectError, Credentials, Options, Path, Session, SetOptions, Transport, Wanted,
};
use remora_layout::hello::{PASSWORD_BYTES, Refusal};
use remora_tests::revocation::reads_after_revocations;
use remora_tests::{Resp, ServerProcess, Value, remora, run, wait_until};

pub fn start(flags: &[&str]) -> (ServerProcess, Resp, [(Wanted, Address); 2]) {
    let flags = [&["--shards=2", "--fabric-address=127.0.0.1:0", "--requirepass=top"], flags];
    let server = ServerProcess::start(&flags.concat());
    let mut admin = server.resp();
    assert_eq!(admin.call("AUTH top"), Value::ok());
    let Value::Array(told) = admin.call("CONFIG GET fabric_address") else { panic!("no array") };
    let Some(Value::Bulk(fabric)) = told.last() else { panic!("no address") };
    let fabric = std::str::from_utf8(fabric).unwrap().parse().unwrap();
    let ways = [(Wanted::Shm, Address::Unix(server.socket())), (Wanted::Tcp, fabric)];
    (server, admin, ways)
}

pub fn session(
    (transport, address): &(Wanted, Address),
    credentials: Credentials,
) -> Result<Session, ConnectError> {
    let transport = *transport;
    Session::connect(address, &Options { transport, credentials, ..Options::default() })
}

pub fn refusal(made: Result<Session, ConnectError>) -> Refusal {
    match made {
        Err(ConnectError::Refused { refusal, .. }) => refusal,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there is a session"),
    }
}

#[test]
fn a_session_is_of_a_user() {
    let (server, mut admin, ways) = start(&[]);
    for make in ["ACL SETUSER all on >pass ~* &* +@all", "ACL SETUSER off off >pass ~* &* +@all"] {
        assert_eq!(admin.call(make), Value::ok());
    }
    for way in &ways {
        let of = |user: &str, password: &str| session(way, Credentials::new(user, password));
        assert_eq!(refusal(session(way, Credentials::default())), Refusal::NotLoggedIn);
        for (user, password) in
            [("", "wrong"), ("nobody", "pass"), ("all", "wrong"), ("off", "pass"), ("all", "")]
        {
            assert_eq!(refusal(of(user, password)), Refusal::WrongPassword, "{user} {password}");
        }
        let long = "x".repeat(PASSWORD_BYTES + 1);
        assert!(matches!(of("all", &long), Err(ConnectError::LongCredentials)));
        for (user, password) in [("all", "pass"), ("", "top"), ("default", "top")] {
            let mut session = of(user, password).unwrap();
            session.set(b"k", b"v", SetOptions::default()).unwrap();
            assert_eq!(session.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
        }
    }
    // The refusals are noted, and no password is.
    let Value::Array(entries) = admin.call("ACL LOG") else { panic!("no log") };
    fn text(value: &Value) -> String {
        match value {
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" "),
            other => format!("{other:?}"),
        }
    }
    let noted = entries.iter().map(text).collect::<Vec<_>>().join("\n");
    assert!(entries.len() == 4 && noted.contains("object session username nobody"), "{noted}");
    for secret in ["top ", "wrong", " pass "] {
        assert!(!server.log().contains(secret) && !noted.contains(secret), "{secret}");
    }
}

/// What a session of a user may do ends when the user may not do all any more, whatever it is that
/// changes; a session that reads by itself reads nothing after that.
#[test]
fn a_session_ends_with_its_users_rights() {
    let (_server, mut admin, ways) = start(&[]);
    let changes = ["ACL SETUSER u -@dangerous", "ACL SETUSER u resetkeys ~a*", "ACL DELUSER u"];
    let mut revoked = 0;
    for way in &ways {
        for change in changes {
            assert_eq!(admin.call("ACL SETUSER u reset on >pass ~* &* +@all"), Value::ok());
            let mut session = session(way, Credentials::new("u", "pass")).unwrap();
            let mut other = self::session(way, Credentials::new("", "top")).unwrap();
            session.set(b"k", b"v", SetOptions::default()).unwrap();
            // A change that leaves all rights ends nothing.
            assert_eq!(admin.call("ACL SETUSER u >another"), Value::ok());
            assert_eq!(session.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
            assert!(!admin.call(change).is_error());
            wait_until("it ends", || session.get(b"k", Path::Read).is_err());
            assert!(session.set(b"k", b"w", SetOptions::default()).is_err(), "{change}");
            assert_eq!(other.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
            revoked += 1;
            assert_eq!(admin.info("sessions_revoked"), revoked);
        }
    }
}

/// Prints how long: `REMORA_REVOCATIONS=100 cargo test -p remora-tests --test end_to_end revoked_reads --
/// --nocapture`.
#[test]
fn revoked_reads_end_by_themselves() {
    let (_server, mut admin, ways) = start(&["--wake=event"]);
    for way in &ways {
        reads_after_revocations(&mut admin, way.0.name(), || {
            session(way, Credentials::new("u", "pass")).unwrap()
        });
    }
}

#[test]
fn a_replica_is_a_user_at_its_primary() {
    let (primary, mut admin, ways) = start(&[]);
    assert_eq!(admin.call("ACL SETUSER peer on >pass ~* &* +@all"), Value::ok());
    assert_eq!(admin.call("SET k v"), Value::ok());
    for (_, address) in &ways {
        let of = format!("--replica-of={address}");
        let common = ["--shards=2", "--replica-reads=stale", of.as_str()];
        let unknown = ServerProcess::start(&common);
        wait_until("it is refused", || unknown.log().contains("the server has users"));
        let known = [&common[..], &["--peer-user=peer", "--peer-password=pass"]].concat();
        let replica = ServerProcess::start(&known);
        let mut reader = replica.resp();
        wait_until("it follows", || reader.call("GET k") == Value::bulk("v"));
        assert_ne!(unknown.resp().call("GET k"), Value::bulk("v"));
        // A password on the command line is not in the list of processes.
        let shown = std::fs::read(format!("/proc/{}/cmdline", replica.pid())).unwrap();
        assert!(!shown.is_empty() && !shown.windows(4).any(|word| word == b"pass"), "{shown:?}");
    }
    drop(primary);
}

#[test]
fn remoras_commands_are_the_user_of_their_environment() {
    let (server, _admin, _) = start(&[]);
    let address = server.resp_address().to_string();
    let run = |password: &str| {
        let mut command = remora();
        command.env("REMORA_PASSWORD", password);
        let arguments = ["bench", "keys", "--records=100", "--ops=100", "--server", &address];
        run(command.args(arguments))
    };
    let refused = run("wrong");
    assert!(refused.code != Some(0) && refused.err.contains("WRONGPASS"), "{}", refused.err);
    let served = run("top");
    assert_eq!(served.code, Some(0), "{}{}", served.out, served.err);
    assert_eq!(
        session(&(Wanted::Shm, Address::Unix(server.socket())), Credentials::new("", "top"))
            .unwrap()
            .transport(),
        Transport::Shm
    );
}

/// Sessions count among the clients of their address and of their user, as connections of RESP do.
#[test]
fn sessions_of_an_address_and_of_a_user_are_bounded() {
    let flags = ["--max-clients-per-address=4", "--max-clients-per-user=2"];
    let (server, mut admin, [shm, tcp]) = start(&flags);
    assert_eq!(admin.call("ACL SETUSER u on >pass ~* &* +@all"), Value::ok());
    let of_u = || Credentials::new("u", "pass");
    let one = session(&tcp, of_u()).unwrap();
    let two = session(&shm, of_u()).unwrap();
    for way in [&shm, &tcp] {
        assert_eq!(refusal(session(way, of_u())), Refusal::TooManyOfUser);
    }
    drop(two);
    let top = || Credentials::new("", "top");
    wait_until("a login is free", || session(&shm, of_u()).is_ok());
    // The address has one connection of RESP and one session; those over shared memory have none.
    let other = session(&tcp, top()).unwrap();
    let mut connection = server.resp();
    assert!(connection.call("PING").is_error(), "it has come, and is not logged in");
    wait_until("it is full", || admin.info("connected_sessions_tcp") == 2);
    assert_eq!(refusal(session(&tcp, top())), Refusal::TooManyOfAddress);
    drop((one, other));
    wait_until("there is room", || session(&tcp, top()).is_ok());
}
