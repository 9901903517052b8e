//! A directory of the file system, and the lock that keeps two servers from one.

use crate::error::StorageError;
use crate::volume::{Volume, VolumeFile};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Slices that one call of the kernel takes.
const SLICES: usize = 1024;

/// A directory of the file system. Only its owner can read what is made in it.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// This directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or is something else.
    pub fn at(path: &Path) -> Result<Self, StorageError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| StorageError::io("make", &path.display().to_string(), source))?;
        Ok(Self(path.to_path_buf()))
    }

    /// This directory, which is there.
    pub fn existing(path: &Path) -> Result<Self, StorageError> {
        match path.is_dir() {
            true => Ok(Self(path.to_path_buf())),
            false => Err(StorageError::NoDirectory(path.display().to_string())),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes the directory for this process, until the lock is dropped or the process ends.
    ///
    /// # Errors
    /// Another process has it.
    pub fn lock(&self) -> Result<Lock, StorageError> {
        let path = self.0.join("lock");
        let failed = |source| StorageError::io("open", "lock", source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            // Without the name the error says less.
            let _ = file.read_to_string(&mut holder);
            let directory = self.0.display().to_string();
            return Err(StorageError::Locked { directory, holder: holder.trim().to_owned() });
        }
        let told = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)).map(drop));
        told.and_then(|()| writeln!(file, "process {}", std::process::id())).map_err(failed)?;
        Ok(Lock(file))
    }
}

/// A locked directory.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it unlocks")] File);

impl Volume for Directory {
    type File = Arc<File>;

    fn names(&self, of: &str) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.0.join(of))?;
        // A name that is no text is none of ours.
        entries
            .map(|entry| Ok(entry?.file_name().into_string().ok()))
            .filter_map(Result::transpose)
            .collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<File>> {
        let path = self.0.join(name);
        let both = OpenOptions::new().read(true).write(true).open(&path);
        // A tool may look at what it cannot write.
        both.or_else(|_| File::open(&path)).map(Arc::new)
    }

    fn create(&self, name: &str) -> io::Result<Arc<File>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(self.0.join(name))?;
        file.set_len(0)?;
        Ok(Arc::new(file))
    }

    fn make_subdirectory(&self, name: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.0.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.0.join(name);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        }
    }

    fn sync_names(&self, of: &str) -> io::Result<()> {
        File::open(self.0.join(of))?.sync_all()
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
