//! A link over any transport.

use crate::client_regions::CLIENT_LARGE;
use crate::shm::ShmLink;
use crate::tcp::TcpLink;
use crate::verbs::VerbsLink;
use crate::{Completion, Link, LinkError, RemoteAddress, Transport, Waited, Work};
use remora_layout::buffer_name::BufferName;
use std::time::Duration;

/// One link; the transport is decided once, when the session is made.
pub enum AnyLink {
    /// Shared memory.
    Shm(ShmLink),
    /// TCP.
    Tcp(TcpLink),
    /// RDMA.
    Verbs(VerbsLink),
    /// Another implementation of the contract.
    Other(Box<dyn Link + Send + Sync>),
}

impl AnyLink {
    /// From now on the link may keep posts until [`AnyLink::release`], so that they go out
    /// together. It changes nothing if a post takes effect at once.
    #[inline(always)]
    pub fn hold(&mut self) {
        match self {
            Self::Tcp(link) => link.hold(),
            Self::Verbs(link) => link.hold(),
            Self::Shm(_) | Self::Other(_) => {}
        }
    }

    /// Sends the posts since [`AnyLink::hold`].
    #[inline(always)]
    pub fn release(&mut self) {
        match self {
            Self::Tcp(link) => link.release(),
            Self::Verbs(link) => link.release(),
            Self::Shm(_) | Self::Other(_) => {}
        }
    }

    /// Whether a large value may continue: not too many of its bytes wait already (back-pressure).
    pub fn has_room(&self) -> bool {
        match self {
            Self::Shm(_) => true,
            Self::Tcp(link) => link.has_room(),
            Self::Verbs(link) => link.has_room(),
            Self::Other(_) => true,
        }
    }

    /// Posts a WRITE of `bytes`, from byte `at` on, into memory that the peer named in a request.
    /// Over RDMA the peer's device checks the name; on other transports the memory lies in the
    /// peer's region for large replies.
    pub fn post_to_named(&mut self, id: u64, name: &BufferName, at: usize, bytes: &[u8]) {
        let offset = name.address.get().saturating_add(at as u64);
        match self {
            Self::Verbs(link) => link.post_to_named(id, offset, name.key.get(), bytes),
            _ => {
                let to = RemoteAddress { region: CLIENT_LARGE, offset };
                self.post(&[Work::Write { id, to, bytes, imm: None }]);
            }
        }
    }

    /// From now on a caller waits for the completions of this link's WRITEs, each of which says that
    /// the bytes lie in the peer's memory. They come without delay, and the agent of the connection
    /// wakes this shard for them. Other links of the connection cost what they did.
    pub fn await_writes(&mut self, shard: usize) {
        match self {
            Self::Tcp(link) => link.await_writes(shard),
            Self::Verbs(link) => link.await_writes(shard),
            Self::Shm(_) | Self::Other(_) => {}
        }
    }

    /// Whether READs and WRITEs have completed when `post` returns.
    #[inline(always)]
    pub fn completes_at_once(&self) -> bool {
        matches!(self, Self::Shm(_))
    }
}

/// The same call on whichever link it is.
macro_rules! either {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            AnyLink::Shm($link) => $call,
            AnyLink::Tcp($link) => $call,
            AnyLink::Verbs($link) => $call,
            AnyLink::Other($link) => $call,
        }
    };
}

impl Link for AnyLink {
    fn transport(&self) -> Transport {
        either!(self, link => link.transport())
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        either!(self, link => link.reads_cost_peer_cpu())
    }

    #[inline(always)]
    fn post(&mut self, batch: &[Work<'_>]) {
        either!(self, link => link.post(batch));
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Completion> {
        either!(self, link => link.poll())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        either!(self, link => link.wait(timeout))
    }

    #[inline(always)]
    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        either!(self, link => link.landed(at, bytes))
    }

    #[inline(always)]
    fn reserve_landing(&mut self, bytes: usize) {
        either!(self, link => link.reserve_landing(bytes));
    }

    fn failure(&self) -> Option<LinkError> {
        either!(self, link => link.failure())
    }

    fn has_completed(&self) -> bool {
        either!(self, link => link.has_completed())
    }
}
