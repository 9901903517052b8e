//! Readers of the log: cursors.
//!
//! Invariant: a cursor returns every frame from its sequence on, each once, or reports that it is
//! lost; it never skips one. A cursor that continues after it was lost starts again at a whole
//! entry.

use crate::append::{EntryStart, Log, Segment};
use crate::frame::{FIRST, FRAME_HEADER_BYTES, FrameHeader, LAST, frame_bytes};
use crate::holds::Hold;
use zerocopy::FromBytes;

/// The position of a reader in a log: before a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Number of the next frame.
    frame: u64,
    /// Number of the first frame of its segment, and where in it the next frame
    /// begins.
    segment: u64,
    offset: usize,
}

/// The log has dropped the frame that the reader needs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log keeps entries from sequence {oldest} on only")]
pub struct Lost {
    /// The oldest entry that is kept whole; one more than the last if none is.
    pub oldest: u64,
}

/// A cursor cannot begin there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CursorError {
    /// The log has dropped the entry.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The log has not come so far.
    #[error("the log goes on with sequence {next}")]
    Ahead {
        /// The sequence of the next entry.
        next: u64,
    },
}

impl Log {
    /// A cursor at the entry with this sequence, which may be the next one.
    ///
    /// # Errors
    /// The entry is not kept, or is still to come.
    pub fn cursor(&self, sequence: u64) -> Result<Cursor, CursorError> {
        let next = self.last_sequence + 1;
        if sequence > next {
            return Err(CursorError::Ahead { next });
        }
        let oldest = self.oldest_sequence();
        if sequence < oldest {
            return Err(Lost { oldest }.into());
        }
        if sequence == next {
            return Ok(self.end());
        }
        let starts = self.segments().rev().find_map(|segment| {
            let start = segment.first_entry.filter(|start| start.sequence <= sequence)?;
            Some((segment, start))
        });
        let (segment, start) = starts.expect("the oldest entry begins in a segment");
        Ok(seek(segment, start, sequence))
    }

    /// A cursor at the oldest entry that is kept whole.
    pub fn oldest_cursor(&self) -> Cursor {
        self.cursor(self.oldest_sequence()).expect("it is kept, or the next one")
    }

    /// The oldest entry that is kept whole; one more than the last if none is.
    pub fn oldest_sequence(&self) -> u64 {
        let first = self.segments().find_map(|segment| segment.first_entry);
        first.map_or(self.last_sequence + 1, |start| start.sequence)
    }

    fn end(&self) -> Cursor {
        let (segment, offset) = (self.tail.first_frame, self.tail.bytes.len());
        Cursor { frame: self.next_frame, segment, offset }
    }

    /// Appends the next frames to `out`: as many as fit into `most_bytes`, but
    /// one if there is one. Gives their number.
    ///
    /// # Errors
    /// The log has dropped the next frame; nothing is read.
    pub fn read(
        &self,
        cursor: &mut Cursor,
        most_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Lost> {
        self.check(cursor)?;
        let (mut frames, mut left) = (0, most_bytes);
        let begin = self.older.partition_point(|segment| segment.first_frame < cursor.segment);
        let from = self.older.range(begin..).chain(std::iter::once(&self.tail));
        for segment in from {
            if segment.first_frame > cursor.segment {
                // All of the segment before was read; it may be gone by now.
                (cursor.segment, cursor.offset) = (segment.first_frame, 0);
            }
            let (from, mut to) = (cursor.offset, cursor.offset);
            while to < segment.bytes.len() {
                let bytes = bytes_at(segment, to);
                if bytes > left && frames > 0 {
                    break;
                }
                (to, frames, left) = (to + bytes, frames + 1, left.saturating_sub(bytes));
                cursor.frame += 1;
            }
            out.extend_from_slice(&segment.bytes[from..to]);
            cursor.offset = to;
            if to < segment.bytes.len() {
                break;
            }
        }
        Ok(frames)
    }

    /// Keeps all that the cursor has not read, if it is still there.
    ///
    /// # Errors
    /// The log has dropped it.
    pub fn hold(&mut self, cursor: &Cursor) -> Result<Hold, Lost> {
        self.check(cursor)?;
        let hold = self.holds.add(cursor.frame);
        self.count_room();
        Ok(hold)
    }

    /// The hold keeps the frames that the cursor has not read, and nothing before them.
    ///
    /// # Errors
    /// The hold was broken: its frames are dropped.
    pub fn move_hold(&mut self, hold: &Hold, cursor: &Cursor) -> Result<(), Lost> {
        self.check(cursor)?;
        let lost = Lost { oldest: self.oldest_sequence() };
        self.holds.move_to(hold, cursor.frame).ok_or(lost)?;
        self.count_room();
        Ok(())
    }

    /// Ends a hold.
    pub fn release(&mut self, hold: Hold) {
        self.holds.end(hold);
        self.count_room();
    }

    fn check(&self, cursor: &Cursor) -> Result<(), Lost> {
        if cursor.frame < self.first_frame() {
            return Err(Lost { oldest: self.oldest_sequence() });
        }
        Ok(())
    }
}

/// What some frames of a log are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outline {
    /// Sequence of the entry that the first frame belongs to.
    pub first: u64,
    /// The last entry whose last frame is among them; `first - 1` if there is none.
    pub last: u64,
    /// Whether the last frame is the last one of its entry.
    pub ends_entry: bool,
    /// Whether some entry is of several shards.
    pub has_parts: bool,
}

/// The outline of frames that [`Log::read`] gave; `None` of none.
pub fn outline(frames: &[u8]) -> Option<Outline> {
    let mut outline: Option<Outline> = None;
    let mut rest = frames;
    // Bounded: each turn takes a frame.
    while let Ok((header, _)) = FrameHeader::ref_from_prefix(rest) {
        let sequence = header.sequence.get();
        let all = outline.get_or_insert(Outline {
            first: sequence,
            last: sequence - 1,
            ends_entry: false,
            has_parts: false,
        });
        all.ends_entry = header.flags & LAST != 0;
        all.has_parts |= header.parts > 0;
        if all.ends_entry {
            all.last = sequence;
        }
        rest = rest.get(frame_bytes(header.body_bytes.get() as usize)..).unwrap_or_default();
    }
    outline
}

/// Bytes of the frame that the log wrote there.
fn bytes_at(segment: &Segment, offset: usize) -> usize {
    frame_bytes(header_at(segment, offset).body_bytes.get() as usize)
}

fn header_at(segment: &Segment, offset: usize) -> &FrameHeader {
    let bytes = &segment.bytes[offset..offset + FRAME_HEADER_BYTES];
    FrameHeader::ref_from_bytes(bytes).expect("a header's length")
}

/// The entry of a sequence in the segment that it begins in.
fn seek(segment: &Segment, start: EntryStart, sequence: u64) -> Cursor {
    let (mut frame, mut offset) = (start.frame, start.offset);
    // Bounded by the segment: the entry begins in it.
    loop {
        let header = header_at(segment, offset);
        if header.sequence.get() == sequence && header.flags & FIRST != 0 {
            return Cursor { frame, segment: segment.first_frame, offset };
        }
        (frame, offset) = (frame + 1, offset + bytes_at(segment, offset));
    }
}
