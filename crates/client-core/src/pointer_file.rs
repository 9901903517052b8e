//! Where the table of shared pointers comes from (H28). Over shared memory the server provides it.
//! Over a network the server is on another machine: there the clients of this machine make it
//! themselves, as a file in a directory of their user's own, one for each incarnation of each
//! server.
//!
//! Invariants:
//! * a file has a name only once it is complete: a client creates it without a name, fills it to
//!   its size, locks it, and only then links it;
//! * a process that maps a file holds its shared lock; a process removes a name only under the
//!   exclusive lock, so that no table in use loses its name;
//! * directory and file belong to this user alone, otherwise the client maps nothing.
//!
//! A client reserves all of the file's memory at once: if the file system became full later, the
//! users of the file would end by SIGBUS.

use crate::error::ConnectError;
use remora_arena::{MapError, Mapping, Words};
use remora_layout::hash::mix;
use remora_layout::hello::ServerHello;
use remora_layout::limits::POINTER_TABLE_BYTES;
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, fallocate,
    fchmod, flock, fstat, linkat, mkdir, open, openat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::geteuid;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the names of all tables begin with.
const PREFIX: &str = "pointers-";
/// Tries to open a file that other processes check, remove and make.
const TRIES: u32 = 200;
/// Pause between two tries. A process that sweeps holds a file for some system calls.
const PAUSE: Duration = Duration::from_millis(5);

/// The table that a connection's sessions share with other processes.
pub(crate) struct PointerTable {
    pub words: Words,
    /// Seed of the lines' checksums.
    pub seed: u64,
    /// The shared lock of a file, held for as long as it is mapped.
    _lock: Option<OwnedFd>,
}

impl PointerTable {
    /// A given table.
    pub fn of_parts((words, seed): (Words, u64)) -> Self {
        Self { words, seed, _lock: None }
    }

    /// The table that a server on this machine provides.
    pub fn of_server(fd: BorrowedFd<'_>, seed: u64) -> Result<Self, MapError> {
        let mapping = Mapping::of_peer(fd, POINTER_TABLE_BYTES)?;
        Ok(Self { words: Words::new(mapping), seed, _lock: None })
    }

    /// The table that this machine's clients of this server's incarnation share. It lies in
    /// `directory`, else in the user's default one.
    pub fn of_machine(directory: Option<&Path>, hello: &ServerHello) -> Result<Self, ConnectError> {
        let seed = hello.pointer_table_seed.get();
        let server = mix(seed, hello.hash_seed.get());
        let name = format!("{PREFIX}{:016x}{server:016x}", hello.incarnation.get());
        let file = TableFile::new(directory.map_or_else(default_directory, Path::to_owned), name)?;
        let fd = file.open_or_make()?;
        let mapping = Mapping::of_own_file(fd.as_fd(), POINTER_TABLE_BYTES)?;
        Ok(Self { words: Words::new(mapping), seed, _lock: Some(fd) })
    }
}

/// Follows the rule of the server's socket, but in memory: a login's directory if there is one.
fn default_directory() -> PathBuf {
    directory_under(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// Under a login's directory, if there is one.
fn directory_under(runtime: Option<PathBuf>) -> PathBuf {
    match runtime {
        Some(runtime) if runtime.is_absolute() && runtime.is_dir() => runtime.join("remora"),
        _ => format!("/dev/shm/remora-{}", geteuid().as_raw()).into(),
    }
}

struct TableFile {
    path: PathBuf,
    name: String,
    directory: OwnedFd,
}

enum Found {
    Locked(OwnedFd),
    /// Another process is removing it, or has just removed it.
    Busy,
    Absent,
}

impl TableFile {
    /// In this directory, which is made if it is not there.
    fn new(directory: PathBuf, name: String) -> Result<Self, ConnectError> {
        let failed = |what, error| odd(directory.clone(), what, Some(error));
        match mkdir(&directory, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed("the directory cannot be made", error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(&directory, flags, Mode::empty())
            .map_err(|error| failed("it cannot be opened as a directory", error))?;
        let status = fstat(&fd).map_err(|error| failed("it cannot be examined", error))?;
        if let Some(what) = not_ones_own(&status) {
            return Err(odd(directory, what, None));
        }
        Ok(Self { path: directory.join(&name), name, directory: fd })
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(Errno) -> ConnectError {
        let path = self.path.clone();
        move |error| odd(path, what, Some(error))
    }

    /// The file, with its shared lock.
    fn open_or_make(&self) -> Result<OwnedFd, ConnectError> {
        for _ in 0..TRIES {
            match self.find()? {
                Found::Locked(fd) => return Ok(fd),
                Found::Busy => std::thread::sleep(PAUSE),
                Found::Absent => {
                    if let Some(fd) = self.make()? {
                        self.sweep();
                        return Ok(fd);
                    }
                }
            }
        }
        Err(odd(self.path.clone(), "another process keeps it locked", None))
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        // Without waiting, should it be a pipe.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&self.directory, name, flags, Mode::empty())
    }

    fn find(&self) -> Result<Found, ConnectError> {
        match self.open(&self.name) {
            Ok(fd) => self.lock(fd),
            Err(Errno::NOENT) => Ok(Found::Absent),
            Err(Errno::LOOP) => Err(odd(self.path.clone(), "it is a symbolic link", None)),
            Err(error) => Err(self.failed("it cannot be opened")(error)),
        }
    }

    /// Locks the opened file, and checks whether it is a table.
    fn lock(&self, fd: OwnedFd) -> Result<Found, ConnectError> {
        match flock(&fd, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Found::Busy),
            Err(error) => return Err(self.failed("it cannot be locked")(error)),
        }
        let status = fstat(&fd).map_err(self.failed("it cannot be examined"))?;
        if status.st_nlink == 0 {
            // Another process removed it between opening and locking.
            return Ok(Found::Busy);
        }
        let what = if !is_file(&status) {
            Some("it is not a regular file")
        } else if status.st_size != POINTER_TABLE_BYTES as i64 {
            Some("it has another size than a table of this release")
        } else {
            not_ones_own(&status)
        };
        match what {
            Some(what) => Err(odd(self.path.clone(), what, None)),
            None => Ok(Found::Locked(fd)),
        }
    }

    /// A new file; `None` if another process was faster.
    fn make(&self) -> Result<Option<OwnedFd>, ConnectError> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd =
            openat(&self.directory, ".", flags, mode).map_err(self.failed("it cannot be made"))?;
        // Whatever the umask is.
        fchmod(&fd, mode).map_err(self.failed("its mode cannot be set"))?;
        let bytes = POINTER_TABLE_BYTES as u64;
        retry_on_intr(|| fallocate(&fd, FallocateFlags::empty(), 0, bytes))
            .map_err(self.failed("its 128 MiB cannot be reserved"))?;
        flock(&fd, FlockOperation::NonBlockingLockShared)
            .map_err(self.failed("it cannot be locked"))?;
        let unnamed = format!("/proc/self/fd/{}", fd.as_raw_fd());
        match linkat(CWD, unnamed, &self.directory, &self.name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(Some(fd)),
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(self.failed("it cannot be given its name")(error)),
        }
    }

    /// Removes the unused tables: those of servers' former incarnations. A table that it cannot
    /// remove stays, which does no harm.
    fn sweep(&self) {
        let Ok(entries) = Dir::read_from(&self.directory) else { return };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with(PREFIX) && name != self.name {
                let _ = self.open(name).and_then(|fd| self.remove_unused(name, fd));
            }
        }
    }

    /// Removes the file opened by this name, unless another process has locked it.
    fn remove_unused(&self, name: &str, fd: OwnedFd) -> Result<(), Errno> {
        flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        let status = fstat(&fd)?;
        // Removed already: the name may be another file's by now.
        if status.st_nlink > 0 && is_file(&status) {
            unlinkat(&self.directory, name, AtFlags::empty())?;
        }
        Ok(())
    }
}

fn is_file(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
}

/// Why a file or directory does not belong to this user alone.
fn not_ones_own(status: &Stat) -> Option<&'static str> {
    if status.st_uid != geteuid().as_raw() {
        return Some("it belongs to another user");
    }
    let others = Mode::RWXG | Mode::RWXO;
    Mode::from_raw_mode(status.st_mode).intersects(others).then_some("its mode lets other users in")
}

fn odd(path: PathBuf, what: &'static str, source: Option<Errno>) -> ConnectError {
    ConnectError::PointerFile { path, what, source: source.map(Into::into) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn file() -> (TempDir, TableFile) {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = place.path().join("remora");
        (place, TableFile::new(directory, format!("{PREFIX}1")).unwrap())
    }

    fn is_named(file: &TableFile, fd: &OwnedFd) -> bool {
        let named = rustix::fs::stat(&file.path).unwrap();
        named.st_ino == fstat(fd).unwrap().st_ino
    }

    #[test]
    fn of_two_makers_one_gets_the_name() {
        let (_place, file) = file();
        let made = file.make().unwrap().expect("it is the first");
        assert!(file.make().unwrap().is_none());
        assert!(is_named(&file, &made));
    }

    #[test]
    fn who_opened_a_file_just_before_its_removal_begins_again() {
        let (_place, file) = file();
        drop(file.make().unwrap());
        let opened = file.open(&file.name).unwrap();
        let sweeper = file.open(&file.name).unwrap();
        file.remove_unused(&file.name, sweeper).unwrap();
        assert!(matches!(file.lock(opened).unwrap(), Found::Busy));
        assert!(is_named(&file, &file.open_or_make().unwrap()));
    }

    #[test]
    fn a_late_sweeper_leaves_the_successor_of_what_it_opened() {
        let (_place, file) = file();
        drop(file.make().unwrap());
        let [early, late] = [(); 2].map(|()| file.open(&file.name).unwrap());
        file.remove_unused(&file.name, early).unwrap();
        let made = file.make().unwrap().expect("the name is free");
        file.remove_unused(&file.name, late).unwrap();
        assert!(is_named(&file, &made));
        let sweeper = file.open(&file.name).unwrap();
        assert_eq!(file.remove_unused(&file.name, sweeper), Err(Errno::WOULDBLOCK));
    }

    #[test]
    fn while_a_sweeper_holds_the_file_it_is_waited_for() {
        let (_place, file) = file();
        drop(file.make().unwrap());
        let sweeper = file.open(&file.name).unwrap();
        flock(&sweeper, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(matches!(file.find().unwrap(), Found::Busy));
        drop(sweeper);
        assert!(matches!(file.find().unwrap(), Found::Locked(_)));
    }

    #[test]
    fn the_default_directory_is_under_the_logins_if_that_is_there() {
        let place = tempfile::tempdir().unwrap();
        let login = place.path().to_owned();
        assert_eq!(directory_under(Some(login.clone())), login.join("remora"));
        let own = PathBuf::from(format!("/dev/shm/remora-{}", geteuid().as_raw()));
        std::fs::write(login.join("file"), b"").unwrap();
        // `src` is there, but relative.
        for other in [None, Some("src".into()), Some(login.join("none")), Some(login.join("file"))]
        {
            assert_eq!(directory_under(other), own);
        }
    }
}
