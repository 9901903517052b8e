//! Catfish's algorithm 1 by whole sessions, in virtual time: a server that reports how busy it is,
//! and its clients' reads and requests. (By the machine that decides alone:
//! `crates/client-core/src/choose/catfish.rs`. By a real server: `tests/tests/choice.rs`.)
//!
//! The paper's numbers stand here as numbers: N 8, T 95 %, Inv 10 ms.

use crate::alone::{Alone, MS, alone_by, read};
use remora_client_core::{Path, PointerCacheKind, Policy, ServedBy, Session, SetOptions};

const BUSY: u32 = 1_000_000;

fn by(policy: Policy, body: fn(&Alone)) {
    alone_by(policy, PointerCacheKind::Private, body);
}

fn begin(alone: &Alone) -> Session {
    let mut session = alone.session();
    session.set(b"key", b"value", SetOptions::default()).expect("room");
    session
}

/// Lets a heartbeat come, and more than Inv go by. A request that is not chosen lets the
/// session see it.
fn await_heartbeat(alone: &Alone, session: &mut Session) {
    alone.pause(21 * MS);
    assert_eq!(read(session, b"key", false, Path::Ask).served_by, ServedBy::Asked);
}

fn via(session: &mut Session) -> ServedBy {
    let seen = read(session, b"key", false, Path::Choose);
    assert_eq!(seen.value.as_deref(), Some(&b"value"[..]));
    seen.served_by
}

/// Lookups that are read before the next one is asked. It is over before another
/// heartbeat counts.
fn run(alone: &Alone, session: &mut Session) -> u64 {
    let began_ns = alone.world.now_ns();
    let reads = (0..1_000).take_while(|_| via(session) == ServedBy::Read).count();
    assert_eq!(via(session), ServedBy::Asked, "one run for each heartbeat");
    let took_ns = alone.world.now_ns() - began_ns;
    assert!(took_ns < 10 * MS, "{reads} reads took {took_ns} ns");
    reads as u64
}

/// Of so many heartbeats, one after the other, the lengths of their runs.
fn runs(alone: &Alone, session: &mut Session, heartbeats: usize) -> Vec<u64> {
    let each = (0..heartbeats).map(|_| {
        await_heartbeat(alone, session);
        run(alone, session)
    });
    each.collect()
}

/// A12, A13, A10: while a run lasts lookups are read, then they are asked; the k-th busy
/// heartbeat in a row draws from [8(k-1), 8k).
#[test]
fn busy_heartbeats_send_away_for_longer_and_longer_runs() {
    by(Policy::CatfishKeep, |alone| {
        let mut session = begin(alone);
        assert_eq!(runs(alone, &mut session, 5), [0; 5], "an idle server is asked");
        alone.tell_utilisation(BUSY);
        for (k, run) in (0..).zip(runs(alone, &mut session, 12)) {
            assert!((8 * k..8 * k + 8).contains(&run), "{k}: {run}");
        }
        alone.tell_utilisation(0);
        assert_eq!(runs(alone, &mut session, 3), [0; 3]);
        alone.tell_utilisation(BUSY);
        assert!(runs(alone, &mut session, 1)[0] < 8, "it begins anew");
    });
    by(Policy::CatfishLiteral, |alone| {
        let mut session = begin(alone);
        alone.tell_utilisation(BUSY);
        let runs = runs(alone, &mut session, 40);
        assert!(runs.iter().all(|&run| run < 8), "{runs:?}");
        assert!((0..8).all(|run| runs.contains(&run)), "each of 0 to 7 is drawn: {runs:?}");
    });
}

/// A14: a server is busy above 95 %, not at it. (N is in every test here. Inv:
/// `the_papers_numbers_hold` in `crates/client-core/src/choose/catfish.rs`.)
#[test]
fn a_server_is_busy_above_95_percent() {
    by(Policy::CatfishKeep, |alone| {
        let mut session = begin(alone);
        alone.tell_utilisation(950_000);
        assert_eq!(runs(alone, &mut session, 10), [0; 10]);
        alone.tell_utilisation(950_001);
        let runs = runs(alone, &mut session, 4);
        assert!(runs[1] >= 8 && runs[3] >= 24, "{runs:?}");
    });
}

/// A6: a heartbeat counts once, however long it is the last one; and none is not taken for
/// an idle server's.
#[test]
fn a_heartbeat_counts_once() {
    by(Policy::CatfishKeep, |alone| {
        let mut session = begin(alone);
        alone.tell_utilisation(BUSY);
        let before = runs(alone, &mut session, 3);
        assert!(before[2] >= 16, "{before:?}");
        // The last heartbeat stays in the mailbox for twice Inv. (A client that asks waits until
        // the server continues.)
        alone.stall_server(60 * MS);
        alone.pause(25 * MS);
        // A lookup that is not chosen lets the session see how late it is.
        assert_eq!(read(&mut session, b"key", false, Path::Read).served_by, ServedBy::Read);
        assert_eq!(via(&mut session), ServedBy::Asked);
        // No heartbeat meanwhile: the rounds are not forgotten.
        await_heartbeat(alone, &mut session);
        assert!((24..32).contains(&run(alone, &mut session)));
    });
}

/// A8: a run is not made longer before it is nearly used up. A server that is idle in
/// between leaves a long run and no rounds: busy heartbeats then wait for its end.
#[test]
fn a_run_that_is_not_used_up_is_not_made_longer() {
    by(Policy::CatfishKeep, |alone| {
        let (mut session, mut same) = (begin(alone), alone.session());
        alone.tell_utilisation(BUSY);
        let rounds = runs(alone, &mut session, 6);
        assert!(rounds[5] >= 40, "{rounds:?}");
        // The same again, by a session that has not used up its sixth run.
        let rounds = runs(alone, &mut same, 5);
        assert!(rounds[4] >= 32, "{rounds:?}");
        await_heartbeat(alone, &mut same);
        assert_eq!(via(&mut same), ServedBy::Read);
        alone.tell_utilisation(0);
        await_heartbeat(alone, &mut same);
        assert_eq!(via(&mut same), ServedBy::Read, "what was drawn is still read");
        alone.tell_utilisation(BUSY);
        for _ in 0..3 {
            await_heartbeat(alone, &mut same);
            assert_eq!(via(&mut same), ServedBy::Read);
        }
        let reads = 5 + run(alone, &mut same);
        assert!((40..48).contains(&reads), "{reads} reads, of a run that is the sixth");
    });
}

/// A15: writes never go through the algorithm: they use up neither heartbeats nor runs.
#[test]
fn writes_use_up_neither_heartbeats_nor_runs() {
    by(Policy::CatfishKeep, |alone| {
        let mut session = begin(alone);
        alone.tell_utilisation(BUSY);
        for k in 0..8 {
            await_heartbeat(alone, &mut session);
            // Half of a run is behind them, where it is long.
            let first = if k == 0 { Vec::new() } else { vec![via(&mut session); 1] };
            for _ in 0..20 {
                session.set(b"other", b"value", SetOptions::default()).expect("room");
            }
            let reads = run(alone, &mut session) + first.len() as u64;
            assert!((8 * k..8 * k + 8).contains(&reads), "{k}: {reads}");
        }
    });
}

/// A16: each session decides by draws of its own: sessions that hear the same heartbeats do not
/// come back together.
#[test]
fn sessions_do_not_come_back_together() {
    by(Policy::CatfishKeep, |alone| {
        let _ = begin(alone);
        alone.tell_utilisation(BUSY);
        let mut all: Vec<Session> = (0..8).map(|_| alone.session()).collect();
        let mut seen: Vec<Vec<u64>> = vec![Vec::new(); all.len()];
        for _ in 0..6 {
            for (session, seen) in all.iter_mut().zip(&mut seen) {
                await_heartbeat(alone, session);
                seen.push(run(alone, session));
            }
        }
        for (at, one) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(one), "two sessions drew alike: {one:?}");
        }
        // In each round they come back at several moments.
        for round in 0..6 {
            let lengths: std::collections::BTreeSet<u64> =
                seen.iter().map(|runs| runs[round]).collect();
            assert!(lengths.len() >= 3, "round {round}: {lengths:?}");
        }
    });
}
