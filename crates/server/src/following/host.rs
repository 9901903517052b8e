//! What a worker that follows needs of its server.

use super::batch::Batch;
use super::fit::Memory;
use super::state::Following;
use crate::inbox::Message;
use crate::shared::Shared;
use remora_replica::FreshAt;
use std::sync::Arc;
use std::time::Duration;

/// A replica around the worker that follows: a server, or one of a simulated world.
pub trait Host {
    /// How far it has come.
    fn following(&self) -> &Arc<Following>;

    /// Its memory, which is to be enough for what the primary has.
    fn memory(&self) -> Memory;

    /// Its port for RESP, for the primary's list of replicas; 0 without one.
    fn resp_port(&self) -> u16;

    /// The incarnation of its process, so that the primary counts it once, whatever sessions it has; 0
    /// without one.
    fn incarnation(&self) -> u64 {
        0
    }

    /// Whether the primary is known to have every acknowledged entry, so that it is copied whatever
    /// its log is: the coordinator of a cluster has named it. Else an operator has to say so.
    fn copies_any(&self) -> bool {
        false
    }

    /// Whether what is here may be cleared, to copy the primary: not while the record of a cluster says that
    /// this server has every acknowledged entry. It may have to lead, if the primary ends.
    fn may_clear(&self) -> bool {
        true
    }

    /// A copy is complete: a disk had better have a snapshot behind it than what was there before, and
    /// the copy.
    fn copied(&self) {}

    /// Hands a batch over to a shard.
    fn give(&self, shard: usize, batch: Arc<Batch>);

    /// Its monotonic clock, ns; not 0.
    fn clock_ns(&self) -> u64;

    /// The clock that its clients know, Unix ms.
    fn unix_ms(&self) -> u64;

    /// The clock of the primary showed this before now, Unix ms.
    fn learn_time(&self, time_ms: u64);

    /// It is as fresh as at this time, or that is not known.
    fn show(&self, fresh: Option<FreshAt>);

    /// It shows nothing to readers, until [`Host::show`]. Returns how long read leases may last.
    fn hide(&self) -> Duration;
}

/// A server that follows one primary.
pub(super) struct ReplicaHost {
    pub shared: Arc<Shared>,
    pub following: Arc<Following>,
}

impl Host for ReplicaHost {
    fn following(&self) -> &Arc<Following> {
        &self.following
    }

    fn memory(&self) -> Memory {
        Memory::of(&self.shared.config)
    }

    fn resp_port(&self) -> u16 {
        self.shared.resp_address.port()
    }

    fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    fn copies_any(&self) -> bool {
        self.shared.config.is_clustered()
    }

    fn may_clear(&self) -> bool {
        self.shared.may_clear()
    }

    fn copied(&self) {
        if let Some(disk) = &self.shared.disk {
            disk.snapshots.want_another();
        }
    }

    fn give(&self, shard: usize, batch: Arc<Batch>) {
        self.shared.shards[shard].inbox.push(Message::Apply(batch));
    }

    fn clock_ns(&self) -> u64 {
        self.shared.view.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.shared.clock.now().unix_ms
    }

    fn learn_time(&self, time_ms: u64) {
        self.shared.view.learn_time(time_ms);
    }

    fn show(&self, fresh: Option<FreshAt>) {
        self.shared.view.show(fresh);
    }

    fn hide(&self) -> Duration {
        self.shared.view.hide()
    }
}
