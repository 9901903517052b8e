//! What replicas have to hold, from the logs of the primaries alone: none of the replication's code
//! takes part in it but the engine's apply mode.
//!
//! ```text
//!   primary's shards --- their logs, read after each turn ---> Incarnation --- entries ---> reference
//!   replica's shard --- how far it is, its digest --------------------------------> compared
//! ```
//! An *incarnation* is one run of a primary. One that was a replica before continues another incarnation,
//! up to what it had of it.

use remora_arena::{Journal, NoJournal, Owner};
use remora_engine::{Digest, Durability, Eviction, Now, Origin, Shard, ShardOptions};
use remora_fabric::sim::SimJournal;
use remora_layout::slot::SlotTable;
use remora_log::{Assembler, Cursor, Frames, OwnedEntry};
use remora_server::following::{Batch, Body, LogPart};
use std::collections::BTreeMap;

/// Logs of one incarnation, among those of a reference.
const LOGS: u32 = 256;
/// Bytes of a reference's arena.
const ARENA_BYTES: usize = 24 << 20;

/// What one shard of a replica holds.
#[derive(Clone, Default)]
pub struct Copied {
    /// Shards of the primary.
    logs: usize,
    of: BTreeMap<usize, CopiedLog>,
}

/// The same of one log.
#[derive(Clone, Copy)]
struct CopiedLog {
    /// The incarnation that it is of.
    incarnation: u64,
    /// Whether its copy is whole.
    is_whole: bool,
    /// How far the shard was.
    applied: u64,
}

impl Copied {
    /// The shard is given a batch of the log of a primary: its incarnation, and that one's epoch.
    pub fn take(&mut self, (incarnation, epoch): (u64, u64), batch: &Batch) {
        let (log, logs, part) = match &batch.body {
            Body::Clear { .. } => return self.of.clear(),
            Body::StepBarrier(_) => return,
            Body::Log { log, logs, part, .. } => (*log, *logs, part),
        };
        let is_whole = match part {
            LogPart::Begin => false,
            LogPart::Copied { epoch: of, .. } if *of != epoch => {
                // A copy from the incarnation before counts, now that this one has answered.
                self.of.entry(log).and_modify(|of| of.is_whole = true);
                return;
            }
            // The end of a copy, or of the incarnation before.
            LogPart::Copied { .. } => true,
            LogPart::Operations(_) | LogPart::Entries(_) => return,
        };
        if self.logs != logs {
            *self = Self { logs, of: BTreeMap::new() };
        }
        self.of.insert(log, CopiedLog { incarnation, is_whole, applied: 0 });
    }

    /// Whether it has whole copies of the logs of this incarnation, and each is so.
    pub fn has_all_of(
        &self,
        of: (usize, usize),
        incarnation: u64,
        is_so: impl Fn(usize) -> bool,
    ) -> bool {
        self.logs(of).is_some_and(|(own, logs)| own == incarnation && logs.into_iter().all(is_so))
    }

    /// The incarnation that it follows and its logs, if it has copies of all.
    fn logs(&self, (number, shards): (usize, usize)) -> Option<(u64, Vec<usize>)> {
        let all: Vec<_> = match self.logs == shards {
            true => vec![number],
            false => (0..self.logs).collect(),
        };
        let incarnation = self.of.get(all.first()?)?.incarnation;
        let has =
            |log| self.of.get(log).is_some_and(|of| of.is_whole && of.incarnation == incarnation);
        all.iter().all(has).then_some((incarnation, all))
    }
}

/// The log of one shard of a primary.
struct Seen {
    cursor: Option<Cursor>,
    assembler: Assembler,
    first: u64,
    entries: Vec<OwnedEntry>,
    durable: u64,
}

/// See the module's text.
struct Incarnation {
    /// The incarnations before, and the last entry of each log that counts.
    history: Vec<(u64, Vec<u64>)>,
    logs: Vec<Seen>,
    /// The log had dropped something before it was read.
    is_unknown: bool,
}

/// A state that a replica has to have.
struct Reference {
    incarnation: u64,
    shard: Shard<NoJournal>,
    /// By log of the incarnation.
    at: BTreeMap<usize, u64>,
}

/// See the module's text.
pub struct Oracle {
    options: ShardOptions,
    incarnations: BTreeMap<u64, Incarnation>,
    /// By process and shard.
    references: BTreeMap<(u64, usize), Reference>,
    /// Promises that were broken.
    pub broken: Vec<(&'static str, String)>,
    /// States that were compared.
    pub compared: u64,
}

const NOW: Now = Now { unix_ms: 1, since_start_s: 1 };

impl Oracle {
    /// For shards with these options.
    pub fn new(options: ShardOptions) -> Self {
        let options = ShardOptions {
            durability: Durability::Memory,
            eviction: Eviction::None,
            last_generation: u32::MAX,
            ..options
        };
        let (incarnations, references) = (BTreeMap::new(), BTreeMap::new());
        Self { options, incarnations, references, broken: Vec::new(), compared: 0 }
    }

    /// A primary begins, with what is durable. It continues `before` up to these entries, or has
    /// nothing.
    pub fn begin(
        &mut self,
        incarnation: u64,
        shards: &[Shard<SimJournal>],
        before: Option<(u64, Vec<u64>)>,
    ) {
        let history = before.map_or(Vec::new(), |(of, ends)| {
            let mut history = self.incarnations[&of].history.clone();
            history.push((of, ends));
            history
        });
        let is_unknown = history.iter().any(|(of, _)| self.incarnations[of].is_unknown);
        let logs = shards.iter().map(|shard| {
            let last = shard.durable_sequence().min(shard.last_sequence());
            Seen {
                cursor: shard.log().cursor(last + 1).ok(),
                assembler: Assembler::new(last + 1, usize::MAX),
                first: last + 1,
                entries: Vec::new(),
                durable: last,
            }
        });
        let logs = logs.collect();
        self.incarnations.insert(incarnation, Incarnation { history, logs, is_unknown });
    }

    /// The disk of a primary that is gone has kept these entries: they count from now on.
    pub fn keep(&mut self, incarnation: u64, kept: &[u64]) {
        for (seen, &kept) in
            self.incarnations.get_mut(&incarnation).iter_mut().flat_map(|of| &mut of.logs).zip(kept)
        {
            seen.durable = seen.durable.max(kept);
        }
    }

    /// Reads what is new in the logs of a primary.
    pub fn look<J: Journal>(&mut self, incarnation: u64, shards: &[Shard<J>]) {
        let Some(incarnation) = self.incarnations.get_mut(&incarnation) else { return };
        for (seen, shard) in incarnation.logs.iter_mut().zip(shards) {
            seen.durable = seen.durable.max(shard.durable_sequence().min(shard.last_sequence()));
            let Some(cursor) = &mut seen.cursor else { continue };
            let mut bytes = Vec::new();
            if shard.log().read(cursor, usize::MAX, &mut bytes).is_err() {
                (seen.cursor, incarnation.is_unknown) = (None, true);
                continue;
            }
            for frame in Frames::new(&bytes, shard.log().key()) {
                let entry = seen.assembler.take(frame.expect("the log wrote it"));
                let entry = entry.expect("the log wrote it in order");
                seen.entries.extend(entry.map(|entry| entry.to_owned()));
            }
        }
    }

    /// By log of an incarnation, the last entry that was durable.
    pub fn durable(&self, incarnation: u64) -> Vec<u64> {
        self.incarnations[&incarnation].logs.iter().map(|seen| seen.durable).collect()
    }

    fn violate(&mut self, promise: &'static str, seen: String) {
        self.broken.push((promise, seen));
    }

    /// Looks at how far a shard of a replica is: never behind what is durable, and never back.
    pub fn look_at_positions<J: Journal>(
        &mut self,
        of: (u64, usize, usize),
        shard: &Shard<J>,
        copied: &mut Copied,
    ) {
        let (process, number, shards) = of;
        let Some((incarnation, logs)) = copied.logs((number, shards)) else { return };
        for log in logs {
            let applied = shard.applied(log as u32);
            let Some(seen) = self.incarnations[&incarnation].logs.get(log) else { continue };
            if applied > seen.durable {
                let seen = format!(
                    "shard {number} of replica {process} has applied {applied} of log {log} of {incarnation}, {} is durable",
                    seen.durable
                );
                self.violate("a replica shows nothing beyond the commit position", seen);
            }
            let of = copied.of.get_mut(&log).expect("it has a copy");
            let before = std::mem::replace(&mut of.applied, applied);
            if applied < before {
                let seen = format!("log {log} at replica {process}: {before}, then {applied}");
                self.violate("what a replica shows never goes back", seen);
            }
        }
    }

    /// Compares the content of a shard of a replica with what its logs make.
    pub fn compare<J: Journal>(
        &mut self,
        (process, number, shards): (u64, usize, usize),
        shard: &Shard<J>,
        copied: &Copied,
    ) {
        let Some((incarnation, logs)) = copied.logs((number, shards)) else { return };
        if self.incarnations[&incarnation].is_unknown || shard.wants_release() {
            return;
        }
        let mut reference = match self.references.remove(&(process, number)) {
            Some(reference) if reference.incarnation == incarnation => reference,
            _ => self.reference(incarnation, (number, shards)),
        };
        let at: Vec<_> = logs.iter().map(|&log| (log, shard.applied(log as u32))).collect();
        for &(log, applied) in &at {
            self.advance(&mut reference, (number, shards), (incarnation, log), applied);
        }
        let (found, wanted) = (shard.digest(), reference.digest());
        self.references.insert((process, number), reference);
        self.compared += 1;
        if found != wanted {
            let seen = format!("shard {number} of replica {process}, at {at:?} of {incarnation}");
            self.violate("a replica has what its primary had at that sequence", seen);
        }
    }

    /// A process is gone.
    pub fn forget(&mut self, process: u64) {
        self.references.retain(|&(of, _), _| of != process);
    }

    /// What an incarnation had before its first entry, as far as it belongs to this shard.
    fn reference(&self, incarnation: u64, of: (usize, usize)) -> Reference {
        let owner = Owner::heap(ARENA_BYTES, NoJournal);
        let mut shard = Shard::new(owner, self.options);
        shard.begin_applying();
        let mut reference = Reference { incarnation, shard, at: BTreeMap::new() };
        for (before, ends) in &self.incarnations[&incarnation].history {
            for (log, &end) in ends.iter().enumerate() {
                self.apply(&mut reference, of, (*before, log), (0, end));
            }
        }
        reference
    }

    /// Applies a log of the reference's incarnation, up to this entry.
    fn advance(&self, reference: &mut Reference, of: (usize, usize), log: (u64, usize), to: u64) {
        let from = reference.at.insert(log.1, to).unwrap_or(0);
        self.apply(reference, of, log, (from, to));
    }

    fn apply(
        &self,
        reference: &mut Reference,
        (number, shards): (usize, usize),
        (incarnation, log): (u64, usize),
        (from, to): (u64, u64),
    ) {
        let logs = &self.incarnations[&incarnation].logs;
        let (own, theirs) = (SlotTable::even(shards), SlotTable::even(logs.len()));
        let takes = |key: &[u8]| own.shard_of(key) == number && theirs.shard_of(key) == log;
        let name = incarnation as u32 * LOGS + log as u32;
        let origin = Origin { log: name, takes: &takes, cut: u64::MAX };
        let shard = &mut reference.shard;
        if shard.applied(name) < logs[log].first - 1 {
            shard.begin_applying_at(name, (logs[log].first - 1, 0));
        }
        for entry in &logs[log].entries {
            if (from + 1..=to).contains(&entry.sequence) {
                let applied = shard.apply(&entry.entry(), &origin, NOW);
                applied.unwrap_or_else(|error| panic!("a reference takes each entry: {error}"));
            }
        }
        // Bounded: each turn releases something.
        while shard.wants_release() {
            shard.release_some(NOW);
        }
    }
}

impl Reference {
    fn digest(&self) -> Digest {
        self.shard.digest()
    }
}
