//! The entries of a directory's log, for one shard after the other or for all of them at once.

use crate::error::StorageError;
use crate::find::{Found, Life};
use crate::identity::Identity;
use crate::runs::{RUN_HEADER_BYTES, RunHeader};
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::volume::{Volume, VolumeFile, read_from};
use remora_log::{Assembler, Entry, Frames, LogKey};

/// The log of one shard in one life: the life's index in [`Found::lives`], and the shard.
pub type LogNumber = (usize, usize);

/// Bytes of a segment that are looked at together.
const WINDOW_BYTES: usize = 1 << 20;

/// Gives the entries that count, of the logs that `wants` names, in the order in which they were
/// written.
///
/// # Errors
/// The disk's, a changed byte, or the error of `each`.
pub fn replay<V: Volume, E: From<StorageError>>(
    volume: &V,
    identity: &Identity,
    found: &Found,
    wants: impl Fn(LogNumber) -> bool,
    mut each: impl FnMut(LogNumber, &Life, Entry<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for (at, life) in found.lives.iter().enumerate() {
        let assembler = |&first: &u64| Assembler::new(first, usize::MAX);
        let mut assemblers: Vec<Assembler> = life.first.iter().map(assembler).collect();
        for segment in &life.segments {
            let mut runs =
                Runs::open(volume, identity, (&segment.name, segment.number, segment.bytes))?;
            while let Some(header) = runs.next_header()? {
                let shard = header.shard();
                if !wants((at, shard)) {
                    runs.skip(&header);
                    continue;
                }
                let offset = runs.offset;
                let frames = runs.frames(&header)?;
                let key = LogKey::new(identity.secret, shard as u32);
                for frame in Frames::new(frames, key) {
                    let corrupt =
                        |reason: String| StorageError::corrupt(&segment.name, offset, reason);
                    let frame = frame.map_err(|error| corrupt(error.to_string()))?;
                    let entry = assemblers[shard]
                        .take(frame)
                        .map_err(|error| corrupt(error.to_string()))?;
                    if let Some(entry) = entry.filter(|entry| entry.sequence <= life.last[shard]) {
                        each((at, shard), life, entry)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The runs of a segment, one after the other.
struct Runs<'a, F> {
    file: F,
    identity: &'a Identity,
    name: &'a str,
    number: u64,
    /// Where the next run begins, and where the segment ends.
    offset: u64,
    end: u64,
    /// Bytes of the segment from an offset on.
    window: (u64, Vec<u8>),
}

impl<'a, F: VolumeFile> Runs<'a, F> {
    fn open<V: Volume<File = F>>(
        volume: &V,
        identity: &'a Identity,
        (name, number, end): (&'a str, u64, u64),
    ) -> Result<Self, StorageError> {
        let file = volume.open(name).map_err(|source| StorageError::io("open", name, source))?;
        let offset = SEGMENT_HEADER_BYTES as u64;
        Ok(Self { file, identity, name, number, offset, end, window: (offset, Vec::new()) })
    }

    /// Bytes from the present offset on: so many, if the segment has them.
    fn bytes(&mut self, bytes: usize) -> Result<&[u8], StorageError> {
        let from = (self.offset - self.window.0) as usize;
        if self.window.1.len() < from + bytes {
            let most = WINDOW_BYTES.max(bytes).min((self.end - self.offset) as usize);
            let read = read_from(&self.file, self.offset, most);
            let read = read.map_err(|source| StorageError::io("read", self.name, source))?;
            self.window = (self.offset, read);
        }
        let from = (self.offset - self.window.0) as usize;
        let cut_off = || StorageError::corrupt(self.name, self.offset, "the segment is cut off");
        self.window.1.get(from..from + bytes).ok_or_else(cut_off)
    }

    fn next_header(&mut self) -> Result<Option<RunHeader>, StorageError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let header = RunHeader::at(self.bytes(RUN_HEADER_BYTES)?);
        let wrong =
            || StorageError::corrupt(self.name, self.offset, "no run of the log begins here");
        header.ok_or_else(wrong).map(Some)
    }

    fn skip(&mut self, header: &RunHeader) {
        self.offset += (RUN_HEADER_BYTES + header.frame_bytes()) as u64;
        if self.offset > self.window.0 + self.window.1.len() as u64 {
            self.window = (self.offset, Vec::new());
        }
    }

    /// The frames of the run whose header came last; the next run follows.
    fn frames(&mut self, header: &RunHeader) -> Result<&[u8], StorageError> {
        let place = (self.identity.secret, self.number, self.offset);
        let bytes = RUN_HEADER_BYTES + header.frame_bytes();
        let is_whole = header.covers(&self.bytes(bytes)?[RUN_HEADER_BYTES..], place);
        if !is_whole {
            let reason = "the checksum of the run is wrong";
            return Err(StorageError::corrupt(self.name, self.offset, reason));
        }
        let from = (self.offset - self.window.0) as usize;
        self.offset += bytes as u64;
        Ok(&self.window.1[from + RUN_HEADER_BYTES..from + bytes])
    }
}
