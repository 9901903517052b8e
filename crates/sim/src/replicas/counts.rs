//! What happened to replicas.

use std::ops::AddAssign;

/// What happened to the replicas of a world.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReplicaCounts {
    /// Copies of a log that began.
    pub copies: u64,
    /// Times that a log went on without a copy, over another link.
    pub resumes: u64,
    /// Links that were made.
    pub links: u64,
    /// States that were compared.
    pub compared: u64,
    /// Replicas that took their primary's place.
    pub promotions: u64,
    /// Primaries that came back with nothing.
    pub anew: u64,
    /// Primaries that came back with what their disk had.
    pub restarts: u64,
    /// Replicas that were told to copy, as such a primary did not know what it had kept.
    pub resyncs: u64,
    /// Replicas that were told to copy a primary that they followed.
    pub anew_by_order: u64,
    /// Looks at what replicas had taken that are asked for each acknowledgement.
    pub strict: u64,
    /// Reads that replicas answered.
    pub reads: u64,
    /// Those of them that readers did by READs.
    pub one_sided: u64,
    /// Reads that were refused while a replica showed nothing.
    pub hidden: u64,
    /// Reads that were refused as replicas answer none.
    pub no_reads: u64,
    /// Reads whose results may have been too old.
    pub too_stale: u64,
    /// Changes that replicas refused.
    pub read_only: u64,
    /// Primaries of which no one replica had all that was acknowledged: each shard has a set of its
    /// own.
    pub split: u64,
}

impl AddAssign for ReplicaCounts {
    fn add_assign(&mut self, other: Self) {
        self.copies += other.copies;
        self.resumes += other.resumes;
        self.links += other.links;
        self.compared += other.compared;
        self.promotions += other.promotions;
        self.anew += other.anew;
        self.restarts += other.restarts;
        self.resyncs += other.resyncs;
        self.anew_by_order += other.anew_by_order;
        self.strict += other.strict;
        self.reads += other.reads;
        self.one_sided += other.one_sided;
        self.hidden += other.hidden;
        self.no_reads += other.no_reads;
        self.too_stale += other.too_stale;
        self.read_only += other.read_only;
        self.split += other.split;
    }
}
