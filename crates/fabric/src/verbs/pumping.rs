//! Takes completions of a device that the links of a process share.
//!
//! A thread that has armed the completion queue must check it after that, and so waits for the
//! device: an earlier completion raises no event, and the thread that has the device may only post.
//! A thread that polls arms nothing. If it finds the device taken it leaves:
//!
//! * nothing is lost: completions stay in the queue until some thread takes them, and that thread
//!   delivers each to its link;
//! * no wake-up is lost: no sleeper relies on the poller's check. Before a link sleeps, it or the
//!   thread that sleeps for all has armed the queue and checked. A later completion signals the
//!   channel;
//! * a thread that keeps polling finds the device free at some time: threads that take completions
//!   or post hold it for bounded steps, and the posts are bounded.

use super::posting::Intake;
use crate::LinkError;
use crate::locks::{lock, try_lock};
use crate::sync::Mutex;

/// The action of a thread that finds the device taken when it first checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IfTaken {
    /// Waits for it: the thread has armed the queue.
    Wait,
    /// Leaves: the thread polls.
    Leave,
}

/// The result of a batch of completions.
pub(super) struct Taken {
    /// There may be more.
    pub is_full: bool,
    /// Something waits for the device to have room.
    pub waits: bool,
    /// Why the connection fails, if it does.
    pub failed: Option<LinkError>,
}

/// The result of a check.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Pumped {
    /// All there was is taken, or the connection has ended.
    Done,
    /// Some operations were posted during the turn and are left.
    Left,
    /// The connection fails.
    Failed(LinkError),
}

/// Takes completions in at most so many batches, by `take`, which also passes on pieces that wait
/// for room and new posts. If a piece still waits and `take` may arm the queue, the next completion
/// of any kind raises an event.
pub(super) fn pump<D>(
    device: &Mutex<Option<D>>,
    intake: &Intake,
    if_taken: IfTaken,
    rounds: usize,
    mut take: impl FnMut(&mut D, bool) -> Taken,
) -> Pumped {
    let mut may_arm = true;
    for round in 0..rounds {
        let held = match if_taken {
            IfTaken::Leave if round == 0 => try_lock(device),
            _ => Some(lock(device)),
        };
        let Some(mut held) = held else { return Pumped::Done };
        let Some(device) = held.as_mut() else { return Pumped::Done };
        let Taken { is_full, waits, failed } = take(device, may_arm);
        drop(held);
        if let Some(reason) = failed {
            return Pumped::Failed(reason);
        }
        // Operations that completed before the queue was armed raise no event: so it looks once
        // more. Posts that other threads made while this thread had the device are visible from
        // here on.
        let goes_on = is_full || intake.has_some() || (waits && may_arm);
        if !goes_on {
            return Pumped::Done;
        }
        may_arm &= !waits;
    }
    // Completions that arrived during the turn have signalled the channel; posted operations have
    // not.
    if intake.has_some() { Pumped::Left } else { Pumped::Done }
}

#[cfg(test)]
mod tests;
