//! Lookups of many keys in step: one batch of READs for the next want of each, until all have ended.

use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::read::refresh_table;
use remora_index::hash::{Found, Lookup};
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_SHARDS;
use remora_walk::remote::{InStep, fetch_wanted};
use remora_walk::{End, Walk};

/// One lookup in progress.
pub(crate) struct Walking<'k> {
    /// The caller's number of its key.
    pub key: usize,
    /// Hash and shard of the key.
    pub at: (KeyHash, usize),
    /// READs without a result before the walk.
    pub tries: u32,
    pub step: InStep<Lookup<'k>>,
    /// Its table has grown: the walk waits for the header page.
    has_moved: bool,
}

impl<'k> Walking<'k> {
    /// A lookup that has begun.
    pub fn new(key: usize, at: (KeyHash, usize), tries: u32, walk: Lookup<'k>) -> Self {
        Self { key, at, tries, step: InStep::new(walk, at.1 as u32), has_moved: false }
    }
}

/// What a caller does with each lookup that has ended: with the record that it found, whose bytes have
/// landed where the step says, or `None`: only the owner knows.
pub(crate) type Ended<'e, 'k> = dyn FnMut(&mut Core, &mut Counts, &Walking<'k>, Option<Found>) + 'e;

/// Carries the lookups out. A record counts only if the read lease held when the READs had completed,
/// and if it has not expired.
pub(crate) fn walk_in_step<'k>(
    core: &mut Core,
    mut walking: Vec<Walking<'k>>,
    cost: &mut Counts,
    ended: &mut Ended<'_, 'k>,
) -> Result<(), Error> {
    // Bounded: every walk is.
    while !walking.is_empty() {
        let steps = walking.iter_mut().map(|one| &mut one.step);
        fetch_wanted(steps, &mut core.asker.endpoint, cost)?;
        let now_ns = core.asker.endpoint.now()?;
        let holds = core.asker.endpoint.may_believe(now_ns);
        let mut any_moved = false;
        walking.retain_mut(|one| {
            let lease = |core: &Core, found: &Found| {
                core.asker.endpoint.lease.may_have_expired(found.mutable.expires_at_ms, now_ns)
            };
            match one.step.feed(&core.asker.endpoint) {
                None => return true,
                Some(End::Restart) => {
                    (one.has_moved, any_moved) = (true, true);
                    return true;
                }
                Some(End::Found(found)) if holds && !lease(core, &found) => {
                    core.asker.endpoint.staleness.conclude_reads();
                    cost.retries += u64::from(one.step.walk.retries());
                    ended(core, cost, one, Some(found));
                }
                Some(End::Found(_) | End::Ask(_) | End::Stale | End::Beyond) => {
                    cost.read_lease_lapsed += u64::from(!holds);
                    cost.undecided += u64::from(holds);
                    cost.retries += u64::from(one.step.walk.retries());
                    ended(core, cost, one, None);
                }
            }
            false
        });
        if any_moved {
            refresh_walks(core, &mut walking, cost, ended)?;
        }
    }
    Ok(())
}

/// Restarts walks whose table has grown: fetches the header page of each such shard once for all of
/// them.
fn refresh_walks<'k>(
    core: &mut Core,
    walking: &mut Vec<Walking<'k>>,
    cost: &mut Counts,
    ended: &mut Ended<'_, 'k>,
) -> Result<(), Error> {
    let mut fresh = [false; MAX_SHARDS];
    for one in walking.iter().filter(|one| one.has_moved) {
        let (_, shard) = one.at;
        if !std::mem::replace(&mut fresh[shard], true) {
            refresh_table(&mut core.asker.endpoint, &mut core.directory, shard, cost)?;
        }
    }
    walking.retain_mut(|one| {
        let (_, shard) = one.at;
        if !std::mem::take(&mut one.has_moved)
            || one.step.walk.restart(&core.directory.shards[shard].table).is_ok()
        {
            return true;
        }
        cost.retries += u64::from(one.step.walk.retries());
        cost.undecided += 1;
        ended(core, cost, one, None);
        false
    });
    Ok(())
}
