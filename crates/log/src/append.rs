//! The log's memory: frames one behind the other, in segments.
//!
//! ```text
//! | oldest segment | ... | segment | tail ......free |
//!   |frame|frame|..          ^                 ^
//!                            cursor            next frame
//! ```
//! Invariant: frames have numbers without gaps, which only grow; a new cursor never gets an entry
//! of which a piece is missing. Without a hold the log keeps at most `limit_bytes`, and drops its
//! oldest segment for a new one; an entry of more than half of that is counted, and neither encoded
//! nor copied. A hold lets the log grow, up to `held_bytes`; beyond that the hold breaks: its
//! cursor then reports that it is lost, and changes continue.

use crate::assemble::{Assembler, OwnedEntry};
use crate::frame::{
    EpochKey, FIRST, FRAME_HEADER_BYTES, FrameHeader, Frames, LAST, LogKey, frame_bytes,
};
use crate::holds::Holds;
use crate::parts::{PART_BYTES, Part};
use remora_layout::limits::{LOG_HELD_BYTES, LOG_PIECE_BYTES, LOG_SEGMENTS, OPLOG_BYTES};
use std::collections::VecDeque;
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// The settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The key of its frames' checksums.
    pub key: LogKey,
    /// The shard's number among those that parts name.
    pub shard: u32,
    /// The epoch under which entries are written.
    pub epoch: u64,
    /// Bytes that the log keeps without a hold.
    pub limit_bytes: usize,
    /// Bytes that are kept for holds.
    pub held_bytes: usize,
    /// Longest body of a frame.
    pub piece_bytes: usize,
}

impl LogOptions {
    /// The usual sizes.
    pub const fn new(key: LogKey, shard: u32, epoch: u64) -> Self {
        Self {
            key,
            shard,
            epoch,
            limit_bytes: OPLOG_BYTES,
            held_bytes: LOG_HELD_BYTES,
            piece_bytes: LOG_PIECE_BYTES,
        }
    }
}

/// The outcome of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Its sequence.
    pub sequence: u64,
    /// Bytes that still may be appended before a hold breaks. A shard that does
    /// not want that refuses changes, or lets them wait, while it is small.
    pub room_bytes: usize,
}

/// Some frames that lie together.
#[derive(Default)]
pub(crate) struct Segment {
    pub bytes: Vec<u8>,
    /// Number of its first frame.
    pub first_frame: u64,
    /// The first frame in it that begins an entry.
    pub first_entry: Option<EntryStart>,
}

/// The start of an entry.
#[derive(Clone, Copy)]
pub(crate) struct EntryStart {
    pub sequence: u64,
    pub frame: u64,
    pub offset: usize,
}

/// The log of one shard. See the module's text.
pub struct Log {
    pub(crate) tail: Segment,
    /// Segments before the tail, oldest first.
    pub(crate) older: VecDeque<Segment>,
    pub(crate) last_sequence: u64,
    pub(crate) next_frame: u64,
    pub(crate) holds: Holds,
    epoch_key: EpochKey,
    options: LogOptions,
    segment_bytes: usize,
    room_bytes: usize,
}

impl Log {
    /// An empty log.
    pub fn new(options: LogOptions) -> Self {
        let LogOptions { key, epoch, piece_bytes, limit_bytes, .. } = options;
        assert!(0 < piece_bytes && piece_bytes <= LOG_PIECE_BYTES, "pieces have a body");
        let segment_bytes = (limit_bytes / LOG_SEGMENTS).max(frame_bytes(piece_bytes));
        let bytes = Vec::with_capacity(segment_bytes);
        Self {
            tail: Segment { bytes, ..Segment::default() },
            older: VecDeque::new(),
            last_sequence: 0,
            next_frame: 0,
            holds: Holds::default(),
            epoch_key: key.of_epoch(epoch),
            options,
            segment_bytes,
            room_bytes: usize::MAX,
        }
    }

    /// Sequence of the last entry; 0 if there was none.
    #[inline]
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// As [`Appended::room_bytes`], now.
    pub fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    /// The epoch under which entries are written.
    pub fn epoch(&self) -> u64 {
        self.options.epoch
    }

    /// The key of its frames' checksums.
    pub fn key(&self) -> LogKey {
        self.options.key
    }

    /// Entries from now on are of this epoch.
    ///
    /// # Panics
    /// It is an earlier one: that is our bug.
    pub fn begin_epoch(&mut self, epoch: u64) {
        assert!(epoch >= self.options.epoch, "epochs only grow");
        self.options.epoch = epoch;
        self.epoch_key = self.options.key.of_epoch(epoch);
    }

    /// Entries from now on are of another log, with this key, and of this epoch; their sequences go
    /// on. Nothing of the log before is kept.
    ///
    /// # Panics
    /// As of [`Log::begin_epoch`].
    pub fn begin_anew(&mut self, key: LogKey, epoch: u64) {
        self.drop_all();
        self.options.key = key;
        self.begin_epoch(epoch);
    }

    /// Without a hold the log keeps so many bytes from now on, but no less than four segments, and no
    /// more than for a hold. What is beyond goes when the next segment begins.
    pub fn set_limit(&mut self, bytes: usize) {
        let least = LOG_SEGMENTS * self.segment_bytes;
        self.options.limit_bytes = bytes.clamp(least, self.options.held_bytes.max(least));
    }

    /// Bytes that the log keeps without a hold.
    pub fn limit_bytes(&self) -> usize {
        self.options.limit_bytes
    }

    /// Appends an entry of this shard alone. Its operation is the three slices,
    /// one behind the other.
    #[inline]
    pub fn append(&mut self, operation: [&[u8]; 3]) -> Appended {
        let body_bytes = operation.iter().map(|slice| slice.len()).sum::<usize>();
        self.last_sequence += 1;
        if body_bytes <= self.options.piece_bytes {
            self.push_frame((FIRST | LAST, 0, 0), body_bytes, operation);
        } else {
            self.push_pieces(&[], operation, body_bytes);
        }
        Appended { sequence: self.last_sequence, room_bytes: self.room_bytes }
    }

    /// Appends an entry of several shards, which names all of them.
    ///
    /// # Panics
    /// This shard with the next sequence is not among them, or there are more
    /// than 255: that is our bug.
    pub fn append_part(&mut self, parts: &[Part], operation: [&[u8]; 3]) -> Appended {
        self.last_sequence += 1;
        let own = Part::new(self.options.shard, self.last_sequence);
        assert!(parts.contains(&own) && parts.len() <= 255, "an entry names its own part");
        let body_bytes = operation.iter().map(|slice| slice.len()).sum::<usize>();
        self.push_pieces(parts, operation, body_bytes + parts.len() * PART_BYTES);
        Appended { sequence: self.last_sequence, room_bytes: self.room_bytes }
    }

    /// Counts an entry that this log does not keep: it was applied from another
    /// one. Nothing before it is kept either.
    pub fn pass(&mut self) -> u64 {
        self.last_sequence += 1;
        self.drop_all();
        self.last_sequence
    }

    /// Appends one frame. Its body is given in slices.
    #[inline]
    fn push_frame<'s>(
        &mut self,
        (flags, parts, piece): (u8, u8, u16),
        body_bytes: usize,
        body: impl IntoIterator<Item = &'s [u8]>,
    ) {
        if self.tail.bytes.len() + frame_bytes(body_bytes) > self.segment_bytes {
            self.begin_segment();
        }
        let sequence = self.last_sequence;
        let bytes = &mut self.tail.bytes;
        let from = bytes.len();
        if flags & FIRST != 0 && self.tail.first_entry.is_none() {
            let start = EntryStart { sequence, frame: self.next_frame, offset: from };
            self.tail.first_entry = Some(start);
        }
        let header = FrameHeader {
            checksum: 0.into(),
            sequence: sequence.into(),
            epoch: self.options.epoch.into(),
            body_bytes: (body_bytes as u32).into(),
            flags,
            parts,
            piece: piece.into(),
        };
        bytes.extend_from_slice(header.as_bytes());
        body.into_iter().for_each(|slice| bytes.extend_from_slice(slice));
        let (_, covered) = bytes[from..].split_at(offset_of!(FrameHeader, sequence));
        let checksum = self.epoch_key.checksum(covered, sequence);
        bytes[from..from + size_of::<u64>()].copy_from_slice(&checksum.to_le_bytes());
        let padding = frame_bytes(body_bytes) - FRAME_HEADER_BYTES - body_bytes;
        bytes.extend_from_slice(&[0; 8][..padding]);
        self.next_frame += 1;
    }

    /// Appends an entry in as many pieces as it takes.
    #[cold]
    fn push_pieces(&mut self, parts: &[Part], operation: [&[u8]; 3], body_bytes: usize) {
        let piece_bytes = self.options.piece_bytes;
        let pieces = body_bytes.div_ceil(piece_bytes);
        if !self.makes_room_for(pieces, body_bytes) {
            return;
        }
        let [a, b, c] = operation;
        let mut rest = [parts.as_bytes(), a, b, c];
        for piece in 0..pieces {
            let mut wanted = piece_bytes;
            let taken = rest.each_mut().map(|slice| {
                let (taken, left) = slice.split_at(slice.len().min(wanted));
                wanted -= taken.len();
                *slice = left;
                taken
            });
            let first = if piece == 0 { FIRST } else { 0 };
            let last = if piece == pieces - 1 { LAST } else { 0 };
            let kind = (first | last, parts.len() as u8, piece as u16);
            self.push_frame(kind, piece_bytes - wanted, taken);
        }
    }

    /// Whether an entry of this many pieces is kept; if not, nothing of it is.
    fn makes_room_for(&mut self, pieces: usize, body_bytes: usize) -> bool {
        let bytes = pieces * frame_bytes(0) + body_bytes;
        let is_held = self.holds.any();
        let most = if is_held { self.options.held_bytes } else { self.options.limit_bytes };
        let is_kept = pieces <= u16::MAX as usize && bytes <= most / 2;
        if !is_kept {
            self.drop_all();
        }
        is_kept
    }

    /// Drops every frame, as if there had been one more, which no cursor has seen.
    fn drop_all(&mut self) {
        self.next_frame += 1;
        self.older.clear();
        self.tail.bytes.clear();
        (self.tail.first_frame, self.tail.first_entry) = (self.next_frame, None);
        self.count_room();
    }

    /// Makes the tail an older segment, and drops old ones for it.
    #[cold]
    fn begin_segment(&mut self) {
        let mut bytes = None;
        // Bounded: each turn drops a segment.
        while let Some(next) = self.older.get(1).or(Some(&self.tail)) {
            let kept = (self.older.len() + 1) * self.segment_bytes;
            let is_held = self.holds.hold_before(next.first_frame);
            let most = if is_held { self.options.held_bytes } else { self.options.limit_bytes };
            if kept + self.segment_bytes <= most {
                break;
            }
            let Some(oldest) = self.older.pop_front() else { break };
            bytes = Some(oldest.bytes);
        }
        let mut bytes = bytes.unwrap_or_else(|| Vec::with_capacity(self.segment_bytes));
        bytes.clear();
        let tail = Segment { bytes, first_frame: self.next_frame, first_entry: None };
        self.older.push_back(std::mem::replace(&mut self.tail, tail));
        self.count_room();
    }

    /// Counts the bytes that are left for holds, and breaks those that the log
    /// has left behind.
    pub(crate) fn count_room(&mut self) {
        self.holds.break_before(self.first_frame());
        // As if the tail were full. Segments without a hold take no room: the next segment drops
        // them, and nothing may be appended before there is room.
        let kept = (self.older.len() - self.unheld_segments() + 1) * self.segment_bytes;
        self.room_bytes = match self.holds.any() {
            true => self.options.held_bytes.saturating_sub(kept),
            false => usize::MAX,
        };
    }

    /// The oldest segments of which no frame is held.
    fn unheld_segments(&self) -> usize {
        let is_unheld = |segment: &Segment| !self.holds.hold_before(segment.first_frame);
        match is_unheld(&self.tail) {
            true => self.older.len(),
            // The last one that begins before all holds has the first held frame.
            false => self.older.partition_point(is_unheld).saturating_sub(1),
        }
    }

    /// Number of the oldest frame that is kept, or of the next one.
    pub(crate) fn first_frame(&self) -> u64 {
        self.older.front().unwrap_or(&self.tail).first_frame
    }

    /// Bytes of all frames that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.segments().map(|segment| segment.bytes.len()).sum()
    }

    /// All segments, oldest first.
    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.older.iter().chain(std::iter::once(&self.tail))
    }

    /// The entries that are kept whole, oldest first: for tests and tools.
    pub fn entries(&self) -> Vec<OwnedEntry> {
        let mut bytes = Vec::new();
        let mut cursor = self.oldest_cursor();
        let all = self.read(&mut cursor, usize::MAX, &mut bytes);
        all.expect("nothing is dropped meanwhile");
        let mut assembler = Assembler::new(self.oldest_sequence(), usize::MAX);
        let mut entries = Vec::new();
        for frame in Frames::new(&bytes, self.options.key) {
            let frame = frame.expect("the log wrote it");
            let entry = assembler.take(frame).expect("the log wrote it in order");
            entries.extend(entry.map(|entry| entry.to_owned()));
        }
        entries
    }
}
