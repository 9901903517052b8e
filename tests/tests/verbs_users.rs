//! Users of sessions over RDMA, in the virtual machine of `make rxe`: the server is on device rxe0, the clients
//! on rxe1.

use crate::verbs_many::{address, options, server};
use remora_client_core::{ConnectError, Credentials, Options, Path, Session, SetOptions, Wanted};
use remora_fabric::{Address, Transport};
use remora_layout::hello::Refusal;
use remora_tests::revocation::reads_after_revocations;
use remora_tests::{ServerProcess, Value, wait_until};

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
        "ACL SETUSER reader on >pass %R~* +@read",
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
