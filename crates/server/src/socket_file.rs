//! The file of the Unix socket: a server removes its own one only.
//!
//! A successor may listen at the same path while a server drains. So a server remembers the file
//! that it bound, by device and inode, and removes the file at the path only if it is that one. Two
//! rules make this sound:
//!
//! * A process binds or removes the file only with the lock of its path. So the file cannot be
//!   replaced between the comparison and the removal, nor between a successor's look for a live
//!   server and its removal of a killed server's file.
//! * The server holds its file open (`O_PATH`) until then. So no other file
//!   can have its inode.
//!
//! The lock is a lock on the file `PATH.lock`. Its holder removes that file,
//! too. A server that got the lock of a removed file notices it, and tries again
//! with the file that is there.

use crate::start_error::StartError;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::ffi::OsString;
use std::fs::{Permissions, symlink_metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The file of this server's socket; it is removed when this is dropped.
pub struct SocketFile {
    path: PathBuf,
    file: OwnedFd,
}

impl SocketFile {
    /// Listens at a path, for this user only. The file that a killed server
    /// left is replaced; a server that answers is left alone.
    pub fn bind(path: &Path) -> std::result::Result<(UnixListener, Self), StartError> {
        let listen = |source| StartError::Listen { what: path.display().to_string(), source };
        let _lock = PathLock::take(path).map_err(listen)?;
        match symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(StartError::Config(format!(
                    "{} exists and is not a socket: choose another path",
                    path.display()
                )));
            }
            Ok(_) if answers(path).map_err(listen)? => {
                return Err(StartError::Taken(path.to_owned()));
            }
            Ok(_) => std::fs::remove_file(path).map_err(listen)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(listen(error)),
        }
        let listener = UnixListener::bind(path).map_err(listen)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(listen)?;
        let file = open(path).map_err(|errno| listen(errno.into()))?;
        Ok((listener, Self { path: path.to_owned(), file }))
    }

    /// The file's path, present or former.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn remove(&self) -> Result<()> {
        let _lock = PathLock::take(&self.path)?;
        if is_same(&self.file, &open(&self.path)?)? {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        match self.remove() {
            Ok(()) => {}
            // The file was removed, perhaps with its directory.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // The next server replaces it.
            Err(error) => tracing::warn!(%error, "cannot remove {}", self.path.display()),
        }
    }
}

/// The file itself, not the target of a link.
fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> rustix::io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Whether a server listens there. It never waits for a listener whose queue is full: a server that
/// drains may need the lock before it closes the listener.
fn answers(path: &Path) -> Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match retry_on_intr(|| connect(&socket, &SocketAddrUnix::new(path)?)) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The lock of a path, until it is dropped.
struct PathLock {
    lock_path: PathBuf,
    _file: OwnedFd,
}

impl PathLock {
    fn take(path: &Path) -> Result<Self> {
        let mut name: OsString = path.into();
        name.push(".lock");
        let lock_path = PathBuf::from(name);
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(CWD, &lock_path, flags, Mode::RUSR | Mode::WUSR)?;
            let found = fstat(&file)?;
            if found.st_size > 0 {
                let what = format!("{} exists and is no lock", lock_path.display());
                return Err(Error::new(ErrorKind::AlreadyExists, what));
            }
            retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            match stat(&lock_path) {
                Ok(now) if (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino) => {
                    return Ok(Self { lock_path, _file: file });
                }
                // The last holder has removed it.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // If the file stays, it is the next server's lock.
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn what_a_killed_server_left_is_replaced_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (listener, file) = SocketFile::bind(&path).unwrap();
        assert_eq!(symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(SocketFile::bind(&path), Err(StartError::Taken(_))));
        // Without accepts the queue fills, and stays full for the next client, too.
        let mut waiting = Vec::new();
        loop {
            let socket = socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                None,
            );
            let socket = socket.unwrap();
            if connect(&socket, &SocketAddrUnix::new(&path).unwrap()) == Err(Errno::AGAIN) {
                break;
            }
            waiting.push(socket);
        }
        assert!(matches!(SocketFile::bind(&path), Err(StartError::Taken(_))));
        assert_eq!(file.path(), path);
        drop((listener, file));
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(SocketFile::bind(&path), Err(StartError::Config(_))));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(matches!(SocketFile::bind(&path), Err(StartError::Config(_))));
        std::fs::write(directory.path().join("t.lock"), "mine").unwrap();
        assert!(SocketFile::bind(&directory.path().join("t")).is_err());
        assert_eq!(std::fs::read(directory.path().join("t.lock")).unwrap(), b"mine");
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn the_file_of_another_server_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (listener, first) = SocketFile::bind(&path).unwrap();
        drop(listener);
        // The inode of the first file would be free for the second one.
        let (_listener, second) = SocketFile::bind(&path).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
        let (_listener, third) = SocketFile::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        drop(third);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// Servers come and go at one path, some of them killed. A server that
    /// listens there keeps the file until it stops.
    #[test]
    fn nobody_removes_the_file_of_a_server_that_listens() {
        const STARTS: u64 = 2_000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (started, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_served = AtomicBool::new(false);
        let server = |thread: u64| {
            let mut turn = thread;
            while started.load(Ordering::Relaxed) < STARTS {
                turn += 1;
                let (listener, file) = match SocketFile::bind(&path) {
                    Ok(bound) => bound,
                    Err(StartError::Taken(_)) => {
                        taken.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        continue;
                    }
                    Err(error) => panic!("{error:?}"),
                };
                assert!(!is_served.swap(true, Ordering::SeqCst), "two servers at one path");
                started.fetch_add(1, Ordering::Relaxed);
                for _ in 0..turn % 4 {
                    std::thread::yield_now();
                    let there = open(&path).expect("the file of a server that listens");
                    assert!(is_same(&file.file, &there).unwrap(), "it is another one's");
                }
                is_served.store(false, Ordering::SeqCst);
                drop(listener);
                std::thread::yield_now();
                if turn.is_multiple_of(3) {
                    // A killed one removes nothing.
                    std::mem::forget(file);
                }
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let server = &server;
                scope.spawn(move || server(thread));
            }
        });
        println!("{} starts found the path taken", taken.load(Ordering::Relaxed));
        let _ = std::fs::remove_file(&path);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
