//! What of a shard's changes is on the disk and at replicas, for clients that ask for more than the
//! durability.
//!
//! Invariant: no request waits here. A request is answered at once, and asked again; so it holds up
//! neither the replies of its session nor memory of the shard.

use super::Shard;
use remora_arena::Journal;
use remora_protocol::Reply;
use remora_protocol::message::Status;

/// How far one replica has the changes of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaMarks {
    /// The last one that it has stored.
    pub stored: u64,
    /// The last one on its disk; 0 without one.
    pub durable: u64,
}

impl<J: Journal> Shard<J> {
    /// What the replicas have, of each one mark.
    pub fn set_replicas(&mut self, replicas: impl Iterator<Item = ReplicaMarks>) {
        self.replicas.clear();
        self.replicas.extend(replicas);
    }

    /// Replicas that have stored the changes up to this sequence.
    pub fn count_stored(&self, sequence: u64) -> usize {
        self.replicas.iter().filter(|of| of.stored >= sequence).count()
    }

    /// Replicas that have them on their disks.
    pub fn count_durable(&self, sequence: u64) -> usize {
        self.replicas.iter().filter(|of| of.durable >= sequence).count()
    }

    /// Tells whether so many replicas have the changes up to a sequence, or all for 0.
    pub(super) fn execute_replicated(&mut self, until: u64, replicas: u8) -> Reply<'_> {
        let until = if until == 0 { self.store.last_sequence() } else { until };
        let have = self.count_stored(until);
        let is_done = have >= usize::from(replicas);
        let status = if is_done { Status::Ok } else { Status::NotDone };
        self.written_value = (have as u64).to_le_bytes().to_vec();
        Reply { status, value: Some(&self.written_value), ..Reply::number(until as i64) }
    }

    /// Changes up to this sequence are on the disk of the log. The caller calls it before the first
    /// command, too, if there is a disk.
    pub fn set_synced(&mut self, sequence: u64) {
        self.synced = self.synced.max(Some(sequence));
    }

    /// A client waits until the changes so far are on the disk.
    pub fn want_sync(&mut self) {
        self.is_sync_wanted = true;
    }

    /// Whether a client has asked for a sync: the caller has the log written and synced, and then
    /// calls [`Shard::begin_sync`].
    #[inline]
    pub fn wants_sync(&self) -> bool {
        self.is_sync_wanted
    }

    /// A sync of all changes so far was asked for.
    pub fn begin_sync(&mut self) {
        self.is_sync_wanted = false;
    }

    /// Tells whether the changes up to a sequence, or all for 0, are on the disk.
    pub(super) fn execute_synced(&mut self, until: u64, begins: bool) -> Reply<'_> {
        let last = self.store.last_sequence();
        let Some(synced) = self.synced else { return Reply::status(Status::NothingKept) };
        let until = if until == 0 { last } else { until };
        let status = match until <= synced {
            true => Status::Ok,
            false if !self.store.keeps => Status::NotKept,
            false => Status::NotDone,
        };
        // A sequence that is not there yet is nothing to begin for.
        self.is_sync_wanted |= begins && status == Status::NotDone && until <= last;
        self.written_value = synced.to_le_bytes().to_vec();
        Reply { status, value: Some(&self.written_value), ..Reply::number(until as i64) }
    }
}
