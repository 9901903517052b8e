//! What the disk of a server says of the last epoch that the server has led: whether it has every
//! change that was acknowledged until the end of that epoch's primary.
//!
//! ```text
//!   promoted -> all that was received is applied, it ends at L -> synced up to L -> LedEpoch is written
//!                                                                 |
//!                     each acknowledgement waits for the disk ----'---------------------> the process ends
//! ```
//! With durability `fsync` a primary acknowledges a change once its own disk has confirmed it. A replica
//! acknowledges with its memory, so its disk may lack the last changes. A new primary has all that was
//! acknowledged before it, first in memory only. So the disk of the *recorded primary* has everything,
//! once it has confirmed what that primary began with; no other disk has to.
//!
//! Invariant: a [`LedEpoch`] with `is_durable` is written only when the disk has confirmed all entries with
//! which its process began the epoch, by a process whose acknowledgements wait for the disk.

/// What a server's directory says of the last epoch that a process of the server has led.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedEpoch {
    /// The incarnation of that process.
    pub incarnation: u64,
    /// The epoch.
    pub epoch: u64,
    /// The directory has each change that was acknowledged in this epoch, or before it. `false`: the
    /// acknowledgements of that process did not wait until the disk had confirmed a change.
    pub is_durable: bool,
}

/// Decides when a primary may write its [`LedEpoch`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedEpochRecorder {
    led: LedEpoch,
    /// By shard, the last entry with which it began.
    ends: Vec<u64>,
}

impl LedEpochRecorder {
    /// A process leads an epoch, and its shards have applied all that was received, up to these
    /// sequences of their own logs.
    pub fn new(led: LedEpoch, ends: Vec<u64>) -> Self {
        Self { led, ends }
    }

    /// What may be written, now that the disk has confirmed the shards' logs up to these sequences.
    pub fn due(&self, synced: &[u64]) -> Option<LedEpoch> {
        let has_all = synced.len() == self.ends.len()
            && synced.iter().zip(&self.ends).all(|(synced, end)| synced >= end);
        (has_all || !self.led.is_durable).then_some(self.led)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_until_the_disk_has_all_with_which_the_epoch_began() {
        let led = LedEpoch { incarnation: 7, epoch: 3, is_durable: true };
        let recorder = LedEpochRecorder::new(led, vec![10, 0]);
        for synced in [&[9, 5][..], &[10], &[]] {
            assert_eq!(recorder.due(synced), None, "{synced:?}");
        }
        assert_eq!(recorder.due(&[10, 0]), Some(led));
    }

    #[test]
    fn that_nothing_is_promised_is_said_at_once() {
        let led = LedEpoch { incarnation: 7, epoch: 3, is_durable: false };
        assert_eq!(LedEpochRecorder::new(led, vec![10]).due(&[0]), Some(led));
    }
}
