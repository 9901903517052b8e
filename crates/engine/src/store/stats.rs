//! Counts of a shard.

use remora_arena::SlotStats;
use remora_layout::database::{DATABASES, Database};

/// Keys of one database in a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyCounts {
    /// Keys, expired ones that no operation has met yet included.
    pub keys: u64,
    /// Those with an expiry.
    pub expiring: u64,
}

/// Counts of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardStats {
    /// Keys, expired ones that no operation has met yet included.
    pub keys: u64,
    /// Keys with an expiry.
    pub expiring: u64,
    /// Both by database.
    pub databases: [KeyCounts; DATABASES],
    /// Keys removed because they had expired.
    pub expired: u64,
    /// How often a command, a sweep or a tick removed nothing that may have expired, as the log's disk
    /// was far behind.
    pub expiries_put_off: u64,
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
    /// Bytes of log that are kept in memory without a reader, and those that are there.
    pub log_limit_bytes: u64,
    /// See `log_limit_bytes`.
    pub log_bytes: u64,
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
    /// Hints of links that were mended, and mends that were refused as there were too many in one second.
    pub links_mended: u64,
    /// See `links_mended`.
    pub link_mends_refused: u64,
    /// Chunks of lists that LREM and LINSERT have looked at.
    pub list_chunks_searched: u64,
    /// Trees of places.
    pub trees: u64,
    /// Objects in all trees.
    pub tree_objects: u64,
    /// Objects of trees removed because they had expired.
    pub objects_expired: u64,
    /// Bytes of the arena that trees and their objects' records take.
    pub tree_bytes: u64,
    /// Ordered trees, which count as keys too.
    pub ordered_trees: u64,
    /// Bytes of the arena that ordered trees and the records of their values take.
    pub ordered_bytes: u64,
    /// Sorted sets that do not lie whole in their records; they count as keys too.
    pub sorted_sets: u64,
    /// Bytes of the arena that their trees by score take.
    pub sorted_bytes: u64,
    /// Those of them that have a tree of their members' positions, or are getting one.
    pub geo_keys: u64,
    /// Members with a position in these trees.
    pub geo_members: u64,
    /// Bytes of the arena that these trees and their records take.
    pub geo_bytes: u64,
    /// Collections of documents, which count as keys too. Those that are being released are among them.
    pub collections: u64,
    /// Documents of all collections.
    pub documents: u64,
    /// Their bytes, without the records that have them.
    pub document_bytes: u64,
    /// Indexes of collections, those of the `_id`s not counted.
    pub document_indexes: u64,
    /// Bytes of the arena that the nodes of all their indexes take, those of the `_id`s included.
    pub document_node_bytes: u64,
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
    /// The use of the arena's bytes.
    pub slots: SlotStats,
}

impl ShardStats {
    /// Adds this many keys of a database, and this many with an expiry.
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
