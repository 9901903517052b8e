//! The thread that writes and syncs the log of all shards, and tells them what is durable.
//!
//! The group that came meanwhile, and a moment later, is the next one ([`super::pace`]). With
//! durability `fsync` it syncs by itself; with `everysec` a second thread does, so that no write
//! waits for it.

use super::link::Disk;
use super::pace::GroupPace;
use super::port::{LogPort, ThreadBell};
use crate::inbox::Message;
use crate::shared::Shared;
use remora_fabric::vital_thread;
use remora_layout::limits::{LOG_GROUP_BYTES, LOG_MEND_MIN_MS};
use remora_storage::{Directory, GroupCommit, Promise, Run, Sync, Volume};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that a sync waits for more changes, and that a write does.
const SYNC_WAIT: Duration = Duration::from_millis(5);
const WRITE_WAIT: Duration = Duration::from_micros(500);
/// How long the end of a server tries to write the rest to a disk that fails.
const END_TRIES: Duration = Duration::from_secs(2);

type File = <Directory as Volume>::File;
/// A sync that was done.
type Done = (Sync<File>, io::Result<()>, Duration);

/// The thread, as its owner has it.
pub struct LogThread {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl LogThread {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        shared: Arc<Shared>,
        (commit, kept_bytes): (GroupCommit<Directory>, u64),
    ) -> io::Result<Self> {
        let disk = disk_of(&shared);
        let syncer = match disk.promise {
            Promise::Synced => None,
            Promise::Memory | Promise::Written => Some(Syncer::start(Arc::clone(&disk.bell))?),
        };
        let told = (0..disk.ports.len())
            .map(|shard| (commit.durable(shard), commit.synced(shard)))
            .collect();
        disk.state.follow(commit.writer());
        let body = Body {
            commit,
            shared: Arc::clone(&shared),
            syncer,
            pace: GroupPace::new(match disk.promise {
                Promise::Synced => SYNC_WAIT,
                Promise::Memory | Promise::Written => WRITE_WAIT,
            }),
            told,
            next: 0,
            is_lost: false,
            kept_bytes,
        };
        let thread = vital_thread::spawn("log", move || body.run())?;
        Ok(Self { thread, shared })
    }

    /// Ends it once everything is written and synced, or the disk refuses.
    pub fn stop(self) {
        let disk = disk_of(&self.shared);
        disk.stopping.store(true, Ordering::SeqCst);
        disk.bell.ring();
        vital_thread::join(self.thread);
    }
}

fn disk_of(shared: &Shared) -> &Disk {
    shared.disk.as_ref().expect("a server with a log's thread has a disk")
}

/// The thread that syncs beside the writes.
struct Syncer {
    orders: Sender<Sync<File>>,
    done: Receiver<Done>,
    /// A sync has ended since `done` was last looked at.
    has_done: Arc<AtomicBool>,
}

impl Syncer {
    fn start(bell: Arc<ThreadBell>) -> io::Result<Self> {
        let (orders, ordered) = channel::<Sync<File>>();
        let (give, done) = channel();
        let has_done = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&has_done);
        vital_thread::spawn("log-sync", move || {
            for sync in ordered {
                let started = Instant::now();
                let result = sync.run();
                if give.send((sync, result, started.elapsed())).is_err() {
                    return;
                }
                tell.store(true, Ordering::Relaxed);
                bell.ring();
            }
        })?;
        Ok(Self { orders, done, has_done })
    }
}

struct Body {
    commit: GroupCommit<Directory>,
    shared: Arc<Shared>,
    syncer: Option<Syncer>,
    pace: GroupPace,
    /// By shard, what it was told: the last durable sequence, and the last one on the disk.
    told: Vec<(u64, u64)>,
    /// The shard whose runs are taken first.
    next: usize,
    /// A shard has dropped entries: nothing may be written behind the gap.
    is_lost: bool,
    /// Bytes of the log since the last snapshot.
    kept_bytes: u64,
}

impl Body {
    fn run(mut self) {
        loop {
            let stopping = self.disk().stopping.load(Ordering::SeqCst);
            let worked = self.turn();
            if stopping && !worked {
                break;
            }
            if !worked {
                self.sleep();
            }
        }
        self.end();
    }

    fn disk(&self) -> &Disk {
        disk_of(&self.shared)
    }

    fn now_ms(&self) -> u64 {
        self.shared.clock.started().elapsed().as_millis() as u64
    }

    /// One group, one sync. Whether there was something to do.
    fn turn(&mut self) -> bool {
        let mut worked = self.take_syncs();
        if self.is_lost {
            return worked;
        }
        let may_begin = self.may_begin_group();
        let takes = may_begin && self.commit.wants_runs();
        let runs = if takes { self.take_runs() } else { Vec::new() };
        if !runs.is_empty() {
            worked = true;
            self.write(runs);
        }
        if self.disk().takes_wanted_sync() {
            worked = true;
            self.commit.want_sync();
        }
        if (may_begin || self.syncer.is_some())
            && let Some(sync) = self.commit.sync_due(self.now_ms())
        {
            worked = true;
            self.sync(sync);
        }
        if self.now_ms() >= self.commit.looks_at_ms() {
            let looked = self.commit.look(self.now_ms());
            self.note(&looked);
        }
        if self.commit.mend_due(self.now_ms()) {
            worked = true;
            let mended = self.commit.mend(self.shared.clock.told_unix_ms(), self.now_ms());
            self.note(&mended);
        }
        if self.commit.mark_due(self.now_ms()) {
            worked = true;
            self.mark();
        }
        self.tell_durable();
        self.drop_covered();
        for run in self.commit.take_freed() {
            disk_of(&self.shared).ports[usize::from(run.shard)].give_back(run.frames);
        }
        worked
    }

    /// Takes what waits, of each shard in turn.
    fn take_runs(&mut self) -> Vec<Run> {
        let (mut runs, mut bytes, mut is_lost) = (Vec::new(), 0, false);
        let ports = &disk_of(&self.shared).ports;
        // Bounded by the bytes of a group.
        loop {
            let before = runs.len();
            for at in 0..ports.len() {
                let port = &ports[(self.next + at) % ports.len()];
                if bytes >= LOG_GROUP_BYTES {
                    break;
                }
                let has_lost = port.is_lost();
                match port.pop() {
                    Some(run) => {
                        self.disk().handed.take(&run);
                        bytes += run.frames.len();
                        runs.push(run);
                    }
                    None => is_lost |= has_lost,
                }
            }
            if runs.len() == before {
                break;
            }
        }
        self.next = (self.next + 1) % ports.len();
        for (port, shard) in ports.iter().zip(&self.shared.shards) {
            if port.takes_waiting() {
                shard.inbox.ring();
            }
        }
        if is_lost {
            self.lose();
        }
        runs
    }

    fn mark(&mut self) {
        let marked = self.commit.mark(self.shared.clock.told_unix_ms(), self.now_ms());
        self.note(&marked);
    }

    /// A shard's log has dropped entries that are not written.
    fn lose(&mut self) {
        self.is_lost = true;
        let why = "entries were dropped before the disk took them: restart, from what is there";
        tracing::error!("the log has a gap: {why}");
        self.disk().state.set_failure(why.into());
        self.tell_keeps(false);
    }

    fn write(&mut self, runs: Vec<Run>) {
        let bytes: usize = runs.iter().map(|run| run.frames.len()).sum();
        self.kept_bytes += bytes as u64;
        let state = &self.disk().state;
        add(&state.groups, 1);
        add(&state.runs, runs.len() as u64);
        add(&state.bytes, bytes as u64);
        let changes = runs.iter().map(|run| run.last + 1 - run.first).sum();
        let started = Instant::now();
        let written = self.commit.write(runs, self.shared.clock.told_unix_ms(), self.now_ms());
        if self.disk().promise == Promise::Written {
            self.end_group(started.elapsed(), changes);
        }
        self.note(&written);
    }

    /// Changes that may not be acknowledged yet.
    fn waiting(&self) -> u64 {
        let disk = self.disk();
        let unsynced = match disk.promise {
            Promise::Synced => self.commit.writer().unsynced_entries(),
            Promise::Memory | Promise::Written => 0,
        };
        disk.handed.changes() + unsynced
    }

    /// Whether the next group may begin.
    fn may_begin_group(&mut self) -> bool {
        let (waiting, disk) = (self.waiting(), self.disk());
        let is_full = disk.ports.iter().any(|port| port.is_full());
        if disk.promise == Promise::Memory || waiting == 0 || is_full {
            return true;
        }
        self.pace.may_begin(self.shared.clock.started().elapsed(), waiting)
    }

    fn sync(&mut self, sync: Sync<File>) {
        match &self.syncer {
            Some(syncer) => syncer.orders.send(sync).expect("it ends after this thread"),
            None => {
                let started = Instant::now();
                let before = self.commit.writer().unsynced_entries();
                let result = sync.run();
                let took = started.elapsed();
                self.end_sync((sync, result, took));
                let changes = before - self.commit.writer().unsynced_entries();
                self.end_group(took, changes);
            }
        }
    }

    /// A group took so long, and its changes may be acknowledged.
    fn end_group(&mut self, took: Duration, changes: u64) {
        let waiting = self.waiting();
        self.pace.ended(self.shared.clock.started().elapsed(), took, (changes, waiting));
    }

    fn take_syncs(&mut self) -> bool {
        let Some(syncer) = &self.syncer else { return false };
        // Before the look: a sync that ends after it sets the mark again.
        syncer.has_done.store(false, Ordering::SeqCst);
        let Ok(done) = syncer.done.try_recv() else { return false };
        self.end_sync(done);
        true
    }

    fn end_sync(&mut self, (sync, result, took): Done) {
        let state = &self.disk().state;
        add(&state.syncs, 1);
        add(&state.sync_ns, took.as_nanos() as u64);
        state.longest_sync_ns.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
        let ended = self.commit.end_sync(&sync, result, self.now_ms());
        self.note(&ended);
    }

    /// Tells everybody when the disk begins to fail, and when it works again.
    fn note(&mut self, result: &io::Result<()>) {
        let state = &self.disk().state;
        let failed_before = !state.failure().is_empty();
        match result {
            Err(error) => {
                if !failed_before {
                    add(&state.failures, 1);
                    tracing::error!(%error, "the log cannot be written: changes are refused until it can");
                    self.tell_keeps(false);
                }
                state.set_failure(error.to_string());
            }
            Ok(()) if failed_before && !self.commit.writer().has_failed() => {
                add(&state.mended, 1);
                state.set_failure(String::new());
                tracing::info!("the log can be written again: changes go on");
                self.tell_keeps(true);
            }
            Ok(()) => {}
        }
        state.follow(self.commit.writer());
    }

    fn tell_durable(&mut self) {
        let disk = disk_of(&self.shared);
        for (shard, told) in self.told.iter_mut().enumerate() {
            let synced = self.commit.synced(shard);
            let durable = match disk.promise {
                // The shard does not wait for it, and is not woken for each group.
                Promise::Memory => synced,
                Promise::Written | Promise::Synced => self.commit.durable(shard),
            };
            if (durable, synced) != *told {
                *told = (durable, synced);
                disk.synced[shard].store(synced, Ordering::Release);
                self.shared.shards[shard].inbox.push(Message::Durable { durable, synced });
            }
        }
    }

    /// Drops the segments that a new snapshot covers, and asks for the next snapshot once the log
    /// behind the last one has grown.
    fn drop_covered(&mut self) {
        if let Some(covered) = self.disk().take_covered() {
            self.kept_bytes = 0;
            if let Err(error) = self.commit.drop_covered(&covered) {
                tracing::warn!(%error, "segments of the log that a snapshot covers cannot be removed yet");
            }
        }
        let most =
            self.shared.config.data.as_ref().map_or(u64::MAX, |data| data.snapshot_log_bytes);
        if self.kept_bytes >= most {
            self.kept_bytes = 0;
            self.disk().snapshots.want();
        }
    }

    fn tell_keeps(&self, keeps: bool) {
        for shard in &self.shared.shards {
            shard.inbox.push(Message::Keeps(keeps));
        }
    }

    fn sleep(&self) {
        let looks_at_ms = self.commit.looks_at_ms();
        let until_ms = self.commit.idle_until_ms().map_or(looks_at_ms, |ms| ms.min(looks_at_ms));
        let most = Some(Duration::from_millis(until_ms.saturating_sub(self.now_ms()).max(1)));
        let disk = self.disk();
        let waits = self.pace.waits_for(self.shared.clock.started().elapsed());
        let waits = waits.filter(|_| self.waiting() > 0);
        let (most, missing) = match waits {
            Some((time, changes)) => (Some(time), changes),
            None => (most, 0),
        };
        disk.handed.want(missing);
        let wants_runs = self.commit.wants_runs() && !self.is_lost;
        let has_done =
            || self.syncer.as_ref().is_some_and(|syncer| syncer.has_done.load(Ordering::Relaxed));
        disk.bell.sleep(most, || {
            let is_due = |port: &Arc<LogPort>| port.is_full() || port.is_lost();
            let has_runs = disk.handed.are_enough() || disk.ports.iter().any(is_due);
            let is_asked = disk.is_sync_wanted() || disk.stopping.load(Ordering::SeqCst);
            let has_ended = has_done() || (!self.is_lost && disk.has_covered());
            wants_runs && has_runs || is_asked || has_ended
        });
    }

    /// Writes and syncs the rest.
    fn end(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            drop(syncer.orders);
            // Bounded: at most one is under way.
            for done in syncer.done {
                self.end_sync(done);
            }
        }
        let until = Instant::now() + END_TRIES;
        // Bounded: the shards have ended, and hand nothing more over. They may have done so last while
        // too much waited for a sync.
        loop {
            let ended = match self.commit.writer().has_failed() {
                true => self.commit.mend(self.shared.clock.told_unix_ms(), self.now_ms()),
                false => self.commit.sync_now(self.now_ms()),
            };
            self.tell_durable();
            if let Err(error) = ended {
                if Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(LOG_MEND_MIN_MS));
                    continue;
                }
                let bytes = self.commit.writer().unsynced_bytes();
                tracing::error!(%error, bytes, "the end of the log cannot be written");
                return;
            }
            let runs = if self.is_lost { Vec::new() } else { self.take_runs() };
            if runs.is_empty() {
                break;
            }
            self.write(runs);
        }
        // A power cut may lose the mark, and nothing else.
        self.mark();
        let marked = self.commit.sync_now(self.now_ms());
        self.note(&marked);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
