//! A session that goes from one connection to the next.

use crate::member::Member;
use crate::proxy::Proxy;
use crate::started;
use remora_cluster::conformance::LONG_SESSION_MS;
use remora_cluster::coordinator::{Coordinator, Outcome, SessionState};
use remora_zookeeper::LocalServer;

/// The member has not yet heard that its connection was lost and made anew: what it asks then belongs to the
/// lost one.
#[test]
fn what_is_asked_of_a_lost_connection_is_not_sent_over_the_next() {
    if LocalServer::is_skipped() {
        return;
    }
    let server = started();
    let proxy = Proxy::to(server.port());
    let address = |port: u16| format!("zk://127.0.0.1:{port}/late");
    let mut late = Member::new(1, &address(proxy.port), LONG_SESSION_MS);
    let mut other = Member::new(2, &address(server.port()), LONG_SESSION_MS);
    late.until_connected();
    other.until_connected();
    assert_eq!((other.create(), other.enter()), (Outcome::Done, Outcome::Done));
    late.until("the topology is known", |journal| journal.version() == 1);

    for round in 1..=3 {
        let before = proxy.accepted();
        proxy.end();
        // It is not polled from here on.
        while proxy.accepted() == before {
            assert_eq!(other.renew(), Outcome::Done);
        }
        (0..30).for_each(|_| assert_eq!(other.renew(), Outcome::Done));
        let id = late.journal.asked(late.session.enter(0, late.instance));
        assert_eq!(late.answer(id), Outcome::NotSent);
        assert_eq!(late.journal.times(SessionState::Suspended), round);
        late.until_connected();
        assert_eq!(late.journal.members(), Some(&[other.instance][..]));
    }
    assert_eq!(late.journal.times(SessionState::Lost), 0);
    assert_eq!((late.enter(), late.renew()), (Outcome::Done, Outcome::Done));
    let both = [late.instance, other.instance];
    other.until("both are present", |journal| journal.members() == Some(&both[..]));
}

/// A session that ends in order takes its presence with it at once, not after its time.
#[test]
fn a_session_that_is_dropped_is_closed() {
    if LocalServer::is_skipped() {
        return;
    }
    let server = started();
    let address = format!("zk://127.0.0.1:{}/a/cluster", server.port());
    let mut first = Member::new(1, &address, LONG_SESSION_MS);
    let mut second = Member::new(2, &address, LONG_SESSION_MS);
    for member in [&mut first, &mut second] {
        member.until_connected();
        assert_eq!(member.enter(), Outcome::Done);
    }
    let both = [first.instance, second.instance];
    second.until("both are present", |journal| journal.members() == Some(&both[..]));
    drop(first);
    second.until("one is left", |journal| journal.members() == Some(&both[1..]));
    // ZooKeeper bounds the time of a session: 400 ticks of 200 ms here.
    let mut third = Member::new(3, &address, 10 * LONG_SESSION_MS);
    third.until_connected();
    assert_eq!(third.session.session_ms(), 80_000);
}

/// Nobody answers: nothing is sent, and nothing is said but that.
#[test]
fn without_a_server_nothing_is_sent() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = port.local_addr().expect("bound").port();
    let mut member = Member::new(1, &format!("zk://127.0.0.1:{port}/x"), LONG_SESSION_MS);
    assert_eq!((member.create(), member.enter()), (Outcome::NotSent, Outcome::NotSent));
    assert_eq!((member.renew(), member.journal.session()), (Outcome::NotSent, None));
}
