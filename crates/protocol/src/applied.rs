//! What a replica with a disk writes into its own log: the entries that it has applied, each with its
//! place in the log of the primary (docs/decisions/0060).
//!
//! ```text
//!  0         1      2   3   4     6      8     16         24      32
//! +---------+------+---+---+-----+------+-----+----------+-------+-----------+
//! | APPLIED | step | 0 | 0 | log | logs | key | sequence | epoch | operation |
//! +---------+------+---+---+-----+------+-----+----------+-------+-----------+
//! ```
//! A request has its type at byte 3, and of type 0 there is no operation with this number: no client
//! can send one.

use remora_layout::limits::MAX_SHARDS;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// In place of an [`crate::message::Op`], in logs and snapshots of a replica only.
pub const APPLIED: u8 = 205;

/// An entry of the log of a primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogPosition {
    /// The number of the log: that of the primary's shard.
    pub log: u16,
    /// How many logs the primary has.
    pub logs: u16,
    /// The key of the log.
    pub key: u64,
    /// The entry's sequence.
    pub sequence: u64,
    /// The entry's epoch.
    pub epoch: u64,
}

/// What the shard of a replica has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u8)]
pub enum AppliedStep {
    /// A copy begins: it has removed its keys of that log, by the operation.
    CopyBegins = 1,
    /// It has carried out an operation of the copy.
    Copy = 2,
    /// It has applied the entry at the position.
    Entry = 3,
    /// It has the state of the log at the position: a copy is complete, or the entries since the last
    /// position were about other shards' keys.
    At = 4,
    /// It follows no log any more: what comes next are changes of its own.
    Own = 5,
    /// It has removed all that it had, by the operation, to copy the logs of a primary, of which the
    /// position names the first.
    Clear = 6,
}

/// An entry, or an operation of a snapshot, of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedEntry<'a> {
    /// What the shard has done.
    pub step: AppliedStep,
    /// Where it is by that in the log of its primary; zeros if it follows none.
    pub position: LogPosition,
    /// The encoded command that was carried out; of [`AppliedStep::At`] and [`AppliedStep::Own`] there
    /// is none.
    pub operation: &'a [u8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    op: u8,
    step: u8,
    zero: [u8; 2],
    log: U16,
    logs: U16,
    key: U64,
    sequence: U64,
    epoch: U64,
}

/// Bytes before the operation.
pub const APPLIED_HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(APPLIED_HEADER_BYTES == 32);

/// Bytes are no applied entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an entry of a replica makes no sense")]
pub struct BadApplied;

impl AppliedEntry<'_> {
    /// Whether an operation of a log is one of a replica.
    #[inline]
    pub fn is(operation: &[u8]) -> bool {
        matches!(operation, [APPLIED, _, _, 0, ..])
    }

    /// What stands before the operation.
    pub fn header(step: AppliedStep, position: &LogPosition) -> [u8; APPLIED_HEADER_BYTES] {
        let LogPosition { log, logs, key, sequence, epoch } = *position;
        let header = Header {
            op: APPLIED,
            step: step as u8,
            zero: [0; 2],
            log: log.into(),
            logs: logs.into(),
            key: key.into(),
            sequence: sequence.into(),
            epoch: epoch.into(),
        };
        zerocopy::transmute!(header)
    }
}

impl<'a> AppliedEntry<'a> {
    /// The entry that some bytes are, which may be anything. Its operation is not looked at.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, BadApplied> {
        let (header, operation) = Header::read_from_prefix(bytes).map_err(|_| BadApplied)?;
        let step = AppliedStep::try_read_from_bytes(&[header.step]).map_err(|_| BadApplied)?;
        let position = LogPosition {
            log: header.log.get(),
            logs: header.logs.get(),
            key: header.key.get(),
            sequence: header.sequence.get(),
            epoch: header.epoch.get(),
        };
        let has_operation = !matches!(step, AppliedStep::At | AppliedStep::Own);
        let is_placed = match step {
            AppliedStep::Own => position == LogPosition::default(),
            _ => position.log < position.logs && usize::from(position.logs) <= MAX_SHARDS,
        };
        let is_whole = header.op == APPLIED
            && header.zero == [0; 2]
            && is_placed
            && has_operation != operation.is_empty();
        if is_whole { Ok(Self { step, position, operation }) } else { Err(BadApplied) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITION: LogPosition =
        LogPosition { log: 1, logs: 3, key: 0x1234, sequence: 77, epoch: 4 };

    #[test]
    fn what_is_written_is_read_again() {
        use AppliedStep::{At, Clear, Copy, CopyBegins, Entry, Own};
        for (step, operation) in [
            (CopyBegins, &b"flush"[..]),
            (Copy, b"op"),
            (Entry, b"other"),
            (At, b""),
            (Own, b""),
            (Clear, b"flush"),
        ] {
            let position = if step == Own { LogPosition::default() } else { POSITION };
            let bytes = [&AppliedEntry::header(step, &position)[..], operation].concat();
            assert!(AppliedEntry::is(&bytes));
            assert_eq!(
                AppliedEntry::decode(&bytes),
                Ok(AppliedEntry { step, position, operation })
            );
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = AppliedEntry::header(AppliedStep::At, &POSITION);
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            AppliedEntry::decode(&bytes).is_err()
        };
        assert!(with(0, 2) && with(1, 0) && with(1, 7) && with(2, 1) && with(3, 1) && with(4, 3));
        assert!(with(1, AppliedStep::Entry as u8), "without an operation");
        assert!(with(1, AppliedStep::Own as u8), "with a position");
        assert!(AppliedEntry::decode(&good[..31]).is_err());
        assert!(AppliedEntry::decode(&[&good[..], b"more"].concat()).is_err());
    }
}
