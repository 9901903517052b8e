//! Presence, and renewals: rules 5 and 6.

use super::fixture::{Ask, Check, LONG_SESSION_MS, Room, SHORT_SESSION_MS, TestEnsemble, instance};
use crate::coordinator::{Outcome, Refused, SessionState};

pub(super) fn checks<E: TestEnsemble>() -> Vec<Check> {
    vec![
        ("members_come_and_leave", members_come_and_leave::<E>),
        ("a_member_is_present_once", a_member_is_present_once::<E>),
        ("presence_ends_with_its_session", presence_ends_with_its_session::<E>),
        ("a_process_that_dies_is_gone", a_process_that_dies_is_gone::<E>),
        ("a_renewal_names_the_topology", a_renewal_names_the_topology::<E>),
        ("a_renewal_is_judged_by_what_is_recorded", a_renewal_is_judged_by_what_is_recorded::<E>),
    ]
}

fn members_come_and_leave<E: TestEnsemble>() {
    let mut room = Room::<E>::with(&[LONG_SESSION_MS; 3]);
    for guest in 0..3 {
        room.until_present(guest, &[]);
    }
    let (first, second) = (instance(1, 10), instance(2, 20));
    room.done(1, Ask::Enter(second));
    room.until_present(2, &[second]);
    room.done(0, Ask::Enter(first));
    room.done(0, Ask::Enter(first));
    for guest in 0..3 {
        room.until_present(guest, &[first, second]);
    }
    room.done(1, Ask::Leave);
    room.done(1, Ask::Leave);
    for guest in 0..3 {
        room.until_present(guest, &[first]);
    }
}

fn a_member_is_present_once<E: TestEnsemble>() {
    let mut room = Room::<E>::with(&[LONG_SESSION_MS; 2]);
    let (first, second) = (instance(1, 10), instance(1, 11));
    room.done(0, Ask::Enter(first));
    assert_eq!(room.outcome(1, Ask::Enter(second)), Outcome::Refused(Refused::IsPresent));
    assert_eq!(room.outcome(1, Ask::Enter(first)), Outcome::Refused(Refused::IsPresent));
    assert_eq!(room.outcome(0, Ask::Enter(second)), Outcome::Refused(Refused::IsPresent));
    room.until_present(1, &[first]);
    room.done(0, Ask::Leave);
    room.done(1, Ask::Enter(second));
    room.until_present(0, &[second]);
}

fn presence_ends_with_its_session<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    let (cut_off, other) = (instance(1, 10), instance(2, 20));
    room.done(0, Ask::Enter(cut_off));
    room.done(1, Ask::Enter(other));
    room.until_present(1, &[cut_off, other]);
    room.cut(0, true, true);
    room.until_present(1, &[other]);
    room.until("the member knows that it may be gone", |room| {
        room.journal(0).session() != Some(SessionState::Connected)
    });
    room.cut(0, false, false);
    room.until("it has a new session", |room| {
        let journal = room.journal(0);
        journal.times(SessionState::Lost) == 1 && journal.session() == Some(SessionState::Connected)
    });
    // Without a presence, until it asks.
    room.until_present(0, &[other]);
    assert_eq!(room.outcome(0, Ask::Renew(1)), Outcome::Refused(Refused::NotPresent));
    room.done(0, Ask::Enter(cut_off));
    room.until_present(1, &[cut_off, other]);
    room.done(0, Ask::Renew(1));
}

fn a_process_that_dies_is_gone<E: TestEnsemble>() {
    let mut room = Room::<E>::with(&[LONG_SESSION_MS, SHORT_SESSION_MS]);
    let before = instance(1, 10);
    room.done(1, Ask::Enter(before));
    room.until_present(0, &[before]);
    drop(room.guests.pop());
    room.until_present(0, &[]);
}

fn a_renewal_names_the_topology<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[LONG_SESSION_MS; 2]);
    assert_eq!(room.outcome(0, Ask::Renew(1)), Outcome::Refused(Refused::NotPresent));
    room.done(0, Ask::Enter(instance(1, 10)));
    room.done(0, Ask::Renew(1));
    for version in 2..6 {
        let proposal = room.one_member_more(1, 10 + version);
        room.done(1, Ask::Propose(proposal));
        // Whatever this member has heard of, what it names is over.
        let outcome = room.outcome(0, Ask::Renew(version - 1));
        assert_eq!(outcome, Outcome::Refused(Refused::Outdated));
        assert_eq!(room.journal(0).version(), version);
        room.until("the other knows it", |room| room.journal(1).version() == version);
        room.done(0, Ask::Renew(version));
    }
    assert_eq!(room.outcome(0, Ask::Renew(99)), Outcome::Refused(Refused::Outdated));
    room.done(0, Ask::Leave);
    assert_eq!(room.outcome(0, Ask::Renew(5)), Outcome::Refused(Refused::NotPresent));
}

/// The member has not heard of the newest topology when it asks: the coordinator judges, not the member.
fn a_renewal_is_judged_by_what_is_recorded<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[LONG_SESSION_MS; 2]);
    room.done(0, Ask::Enter(instance(1, 10)));
    for version in 2..5 {
        room.cut(0, false, true);
        let proposal = room.one_member_more(1, 10 + version);
        room.done(1, Ask::Propose(proposal));
        assert_eq!(room.journal(0).version(), version - 1);
        let id = room.ask(0, Ask::Renew(version - 1));
        (0..5).for_each(|_| room.step());
        room.cut(0, false, false);
        assert_eq!(room.answer(0, id), Outcome::Refused(Refused::Outdated));
        assert_eq!(room.journal(0).version(), version);
        room.until("the other knows it", |room| room.journal(1).version() == version);
        room.done(0, Ask::Renew(version));
    }
    assert_eq!(room.journal(0).times(SessionState::Suspended), 0);
}
