//! Waiting until replicas have stored changes, whatever the server waits for by itself.
//!
//! As for the disk ([`crate::synced`]), the server holds nothing back: a shard says at once how many
//! replicas have stored a sequence, and the session asks again, with backoff.

use crate::core::Core;
use crate::error::Error;
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::time::Duration;

/// The pause after the first question: a replica that keeps up stores a change in less.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
/// The longest pause between two questions.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// A request has this much time, even if less is left for the replicas.
const REQUEST_TIME: Duration = Duration::from_millis(20);

/// A shard that has changes to wait for.
struct Pending {
    shard: usize,
    /// 0 at first: the shard says what its last change is.
    until: u64,
}

pub(crate) fn wait(core: &mut Core, replicas: u8, timeout: Duration) -> Result<(), Error> {
    let own_timeout = core.asker.endpoint.timeout;
    let began_ns = core.asker.endpoint.connection.time.now_ns();
    let mut fewest = 0;
    let waited = wait_since(core, replicas, (began_ns, timeout), &mut fewest);
    core.asker.endpoint.timeout = own_timeout;
    let is_over = core.asker.endpoint.connection.time.since(began_ns) >= timeout;
    match waited {
        // A reply that waits behind others, for the same replicas.
        Err(Error::TimedOut) if is_over => Err(Error::NotReplicated { replicas: fewest }),
        other => other,
    }
}

fn wait_since(
    core: &mut Core,
    replicas: u8,
    (began_ns, timeout): (u64, Duration),
    fewest: &mut u64,
) -> Result<(), Error> {
    core.asker.ready()?;
    let own_timeout = core.asker.endpoint.timeout;
    let left =
        |core: &Core| timeout.saturating_sub(core.asker.endpoint.connection.time.since(began_ns));
    let lacks = |of: &usize| core.asker.queues[*of].replicas.is_some_and(|have| have < replicas);
    let shards = (0..core.asker.queues.len()).filter(lacks);
    let mut pending: Vec<Pending> = shards.map(|shard| Pending { shard, until: 0 }).collect();
    let mut pause = FIRST_PAUSE;
    // Bounded by the timeout.
    loop {
        core.asker.endpoint.timeout = own_timeout.min(left(core).max(REQUEST_TIME));
        let asked = std::mem::take(&mut pending);
        let mut still = u64::MAX;
        for Pending { shard, until } in asked {
            let (is_done, until, have) = ask(core, shard, until, replicas)?;
            if is_done {
                core.asker.queues[shard].replicas = Some(replicas);
            } else {
                still = still.min(have);
                pending.push(Pending { shard, until });
            }
        }
        if pending.is_empty() {
            return Ok(());
        }
        *fewest = still;
        let left = left(core);
        if left.is_zero() {
            return Err(Error::NotReplicated { replicas: still });
        }
        core.asker.endpoint.rest(pause.min(left))?;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Asks a shard whether so many replicas have its changes up to a sequence; also which that is, and
/// how many have.
fn ask(core: &mut Core, shard: usize, until: u64, replicas: u8) -> Result<(bool, u64, u64), Error> {
    let ticket = core.send_to(shard, &Command::Replicated { until, replicas })?;
    let answer = core.collect(shard, ticket)?;
    let answer = core.accepted(answer)?;
    let value = answer.value.map(|range| core.in_reply(range));
    let have = value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
    match (answer.status, have) {
        (Status::Ok, Some(have)) => Ok((true, answer.number as u64, have)),
        (Status::NotDone, Some(have)) => Ok((false, answer.number as u64, have)),
        _ => Err(core.asker.endpoint.end(Error::DOES_NOT_FIT)),
    }
}
