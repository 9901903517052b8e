//! The memory of one shard, and its table of keys (HydraDB 4.1.1, H2, H3).
//!
//! What it keeps true: a change is logged before any reader can see it; a new
//! record is complete before it is reachable; the old record of a key is dead
//! before the new one is reachable, so that no two paths lead to two values.

mod ask_only;
mod audit;
mod commit;
mod defragment;
mod download;
mod durable;
mod evict;
mod expire;
mod flush;
mod heap;
mod idle;
mod keys;
mod lease;
mod moves;
mod part_reads;
mod parts;
mod read;
mod root;
mod scan;
mod transfer;
mod write;

pub(crate) use commit::Entry;
pub(crate) use defragment::Room;
pub use download::{Download, STREAM_CLASS};
pub use durable::Durability;
pub(crate) use expire::with_expiry;
pub(crate) use flush::Flush;
pub use heap::SetAside;
pub(crate) use moves::{DumpAt, Load};
pub(crate) use part_reads::PartsRead;
pub(crate) use transfer::Target;
pub(crate) use write::{New, Prepared, Readable};

use crate::evict::{Eviction, Policy};
use remora_arena::{
    Journal, NoJournal, Owner, Slot, SlotStats, Slots, database_of, kind_of, slot_of,
};
use remora_index::hash::{Place, Table, TableRef, record_key};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, ARENA_MAGIC, durable_word, word};
use remora_layout::bucket::{BUCKET_BYTES, BucketSlot};
use remora_layout::database::{DATABASES, Database};
use remora_layout::hash::KeyHash;
use remora_layout::hello::PROTOCOL_VERSION;
use remora_layout::kind::Kind;
use remora_layout::limits::{LEASE_MAX_S, LEASE_MIN_S, UPLOAD_IDLE_S};
use remora_layout::plant::{Plant, planted};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::Mutable;
use remora_log::{Log, LogKey, LogOptions};
use remora_protocol::Command;
use std::collections::VecDeque;

/// The time at which a command is executed, read once for many commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// The server's clock, Unix ms; never goes back while the server lives.
    pub unix_ms: u64,
    /// Seconds since the server started, for leases.
    pub since_start_s: u64,
}

/// What a shard is told at its start.
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// Region id of its arena.
    pub region: u32,
    /// The server's life.
    pub life: u64,
    /// The epoch under which the shard is primary.
    pub epoch: u64,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Buckets that its table begins with, a power of two.
    pub buckets: u64,
    /// Shortest lease term, seconds; at most 2^14.
    pub lease_min_s: u64,
    /// Random; who may read the arena can compute its records' checksums.
    pub record_secret: u64,
    /// Random; keys the checksums of the log. No client may learn it.
    pub log_secret: u64,
    /// Number of the shard's log among those of its server.
    pub log_shard: u32,
    /// Bytes of freed slots that may wait for leases; 0 for a sixteenth.
    pub quarantine_bytes: u64,
    /// What happens when the arena is full.
    pub eviction: Eviction,
    /// Slots are used no more once they have had so many generations: all that
    /// 32 bits hold, but in tests and worlds, where it is to happen often.
    pub last_generation: u32,
    /// An upload is abandoned after so many seconds without a piece.
    pub upload_idle_s: u64,
    /// When a change is as durable as configured.
    pub durability: Durability,
}

impl Default for ShardOptions {
    /// A small shard of region 0 in life 1, without secrets.
    fn default() -> Self {
        Self {
            region: 0,
            life: 1,
            epoch: 1,
            hash_seed: 0,
            buckets: 64,
            lease_min_s: LEASE_MIN_S,
            record_secret: 0,
            log_secret: 0,
            log_shard: 0,
            quarantine_bytes: 0,
            eviction: Eviction::None,
            last_generation: u32::MAX,
            upload_idle_s: UPLOAD_IDLE_S,
            durability: Durability::Memory,
        }
    }
}

/// Keys of one database in a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyCounts {
    /// Keys, expired ones that nobody has met yet included.
    pub keys: u64,
    /// Those with an expiry.
    pub expiring: u64,
}

/// Counts of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardStats {
    /// Keys, expired ones that nobody has met yet included.
    pub keys: u64,
    /// Keys with an expiry.
    pub expiring: u64,
    /// Both by database.
    pub databases: [KeyCounts; DATABASES],
    /// Keys removed because they had expired.
    pub expired: u64,
    /// Keys removed because memory was full.
    pub evicted: u64,
    /// Those of them that named objects of parts.
    pub objects_evicted: u64,
    /// Bytes that the eviction policy takes on the heap, beside the arena.
    pub eviction_bytes: u64,
    /// GETs that found their key.
    pub hits: u64,
    /// GETs that did not.
    pub misses: u64,
    /// Sequence of the last change.
    pub last_sequence: u64,
    /// Sequence of the last change that is as durable as configured.
    pub durable_sequence: u64,
    /// Changed keys for which replies may wait.
    pub pending_keys: u64,
    /// Main buckets of the table.
    pub buckets: u64,
    /// Overflow buckets of the table.
    pub overflow_buckets: u64,
    /// Bytes of the table, overflow buckets included.
    pub table_bytes: u64,
    /// Records moved to another slot so that pages came free.
    pub moved: u64,
    /// Records that readers ask for while they are changed in place.
    pub ask_only: u64,
    /// Records whose bytes are held for a download.
    pub pinned: u64,
    /// Trees of places.
    pub trees: u64,
    /// Objects in all trees.
    pub tree_objects: u64,
    /// Objects of trees removed because they had expired.
    pub objects_expired: u64,
    /// Bytes of the arena that trees and their objects' records take.
    pub tree_bytes: u64,
    /// GEO keys, which count as keys too.
    pub geo_keys: u64,
    /// Members of all GEO keys.
    pub geo_members: u64,
    /// Bytes of the arena that GEO keys take.
    pub geo_bytes: u64,
    /// Bytes of the arena that are set aside for staged objects of trees and for
    /// requests that come in pieces.
    pub staged_bytes: u64,
    /// Bytes that types keep on the heap for objects, and those of the arena that are
    /// set aside for them.
    pub heap_bytes: u64,
    /// See `heap_bytes`.
    pub heap_covered_bytes: u64,
    /// Stages that were dropped because nothing was added to them.
    pub stages_abandoned: u64,
    /// Uploads that were given up because their pieces stopped coming.
    pub uploads_abandoned: u64,
    /// Where the arena's bytes are.
    pub slots: SlotStats,
}

impl ShardStats {
    /// So many more keys of a database, and so many more with an expiry.
    pub(crate) fn count(&mut self, database: Database, keys: i64, expiring: i64) {
        let of = &mut self.databases[database.number() as usize];
        for (count, more) in [(&mut self.keys, keys), (&mut of.keys, keys)] {
            *count = count.wrapping_add_signed(more);
        }
        for (count, more) in [(&mut self.expiring, expiring), (&mut of.expiring, expiring)] {
            *count = count.wrapping_add_signed(more);
        }
    }
}

/// The memory of one shard and its table of keys. See the module's text.
pub struct Store<J: Journal = NoJournal> {
    pub(crate) owner: Owner<J>,
    pub(crate) slots: Slots,
    pub(crate) table: Table,
    pub(crate) options: ShardOptions,
    pub(crate) log: Log,
    pub(crate) stats: ShardStats,
    /// The main bucket that the sweep for expired keys looks at next.
    pub(crate) expire_cursor: u64,
    pub(crate) defragment: defragment::Progress,
    /// Chooses what is evicted; none if nothing is.
    pub(crate) policy: Option<Policy>,
    pub(crate) making_room: evict::MakingRoom,
    pub(crate) pins: download::Pins,
    pub(crate) ask_only: ask_only::AskOnly,
    /// Pointer to the record written last: a writer may read it back without
    /// asking for it first.
    pub(crate) last_put: RemotePointer,
    /// A list of keys, or what a key has, that the last reply brings.
    pub(crate) listed: Vec<u8>,
    /// Where a value that is changed piecemeal is made, kept between commands.
    pub(crate) edited: Vec<u8>,
    /// Objects that no key leads to any more, and whose memory is to be released.
    pub(crate) graves: VecDeque<Grave>,
    /// The parts of objects that have tables of their own.
    pub(crate) parts: parts::AllParts,
    /// Objects that are on their way to another key.
    pub(crate) moves: moves::Moves,
    /// What is kept for reads of them in turns.
    pub(crate) part_reads: part_reads::PartReads,
    seconds: idle::Seconds,
    flushes: flush::Flushes,
    /// Keys that lead to root records.
    pub(crate) roots: u64,
    /// Another log's entries change this shard, and nothing else does.
    pub(crate) is_applying: bool,
    /// Bytes that are set aside for what clients have begun: it wants ticks.
    pub(crate) set_aside_bytes: u64,
    /// Those of them for requests that come in pieces.
    pub(crate) requests_bytes: u64,
    /// What is changed and not yet durable; none where changes are at once.
    lag: Option<Box<durable::Lag>>,
    /// What an entry's value is made in.
    entry_scratch: Vec<u8>,
    /// Pages of the arena that are set aside for what types keep on the heap.
    pub(crate) cover: heap::Cover,
    /// Objects in trees that expire: they want ticks.
    pub(crate) due_objects: u64,
}

/// A key that was found: where its slot word stands, what it says, word 1.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub place: Place,
    pub slot: BucketSlot,
    pub mutable: Mutable,
}

/// An object that no key leads to any more.
#[derive(Clone, Copy)]
pub(crate) struct Grave {
    /// Its type.
    pub kind: Kind,
    /// Its root record's slot, dead.
    pub root: Slot,
    lease_end_s: Option<u64>,
}

/// Bytes that an arena whose table begins with this many buckets needs before
/// its first slot.
pub const fn table_end(buckets: u64) -> u64 {
    ARENA_HEADER_BYTES as u64 + buckets * BUCKET_BYTES as u64
}

impl<J: Journal> Store<J> {
    /// A shard over a fresh, zeroed region; writes the arena's header.
    pub(crate) fn new(mut owner: Owner<J>, options: ShardOptions) -> Self {
        let region_bytes = owner.region_bytes();
        let table = Table::new(&mut owner, ARENA_HEADER_BYTES, options.buckets);
        let from = table_end(options.buckets) as usize;
        let slots = Slots::with_last_generation(from, region_bytes, options.last_generation)
            .with_quarantine_bytes(options.quarantine_bytes);
        owner.store(word::VERSION, PROTOCOL_VERSION as u64);
        owner.store(word::LIFE, options.life);
        owner.store(word::EPOCH, options.epoch);
        owner.store(word::REGION, options.region as u64);
        owner.store(word::HASH_SEED, options.hash_seed);
        owner.store(word::REGION_BYTES, region_bytes as u64);
        owner.store(word::RECORD_SECRET, options.record_secret);
        let lag = match options.durability {
            Durability::Memory => None,
            Durability::Told => Some(Box::default()),
        };
        owner.store(word::DURABLE, durable_word(if lag.is_none() { u64::MAX } else { 0 }));
        owner.store_release(word::MAGIC, ARENA_MAGIC);
        let log_key = LogKey::new(options.log_secret, options.log_shard);
        Self {
            owner,
            slots,
            table,
            options,
            log: Log::new(LogOptions::new(log_key, options.log_shard, options.epoch)),
            stats: ShardStats::default(),
            expire_cursor: 0,
            defragment: defragment::Progress::default(),
            policy: evict::policy(options.eviction, region_bytes),
            making_room: evict::MakingRoom::default(),
            pins: download::Pins::default(),
            ask_only: ask_only::AskOnly::default(),
            last_put: RemotePointer::NONE,
            listed: Vec::new(),
            edited: Vec::new(),
            graves: VecDeque::new(),
            parts: parts::AllParts::new(),
            moves: moves::Moves::default(),
            part_reads: part_reads::PartReads::default(),
            seconds: idle::Seconds::default(),
            flushes: flush::Flushes::default(),
            roots: 0,
            is_applying: false,
            set_aside_bytes: 0,
            requests_bytes: 0,
            lag,
            entry_scratch: Vec::new(),
            cover: heap::Cover::default(),
            due_objects: 0,
        }
    }

    /// The hash of a key of a database in this cluster.
    #[inline(always)]
    pub(crate) fn hash(&self, database: Database, key: &[u8]) -> KeyHash {
        KeyHash::within(database, key, self.options.hash_seed)
    }

    /// The hash of the key whose record lies in `slot`.
    pub(crate) fn hash_in(&self, slot: u32) -> KeyHash {
        self.hash(database_of(&self.owner, slot), record_key(&self.owner, slot))
    }

    /// What a reader needs to walk this shard's table, as of now.
    pub(crate) fn table_ref(&self) -> TableRef {
        TableRef::read(self.options.region, self.owner.view()).expect("the owner wrote this page")
    }

    /// Counts of keys and memory; those of types are theirs.
    pub(crate) fn stats(&self) -> ShardStats {
        debug_assert!(
            self.policy.as_ref().is_none_or(|policy| policy.records() == self.stats.keys),
            "the policy knows the records that the table leads to"
        );
        ShardStats {
            keys: self.keys(),
            last_sequence: self.log.last_sequence(),
            durable_sequence: self.durable_sequence(),
            pending_keys: self.pending_keys(),
            buckets: self.table.buckets(),
            overflow_buckets: self.table.overflow_buckets(),
            table_bytes: self.table.bytes(),
            ask_only: self.ask_only.records(),
            pinned: self.pins.records(),
            staged_bytes: self.set_aside_bytes,
            heap_bytes: self.cover.heap_bytes(),
            heap_covered_bytes: self.cover.bytes(),
            slots: self.slots.stats(),
            eviction_bytes: self.eviction_bytes(),
            ..self.stats
        }
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

    /// The live, unexpired record of a key. An expired one is removed, unless the
    /// log that is applied has to say so.
    #[inline]
    pub(crate) fn lookup(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Option<Found> {
        if self.lags() || self.is_flushing() {
            self.prepare_lookup(hash, now);
        }
        let found = self.found(key, hash)?;
        if expire::has_expired(found.mutable, now) {
            self.remove_expired(key, found, hash, now);
            return None;
        }
        Some(found)
    }

    #[cold]
    fn prepare_lookup(&mut self, hash: KeyHash, now: Now) {
        self.look_up_pending(hash);
        if self.is_flushing() {
            self.sweep_before(hash, now);
        }
    }

    #[cold]
    fn remove_expired(&mut self, key: &[u8], found: Found, hash: KeyHash, now: Now) {
        if self.is_applying {
            return;
        }
        self.commit(hash.database(), &Command::Del { key }, |store| store.remove(found, hash, now));
        self.stats.expired += 1;
    }

    /// Removes a key that was found, and merges overflow buckets that its
    /// chain no longer needs (H11).
    pub(crate) fn remove(&mut self, found: Found, hash: KeyHash, now: Now) {
        self.take_out(found, now);
        self.shed(self.table.bucket(hash), now);
    }

    /// Merges overflow buckets that a chain no longer needs.
    pub(crate) fn shed(&mut self, bucket: u64, now: Now) {
        self.table.shed(&mut self.owner, &mut self.slots, bucket, now.since_start_s);
    }

    /// Splits a bucket of the table if it is too full: after each new key, when
    /// no place that was found before is needed any more.
    pub(crate) fn grow(&mut self, now: Now) {
        self.sweep_before_split(now);
        let seed = self.options.hash_seed;
        let hash_of = |database, key: &[u8]| KeyHash::within(database, key, seed);
        if self.policy.is_some()
            && let Some(bytes) = self.table.wants_run()
            && let Some(run) = self.make_run(bytes, now)
        {
            self.slots.give_run(run, bytes);
        }
        self.table.grow(&mut self.owner, &mut self.slots, now.since_start_s, hash_of);
    }

    /// Takes a key that was found out: guardian first, then the index. Other
    /// places that were found stay valid.
    pub(crate) fn take_out(&mut self, found: Found, now: Now) {
        let dead = match planted(Plant::RemovedStaysLive) {
            true => slot_of(&self.owner, found.slot.slot),
            false => self.flip_dead(found.slot.slot),
        };
        self.table.remove(&mut self.owner, found.place);
        self.note_removed(dead);
        self.bury(dead, found.mutable, now);
        let expiring = (found.mutable.expires_at_ms != 0) as i64;
        self.stats.count(database_of(&self.owner, dead.slot), -1, -expiring);
    }

    /// Gives a dead record's memory back: a string's at once, an object's in
    /// turns.
    pub(crate) fn bury(&mut self, dead: Slot, mutable: Mutable, now: Now) {
        self.end_dump_of(dead);
        let lease_end_s = self.lease_end_s(mutable, now);
        match kind_of(&self.owner, dead.slot) {
            kind if !kind.is_root() => self.release(dead, lease_end_s, now),
            kind => {
                self.note_buried(dead.slot);
                self.graves.push_back(Grave { kind, root: dead, lease_end_s });
            }
        }
    }

    /// Whether objects that were removed still hold memory.
    #[inline(always)]
    pub(crate) fn has_graves(&self) -> bool {
        !self.graves.is_empty()
    }

    /// All memory of an object but its root record's is released.
    pub(crate) fn end_grave(&mut self, grave: Grave, now: Now) {
        self.note_released(grave.root.slot);
        self.release(grave.root, grave.lease_end_s, now);
    }

    /// The type of what was found.
    #[inline]
    pub(crate) fn kind(&self, found: Found) -> Kind {
        kind_of(&self.owner, found.slot.slot)
    }

    /// End of the lease that a record's word 1 tells, if it still runs. The
    /// word keeps 16 bits; leases are short, so that this is unambiguous but
    /// for a stale end 18 hours ago, which only lengthens a quarantine.
    pub(crate) fn lease_end_s(&self, mutable: Mutable, now: Now) -> Option<u64> {
        if mutable.lease_end_s == 0 && mutable.popularity == 0 {
            return None;
        }
        let longest = lease::hold_s(self.options.lease_min_s.max(LEASE_MAX_S)) + 1;
        let remaining = mutable.lease_end_s.wrapping_sub(now.since_start_s as u16) as i16;
        (remaining > 0 && remaining as u64 <= longest).then(|| now.since_start_s + remaining as u64)
    }
}
