//! What all threads of a server see of its cluster.

use super::peers::MessageCounts;
use super::published::PublishedTopology;
use crate::thread_counts::count;
use remora_cluster::topology::{GroupId, MemberId, Topology};
use remora_cluster::watcher::Watcher;
use remora_cluster::wire::Envelope;
use remora_layout::limits::CLUSTER_MAIL;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What the watcher does, for people.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Watching {
    /// What groups without a primary wait for.
    pub waits: Vec<String>,
    /// The failovers under way.
    pub failovers: Vec<String>,
    /// The last promotions that operators have asked for, and that were refused.
    pub refusals: Vec<String>,
}

impl Watching {
    pub(super) fn of(watcher: &Watcher, topology: &Topology) -> Self {
        let name = |id| topology.group(id).map_or("?", |of| of.name.as_str());
        let failovers = watcher
            .failovers()
            .map(|(id, reason, stage)| format!("group {}: {reason}; {stage}", name(id)));
        let refusals = watcher
            .refusals()
            .map(|(id, member, why)| format!("group {}: {member} does not lead: {why}", name(id)));
        Self {
            waits: watcher.waits().map(|(_, notice)| notice.to_string()).collect(),
            failovers: failovers.collect(),
            refusals: refusals.collect(),
        }
    }
}

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
    watching: Mutex<Watching>,
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
            watching: Mutex::default(),
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

    /// What this server does as the watcher.
    pub(super) fn set_watching(&self, watching: Watching) {
        *self.watching.lock().unwrap_or_else(PoisonError::into_inner) = watching;
    }

    /// See [`ClusterState::set_watching`]; empty at a server that is not the watcher.
    pub fn watching(&self) -> Watching {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cluster::topology::Instance;
    use remora_cluster::wire::Letter;
    use std::sync::atomic::Ordering;

    #[test]
    fn messages_beyond_the_bound_are_dropped_and_what_is_none_is_refused() {
        let state = ClusterState::new(MemberId(1));
        let instance = |member| Instance { member: MemberId(member), incarnation: 1 };
        let letter = Letter::Promote(MemberId(2));
        let envelope = Envelope { cluster: 7, from: instance(2), to: instance(1), letter };
        let bytes = envelope.encode();
        (0..CLUSTER_MAIL + 10).for_each(|_| state.deliver(&bytes).unwrap());
        assert_eq!(state.messages.refused.load(Ordering::Relaxed), 10);
        assert!(state.deliver(&bytes[1..]).is_err());
        assert_eq!(state.take_mails().unwrap().try_iter().count(), CLUSTER_MAIL);
    }
}
