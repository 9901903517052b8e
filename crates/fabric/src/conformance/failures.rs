//! Links that fail: bounds, rights, withdrawal, peers that go away.

use super::fixture::{Check, REGION, TestFixture, checks, ok, pattern, read, wait, write};
use crate::{Completion, Link, LinkError, Waited, Work};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES};

pub(super) fn checks<B: TestFixture>() -> Vec<Check> {
    checks![
        a_failure_fails_all_that_follows,
        bounds_and_rights_hold,
        too_long_is_refused,
        withdrawn_is_withdrawn,
        nothing_is_executed_after_a_withdrawal,
        a_lost_peer_fails_what_is_under_way,
    ]
}

fn a_failure_fails_all_that_follows<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let region = fixture.readable();
    let beyond = REGION as u64;
    fixture.link().post(&[
        read(1, region, 0, 0, 8),
        read(2, region, beyond, 0, 8),
        read(3, region, 0, 0, 8),
    ]);
    fixture.link().post(&[read(4, region, 0, 0, 8)]);
    assert_eq!(wait(fixture.link()), ok(1));
    let reason = LinkError::OutOfBounds { region, offset: beyond, bytes: 8 };
    for id in 2..=4 {
        assert_eq!(wait(fixture.link()), Completion { id, result: Err(reason) });
    }
    assert_eq!(fixture.link().failure(), Some(reason));
}

fn bounds_and_rights_hold<B: TestFixture>() {
    let end = REGION as u64;
    for (offset, bytes) in [(end - 8, 16), (end + 8, 0), (4, 8), (u64::MAX - 7, 16), (!7, 8)] {
        let mut fixture = B::new(REGION);
        let region = fixture.readable();
        fixture.link().post(&[read(1, region, offset, 0, bytes)]);
        let reason = LinkError::OutOfBounds { region, offset, bytes };
        assert_eq!(wait(fixture.link()).result, Err(reason));

        let mut fixture = B::new(REGION);
        let region = fixture.mailbox();
        let content = pattern(5, bytes);
        fixture.link().post(&[write(1, region, offset, &content)]);
        let reason = LinkError::OutOfBounds { region, offset, bytes };
        assert_eq!(wait(fixture.link()).result, Err(reason));
    }
    let mut fixture = B::new(REGION);
    fixture.link().post(&[read(1, 4_000_000_000, 0, 0, 8)]);
    assert_eq!(wait(fixture.link()).result, Err(LinkError::NoSuchRegion(4_000_000_000)));

    let mut fixture = B::new(REGION);
    let region = fixture.readable();
    fixture.link().post(&[write(1, region, 0, &[1; 8])]);
    assert_eq!(wait(fixture.link()).result, Err(LinkError::NotWritable(region)));

    let mut fixture = B::new(REGION);
    let region = fixture.mailbox();
    fixture.link().post(&[read(1, region, 0, 0, 8)]);
    assert_eq!(wait(fixture.link()).result, Err(LinkError::NotReadable(region)));

    let mut fixture = B::new(REGION);
    let region = fixture.readable();
    fixture.link().post(&[read(1, region, 0, REGION, 8)]);
    assert_eq!(wait(fixture.link()).result, Err(LinkError::NoLanding));
}

fn withdrawn_is_withdrawn<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let (readable, mailbox) = (fixture.readable(), fixture.mailbox());
    fixture.link().post(&[read(1, readable, 0, 0, 8)]);
    assert_eq!(wait(fixture.link()), ok(1));
    fixture.withdraw();
    fixture.link().post(&[read(2, readable, 0, 0, 8), write(3, mailbox, 0, &[1; 8])]);
    for id in 2..=3 {
        assert_eq!(wait(fixture.link()), Completion { id, result: Err(LinkError::Withdrawn) });
    }
}

fn too_long_is_refused<B: TestFixture>() {
    let mut fixture = B::new(MAX_READ_BYTES + 8);
    let (readable, mailbox) = (fixture.readable(), fixture.mailbox());
    let long = vec![7; MAX_WRITE_BYTES + 1];
    fixture.link().post(&[write(1, mailbox, 0, &long)]);
    assert_eq!(wait(fixture.link()).result, Err(LinkError::TooLong(long.len())));
    let mut fixture = B::new(MAX_READ_BYTES + 8);
    fixture.link().post(&[read(1, readable, 0, 0, MAX_READ_BYTES + 1)]);
    assert_eq!(wait(fixture.link()).result, Err(LinkError::TooLong(MAX_READ_BYTES + 1)));
}

/// Bytes of each READ of a flood; each has a place of its own.
const FLOOD_READ: usize = REGION / 4;

/// READs and WRITEs, far more than fit any buffer of a transport.
fn flood(readable: u32, mailbox: u32, content: &[u8]) -> Vec<Work<'_>> {
    (0..400u64)
        .map(|at| match at % 4 {
            0 => write(at, mailbox, at % 64 * 4096, &content[..4096]),
            _ => read(at, readable, 0, at as usize * FLOOD_READ, FLOOD_READ),
        })
        .collect()
}

/// Takes all completions of a flood after the first `from`: some successes,
/// each looked at, then this failure to the end. Gives the successes.
fn drain<L: Link>(
    link: &mut L,
    from: u64,
    reason: LinkError,
    mut look: impl FnMut(&L, u64),
) -> u64 {
    let mut executed = 0;
    for id in from..400 {
        let completion = wait(link);
        assert_eq!(completion.id, id);
        match completion.result {
            Ok(()) => {
                assert_eq!(executed, id - from, "a success behind a failure");
                executed += 1;
                look(link, id);
            }
            Err(error) => assert_eq!(error, reason),
        }
    }
    assert_eq!(link.poll(), None);
    assert_eq!(link.failure(), Some(reason));
    assert_eq!(link.wait(None), Waited::Failed(reason));
    executed
}

/// With operations in flight: the peer never reads a store after the withdrawal, and the mailbox no
/// longer changes.
fn nothing_is_executed_after_a_withdrawal<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let (readable, mailbox) = (fixture.readable(), fixture.mailbox());
    let (before, after) = (pattern(6, REGION), pattern(7, REGION));
    fixture.target_store(0, &before);
    fixture.link().reserve_landing(400 * FLOOD_READ);
    fixture.link().post(&flood(readable, mailbox, &before));
    for id in 0..5 {
        assert_eq!(wait(fixture.link()), ok(id));
    }
    fixture.withdraw();
    fixture.target_store(0, &after);
    let stored = fixture.target_load(0, REGION);
    // Over shared memory all was executed before; that is no later success.
    let seen = |link: &B::Link, id: u64| {
        let seen = link.landed(id as usize * FLOOD_READ, FLOOD_READ);
        assert!(id.is_multiple_of(4) || seen == &before[..FLOOD_READ], "it READ what came later");
    };
    if fixture.link().transport() == crate::Transport::Shm {
        (5..400).for_each(|id| assert_eq!(wait(fixture.link()), ok(id)));
    } else {
        let executed = drain(fixture.link(), 5, LinkError::Withdrawn, seen);
        assert!(executed < 395, "the flood was too small: nothing was under way");
    }
    assert!(fixture.target_load(0, REGION) == stored, "a WRITE was executed after the withdrawal");
}

fn a_lost_peer_fails_what_is_under_way<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let (readable, mailbox) = (fixture.readable(), fixture.mailbox());
    let content = pattern(8, REGION);
    fixture.target_store(0, &content);
    fixture.link().reserve_landing(400 * FLOOD_READ);
    if fixture.link().transport() == crate::Transport::Shm {
        // No operation is ever in flight: only later posts can fail.
        let reason = fixture.lose();
        fixture.link().post(&flood(readable, mailbox, &content));
        assert_eq!(drain(fixture.link(), 0, reason, |_, _| {}), 0);
        return;
    }
    fixture.link().post(&flood(readable, mailbox, &content));
    for id in 0..5 {
        assert_eq!(wait(fixture.link()), ok(id));
    }
    let reason = fixture.lose();
    let executed = drain(fixture.link(), 5, reason, |_, _| {});
    assert!(executed < 395, "the flood was too small: nothing was under way");
    fixture.link().post(&[read(1, readable, 0, 0, 8)]);
    assert_eq!(wait(fixture.link()), Completion { id: 1, result: Err(reason) });
}
