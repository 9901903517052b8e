//! Waiting until changes are on the server's disk, whatever its durability is.
//!
//! The server holds nothing back for it: a shard says at once whether a sequence is on the disk, and
//! the session asks again, with backoff. So only the thread that waits is delayed; replies of a
//! session come in order, and one that was held back would delay those behind it.

use crate::core::Core;
use crate::error::Error;
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::time::Duration;

/// The pause after the first question: a fast disk syncs in less.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause between two questions.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// After this long the session asks for the sync again: the log may have been too full for the last
/// changes.
const BEGIN_AGAIN: Duration = Duration::from_millis(100);
/// A request has this much time, even if less is left for the disk.
const REQUEST_TIME: Duration = Duration::from_millis(20);

/// The changes that a session had made when it called [`crate::Session::begin_sync`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncPoint {
    /// The server's incarnation: another one counts from elsewhere.
    incarnation: u64,
    /// The shards that were changed, and the last sequence of each.
    until: Vec<(usize, u64)>,
}

/// What a shard says of its disk.
struct Told {
    /// The sequence that was asked for.
    until: u64,
    /// Changes up to it that are not on the disk.
    missing: u64,
}

pub(crate) fn begin(core: &mut Core) -> Result<SyncPoint, Error> {
    core.asker.ready()?;
    let incarnation = core.asker.endpoint.connection.incarnation;
    let mut until = Vec::new();
    for shard in 0..core.asker.queues.len() {
        if core.asker.queues[shard].has_unsynced {
            until.push((shard, ask(core, shard, 0, true)?.until));
        }
    }
    Ok(SyncPoint { incarnation, until })
}

pub(crate) fn is_synced(core: &mut Core, point: &SyncPoint) -> Result<bool, Error> {
    if core.asker.endpoint.connection.incarnation != point.incarnation {
        return Err(Error::SessionEnded);
    }
    for &(shard, until) in &point.until {
        if ask(core, shard, until, false)?.missing > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn wait(core: &mut Core, timeout: Duration) -> Result<(), Error> {
    let own_timeout = core.asker.endpoint.timeout;
    let began_ns = core.asker.endpoint.connection.time.now_ns();
    let mut missing = 0;
    let waited = wait_since(core, (began_ns, timeout), &mut missing);
    core.asker.endpoint.timeout = own_timeout;
    let is_over = core.asker.endpoint.connection.time.since(began_ns) >= timeout;
    match waited {
        // A reply that waits behind others, for the same disk.
        Err(Error::TimedOut) if is_over => Err(Error::NotSynced { changes: missing.max(1) }),
        other => other,
    }
}

fn wait_since(
    core: &mut Core,
    (began_ns, timeout): (u64, Duration),
    missing: &mut u64,
) -> Result<(), Error> {
    let own_timeout = core.asker.endpoint.timeout;
    let left =
        |core: &Core| timeout.saturating_sub(core.asker.endpoint.connection.time.since(began_ns));
    core.asker.endpoint.timeout = own_timeout.min(timeout.max(REQUEST_TIME));
    let mut pending: Vec<(usize, u64)> = begin(core)?.until;
    let (mut pause, mut since_begun) = (FIRST_PAUSE, Duration::ZERO);
    // Bounded by the timeout.
    loop {
        core.asker.endpoint.timeout = own_timeout.min(left(core).max(REQUEST_TIME));
        let begins = since_begun >= BEGIN_AGAIN;
        let (asked, mut still) = (std::mem::take(&mut pending), 0);
        for (shard, until) in asked {
            let told = ask(core, shard, until, begins)?;
            if told.missing > 0 {
                still = told.missing.saturating_add(still);
                pending.push((shard, until));
            } else {
                core.asker.queues[shard].has_unsynced = false;
            }
        }
        *missing = still;
        if pending.is_empty() {
            return Ok(());
        }
        let left = left(core);
        if left.is_zero() {
            return Err(Error::NotSynced { changes: still });
        }
        let pauses = pause.min(left);
        core.asker.endpoint.rest(pauses)?;
        since_begun = if begins { Duration::ZERO } else { since_begun + pauses };
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Asks a shard for changes up to a sequence, or for all that it has.
fn ask(core: &mut Core, shard: usize, until: u64, begins: bool) -> Result<Told, Error> {
    let ticket = core.send_to(shard, &Command::Synced { until, begins })?;
    let answer = core.collect(shard, ticket)?;
    let answer = core.accepted(answer)?;
    let value = answer.value.map(|range| core.in_reply(range));
    let synced = value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
    match (answer.status, synced) {
        (Status::Ok | Status::NotDone, Some(synced)) => {
            let until = answer.number as u64;
            Ok(Told { until, missing: until.saturating_sub(synced) })
        }
        _ => Err(core.asker.endpoint.end(Error::DOES_NOT_FIT)),
    }
}
