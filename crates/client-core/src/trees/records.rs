//! Known locations of the records of a tree's objects.

use remora_layout::limits::MAX_KEPT_RECORDS;
use remora_layout::pointer::RemotePointer;
use std::collections::BTreeMap;

/// At most [`MAX_KEPT_RECORDS`] of them, by the objects' ids.
#[derive(Debug, Default)]
pub(super) struct Records(BTreeMap<u64, RemotePointer>);

impl Records {
    /// Where an object's record lies.
    pub fn get(&self, id: u64) -> Option<RemotePointer> {
        self.0.get(&id).copied()
    }

    /// Forgets one.
    pub fn forget(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// Keeps one. If there are too many, it discards all others: it keeps no order for eviction,
    /// and a session that searches so widely is better off asking.
    pub fn keep(&mut self, id: u64, pointer: RemotePointer) {
        if self.0.len() == MAX_KEPT_RECORDS && !self.0.contains_key(&id) {
            self.0.clear();
        }
        self.0.insert(id, pointer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_begins_anew() {
        let most = MAX_KEPT_RECORDS as u64;
        let mut records = Records::default();
        let pointer = |generation| RemotePointer { generation, ..RemotePointer::NONE };
        (0..most).for_each(|id| records.keep(id, pointer(1)));
        // One that is known takes no more room.
        records.keep(0, pointer(2));
        assert_eq!(records.get(0), Some(pointer(2)));
        assert_eq!(records.get(most - 1), Some(pointer(1)));
        records.forget(5);
        assert_eq!(records.get(5), None);
        records.keep(5, pointer(3));
        records.keep(most, pointer(4));
        assert_eq!((records.0.len(), records.get(most)), (1, Some(pointer(4))));
    }
}
