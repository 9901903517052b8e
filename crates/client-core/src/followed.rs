//! What a client needs of a session to follow a cluster: the topology that the server knows, and
//! whether a failed operation may have changed anything.

use crate::error::Error;
use crate::session::Session;
use remora_layout::limits::{MAX_TOPOLOGY_BYTES, TOPOLOGY_PART_BYTES};
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::time::Duration;

/// Requests for one topology: it may change some times while its parts are fetched.
const MOST_PARTS: usize = 4 * (MAX_TOPOLOGY_BYTES / TOPOLOGY_PART_BYTES + 1);

impl Session {
    /// The topology of the server's cluster, encoded, as the server knows it now; `None` if it belongs
    /// to no cluster, or does not know the topology yet. Any server answers: a replica too, and one
    /// without its lease.
    ///
    /// # Errors
    /// See [`Error`]. Refused with [`Status::TryAgain`] if it changed all the time.
    pub fn topology(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.core.begin()?;
        let (mut version, mut bytes) = (0, Vec::new());
        for _ in 0..MOST_PARTS {
            let from = bytes.len() as u32;
            let ticket = self.core.send_to(0, &Command::Topology { from })?;
            let answer = self.core.collect(0, ticket)?;
            match answer.status {
                Status::Ok => {}
                Status::NotFound => return Ok(None),
                other => return Err(Error::Refused(other)),
            }
            if from != 0 && answer.number != version {
                bytes.clear();
                continue;
            }
            version = answer.number;
            let part = answer.value.map_or(&[][..], |range| self.core.in_reply(range));
            bytes.extend_from_slice(part);
            if part.len() < TOPOLOGY_PART_BYTES {
                return Ok(Some(bytes));
            }
        }
        Err(Error::Refused(Status::TryAgain))
    }

    /// The low 16 bits of the version of the topology that the server knows, by the last heartbeat; 0
    /// before the first one, and without a cluster.
    #[inline]
    pub fn told_topology(&self) -> u16 {
        self.core.asker.endpoint.lease.topology()
    }

    /// Requests for a change that the session has sent, or has begun to send, so far, except those that
    /// a server refused because it may change nothing now. If an operation fails and the number is
    /// still the same, the operation has changed nothing.
    pub fn changes_attempted(&self) -> u64 {
        self.core.asker.changes_attempted
    }

    /// Pointers that the session has in a cache of its own.
    pub fn known_pointers(&self) -> usize {
        self.core.directory.known_pointers()
    }

    /// How long each further operation may wait for its reply.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.core.asker.endpoint.timeout = timeout;
    }
}
