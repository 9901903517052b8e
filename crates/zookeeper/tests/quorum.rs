//! Three servers, of which two are a quorum.

use crate::TICK_MS;
use crate::member::Member;
use remora_cluster::conformance::LONG_SESSION_MS;
use remora_cluster::coordinator::{Outcome, SessionState};
use remora_zookeeper::LocalServer;

/// Asks for renewals until one is done: behind a server that died, its sessions move to another one.
fn until_renewed(member: &mut Member) {
    loop {
        member.until_connected();
        match member.renew() {
            Outcome::Done => return,
            Outcome::Unknown | Outcome::NotSent => {}
            outcome => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn a_quorum_is_lost_and_comes_back_and_nothing_else_is_lost() {
    if LocalServer::is_skipped() {
        return;
    }
    let mut servers = LocalServer::start_three(TICK_MS).expect("they answer");
    let hosts = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port())).join(",");
    let address = format!("zk://{hosts}/quorum");
    let mut members = [1, 2].map(|id| Member::new(id, &address, LONG_SESSION_MS));
    members.iter_mut().for_each(Member::until_connected);
    assert_eq!(members[0].create(), Outcome::Done);
    for member in &mut members {
        assert_eq!(member.enter(), Outcome::Done);
        member.until("the topology is known", |journal| journal.version() == 1);
        until_renewed(member);
    }
    let both = [members[0].instance, members[1].instance];
    let mut version = 1;
    for round in 0..3 {
        // One of three: all goes on, perhaps over another connection.
        let (one, other) = (round % 3, (round + 1) % 3);
        servers[one].kill();
        members.iter_mut().for_each(until_renewed);
        members[0].until("the topology is known", |journal| journal.version() == version);
        loop {
            match members[0].propose() {
                Outcome::Done => break,
                // It may have been recorded all the same: then this one is the next.
                outcome => assert!(matches!(outcome, Outcome::Unknown | Outcome::NotSent)),
            }
            members[0].until_connected();
            members[0].until("the topology came anew", |journal| journal.topologies_anew() > 0);
        }
        version = members[0].journal.version();
        // Two of three: nothing goes on, and it is said.
        servers[other].kill();
        for member in &mut members {
            member
                .until("it is said", |journal| journal.session() != Some(SessionState::Connected));
            assert_eq!(member.renew(), Outcome::NotSent);
        }
        // And goes on by itself. No session has ended, and what was recorded is there.
        servers[one].resume().expect("it answers");
        for member in &mut members {
            until_renewed(member);
            member.until("all are present", |journal| journal.members() == Some(&both[..]));
            member.until("the topology is known", |journal| journal.version() == version);
            assert_eq!(member.journal.times(SessionState::Lost), 0);
        }
        servers[other].resume().expect("it answers");
    }
}
