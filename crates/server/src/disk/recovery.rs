//! A restart: each shard carries out the entries of its keys again, all shards at once.
//!
//! Invariant: a shard takes what belongs to it in the order in which it was written, whatever the
//! number of shards was then. A restart that fails changes nothing in the directory.

use super::open::DataDirectory;
use crate::start_error::StartError;
use remora_arena::NoJournal;
use remora_engine::{Applied, ApplyError, Now, Origin, Shard};
use remora_layout::limits::MAX_SHARDS;
use remora_layout::slot::SlotTable;
use remora_protocol::message::Status;
use remora_storage::{LogNumber, StorageError, replay};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often progress is told.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Entries that a shard counts before it tells of them.
const COUNTED_TOGETHER: u64 = 1024;

/// Why a shard did not get to the end.
#[derive(Debug)]
enum Stopped {
    Storage(StorageError),
    Refused {
        number: LogNumber,
        sequence: u64,
        error: ApplyError,
    },
    /// Another shard did not.
    Other,
}

impl From<StorageError> for Stopped {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// Brings fresh shards to the state that the directory holds. Returns the number of entries.
///
/// # Errors
/// Something is damaged, or does not fit into memory.
pub fn recover(
    data: &DataDirectory,
    shards: &mut [&mut Shard<NoJournal>],
    slots: &SlotTable,
) -> Result<u64, StartError> {
    let (done, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let stopped: Vec<Stopped> = std::thread::scope(|scope| {
        let threads: Vec<_> = shards
            .iter_mut()
            .enumerate()
            .map(|(number, shard)| {
                let (done, failed) = (&done, &failed);
                scope.spawn(move || {
                    let result = recover_shard(data, (number, shard), slots, (done, failed));
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    result.err()
                })
            })
            .collect();
        let mut told = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                tell(done.load(Ordering::Relaxed), data.entries(), started.elapsed());
            }
        }
        threads.into_iter().filter_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let reason = stopped.into_iter().find(|reason| !matches!(reason, Stopped::Other));
    match reason {
        None => Ok(done.into_inner()),
        Some(reason) => Err(start_error(data, reason)),
    }
}

fn tell(done: u64, of: u64, taken: Duration) {
    let per_s = done as f64 / taken.as_secs_f64();
    let left_s = (of.saturating_sub(done)) as f64 / per_s.max(1.0);
    tracing::info!("recovering: {done} of {of} entries, {per_s:.0} a second, {left_s:.0} s left");
}

fn start_error(data: &DataDirectory, reason: Stopped) -> StartError {
    match reason {
        Stopped::Storage(error) => error.into(),
        Stopped::Refused { error: ApplyError::Refused(Status::OutOfMemory), .. } => {
            StartError::Config(format!(
                "max_memory is too small for the data in the directory: they took {} bytes; raise max_memory",
                data.used_bytes()
            ))
        }
        Stopped::Refused { number: (life, shard), sequence, error } => {
            let name = data.found.lives[life].segments[0].name.clone();
            let reason =
                format!("entry {sequence} of shard {shard} cannot be carried out: {error}");
            StorageError::Corrupt { name, offset: 0, reason }.into()
        }
        Stopped::Other => StartError::System(std::io::Error::other("a shard was not recovered")),
    }
}

fn recover_shard(
    data: &DataDirectory,
    (number, shard): (usize, &mut Shard<NoJournal>),
    slots: &SlotTable,
    (done, failed): (&AtomicU64, &AtomicBool),
) -> Result<(), Stopped> {
    let now = Now::default();
    shard.begin_applying();
    let lives = &data.found.lives;
    let tables: Vec<SlotTable> =
        lives.iter().map(|life| SlotTable::even(life.first.len())).collect();
    // With the same number of shards a shard's log has all of its keys, and no others.
    let is_same = |life: usize| tables[life].shards() == slots.shards();
    let wants = |(life, of): LogNumber| !is_same(life) || of == number;
    let mut counted = 0;
    replay(&data.volume, &data.identity, &data.found, wants, |log, life, entry| {
        let takes = |key: &[u8]| {
            slots.shard_of(key) == number
                && (is_same(log.0) || tables[log.0].shard_of(key) == log.1)
        };
        let origin = Origin { log: origin_number(log), takes: &takes, cut: life.last[log.1] };
        if entry.sequence == life.first[log.1] {
            shard.begin_applying_at(origin.log, (entry.sequence - 1, entry.epoch));
        }
        let applied = shard.apply(&entry, &origin, now);
        let refused = |error| Stopped::Refused { number: log, sequence: entry.sequence, error };
        counted += u64::from(applied.map_err(refused)? == Applied::Done);
        // Bounded: each turn releases something.
        while shard.wants_release() {
            shard.release_some(now);
        }
        if counted >= COUNTED_TOGETHER {
            done.fetch_add(std::mem::take(&mut counted), Ordering::Relaxed);
            if failed.load(Ordering::Relaxed) {
                return Err(Stopped::Other);
            }
        }
        Ok(())
    })?;
    done.fetch_add(counted, Ordering::Relaxed);
    shard.end_applying(data.epoch()).expect("the epoch is a new one");
    let last = shard.last_sequence();
    shard.set_durable(last);
    Ok(())
}

/// A number for the log of a shard in a life.
fn origin_number((life, shard): LogNumber) -> u32 {
    (life * MAX_SHARDS + shard) as u32
}
