//! The dumps of lists that are under way, and how changes move them.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A dump that is under way.
#[derive(Default)]
pub(super) struct Dumping {
    /// Elements of the list that it has given.
    pub given: u64,
    /// Elements that were added at the end since the last piece: the next one has so many more, so
    /// that the dump ends.
    pub added: u64,
}

/// The dumps of one list that are under way.
#[derive(Default)]
pub(super) struct Dumps(RefCell<Vec<Weak<Mutex<Dumping>>>>);

/// A change of a list, as a dump has to know of it.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// So many elements were added before the first one.
    PushedFront(u64),
    /// So many were added behind the last one.
    PushedBack(u64),
    /// So many were removed from the front, and all behind so many others.
    Kept { from: u64, keep: u64 },
    /// One, this entry, was added before the element of this index.
    Inserted(u64, &'a [u8]),
    /// The element of this index was replaced by this entry.
    Replaced(u64, &'a [u8]),
    /// Those of these indexes were removed.
    Removed(&'a [u32]),
}

pub(super) fn lock(dumping: &Mutex<Dumping>) -> MutexGuard<'_, Dumping> {
    dumping.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dumping {
    fn note(&mut self, change: Change<'_>) {
        match change {
            Change::PushedFront(count) => self.given += count,
            Change::PushedBack(count) => self.added += count,
            Change::Kept { from, keep } => self.given = self.given.saturating_sub(from).min(keep),
            Change::Inserted(index, _) if index < self.given => self.given += 1,
            Change::Inserted(..) => self.added += 1,
            Change::Replaced(..) => {}
            Change::Removed(indexes) => {
                self.given -= indexes.partition_point(|&of| u64::from(of) < self.given) as u64;
            }
        }
    }
}

impl Dumps {
    /// The list has changed.
    pub fn note(&self, change: Change<'_>) {
        let mut all = self.0.borrow_mut();
        if !all.is_empty() {
            all.retain(|dumping| {
                let Some(dumping) = dumping.upgrade() else { return false };
                lock(&dumping).note(change);
                true
            });
        }
    }

    /// A dump begins.
    pub fn begin(&self) -> Arc<Mutex<Dumping>> {
        let dumping = Arc::default();
        let mut all = self.0.borrow_mut();
        all.retain(|of| of.strong_count() > 0);
        all.push(Arc::downgrade(&dumping));
        dumping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_that_have_ended_leave_nothing() {
        let dumps = Dumps::default();
        let first = dumps.begin();
        (0..100).for_each(|_| drop(dumps.begin()));
        dumps.note(Change::PushedFront(3));
        assert_eq!(lock(&first).given, 3);
        (0..100).for_each(|_| drop(dumps.begin()));
        assert!(dumps.0.borrow().len() <= 2);
    }
}
