//! A directory of the file system, and the lock that keeps two servers from one.

use crate::error::StorageError;
use crate::volume::{Volume, VolumeFile};
use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, Stat, flock, fstat, fsync, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Slices that one call of the kernel takes.
const SLICES: usize = 1024;
/// Only the owner can read and write what is made.
const OWN_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const LOCK: &str = "lock";

/// Which file or directory something is, as long as that is open: device and number.
type FileId = (u64, u64);

fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// A directory of the file system. Only its owner can read what is made in it.
///
/// It is open: all names are looked up in this directory, even after it was moved, so no file goes
/// into another one that has come to its path. [`Volume::is_same`] tells whether it still lies there.
#[derive(Clone, Debug)]
pub struct Directory(Arc<Open>);

#[derive(Debug)]
struct Open {
    path: PathBuf,
    fd: OwnedFd,
    id: FileId,
    /// The file that is locked.
    lock: OnceLock<FileId>,
}

impl Directory {
    /// This directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or is something else.
    pub fn at(path: &Path) -> Result<Self, StorageError> {
        let failed = |source| StorageError::io("make", &path.display().to_string(), source);
        make_durably(path).map_err(failed)?;
        Self::open_at(path).map_err(failed)
    }

    /// This directory, which is there.
    ///
    /// # Errors
    /// It is not, or cannot be read.
    pub fn existing(path: &Path) -> Result<Self, StorageError> {
        let name = || path.display().to_string();
        match path.is_dir() {
            true => Self::open_at(path).map_err(|error| StorageError::io("open", &name(), error)),
            false => Err(StorageError::NoDirectory(name())),
        }
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())?;
        let id = id_of(&fstat(&fd)?);
        Ok(Self(Arc::new(Open { path: path.to_path_buf(), fd, id, lock: OnceLock::new() })))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Takes the directory for this process, until the lock is dropped or the process ends.
    ///
    /// # Errors
    /// Another process has it.
    pub fn lock(&self) -> Result<Lock, StorageError> {
        let failed =
            |source| StorageError::io("take", "the lock", source).in_directory(self.path());
        let mut file = self.file(LOCK, OFlags::RDWR | OFlags::CREATE).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // Without the name the error says less.
                let _ = file.read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    holder => holder.to_owned(),
                };
                let directory = self.path().display().to_string();
                return Err(StorageError::Locked { directory, holder });
            }
            // Some network file systems have no locks.
            Err(error) => return Err(failed(error.into())),
        }
        let told = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)).map(drop));
        told.and_then(|()| writeln!(file, "process {}", std::process::id())).map_err(failed)?;
        let id = fstat(&file).map_err(|error| failed(error.into()))?;
        self.0.lock.get_or_init(|| id_of(&id));
        Ok(Lock(file))
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.0.fd, name, flags | OFlags::CLOEXEC, OWN_FILE)?.into())
    }

    fn open_directory(&self, name: &str) -> io::Result<OwnedFd> {
        let name = if name.is_empty() { "." } else { name };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0.fd, name, flags, Mode::empty())?)
    }

    fn id_in(&self, name: &str) -> rustix::io::Result<FileId> {
        statat(&self.0.fd, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| id_of(&stat))
    }
}

/// Makes a directory and those above it, and syncs their names: else a power cut could take all of it
/// away, whatever was synced inside.
fn make_durably(path: &Path) -> io::Result<()> {
    let named = |path: &Path| match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path.to_path_buf(),
    };
    let is_new = |path: &&Path| !named(path).exists();
    let made: Vec<&Path> = path.ancestors().take_while(is_new).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for parent in made.iter().filter_map(|path| path.parent()) {
        File::open(named(parent))?.sync_all()?;
    }
    // A directory that was there may be of a process that died before it synced the parent. Another
    // user's parent may not be readable: then that user has made it, and synced it or not.
    if made.is_empty()
        && let Some(parent) = path.parent()
        && let Ok(parent) = File::open(named(parent))
    {
        let _ = parent.sync_all();
    }
    Ok(())
}

/// A locked directory.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it unlocks")] File);

fn out_of_place(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, text)
}

impl Volume for Directory {
    type File = Arc<File>;

    fn names(&self, of: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.open_directory(of)?)? {
            // A name that is no text is none of ours.
            match entry?.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<File>> {
        let both = self.file(name, OFlags::RDWR);
        // A tool may look at what it cannot write.
        both.or_else(|_| self.file(name, OFlags::RDONLY)).map(Arc::new)
    }

    fn create(&self, name: &str) -> io::Result<Arc<File>> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::TRUNC;
        self.file(name, flags).map(Arc::new)
    }

    fn make_subdirectory(&self, name: &str) -> io::Result<()> {
        match mkdirat(&self.0.fd, name, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0.fd, from, &self.0.fd, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0.fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            removed => return Ok(removed?),
        }
        for inside in self.names(name)? {
            self.remove(&format!("{name}/{inside}"))?;
        }
        Ok(unlinkat(&self.0.fd, name, AtFlags::REMOVEDIR)?)
    }

    fn sync_names(&self, of: &str) -> io::Result<()> {
        Ok(fsync(self.open_directory(of)?)?)
    }

    fn is_same(&self) -> io::Result<()> {
        let path = self.path().display();
        match statat(CWD, self.path(), AtFlags::empty()) {
            Ok(stat) if id_of(&stat) == self.0.id => {}
            Ok(_) => {
                return Err(out_of_place(format!(
                    "{path} is another directory than at the start: bring the old one back"
                )));
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                return Err(out_of_place(format!("{path} is gone: bring it back")));
            }
            Err(error) => return Err(error.into()),
        }
        match self.0.lock.get() {
            Some(lock) if self.id_in(LOCK).ok() != Some(*lock) => Err(out_of_place(format!(
                "{path}/{LOCK} is gone or another file, so that another server may have the directory: bring it back, or restart"
            ))),
            _ => Ok(()),
        }
    }

    fn is_named(&self, name: &str, file: &Arc<File>) -> io::Result<()> {
        let path = self.path().display();
        match self.id_in(name) {
            Ok(id) if id == id_of(&fstat(file.as_fd())?) => Ok(()),
            Ok(_) | Err(Errno::NOENT) => {
                Err(out_of_place(format!("{path}/{name} is gone or another file: bring it back")))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl VolumeFile for Arc<File> {
    fn append(&self, slices: &[&[u8]]) -> io::Result<()> {
        for some in slices.chunks(SLICES) {
            let mut rest: Vec<IoSlice<'_>> = some.iter().map(|slice| IoSlice::new(slice)).collect();
            let mut rest = &mut rest[..];
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                match (&**self).write_vectored(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => IoSlice::advance_slices(&mut rest, written),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn write_again(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        FileExt::write_all_at(&**self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(&**self, buffer, offset)
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}
