//! One shard: the single writer of one arena (HydraDB 4.1.1, H2, H3).
//!
//! What it keeps true: a change is logged before any reader can see it; a new
//! record is complete before it is reachable; the old record of a key is dead
//! before the new one is reachable, so that no two paths lead to two values.

mod ask_only;
mod audit;
mod defragment;
mod download;
mod evict;
mod expire;
mod geo;
mod lease;
mod read;
mod string;
mod trees;
mod upload;
mod write;

pub use download::{Download, Outcome, STREAM_CLASS};
pub use geo::GeoWalk;
pub use trees::TreeSearch;
pub use upload::{LargeSet, Upload};

use crate::command::{Command, Reply};
use crate::evict::{Eviction, Policy};
use crate::oplog::OpLog;
use remora_arena::{
    Journal, NoJournal, Owner, SlotStats, Slots, flip_dead, mutable_of, publish_live,
};
use remora_index::hash::{Place, Table, TableRef};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, ARENA_MAGIC, word};
use remora_layout::bucket::{BUCKET_BYTES, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::hello::PROTOCOL_VERSION;
use remora_layout::limits::{LEASE_MAX_S, LEASE_MIN_S, OPLOG_BYTES};
use remora_layout::plant::{Plant, planted};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::Mutable;

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
    /// Bytes of freed slots that may wait for leases; 0 for a sixteenth.
    pub quarantine_bytes: u64,
    /// What happens when the arena is full.
    pub eviction: Eviction,
    /// Slots are used no more once they have had so many generations: all that
    /// 32 bits hold, but in tests and worlds, where it is to happen often.
    pub last_generation: u32,
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
            quarantine_bytes: 0,
            eviction: Eviction::None,
            last_generation: u32::MAX,
        }
    }
}

/// Counts of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardStats {
    /// Keys, expired ones that nobody has met yet included.
    pub keys: u64,
    /// Keys with an expiry.
    pub expiring: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// Keys removed because memory was full.
    pub evicted: u64,
    /// Bytes that the eviction policy takes on the heap, beside the arena.
    pub eviction_bytes: u64,
    /// GETs that found their key.
    pub hits: u64,
    /// GETs that did not.
    pub misses: u64,
    /// Sequence of the last change.
    pub last_sequence: u64,
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
    /// Bytes of the arena that trees and their objects' bytes take.
    pub tree_bytes: u64,
    /// GEO keys, which count as keys too.
    pub geo_keys: u64,
    /// Members of all GEO keys.
    pub geo_members: u64,
    /// Bytes of the arena that GEO keys take.
    pub geo_bytes: u64,
    /// Where the arena's bytes are.
    pub slots: SlotStats,
}

/// A shard. See the module's text.
pub struct Shard<J: Journal = NoJournal> {
    owner: Owner<J>,
    slots: Slots,
    table: Table,
    options: ShardOptions,
    log: OpLog,
    stats: ShardStats,
    /// The main bucket that the sweep for expired keys looks at next.
    expire_cursor: u64,
    defragment: defragment::Progress,
    /// Chooses what is evicted; none if nothing is.
    policy: Option<Policy>,
    making_room: evict::MakingRoom,
    pins: download::Pins,
    ask_only: ask_only::AskOnly,
    /// Pointer to the record written last: a writer may read it back without
    /// asking for it first.
    last_put: RemotePointer,
    /// Where a value that is changed piecemeal is made, kept between commands.
    edited: Vec<u8>,
    trees: trees::Trees,
    geo: geo::GeoKeys,
}

/// A key that was found: where its slot word stands, what it says, word 1.
#[derive(Clone, Copy)]
struct Found {
    place: Place,
    slot: BucketSlot,
    mutable: Mutable,
}

/// Bytes that an arena whose table begins with this many buckets needs before
/// its first slot.
pub const fn table_end(buckets: u64) -> u64 {
    ARENA_HEADER_BYTES as u64 + buckets * BUCKET_BYTES as u64
}

impl<J: Journal> Shard<J> {
    /// A shard over a fresh, zeroed region; writes the arena's header.
    pub fn new(mut owner: Owner<J>, options: ShardOptions) -> Self {
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
        owner.store_release(word::MAGIC, ARENA_MAGIC);
        Self {
            owner,
            slots,
            table,
            options,
            log: OpLog::new(options.epoch, OPLOG_BYTES),
            stats: ShardStats::default(),
            expire_cursor: 0,
            defragment: defragment::Progress::default(),
            policy: evict::policy(options.eviction, region_bytes),
            making_room: evict::MakingRoom::default(),
            pins: download::Pins::default(),
            ask_only: ask_only::AskOnly::default(),
            last_put: RemotePointer::NONE,
            edited: Vec::new(),
            trees: trees::Trees::default(),
            geo: geo::GeoKeys::default(),
        }
    }

    /// The hash of a key in this cluster.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.options.hash_seed)
    }

    /// What a reader needs to walk this shard's table, as of now.
    pub fn table_ref(&self) -> TableRef {
        TableRef::read(self.options.region, self.owner.words()).expect("the owner wrote this page")
    }

    /// The arena, for its owner's thread.
    pub fn owner(&self) -> &Owner<J> {
        &self.owner
    }

    /// Counts.
    pub fn stats(&self) -> ShardStats {
        debug_assert!(
            self.policy.as_ref().is_none_or(|policy| policy.records() == self.stats.keys),
            "the policy knows what the table leads to"
        );
        let (trees, geo) = (self.trees.totals(), self.geo.totals());
        ShardStats {
            keys: self.stats.keys + self.geo.len(),
            expiring: self.stats.expiring + self.geo.expiring(),
            geo_keys: self.geo.len(),
            geo_members: geo.members,
            geo_bytes: geo.node_bytes + geo.data_bytes,
            trees: self.trees.len(),
            tree_objects: trees.objects,
            tree_bytes: trees.node_bytes + trees.data_bytes,
            last_sequence: self.log.last_sequence(),
            buckets: self.table.buckets(),
            overflow_buckets: self.table.overflow_buckets(),
            table_bytes: self.table.bytes(),
            ask_only: self.ask_only.records(),
            pinned: self.pins.records(),
            slots: self.slots.stats(),
            eviction_bytes: self.policy.as_ref().map_or(0, |policy| policy.heap_bytes() as u64),
            ..self.stats
        }
    }

    /// The operation log.
    pub fn log(&self) -> &OpLog {
        &self.log
    }

    /// First of two prefetches of a key: its bucket.
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) {
        self.table.prefetch(&self.owner, hash);
    }

    /// Second prefetch, a while later: its record.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: KeyHash) {
        self.table.prefetch_record(&self.owner, hash);
    }

    /// Executes one command. `hash` is of the command's key, and ignored for
    /// commands without one.
    #[inline]
    pub fn execute(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) -> Reply<'_> {
        if !self.geo.is_empty() && self.is_geo_key(command, hash, now) {
            return self.on_geo_key(command, hash, now);
        }
        match *command {
            Command::Get { key } => self.get(key, hash, now),
            Command::Set { key, value, condition, expiry, get } => {
                self.set(write::Set { key, hash, value, condition, expiry, get }, now)
            }
            Command::Del { key } => self.del(key, hash, now),
            Command::Exists { key } => self.exists(key, hash, now),
            Command::Incr { key, by } => self.incr(key, hash, by, now),
            Command::Expire { key, at_ms, condition } => {
                self.expire(key, hash, at_ms, condition, now)
            }
            Command::Ttl { key } => self.ttl(key, hash, now),
            Command::MultiSet { pairs } => self.multi_set(pairs, now),
            Command::Append { key, value } => self.append(key, hash, value, now),
            Command::SetRange { key, offset, value } => {
                self.set_range(key, hash, offset, value, now)
            }
            Command::GetRange { key, start, end } => self.get_range(key, hash, start, end, now),
            Command::SetBit { key, offset, bit } => self.set_bit(key, hash, offset, bit, now),
            Command::GetBit { key, offset } => self.get_bit(key, hash, offset, now),
            Command::StrLen { key } => self.strlen(key, hash, now),
            Command::GetDel { key } => self.get_del(key, hash, now),
            Command::GetEx { key, at_ms } => self.get_ex(key, hash, at_ms, now),
            Command::Tree { name, request } => self.tree(name, request, now),
            Command::Geo { key, command } => self.geo(key, hash, command, now),
            Command::Count => Reply::number((self.stats.keys + self.geo.len()) as i64),
            Command::Flush => self.flush(now),
        }
    }

    /// The live, unexpired record of a key. An expired one is removed.
    #[inline]
    fn lookup(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Option<Found> {
        let (place, slot) = self.table.find(&self.owner, key, hash)?;
        let found = Found { place, slot, mutable: mutable_of(&self.owner, slot.slot) };
        if expire::has_expired(found.mutable, now) {
            self.log.append(&Command::Del { key });
            self.remove(found, hash, now);
            self.stats.expired += 1;
            return None;
        }
        Some(found)
    }

    /// Removes a key that was found, and merges overflow buckets that its
    /// chain no longer needs (H11).
    fn remove(&mut self, found: Found, hash: KeyHash, now: Now) {
        self.take_out(found, now);
        self.shed(self.table.bucket(hash), now);
    }

    /// Merges overflow buckets that a chain no longer needs.
    fn shed(&mut self, bucket: u64, now: Now) {
        self.table.shed(&mut self.owner, &mut self.slots, bucket, now.since_start_s);
    }

    /// Splits a bucket of the table if it is too full: after each new key, when
    /// no place that was found before is needed any more.
    fn grow(&mut self, now: Now) {
        let seed = self.options.hash_seed;
        let hash_of = |key: &[u8]| KeyHash::of(key, seed);
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
    fn take_out(&mut self, found: Found, now: Now) {
        let dead = flip_dead(&mut self.owner, found.slot.slot);
        if planted(Plant::RemovedStaysLive) {
            publish_live(&mut self.owner, dead);
        }
        self.table.remove(&mut self.owner, found.place);
        self.note_removed(dead);
        let lease_end_s = self.lease_end_s(found.mutable, now);
        self.release(dead, lease_end_s, now);
        self.stats.keys -= 1;
        self.stats.expiring -= (found.mutable.expires_at_ms != 0) as u64;
    }

    /// End of the lease that a record's word 1 tells, if it still runs. The
    /// word keeps 16 bits; leases are short, so that this is unambiguous but
    /// for a stale end 18 hours ago, which only lengthens a quarantine.
    fn lease_end_s(&self, mutable: Mutable, now: Now) -> Option<u64> {
        if mutable.lease_end_s == 0 && mutable.popularity == 0 {
            return None;
        }
        let longest = lease::hold_s(self.options.lease_min_s.max(LEASE_MAX_S)) + 1;
        let remaining = mutable.lease_end_s.wrapping_sub(now.since_start_s as u16) as i16;
        (remaining > 0 && remaining as u64 <= longest).then(|| now.since_start_s + remaining as u64)
    }
}
