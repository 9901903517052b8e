//! The entries of a directory's log, for one shard after the other or for all of them at once.

use crate::error::StorageError;
use crate::find::{Found, Incarnation, run_bytes};
use crate::identity::Identity;
use crate::runs::{RUN_HEADER_BYTES, RunHeader};
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::volume::{Volume, VolumeFile};
use crate::window::Window;
use remora_log::{Assembler, Entry, Frames, LogKey};

/// The log of one shard in one incarnation: the incarnation's index in [`Found::incarnations`], and the shard.
pub type LogNumber = (usize, usize);

/// Frames that are looked at before the first of them is given.
const FRAMES_AHEAD: usize = 16;

/// What [`replay`] gives.
pub enum Replayed<'a> {
    /// The operation of an entry that comes soon, to fetch what it needs.
    Ahead(&'a [u8]),
    /// The next entry.
    Entry(LogNumber, &'a Incarnation, Entry<'a>),
}

/// Gives the entries that count, of the logs that `wants` names, in the order in which they were
/// written, and the operations of most of them a little before.
///
/// # Errors
/// The disk's, a changed byte, or the error of `each`.
pub fn replay<V: Volume, E: From<StorageError>>(
    volume: &V,
    identity: &Identity,
    found: &Found,
    wants: impl Fn(LogNumber) -> bool,
    mut each: impl FnMut(Replayed<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for (at, incarnation) in found.incarnations.iter().enumerate() {
        let assembler = |shard| Assembler::new(incarnation.first_entry(shard), usize::MAX);
        let mut assemblers: Vec<Assembler> = (0..incarnation.first.len()).map(assembler).collect();
        for segment in &incarnation.segments {
            let mut runs =
                Runs::open(volume, identity, (&segment.name, segment.number, segment.bytes))?;
            while let Some(header) = runs.next_header()? {
                let shard = header.shard();
                if header.is_mark() || !wants((at, shard)) {
                    runs.skip(&header);
                    continue;
                }
                let offset = runs.offset;
                let frames = runs.frames(&header)?;
                let corrupt = |reason: String| StorageError::corrupt(&segment.name, offset, reason);
                let key = LogKey::new(identity.secret, shard as u32);
                let mut frames = Frames::new(frames, key);
                let mut some = Vec::with_capacity(FRAMES_AHEAD);
                while !frames.rest().is_empty() {
                    for frame in frames.by_ref().take(FRAMES_AHEAD) {
                        let frame = frame.map_err(|error| corrupt(error.to_string()))?;
                        if frame.sequence < incarnation.first_entry(shard) {
                            // The end of an entry that the snapshot has.
                            continue;
                        }
                        if frame.is_first && frame.is_last && frame.parts == 0 {
                            each(Replayed::Ahead(frame.body))?;
                        }
                        some.push(frame);
                    }
                    for frame in some.drain(..) {
                        let entry = assemblers[shard].take(frame);
                        let entry = entry.map_err(|error| corrupt(error.to_string()))?;
                        if let Some(entry) = entry
                            && entry.sequence <= incarnation.last[shard]
                        {
                            each(Replayed::Entry((at, shard), incarnation, entry))?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The runs of a segment, one after the other.
struct Runs<'a, F> {
    window: Window<F>,
    identity: &'a Identity,
    name: &'a str,
    number: u64,
    /// Where the next run begins, and where the segment ends.
    offset: u64,
    end: u64,
}

impl<'a, F: VolumeFile> Runs<'a, F> {
    fn open<V: Volume<File = F>>(
        volume: &V,
        identity: &'a Identity,
        (name, number, end): (&'a str, u64, u64),
    ) -> Result<Self, StorageError> {
        let file = volume.open(name).map_err(|source| StorageError::io("open", name, source))?;
        let (window, offset) = (Window::new(file, end), SEGMENT_HEADER_BYTES as u64);
        Ok(Self { window, identity, name, number, offset, end })
    }

    /// So many bytes from the present offset on.
    fn bytes(&mut self, bytes: usize) -> Result<&[u8], StorageError> {
        let found = self.window.at(self.offset, bytes);
        let found = found.map_err(|source| StorageError::io("read", self.name, source))?;
        match found.len() == bytes {
            true => Ok(found),
            false => Err(StorageError::corrupt(self.name, self.offset, "the segment is cut off")),
        }
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
        self.offset += run_bytes(header) as u64;
    }

    /// The frames of the run whose header came last; the next run follows.
    fn frames(&mut self, header: &RunHeader) -> Result<&[u8], StorageError> {
        let (offset, name) = (self.offset, self.name);
        let place = (self.identity.secret, self.number, offset);
        self.offset += run_bytes(header) as u64;
        let found = self.window.at(offset, run_bytes(header));
        let found = found.map_err(|source| StorageError::io("read", name, source))?;
        let frames = found.get(RUN_HEADER_BYTES..).filter(|frames| header.covers(frames, place));
        let wrong = || StorageError::corrupt(name, offset, "the checksum of the run is wrong");
        frames.ok_or_else(wrong)
    }
}
