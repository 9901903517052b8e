//! Which route an operation on a B+tree takes: READs, or a message to the owner.

use crate::choose::{Class, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::path::ServedBy;
use crate::router::Timing;

/// A range of more keys is asked for, unless the caller says how: what it costs is mostly its
/// bytes.
pub(crate) const MAX_KEYS_READ: u64 = 4_096;
/// Classes of ranges: by the bits of their limits, up to those of `MAX_KEYS_READ`.
const RANGE_CLASSES: usize = MAX_KEYS_READ.ilog2() as usize + 1;

/// What ranges cost, by the bits of their limits: as many classes as were used.
#[derive(Debug, Default)]
pub(crate) struct RangeClasses(Vec<Class>);

impl RangeClasses {
    /// The class of ranges of so many keys, at most.
    pub fn of(&mut self, limit: u64) -> &mut Class {
        let bits = limit.checked_ilog2().unwrap_or(0) as usize;
        let at = bits.min(RANGE_CLASSES - 1);
        if self.0.len() <= at {
            self.0.resize(at + 1, Class::NEW);
        }
        &mut self.0[at]
    }
}

/// Reads, if this route says so. What reading has cost, if the owner has to be asked.
pub(crate) fn read_by<T>(
    (core, shard): (&mut Core, usize),
    timing: &Timing,
    mut cost: Counts,
    read: impl FnOnce(&mut Core, &mut Counts) -> Result<Option<T>, Error>,
) -> Result<Result<(T, ServedBy, Counts), Counts>, Error> {
    if timing.route == Route::Ask {
        return Ok(Err(cost));
    }
    if !core.asker.may_read(shard) {
        cost.behind_writes = 1;
        return Ok(Err(cost));
    }
    let Some(found) = read(core, &mut cost)? else {
        cost.undecided = 1;
        return Ok(Err(cost));
    };
    core.asker.endpoint.staleness.conclude_reads();
    cost.read = 1;
    core.meter.add(&cost);
    let served_by = ServedBy::read_after((cost.retries + cost.stale) as u32);
    Ok(Ok((found, served_by, cost)))
}
