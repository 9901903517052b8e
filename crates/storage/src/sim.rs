//! A simulated disk, for tests and worlds: a page cache over blocks that a power cut keeps, loses or
//! tears, names that are not synced, and errors.
//!
//! It promises what [`Volume`] promises, and nothing more. In particular a failed sync loses: the
//! bytes count as clean, so that no later sync brings them to the disk.

use crate::volume::{Volume, VolumeFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a power cut keeps or loses together.
const BLOCK_BYTES: usize = 512;

/// Draws a number below this one.
pub type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

/// What goes wrong from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskFault {
    /// Nothing.
    #[default]
    None,
    /// Writes fail; some of their bytes are there.
    Write,
    /// Syncs fail.
    Sync,
    /// Nothing can be written or made.
    Full,
    /// The directory is gone, or only to be read.
    Gone,
    /// The directory was moved, and a copy lies in its place. Every call goes on to succeed, and the
    /// next process finds the copy, unless the directory has come back by then.
    Moved,
}

#[derive(Clone, Default)]
struct FileState {
    /// As the page cache has it.
    bytes: Vec<u8>,
    /// As the disk has it.
    disk: Vec<u8>,
    /// Blocks that differ, as far as the kernel knows.
    dirty: Vec<usize>,
}

impl FileState {
    fn note_dirty(&mut self, from: usize, to: usize) {
        for block in from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES) {
            if !self.dirty.contains(&block) {
                self.dirty.push(block);
            }
        }
    }

    fn bring(&mut self, block: usize) {
        let from = block * BLOCK_BYTES;
        let to = (from + BLOCK_BYTES).min(self.bytes.len());
        if to > from {
            self.disk.resize(self.disk.len().max(to), 0);
            self.disk[from..to].copy_from_slice(&self.bytes[from..to]);
        }
    }

    /// Brings some of the dirty blocks to the disk, and forgets the others.
    fn lose_some(&mut self, draw: Draw<'_>) {
        let keeps = draw(3);
        for block in std::mem::take(&mut self.dirty) {
            match keeps {
                0 => {}
                1 => self.bring(block),
                _ if draw(2) == 0 => self.bring(block),
                _ => {}
            }
        }
        // The length may be there without the bytes.
        if draw(2) == 0 {
            self.disk.resize(self.disk.len().max(self.bytes.len()), 0);
        }
    }
}

#[derive(Clone)]
enum NameChange {
    Made(String, usize),
    Renamed(String, String),
    Removed(String),
}

#[derive(Default)]
struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    /// Names as the disk has them, and what has changed since.
    disk_names: BTreeMap<String, usize>,
    changes: Vec<NameChange>,
    fault: DiskFault,
    /// What the next process finds, if the directory was moved.
    moved: Option<Box<State>>,
    /// What goes wrong after so many more calls that change something.
    coming: Option<(u64, DiskFault)>,
    syncs: u64,
    writes: u64,
}

fn apply(names: &mut BTreeMap<String, usize>, change: NameChange) {
    match change {
        NameChange::Made(name, file) => _ = names.insert(name, file),
        NameChange::Renamed(from, to) => {
            let inside = |name: &&String| **name == from || name.starts_with(&format!("{from}/"));
            let moved: Vec<String> = names.keys().filter(inside).cloned().collect();
            for name in moved {
                if let Some(file) = names.remove(&name) {
                    names.insert(format!("{to}{}", &name[from.len()..]), file);
                }
            }
        }
        NameChange::Removed(name) => _ = names.remove(&name),
    }
}

impl State {
    /// All files; those that can have no name any more are empty.
    fn named_files(&self) -> Vec<FileState> {
        let names = self.names.values().chain(self.disk_names.values());
        let made = self.changes.iter().filter_map(|change| match change {
            NameChange::Made(_, file) => Some(file),
            NameChange::Renamed(..) | NameChange::Removed(_) => None,
        });
        let mut files = vec![FileState::default(); self.files.len()];
        names.chain(made).for_each(|&file| files[file] = self.files[file].clone());
        files
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, change.clone());
        self.changes.push(change);
    }

    fn set_fault(&mut self, fault: DiskFault) {
        (self.fault, self.coming) = (fault, None);
        self.moved = match fault {
            DiskFault::Moved => self.moved.take().or_else(|| Some(Box::new(self.as_found()))),
            _ => None,
        };
    }

    /// As the next process finds it.
    fn as_found(&self) -> Self {
        match &self.moved {
            Some(moved) => moved.as_found(),
            None => Self {
                files: self.named_files(),
                names: self.names.clone(),
                disk_names: self.disk_names.clone(),
                changes: self.changes.clone(),
                ..Self::default()
            },
        }
    }

    /// A call that changes something begins.
    fn step(&mut self) {
        match &mut self.coming {
            Some((0, fault)) => {
                let fault = *fault;
                self.set_fault(fault);
            }
            Some((calls, _)) => *calls -= 1,
            None => {}
        }
    }

    fn may_change(&mut self) -> io::Result<()> {
        self.step();
        match self.fault {
            DiskFault::Full => Err(io::ErrorKind::StorageFull.into()),
            DiskFault::Gone => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(()),
        }
    }
}

/// See the module's text. Clones are of the same disk.
#[derive(Clone, Default)]
pub struct SimVolume(Arc<Mutex<State>>);

impl SimVolume {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this goes wrong.
    pub fn set_fault(&self, fault: DiskFault) {
        self.state().set_fault(fault);
    }

    /// The same after so many more calls that change something.
    pub fn set_fault_in(&self, calls: u64, fault: DiskFault) {
        self.state().coming = Some((calls, fault));
    }

    /// What goes wrong now.
    pub fn fault(&self) -> DiskFault {
        self.state().fault
    }

    /// The process dies, and the machine goes on: the disk as the next process finds it.
    pub fn after_kill(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().as_found())))
    }

    /// The power is cut: the disk as the next process finds it.
    pub fn after_power_cut(&self, draw: Draw<'_>) -> Self {
        let State { mut files, disk_names: mut names, changes, .. } = self.state().as_found();
        // A file system that has a journal keeps some first changes; another one keeps any.
        let first = draw(changes.len() as u64 + 1) as usize;
        let keeps_order = draw(2) == 0;
        for (at, change) in changes.into_iter().enumerate() {
            if if keeps_order { at < first } else { draw(2) == 0 } {
                apply(&mut names, change);
            }
        }
        for file in &mut files {
            file.lose_some(draw);
            file.bytes = file.disk.clone();
        }
        let disk_names = names.clone();
        Self(Arc::new(Mutex::new(State { files, names, disk_names, ..State::default() })))
    }

    /// Syncs and writes so far.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.syncs, state.writes)
    }

    /// Files that were made so far.
    pub fn files_made(&self) -> usize {
        self.state().files.len()
    }

    /// Changes a byte of a file, on the disk too.
    pub fn spoil(&self, name: &str, offset: usize) {
        let mut state = self.state();
        let file = state.names[name];
        let file = &mut state.files[file];
        file.bytes[offset] ^= 0x20;
        if let Some(byte) = file.disk.get_mut(offset) {
            *byte ^= 0x20;
        }
    }

    /// The names of all files.
    pub fn all(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }
}

/// An open file of a simulated disk.
#[derive(Clone)]
pub struct SimFile {
    volume: SimVolume,
    file: usize,
}

impl Volume for SimVolume {
    type File = SimFile;

    fn names(&self, of: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        let inside = |name: &String| match of {
            "" => name.split('/').next().map(str::to_owned),
            of => name.strip_prefix(of)?.strip_prefix('/').map(str::to_owned),
        };
        let mut names: Vec<String> = state.names.keys().filter_map(inside).collect();
        names.dedup();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let state = self.state();
        let file = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(SimFile { volume: self.clone(), file })
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        state.may_change()?;
        state.files.push(FileState::default());
        let file = state.files.len() - 1;
        state.change(NameChange::Made(name.to_owned(), file));
        Ok(SimFile { volume: self.clone(), file })
    }

    fn make_subdirectory(&self, _name: &str) -> io::Result<()> {
        self.state().may_change()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.may_change()?;
        // A subdirectory goes whole.
        state.change(NameChange::Renamed(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.may_change()?;
        let inside = |other: &String| other == name || other.starts_with(&format!("{name}/"));
        let gone: Vec<String> = state.names.keys().filter(|other| inside(other)).cloned().collect();
        gone.into_iter().for_each(|name| state.change(NameChange::Removed(name)));
        Ok(())
    }

    fn sync_names(&self, _of: &str) -> io::Result<()> {
        let mut state = self.state();
        state.may_change()?;
        if state.fault == DiskFault::Sync {
            return Err(io::Error::from_raw_os_error(5));
        }
        let State { disk_names, changes, .. } = &mut *state;
        changes.drain(..).for_each(|change| apply(disk_names, change));
        Ok(())
    }

    fn is_same(&self) -> io::Result<()> {
        match self.state().fault {
            DiskFault::Moved => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(()),
        }
    }

    fn is_named(&self, name: &str, file: &SimFile) -> io::Result<()> {
        match self.state().names.get(name) {
            Some(named) if *named == file.file => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl VolumeFile for SimFile {
    fn append(&self, slices: &[&[u8]]) -> io::Result<()> {
        let mut state = self.volume.state();
        state.writes += 1;
        state.step();
        let all = slices.concat();
        let (fault, written) = match state.fault {
            DiskFault::None | DiskFault::Sync | DiskFault::Moved => (None, all.len()),
            DiskFault::Write => (Some(io::Error::from_raw_os_error(5)), all.len() / 2),
            DiskFault::Full => (Some(io::ErrorKind::StorageFull.into()), all.len() / 3),
            // The file is open, its name is not needed.
            DiskFault::Gone => (None, all.len()),
        };
        let file = &mut state.files[self.file];
        let from = file.bytes.len();
        file.bytes.extend_from_slice(&all[..written]);
        file.note_dirty(from, from + written);
        fault.map_or(Ok(()), Err)
    }

    fn write_again(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.volume.state();
        state.writes += 1;
        state.step();
        if state.fault == DiskFault::Write {
            return Err(io::Error::from_raw_os_error(5));
        }
        let file = &mut state.files[self.file];
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        assert_eq!(file.bytes.get(from..to), Some(bytes), "they lie there");
        file.note_dirty(from, to);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.volume.state();
        state.syncs += 1;
        state.step();
        let (fault, syncs) = (state.fault, state.syncs);
        let file = &mut state.files[self.file];
        if matches!(fault, DiskFault::Sync | DiskFault::Gone) {
            let mut at = syncs;
            file.lose_some(&mut |below| {
                at = remora_layout::hash::mix(at, below);
                at % below
            });
            return Err(io::Error::from_raw_os_error(5));
        }
        for block in std::mem::take(&mut file.dirty) {
            file.bring(block);
        }
        file.disk.resize(file.disk.len().max(file.bytes.len()), 0);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.volume.state().files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.volume.state();
        let bytes = state.files[self.file].bytes.get(offset as usize..).unwrap_or_default();
        let some = bytes.len().min(buffer.len());
        buffer[..some].copy_from_slice(&bytes[..some]);
        Ok(some)
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.volume.state();
        let file = &mut state.files[self.file];
        file.bytes.truncate(bytes as usize);
        file.disk.truncate(bytes as usize);
        Ok(())
    }
}
