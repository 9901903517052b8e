//! One shard carries out what a data directory holds of its keys: the snapshot, then the log.
//!
//! Invariant: a shard takes what belongs to it in the order in which it was written, whatever the
//! number of shards was then. A restart that fails changes nothing in the directory.

use super::content::Content;
use remora_arena::Journal;
use remora_engine::{Applied, ApplyError, BadOperation, Now, Origin, Shard, split_operation};
use remora_layout::limits::MAX_SHARDS;
use remora_layout::slot::SlotTable;
use remora_storage::{
    LogNumber, Replayed, SnapshotAt, StorageError, Volume, read_snapshot, replay, snapshot_name,
};
use smallvec::SmallVec;

/// Operations of a snapshot whose keys are fetched side by side.
const OPERATIONS_AHEAD: usize = 16;

/// Why a shard did not get to the end.
#[derive(Debug)]
pub enum Stopped {
    /// The directory is damaged, or the disk refuses.
    Storage(StorageError),
    /// An entry of the log was refused.
    Refused {
        /// Its log.
        number: LogNumber,
        /// Its sequence.
        sequence: u64,
        /// Why.
        error: ApplyError,
    },
    /// An operation of the snapshot of this shard was refused.
    Loaded {
        /// The shard that wrote it.
        shard: usize,
        /// Why.
        error: ApplyError,
    },
    /// The snapshot is no stream of operations.
    Stream(BadOperation),
    /// Another shard did not.
    Other,
}

impl From<StorageError> for Stopped {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// Brings a fresh shard with this number to the state that the directory holds. `count` takes how
/// many entries and operations were carried out, and may stop it. Returns the sequence with which
/// the shard goes on.
///
/// # Errors
/// See [`Stopped`].
pub fn recover_shard<V: Volume, J: Journal>(
    content: &Content<V>,
    (number, shard): (usize, &mut Shard<J>),
    slots: &SlotTable,
    count: &mut dyn FnMut(u64) -> Result<(), Stopped>,
) -> Result<u64, Stopped> {
    let next = recover_state(content, (number, shard), slots, count)?;
    shard.end_applying(content.epoch()).expect("the epoch is a new one");
    shard.set_durable(next - 1);
    Ok(next)
}

/// As [`recover_shard`], of a server that is a replica: the shard goes on to follow the logs of its
/// primary. What was under way without a key stays, as those logs continue it.
///
/// # Errors
/// See [`Stopped`].
pub fn recover_following<V: Volume, J: Journal>(
    content: &Content<V>,
    (number, shard): (usize, &mut Shard<J>),
    slots: &SlotTable,
    count: &mut dyn FnMut(u64) -> Result<(), Stopped>,
) -> Result<u64, Stopped> {
    let next = recover_state(content, (number, shard), slots, count)?;
    shard.begin_following((number, slots.shards()), true);
    Ok(next)
}

fn recover_state<V: Volume, J: Journal>(
    content: &Content<V>,
    (number, shard): (usize, &mut Shard<J>),
    slots: &SlotTable,
    count: &mut dyn FnMut(u64) -> Result<(), Stopped>,
) -> Result<u64, Stopped> {
    let now = Now::default();
    shard.begin_applying();
    let incarnations = &content.found.incarnations;
    let tables: Vec<SlotTable> =
        incarnations.iter().map(|incarnation| SlotTable::even(incarnation.first.len())).collect();
    // With the same number of shards a shard's log has all of its keys, and no others.
    let is_same = |incarnation: usize| tables[incarnation].shards() == slots.shards();
    let wants = |(incarnation, of): LogNumber| !is_same(incarnation) || of == number;
    let mut present_incarnation = None;
    let covered = match &content.snapshot {
        Some(at) => {
            load_snapshot(content, at, (number, shard), slots, count)?;
            (at.epoch, at.covered())
        }
        None => (0, Vec::new()),
    };
    replay(&content.volume, &content.identity, &content.found, wants, |replayed| {
        let (log, incarnation, entry) = match replayed {
            Replayed::Ahead(operation) => {
                shard.prefetch_operation(operation);
                return Ok(());
            }
            Replayed::Entry(log, incarnation, entry) => (log, incarnation, entry),
        };
        if present_incarnation.replace(log.0) != Some(log.0) {
            shard.begin_recovered_incarnation(
                tables[log.0].shards(),
                is_same(log.0).then_some(number),
            );
        }
        shard.recover_from(log.1);
        let takes = |key: &[u8]| {
            slots.shard_of(key) == number
                && (is_same(log.0) || tables[log.0].shard_of(key) == log.1)
        };
        let origin =
            Origin { log: origin_number(log), takes: &takes, cut: incarnation.last[log.1] };
        if entry.sequence == incarnation.first_entry(log.1) {
            let covered = if incarnation.epoch == covered.0 { covered.1[log.1] } else { 0 };
            let before = covered.max(entry.sequence - 1);
            shard.begin_applying_at(origin.log, (before, entry.epoch));
        }
        let applied = shard.apply(&entry, &origin, now);
        let refused = |error| Stopped::Refused { number: log, sequence: entry.sequence, error };
        count(u64::from(applied.map_err(refused)? == Applied::Done))?;
        settle(shard, now);
        Ok::<(), Stopped>(())
    })?;
    shard.end_recovery((number, slots.shards()));
    Ok(shard.last_sequence() + 1)
}

/// Carries out the operations of a snapshot that are about this shard's keys.
fn load_snapshot<V: Volume, J: Journal>(
    content: &Content<V>,
    at: &SnapshotAt,
    (number, shard): (usize, &mut Shard<J>),
    slots: &SlotTable,
    count: &mut dyn FnMut(u64) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let old = SlotTable::even(at.shards.len());
    let is_same = old.shards() == slots.shards();
    shard.begin_recovered_incarnation(old.shards(), is_same.then_some(number));
    for of in (0..at.shards.len()).filter(|&of| !is_same || of == number) {
        let takes =
            |key: &[u8]| is_same || (slots.shard_of(key) == number && old.shard_of(key) == of);
        shard.recover_from(of);
        // No operation of a snapshot is of several shards.
        let origin = Origin { log: 0, takes: &takes, cut: 0 };
        let (mut rest, mut operations): (Vec<u8>, u64) = (Vec::new(), 0);
        read_snapshot(&content.volume, &content.identity, (at.number, of), |piece| {
            rest.extend_from_slice(piece);
            let all = std::mem::take(&mut rest);
            let mut left = &all[..];
            loop {
                let (some, behind) = next_operations(left)?;
                if some.is_empty() {
                    break;
                }
                some.iter().for_each(|operation| shard.prefetch_operation(operation));
                operations += some.len() as u64;
                for operation in some {
                    let loaded = shard.load(operation, &origin, Now::default());
                    let loaded = loaded.map_err(|error| Stopped::Loaded { shard: of, error })?;
                    count(u64::from(loaded == Applied::Done))?;
                    settle(shard, Now::default());
                }
                left = behind;
            }
            rest = left.to_vec();
            Ok::<(), Stopped>(())
        })?;
        let ended = &at.shards[of];
        if !rest.is_empty() || operations != ended.operations {
            let name = format!("{}/shard-{of}", snapshot_name(at.number));
            let reason = format!(
                "the stream has {operations} operations and {} bytes behind, and its end says {}",
                rest.len(),
                ended.operations
            );
            return Err(StorageError::corrupt(&name, 0, reason).into());
        }
    }
    Ok(())
}

/// Operations whose keys are fetched side by side.
type Operations<'a> = SmallVec<[&'a [u8]; OPERATIONS_AHEAD]>;

/// The next operations, and the bytes behind them. There are none if the end of the first has not come
/// yet.
fn next_operations(mut left: &[u8]) -> Result<(Operations<'_>, &[u8]), Stopped> {
    let mut operations = SmallVec::new();
    while operations.len() < OPERATIONS_AHEAD
        && let Some((operation, behind)) = split_operation(left).map_err(Stopped::Stream)?
    {
        operations.push(operation);
        left = behind;
    }
    Ok((operations, left))
}

/// After each operation: it came from the disk, so nothing waits for it to be durable, and what it
/// leaves behind is released. Otherwise both would gather until the end.
fn settle<J: Journal>(shard: &mut Shard<J>, now: Now) {
    shard.set_durable(shard.last_sequence());
    // Bounded: each turn releases something.
    while shard.wants_release() {
        shard.release_some(now);
    }
}

/// A number for the log of a shard in an incarnation.
fn origin_number((incarnation, shard): LogNumber) -> u32 {
    (incarnation * MAX_SHARDS + shard) as u32
}
