//! Proof that the rare paths ran: each is a count that production code keeps
//! anyway, or something that a world's client met.

use remora_client_core::{Counts, Error, HashEvents, OrderedEvents, TreeEvents};
use remora_engine::ShardStats;
use remora_protocol::message::Status;
use std::collections::BTreeMap;

/// A rare path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Probe {
    /// A cached pointer was read.
    CachedRead,
    /// A READ found a dead or another record.
    StalePointer,
    /// A READ was torn, or led to a bucket that the key had left.
    TornRead,
    /// A pointer's lease had ended.
    LeaseExpired,
    /// The read lease had lapsed.
    RightLapsed,
    /// Reading did not conclude, and the server was asked after all.
    AskedAfterRead,
    /// A key disappeared because its time was over.
    Expired,
    /// A record was evicted.
    Evicted,
    /// An object of parts was evicted.
    ObjectEvicted,
    /// A record was moved so that pages came free.
    Moved,
    /// The table grew.
    TableGrew,
    /// A chain of buckets got an overflow bucket.
    Overflow,
    /// A write was refused because memory was full.
    OutOfMemory,
    /// A link failed with operations under way.
    LinkLost,
    /// A server ended a session, or another incarnation began.
    SessionEnded,
    /// A call timed out while heartbeats went on.
    TimedOut,
    /// One did after they had stopped.
    ServerSilent,
    /// A RESP connection's thread executed a command in its own shard.
    RespHere,
    /// An optimistic read behind RESP concluded.
    RespRead,
    /// One did not, and the shard was asked.
    RespAsked,
    /// An object was changed during a look at it, and the look saw a mixture.
    RespTorn,
    /// A RESP connection went from one thread to another.
    RespMoved,
    /// A RESP connection was lost with requests under way.
    RespLost,
    /// A tree was searched by READs.
    TreeRead,
    /// A walk over a tree began again, as entries had left a node.
    TreeBeganAgain,
    /// Kept nodes of an ordered tree led astray.
    TreeStaleKept,
    /// A tree's node or header was read while it was being changed.
    TreeTorn,
    /// A tree that was read had been removed.
    TreeGone,
    /// A search was answered in several turns of its shard.
    TreeInParts,
    /// Reading a tree did not conclude, and the server was asked after all.
    TreeAskedAfterRead,
    /// A refined search was made by READs, through pointers to records.
    TreeRefinedRead,
    /// Such a pointer led to a removed record.
    TreeRecordStale,
    /// A field of a hash with parts was read by READs.
    HashRead,
    /// A field was changed or removed since a client had read it.
    HashFieldGone,
    /// A hash was removed, or written anew, since a client had read it.
    HashGone,
    /// A hash had expired when it was read.
    HashExpired,
    /// A hash that a client had read whole has parts.
    HashGrown,
    /// All fields of a hash were given in several turns of its shard.
    HashInTurns,
    /// A hash of more than one piece went to another key.
    HashMoved,
    /// A tree of more than one piece went to another key.
    TreeMoved,
    /// One that goes from key to key was searched by READs.
    TreeMovedRead,
    /// A reply was held back until it was durable.
    ReplyHeld,
    /// A change was lost with the process, as it was not durable.
    ChangeLost,
    /// After a disk had failed, a key of its shard was read by READs.
    DiskFailedRead,
    /// One was asked for, and the reply came.
    DiskFailedAsked,
    /// A call timed out while replies waited for a disk that had failed.
    DiskTimedOut,
    /// The disk refused something of the log.
    DiskRefused,
    /// It took everything again.
    DiskMended,
    /// A change was refused because the disk took nothing.
    NotKept,
    /// A restart left the torn end of a segment out.
    TornTail,
    /// A segment was long enough, and the next one began.
    SegmentBegun,
    /// A segment that a snapshot covers was removed.
    SegmentDropped,
    /// A snapshot was written.
    SnapshotWritten,
    /// One was given up, or the disk refused it.
    SnapshotGivenUp,
    /// The process died while one was under way.
    SnapshotInterrupted,
    /// A restart loaded one.
    SnapshotLoaded,
    /// A restart had another number of shards than the log.
    ShardsChanged,
    /// A request waited for a list.
    ListWaited,
    /// One that had waited got an element.
    ListServed,
    /// The order of one that waits and of a later call was checked.
    ListOrdered,
    /// One ended without.
    ListWaitEnded,
    /// One ended because the server's role changed.
    RoleEndedWait,
    /// A list was read by READs.
    ListRead,
    /// A member of a set was looked for by READs.
    SetRead,
    /// What a link leads to was read by READs.
    KeyLinkRead,
    /// A link's hint did not lead to its target.
    KeyLinkStale,
    /// A link was followed whose hint was read from a server that is gone.
    KeyLinkOfFormer,
    /// Nothing was there, as the server said.
    KeyLinkGone,
    /// The owner of a link mended its hint.
    KeyLinkMended,
    /// A key of an ordered tree was looked up by READs.
    OrderedRead,
    /// A range of one was read by READs.
    OrderedRangeRead,
    /// A walk over one began again, as nodes had gone.
    OrderedBeganAgain,
    /// Kept nodes of an ordered tree led astray.
    OrderedLedAstray,
    /// An ordered tree was no longer where it was known.
    OrderedGone,
    /// One may have expired when it was read.
    OrderedExpired,
    /// The score of a member of a sorted set was read by READs.
    SortedScoreRead,
    /// A range of scores was read by READs.
    SortedRangeRead,
    /// Members of a sorted set were taken from an end.
    SortedPopped,
    /// A member of a range of scores was removed with it.
    SortedRangeRemoved,
    /// A document was read by READs.
    DocumentRead,
    /// A document was found by an index.
    DocumentsByIndex,
    /// An index was made in several steps.
    IndexInSteps,
    /// A document was removed with all of its group.
    DocumentsRemoved,
}

/// The kinds of data that worlds may have beside those of each seed.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Lists and sets.
    pub lists: bool,
    /// Links.
    pub links: bool,
    /// Ordered trees.
    pub ordered: bool,
    /// Sorted sets.
    pub sorted: bool,
    /// Collections.
    pub collections: bool,
}

impl Probe {
    /// Those of worlds with lists.
    pub const OF_LISTS: [Self; 7] = [
        Self::ListWaited,
        Self::ListServed,
        Self::ListOrdered,
        Self::ListWaitEnded,
        Self::RoleEndedWait,
        Self::ListRead,
        Self::SetRead,
    ];

    /// Those of worlds with links.
    pub const OF_LINKS: [Self; 5] = [
        Self::KeyLinkRead,
        Self::KeyLinkStale,
        Self::KeyLinkOfFormer,
        Self::KeyLinkGone,
        Self::KeyLinkMended,
    ];

    /// Those of worlds with ordered trees.
    pub const OF_ORDERED: [Self; 6] = [
        Self::OrderedRead,
        Self::OrderedRangeRead,
        Self::OrderedBeganAgain,
        Self::OrderedLedAstray,
        Self::OrderedGone,
        Self::OrderedExpired,
    ];

    /// Those of worlds with sorted sets.
    pub const OF_SORTED: [Self; 4] = [
        Self::SortedScoreRead,
        Self::SortedRangeRead,
        Self::SortedPopped,
        Self::SortedRangeRemoved,
    ];

    /// Those of worlds with collections.
    pub const OF_COLLECTIONS: [Self; 4] =
        [Self::DocumentRead, Self::DocumentsByIndex, Self::IndexInSteps, Self::DocumentsRemoved];

    /// Those that worlds reach: of some kinds of data only if they have some.
    pub fn expected(kinds: Kinds) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |probe| {
            (kinds.lists || !Self::OF_LISTS.contains(probe))
                && (kinds.links || !Self::OF_LINKS.contains(probe))
                && (kinds.ordered || !Self::OF_ORDERED.contains(probe))
                && (kinds.sorted || !Self::OF_SORTED.contains(probe))
                && (kinds.collections || !Self::OF_COLLECTIONS.contains(probe))
        })
    }

    /// All of them.
    pub const ALL: [Self; 83] = [
        Self::CachedRead,
        Self::StalePointer,
        Self::TornRead,
        Self::LeaseExpired,
        Self::RightLapsed,
        Self::AskedAfterRead,
        Self::Expired,
        Self::Evicted,
        Self::ObjectEvicted,
        Self::Moved,
        Self::TableGrew,
        Self::Overflow,
        Self::OutOfMemory,
        Self::LinkLost,
        Self::SessionEnded,
        Self::TimedOut,
        Self::ServerSilent,
        Self::RespHere,
        Self::RespRead,
        Self::RespAsked,
        Self::RespTorn,
        Self::RespMoved,
        Self::RespLost,
        Self::TreeRead,
        Self::TreeBeganAgain,
        Self::TreeStaleKept,
        Self::TreeTorn,
        Self::TreeGone,
        Self::TreeInParts,
        Self::TreeAskedAfterRead,
        Self::TreeRefinedRead,
        Self::TreeRecordStale,
        Self::HashRead,
        Self::HashFieldGone,
        Self::HashGone,
        Self::HashExpired,
        Self::HashGrown,
        Self::HashInTurns,
        Self::HashMoved,
        Self::TreeMoved,
        Self::TreeMovedRead,
        Self::ReplyHeld,
        Self::ChangeLost,
        Self::DiskFailedRead,
        Self::DiskFailedAsked,
        Self::DiskTimedOut,
        Self::DiskRefused,
        Self::DiskMended,
        Self::NotKept,
        Self::TornTail,
        Self::SegmentBegun,
        Self::SegmentDropped,
        Self::SnapshotWritten,
        Self::SnapshotGivenUp,
        Self::SnapshotInterrupted,
        Self::SnapshotLoaded,
        Self::ShardsChanged,
        Self::ListWaited,
        Self::ListServed,
        Self::ListOrdered,
        Self::ListWaitEnded,
        Self::RoleEndedWait,
        Self::ListRead,
        Self::SetRead,
        Self::KeyLinkRead,
        Self::KeyLinkStale,
        Self::KeyLinkOfFormer,
        Self::KeyLinkGone,
        Self::KeyLinkMended,
        Self::OrderedRead,
        Self::OrderedRangeRead,
        Self::OrderedBeganAgain,
        Self::OrderedLedAstray,
        Self::OrderedGone,
        Self::OrderedExpired,
        Self::SortedScoreRead,
        Self::SortedRangeRead,
        Self::SortedPopped,
        Self::SortedRangeRemoved,
        Self::DocumentRead,
        Self::DocumentsByIndex,
        Self::IndexInSteps,
        Self::DocumentsRemoved,
    ];
}

/// How often each was reached.
#[derive(Clone, Default, Debug)]
pub struct Probes(BTreeMap<Probe, u64>);

impl Probes {
    /// Adds to the number of times that it was reached.
    pub fn add(&mut self, probe: Probe, times: u64) {
        if times > 0 {
            *self.0.entry(probe).or_default() += times;
        }
    }

    /// Adds a session's counters.
    pub fn add_session(&mut self, counts: &Counts) {
        self.add(Probe::CachedRead, counts.read.min(counts.hits));
        self.add(Probe::StalePointer, counts.stale);
        self.add(Probe::TornRead, counts.retries);
        self.add(Probe::LeaseExpired, counts.lease_expired);
        self.add(Probe::RightLapsed, counts.read_lease_lapsed);
    }

    /// Adds the search counters of a tree's view.
    pub fn add_view(&mut self, events: &TreeEvents) {
        self.add(Probe::TreeBeganAgain, events.began_again);
        self.add(Probe::TreeStaleKept, events.stale_kept);
        self.add(Probe::TreeTorn, events.torn);
        self.add(Probe::TreeGone, events.header_gone);
    }

    /// Adds the read counters of a hash's view.
    pub fn add_hash(&mut self, events: &HashEvents) {
        self.add(Probe::HashRead, events.part_read);
        self.add(Probe::HashFieldGone, events.part_gone);
        self.add(Probe::HashGone, events.root_gone);
        self.add(Probe::HashExpired, events.expired);
        self.add(Probe::HashGrown, events.grown);
    }

    /// Adds the read counters of an ordered tree's view.
    pub fn add_ordered(&mut self, events: &OrderedEvents) {
        self.add(Probe::OrderedBeganAgain, events.began_again);
        self.add(Probe::OrderedLedAstray, events.led_astray);
        self.add(Probe::OrderedGone, events.gone);
        self.add(Probe::OrderedExpired, events.expired);
    }

    /// Adds a shard's counters; it began with this many buckets.
    pub fn add_shard(&mut self, stats: &ShardStats, began_with_buckets: u64) {
        self.add(Probe::Expired, stats.expired);
        self.add(Probe::Evicted, stats.evicted);
        self.add(Probe::ObjectEvicted, stats.objects_evicted);
        self.add(Probe::Moved, stats.moved);
        self.add(Probe::TableGrew, stats.buckets.saturating_sub(began_with_buckets));
        self.add(Probe::Overflow, stats.overflow_buckets);
    }

    /// How a call failed.
    pub fn add_error(&mut self, error: Error) {
        match error {
            Error::Refused(Status::OutOfMemory) => self.add(Probe::OutOfMemory, 1),
            Error::Refused(Status::NotKept) => self.add(Probe::NotKept, 1),
            Error::Link(_) | Error::ServerGone => self.add(Probe::LinkLost, 1),
            Error::SessionEnded => self.add(Probe::SessionEnded, 1),
            Error::TimedOut => self.add(Probe::TimedOut, 1),
            Error::ServerSilent => self.add(Probe::ServerSilent, 1),
            _ => {}
        }
    }

    /// Adds another world's.
    pub fn add_all(&mut self, others: &Self) {
        for (&probe, &times) in &others.0 {
            self.add(probe, times);
        }
    }

    /// How often this one was reached.
    pub fn reached(&self, probe: Probe) -> u64 {
        self.0.get(&probe).copied().unwrap_or(0)
    }

    /// Those that never were; of some kinds of data only if the worlds have some.
    pub fn missed(&self, kinds: Kinds) -> Vec<Probe> {
        let all = Probe::expected(kinds);
        all.filter(|&probe| self.reached(probe) == 0).collect()
    }
}
