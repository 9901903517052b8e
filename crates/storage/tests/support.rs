//! Servers of a few shards over a simulated disk: their logs, their group commit, and what they
//! have promised.

use remora_log::{Cursor, Log, LogKey, LogOptions, Part, outline};
use remora_storage::sim::{SimFile, SimVolume};
use remora_storage::{
    Found, GroupCommit, Identity, LogStart, LogWriter, Promise, Replayed, Run, StorageError, Sync,
    WriterOptions, find, replay,
};
use remora_testing::Random;
use std::io;

pub const IDENTITY: Identity = Identity { cluster: 0xc1, secret: 0x5ec };

/// An operation's bytes: incarnation, shard, number, and some more.
pub type Operation = Vec<u8>;

/// One incarnation of a server.
pub struct Server {
    pub logs: Vec<Log>,
    cursors: Vec<Cursor>,
    pub commit: GroupCommit<SimVolume>,
    /// By shard, what was appended, with its sequence.
    pub appended: Vec<Vec<(u64, Operation)>>,
    pub now_ms: u64,
    epoch: u64,
    /// Entries of several shards: the parts of each.
    pub shared: Vec<Vec<Part>>,
    /// A sync that is done, and whose end is not told yet.
    under_way: Option<(Sync<SimFile>, io::Result<()>)>,
}

impl Server {
    /// Begins behind what was found.
    pub fn begin(volume: &SimVolume, found: &Found, shards: usize, promise: Promise) -> Self {
        let epoch = found.epoch() + 1;
        let first: Vec<u64> = (0..shards as u64).map(|shard| 1 + shard * 7).collect();
        let options = WriterOptions {
            cluster: IDENTITY.cluster,
            secret: IDENTITY.secret,
            epoch,
            segment_bytes: 6 << 10,
        };
        let start = LogStart::behind(found, first.clone());
        let writer = LogWriter::begin(volume.clone(), options, start).unwrap();
        let mut logs = Vec::new();
        for (shard, first) in first.iter().enumerate() {
            let key = LogKey::new(IDENTITY.secret, shard as u32);
            let options =
                LogOptions { piece_bytes: 200, ..LogOptions::new(key, shard as u32, epoch) };
            let mut log = Log::new(options);
            (1..*first).for_each(|_| _ = log.pass());
            logs.push(log);
        }
        let cursor = |log: &Log| log.cursor(log.last_sequence() + 1).unwrap();
        Self {
            cursors: logs.iter().map(cursor).collect(),
            logs,
            commit: GroupCommit::new(writer, promise, shards, 0),
            appended: vec![Vec::new(); shards],
            now_ms: 0,
            epoch,
            shared: Vec::new(),
            under_way: None,
        }
    }

    /// Appends an entry to a shard's log.
    pub fn append(&mut self, shard: usize, random: &mut Random) {
        let bytes = if random.below(8) == 0 { random.below(900) } else { random.below(60) };
        let number = self.appended[shard].len() as u8;
        let mut operation = vec![self.epoch as u8, shard as u8, number];
        operation.extend((0..bytes).map(|at| at as u8));
        let sequence = self.logs[shard].append([&operation, &[], &[]]).sequence;
        self.appended[shard].push((sequence, operation));
    }

    /// Appends one entry to two shards' logs.
    pub fn append_shared(&mut self, (one, other): (usize, usize), random: &mut Random) {
        let part = |shard: usize| Part::new(shard as u32, self.logs[shard].last_sequence() + 1);
        let parts = vec![part(one), part(other)];
        for shard in [one, other] {
            let operation = vec![self.epoch as u8, shard as u8, 255, random.below(250) as u8];
            let sequence = self.logs[shard].append_part(&parts, [&operation, &[], &[]]).sequence;
            self.appended[shard].push((sequence, operation));
        }
        self.shared.push(parts);
    }

    /// Some of what a shard's log has, as a run.
    pub fn next_run(&mut self, shard: usize, most_bytes: usize) -> Option<Run> {
        let mut frames = Vec::new();
        self.logs[shard].read(&mut self.cursors[shard], most_bytes, &mut frames).unwrap();
        outline(&frames).map(|of| Run {
            shard: shard as u16,
            first: of.first,
            last: of.last,
            ends_entry: of.ends_entry,
            has_parts: of.has_parts,
            used_bytes: 1000,
            frames,
        })
    }

    /// Writes a group; the disk may refuse.
    pub fn write(&mut self, random: &mut Random) {
        if !self.commit.wants_runs() {
            return;
        }
        let mut runs = Vec::new();
        for shard in 0..self.logs.len() {
            if random.below(3) > 0 {
                runs.extend(self.next_run(shard, 1 + random.below(1500) as usize));
            }
        }
        if !runs.is_empty() {
            let _ = self.commit.write(runs, 1_000 + self.now_ms, self.now_ms);
        }
    }

    /// Syncs if that is due, and mends if it is.
    pub fn sync(&mut self) {
        self.begin_sync();
        self.end_sync();
        self.mark();
    }

    /// Writes a mark if one is due; the disk may refuse.
    pub fn mark(&mut self) {
        if self.commit.mark_due(self.now_ms) {
            let _ = self.commit.mark(1_000 + self.now_ms, self.now_ms);
        }
    }

    /// A sync that is due is done now, and ends by [`Server::end_sync`].
    pub fn begin_sync(&mut self) {
        if let Some(sync) = self.commit.sync_due(self.now_ms) {
            let result = sync.run();
            self.under_way = Some((sync, result));
        }
    }

    /// Reports the end of a sync, and mends what is due.
    pub fn end_sync(&mut self) {
        if let Some((sync, result)) = self.under_way.take() {
            let _ = self.commit.end_sync(&sync, result, self.now_ms);
        }
        if self.commit.mend_due(self.now_ms) {
            let _ = self.commit.mend(1_000 + self.now_ms, self.now_ms);
        }
    }
}

/// The entries of one incarnation, by shard, with their sequences.
pub type OfLife = Vec<Vec<(u64, Operation)>>;

/// The entries that a directory holds, by incarnation.
pub fn entries(volume: &SimVolume, found: &Found) -> Result<Vec<OfLife>, StorageError> {
    let mut all: Vec<OfLife> = found
        .incarnations
        .iter()
        .map(|incarnation| vec![Vec::new(); incarnation.first.len()])
        .collect();
    replay(
        volume,
        &IDENTITY,
        found,
        |_| true,
        |replayed| {
            if let Replayed::Entry((incarnation, shard), _, entry) = replayed {
                all[incarnation][shard].push((entry.sequence, entry.operation.to_vec()));
            }
            Ok::<(), StorageError>(())
        },
    )?;
    Ok(all)
}

/// What a directory holds.
pub fn look(volume: &SimVolume) -> Result<Found, StorageError> {
    find(volume, &IDENTITY, (0, &[]))
}
