//! What a disk may hold after a power cut, from what a server did to its files.
//!
//! The kernel promises little: what was written before a sync began that succeeded is there,
//! and so are the names of a directory that was synced. Of all else each block of 4 KiB may have
//! reached the disk, not, or in part; a file may be shorter, though never shorter than when it was
//! synced; and each change of names may have happened or not. A sync that failed makes the
//! bytes that it was about doubtful for ever, as Linux forgets that they were dirty: a later sync
//! does not cover them.
//!
//! [`Disk`] follows the events of a journal; [`Disk::cut`] draws one of the possible states. Both
//! are functions of their arguments alone.

use crate::journal::Event;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use std::collections::BTreeMap;

/// What is kept, lost or torn as a unit.
pub const BLOCK_BYTES: usize = 4096;
/// A torn block is torn between sectors.
const SECTOR_BYTES: usize = 512;

/// Names of one directory.
type Names = BTreeMap<String, u64>;

/// A file or a directory.
#[derive(Clone, Default, Debug)]
struct Inode {
    is_directory: bool,
    len: u64,
    /// Bytes that the disk surely has.
    synced_len: u64,
    /// Changes that no successful sync has covered yet, the oldest first.
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    what: What,
    /// Its place among all changes of all files.
    number: u64,
    len_before: u64,
    /// A sync about it failed: later ones do not cover it.
    is_doubtful: bool,
}

#[derive(Clone, Debug)]
enum What {
    Write { offset: u64, len: u64 },
    Old { offset: u64, bytes: Vec<u8> },
    Resize,
}

/// A change of names: each entry is (directory, name, what it names from now on).
#[derive(Clone, Debug)]
struct Renaming {
    number: u64,
    entries: Vec<(u64, String, Option<u64>)>,
    is_doubtful: bool,
}

/// What a name of the cut directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A directory.
    Directory,
    /// The file as it lies there now.
    Same(u64),
    /// A file with these bytes.
    File(Vec<u8>),
}

/// The files of a directory, as the server and as the disk has them.
#[derive(Clone, Debug)]
pub struct Disk {
    root: u64,
    inodes: BTreeMap<u64, Inode>,
    live: BTreeMap<u64, Names>,
    durable: BTreeMap<u64, Names>,
    renamings: Vec<Renaming>,
    /// The number of the next change of bytes or of names.
    next: u64,
    /// The syncs that have begun, by file and id: they cover the changes before this number.
    begun: BTreeMap<(u64, u64), u64>,
    syncs: u64,
}

impl Disk {
    /// A directory that is on the disk as a whole: (path, inode, length); of a directory the
    /// length is `None`. Parents come before what they hold.
    pub fn whole(root: u64, listing: &[(String, u64, Option<u64>)]) -> Self {
        let mut disk = Self {
            root,
            inodes: BTreeMap::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            renamings: Vec::new(),
            next: 0,
            begun: BTreeMap::new(),
            syncs: 0,
        };
        disk.add_directory(root);
        for (path, ino, len) in listing {
            match len {
                None => disk.add_directory(*ino),
                Some(len) => {
                    let inode = Inode { len: *len, synced_len: *len, ..Inode::default() };
                    disk.inodes.insert(*ino, inode);
                }
            }
            if let Some((directory, name)) = disk.place_of(path) {
                disk.live.entry(directory).or_default().insert(name, *ino);
            }
        }
        disk.durable = disk.live.clone();
        disk
    }

    /// The same, with this count of successful syncs.
    #[must_use]
    pub fn with_syncs(self, syncs: u64) -> Self {
        Self { syncs, ..self }
    }

    /// Successful syncs so far.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    fn add_directory(&mut self, ino: u64) {
        self.inodes.insert(ino, Inode { is_directory: true, ..Inode::default() });
        self.live.insert(ino, Names::new());
    }

    /// The directory of a path, and the name in it.
    fn place_of(&self, path: &str) -> Option<(u64, String)> {
        let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let last = names.pop()?;
        let mut directory = self.root;
        for name in names {
            directory = *self.live.get(&directory)?.get(name)?;
        }
        Some((directory, last.to_owned()))
    }

    fn rename(&mut self, entries: Vec<(u64, String, Option<u64>)>) {
        for (directory, name, ino) in &entries {
            let names = self.live.entry(*directory).or_default();
            match ino {
                Some(ino) => names.insert(name.clone(), *ino),
                None => names.remove(name),
            };
        }
        self.renamings.push(Renaming { number: self.next, entries, is_doubtful: false });
        self.next += 1;
    }

    fn change(&mut self, ino: u64, what: What, len: impl FnOnce(u64) -> u64) {
        let inode = self.inodes.entry(ino).or_default();
        let len_before = inode.len;
        inode.len = len(inode.len);
        inode.unsynced.push(Change { what, number: self.next, len_before, is_doubtful: false });
        self.next += 1;
    }

    /// Follows one event.
    pub fn follow(&mut self, event: &Event) {
        match event {
            Event::Create { path, ino } | Event::Link { path, ino } => {
                self.inodes.entry(*ino).or_default();
                self.name(path, Some(*ino));
            }
            Event::MakeDirectory { path, ino } => {
                self.add_directory(*ino);
                self.name(path, Some(*ino));
            }
            Event::Remove { path } => self.name(path, None),
            Event::Rename { from, to } => {
                let (Some(from), Some(to)) = (self.place_of(from), self.place_of(to)) else {
                    return;
                };
                let Some(ino) = self.live.get(&from.0).and_then(|names| names.get(&from.1)) else {
                    return;
                };
                let ino = *ino;
                self.rename(vec![(from.0, from.1, None), (to.0, to.1, Some(ino))]);
            }
            Event::Write { ino, offset, len } => {
                let (offset, len) = (*offset, *len);
                self.change(*ino, What::Write { offset, len }, |now| now.max(offset + len));
            }
            Event::Old { ino, offset, bytes } => {
                let bytes = bytes.clone();
                self.change(*ino, What::Old { offset: *offset, bytes }, |now| now);
            }
            Event::Resize { ino, len } => {
                self.change(*ino, What::Resize, |_| *len);
            }
            Event::SyncBegin { ino, id } => {
                self.begun.insert((*ino, *id), self.next);
            }
            Event::SyncEnd { ino, id, succeeded } => {
                if let Some(before) = self.begun.remove(&(*ino, *id)) {
                    self.sync(*ino, before, *succeeded);
                }
            }
        }
    }

    fn name(&mut self, path: &str, ino: Option<u64>) {
        if let Some((directory, name)) = self.place_of(path) {
            self.rename(vec![(directory, name, ino)]);
        }
    }

    /// A sync of a file or directory has ended; it is about the changes before this number.
    fn sync(&mut self, ino: u64, before: u64, succeeded: bool) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        if inode.is_directory {
            self.sync_names(ino, before, succeeded);
        } else {
            inode.sync(before, succeeded);
        }
        self.syncs += u64::from(succeeded);
    }

    fn sync_names(&mut self, directory: u64, before: u64, succeeded: bool) {
        let durable = self.durable.entry(directory).or_default();
        for renaming in self.renamings.iter_mut().filter(|renaming| renaming.number < before) {
            if !succeeded {
                renaming.is_doubtful |= renaming.entries.iter().any(|(of, ..)| *of == directory);
            } else if !renaming.is_doubtful {
                renaming.entries.retain(|(of, name, ino)| {
                    if *of == directory {
                        put(durable, name, *ino);
                    }
                    *of != directory
                });
            }
        }
        self.renamings.retain(|renaming| !renaming.entries.is_empty());
    }

    /// Paths that there are, with the lengths of files, as the server left them.
    pub fn listing(&self) -> BTreeMap<String, Option<u64>> {
        let mut found = BTreeMap::new();
        walk(&self.live, self.root, "", &mut |path, ino| {
            let inode = &self.inodes[&ino];
            found.insert(path.to_owned(), (!inode.is_directory).then_some(inode.len));
        });
        found
    }

    /// Paths that there are, with their inodes, as the server left them.
    pub fn inodes(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        walk(&self.live, self.root, "", &mut |path, ino| {
            found.insert(path.to_owned(), ino);
        });
        found
    }

    /// Bytes of a file, as the server left it.
    pub fn len_of(&self, ino: u64) -> u64 {
        self.inodes.get(&ino).map_or(0, |inode| inode.len)
    }

    /// Draws what the disk holds after a power cut. `bytes_of` gives the bytes that the server
    /// left in a file.
    pub fn cut<E>(
        &self,
        rng: &mut ChaCha8Rng,
        mut bytes_of: impl FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<BTreeMap<String, Entry>, E> {
        let names = self.cut_names(rng);
        let mut image = BTreeMap::new();
        let mut files = Vec::new();
        walk(&names, self.root, "", &mut |path, ino| {
            let inode = &self.inodes[&ino];
            if inode.is_directory {
                image.insert(path.to_owned(), Entry::Directory);
            } else if inode.unsynced.is_empty() {
                image.insert(path.to_owned(), Entry::Same(ino));
            } else {
                files.push((path.to_owned(), ino));
            }
        });
        let mut done: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (path, ino) in files {
            if let std::collections::btree_map::Entry::Vacant(entry) = done.entry(ino) {
                entry.insert(self.inodes[&ino].cut(bytes_of(ino)?, rng));
            }
            image.insert(path, Entry::File(done[&ino].clone()));
        }
        Ok(image)
    }

    fn cut_names(&self, rng: &mut ChaCha8Rng) -> BTreeMap<u64, Names> {
        let mut names = self.durable.clone();
        let in_order = rng.random_bool(0.5);
        let kept = rng.random_range(0..=self.renamings.len());
        for (at, renaming) in self.renamings.iter().enumerate() {
            if if in_order { at < kept } else { rng.random_bool(0.5) } {
                for (directory, name, ino) in &renaming.entries {
                    put(names.entry(*directory).or_default(), name, *ino);
                }
            }
        }
        names
    }
}

fn put(names: &mut Names, name: &str, ino: Option<u64>) {
    match ino {
        Some(ino) => names.insert(name.to_owned(), ino),
        None => names.remove(name),
    };
}

/// Calls `each` for every path below a directory, parents first.
fn walk(
    names: &BTreeMap<u64, Names>,
    directory: u64,
    path: &str,
    each: &mut impl FnMut(&str, u64),
) {
    for (name, ino) in names.get(&directory).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        each(&path, *ino);
        walk(names, *ino, &path, each);
    }
}

impl Change {
    /// What is left of it without these bytes.
    fn without(self, from: u64, to: u64) -> Vec<Self> {
        let (offset, len) = match &self.what {
            What::Write { offset, len } => (*offset, *len),
            What::Old { offset, bytes } => (*offset, bytes.len() as u64),
            What::Resize => return vec![self],
        };
        let part = |start: u64, end: u64| {
            let what = match &self.what {
                What::Old { bytes, .. } => {
                    let bytes = bytes[(start - offset) as usize..(end - offset) as usize].to_vec();
                    What::Old { offset: start, bytes }
                }
                _ => What::Write { offset: start, len: end - start },
            };
            Self { what, ..self }
        };
        let end = offset + len;
        let sides = [(offset, end.min(from)), (offset.max(to), end)];
        sides.into_iter().filter(|(start, end)| start < end).map(|(s, e)| part(s, e)).collect()
    }
}

impl Inode {
    fn sync(&mut self, before: u64, succeeded: bool) {
        let covered = self.unsynced.partition_point(|change| change.number < before);
        if !succeeded {
            self.unsynced[..covered].iter_mut().for_each(|change| change.is_doubtful = true);
            return;
        }
        let later = self.unsynced.split_off(covered);
        self.synced_len = later.first().map_or(self.len, |change| change.len_before);
        let covered = std::mem::take(&mut self.unsynced);
        let (mut doubtful, synced): (Vec<_>, Vec<_>) =
            covered.into_iter().partition(|change| change.is_doubtful);
        // What was written once more after a failed sync is dirty again, and was synced.
        for change in synced {
            if let What::Write { offset, len } = change.what {
                let without = |old: Change| old.without(offset, offset + len);
                doubtful = doubtful.into_iter().flat_map(without).collect();
            }
        }
        self.unsynced = doubtful;
        self.unsynced.extend(later);
    }

    /// One of the contents that the disk may have; `last` is what the server left.
    fn cut(&self, mut last: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let synced = self.synced_bytes(&last);
        let len = self.cut_len(last.len(), rng);
        let mut cut = synced;
        cut.resize(len, 0);
        last.resize(len, 0);
        let keeps_all = rng.random_bool(0.125);
        for from in (0..len).step_by(BLOCK_BYTES) {
            let to = (from + BLOCK_BYTES).min(len);
            if keeps_all {
                cut[from..to].copy_from_slice(&last[from..to]);
            } else if cut[from..to] != last[from..to] {
                let reached = match rng.random_range(0..3) {
                    0 => 0,
                    1 => to - from,
                    _ => rng.random_range(0..=(to - from) / SECTOR_BYTES) * SECTOR_BYTES,
                };
                cut[from..from + reached].copy_from_slice(&last[from..from + reached]);
            }
        }
        cut
    }

    /// The bytes that are surely on the disk, at their length: all changes taken back.
    fn synced_bytes(&self, last: &[u8]) -> Vec<u8> {
        let mut bytes = last.to_vec();
        for change in self.unsynced.iter().rev() {
            match &change.what {
                What::Write { offset, len } => {
                    // Beyond what is restored below, these bytes were not there.
                    let end = (*offset + *len).min(bytes.len() as u64) as usize;
                    let from = (*offset as usize).min(end);
                    bytes[from..end].fill(0);
                }
                What::Old { offset, bytes: old } => {
                    let end = *offset as usize + old.len();
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[*offset as usize..end].copy_from_slice(old);
                }
                What::Resize => {}
            }
        }
        // The server died between a write and its record.
        let known = self.len as usize;
        if bytes.len() > known && last.len() > known {
            bytes[known..].fill(0);
        }
        bytes.resize(self.synced_len as usize, 0);
        bytes
    }

    fn cut_len(&self, last: usize, rng: &mut ChaCha8Rng) -> usize {
        let synced = self.synced_len as usize;
        let (least, most) = (synced.min(last), synced.max(last));
        match rng.random_range(0..4) {
            0 => synced,
            1 => last,
            _ => rng.random_range(least..=most),
        }
    }
}

#[cfg(test)]
mod tests;
