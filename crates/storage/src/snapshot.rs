//! Snapshots: a directory with a file for each shard, a stream of operations in chunks.
//!
//! ```text
//! snapshot-0000000000000003/shard-0
//!
//!  0        8          16       20       24       32      40        48      56
//! +--------+----------+--------+--------+--------+-------+---------+-------+------+
//! | magic  | checksum | layout | shards | number | epoch | cluster | shard | zero |   64 bytes
//! +--------+----------+--------+--------+--------+-------+---------+-------+------+
//! chunk    checksum 8 | bytes 8 | bytes of the stream
//! end      checksum 8 | zeros 8 | sequence 8 | operations 8 | bytes 8 | used 8 | time_ms 8
//! ```
//! Chunks cut the stream anywhere. The end names the sequence at which the stream is exact, what it
//! holds, and the bytes that the shard's data take.
//!
//! Invariant: a snapshot has its name only once all of it is on the disk; before, its directory ends
//! in `.tmp`, and the next server removes it. Checksums are under the secret of the data directory,
//! the snapshot's number, the shard and the offset.

use crate::error::StorageError;
use crate::head::{Expected, FileHead, FileKind, HEAD_BYTES};
use crate::identity::Identity;
use crate::volume::{Volume, VolumeFile, read_from};
use remora_layout::hash::{PieceChecksum, mix};
use remora_layout::limits::SNAPSHOT_CHUNK_BYTES;
use std::io;
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const KIND: FileKind = FileKind { magic: *b"remorasn", name: "a snapshot" };

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileHeader {
    head: FileHead,
    shard: U64,
    zero: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    checksum: U64,
    bytes: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileEnd {
    chunk: ChunkHeader,
    sequence: U64,
    operations: U64,
    bytes: U64,
    used: U64,
    time_ms: U64,
}

const HEADER_BYTES: usize = size_of::<FileHeader>();
const CHUNK_HEADER_BYTES: usize = size_of::<ChunkHeader>();
const END_BYTES: usize = size_of::<FileEnd>();
const _: () = assert!(HEADER_BYTES == 64 && CHUNK_HEADER_BYTES == 16 && END_BYTES == 56);
const _: () = assert!(offset_of!(FileHeader, shard) == HEAD_BYTES);

/// What the end of a shard's file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardSnapshot {
    /// The sequence at which the stream is exact.
    pub sequence: u64,
    /// Operations in it.
    pub operations: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Bytes that the shard's data took.
    pub used_bytes: u64,
    /// The server's clock, Unix ms.
    pub time_ms: u64,
}

/// A snapshot that is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotAt {
    /// Its number.
    pub number: u64,
    /// The incarnation that wrote it.
    pub epoch: u64,
    /// By shard.
    pub shards: Vec<ShardSnapshot>,
}

impl SnapshotAt {
    /// By shard, the sequence at which it is exact.
    pub fn covered(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.sequence).collect()
    }
}

/// The name of a snapshot's directory.
pub fn snapshot_name(number: u64) -> String {
    format!("snapshot-{number:016}")
}

fn snapshot_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("snapshot-").filter(|digits| digits.len() == 16)?;
    digits.parse().ok()
}

/// The name of a shard's file in it.
pub(crate) fn snapshot_file_name(number: u64, shard: usize) -> String {
    format!("{}/shard-{shard}", snapshot_name(number))
}

fn seed((secret, number): (u64, u64), shard: usize, offset: u64) -> u64 {
    mix(mix(mix(secret, number), shard as u64), offset)
}

fn chunk_checksum(header: &ChunkHeader, body: &[u8], seed: u64) -> u64 {
    let mut sum = PieceChecksum::new(seed);
    sum.update(header.bytes.as_bytes());
    sum.update(body);
    sum.digest()
}

/// Writes a snapshot of all shards, side by side.
pub struct SnapshotWriter<V: Volume> {
    volume: V,
    identity: Identity,
    number: u64,
    /// By shard: the file, its bytes, and bytes of the stream.
    files: Vec<(V::File, u64, u64)>,
    ended: Vec<Option<ShardSnapshot>>,
}

impl<V: Volume> SnapshotWriter<V> {
    /// Begins a snapshot with this number, of so many shards.
    ///
    /// # Errors
    /// The disk refuses. Then there is nothing of it, if the disk lets it be removed.
    pub fn begin(volume: V, identity: Identity, of: (u64, u64, usize)) -> io::Result<Self> {
        let begun = Self::create(volume.clone(), identity, of);
        begun.inspect_err(|_| _ = volume.remove(&temporary(of.0)))
    }

    fn create(
        volume: V,
        identity: Identity,
        (number, epoch, shards): (u64, u64, usize),
    ) -> io::Result<Self> {
        volume.is_same()?;
        let directory = temporary(number);
        if volume.names("")?.contains(&directory) {
            volume.remove(&directory)?;
        }
        volume.make_subdirectory(&directory)?;
        let mut files = Vec::with_capacity(shards);
        for shard in 0..shards {
            let head = FileHead::new(&KIND, shards, (number, epoch, identity.cluster));
            let header = FileHeader { head, shard: (shard as u64).into(), zero: U64::ZERO };
            let mut header = header.as_bytes().to_vec();
            FileHead::seal(&mut header, seed((identity.secret, number), shard, 0));
            let file = volume.create(&format!("{directory}/shard-{shard}"))?;
            file.append(&[&header])?;
            files.push((file, HEADER_BYTES as u64, 0));
        }
        Ok(Self { volume, identity, number, files, ended: vec![None; shards] })
    }

    /// Appends some bytes of a shard's stream.
    ///
    /// # Errors
    /// The disk refuses: the snapshot is to be given up.
    pub fn write(&mut self, shard: usize, stream: &[u8]) -> io::Result<()> {
        for body in stream.chunks(SNAPSHOT_CHUNK_BYTES) {
            let (file, offset, bytes) = &mut self.files[shard];
            let mut header = ChunkHeader { checksum: U64::ZERO, bytes: (body.len() as u64).into() };
            let seed = seed((self.identity.secret, self.number), shard, *offset);
            header.checksum = chunk_checksum(&header, body, seed).into();
            file.append(&[header.as_bytes(), body])?;
            *offset += (CHUNK_HEADER_BYTES + body.len()) as u64;
            *bytes += body.len() as u64;
        }
        Ok(())
    }

    /// Ends a shard's stream, and syncs its file. `bytes` is filled in.
    ///
    /// # Errors
    /// The disk refuses: the snapshot is to be given up.
    pub fn end_shard(&mut self, shard: usize, ended: ShardSnapshot) -> io::Result<()> {
        let (file, offset, bytes) = &self.files[shard];
        let mut end = FileEnd {
            chunk: ChunkHeader { checksum: U64::ZERO, bytes: U64::ZERO },
            sequence: ended.sequence.into(),
            operations: ended.operations.into(),
            bytes: (*bytes).into(),
            used: ended.used_bytes.into(),
            time_ms: ended.time_ms.into(),
        };
        let seed = seed((self.identity.secret, self.number), shard, *offset);
        let body = &end.as_bytes()[CHUNK_HEADER_BYTES..];
        end.chunk.checksum = chunk_checksum(&end.chunk, body, seed).into();
        file.append(&[end.as_bytes()])?;
        file.sync()?;
        self.ended[shard] = Some(ShardSnapshot { bytes: *bytes, ..ended });
        Ok(())
    }

    /// Whether all shards have ended.
    pub fn is_complete(&self) -> bool {
        self.ended.iter().all(Option::is_some)
    }

    /// By shard, the sequence of its end, as far as it has come.
    pub fn covered(&self) -> Vec<Option<u64>> {
        self.ended.iter().map(|ended| Some(ended.as_ref()?.sequence)).collect()
    }

    /// Gives the snapshot its name, and removes those before it. All shards have ended, and their
    /// entries up to there are on the disk.
    ///
    /// # Errors
    /// The disk refuses: the one before counts, or this one.
    pub fn finish(self) -> io::Result<Vec<u64>> {
        assert!(self.is_complete(), "all shards have ended");
        let named = self.give_name();
        if named.is_err() {
            // It may have its name already: then this finds nothing.
            self.give_up();
        }
        named
    }

    fn give_name(&self) -> io::Result<Vec<u64>> {
        let (directory, name) = (temporary(self.number), snapshot_name(self.number));
        self.volume.sync_names(&directory)?;
        self.volume.rename(&directory, &name)?;
        self.volume.sync_names("")?;
        // One that lies elsewhere does not take the place of the one before.
        self.volume.is_same()?;
        for name in self.volume.names("")? {
            if snapshot_number(&name).is_some_and(|number| number < self.number) {
                self.volume.remove(&name)?;
            }
        }
        self.volume.sync_names("")?;
        Ok(self.ended.iter().flatten().map(|ended| ended.sequence).collect())
    }

    /// Removes what there is of it. If the disk refuses that, too, what stays is removed by the next
    /// server.
    pub fn give_up(self) {
        let _ = self.volume.remove(&temporary(self.number));
    }
}

fn temporary(number: u64) -> String {
    format!("{}.tmp", snapshot_name(number))
}

/// The newest snapshot in a directory, if there is one.
///
/// # Errors
/// It is damaged, or another directory's.
pub fn find_snapshot<V: Volume>(
    volume: &V,
    identity: &Identity,
) -> Result<Option<SnapshotAt>, StorageError> {
    let names = volume.names("").map_err(|source| StorageError::io("list", "snapshots", source))?;
    let Some(number) = names.iter().filter_map(|name| snapshot_number(name)).max() else {
        return Ok(None);
    };
    let (mut shards, mut epoch) = (Vec::new(), 0);
    let mut count = 1;
    while shards.len() < count {
        let shard = shards.len();
        let file = SnapshotFile::open(volume, identity, number, shard)?;
        count = file.head.shards();
        epoch = file.head.epoch();
        shards.push(file.end()?);
    }
    Ok(Some(SnapshotAt { number, epoch, shards }))
}

/// Removes what an interrupted server has left.
///
/// # Errors
/// The disk refuses.
pub fn remove_leftovers<V: Volume>(volume: &V) -> Result<(), StorageError> {
    let failed = |source| StorageError::io("clean", "the directory", source);
    let names = volume.names("").map_err(failed)?;
    let newest = names.iter().filter_map(|name| snapshot_number(name)).max();
    let is_old = |name: &str| snapshot_number(name).is_some_and(|number| Some(number) < newest);
    if names.iter().any(|name| is_old(name)) {
        // The process may have died before the name of the newest was on the disk.
        volume.sync_names("").map_err(failed)?;
    }
    for name in names {
        let is_old = is_old(&name);
        if name.ends_with(".tmp") || is_old {
            volume.remove(&name).map_err(failed)?;
        }
    }
    Ok(())
}

/// Gives the stream of a shard, in pieces of any length.
///
/// # Errors
/// The disk's, a changed byte, or the error of `each`.
pub fn read_snapshot<V: Volume, E: From<StorageError>>(
    volume: &V,
    identity: &Identity,
    (number, shard): (u64, usize),
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let file = SnapshotFile::open(volume, identity, number, shard)?;
    let (mut offset, mut bytes) = (HEADER_BYTES as u64, 0);
    let end = file.end()?;
    // Bounded by the file.
    while bytes < end.bytes {
        let chunk = file.chunk(offset)?;
        offset += (CHUNK_HEADER_BYTES + chunk.len()) as u64;
        bytes += chunk.len() as u64;
        each(&chunk)?;
    }
    if bytes != end.bytes || offset + END_BYTES as u64 != file.bytes {
        return Err(file.corrupt(offset, "the stream has another length than its end says").into());
    }
    Ok(())
}

struct SnapshotFile<F> {
    file: F,
    name: String,
    head: FileHead,
    bytes: u64,
    of: (u64, u64),
    shard: usize,
}

impl<F: VolumeFile> SnapshotFile<F> {
    fn open<V: Volume<File = F>>(
        volume: &V,
        identity: &Identity,
        number: u64,
        shard: usize,
    ) -> Result<Self, StorageError> {
        let name = snapshot_file_name(number, shard);
        let failed = |source| StorageError::io("read", &name, source);
        let file = volume.open(&name).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        let first = read_from(&file, 0, HEADER_BYTES).map_err(failed)?;
        let of = (identity.secret, number);
        let expected = Expected { file: &name, number, cluster: identity.cluster };
        // The shard is in the seed: the file of another one does not pass.
        let head = FileHead::open(&first, HEADER_BYTES, &KIND, expected, seed(of, shard, 0))?;
        Ok(Self { file, name, head, bytes, of, shard })
    }

    fn corrupt(&self, offset: u64, reason: &str) -> StorageError {
        StorageError::corrupt(&self.name, offset, reason)
    }

    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError> {
        let read = read_from(&self.file, offset, bytes);
        let read = read.map_err(|source| StorageError::io("read", &self.name, source))?;
        match read.len() == bytes {
            true => Ok(read),
            false => Err(self.corrupt(offset, "the snapshot is cut off")),
        }
    }

    fn end(&self) -> Result<ShardSnapshot, StorageError> {
        let offset = self.bytes.saturating_sub(END_BYTES as u64);
        let bytes = self.read(offset, END_BYTES)?;
        let end = FileEnd::read_from_bytes(&bytes).expect("its length");
        let seed = seed(self.of, self.shard, offset);
        let sum = chunk_checksum(&end.chunk, &bytes[CHUNK_HEADER_BYTES..], seed);
        if sum != end.chunk.checksum.get() || end.chunk.bytes != U64::ZERO {
            return Err(self.corrupt(offset, "the snapshot has no end"));
        }
        Ok(ShardSnapshot {
            sequence: end.sequence.get(),
            operations: end.operations.get(),
            bytes: end.bytes.get(),
            used_bytes: end.used.get(),
            time_ms: end.time_ms.get(),
        })
    }

    fn chunk(&self, offset: u64) -> Result<Vec<u8>, StorageError> {
        let bytes = self.read(offset, CHUNK_HEADER_BYTES)?;
        let header = ChunkHeader::read_from_bytes(&bytes).expect("its length");
        let bytes = header.bytes.get();
        if bytes == 0 || bytes > SNAPSHOT_CHUNK_BYTES as u64 {
            return Err(self.corrupt(offset, "no chunk of the snapshot begins here"));
        }
        let body = self.read(offset + CHUNK_HEADER_BYTES as u64, bytes as usize)?;
        if chunk_checksum(&header, &body, seed(self.of, self.shard, offset))
            != header.checksum.get()
        {
            return Err(self.corrupt(offset, "the checksum of the chunk is wrong"));
        }
        Ok(body)
    }
}
