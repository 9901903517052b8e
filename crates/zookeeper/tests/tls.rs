//! Sessions over TLS with a real server, which asks for clients' certificates.

use crate::TICK_MS;
use crate::member::Member;
use remora_cluster::conformance::LONG_SESSION_MS;
use remora_cluster::coordinator::{Outcome, SessionState};
use remora_testing::{Authority, Identity};
use remora_tls::ClientTlsSettings;
use remora_zookeeper::{LocalServer, LocalServerPlan, LocalServerTls, ZookeeperCoordinator};
use std::path::Path;

fn start(authority: &Authority) -> LocalServer {
    let Identity { certificate, key } = authority.certify("zookeeper");
    let clients = authority.file().to_owned();
    let tls = Some(LocalServerTls { identity: (certificate, key), clients });
    let plan = LocalServerPlan { tick_ms: TICK_MS, tls, ..LocalServerPlan::default() };
    LocalServer::start(plan).expect("it answers")
}

fn settings(authority: &Path, identity: &Identity) -> ClientTlsSettings {
    ClientTlsSettings::new(authority).with_identity(&identity.certificate, &identity.key)
}

#[test]
fn a_session_over_tls_does_all_and_takes_new_files_with_the_next_connection() {
    if LocalServer::is_skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "authority");
    let mut server = start(&authority);
    let address = format!("zk+tls://{}/test", server.tls_address().unwrap());
    let files = settings(authority.file(), &authority.certify("member"));
    let member = |id| Member::with_tls(id, &address, Some(files.clone()), LONG_SESSION_MS);
    let (mut first, mut second) = (member(1), member(2));
    for member in [&mut first, &mut second] {
        member.until_connected();
    }
    assert_eq!((first.create(), first.enter()), (Outcome::Done, Outcome::Done));
    assert_eq!(second.enter(), Outcome::Done);
    first.until("the topology is known", |journal| journal.version() == 1);
    assert_eq!((first.propose(), first.renew()), (Outcome::Done, Outcome::Done));

    // The files of the first connection are gone: a session that goes on has to read them anew.
    std::fs::write(&files.identity.as_ref().unwrap().1, "no key").unwrap();
    server.kill();
    server.resume().unwrap();
    first.until("the loss is known", |journal| journal.times(SessionState::Suspended) == 1);
    for _ in 0..20 {
        first.poll();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(first.journal.session(), Some(SessionState::Suspended));
    }
    authority.certify("member");
    first.until("it is connected again", |journal| {
        journal.session() == Some(SessionState::Connected)
    });
    assert_eq!(first.renew(), Outcome::Done);
}

#[test]
fn an_authority_or_a_certificate_of_another_one_is_no_session() {
    if LocalServer::is_skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "authority");
    let other = Authority::new(directory.path(), "other");
    let server = start(&authority);
    let at = server.tls_address().unwrap();
    let address = format!("zk+tls://{at}/test");
    let (own, stranger) = (authority.certify("member"), other.certify("stranger"));
    let files = [
        settings(other.file(), &own),
        settings(authority.file(), &stranger),
        ClientTlsSettings::new(authority.file()),
        ClientTlsSettings::new(directory.path().join("none.pem")),
    ];
    let mut refused: Vec<_> = files
        .into_iter()
        .map(|files| Member::with_tls(1, &address, Some(files), LONG_SESSION_MS))
        .collect();
    // Plain text at the port of TLS, and TLS at the plain one.
    refused.push(Member::new(2, &format!("zk://{at}/test"), LONG_SESSION_MS));
    let files = settings(authority.file(), &own);
    let plain = format!("zk+tls://{}/test", server.address());
    refused.push(Member::with_tls(3, &plain, Some(files.clone()), LONG_SESSION_MS));
    let mut taken = Member::with_tls(4, &address, Some(files), LONG_SESSION_MS);
    taken.until_connected();
    for _ in 0..40 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        for member in &mut refused {
            assert_eq!(member.enter(), Outcome::NotSent);
            assert_eq!(member.journal.session(), None);
        }
    }
    let said: Vec<_> = refused.iter().map(|of| of.session.refusal().unwrap_or_default()).collect();
    assert!(said[0].contains("of another authority"), "{said:?}");
    assert!(said[1].contains("does not take the client's certificate"), "{said:?}");
    assert!(said[2].contains("no certificate is shown"), "{said:?}");
    assert!(said[3].contains("none.pem cannot be read"), "{said:?}");
    assert!(said[4].is_empty() && taken.session.refusal().is_none(), "{said:?}");
    // An address with TLS, and no files for it.
    let without = format!("zk+tls://127.0.0.1:{}/test", server.port());
    assert!(ZookeeperCoordinator::connect(without.parse().unwrap(), None, 1000).is_err());
}
