//! A restart: each shard carries out the entries of its keys again, all shards at once.
//!
//! Invariant: a shard takes what belongs to it in the order in which it was written, whatever the
//! number of shards was then. A restart that fails changes nothing in the directory.

use super::open::DataDirectory;
use super::progress::Progress;
use crate::start_error::StartError;
use remora_arena::NoJournal;
use remora_engine::{Applied, ApplyError, BadOperation, Now, Origin, Shard, split_operation};
use remora_layout::limits::MAX_SHARDS;
use remora_layout::slot::SlotTable;
use remora_protocol::message::Status;
use remora_storage::{LogNumber, SnapshotAt, StorageError, read_snapshot, replay, snapshot_name};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the caller is told of the progress.
const TOLD_EVERY: Duration = Duration::from_millis(100);

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
    /// An operation of the snapshot of this shard was refused.
    Loaded {
        shard: usize,
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

/// Brings fresh shards to the state that the directory holds. Returns how many entries and
/// operations were carried out, and the sequence with which each shard goes on. `watch` is told of
/// the progress, several times a second and at the end.
///
/// # Errors
/// Something is damaged, or does not fit into memory.
pub fn recover(
    data: &DataDirectory,
    shards: &mut [&mut Shard<NoJournal>],
    slots: &SlotTable,
    watch: &dyn Fn(Progress),
) -> Result<(u64, Vec<u64>), StartError> {
    let (done, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let results: Vec<Result<u64, Stopped>> = std::thread::scope(|scope| {
        let threads: Vec<_> = shards
            .iter_mut()
            .enumerate()
            .map(|(number, shard)| {
                let (done, failed) = (&done, &failed);
                scope.spawn(move || {
                    let result = recover_shard(data, (number, shard), slots, (done, failed));
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let mut told = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                let (done, taken) = (done.load(Ordering::Relaxed), started.elapsed());
                watch(Progress { done, of: data.entries(), taken, is_over: false });
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let (mut first, mut stopped) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(of_shard) => first.push(of_shard),
            Err(Stopped::Other) => {}
            Err(reason) => stopped = Some(reason),
        }
    }
    let (done, taken) = (done.into_inner(), started.elapsed());
    watch(Progress { done, of: data.entries(), taken, is_over: true });
    match stopped {
        None => Ok((done, first)),
        Some(reason) => Err(start_error(data, reason)),
    }
}

fn start_error(data: &DataDirectory, reason: Stopped) -> StartError {
    match reason {
        Stopped::Storage(error) => error.into(),
        Stopped::Refused { error: ApplyError::Refused(Status::OutOfMemory), .. }
        | Stopped::Loaded { error: ApplyError::Refused(Status::OutOfMemory), .. } => {
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
        Stopped::Loaded { shard, error } => {
            let name = snapshot_of(data);
            let reason = format!("an operation of shard {shard} cannot be carried out: {error}");
            StorageError::Corrupt { name, offset: 0, reason }.into()
        }
        Stopped::Stream(error) => StorageError::corrupt(&snapshot_of(data), 0, error).into(),
        Stopped::Other => StartError::System(std::io::Error::other("a shard was not recovered")),
    }
}

fn snapshot_of(data: &DataDirectory) -> String {
    snapshot_name(data.snapshot.as_ref().map_or(0, |at| at.number))
}

fn recover_shard(
    data: &DataDirectory,
    (number, shard): (usize, &mut Shard<NoJournal>),
    slots: &SlotTable,
    (done, failed): (&AtomicU64, &AtomicBool),
) -> Result<u64, Stopped> {
    let now = Now::default();
    shard.begin_applying();
    let lives = &data.found.lives;
    let tables: Vec<SlotTable> =
        lives.iter().map(|life| SlotTable::even(life.first.len())).collect();
    // With the same number of shards a shard's log has all of its keys, and no others.
    let is_same = |life: usize| tables[life].shards() == slots.shards();
    let wants = |(life, of): LogNumber| !is_same(life) || of == number;
    let mut counted = 0;
    let mut count = |by: u64| {
        counted += by;
        if counted >= COUNTED_TOGETHER {
            done.fetch_add(std::mem::take(&mut counted), Ordering::Relaxed);
            if failed.load(Ordering::Relaxed) {
                return Err(Stopped::Other);
            }
        }
        Ok(())
    };
    let covered = match &data.snapshot {
        Some(at) => {
            load_snapshot(data, at, (number, shard), slots, &mut count)?;
            (at.epoch, at.covered())
        }
        None => (0, Vec::new()),
    };
    replay(&data.volume, &data.identity, &data.found, wants, |log, life, entry| {
        let takes = |key: &[u8]| {
            slots.shard_of(key) == number
                && (is_same(log.0) || tables[log.0].shard_of(key) == log.1)
        };
        let origin = Origin { log: origin_number(log), takes: &takes, cut: life.last[log.1] };
        if entry.sequence == life.first[log.1] {
            let covered = if life.epoch == covered.0 { covered.1[log.1] } else { 0 };
            let before = covered.max(entry.sequence - 1);
            shard.begin_applying_at(origin.log, (before, entry.epoch));
        }
        let applied = shard.apply(&entry, &origin, now);
        let refused = |error| Stopped::Refused { number: log, sequence: entry.sequence, error };
        count(u64::from(applied.map_err(refused)? == Applied::Done))?;
        // Bounded: each turn releases something.
        while shard.wants_release() {
            shard.release_some(now);
        }
        Ok::<(), Stopped>(())
    })?;
    done.fetch_add(counted, Ordering::Relaxed);
    let last = shard.last_sequence();
    shard.end_applying(data.epoch()).expect("the epoch is a new one");
    shard.set_durable(last);
    Ok(last + 1)
}

/// Carries out the operations of a snapshot that are about this shard's keys.
fn load_snapshot(
    data: &DataDirectory,
    at: &SnapshotAt,
    (number, shard): (usize, &mut Shard<NoJournal>),
    slots: &SlotTable,
    count: &mut dyn FnMut(u64) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let old = SlotTable::even(at.shards.len());
    let is_same = old.shards() == slots.shards();
    for of in (0..at.shards.len()).filter(|&of| !is_same || of == number) {
        let takes =
            |key: &[u8]| is_same || (slots.shard_of(key) == number && old.shard_of(key) == of);
        // No operation of a snapshot is of several shards.
        let origin = Origin { log: 0, takes: &takes, cut: 0 };
        let mut rest: Vec<u8> = Vec::new();
        read_snapshot(&data.volume, &data.identity, (at.number, of), |piece| {
            rest.extend_from_slice(piece);
            let all = std::mem::take(&mut rest);
            let mut left = &all[..];
            while let Some((operation, behind)) = split_operation(left).map_err(Stopped::Stream)? {
                let loaded = shard.load(operation, &origin, Now::default());
                let loaded = loaded.map_err(|error| Stopped::Loaded { shard: of, error })?;
                count(u64::from(loaded == Applied::Done))?;
                // Bounded: each turn releases something.
                while shard.wants_release() {
                    shard.release_some(Now::default());
                }
                left = behind;
            }
            rest = left.to_vec();
            Ok::<(), Stopped>(())
        })?;
    }
    Ok(())
}

/// A number for the log of a shard in a life.
fn origin_number((life, shard): LogNumber) -> u32 {
    (life * MAX_SHARDS + shard) as u32
}
