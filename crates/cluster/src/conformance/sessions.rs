//! Interrupted sessions: rules 1, 3, 8 and 9.

use super::fixture::{Ask, Check, LONG_SESSION_MS, Room, SHORT_SESSION_MS, TestEnsemble, instance};
use crate::coordinator::{Outcome, SessionState, Standing};

pub(super) fn checks<E: TestEnsemble>() -> Vec<Check> {
    vec![
        ("all_is_read_anew_after_a_gap", all_is_read_anew_after_a_gap::<E>),
        ("an_answer_that_is_lost_is_unknown", an_answer_that_is_lost_is_unknown::<E>),
        ("a_request_that_does_not_arrive_is_unknown", a_request_that_does_not_arrive::<E>),
        ("nothing_is_sent_while_suspended", nothing_is_sent_while_suspended::<E>),
        ("a_cut_in_one_direction_ends_a_session", a_cut_in_one_direction_ends_a_session::<E>),
        ("sessions_outlive_a_lost_quorum", sessions_outlive_a_lost_quorum::<E>),
    ]
}

/// What changed while a member was cut off: no watch tells it of that.
fn all_is_read_anew_after_a_gap<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    let (first, second) = (instance(1, 10), instance(2, 20));
    room.done(1, Ask::Enter(first));
    room.until_present(0, &[first]);
    room.cut(0, true, true);
    room.until_session(0, SessionState::Suspended);
    for member in 10..13 {
        let proposal = room.one_member_more(1, member);
        room.done(1, Ask::Propose(proposal));
        room.until("it is known", |room| room.journal(1).version() == member - 8);
    }
    room.done(1, Ask::Leave);
    room.done(1, Ask::Enter(second));
    assert_eq!(room.journal(0).version(), 1);
    room.cut(0, false, false);
    room.until("the topology is known", |room| room.journal(0).version() == 4);
    room.until_present(0, &[second]);
    // And from then on it is told of changes again.
    let proposal = room.one_member_more(1, 20);
    room.done(1, Ask::Propose(proposal));
    room.done(1, Ask::Leave);
    room.until("the next topology is known", |room| room.journal(0).version() == 5);
    room.until_present(0, &[]);
}

/// The proposal arrives and is recorded; its answer does not come back.
fn an_answer_that_is_lost_is_unknown<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    room.cut(0, false, true);
    let proposal = room.one_member_more(0, 10);
    let id = room.ask(0, Ask::Propose(proposal));
    room.until("another member knows the topology", |room| room.journal(1).version() == 2);
    assert_eq!(room.answer(0, id), Outcome::Unknown);
    assert_eq!(room.journal(0).version(), 1);
    room.cut(0, false, false);
    room.until_session(0, SessionState::Connected);
    room.until("it learns what it has done", |room| room.journal(0).version() == 2);
    assert_eq!(room.journal(0).topology(), room.journal(1).topology());
}

fn a_request_that_does_not_arrive<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    room.cut(0, true, false);
    let proposal = room.one_member_more(0, 10);
    let id = room.ask(0, Ask::Propose(proposal));
    assert_eq!(room.answer(0, id), Outcome::Unknown);
    assert_eq!(room.journal(1).version(), 1);
    room.cut(0, false, false);
    room.until_session(0, SessionState::Connected);
    room.until("the topology came anew", |room| room.journal(0).topologies_anew() > 0);
    // It may have arrived late, but from here on it does not: what is proposed now is next.
    let before = room.journal(0).version();
    let proposal = room.one_member_more(0, 11);
    room.done(0, Ask::Propose(proposal));
    room.until("both know it", |room| (0..2).all(|of| room.journal(of).version() == before + 1));
}

fn nothing_is_sent_while_suspended<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    room.cut(0, true, true);
    room.until_session(0, SessionState::Suspended);
    let proposal = room.one_member_more(0, 10);
    for ask in [Ask::Propose(proposal), Ask::Enter(instance(1, 1)), Ask::Renew(1), Ask::Stand] {
        assert_eq!(room.outcome(0, ask), Outcome::NotSent);
    }
    room.cut(0, false, false);
    room.until_session(0, SessionState::Connected);
    room.until("all came anew", |room| {
        let journal = room.journal(0);
        journal.topologies_anew() == 1 && journal.standing() == Some(Standing::Out)
    });
    room.until_present(0, &[]);
    assert_eq!(room.journal(0).version(), 1);
}

fn a_cut_in_one_direction_ends_a_session<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    let (cut_off, other) = (instance(1, 10), instance(2, 20));
    room.done(0, Ask::Enter(cut_off));
    room.until_present(1, &[cut_off]);
    room.cut(0, true, false);
    // It hears of what happens, and nothing of it arrives.
    room.done(1, Ask::Enter(other));
    room.until_present(1, &[other]);
    room.until("the member knows that it may be gone", |room| {
        room.journal(0).session() != Some(SessionState::Connected)
    });
    room.cut(0, false, false);
    room.until("it has a new session", |room| {
        let journal = room.journal(0);
        journal.times(SessionState::Lost) == 1 && journal.session() == Some(SessionState::Connected)
    });
    room.until_present(0, &[other]);
}

fn sessions_outlive_a_lost_quorum<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[LONG_SESSION_MS; 2]);
    let (first, second) = (instance(1, 10), instance(2, 20));
    room.done(0, Ask::Enter(first));
    room.done(1, Ask::Enter(second));
    room.done(0, Ask::Stand);
    room.done(1, Ask::Stand);
    let leads = room.until_stands(0, |of| matches!(of, Standing::Leads(_)));
    room.ensemble.set_quorum(false);
    let id = room.ask(0, Ask::Renew(1));
    assert!(matches!(room.answer(0, id), Outcome::Unknown | Outcome::NotSent));
    for guest in 0..2 {
        room.until_session(guest, SessionState::Suspended);
    }
    assert_eq!(room.outcome(1, Ask::Renew(1)), Outcome::NotSent);
    room.ensemble.set_quorum(true);
    for guest in 0..2 {
        room.until_session(guest, SessionState::Connected);
        room.until_present(guest, &[first, second]);
        room.until("the topology came anew", |room| room.journal(guest).topologies_anew() == 1);
        assert_eq!(room.journal(guest).times(SessionState::Lost), 0);
    }
    room.until_stands(0, |of| of == leads);
    room.until_stands(1, |of| of == Standing::Waits);
    room.done(0, Ask::Renew(1));
    let proposal = room.one_member_more(1, 10);
    room.done(1, Ask::Propose(proposal));
}
