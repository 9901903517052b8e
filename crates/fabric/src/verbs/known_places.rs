//! The addresses of this machine's devices, cached for frequent use.
//!
//! The kernel has a file for each entry of a port's address table; a table may have a thousand
//! entries, nearly all unused. Reading all takes milliseconds, too long between a server's
//! heartbeats. So the cache reads all once, and from then on only the known ones, with their ports'
//! states. A thread that reads all again finds new addresses.

use super::places::{Gid, SYSFS, gid_at, is_port_active, names, places_in};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum age of the known places: a new address is found after it.
const RESCAN: Duration = Duration::from_secs(5);

/// The addresses of all ports of this machine, as [`super::places()`] gives
/// them, but an address that is new may be missing for some seconds.
pub fn known_places() -> Vec<Gid> {
    static OF_THIS_MACHINE: LazyLock<Arc<KnownPlaces>> =
        LazyLock::new(|| KnownPlaces::new(Path::new(SYSFS)));
    OF_THIS_MACHINE.now()
}

struct KnownPlaces {
    root: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    devices: Vec<String>,
    places: Vec<Gid>,
    read: Instant,
    /// Reads all once more, or has tried to.
    reader: Option<JoinHandle<()>>,
}

impl Known {
    /// A reader that panicked has finished, too: another one takes its place.
    fn is_being_read(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| !reader.is_finished())
    }

    fn read(root: &Path) -> Self {
        let (devices, places) = (names(root), places_in(root));
        Self { devices, places, read: Instant::now(), reader: None }
    }

    /// Checks the known places. False if they have changed.
    fn look(&mut self, root: &Path) -> bool {
        if names(root) != self.devices {
            return false;
        }
        for at in 0..self.places.len() {
            // Ports come one after the other: one look at each.
            let (before, rest) = self.places.split_at_mut(at);
            let place = &mut rest[0];
            place.is_active = match before.last() {
                Some(last) if (&last.device, last.port) == (&place.device, place.port) => {
                    last.is_active
                }
                _ => is_port_active(root, place),
            };
            if gid_at(root, place) != Some(place.gid) {
                return false;
            }
        }
        true
    }
}

impl KnownPlaces {
    fn new(root: &Path) -> Arc<Self> {
        let known = Mutex::new(Known::read(root));
        Arc::new(Self { root: root.to_owned(), known })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // It is changed as a whole, or by looking once more.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(self: &Arc<Self>) -> Vec<Gid> {
        let mut known = self.known();
        if known.places.is_empty() || !known.look(&self.root) {
            *known = Known { reader: known.reader.take(), ..Known::read(&self.root) };
        } else if known.read.elapsed() > RESCAN && !known.is_being_read() {
            let this = Arc::clone(self);
            let read = std::thread::Builder::new().name("rdma-addresses".into());
            // Without a thread, the next call tries again.
            known.reader = read.spawn(move || this.read_all()).ok();
        }
        known.places.clone()
    }

    fn read_all(&self) {
        let read = Known::read(&self.root);
        *self.known() = read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join("rxe0/ports/1").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn address(root: &Path, index: u32, last: u32) {
        let gid = format!("0000:0000:0000:0000:0000:ffff:0a00:{last:04x}\n");
        write(root, &format!("gids/{index}"), &gid);
        write(root, &format!("gid_attrs/types/{index}"), "RoCE v2\n");
    }

    #[test]
    fn what_changes_is_seen_at_once_and_what_is_new_by_reading_all() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let known = KnownPlaces::new(root);
        assert!(known.now().is_empty());
        write(root, "state", "4: ACTIVE\n");
        address(root, 1, 1);
        let seen = || -> Vec<_> {
            known.now().iter().map(|place| (place.ip().unwrap(), place.is_active)).collect()
        };
        let ip = |last: u8| std::net::IpAddr::from([10, 0, 0, last]);
        assert_eq!(seen(), [(ip(1), true)], "where nothing is known, all is read");
        write(root, "state", "1: DOWN\n");
        assert_eq!(seen(), [(ip(1), false)]);
        write(root, "state", "4: ACTIVE\n");
        address(root, 7, 7);
        assert_eq!(seen(), [(ip(1), true)], "it is not read");
        known.read_all();
        assert_eq!(seen(), [(ip(1), true), (ip(7), true)]);
        address(root, 1, 2);
        assert_eq!(seen(), [(ip(2), true), (ip(7), true)]);
        std::fs::rename(root.join("rxe0"), root.join("rxe1")).unwrap();
        assert!(known.now().iter().all(|place| place.device == "rxe1"));
        // A reader that panicked leaves the next one its turn.
        let panics = std::thread::spawn(|| panic!("planted"));
        while !panics.is_finished() {
            std::thread::yield_now();
        }
        let long_ago = Instant::now().checked_sub(2 * RESCAN).unwrap();
        *known.known() = Known { reader: Some(panics), read: long_ago, ..Known::read(root) };
        known.now();
        let reader = known.known().reader.take();
        if let Some(reader) = reader {
            reader.join().unwrap();
        }
        assert!(known.known().read > long_ago, "it is not read again");
        std::fs::remove_dir_all(root.join("rxe1")).unwrap();
        assert!(known.now().is_empty());
    }
}
