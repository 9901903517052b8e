//! The power-cut layer as a tool: builds it, loads it into a server, reads its journal, and lets
//! it fail.
//!
//! The layer is C, as it takes the place of libc's own functions. The binary carries its source,
//! and builds it with the machine's `cc` for each run: no build step of the workspace needs a C
//! compiler, and `unsafe` Rust gets no new crate.

use crate::disk::{Disk, Entry};
use crate::journal::{self, Event};
use anyhow::{Context, bail};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("layer.c");
/// Words of the control file, as `layer.c` has them.
const SYNC_DELAY_MS: u64 = 0;
const SYNC_ERRNO: u64 = 1;
const WRITE_ERRNO: u64 = 2;
const SHORT_WRITES: u64 = 3;
const FAILURES: u64 = 4;
const CONTROL_BYTES: u64 = 64;

/// What a bad disk does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Writes fail, as nothing is free. One is cut short before.
    Full,
    /// Writes fail with an error of the device.
    Write,
    /// Syncs fail with an error of the device.
    Sync,
    /// Each sync takes so many milliseconds longer.
    Slow(u32),
}

/// The layer, and what it keeps of one directory.
#[derive(Debug)]
pub struct Layer {
    root: PathBuf,
    home: PathBuf,
    control: File,
    disk: Disk,
}

impl Layer {
    /// Builds the layer for the directory `root`, an absolute path, in `home`, a directory of its
    /// own on the same file system. All that `root` holds counts as synced.
    ///
    /// # Errors
    /// There is no C compiler, or a file cannot be written.
    pub fn build(root: &Path, home: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(home.join("grave")).context("making the layer's directory")?;
        let (source, library) = (home.join("layer.c"), home.join("layer.so"));
        fs::write(&source, SOURCE).context("writing the layer's source")?;
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
        let built = compile.output().context("cannot run cc: install a C compiler")?;
        if !built.status.success() {
            bail!("cc cannot build the layer: {}", String::from_utf8_lossy(&built.stderr));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let control = options.open(home.join("control")).context("making the layer's control")?;
        control.set_len(CONTROL_BYTES).context("making the layer's control")?;
        let disk = whole(root)?;
        Ok(Self { root: root.to_owned(), home: home.to_owned(), control, disk })
    }

    /// The environment of a server that runs under the layer.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", self.home.join("layer.so")),
            ("CRASH_LAYER_ROOT", self.root.clone()),
            ("CRASH_LAYER_HOME", self.home.clone()),
        ]
    }

    /// Lets the disk be bad from now on, or good again.
    ///
    /// # Errors
    /// The layer's control cannot be written.
    pub fn set_fault(&self, fault: Option<Fault>) -> anyhow::Result<()> {
        let no_space = rustix::io::Errno::NOSPC.raw_os_error() as u32;
        let device = rustix::io::Errno::IO.raw_os_error() as u32;
        let words = match fault {
            None => [0, 0, 0, 0],
            Some(Fault::Full) => [0, 0, no_space, 1],
            Some(Fault::Write) => [0, 0, device, 0],
            Some(Fault::Sync) => [0, device, 0, 0],
            Some(Fault::Slow(ms)) => [ms, 0, 0, 0],
        };
        // What counts is written last.
        for word in [SHORT_WRITES, SYNC_DELAY_MS, SYNC_ERRNO, WRITE_ERRNO] {
            self.control.write_all_at(&words[word as usize].to_le_bytes(), 4 * word)?;
        }
        Ok(())
    }

    /// How many calls it has let fail.
    ///
    /// # Errors
    /// The layer's control cannot be read.
    pub fn failures(&self) -> anyhow::Result<u32> {
        let mut word = [0; 4];
        self.control.read_exact_at(&mut word, 4 * FAILURES)?;
        Ok(u32::from_le_bytes(word))
    }

    /// Syncs that succeeded, as far as the journal has been read.
    pub fn syncs(&self) -> u64 {
        self.disk.syncs()
    }

    /// Reads what a server did, once it has ended, and empties the journal.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn follow(&mut self) -> anyhow::Result<()> {
        let path = self.home.join("journal");
        let events: Vec<Event> = journal::read(&path)?;
        events.iter().for_each(|event| self.disk.follow(event));
        if path.exists() {
            File::options().write(true).open(&path)?.set_len(0)?;
        }
        Ok(())
    }

    /// After a kill: what the kernel had carried out of a call whose thread died before it noted that
    /// counts as noted, and not as synced.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn add_unnoted(&mut self) -> anyhow::Result<()> {
        let there = listing(&self.root)?;
        let is_there = |path: &str| there.iter().any(|(of, ..)| of == path);
        let mut left = self.disk.inodes();
        for (path, ino, len) in &there {
            let (path, ino) = (path.clone(), *ino);
            if left.remove(&path) != Some(ino) {
                let old = left.iter().find(|(of, known)| **known == ino && !is_there(of));
                let event = match (old.map(|(from, _)| from.clone()), len) {
                    (Some(from), _) => Event::Rename { from, to: path.clone() },
                    (None, Some(_)) => Event::Link { path: path.clone(), ino },
                    (None, None) => Event::MakeDirectory { path: path.clone(), ino },
                };
                self.disk.follow(&event);
            }
            let known = self.disk.len_of(ino);
            match *len {
                Some(len) if len > known => {
                    self.disk.follow(&Event::Write { ino, offset: known, len: len - known });
                }
                Some(len) if len < known => self.disk.follow(&Event::Resize { ino, len }),
                _ => {}
            }
        }
        let gone = self.disk.inodes().into_keys().filter(|path| !is_there(path));
        gone.collect::<Vec<_>>().into_iter().for_each(|path| {
            self.disk.follow(&Event::Remove { path });
        });
        Ok(())
    }

    /// Another one has changed the directory, and all that it holds counts as synced from now on.
    pub fn begin_anew(&mut self) -> anyhow::Result<()> {
        fs::remove_dir_all(self.home.join("grave"))?;
        fs::create_dir(self.home.join("grave"))?;
        let syncs = self.disk.syncs();
        self.disk = whole(&self.root)?.with_syncs(syncs);
        Ok(())
    }

    /// After a clean end: whether the layer saw all that changed the directory.
    ///
    /// # Errors
    /// It did not.
    pub fn check_seen(&self) -> anyhow::Result<()> {
        let there: BTreeMap<String, Option<u64>> =
            listing(&self.root)?.into_iter().map(|(path, _, len)| (path, len)).collect();
        let seen = self.disk.listing();
        if there == seen {
            return Ok(());
        }
        let differs = |path: &&String| there.get(*path) != seen.get(*path);
        let path = there.keys().chain(seen.keys()).find(differs).cloned().unwrap_or_default();
        bail!(
            "the layer did not see all that the server did: {path} has {:?} bytes, and by the journal {:?}. \
             The server has to change files by libc's functions, as std::fs does",
            there.get(&path).copied().flatten(),
            seen.get(&path).copied().flatten(),
        )
    }

    /// As [`Layer::follow`], then a power cut whose outcome is drawn from a seed.
    ///
    /// # Errors
    /// The journal or a file cannot be read or written.
    pub fn cut_power(&mut self, seed: u64) -> anyhow::Result<()> {
        self.follow()?;
        self.cut(&mut ChaCha8Rng::seed_from_u64(seed))
    }

    /// Cuts the power: the directory becomes one that the disk may hold. Follow the journal before.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn cut(&mut self, rng: &mut ChaCha8Rng) -> anyhow::Result<()> {
        let mut places: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for from in [self.home.join("grave"), self.root.clone()] {
            let files = listing(&from)?.into_iter().filter(|(_, _, len)| len.is_some());
            places.extend(files.map(|(path, ino, _)| (ino, from.join(path))));
        }
        // A file that is in no place was made and removed while the server died.
        let image = self.disk.cut(rng, |ino| match places.get(&ino) {
            Some(path) => fs::read(path).with_context(|| format!("reading {}", path.display())),
            None => Ok(Vec::new()),
        })?;
        let next = self.home.join("next");
        build_image(&next, &image, &places)?;
        fs::remove_dir_all(&self.root).context("removing the directory before the cut")?;
        fs::rename(&next, &self.root).context("putting the cut directory in place")?;
        self.begin_anew()
    }
}

fn build_image(
    next: &Path,
    image: &BTreeMap<String, Entry>,
    places: &BTreeMap<u64, PathBuf>,
) -> anyhow::Result<()> {
    fs::create_dir(next).context("making the cut directory")?;
    for (path, entry) in image {
        let to = next.join(path);
        match entry {
            Entry::Directory => fs::create_dir(&to),
            Entry::File(bytes) => fs::write(&to, bytes),
            Entry::Same(ino) => match places.get(ino) {
                Some(from) => fs::hard_link(from, &to),
                None => fs::write(&to, []),
            },
        }
        .with_context(|| format!("writing {} as it is after the cut", to.display()))?;
    }
    Ok(())
}

/// A directory of which all is on the disk.
fn whole(root: &Path) -> anyhow::Result<Disk> {
    Ok(Disk::whole(fs::metadata(root)?.ino(), &listing(root)?))
}

/// Paths below a directory, parents first: with inode and, of files, length.
fn listing(root: &Path) -> anyhow::Result<Vec<(String, u64, Option<u64>)>> {
    let mut found = Vec::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let known = entry.metadata()?;
            if known.is_dir() {
                directories.push(path.clone());
            }
            found.push((path, known.ino(), (!known.is_dir()).then_some(known.len())));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
