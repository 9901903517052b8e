//! The entries of a shard's log, as the runs that a group commit writes.
//!
//! Invariant: entries are taken in order, each once; the shard's log keeps what was not taken.

use remora_arena::Journal;
use remora_engine::Shard;
use remora_log::{Cursor, Hold, Lost, outline};
use remora_storage::Run;

/// See the module's text.
pub struct RunSource {
    shard: u16,
    cursor: Cursor,
    hold: Option<Hold>,
    /// The last sequence of which something was taken, and whether that is all of it.
    taken: (u64, bool),
}

impl RunSource {
    /// For a shard with this number, whose entries before this sequence are all on the disk.
    pub fn new<J: Journal>(shard: &mut Shard<J>, (number, first): (usize, u64)) -> Self {
        let cursor = shard.log().cursor(first).expect("it was logged just now, or is the next");
        let hold = shard.hold_log(&cursor).ok();
        Self { shard: number as u16, cursor, hold, taken: (first - 1, true) }
    }

    /// Whether everything was taken.
    #[inline]
    pub fn has_taken_all<J: Journal>(&self, shard: &Shard<J>) -> bool {
        self.taken == (shard.last_sequence(), true)
    }

    /// Takes the next frames, at most so many bytes or one; `frames` is an empty buffer for them.
    /// `None` if there are none.
    ///
    /// # Errors
    /// The log has dropped entries that were not taken.
    pub fn next_run<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        most_bytes: usize,
        mut frames: Vec<u8>,
    ) -> Result<Option<Run>, Lost> {
        shard.log().read(&mut self.cursor, most_bytes, &mut frames)?;
        if let Some(hold) = &self.hold {
            shard.move_hold(hold, &self.cursor)?;
        }
        let Some(of) = outline(&frames) else { return Ok(None) };
        self.taken = (of.last.max(of.first), of.ends_entry);
        Ok(Some(Run {
            shard: self.shard,
            first: of.first,
            last: of.last,
            ends_entry: of.ends_entry,
            has_parts: of.has_parts,
            used_bytes: shard.used_bytes(),
            frames,
        }))
    }
}
