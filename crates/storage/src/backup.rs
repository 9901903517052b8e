//! A copy of what a data directory holds, taken while a server may be writing into it.
//!
//! The copy is the newest snapshot and the log that goes on from it. A snapshot alone is exact for
//! each shard, at a sequence of its own; only the log behind it gives one state of all shards. The
//! copied log ends somewhere, as after a crash: what is torn there is cut off.
//!
//! Invariant: the files are open before the first byte is copied, and the snapshot is still the
//! newest one after that. So a server that writes the next snapshot meanwhile, and removes this one
//! and its log, takes nothing away.

use crate::error::StorageError;
use crate::find::{expect_no_log, find};
use crate::identity::Identity;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name, segment_number};
use crate::snapshot::{SnapshotAt, find_snapshot, snapshot_file_name, snapshot_name};
use crate::volume::{Volume, VolumeFile, read_from};
use remora_layout::hash::PieceChecksum;
use std::io;

/// How often files may vanish before they are opened. A server removes some after each snapshot.
const TRIES: usize = 64;
/// Bytes that are copied together.
const COPIED_BYTES: usize = 1 << 20;

/// A file of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSum {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// The checksum of all of them.
    pub checksum: u64,
}

/// Copies the data into an empty directory, except for the identity, which makes it a data
/// directory and comes last.
///
/// # Errors
/// A disk's, or something is damaged. Some files may be there then.
pub fn copy_data<V: Volume, W: Volume>(
    from: &V,
    identity: &Identity,
    to: &W,
) -> Result<Vec<FileSum>, StorageError> {
    let opened = open_all(from, identity)?;
    if opened.files.is_empty() {
        expect_no_log(from)?;
    }
    if let Some(snapshot) = &opened.snapshot {
        let name = snapshot_name(snapshot.number);
        to.make_subdirectory(&name).map_err(|source| StorageError::io("make", &name, source))?;
    }
    let copied = opened.files.iter().map(|file| file.copy(to));
    let copied = copied.collect::<Result<Vec<_>, _>>()?;
    cut_torn(to, identity, opened.snapshot.as_ref())?;
    for (file, opened) in copied.iter().zip(&opened.files) {
        file.sync().map_err(|source| StorageError::io("sync", &opened.name, source))?;
    }
    let directories = opened.snapshot.iter().map(|at| snapshot_name(at.number));
    for name in directories.chain([String::new()]) {
        to.sync_names(&name).map_err(|source| StorageError::io("sync", "the directory", source))?;
    }
    opened.files.iter().map(|file| sum_of(to, &file.name)).collect()
}

/// The length and the checksum of a file.
///
/// # Errors
/// The disk's.
pub fn sum_of<V: Volume>(volume: &V, name: &str) -> Result<FileSum, StorageError> {
    let failed = |source| StorageError::io("read", name, source);
    let file = volume.open(name).map_err(failed)?;
    let mut sum = PieceChecksum::new(0);
    let mut bytes = 0;
    loop {
        let piece = read_from(&file, bytes, COPIED_BYTES).map_err(failed)?;
        if piece.is_empty() {
            return Ok(FileSum { name: name.to_owned(), bytes, checksum: sum.digest() });
        }
        bytes += piece.len() as u64;
        sum.update(&piece);
    }
}

/// The files of a snapshot and of the log in a directory, in no order.
///
/// # Errors
/// The disk's.
pub fn data_names<V: Volume>(volume: &V) -> Result<Vec<String>, StorageError> {
    let failed = |source| StorageError::io("list", "the directory", source);
    let mut all = Vec::new();
    for name in volume.names("").map_err(failed)? {
        if name.starts_with("snapshot-") {
            let files = volume.names(&name).map_err(failed)?;
            all.extend(files.into_iter().map(|file| format!("{name}/{file}")));
        } else if name.starts_with("log-") {
            all.push(name);
        }
    }
    Ok(all)
}

/// Opens the files that belong together.
fn open_all<V: Volume>(from: &V, identity: &Identity) -> Result<Opened<V::File>, StorageError> {
    let mut gone = None;
    for _ in 0..TRIES {
        let opened = Opened::all(from, identity).and_then(|opened| {
            let newest = find_snapshot(from, identity)?;
            Ok((newest == opened.snapshot).then_some(opened))
        });
        match opened {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            Err(error) if is_gone(&error) => gone = Some(error),
            Err(error) => return Err(error),
        }
    }
    let source = || io::Error::other("a new snapshot comes each time");
    Err(gone.unwrap_or_else(|| StorageError::io("copy", "the directory", source())))
}

fn is_gone(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// A file, and the bytes that it had when it was opened.
struct OpenFile<F> {
    name: String,
    file: F,
    bytes: u64,
}

struct Opened<F> {
    snapshot: Option<SnapshotAt>,
    files: Vec<OpenFile<F>>,
}

impl<F: VolumeFile> Opened<F> {
    /// Opens the newest snapshot, and all segments from its epoch on.
    fn all<V: Volume<File = F>>(volume: &V, identity: &Identity) -> Result<Self, StorageError> {
        let snapshot = find_snapshot(volume, identity)?;
        let mut files = Vec::new();
        if let Some(at) = &snapshot {
            for shard in 0..at.shards.len() {
                files.push(OpenFile::open(volume, snapshot_file_name(at.number, shard))?);
            }
        }
        let epoch = snapshot.as_ref().map_or(0, |at| at.epoch);
        let names =
            volume.names("").map_err(|source| StorageError::io("list", "the log", source))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        for number in numbers {
            let name = segment_name(number);
            let file = OpenFile::open(volume, name.clone())?;
            let header = read_from(&file.file, 0, SEGMENT_HEADER_BYTES);
            let header = header.map_err(|source| StorageError::io("read", &name, source))?;
            let of = (identity.cluster, identity.secret);
            if SegmentHeader::parse(&header, (&name, number), of)?.epoch >= epoch {
                files.push(file);
            }
        }
        Ok(Self { snapshot, files })
    }
}

impl<F: VolumeFile> OpenFile<F> {
    fn open<V: Volume<File = F>>(volume: &V, name: String) -> Result<Self, StorageError> {
        let failed = |source| StorageError::io("open", &name, source);
        let file = volume.open(&name).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        Ok(Self { name, file, bytes })
    }

    fn copy<W: Volume>(&self, to: &W) -> Result<W::File, StorageError> {
        let Self { name, file, bytes } = self;
        let copy = to.create(name).map_err(|source| StorageError::io("make", name, source))?;
        let mut offset = 0;
        while offset < *bytes {
            let most = COPIED_BYTES.min((bytes - offset) as usize);
            let piece = read_from(file, offset, most);
            let piece = piece.map_err(|source| StorageError::io("read", name, source))?;
            if piece.is_empty() {
                return Err(StorageError::corrupt(name, offset, "the file is cut off"));
            }
            copy.append(&[&piece]).map_err(|source| StorageError::io("write", name, source))?;
            offset += piece.len() as u64;
        }
        Ok(copy)
    }
}

/// Cuts off what is torn at the end of the log.
fn cut_torn<W: Volume>(
    to: &W,
    identity: &Identity,
    snapshot: Option<&SnapshotAt>,
) -> Result<(), StorageError> {
    let covered = snapshot.map(|at| (at.epoch, at.covered()));
    let (epoch, covered) = covered.unwrap_or_default();
    for notice in find(to, identity, (epoch, &covered))?.notices {
        let cut = to.open(&notice.name).and_then(|file| file.cut(notice.offset));
        cut.map_err(|source| StorageError::io("cut", &notice.name, source))?;
    }
    Ok(())
}
