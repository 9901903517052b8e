//! TLS to ZooKeeper: its library's settings from our files, and why a handshake fails, which the library
//! does not say.

use crate::address::ZookeeperAddress;
use remora_layout::limits::{ZOOKEEPER_TLS_LOOK_MS, ZOOKEEPER_TLS_PAUSE_MS};
use remora_tls::{ClientTls, ClientTlsSettings, TlsError, use_own_cryptography};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zookeeper_client::TlsOptions;

/// Time for one server to accept, and for its handshake.
const LOOK: Duration = Duration::from_millis(ZOOKEEPER_TLS_LOOK_MS);
/// Time between the beginnings of two looks.
const PAUSE: Duration = Duration::from_millis(ZOOKEEPER_TLS_PAUSE_MS);

/// What the library needs for the next connection.
///
/// # Errors
/// A file cannot be read, holds something else, or they do not fit together.
pub(crate) fn options(files: &ClientTlsSettings) -> Result<TlsOptions, TlsError> {
    // Our own reading has the errors that say which file is wrong. The library passes over certificates
    // that it cannot read.
    files.load()?;
    use_own_cryptography();
    let settings = |error: zookeeper_client::Error| TlsError::Settings(error.to_string());
    let options = TlsOptions::new().with_pem_ca(&text(&files.authorities)?).map_err(settings)?;
    match &files.identity {
        None => Ok(options),
        Some((certificate, key)) => {
            options.with_pem_identity(&text(certificate)?, &text(key)?).map_err(settings)
        }
    }
}

fn text(path: &Path) -> Result<String, TlsError> {
    let unreadable = |error| TlsError::Unreadable { path: path.to_owned(), error };
    std::fs::read_to_string(path).map_err(unreadable)
}

/// Why there is no session, if ZooKeeper or TLS says so: what the caller may ask for at any time.
#[derive(Clone, Default)]
pub(crate) struct LastRefusal(Arc<Mutex<(u64, String)>>);

impl LastRefusal {
    fn lock(&self) -> MutexGuard<'_, (u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is another reason than before.
    pub(crate) fn set(&self, why: &str) -> bool {
        let mut last = self.lock();
        let is_new = last.1 != why;
        why.clone_into(&mut last.1);
        is_new
    }

    /// There is a session, or no reason any more.
    pub(crate) fn clear(&self) {
        let mut last = self.lock();
        last.0 += 1;
        last.1.clear();
    }

    /// The reason, if there is one.
    pub(crate) fn get(&self) -> Option<String> {
        Some(self.lock().1.clone()).filter(|why| !why.is_empty())
    }

    /// How often it was cleared.
    fn cleared(&self) -> u64 {
        self.lock().0
    }
}

/// Looks for why handshakes fail: one at a time, each in a thread of its own, so that the session goes on
/// trying meanwhile and its end does not wait.
#[derive(Default)]
pub(crate) struct TlsFailures {
    is_looking: Arc<AtomicBool>,
    last: Option<Instant>,
}

impl TlsFailures {
    /// Looks, unless the last look is not over, or was a moment ago. Its outcome goes to `refusal`.
    pub(crate) fn look(
        &mut self,
        address: &ZookeeperAddress,
        files: &ClientTlsSettings,
        refusal: &LastRefusal,
    ) {
        let is_recent = self.last.is_some_and(|last| last.elapsed() < PAUSE);
        if is_recent || self.is_looking.swap(true, Ordering::Relaxed) {
            return;
        }
        self.last = Some(Instant::now());
        let (address, files, refusal) = (address.clone(), files.clone(), refusal.clone());
        let (is_looking, cleared) = (Arc::clone(&self.is_looking), refusal.cleared());
        let look = move || {
            let found = failure(&address, &files);
            is_looking.store(false, Ordering::Relaxed);
            if refusal.cleared() != cleared {
                return;
            }
            match found {
                None => refusal.clear(),
                Some(why) if refusal.set(&why) => {
                    tracing::warn!(cluster = %address, error = why, "no session at ZooKeeper, trying again");
                }
                Some(_) => {}
            }
        };
        let thread = std::thread::Builder::new().name("zookeeper-tls".into());
        if thread.spawn(look).is_err() {
            self.is_looking.store(false, Ordering::Relaxed);
        }
    }
}

/// Why a handshake with one of the servers fails, with what to do about it. `None` where all of them that
/// can be reached come through it.
fn failure(address: &ZookeeperAddress, files: &ClientTlsSettings) -> Option<String> {
    let tls = match files.load() {
        Ok(tls) => tls,
        Err(error) => return Some(error.with_advice()),
    };
    address.servers().find_map(|(host, port)| {
        let error = handshake(&tls, host, port)?;
        let unshown = match files.identity {
            Some(_) => "",
            None => " (no certificate is shown: name one, tls_cert of a server or REMORA_TLS_CERT)",
        };
        Some(format!("{host}:{port}: {}{unshown}", error.with_advice()))
    })
}

fn handshake(tls: &ClientTls, host: &str, port: u16) -> Option<TlsError> {
    let at = (host, port).to_socket_addrs().ok()?.next()?;
    let stream = TcpStream::connect_timeout(&at, LOOK).ok()?;
    let mut stream = Bounded { stream, until: Instant::now() + LOOK };
    let mut session = match tls.begin(host) {
        Ok(session) => session,
        Err(error) => return Some(error),
    };
    match session.handshake(&mut stream) {
        // A server that is slow, or busy.
        Err(TlsError::Io(error)) if error.kind() == ErrorKind::TimedOut => None,
        Err(error) => Some(error),
        // With TLS 1.3 a server that refuses the client says so behind the handshake.
        Ok(_) => TlsError::of(&session.receive(&mut stream, &mut [0; 16]).err()?),
    }
}

/// A stream on which nothing takes longer than until then, however its peer drips bytes.
struct Bounded {
    stream: TcpStream,
    until: Instant,
}

impl Bounded {
    fn left(&self) -> std::io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into).map_err(timed_out)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The kernel says `WouldBlock` at the end of a time.
fn timed_out(error: std::io::Error) -> std::io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Authority;
    use std::net::TcpListener;

    #[test]
    fn a_peer_that_drips_bytes_holds_a_look_for_its_time_and_no_longer() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(directory.path(), "authority");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("zk+tls://{}/test", listener.local_addr().unwrap());
        let dripping = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The beginning of a record of 16 KiB, byte by byte.
            let mut bytes = [22, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(0));
            let mut sent = 0;
            while stream.write_all(&[bytes.next().unwrap()]).is_ok() {
                sent += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            sent
        });
        let files = ClientTlsSettings::new(authority.file());
        assert_eq!(failure(&address.parse().unwrap(), &files), None, "it may be slow");
        // It is cut off long before the record is whole.
        assert!(dripping.join().unwrap() < 16 << 10);
    }
}
