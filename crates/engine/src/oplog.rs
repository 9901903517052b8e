//! The operation log of a shard: every change, in order, as the resolved
//! command (no condition left to decide, no relative time). A change of a part
//! of a value is kept as that change: replayed in order it finds the same value
//! to change. What expires is removed by entries of its own, so that a replay's
//! own clock must remove nothing.
//!
//! ```text
//! entry   length 8 | sequence 8 | epoch 8 | encoded command
//! ```
//! For now it is kept in memory only, and only its last bytes; sequence
//! numbers and epochs are there from the first day. An entry that is longer
//! than the log is counted, and neither encoded nor copied.

use crate::command::Command;
use std::collections::VecDeque;
use zerocopy::IntoBytes;

const ENTRY_HEADER_BYTES: usize = 24;

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Grows by one with each entry, from 1.
    pub sequence: u64,
    /// The epoch under which it was written.
    pub epoch: u64,
    /// The encoded command ([`Command::decode`]).
    pub command: Vec<u8>,
}

/// The log of one shard.
pub struct OpLog {
    bytes: VecDeque<u8>,
    limit_bytes: usize,
    epoch: u64,
    last_sequence: u64,
    first_sequence: u64,
}

impl OpLog {
    /// An empty log that keeps its last `limit_bytes`.
    pub fn new(epoch: u64, limit_bytes: usize) -> Self {
        Self {
            bytes: VecDeque::with_capacity(limit_bytes),
            limit_bytes,
            epoch,
            last_sequence: 0,
            first_sequence: 1,
        }
    }

    /// Sequence of the last entry; 0 if there was none.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Appends one change and gives its sequence. Old entries make room.
    pub fn append(&mut self, command: &Command<'_>) -> u64 {
        self.last_sequence += 1;
        let (header, key, value) = command.encode(0);
        let length = size_of_val(&header) + key.len() + value.len();
        let need = ENTRY_HEADER_BYTES + length;
        if need > self.limit_bytes {
            self.bytes.clear();
            self.first_sequence = self.last_sequence + 1;
            return self.last_sequence;
        }
        while self.bytes.len() + need > self.limit_bytes && !self.bytes.is_empty() {
            self.drop_oldest();
        }
        self.bytes.extend((length as u64).to_le_bytes());
        self.bytes.extend(self.last_sequence.to_le_bytes());
        self.bytes.extend(self.epoch.to_le_bytes());
        for part in [header.as_bytes(), key, value] {
            self.bytes.extend(part);
        }
        self.last_sequence
    }

    fn drop_oldest(&mut self) {
        let mut length = [0u8; 8];
        for (to, from) in length.iter_mut().zip(self.bytes.iter()) {
            *to = *from;
        }
        let entry = ENTRY_HEADER_BYTES + u64::from_le_bytes(length) as usize;
        self.bytes.drain(..entry);
        self.first_sequence += 1;
    }

    /// The entries still kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let mut entries = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let number = |from: usize| {
                u64::from_le_bytes(bytes[from..from + 8].try_into().expect("eight bytes"))
            };
            let length = number(at) as usize;
            let from = at + ENTRY_HEADER_BYTES;
            entries.push(Entry {
                sequence: number(at + 8),
                epoch: number(at + 16),
                command: bytes[from..from + length].to_vec(),
            });
            at = from + length;
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_entries_whole() {
        let mut log = OpLog::new(3, 200);
        for index in 0..50u64 {
            let key = vec![b'k'; index as usize % 40];
            assert_eq!(log.append(&Command::Del { key: &key }), index + 1);
            let entries = log.entries();
            let last = entries.last().unwrap();
            assert_eq!((last.sequence, last.epoch), (index + 1, 3));
            assert_eq!(Command::decode(&last.command), Ok((Command::Del { key: &key }, 0)));
            assert!(entries.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
            assert_eq!(entries[0].sequence, log.first_sequence);
        }
        log.append(&Command::Del { key: &[0; 300] });
        assert!(log.entries().is_empty() && log.last_sequence() == 51);
    }
}
