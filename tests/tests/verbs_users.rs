//! Users of sessions over RDMA, in the virtual machine of `make rxe`: the server is on device rxe0, the clients
//! on rxe1.

use crate::verbs_many::{address, options, server};
use remora_client_core::{ConnectError, Credentials, Options, Path, Session, SetOptions, Wanted};
use remora_fabric::{Address, ClientTlsSettings, Transport};
use remora_layout::hello::Refusal;
use remora_testing::Authority;
use remora_tests::revocation::reads_after_revocations;
use remora_tests::{ServerProcess, Value, wait_until};
use tempfile::TempDir;

fn start() -> (ServerProcess, remora_tests::Resp) {
    let server = server(&["--requirepass=top"]);
    let mut admin = server.resp();
    assert_eq!(admin.call("AUTH top"), Value::ok());
    (server, admin)
}

fn session(transport: Wanted, user: &str, password: &str) -> Result<Session, ConnectError> {
    let credentials = Credentials::new(user, password);
    let options = Options { credentials, ..options(transport) };
    Session::connect(Address::Tcp(address()), &options)
}

#[test]
fn a_revoked_session_reads_no_more() {
    let (_server, mut admin) = start();
    reads_after_revocations(&mut admin, "verbs", || {
        let session = session(Wanted::Verbs, "u", "pass").unwrap();
        assert_eq!(session.transport(), Transport::Verbs);
        session
    });
}

#[test]
fn who_may_not_read_everything_gets_no_queue_pair() {
    let (_server, mut admin) = start();
    for make in [
        "ACL SETUSER part on >pass ~a:* +@all",
        "ACL SETUSER reader on >pass %R~* +@read +select",
        "SET a:k v",
    ] {
        assert_eq!(admin.call(make), Value::ok());
    }
    let refused = session(Wanted::Verbs, "part", "pass").err();
    let refusal = match refused {
        Some(ConnectError::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    };
    assert_eq!(refusal, Some(Refusal::RestrictedUser), "{refused:?}");
    let mut part = session(Wanted::Auto, "part", "pass").unwrap();
    assert_eq!(part.transport(), Transport::Tcp);
    assert_eq!(part.get(b"a:k", Path::Read).unwrap().value, Some(&b"v"[..]));
    assert!(part.get(b"b:k", Path::Read).is_err());
    let mut reader = session(Wanted::Verbs, "reader", "pass").unwrap();
    assert!(reader.set(b"a:k", b"w", SetOptions::default()).is_err());
    wait_until("it reads", || reader.get(b"a:k", Path::Read).unwrap().served_by.is_read());
}

/// Queue pairs are set up over TLS: the keys of the regions are not in clear. A client without TLS is refused.
#[test]
fn queue_pairs_are_set_up_over_tls() {
    let directory = TempDir::new().unwrap();
    let authority = Authority::new(directory.path(), "ours");
    let identity = authority.certify_for("server", address().ip());
    let cert = format!("--tls-cert={}", identity.certificate.display());
    let key = format!("--tls-key={}", identity.key.display());
    let _server = server(&[&cert, &key]);
    let options =
        Options { tls: Some(ClientTlsSettings::new(authority.file())), ..options(Wanted::Verbs) };
    let mut session = Session::connect(Address::Tcp(address()), &options).unwrap();
    assert_eq!(session.transport(), Transport::Verbs);
    session.set(b"k", b"v", SetOptions::default()).unwrap();
    assert_eq!(session.get(b"k", Path::Ask).unwrap().value, Some(&b"v"[..]));
    wait_until("it reads", || session.get(b"k", Path::Read).unwrap().served_by.is_read());
    assert!(self::session(Wanted::Verbs, "", "").is_err());
}
