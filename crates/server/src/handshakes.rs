//! TLS handshakes that are under way, in a thread that serves no client: a handshake takes
//! a signature, for which no shard has the time.
//!
//! Invariants:
//! * there are [`MAX_HANDSHAKES`] at most, of one address [`MAX_HANDSHAKES_OF_ADDRESS`]; one more drops
//!   the oldest of them: a flood of clients that say nothing drops clients that say nothing, and one
//!   that speaks is done after two round trips;
//! * none takes longer than [`HANDSHAKE_MS`].

use crate::address_limit::host_of;
use crate::thread_counts::count;
use mio::{Interest, Registry, Token};
use remora_layout::limits::{HANDSHAKE_MS, MAX_HANDSHAKES, MAX_HANDSHAKES_OF_ADDRESS};
use remora_tls::{Progress, TlsSession};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Counts since the start.
#[derive(Default)]
pub struct HandshakeCounts {
    /// They came to their end.
    pub done: AtomicU64,
    /// The client spoke no TLS, was not trusted, did not trust the server, or went.
    pub failed: AtomicU64,
    /// They took too long.
    pub timed_out: AtomicU64,
    /// They were dropped for newer ones.
    pub dropped: AtomicU64,
}

struct Handshake {
    socket: TcpStream,
    session: TlsSession,
    peer: SocketAddr,
    since: Instant,
}

/// The handshakes of one thread, over sockets that never block. Their tokens are numbers from
/// `first_token` on, of which none comes twice, so that the lowest is the oldest.
pub struct Handshakes {
    open: BTreeMap<usize, Handshake>,
    of_address: HashMap<IpAddr, usize>,
    next_token: usize,
    /// Most of them, and most of one address.
    most: (usize, usize),
}

impl Handshakes {
    /// None yet.
    pub fn new(first_token: usize) -> Self {
        let most = (MAX_HANDSHAKES, MAX_HANDSHAKES_OF_ADDRESS);
        Self { open: BTreeMap::new(), of_address: HashMap::new(), next_token: first_token, most }
    }

    /// Begins one. Its first step follows from its first event, which comes at once if it can be read.
    ///
    /// # Errors
    /// The kernel cannot watch the socket.
    pub fn begin(
        &mut self,
        registry: &Registry,
        (socket, session, peer): (TcpStream, TlsSession, SocketAddr),
        counts: &HandshakeCounts,
    ) -> std::io::Result<()> {
        let ip = host_of(peer);
        let (most, most_of_address) = self.most;
        let is_one_too_many = self.of_address.get(&ip).is_some_and(|&many| many >= most_of_address);
        let mut oldest =
            self.open.iter().filter(|(_, of)| !is_one_too_many || host_of(of.peer) == ip);
        if is_one_too_many || self.open.len() >= most {
            let oldest = oldest.next().map(|(&token, _)| token);
            drop(oldest.and_then(|token| self.take(registry, token)));
            count(&counts.dropped, 1);
        }
        let token = self.next_token;
        self.next_token += 1;
        let fd = socket.as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut mio::unix::SourceFd(&fd), Token(token), interest)?;
        *self.of_address.entry(ip).or_default() += 1;
        self.open.insert(token, Handshake { socket, session, peer, since: Instant::now() });
        Ok(())
    }

    fn take(&mut self, registry: &Registry, token: usize) -> Option<Handshake> {
        let taken = self.open.remove(&token)?;
        let fd = taken.socket.as_raw_fd();
        // Its end would end the watch, too.
        let _ = registry.deregister(&mut mio::unix::SourceFd(&fd));
        let ip = host_of(taken.peer);
        if let Some(many) = self.of_address.get_mut(&ip) {
            *many -= 1;
            if *many == 0 {
                self.of_address.remove(&ip);
            }
        }
        Some(taken)
    }

    /// A step of the one with this token. What is over is returned.
    pub fn step(
        &mut self,
        registry: &Registry,
        token: usize,
        counts: &HandshakeCounts,
    ) -> Option<(TcpStream, TlsSession, SocketAddr)> {
        let handshake = self.open.get_mut(&token)?;
        match handshake.session.handshake(&mut handshake.socket) {
            Ok(Progress::WantsRead | Progress::WantsWrite) => None,
            Ok(Progress::Done) => {
                let Handshake { socket, session, peer, .. } = self.take(registry, token)?;
                count(&counts.done, 1);
                Some((socket, session, peer))
            }
            Err(error) => {
                count(&counts.failed, 1);
                tracing::debug!(peer = %handshake.peer, "{error}");
                drop(self.take(registry, token));
                None
            }
        }
    }

    /// When the oldest has taken too long.
    fn deadline(&self) -> Option<Instant> {
        let oldest = self.open.values().next()?;
        Some(oldest.since + Duration::from_millis(HANDSHAKE_MS))
    }

    /// How long the thread may sleep.
    pub fn timeout(&self) -> Option<Duration> {
        self.deadline().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Drops those that have taken too long.
    pub fn end_late(&mut self, registry: &Registry, counts: &HandshakeCounts) {
        self.end_late_at(registry, Instant::now(), counts);
    }

    fn end_late_at(&mut self, registry: &Registry, now: Instant, counts: &HandshakeCounts) {
        while self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some((&token, _)) = self.open.first_key_value()
        {
            drop(self.take(registry, token));
            count(&counts.timed_out, 1);
        }
    }
}

#[cfg(test)]
mod tests;
