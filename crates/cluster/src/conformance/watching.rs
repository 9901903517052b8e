//! The watcher: rule 7, and what rule 2 says of it.

use super::fixture::{Ask, Check, LONG_SESSION_MS, Room, SHORT_SESSION_MS, TestEnsemble};
use crate::coordinator::{Outcome, Proposal, Refused, SessionState, Standing, Term};

pub(super) fn checks<E: TestEnsemble>() -> Vec<Check> {
    vec![
        ("the_first_candidate_leads", the_first_candidate_leads::<E>),
        ("a_watcher_that_is_cut_off_is_followed", a_watcher_that_is_cut_off_is_followed::<E>),
        ("one_candidate_at_a_time_leads", one_candidate_at_a_time_leads::<E>),
    ]
}

fn leads(standing: Standing) -> bool {
    matches!(standing, Standing::Leads(_))
}

fn term_of(standing: Standing) -> Term {
    match standing {
        Standing::Leads(term) => term,
        _ => panic!("it does not lead"),
    }
}

/// A proposal of a guest, as a watcher of this term.
fn as_watcher<E: TestEnsemble>(room: &Room<E>, guest: usize, member: u64, term: Term) -> Ask {
    Ask::Propose(Proposal { term: Some(term), ..room.one_member_more(guest, member) })
}

fn the_first_candidate_leads<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[LONG_SESSION_MS; 3]);
    for guest in 0..3 {
        room.done(guest, Ask::Stand);
        room.done(guest, Ask::Stand);
    }
    let first = term_of(room.until_stands(0, leads));
    room.until_stands(1, |of| of == Standing::Waits);
    room.until_stands(2, |of| of == Standing::Waits);
    let ask = as_watcher(&room, 0, 10, first);
    room.done(0, ask);
    // The second leaves the queue: nothing changes for the others.
    room.done(1, Ask::StepDown);
    room.done(1, Ask::StepDown);
    room.until_stands(1, |of| of == Standing::Out);
    room.done(0, Ask::StepDown);
    room.until_stands(0, |of| of == Standing::Out);
    let third = term_of(room.until_stands(2, leads));
    assert!(third > first);
    // The first one, whose term is over, has the newest topology.
    let ask = as_watcher(&room, 0, 11, first);
    assert_eq!(room.outcome(0, ask), Outcome::Refused(Refused::NotWatcher));
    room.until("the next watcher knows the topology", |room| room.journal(2).version() == 2);
    let ask = as_watcher(&room, 2, 12, third);
    room.done(2, ask);
    // And no other guest has that term.
    room.until("the first one knows the topology", |room| room.journal(0).version() == 3);
    let ask = as_watcher(&room, 0, 13, third);
    assert_eq!(room.outcome(0, ask), Outcome::Refused(Refused::NotWatcher));
}

fn a_watcher_that_is_cut_off_is_followed<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[SHORT_SESSION_MS, LONG_SESSION_MS]);
    room.done(0, Ask::Stand);
    let first = term_of(room.until_stands(0, leads));
    room.done(1, Ask::Stand);
    room.until_stands(1, |of| of == Standing::Waits);
    room.cut(0, true, true);
    let second = term_of(room.until_stands(1, leads));
    assert!(second > first);
    room.until("the first one knows that it may lead no more", |room| {
        room.journal(0).session() != Some(SessionState::Connected)
    });
    room.cut(0, false, false);
    room.until("it has a new session", |room| {
        let journal = room.journal(0);
        journal.times(SessionState::Lost) == 1 && journal.standing() == Some(Standing::Out)
    });
    let ask = as_watcher(&room, 0, 10, first);
    assert_eq!(room.outcome(0, ask), Outcome::Refused(Refused::NotWatcher));
    room.done(0, Ask::Stand);
    room.until_stands(0, |of| of == Standing::Waits);
    let ask = as_watcher(&room, 1, 11, second);
    room.done(1, ask);
}

/// Candidates step down and stand again: what each proposes is recorded only in its own term, and the
/// terms of the recorded proposals rise.
fn one_candidate_at_a_time_leads<E: TestEnsemble>() {
    let mut room = Room::<E>::with_topology(&[LONG_SESSION_MS; 3]);
    for guest in 0..3 {
        room.done(guest, Ask::Stand);
    }
    let mut before = Term(0);
    for round in 0..9 {
        let guest = round % 3;
        let term = term_of(room.until_stands(guest, leads));
        assert!(term > before, "{term} behind {before}");
        before = term;
        let version = 1 + round as u64;
        room.until("the watcher knows the topology", |room| {
            room.journal(guest).version() == version
        });
        let ask = as_watcher(&room, guest, 10 + round as u64, term);
        room.done(guest, ask);
        room.done(guest, Ask::StepDown);
        room.done(guest, Ask::Stand);
    }
}
