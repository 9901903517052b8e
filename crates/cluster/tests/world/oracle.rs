//! What is true of one group, whatever its members believe.
//!
//! A group keeps one register: its value is the last entry of the log that readers may see, and each
//! entry names its writer's epoch. So a read is stale if its sequence is below that of a write that was
//! acknowledged, or of a read that was answered, before the read began.

use remora_cluster::topology::Instance;
use std::collections::BTreeMap;

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The epoch of the primary that appended it.
    pub epoch: u64,
    /// Unlike that of any other entry.
    pub value: u64,
}

/// See the module's text.
#[derive(Default)]
pub struct Oracle {
    /// What was acknowledged or seen, by sequence from 1.
    history: Vec<Entry>,
    /// Who has acknowledged in an epoch.
    acknowledged_by: BTreeMap<u64, Instance>,
    pub acknowledged: u64,
    pub reads: u64,
    pub epochs: u64,
    /// The longest time between two acknowledgements since this was set to 0, ms.
    pub pause_ms: u64,
    acknowledged_ms: u64,
}

impl Oracle {
    /// The last sequence that was acknowledged or seen: a read that begins now must not be behind.
    pub fn floor(&self) -> u64 {
        self.history.len() as u64
    }

    /// A primary acknowledges the entries of its log up to this one.
    pub fn acknowledge(&mut self, (by, epoch): (Instance, u64), log: &[Entry], now_ms: u64) {
        self.pause_ms = self.pause_ms.max(now_ms - self.acknowledged_ms);
        self.acknowledged_ms = now_ms;
        let of_epoch = *self.acknowledged_by.entry(epoch).or_insert(by);
        assert_eq!(of_epoch, by, "two primaries acknowledge in epoch {epoch}");
        let newest = self.acknowledged_by.last_key_value().map_or(0, |(epoch, _)| *epoch);
        let before = self.history.len();
        assert!(
            newest == epoch || log.len() <= before,
            "{by} acknowledges {} of epoch {epoch}, and epoch {newest} has acknowledged {before}",
            log.len()
        );
        self.acknowledged += log.len().saturating_sub(before) as u64;
        self.see(by, log);
    }

    /// A read that began with this floor is answered as fresh by the last of these entries.
    pub fn read(&mut self, by: Instance, floor: u64, log: &[Entry]) {
        self.reads += 1;
        assert!(
            log.len() as u64 >= floor,
            "{by} serves a stale read: {} of {floor} acknowledged",
            log.len()
        );
        self.see(by, log);
    }

    /// A primary begins to serve with this log.
    pub fn begin(&mut self, by: Instance, epoch: u64, log: &[Entry]) {
        self.epochs += 1;
        let has_all = log.len() >= self.history.len();
        assert!(
            has_all,
            "{by} begins epoch {epoch} with {} entries: of {} acknowledged ones some are lost",
            log.len(),
            self.history.len()
        );
        self.compare(by, log);
    }

    fn see(&mut self, by: Instance, log: &[Entry]) {
        self.compare(by, log);
        if log.len() > self.history.len() {
            self.history.extend_from_slice(&log[self.history.len()..]);
        }
    }

    /// Only the end: what is before was compared when it was added.
    fn compare(&self, by: Instance, log: &[Entry]) {
        let shared = log.len().min(self.history.len());
        let from = shared.saturating_sub(64);
        assert_eq!(
            log[from..shared],
            self.history[from..shared],
            "{by} has other entries than were acknowledged: some are lost"
        );
    }
}
