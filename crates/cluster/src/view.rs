//! What a backend has delivered of what it reads: the rules 3 and 9 of [`crate::coordinator`].

use crate::coordinator::{Event, Standing};
use crate::topology::{Instance, Topology};
use remora_layout::limits::READ_AGAIN_US_PER_KIB;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an instance in a list of those that are present: its name and the name's length.
const LISTED_BYTES: usize = 37;

/// The time between a read of so many bytes and the next read of the same, if it has changed at once.
pub const fn pause_after(bytes: usize) -> Duration {
    Duration::from_micros(bytes as u64 * READ_AGAIN_US_PER_KIB / 1024)
}

/// As [`pause_after`], of a list of so many instances.
pub const fn pause_after_list(instances: usize) -> Duration {
    pause_after(instances * LISTED_BYTES)
}

/// What was delivered last, and whether that was since the session was connected.
#[derive(Default)]
pub struct View {
    topology: Option<Arc<Topology>>,
    is_topology_new: bool,
    members: Option<Vec<Instance>>,
    standing: Option<Standing>,
}

impl View {
    /// The session is connected: all that is read from now on is delivered, though it has not changed.
    pub fn connected(&mut self) {
        (self.is_topology_new, self.members, self.standing) = (false, None, None);
    }

    /// The topology that was delivered last.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.as_ref()
    }

    /// The bytes of the topology were read; `None`: there is none. What is to be delivered.
    ///
    /// A server that lags has an older one than was delivered, or none. Behind a gap the one that is
    /// known comes again then.
    pub fn read_topology(&mut self, bytes: Option<&[u8]>) -> Option<Event> {
        let is_first = !std::mem::replace(&mut self.is_topology_new, true);
        let read = match bytes.map(Topology::decode) {
            None if self.topology.is_some() => None,
            None => return Some(Event::NoTopology),
            Some(Err(error)) => return Some(Event::UnreadableTopology(error)),
            Some(Ok(topology)) => Some(topology),
        };
        let is_older = |known: &Topology, read: &Topology| {
            known.cluster == read.cluster && read.version <= known.version
        };
        let next = match (self.topology.take(), read) {
            (Some(known), None) => known,
            (Some(known), Some(read)) if is_older(&known, &read) => known,
            (_, Some(read)) => {
                let next = Arc::new(read);
                self.topology = Some(Arc::clone(&next));
                return Some(Event::Topology(next));
            }
            (None, None) => return Some(Event::NoTopology),
        };
        self.topology = Some(Arc::clone(&next));
        is_first.then_some(Event::Topology(next))
    }

    /// The members were read. What is to be delivered.
    pub fn read_members(&mut self, mut members: Vec<Instance>) -> Option<Event> {
        members.sort();
        if self.members.as_ref() == Some(&members) {
            return None;
        }
        self.members = Some(members.clone());
        Some(Event::Members(members))
    }

    /// The candidate's standing was read. What is to be delivered.
    pub fn read_standing(&mut self, standing: Standing) -> Option<Event> {
        let is_known = self.standing.replace(standing) == Some(standing);
        (!is_known).then_some(Event::Standing(standing))
    }
}
