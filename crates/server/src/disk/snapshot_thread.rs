//! The thread that writes snapshots: when a client asks for one, and when the log has grown.
//!
//! Invariant: nothing of the log goes before its snapshot counts.

use super::content::Content;
use super::link::Disk;
use super::snapshot_port::{Piece, SnapshotPort};
use super::snapshot_streams::SnapshotStreams;
use super::snapshots::Snapshots;
use crate::inbox::Message;
use crate::shared::Shared;
use remora_fabric::vital_thread;
use remora_storage::{Directory, Identity};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the thread looks whether the log has come to a snapshot's sequences.
const LOOK: Duration = Duration::from_millis(5);

/// Time between a snapshot that failed and the next one.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

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
    /// The server's incarnation.
    pub epoch: u64,
    /// The number of the next snapshot.
    pub number: u64,
}

impl SnapshotPlace {
    /// Behind what was found.
    pub fn behind(content: &Content<Directory>) -> Self {
        Self {
            volume: content.volume.clone(),
            identity: content.identity,
            epoch: content.epoch(),
            number: content.next_snapshot(),
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
        snapshots.note_turns(&port.turns);
        match result {
            Ok((covered, bytes)) => {
                let ms = started.elapsed().as_millis() as u64;
                tracing::info!("snapshot of {bytes} bytes written in {ms} ms");
                snapshots.end((bytes, ms), unix_s());
                disk_of(shared).cover(covered);
            }
            Err(error) => {
                let why = error.to_string();
                // The same failure again says nothing new; INFO counts it.
                if snapshots.failure() != why {
                    tracing::warn!(%error, "a snapshot was given up; the one before stays");
                }
                snapshots.fail(why);
                pause(snapshots);
            }
        }
    }
}

/// Waits before the next snapshot, so that a disk that fails is not worn by clients that ask for
/// one again and again.
fn pause(snapshots: &Snapshots) {
    let until = Instant::now() + FAILURE_PAUSE;
    // Bounded by that time. What rings meanwhile asks for the next snapshot.
    while !snapshots.is_stopping() && Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        snapshots.bell.sleep(Some(left), || snapshots.is_stopping());
    }
}

/// Writes one snapshot; returns the sequences at which it is exact, and its bytes.
fn write(
    shared: &Shared,
    place: &SnapshotPlace,
    port: &Arc<SnapshotPort>,
) -> io::Result<(Vec<u64>, u64)> {
    let of = (place.number, place.epoch, shared.shards.len());
    let mut streams = SnapshotStreams::begin(place.volume.clone(), place.identity, of)?;
    for shard in &shared.shards {
        shard.inbox.push(Message::Snapshot(Arc::clone(port)));
    }
    let written = write_streams(shared, &mut streams, port);
    match written.and_then(|()| wait_for_log(shared, &streams, &ends(shared)?)) {
        Ok(()) => streams.finish(),
        Err(error) => {
            streams.give_up();
            Err(error)
        }
    }
}

fn write_streams(
    shared: &Shared,
    streams: &mut SnapshotStreams<Directory>,
    port: &SnapshotPort,
) -> io::Result<()> {
    let snapshots = &disk_of(shared).snapshots;
    // Bounded: each shard's stream ends, or is given up.
    while !streams.is_complete() {
        snapshots.bell.sleep(None, || !port.is_empty() || snapshots.is_stopping());
        if snapshots.is_stopping() {
            return Err(io::Error::other("the server ends"));
        }
        for (number, shard) in shared.shards.iter().enumerate() {
            let Some(piece) = port.pop(number) else { continue };
            match piece {
                Piece::Bytes(stream) => streams.write(number, &stream)?,
                Piece::End { sequence, used_bytes } => {
                    let time_ms = shared.clock.told_unix_ms();
                    streams.end_shard(number, (sequence, used_bytes, time_ms))?;
                }
                Piece::GivenUp(why) => return Err(io::Error::other(why)),
            }
            shard.inbox.ring();
        }
    }
    Ok(())
}

/// For each shard a sequence of its log up to which all parts are of those changes of two shards that the
/// streams have a part of.
fn ends(shared: &Shared) -> io::Result<Vec<u64>> {
    let (to, from) = channel();
    for shard in &shared.shards {
        shard.inbox.push(Message::Ends(to.clone()));
    }
    let mut ends = vec![0; shared.shards.len()];
    let mut left = ends.len();
    // Bounded by the shards, which a change of two shards holds for bounded time, and by the end of the
    // server.
    while left > 0 {
        match from.recv_timeout(LOOK) {
            Ok((shard, end)) => {
                ends[shard] = end;
                left -= 1;
            }
            Err(_) if disk_of(shared).snapshots.is_stopping() => {
                return Err(io::Error::other("the server ends"));
            }
            Err(_) => {}
        }
    }
    Ok(ends)
}

/// Waits until the log is on the disk up to the snapshot's sequences, and to these.
fn wait_for_log(
    shared: &Shared,
    streams: &SnapshotStreams<Directory>,
    ends: &[u64],
) -> io::Result<()> {
    let disk = disk_of(shared);
    disk.want_sync();
    // Bounded by the disk, and by the end of the server.
    let synced = |shard: usize| disk.synced[shard].load(Ordering::Acquire);
    let has_ends = || ends.iter().enumerate().all(|(shard, end)| synced(shard) >= *end);
    while !(streams.may_count(synced) && has_ends()) {
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
