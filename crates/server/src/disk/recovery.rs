//! A restart: each shard carries out the entries of its keys again, all shards at once.

use super::content::Content;
use super::progress::Progress;
use super::recover_shard::{Stopped, recover_following, recover_shard};
use crate::start_error::StartError;
use remora_arena::NoJournal;
use remora_engine::{ApplyError, Shard};
use remora_layout::slot::SlotTable;
use remora_protocol::message::Status;
use remora_storage::{Directory, StorageError, snapshot_name};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often `watch` gets the progress.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Entries that a shard counts before it tells of them.
const COUNTED_TOGETHER: u64 = 1024;

/// What the shards are for after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoverAs {
    /// Changes of their own.
    Primary,
    /// The logs of a primary.
    Replica,
}

/// Brings fresh shards to the state that the directory holds. Returns how many entries and
/// operations were carried out, and the sequence with which each shard goes on. `watch` gets
/// the progress, several times a second and at the end.
///
/// # Errors
/// Something is damaged, or does not fit into memory.
pub fn recover(
    content: &Content<Directory>,
    (shards, role): (&mut [&mut Shard<NoJournal>], RecoverAs),
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
                    let of = (number, &mut **shard, role);
                    let result = recover_counted(content, of, slots, (done, failed));
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
                watch(Progress { done, of: content.entries(), taken, is_over: false });
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
    watch(Progress { done, of: content.entries(), taken, is_over: true });
    match stopped {
        None => Ok((done, first)),
        Some(reason) => Err(start_error(content, reason)),
    }
}

fn start_error(content: &Content<Directory>, reason: Stopped) -> StartError {
    match reason {
        Stopped::Storage(error) => error.into(),
        Stopped::Refused { error: ApplyError::Refused(Status::OutOfMemory), .. }
        | Stopped::Loaded { error: ApplyError::Refused(Status::OutOfMemory), .. } => {
            StartError::Config(format!(
                "max_memory is too small for the data in the directory: they took up to {} bytes; raise max_memory to more than that",
                content.used_bytes()
            ))
        }
        Stopped::Refused { number: (incarnation, shard), sequence, error } => {
            let name = content.found.incarnations[incarnation].segments[0].name.clone();
            let reason =
                format!("entry {sequence} of shard {shard} cannot be carried out: {error}");
            StorageError::Corrupt { name, offset: 0, reason }.into()
        }
        Stopped::Loaded { shard, error } => {
            let name = snapshot_of(content);
            let reason = format!("an operation of shard {shard} cannot be carried out: {error}");
            StorageError::Corrupt { name, offset: 0, reason }.into()
        }
        Stopped::Stream(error) => StorageError::corrupt(&snapshot_of(content), 0, error).into(),
        Stopped::Other => StartError::System(std::io::Error::other("a shard was not recovered")),
    }
}

fn snapshot_of(content: &Content<Directory>) -> String {
    snapshot_name(content.snapshot.as_ref().map_or(0, |at| at.number))
}

fn recover_counted(
    content: &Content<Directory>,
    (number, shard, role): (usize, &mut Shard<NoJournal>, RecoverAs),
    slots: &SlotTable,
    (done, failed): (&AtomicU64, &AtomicBool),
) -> Result<u64, Stopped> {
    let mut counted = 0;
    let mut count = |by| {
        counted += by;
        if counted >= COUNTED_TOGETHER {
            done.fetch_add(std::mem::take(&mut counted), Ordering::Relaxed);
            if failed.load(Ordering::Relaxed) {
                return Err(Stopped::Other);
            }
        }
        Ok(())
    };
    let recovered = match role {
        RecoverAs::Primary => recover_shard(content, (number, shard), slots, &mut count),
        RecoverAs::Replica => recover_following(content, (number, shard), slots, &mut count),
    };
    done.fetch_add(counted, Ordering::Relaxed);
    recovered
}
