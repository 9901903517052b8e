//! Messages to other servers of the cluster: a thread and a connection for each of them.
//!
//! A message goes as a command over RESP, and its reply only says that it has come. Messages may be
//! lost: one that cannot be sent at once, or to a server that does not answer, is dropped and counted.
//!
//! With TLS the files are read with each connection, so that a certificate that was replaced is the next
//! connection's.
//!
//! Invariants: the caller never waits; so many messages wait for each server, and no more; there are at
//! most [`PEER_LINKS`] connections and [`PEER_THREADS`] threads. A connection that is in use makes no room
//! for another one: messages to a server too many are dropped.

use crate::thread_counts::count;
use remora_acl::DEFAULT_USER;
use remora_cluster::wire::MAX_ENVELOPE_BYTES;
use remora_fabric::Credentials;
use remora_fabric::vital_thread;
use remora_layout::limits::{
    PEER_IDLE_MS, PEER_LINKS, PEER_MESSAGES, PEER_THREADS, PEER_TIMEOUT_MS,
};
use remora_resp::wire::encode;
use remora_tls::{ClientTlsSettings, Progress, TlsError, TlsStream};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(PEER_TIMEOUT_MS);
const IDLE: Duration = Duration::from_millis(PEER_IDLE_MS);

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

/// A connection to another server.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// How a server shows the others who it is: its user, and its TLS, if there is that.
type Identity = (Credentials, Option<ClientTlsSettings>);

/// The way to one server.
struct Link {
    sender: SyncSender<Vec<u8>>,
    used: Instant,
}

/// A thread that carries messages; it is counted until it ends.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// One more, if there is room for it.
    fn new(threads: &Arc<AtomicUsize>) -> Option<Self> {
        let has_room = |count| (count < PEER_THREADS).then_some(count + 1);
        threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).ok()?;
        Some(Self(Arc::clone(threads)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the module's text.
pub struct Peers {
    links: HashMap<String, Link>,
    /// Those that have not ended. One whose link was taken away may wait for its server still.
    threads: Arc<AtomicUsize>,
    counts: Arc<MessageCounts>,
    /// What this server is at the others.
    identity: Identity,
}

impl Peers {
    /// Without connections.
    pub fn new(counts: Arc<MessageCounts>, identity: Identity) -> Self {
        Self { links: HashMap::new(), threads: Arc::default(), counts, identity }
    }

    /// Sends this envelope to the server with this RESP address.
    pub fn send(&mut self, address: &str, envelope: Vec<u8>) {
        debug_assert!(envelope.len() <= MAX_ENVELOPE_BYTES);
        let now = Instant::now();
        let link = match self.links.get_mut(address) {
            Some(link) => link,
            None => match self.open(address, now) {
                Some(link) => self.links.entry(address.to_owned()).or_insert(link),
                None => return count(&self.counts.dropped, 1),
            },
        };
        link.used = now;
        if let Err(error) = link.sender.try_send(envelope) {
            count(&self.counts.dropped, 1);
            if let TrySendError::Disconnected(_) = error {
                self.links.remove(address);
            }
        }
    }

    /// A way to another server, if there is room for it.
    fn open(&mut self, address: &str, now: Instant) -> Option<Link> {
        if self.links.len() >= PEER_LINKS {
            let idle = idlest(self.links.iter().map(|(of, link)| (of, link.used)), now)?.clone();
            self.links.remove(&idle);
        }
        let counted = Counted::new(&self.threads)?;
        let (sender, envelopes) = sync_channel(PEER_MESSAGES);
        let (to, counts) = (address.to_owned(), Arc::clone(&self.counts));
        let identity = self.identity.clone();
        // Ends once the sender is dropped.
        let thread = vital_thread::spawn("peer", move || {
            let _counted = counted;
            carry((&to, &identity), &envelopes, &counts);
        });
        match thread {
            Ok(_) => Some(Link { sender, used: now }),
            Err(error) => {
                tracing::warn!(%error, "no thread for messages to {address}");
                None
            }
        }
    }
}

/// Which link may make room for another: that which was used longest ago, if it is long ago.
fn idlest<T>(links: impl Iterator<Item = (T, Instant)>, now: Instant) -> Option<T> {
    let (link, used) = links.min_by_key(|(_, used)| *used)?;
    (now.saturating_duration_since(used) >= IDLE).then_some(link)
}

/// Carries messages to one server, until the sender is dropped.
fn carry(
    (address, identity): (&str, &Identity),
    envelopes: &Receiver<Vec<u8>>,
    counts: &MessageCounts,
) {
    let (mut link, mut is_told): (Option<Box<dyn Stream>>, bool) = (None, false);
    while let Ok(envelope) = envelopes.recv() {
        let sent = match link.take() {
            Some(open) => deliver(open, &envelope),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        // It may have been restarted since the last message.
        let sent = sent.or_else(|_| deliver(connect(address, identity)?, &envelope));
        match &sent {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_told => {
                tracing::warn!("the server at {address} takes no messages of this one: {error}");
                is_told = true;
            }
            Ok(_) => is_told = false,
            Err(_) => {}
        }
        count(if sent.is_ok() { &counts.delivered } else { &counts.dropped }, 1);
        // What waits behind it would come late, one timeout after the other: its senders say it anew.
        while sent.is_err() && envelopes.try_recv().is_ok() {
            count(&counts.dropped, 1);
        }
        link = sent.ok();
    }
}

fn connect(address: &str, (login, tls): &Identity) -> io::Result<Box<dyn Stream>> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, TIMEOUT) {
            Ok(link) => {
                link.set_nodelay(true)?;
                link.set_read_timeout(Some(TIMEOUT))?;
                link.set_write_timeout(Some(TIMEOUT))?;
                let link: Box<dyn Stream> = match tls {
                    None => Box::new(link),
                    Some(tls) => Box::new(encrypted(link, address, tls).map_err(no_tls)?),
                };
                return log_in(link, login);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn encrypted(
    link: TcpStream,
    address: &str,
    tls: &ClientTlsSettings,
) -> Result<TlsStream, TlsError> {
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
    let mut session = tls.load()?.begin(name.trim_matches(['[', ']']))?;
    match session.handshake(&mut &link)? {
        Progress::Done => Ok(TlsStream::waiting(link, session)),
        // The socket blocks: its time is over.
        Progress::WantsRead | Progress::WantsWrite => {
            Err(io::Error::from(io::ErrorKind::TimedOut).into())
        }
    }
}

/// It does not become better by itself, unless the peer has gone.
fn no_tls(why: TlsError) -> io::Error {
    let kind = match why {
        TlsError::Io(_) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::PermissionDenied,
    };
    io::Error::new(kind, why.with_advice())
}

fn log_in(link: Box<dyn Stream>, login: &Credentials) -> io::Result<Box<dyn Stream>> {
    if login.are_none() {
        return Ok(link);
    }
    let user = if login.user().is_empty() { DEFAULT_USER } else { login.user() };
    let (link, line) = ask(link, &[b"AUTH", user, login.password()])?;
    if line.starts_with(b"+") { Ok(link) } else { Err(denied(&line)) }
}

fn denied(line: &[u8]) -> io::Error {
    let said = line.trim_ascii().escape_ascii();
    io::Error::new(io::ErrorKind::PermissionDenied, format!("peer_user: {said}"))
}

/// Sends one message, and takes the line that says that it has come.
fn deliver(link: Box<dyn Stream>, envelope: &[u8]) -> io::Result<Box<dyn Stream>> {
    let (link, line) = ask(link, &[b"MEMBER.DELIVER", envelope])?;
    let is_denied = line.starts_with(b"-NOAUTH") || line.starts_with(b"-NOPERM");
    if is_denied { Err(denied(&line)) } else { Ok(link) }
}

/// Sends a command, and takes the line that answers it.
fn ask(mut link: Box<dyn Stream>, words: &[&[u8]]) -> io::Result<(Box<dyn Stream>, Vec<u8>)> {
    let mut out = Vec::with_capacity(words.iter().map(|word| word.len() + 32).sum());
    encode::array(&mut out, words.len());
    words.iter().for_each(|word| encode::bulk(&mut out, word));
    link.write_all(&out)?;
    let (mut line, mut more) = (Vec::new(), [0; 64]);
    // Bounded: no reply to these is longer.
    while !line.ends_with(b"\r\n") {
        // With TLS 1.3 the first read tells that the other server refuses this one's certificate.
        let taken = link.read(&mut more).map_err(|error| match TlsError::of(&error) {
            Some(why) => no_tls(why),
            None => error,
        })?;
        line.extend_from_slice(&more[..taken]);
        if taken == 0 || line.len() > 512 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok((link, line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
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
        let mut peers = Peers::new(Arc::clone(&counts), Identity::default());
        for number in 0..4u8 {
            peers.send(&address, vec![number; 3]);
            let expected = [&b"*2\r\n$14\r\nMEMBER.DELIVER\r\n$3\r\n"[..], &[number; 3], b"\r\n"];
            assert_eq!(comes.recv().unwrap(), expected.concat());
        }
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_server_logs_in_before_its_first_message() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts), (Credentials::new("peer", "secret"), None));
        let said = |reply: &[u8]| {
            let (mut link, _) = listener.accept().unwrap();
            let mut bytes = [0; 512];
            let login = link.read(&mut bytes).unwrap();
            link.write_all(reply).unwrap();
            let message = link.read(&mut bytes[login..]).unwrap();
            link.write_all(b"+OK\r\n").unwrap();
            String::from_utf8(bytes[..login + message].to_vec()).unwrap()
        };
        let login = "*3\r\n$4\r\nAUTH\r\n$4\r\npeer\r\n$6\r\nsecret\r\n";
        peers.send(&address, b"one".to_vec());
        let message = "*2\r\n$14\r\nMEMBER.DELIVER\r\n$3\r\none\r\n";
        assert_eq!(said(b"+OK\r\n"), format!("{login}{message}"));
        let mut peers = Peers::new(Arc::clone(&counts), (Credentials::new("peer", "secret"), None));
        peers.send(&address, b"two".to_vec());
        assert_eq!(said(b"-WRONGPASS it is another one\r\n"), login);
    }

    #[test]
    fn what_waits_behind_a_message_that_was_not_taken_is_dropped_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts), Identity::default());
        (0..5).for_each(|number| peers.send(&address, vec![number; 3]));
        while counts.dropped.load(Ordering::Relaxed) < 5 {
            std::thread::sleep(Duration::from_millis(5));
        }
        listener.set_nonblocking(true).unwrap();
        let tried = std::iter::from_fn(|| listener.accept().ok()).count();
        assert!(tried <= 2, "{tried} connections: only the first message was tried, twice at most");
    }

    #[test]
    fn a_sender_does_not_wait_for_a_server_that_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts), Identity::default());
        for _ in 0..10 * PEER_MESSAGES {
            peers.send(&address, vec![1; 100]);
        }
        let dropped = counts.dropped.load(Ordering::Relaxed);
        assert!(dropped as usize >= 8 * PEER_MESSAGES, "{dropped}");
    }

    #[test]
    fn a_server_too_many_takes_no_connection_that_is_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(MessageCounts::default());
        let mut peers = Peers::new(Arc::clone(&counts), Identity::default());
        peers.send(&address, vec![1; 3]);
        // Their names do not resolve.
        for number in 0..10 * PEER_LINKS {
            peers.send(&format!("peer-{number}.invalid:1"), vec![1; 3]);
        }
        assert_eq!(peers.links.len(), PEER_LINKS);
        assert!(peers.links.contains_key(&address));
        assert!(counts.dropped.load(Ordering::Relaxed) as usize >= 9 * PEER_LINKS);
        assert!(peers.threads.load(Ordering::Relaxed) <= PEER_THREADS);
    }

    #[test]
    fn the_link_that_was_used_longest_ago_makes_room_if_it_is_idle() {
        let began = Instant::now();
        let at = |times: u32| began + times * IDLE;
        let links = || [("a", at(2)), ("b", at(1)), ("c", at(3))].into_iter();
        assert_eq!(idlest(links(), at(3)), Some("b"));
        assert_eq!(idlest(links(), at(2)), Some("b"));
        assert_eq!(idlest(links(), at(2) - Duration::from_millis(1)), None);
    }

    #[test]
    fn threads_are_counted_until_they_end() {
        let threads = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..PEER_THREADS).map_while(|_| Counted::new(&threads)).collect();
        assert!(all.len() == PEER_THREADS && Counted::new(&threads).is_none());
        drop(all);
        assert!(Counted::new(&threads).is_some());
    }
}
