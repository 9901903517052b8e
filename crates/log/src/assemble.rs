//! Entries, made of frames.
//!
//! Invariant: entries come out in the order of their sequences, each once, without gaps, and only
//! whole: an entry without its last piece does not exist. The bytes kept for an incomplete entry
//! are bounded.

use crate::frame::Frame;
use crate::parts::Parts;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Grows by one with each entry, from 1.
    pub sequence: u64,
    /// The epoch under which it was written.
    pub epoch: u64,
    /// The entries of other shards that belong to it, its own among them; none
    /// for an entry of one shard.
    pub parts: Parts<'a>,
    /// The operation's bytes.
    pub operation: &'a [u8],
}

/// One entry with its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedEntry {
    /// As [`Entry::sequence`].
    pub sequence: u64,
    /// As [`Entry::epoch`].
    pub epoch: u64,
    parts: u8,
    bytes: Vec<u8>,
}

impl OwnedEntry {
    /// The entry.
    pub fn entry(&self) -> Entry<'_> {
        let (parts, operation) =
            Parts::split(&self.bytes, self.parts).expect("it was an entry's bytes");
        Entry { sequence: self.sequence, epoch: self.epoch, parts, operation }
    }

    /// The operation's bytes.
    pub fn operation(&self) -> &[u8] {
        self.entry().operation
    }

    /// Bytes of memory that it takes: an entry with an empty operation takes some, too.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

impl Entry<'_> {
    /// A copy that keeps its bytes.
    pub fn to_owned(&self) -> OwnedEntry {
        use zerocopy::IntoBytes;
        let bytes = [self.parts.0.as_bytes(), self.operation].concat();
        let (sequence, epoch) = (self.sequence, self.epoch);
        OwnedEntry { sequence, epoch, parts: self.parts.0.len() as u8, bytes }
    }
}

/// Why a frame does not continue the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssembleError {
    /// Entries or pieces are missing, or come twice.
    #[error("the log goes on with sequence {sequence}, not with {expected}")]
    Gap {
        /// The sequence that was due.
        expected: u64,
        /// The one that came.
        sequence: u64,
    },
    /// A piece that is not the next one of the entry that is under way.
    #[error("an entry of the log goes on with piece {piece}, not with {expected}")]
    Piece {
        /// The piece that was due.
        expected: u16,
        /// The one that came.
        piece: u16,
    },
    /// The epoch went back, or changed within an entry.
    #[error("the log goes on with epoch {epoch} after {before}")]
    Epoch {
        /// The last frame's epoch.
        before: u64,
        /// This one's.
        epoch: u64,
    },
    /// The entry takes more bytes than are kept for one.
    #[error("an entry of the log has more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The entry has no room for the parts that it names.
    #[error("an entry of the log names parts that it does not have")]
    Parts,
}

/// Makes entries from the frames of one log. An error ends it: later frames do not continue earlier
/// ones.
#[derive(Debug)]
pub struct Assembler {
    /// The sequence that is due, or under way.
    next: u64,
    epoch: u64,
    limit_bytes: usize,
    /// The entry under way: its next piece, and its parts; piece 0 for none.
    piece: u16,
    parts: u8,
    bytes: Vec<u8>,
}

impl Assembler {
    /// For the frames from sequence `next` on, of entries of at most
    /// `limit_bytes`.
    pub fn new(next: u64, limit_bytes: usize) -> Self {
        Self { next, epoch: 0, limit_bytes, piece: 0, parts: 0, bytes: Vec::new() }
    }

    /// The sequence of the entry that is due, or under way.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Takes the next frame; returns the entry if the frame is its last piece.
    ///
    /// # Errors
    /// It does not follow on the last one, or the entry is too large.
    pub fn take<'a>(&'a mut self, frame: Frame<'a>) -> Result<Option<Entry<'a>>, AssembleError> {
        let Frame { sequence, epoch, piece, .. } = frame;
        if sequence != self.next {
            return Err(AssembleError::Gap { expected: self.next, sequence });
        }
        if piece != self.piece {
            return Err(AssembleError::Piece { expected: self.piece, piece });
        }
        if epoch < self.epoch || (piece > 0 && epoch != self.epoch) {
            return Err(AssembleError::Epoch { before: self.epoch, epoch });
        }
        if piece > 0 && frame.parts != self.parts {
            return Err(AssembleError::Parts);
        }
        let too_large = AssembleError::TooLarge { limit: self.limit_bytes };
        if piece == 0 && !self.bytes.is_empty() {
            // The size of the last entry; large ones are rare.
            self.bytes = Vec::new();
        }
        if self.bytes.len() + frame.body.len() > self.limit_bytes {
            return Err(too_large);
        }
        (self.epoch, self.parts) = (epoch, frame.parts);
        if !frame.is_last {
            // More pieces than a header counts would be more bytes than any limit.
            self.piece = piece.checked_add(1).ok_or(too_large)?;
            self.bytes.extend_from_slice(frame.body);
            return Ok(None);
        }
        let whole = match std::mem::take(&mut self.piece) {
            0 => frame.body,
            _ => {
                self.bytes.extend_from_slice(frame.body);
                &self.bytes
            }
        };
        let (parts, operation) = Parts::split(whole, frame.parts).ok_or(AssembleError::Parts)?;
        // One that is refused has not come.
        self.next += 1;
        Ok(Some(Entry { sequence, epoch, parts, operation }))
    }
}
