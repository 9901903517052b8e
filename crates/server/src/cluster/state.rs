//! What all threads of a server see of its cluster.

use super::peers::MessageCounts;
use super::published::PublishedTopology;
use crate::thread_counts::count;
use remora_cluster::topology::{GroupId, MemberId, Topology};
use remora_cluster::wire::Envelope;
use remora_layout::limits::CLUSTER_MAIL;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's text.
pub struct ClusterState {
    /// This server. It goes with its data: one that has lost them, or keeps none, is another member.
    pub member: MemberId,
    mail: SyncSender<Envelope>,
    /// For the thread of the cluster, which takes it when it starts.
    mails: Mutex<Option<Receiver<Envelope>>>,
    /// Messages between servers.
    pub messages: Arc<MessageCounts>,
    topology: Mutex<Option<Arc<Topology>>>,
    /// What Remora's clients receive of it.
    pub published: Arc<PublishedTopology>,
}

impl ClusterState {
    /// Of this member, which knows nothing of its cluster yet.
    pub fn new(member: MemberId) -> Self {
        let (mail, mails) = sync_channel(CLUSTER_MAIL);
        let mails = Mutex::new(Some(mails));
        Self {
            member,
            mail,
            mails,
            messages: Arc::default(),
            topology: Mutex::default(),
            published: Arc::default(),
        }
    }

    /// Takes what another server has sent. While too much waits it is dropped, as a network would.
    ///
    /// # Errors
    /// It is no message: the text of the reply.
    pub fn deliver(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let envelope =
            Envelope::decode(bytes).ok_or("ERR not a message of a server of a cluster")?;
        if self.mail.try_send(envelope).is_err() {
            count(&self.messages.refused, 1);
        }
        Ok(())
    }

    /// For the one thread of the cluster.
    pub(super) fn take_mails(&self) -> Option<Receiver<Envelope>> {
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// This topology is recorded, or was a moment ago; it has this server in this group.
    pub(super) fn set_topology(&self, topology: &Arc<Topology>, group: Option<GroupId>) {
        self.published.publish(topology, group);
        *self.topology.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(topology));
    }

    /// The newest topology that is known.
    pub fn topology(&self) -> Option<Arc<Topology>> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its version; 0 before.
    #[inline]
    pub fn version(&self) -> u64 {
        self.published.version()
    }
}
