//! The thread that writes snapshots: when somebody asks for one, and when the log has grown.
//!
//! Invariant: a snapshot counts once the log has everything up to its sequences on the disk, so that
//! of an entry of several shards it never has a part alone. One that is interrupted leaves the one
//! before; nothing of the log goes before its snapshot counts.

use super::link::Disk;
use super::open::DataDirectory;
use super::snapshot_port::{Piece, SnapshotPort};
use crate::inbox::Message;
use crate::shared::Shared;
use remora_engine::split_operation;
use remora_fabric::vital_thread;
use remora_storage::{Directory, Identity, ShardSnapshot, SnapshotWriter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the thread looks whether the log has come to a snapshot's sequences.
const LOOK: Duration = Duration::from_millis(5);

/// The thread, as its owner has it.
pub struct SnapshotThread {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// What it writes into.
pub struct SnapshotPlace {
    /// The data directory.
    pub volume: Directory,
    /// Which data these are.
    pub identity: Identity,
    /// The server's life.
    pub epoch: u64,
    /// The number of the next snapshot.
    pub number: u64,
}

impl SnapshotPlace {
    /// Behind what was found.
    pub fn behind(data: &DataDirectory) -> Self {
        Self {
            volume: data.volume.clone(),
            identity: data.identity,
            epoch: data.epoch(),
            number: data.snapshot.as_ref().map_or(0, |snapshot| snapshot.number) + 1,
        }
    }
}

impl SnapshotThread {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(shared: Arc<Shared>, place: SnapshotPlace) -> io::Result<Self> {
        let own = Arc::clone(&shared);
        let thread = vital_thread::spawn("snapshot", move || run(&own, place))?;
        Ok(Self { thread, shared })
    }

    /// Ends it; a snapshot that is under way is given up.
    pub fn stop(self) {
        let disk = disk_of(&self.shared);
        disk.snapshots.stopping.store(true, Ordering::SeqCst);
        disk.snapshots.bell.ring();
        vital_thread::join(self.thread);
    }
}

fn disk_of(shared: &Shared) -> &Disk {
    shared.disk.as_ref().expect("a server with this thread has a disk")
}

fn run(shared: &Shared, mut place: SnapshotPlace) {
    let snapshots = &disk_of(shared).snapshots;
    let is_stopping = || snapshots.stopping.load(Ordering::SeqCst);
    loop {
        snapshots.bell.sleep(None, || snapshots.is_wanted() || is_stopping());
        if is_stopping() {
            return;
        }
        if !snapshots.begin() {
            continue;
        }
        let started = Instant::now();
        let port = Arc::new(SnapshotPort::new(shared.shards.len(), Arc::clone(&snapshots.bell)));
        let result = write(shared, &place, &port);
        port.give_up();
        shared.shards.iter().for_each(|shard| _ = shard.inbox.ring());
        place.number += 1;
        match result {
            Ok((covered, bytes)) => {
                let ms = started.elapsed().as_millis() as u64;
                tracing::info!("snapshot of {bytes} bytes written in {ms} ms");
                snapshots.end((bytes, ms), unix_s());
                disk_of(shared).cover(covered);
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot was given up; the one before stays");
                snapshots.fail(error.to_string());
            }
        }
    }
}

/// Writes one snapshot; returns the sequences at which it is exact, and its bytes.
fn write(
    shared: &Shared,
    place: &SnapshotPlace,
    port: &Arc<SnapshotPort>,
) -> io::Result<(Vec<u64>, u64)> {
    let of = (place.number, place.epoch, shared.shards.len());
    let mut writer = SnapshotWriter::begin(place.volume.clone(), place.identity, of)?;
    for shard in &shared.shards {
        shard.inbox.push(Message::Snapshot(Arc::clone(port)));
    }
    let written = write_streams(shared, &mut writer, port).and_then(|bytes| {
        wait_for_log(shared, &writer.covered())?;
        Ok(bytes)
    });
    match written {
        Ok(bytes) => Ok((writer.finish()?, bytes)),
        Err(error) => {
            writer.give_up();
            Err(error)
        }
    }
}

fn write_streams(
    shared: &Shared,
    writer: &mut SnapshotWriter<Directory>,
    port: &SnapshotPort,
) -> io::Result<u64> {
    let snapshots = &disk_of(shared).snapshots;
    let mut counts: Vec<Operations> = shared.shards.iter().map(|_| Operations::default()).collect();
    let mut bytes = 0;
    // Bounded: each shard's stream ends, or is given up.
    while !writer.is_complete() {
        snapshots.bell.sleep(None, || !port.is_empty() || snapshots.is_stopping());
        if snapshots.is_stopping() {
            return Err(io::Error::other("the server ends"));
        }
        for (number, shard) in shared.shards.iter().enumerate() {
            let Some(piece) = port.pop(number) else { continue };
            match piece {
                Piece::Bytes(stream) => {
                    counts[number].count(&stream);
                    bytes += stream.len() as u64;
                    writer.write(number, &stream)?;
                }
                Piece::End { sequence, used_bytes } => {
                    let (operations, time_ms) = (counts[number].whole, shared.clock.told_unix_ms());
                    let ended =
                        ShardSnapshot { sequence, operations, used_bytes, time_ms, bytes: 0 };
                    writer.end_shard(number, ended)?;
                }
                Piece::GivenUp => {
                    return Err(io::Error::other("changes came faster than they could be written"));
                }
            }
            shard.inbox.ring();
        }
    }
    Ok(bytes)
}

/// Counts the operations of a stream that comes in pieces.
#[derive(Default)]
struct Operations {
    whole: u64,
    /// The beginning of one that goes on.
    rest: Vec<u8>,
}

impl Operations {
    fn count(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        let all = std::mem::take(&mut self.rest);
        let mut left = &all[..];
        while let Ok(Some((_, rest))) = split_operation(left) {
            self.whole += 1;
            left = rest;
        }
        self.rest = left.to_vec();
    }
}

/// Waits until the log is on the disk up to these sequences.
fn wait_for_log(shared: &Shared, covered: &[Option<u64>]) -> io::Result<()> {
    let disk = disk_of(shared);
    let is_there = || {
        let all = covered.iter().zip(&disk.synced);
        all.into_iter().all(|(covered, synced)| *covered <= Some(synced.load(Ordering::Acquire)))
    };
    disk.want_sync();
    // Bounded by the disk, and by the end of the server.
    while !is_there() {
        if disk.snapshots.is_stopping() {
            return Err(io::Error::other("the server ends"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
