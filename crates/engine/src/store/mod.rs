//! The memory of one shard, and its table of keys (HydraDB 4.1.1, H2, H3).
//!
//! Invariant: a change is logged before any reader can see it; a new record is complete before it
//! is reachable; the old record of a key is dead before the new one is reachable, so that two paths
//! never lead to two values.
//!
//! A store has parts. Each part keeps one invariant, in a file of its own, and does not depend on
//! the store. An operation that needs several parts is a method of [`Store`]: this file has the
//! parts, and the files above have the changes.
//!
//! ```text
//! turns    what goes by time: leases, expiry, flushes, idle limits
//! objects  objects of parts, and those that are on their way to a key
//! write    a key gets a record, loses it, leads to an object
//! room     memory is taken: evicted for, moved for, set aside
//! commit   plan, log, publish
//!    |
//! Store    ask_only  bins  defragment  download  durable  evictor  flush  heap
//!          making_room  moves  newest  numbered  parts  part_reads  snapshot  watched
//! ```

mod ask_only;
mod audit;
mod bins;
mod clock;
mod commit;
mod defragment;
mod download;
mod durable;
mod evictor;
mod expiry;
mod flush;
mod heap;
mod hints;
mod joint;
mod lease;
mod links;
mod making_room;
mod moves;
mod newest;
mod numbered;
mod objects;
mod options;
mod part_reads;
mod parts;
mod record;
mod room;
mod snapshot;
mod stats;
mod turns;
mod watched;
mod write;

pub(crate) use audit::audit;
pub(crate) use bins::Bins;
pub use clock::Now;
pub(crate) use commit::Entry;
pub(crate) use defragment::{Room, free_bytes};
pub use download::{Download, STREAM_CLASS};
pub(crate) use durable::DependsOn;
pub(crate) use expiry::{has_expired, is_allowed, with_expiry};
pub(crate) use flush::{Flush, LogKeys};
pub use heap::SetAside;
pub(crate) use joint::JointPart;
pub use links::FindElsewhere;
use links::Links;
pub(crate) use moves::{DumpAt, Load};
pub(crate) use objects::{PartValue, PlannedPart};
pub use options::{Durability, ShardOptions, table_end};
pub(crate) use part_reads::{PartsRead, Write};
pub(crate) use parts::{NumberOf, Parts, PlannedParts};
pub(crate) use record::{Found, New, Prepared, Readable};
pub(crate) use snapshot::{Filling, LENGTH_BYTES, Named, Rest, Snapshot};
pub use stats::{KeyCounts, ShardStats};

use crate::elements::combine::MemberReader;
use ask_only::AskOnly;
use clock::TickedSeconds;
use defragment::Defragmenter;
use download::Pins;
use durable::Lag;
use evictor::Evictor;
use flush::Flushes;
use heap::Cover;
use making_room::MakingRoom;
use moves::Moves;
use parts::AllParts;
use record::Grave;
use remora_arena::{
    Journal, NoJournal, Owner, Slot, Slots, database_of, kind_of, lengths_of, mutable_of,
    set_mutable, slot_of, state_in,
};
use remora_index::hash::{Table, TableRef, record_key};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, ARENA_MAGIC, durable_word, word};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::hello::PROTOCOL_VERSION;
use remora_layout::kind::Kind;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::node::NodeRef;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Mutable, State, state_offset};
use remora_log::{Log, LogKey, LogOptions};
use remora_protocol::Command;
use remora_protocol::applied::{AppliedStep, LogPosition};
use std::collections::VecDeque;
use watched::WatchedKeys;

/// The memory of one shard and its table of keys. See the module's text.
pub struct Store<J: Journal = NoJournal> {
    pub(crate) owner: Owner<J>,
    pub(crate) slots: Slots,
    pub(crate) table: Table,
    pub(crate) options: ShardOptions,
    pub(crate) log: Log,
    pub(crate) stats: ShardStats,
    /// The changes that are not yet durable.
    pub(crate) lag: Lag,
    pub(crate) flushes: Flushes,
    pub(crate) evictor: Evictor,
    pub(crate) making_room: MakingRoom,
    pub(crate) defragmenter: Defragmenter,
    pub(crate) pins: Pins,
    pub(crate) ask_only: AskOnly,
    /// The parts of objects that have tables of their own.
    pub(crate) parts: AllParts,
    /// How the members of objects are read, with their scores, by type.
    pub(crate) scored: Vec<MemberReader<J, f64>>,
    /// Objects that are on their way to another key.
    pub(crate) moves: Moves,
    /// Objects that no key leads to any longer, and whose memory is to be released.
    pub(crate) graves: VecDeque<Grave>,
    /// Pages of the arena that are reserved for the types' heap memory.
    pub(crate) cover: Cover,
    /// The clock of idle limits.
    pub(crate) ticked: TickedSeconds,
    /// The main bucket that the sweep for expired keys looks at next.
    expire_cursor: u64,
    /// Objects in trees that expire: they want ticks.
    pub(crate) due_objects: u64,
    /// Objects with places that are held, or that are to be mended: they want ticks.
    pub(crate) to_be_mended: u64,
    /// Objects in which something ends or expires at some time: they want ticks.
    pub(crate) timed_objects: u64,
    /// A type has something to build ([`crate::types::object::Type::tend`]).
    pub(crate) wants_tending: bool,
    /// Where links' targets lie.
    links: Links,
    /// Keys that requests wait for.
    pub(crate) watched: WatchedKeys,
    /// The snapshot that is under way.
    pub(crate) snapshot: Option<Box<Snapshot>>,
    /// Another log's entries change this shard, and nothing else does.
    pub(crate) is_applying: bool,
    /// The entry of another log that is being applied, if it is logged here: the shard follows that
    /// log, and has a disk of its own.
    pub(crate) applies: Option<(AppliedStep, LogPosition)>,
    /// The log goes to a disk, also in apply mode.
    pub(crate) logs_applied: bool,
    /// Whether the disk of the log takes entries.
    pub(crate) keeps: bool,
    /// Enough replicas keep up to acknowledge changes.
    pub(crate) has_replicas: bool,
    /// The next change is a part of an entry of two shards.
    pub(crate) joint: Option<JointPart>,
    /// The present command only reads.
    pub(crate) only_reads: bool,
    /// Pointer to the record written last: a writer may read it back without
    /// asking for it first.
    pub(crate) last_put: RemotePointer,
    /// The value of the last reply: a list of keys, or a key's content.
    pub(crate) listed: Vec<u8>,
    /// Buffer for a value that is changed piecemeal, kept between commands.
    pub(crate) edited: Vec<u8>,
    /// Buffer for an entry's value.
    entry_scratch: Vec<u8>,
}

impl<J: Journal> Store<J> {
    /// A shard over a fresh, zeroed region; writes the arena's header.
    pub(crate) fn new(mut owner: Owner<J>, options: ShardOptions) -> Self {
        let region_bytes = owner.region_bytes();
        let table = Table::new(&mut owner, ARENA_HEADER_BYTES, options.buckets);
        let from = table_end(options.buckets) as usize;
        let memory_bytes = region_bytes.saturating_sub(options.reserve_bytes as usize);
        let slots = Slots::with_last_generation(from, region_bytes, options.last_generation)
            .with_reserve_bytes(options.reserve_bytes)
            .with_quarantine_bytes(options.quarantine_bytes);
        owner.store(word::VERSION, PROTOCOL_VERSION as u64);
        owner.store(word::INCARNATION, options.incarnation);
        owner.store(word::EPOCH, options.epoch);
        owner.store(word::REGION, options.region as u64);
        owner.store(word::HASH_SEED, options.hash_seed);
        owner.store(word::REGION_BYTES, region_bytes as u64);
        owner.store(word::RECORD_SECRET, options.record_secret);
        let lag = Lag::new(options.durability);
        owner.store(word::DURABLE, durable_word(lag.durable_sequence(u64::MAX)));
        owner.store_release(word::MAGIC, ARENA_MAGIC);
        let log_key = LogKey::new(options.log_secret, options.log_shard);
        Self {
            owner,
            slots,
            table,
            options,
            log: Log::new(LogOptions::new(log_key, options.log_shard, options.epoch)),
            stats: ShardStats::default(),
            lag,
            flushes: Flushes::default(),
            evictor: Evictor::new(options.eviction, region_bytes),
            making_room: MakingRoom::default(),
            defragmenter: Defragmenter::default(),
            pins: Pins::default(),
            ask_only: AskOnly::default(),
            parts: AllParts::new(memory_bytes),
            scored: Vec::new(),
            moves: Moves::default(),
            graves: VecDeque::new(),
            cover: Cover::default(),
            ticked: TickedSeconds::default(),
            expire_cursor: 0,
            due_objects: 0,
            to_be_mended: 0,
            timed_objects: 0,
            wants_tending: false,
            links: Links::default(),
            watched: WatchedKeys::default(),
            snapshot: None,
            is_applying: false,
            applies: None,
            logs_applied: false,
            keeps: true,
            has_replicas: true,
            joint: None,
            only_reads: false,
            last_put: RemotePointer::NONE,
            listed: Vec::new(),
            edited: Vec::new(),
            entry_scratch: Vec::new(),
        }
    }

    /// The hash of a key of a database in this cluster.
    #[inline(always)]
    pub(crate) fn hash(&self, database: Database, key: &[u8]) -> KeyHash {
        KeyHash::within(database, key, self.options.hash_seed)
    }

    /// The hash of the key whose record lies in `slot`.
    pub(crate) fn hash_in(&self, slot: u32) -> KeyHash {
        record::hash_in(&self.owner, slot, self.options.hash_seed)
    }

    /// Returns what a reader needs to walk this shard's table in its present state.
    pub(crate) fn table_ref(&self) -> TableRef {
        TableRef::read(self.options.region, self.owner.view()).expect("the owner wrote this page")
    }

    /// Counts of keys and memory; those of types are theirs.
    pub(crate) fn stats(&self) -> ShardStats {
        debug_assert!(
            self.evictor.records().is_none_or(|records| records == self.stats.keys),
            "the policy knows the records that the table leads to"
        );
        ShardStats {
            // Without those that flushes are about to remove.
            keys: self.stats.keys - self.flushes.keys(),
            last_sequence: self.log.last_sequence(),
            durable_sequence: self.durable_sequence(),
            log_limit_bytes: self.log.limit_bytes() as u64,
            log_bytes: self.log.kept_bytes() as u64,
            pending_keys: self.lag.keys(),
            buckets: self.table.buckets(),
            overflow_buckets: self.table.overflow_buckets(),
            table_bytes: self.table.bytes(),
            ask_only: self.ask_only.records(),
            pinned: self.pins.records(),
            staged_bytes: self.cover.aside_bytes(),
            heap_bytes: self.cover.heap_bytes(),
            heap_covered_bytes: self.cover.bytes(),
            slots: self.slots.stats(),
            eviction_bytes: self.evictor.heap_bytes(),
            ..self.stats
        }
    }

    /// Keys of a database, without those that a flush is about to remove.
    pub(crate) fn keys_of(&self, database: Database) -> u64 {
        self.stats.databases[database.number() as usize].keys - self.flushes.keys_of(database)
    }

    /// First of two prefetches of a key: its bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        self.table.prefetch(&self.owner, hash);
    }

    /// Second prefetch, a while later: its record.
    #[inline(always)]
    pub(crate) fn prefetch_record(&self, hash: KeyHash) {
        self.table.prefetch_record(&self.owner, hash);
    }

    /// The live, unexpired record of a key. An expired one is removed, except in apply mode, where
    /// only the log removes it, and by a command that only reads while the log's disk is far behind.
    #[inline]
    pub(crate) fn lookup(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Option<Found> {
        if self.lag.is_possible() || self.flushes.are_under_way() {
            self.prepare_lookup(hash, now);
        }
        let found = self.found(key, hash)?;
        if has_expired(found.mutable, now) {
            self.remove_expired(key, found, hash, now);
            return None;
        }
        Some(found)
    }

    #[inline(never)]
    fn prepare_lookup(&mut self, hash: KeyHash, now: Now) {
        self.lag.look_up(hash);
        if self.flushes.are_under_way() {
            self.sweep_before(hash, now);
        }
    }

    #[cold]
    fn remove_expired(&mut self, key: &[u8], found: Found, hash: KeyHash, now: Now) {
        if self.is_applying || (self.only_reads && !self.may_expire()) {
            return;
        }
        self.commit(hash.database(), &Command::Del { key }, |store| store.remove(found, hash, now));
        self.stats.expired += 1;
    }

    /// The position of a key, expired or not.
    #[inline]
    pub(crate) fn found(&self, key: &[u8], hash: KeyHash) -> Option<Found> {
        let (place, slot) = self.table.find(&self.owner, key, hash)?;
        Some(Found { place, slot, mutable: mutable_of(&self.owner, slot.slot) })
    }

    /// The type of the found object.
    #[inline]
    pub(crate) fn kind(&self, found: Found) -> Kind {
        kind_of(&self.owner, found.slot.slot)
    }

    /// The remote pointer to the record in `slot`.
    pub(crate) fn pointer(&self, slot: u32) -> RemotePointer {
        RemotePointer {
            region: self.options.region,
            slot,
            length: lengths_of(&self.owner, slot).record_bytes() as u32,
            generation: slot_of(&self.owner, slot).generation,
        }
    }

    /// Extends a record's lease by its popularity ([`lease`]). Gives the term from now,
    /// in ms.
    pub(crate) fn extend_lease(&mut self, found: Found, now: Now) -> u32 {
        let (mutable, term_s) = lease::extended(found.mutable, self.options.lease_min_s, now);
        if mutable != found.mutable {
            set_mutable(&mut self.owner, found.slot.slot, mutable);
        }
        (term_s * 1000) as u32
    }

    /// End of the lease in a record's word 1, if it still runs.
    fn lease_end_s(&self, mutable: Mutable, now: Now) -> Option<u64> {
        lease::running_end_s(mutable, self.options.lease_min_s, now)
    }

    /// The place of a root record's state block for readers.
    pub(crate) fn state_of(&self, root: Slot) -> NodeRef {
        let key_bytes = lengths_of(&self.owner, root.slot).key_bytes as usize;
        let units = (state_offset(key_bytes) / SLOT_UNIT_BYTES) as u32;
        NodeRef { slot: root.slot + units, generation: root.generation }
    }

    /// Whether a root record is still that of its object, seen by readers or not.
    pub(crate) fn is_live(&self, root: Slot) -> bool {
        slot_of(&self.owner, root.slot).generation == root.generation
            && state_in(&self.owner, root.slot) != State::Dead
    }

    /// Whether objects that were removed still hold memory.
    #[inline(always)]
    pub(crate) fn has_graves(&self) -> bool {
        !self.graves.is_empty()
    }

    /// Whether the object with this root record is a load under way: nothing in it expires.
    pub(crate) fn is_moving(&self, root: u32) -> bool {
        self.moves.is_loading(root) || self.moves.is_dumped(root, || self.hash_in(root))
    }

    /// Whether the key with this record is about to be removed by a flush.
    pub(crate) fn is_flushed_at(&self, slot: u32) -> bool {
        let bucket = |slot| self.table.bucket(self.hash_in(slot));
        self.flushes.are_under_way() && self.is_flushed_in(bucket(slot), slot)
    }

    /// Whether the key with this record, in this bucket, is about to be removed by a flush.
    #[inline]
    pub(crate) fn is_flushed_in(&self, bucket: u64, slot: u32) -> bool {
        let (database, key) = (database_of(&self.owner, slot), record_key(&self.owner, slot));
        self.flushes.are_under_way() && self.flushes.include(bucket, database, key)
    }
}
