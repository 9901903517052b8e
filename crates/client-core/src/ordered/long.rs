//! Values that are too long for a leaf: a reader fetches them from their records, behind the leaves
//! that named them.
//!
//! Invariants:
//! * a leaf that counts came before the record: it was durable, and its tree was there. So is the
//!   value that it names;
//! * a record counts if it is live and whole, of the generation and the tree that the leaf named, and
//!   if the read lease still held when the last one had landed;
//! * the owner makes a record dead before a reader can see its key's next value. So a value that was
//!   read is none older than one that was shown before; a reader that finds a dead record reads
//!   the leaf again.

use super::value::OrderedValue;
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_layout::btree::{LongValue, Value};
use remora_layout::limits::{CACHE_LINE_BYTES, LONG_READ_BYTES, MAX_RECORD_READS, READ_RETRIES};
use remora_layout::node::NodeRef;
use remora_layout::record::Reject;
use remora_walk::remote::{Reads, Tally};

/// What became of the values that leaves had.
pub(super) enum Resolved {
    /// All of them, in their order.
    Values(Vec<OrderedValue>),
    /// A record has gone: its key has another value by now.
    Changed,
    /// Only the owner knows.
    Ask,
}

/// A value that is still to be read, and its number.
type Waiting = (usize, LongValue);

/// What became of some records.
#[derive(Default)]
struct Fetched {
    torn: Vec<Waiting>,
    has_gone: bool,
    is_withheld: bool,
}

/// How many of the values are read at a time.
fn batch_of(waiting: &[Waiting]) -> usize {
    let mut bytes = 0;
    let fits = waiting.iter().take(MAX_RECORD_READS).take_while(|(_, long)| {
        bytes += long.at.length as usize;
        bytes <= LONG_READ_BYTES
    });
    fits.count().max(1)
}

/// Reads those of the values that lie in records.
pub(super) fn resolve<'v>(
    core: &mut Core,
    (shard, tree): (usize, NodeRef),
    in_leaves: impl Iterator<Item = Value<'v>>,
    cost: &mut Counts,
) -> Result<Resolved, Error> {
    let table = &core.directory.shards[shard].table;
    let (region, region_bytes) = (table.region, table.region_bytes);
    let (mut values, mut waiting) = (Vec::new(), Vec::new());
    for value in in_leaves {
        if let Some(long) = LongValue::of(value) {
            if !long.is_within(region, region_bytes) {
                return Ok(Resolved::Ask);
            }
            waiting.push((values.len(), long));
            values.push(OrderedValue { value: Vec::new(), is_link: long.is_link });
        } else {
            values.push(OrderedValue::of(value));
        }
    }
    if waiting.is_empty() {
        return Ok(Resolved::Values(values));
    }
    for _ in 0..=READ_RETRIES {
        let fetched = fetch_long(core, (shard, tree), &waiting, &mut values, cost)?;
        if fetched.is_withheld {
            return Ok(Resolved::Ask);
        }
        if fetched.has_gone {
            return Ok(Resolved::Changed);
        }
        waiting = fetched.torn;
        if waiting.is_empty() {
            break;
        }
    }
    if !waiting.is_empty() {
        return Ok(Resolved::Ask);
    }
    if !core.asker.endpoint.holds_lease()? {
        cost.read_lease_lapsed = 1;
        return Ok(Resolved::Ask);
    }
    Ok(Resolved::Values(values))
}

/// Reads records, some at a time, up to the first batch with one that does not count.
fn fetch_long(
    core: &mut Core,
    (shard, tree): (usize, NodeRef),
    mut waiting: &[Waiting],
    values: &mut [OrderedValue],
    cost: &mut Counts,
) -> Result<Fetched, Error> {
    let mut fetched = Fetched::default();
    let secret = core.directory.shards[shard].table.secret;
    while !waiting.is_empty() && !fetched.has_gone && !fetched.is_withheld {
        let (part, rest) = waiting.split_at(batch_of(waiting));
        waiting = rest;
        post_long(core, shard, part, cost)?;
        let mut from = 0;
        for &(number, long) in part {
            let bytes = core.asker.endpoint.link.landed(from, long.at.length as usize);
            from += bytes.len().next_multiple_of(CACHE_LINE_BYTES);
            match long.verify(bytes, secret, tree) {
                Ok(value) => values[number].value = value.to_vec(),
                Err(Reject::Torn) => {
                    cost.retries += 1;
                    fetched.torn.push((number, long));
                }
                Err(Reject::Pending | Reject::AskOnly) => fetched.is_withheld = true,
                Err(Reject::Dead | Reject::OtherKey | Reject::OtherKind) => {
                    cost.stale += 1;
                    fetched.has_gone = true;
                }
            }
        }
    }
    Ok(fetched)
}

/// Fetches records; each lands at the next cache line behind the one before.
fn post_long(
    core: &mut Core,
    shard: usize,
    part: &[Waiting],
    cost: &mut Counts,
) -> Result<(), Error> {
    let endpoint = &mut core.asker.endpoint;
    let mut works = std::mem::take(endpoint.works());
    works.clear();
    let (mut landing, mut all) = (0, 0);
    for (id, (_, long)) in part.iter().enumerate() {
        let bytes = long.at.length as usize;
        let from = RemoteAddress { region: shard as u32, offset: long.at.offset() };
        works.push(Work::Read { id: id as u64, from, into: landing, bytes });
        landing += bytes.next_multiple_of(CACHE_LINE_BYTES);
        all += bytes as u64;
    }
    endpoint.link.reserve_landing(landing);
    endpoint.link.post(&works);
    for _ in 0..part.len() {
        endpoint.next()?;
    }
    *endpoint.works() = works;
    cost.fetched(1, part.len() as u64, all);
    Ok(())
}
