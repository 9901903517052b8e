//! The part that a shard has in a change of two shards, while it is made.
//!
//! Invariant: exactly one entry of the log gets the parts. What makes room for it, the removal of
//! other keys, is logged before it, as entries of this shard alone. The shard whose next sequence the
//! other one has named already logs nothing else.

use remora_log::{Log, Part};
use remora_protocol::Command;

/// See the module's text.
pub(crate) struct JointPart {
    /// The other shard's part; `None` if it has none.
    other: Option<Part>,
    /// This shard's sequence, where the other shard has named it.
    named: Option<u64>,
    /// The sequence of the entry; 0 until it is logged.
    sequence: u64,
}

impl JointPart {
    /// The first part that is logged: the next change that is no removal of a key.
    pub fn first(other: Part) -> Self {
        Self { other: Some(other), named: None, sequence: 0 }
    }

    /// The second part, the very next entry of the log, which has this sequence.
    pub fn second(other: Option<Part>, named: u64) -> Self {
        Self { other, named: Some(named), sequence: 0 }
    }

    /// Whether the next entry of the log is named by another shard's already.
    pub fn is_bound(&self) -> bool {
        self.named.is_some()
    }

    /// The sequence of the entry; `None` if nothing was changed.
    pub fn sequence(&self) -> Option<u64> {
        Some(self.sequence).filter(|&sequence| sequence != 0)
    }

    /// The parts that the entry of a command names, if it is the one.
    pub fn parts_of(
        &mut self,
        command: &Command<'_>,
        (log, shard): (&Log, u32),
    ) -> Option<[Part; 2]> {
        let makes_room = self.named.is_none() && matches!(command, Command::Del { .. });
        if makes_room || self.sequence != 0 {
            return None;
        }
        self.sequence = log.last_sequence() + 1;
        let is_named = self.named.is_none_or(|named| named == self.sequence);
        assert!(is_named, "nothing else is logged once the other shard has named the sequence");
        self.other.map(|other| [other, Part::new(shard, self.sequence)])
    }
}
