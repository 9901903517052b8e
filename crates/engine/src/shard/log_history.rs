//! The epochs before the present one: where a replica that has followed one of them goes on.
//!
//! A restart carries all entries out again and counts them anew, so an entry is known by its epoch and
//! its sequence. The shard knows of each epoch the last entry that its disk had kept. A replica that
//! becomes a primary knows the last entry of the primary before it that it has applied.
//!
//! Invariant: a replica that has more than was kept is never told to go on, nor to copy: what it has
//! may have been acknowledged, and nobody else has it.

/// An epoch that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochHistory {
    /// Its number.
    pub epoch: u64,
    /// Its last entry that was kept.
    pub last: u64,
    /// It has no entry.
    pub is_empty: bool,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct LogHistory {
    /// The key of the log that had these epochs, if it is another server's: this shard has followed
    /// it, and was promoted. `None`: they are of its own log.
    pub of: Option<u64>,
    /// The oldest first.
    pub epochs: Vec<EpochHistory>,
    /// The sequence of the first entry of this epoch.
    pub first: u64,
    /// Entries may have been acknowledged that the disk has not kept, although they were committed
    /// nowhere: replies did not wait for the disk.
    pub memory_only: bool,
    /// The last entries of the log before this epoch, as they came from the primary of before: for a
    /// replica that has a little less. Empty for a log of this server's own.
    pub tail: Vec<TailPiece>,
}

/// Some frames of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TailPiece {
    /// The sequence of the first frame, or of the entry that goes on with it.
    pub first: u64,
    /// The frames, as they are sent.
    pub frames: Vec<u8>,
}

/// What a replica has of an earlier epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaPosition {
    /// The epoch.
    pub epoch: u64,
    /// The last entry that it has received.
    pub received: u64,
    /// The last one that it knows to be committed.
    pub committed: u64,
    /// The last one that is in its copy; 0 once it knows all of that to be committed. It cannot drop
    /// one of these.
    pub copied: u64,
}

/// Where such a replica goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumption {
    /// With the first entry of this epoch, once it has applied up to this one. What it has received
    /// behind that was never acknowledged.
    From {
        /// The last entry that counts.
        kept: u64,
    },
    /// Behind the entries between its own and this one, which the tail has; then as with
    /// [`Resumption::From`].
    Tail {
        /// The last entry that counts.
        kept: u64,
    },
    /// With a copy: it misses entries that the log in memory has not, or its own copy has some that
    /// were not kept.
    Copy,
    /// Nowhere, before the operator decides: it has entries that the disk of the primary has lost.
    HasMore {
        /// The last entry that was kept.
        kept: u64,
    },
    /// Nowhere, before the operator decides: its epoch is not known any more.
    Unknown,
}

impl LogHistory {
    /// Where a replica goes on.
    pub fn resumption(&self, has: ReplicaPosition) -> Resumption {
        let Some(at) = self.epochs.iter().position(|of| of.epoch == has.epoch) else {
            return Resumption::Unknown;
        };
        let kept = self.epochs[at].last;
        let most = if self.memory_only { has.received } else { has.committed };
        if most.max(has.committed) > kept {
            return Resumption::HasMore { kept };
        }
        if has.copied > kept {
            return Resumption::Copy;
        }
        let is_all = self.epochs[at + 1..].iter().all(|of| of.is_empty);
        match () {
            () if is_all && has.received >= kept => Resumption::From { kept },
            () if is_all && self.tail_behind(has.received).is_some() => Resumption::Tail { kept },
            () => Resumption::Copy,
        }
    }

    /// The tail from the entry behind this one on; `None` if it begins later.
    pub fn tail_behind(&self, received: u64) -> Option<&[TailPiece]> {
        let after = self.tail.partition_point(|piece| piece.first <= received + 1);
        // Pieces of one entry have the same sequence: all of them are wanted.
        let first = self.tail[..after].last()?.first;
        Some(&self.tail[self.tail.partition_point(|piece| piece.first < first)..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lasts: &[(u64, u64, bool)]) -> LogHistory {
        let epoch = |&(epoch, last, is_empty)| EpochHistory { epoch, last, is_empty };
        let epochs = lasts.iter().map(epoch).collect();
        LogHistory { epochs, first: 7, ..LogHistory::default() }
    }

    fn has(epoch: u64, received: u64, committed: u64) -> ReplicaPosition {
        ReplicaPosition { epoch, received, committed, copied: 0 }
    }

    #[test]
    fn a_replica_with_all_that_was_kept_goes_on_and_drops_what_was_not_committed() {
        let history = history(&[(3, 100, false)]);
        assert_eq!(history.resumption(has(3, 100, 100)), Resumption::From { kept: 100 });
        assert_eq!(history.resumption(has(3, 120, 90)), Resumption::From { kept: 100 });
        assert_eq!(history.resumption(has(3, 99, 99)), Resumption::Copy);
    }

    #[test]
    fn a_copy_with_what_was_not_kept_is_made_anew() {
        let history = history(&[(3, 100, false)]);
        let with_copy = |copied| ReplicaPosition { copied, ..has(3, 110, 90) };
        assert_eq!(history.resumption(with_copy(100)), Resumption::From { kept: 100 });
        assert_eq!(history.resumption(with_copy(101)), Resumption::Copy);
    }

    #[test]
    fn a_replica_with_more_than_was_kept_goes_nowhere() {
        let mut history = history(&[(3, 100, false)]);
        assert_eq!(history.resumption(has(3, 120, 101)), Resumption::HasMore { kept: 100 });
        history.memory_only = true;
        assert_eq!(history.resumption(has(3, 101, 90)), Resumption::HasMore { kept: 100 });
        assert_eq!(history.resumption(has(3, 100, 90)), Resumption::From { kept: 100 });
    }

    #[test]
    fn a_replica_that_lacks_only_what_the_tail_has_goes_on_behind_it() {
        let piece = |first| TailPiece { first, frames: Vec::new() };
        let tail = [90, 95, 95, 99].map(piece).into();
        let history = LogHistory { tail, ..history(&[(3, 100, false)]) };
        assert_eq!(history.resumption(has(3, 100, 90)), Resumption::From { kept: 100 });
        for (received, pieces) in [(99, 1), (98, 1), (97, 3), (94, 3), (93, 4), (89, 4)] {
            assert_eq!(history.resumption(has(3, received, 0)), Resumption::Tail { kept: 100 });
            assert_eq!(history.tail_behind(received).unwrap().len(), pieces, "{received}");
        }
        assert_eq!(history.resumption(has(3, 88, 0)), Resumption::Copy);
    }

    #[test]
    fn epochs_in_between_count_if_they_have_entries() {
        let empty = history(&[(3, 100, false), (4, 0, true)]);
        assert_eq!(empty.resumption(has(3, 100, 100)), Resumption::From { kept: 100 });
        let full = history(&[(3, 100, false), (4, 50, false)]);
        assert_eq!(full.resumption(has(3, 100, 100)), Resumption::Copy);
        assert_eq!(full.resumption(has(3, 100, 101)), Resumption::HasMore { kept: 100 });
        assert_eq!(full.resumption(has(4, 50, 50)), Resumption::From { kept: 50 });
        assert_eq!(full.resumption(has(2, 1, 1)), Resumption::Unknown);
    }
}
