//! Messages to other servers of the cluster: a thread and a connection for each of them.
//!
//! A message goes as a command over RESP, and its reply only says that it has come. Messages may be
//! lost: one that cannot be sent at once, or to a server that does not answer, is dropped and counted.
//!
//! Invariants: the caller never waits; so many messages wait for each server, and no more; there are
//! no more threads than servers that may be in a topology's failover at once.

use crate::thread_counts::count;
use remora_cluster::wire::MAX_ENVELOPE_BYTES;
use remora_fabric::vital_thread;
use remora_layout::limits::{PEER_LINKS, PEER_MESSAGES, PEER_TIMEOUT_MS};
use remora_resp::wire::encode;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(PEER_TIMEOUT_MS);

/// Messages between servers, since the start.
#[derive(Default)]
pub struct MessageCounts {
    /// Messages that another server has taken.
    pub delivered: AtomicU64,
    /// Messages that were not sent, or that the other server has not taken.
    pub dropped: AtomicU64,
    /// Messages of other servers that came while too many waited.
    pub refused: AtomicU64,
}

/// See the module's text.
pub struct Peers {
    links: HashMap<String, SyncSender<Vec<u8>>>,
    counts: Arc<MessageCounts>,
}

impl Peers {
    /// Without connections.
    pub fn new(counts: Arc<MessageCounts>) -> Self {
        Self { links: HashMap::new(), counts }
    }

    /// Sends this envelope to the server with this RESP address.
    pub fn send(&mut self, address: &str, envelope: Vec<u8>) {
        debug_assert!(envelope.len() <= MAX_ENVELOPE_BYTES);
        if !self.links.contains_key(address) {
            // The address of one that has left may be here: all begin anew.
            if self.links.len() >= PEER_LINKS {
                self.links.clear();
            }
            let (sender, envelopes) = sync_channel(PEER_MESSAGES);
            let (to, counts) = (address.to_owned(), Arc::clone(&self.counts));
            // Ends once the sender is dropped.
            match vital_thread::spawn("peer", move || carry(&to, &envelopes, &counts)) {
                Ok(_) => _ = self.links.insert(address.to_owned(), sender),
                Err(error) => {
                    tracing::warn!(%error, "no thread for messages to {address}");
                    return count(&self.counts.dropped, 1);
                }
            }
        }
        if let Err(error) = self.links[address].try_send(envelope) {
            count(&self.counts.dropped, 1);
            if let TrySendError::Disconnected(_) = error {
                self.links.remove(address);
            }
        }
    }
}

/// Carries messages to one server, until the sender is dropped.
fn carry(address: &str, envelopes: &Receiver<Vec<u8>>, counts: &MessageCounts) {
    let mut link: Option<TcpStream> = None;
    while let Ok(envelope) = envelopes.recv() {
        let sent = match link.take() {
            Some(open) => deliver(open, &envelope),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        // It may have been restarted since the last message.
        let sent = sent.or_else(|_| deliver(connect(address)?, &envelope));
        count(if sent.is_ok() { &counts.delivered } else { &counts.dropped }, 1);
        // What waits behind it would come late, one timeout after the other: its senders say it anew.
        while sent.is_err() && envelopes.try_recv().is_ok() {
            count(&counts.dropped, 1);
        }
        link = sent.ok();
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, TIMEOUT) {
            Ok(link) => {
                link.set_nodelay(true)?;
                link.set_read_timeout(Some(TIMEOUT))?;
                link.set_write_timeout(Some(TIMEOUT))?;
                return Ok(link);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends one message, and takes the line that says that it has come.
fn deliver(mut link: TcpStream, envelope: &[u8]) -> io::Result<TcpStream> {
    let mut out = Vec::with_capacity(envelope.len() + 64);
    encode::array(&mut out, 2);
    encode::bulk(&mut out, b"MEMBER.DELIVER");
    encode::bulk(&mut out, envelope);
    link.write_all(&out)?;
    let (mut line, mut more) = (Vec::new(), [0; 64]);
    // Bounded: no reply to this is longer.
    while !line.ends_with(b"\r\n") {
        let taken = link.read(&mut more)?;
        line.extend_from_slice(&more[..taken]);
        if taken == 0 || line.len() > 512 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;

    #[test]
    fn messages_go_over_one_connection_and_over_another_after_a_restart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (came, comes) = channel();
        std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut link, _) = listener.accept().unwrap();
                for _ in 0..2 {
                    let mut bytes = [0; 512];
                    let length = link.read(&mut bytes).unwrap();
                    came.send(bytes[..length].to_vec()).unwrap();
                    link.write_all(b"+OK\r\n").unwrap();
                }
            }
        });
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts));
        for number in 0..4u8 {
            peers.send(&address, vec![number; 3]);
            let expected = [&b"*2\r\n$14\r\nMEMBER.DELIVER\r\n$3\r\n"[..], &[number; 3], b"\r\n"];
            assert_eq!(comes.recv().unwrap(), expected.concat());
        }
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_waits_behind_a_message_that_was_not_taken_is_dropped_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts));
        (0..5).for_each(|number| peers.send(&address, vec![number; 3]));
        while counts.dropped.load(Ordering::Relaxed) < 5 {
            std::thread::sleep(Duration::from_millis(5));
        }
        listener.set_nonblocking(true).unwrap();
        let tried = std::iter::from_fn(|| listener.accept().ok()).count();
        assert!(tried <= 2, "{tried} connections: only the first message was tried, twice at most");
    }

    #[test]
    fn nobody_waits_for_a_server_that_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts));
        for _ in 0..10 * PEER_MESSAGES {
            peers.send(&address, vec![1; 100]);
        }
        let dropped = counts.dropped.load(Ordering::Relaxed);
        assert!(dropped as usize >= 8 * PEER_MESSAGES, "{dropped}");
    }
}
