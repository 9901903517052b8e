//! Recording topologies: rules 1 to 4.

use super::fixture::{
    Ask, Check, LONG_SESSION_MS, Room, TestEnsemble, first_topology, has, instance, joined,
};
use crate::coordinator::{Event, Outcome, Proposal, Refused};
use crate::topology::{DecodeError, MemberId};
use remora_layout::limits::COORDINATOR_REQUESTS;

pub(super) fn checks<E: TestEnsemble>() -> Vec<Check> {
    vec![
        ("a_cluster_is_made_once", a_cluster_is_made_once::<E>),
        ("of_two_proposals_one_is_recorded", of_two_proposals_one_is_recorded::<E>),
        ("only_the_next_version_is_recorded", only_the_next_version_is_recorded::<E>),
        ("no_change_is_lost", no_change_is_lost::<E>),
        ("each_request_is_answered_once", each_request_is_answered_once::<E>),
        ("another_format_is_named", another_format_is_named::<E>),
    ]
}

const TWO: [u64; 2] = [LONG_SESSION_MS; 2];

fn a_cluster_is_made_once<E: TestEnsemble>() {
    let mut room = Room::<E>::with(&TWO);
    for guest in 0..2 {
        room.until("there is no topology", |room| {
            has(room.journal(guest).others(), |of| *of == Event::NoTopology)
        });
    }
    let ids = [0, 1].map(|guest| room.ask(guest, Ask::Create(first_topology())));
    let mut outcomes = [0, 1].map(|guest| room.answer(guest, ids[guest]));
    outcomes.sort_by_key(|of| *of != Outcome::Done);
    assert_eq!(outcomes, [Outcome::Done, Outcome::Refused(Refused::HasTopology)]);
    room.until("both know it", |room| (0..2).all(|guest| room.journal(guest).version() == 1));
    assert_eq!(**room.journal(1).topology().expect("known"), first_topology());
    let again = room.outcome(1, Ask::Create(first_topology()));
    assert_eq!(again, Outcome::Refused(Refused::HasTopology));
}

fn of_two_proposals_one_is_recorded<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&TWO);
    for round in 0..10 {
        let ids = [0, 1].map(|guest| {
            let proposal = room.one_member_more(guest, 10 + 2 * round + guest as u64);
            room.ask(guest, Ask::Propose(proposal))
        });
        let outcomes = [0, 1].map(|guest| room.answer(guest, ids[guest]));
        let winner = outcomes.iter().position(|of| *of == Outcome::Done).expect("one of them");
        assert_eq!(outcomes[1 - winner], Outcome::Refused(Refused::Outdated));
        let version = 2 + round;
        room.until("both know it", |room| {
            (0..2).all(|guest| room.journal(guest).version() == version)
        });
        assert_eq!(room.journal(0).topology(), room.journal(1).topology());
        let theirs = MemberId(10 + 2 * round + winner as u64);
        assert!(room.journal(0).topology().expect("known").member(theirs).is_some());
    }
}

fn only_the_next_version_is_recorded<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&TWO);
    let second = joined(&first_topology(), instance(3, 1));
    let third = joined(&second, instance(4, 1));
    let mut other = second.clone();
    other.cluster = 78;
    for topology in [first_topology(), third.clone(), other] {
        let outcome = room.outcome(0, Ask::Propose(Proposal { topology, term: None }));
        assert_eq!(outcome, Outcome::Refused(Refused::Outdated));
    }
    for topology in [second.clone(), third.clone()] {
        room.done(0, Ask::Propose(Proposal { topology, term: None }));
    }
    let again = room.outcome(0, Ask::Propose(Proposal { topology: second, term: None }));
    assert_eq!(again, Outcome::Refused(Refused::Outdated));
    room.until("the other knows it", |room| room.journal(1).version() == 3);
    assert_eq!(**room.journal(1).topology().expect("known"), third);
}

/// Members change the topology as fast as they can; a refused one begins anew with what it knows then.
fn no_change_is_lost<E: TestEnsemble>() {
    const EACH: u64 = 8;
    let mut room = Room::<E>::with_topology(&[LONG_SESSION_MS; 3]);
    let mut done = [0; 3];
    let mut open = [None; 3];
    while done != [EACH; 3] {
        for guest in 0..3 {
            match open[guest].map(|id| room.journal(guest).answer(id)) {
                Some(None) => continue,
                Some(Some(Outcome::Done)) => done[guest] += 1,
                Some(Some(outcome)) => assert_eq!(outcome, Outcome::Refused(Refused::Outdated)),
                None => {}
            }
            open[guest] = (done[guest] < EACH).then(|| {
                let known = room.journal(guest).topology().expect("known");
                let member = 1 + 10 * guest as u64 + done[guest];
                let topology = joined(known, instance(member, 1));
                room.ask(guest, Ask::Propose(Proposal { topology, term: None }))
            });
        }
        room.step();
    }
    let version = 1 + 3 * EACH;
    room.until("all know it", |room| (0..3).all(|guest| room.journal(guest).version() == version));
    let members = room.journal(2).topology().expect("known").members();
    assert_eq!(members.len() as u64, 3 * EACH);
}

fn each_request_is_answered_once<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&TWO);
    room.done(0, Ask::Enter(instance(1, 1)));
    let ids: Vec<_> = (0..COORDINATOR_REQUESTS + 10).map(|_| room.ask(0, Ask::Renew(1))).collect();
    room.until("all are answered", |room| room.journal(0).open() == 0);
    let count =
        |outcome| ids.iter().filter(|id| room.journal(0).answer(**id) == Some(outcome)).count();
    assert_eq!(count(Outcome::Done) + count(Outcome::NotSent), ids.len());
    assert!(count(Outcome::Done) >= COORDINATOR_REQUESTS, "{}", count(Outcome::Done));
    room.done(0, Ask::Renew(1));
}

fn another_format_is_named<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&TWO);
    let mut bytes = first_topology().encode();
    bytes[8] = 99;
    room.ensemble.overwrite(bytes);
    let expected = Event::UnreadableTopology(DecodeError::OtherFormat(99));
    for guest in 0..2 {
        room.until("the format is named", |room| {
            has(room.journal(guest).others(), |of| *of == expected)
        });
    }
    let proposal = room.one_member_more(0, 3);
    assert_eq!(room.outcome(0, Ask::Propose(proposal)), Outcome::Refused(Refused::Outdated));
}
