//! How far the disk of a replica is with the logs of its primary: the sequences of the shard's own
//! log, and the entries of the primary that are in it up to there.
//!
//! Invariant: it is bounded. If the disk is far behind, several places become one.

use remora_layout::limits::DURABLE_PLACES;
use std::collections::VecDeque;

/// See the module's text.
#[derive(Default)]
pub struct DurablePlaces(VecDeque<(u64, usize, u64)>);

impl DurablePlaces {
    /// The shard's log has the entries of a log of the primary up to a sequence, once it is on the
    /// disk up to `own`.
    pub fn note(&mut self, own: u64, (log, sequence): (usize, u64)) {
        let is_full = self.0.len() >= DURABLE_PLACES;
        if let Some(place) = self.0.back_mut()
            && place.1 == log
            && (is_full || place.0 == own)
        {
            (place.0, place.2) = (own, sequence);
            return;
        }
        if is_full {
            // The disk is told of later, and is not further behind by that.
            let found = self.0.iter().rposition(|place| place.1 == log);
            found.map(|at| self.0.remove(at));
        }
        self.0.push_back((own, log, sequence));
    }

    /// The entries of a log have other numbers from now on.
    pub fn forget(&mut self, log: usize) {
        self.0.retain(|place| place.1 != log);
    }

    /// The shard's log is on the disk up to this sequence. Gives the last entry of each log of the
    /// primary that is so.
    pub fn take(&mut self, synced: u64, mut each: impl FnMut(usize, u64)) {
        while let Some(&(_, log, sequence)) = self.0.front().filter(|place| place.0 <= synced) {
            self.0.pop_front();
            each(log, sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(places: &mut DurablePlaces, synced: u64) -> Vec<(usize, u64)> {
        let mut taken = Vec::new();
        places.take(synced, |log, sequence| taken.push((log, sequence)));
        taken
    }

    #[test]
    fn an_entry_counts_once_the_own_log_is_so_far() {
        let mut places = DurablePlaces::default();
        places.note(10, (0, 100));
        places.note(12, (1, 50));
        places.note(15, (0, 105));
        assert_eq!(taken(&mut places, 9), []);
        assert_eq!(taken(&mut places, 12), [(0, 100), (1, 50)]);
        assert_eq!(taken(&mut places, 15), [(0, 105)]);
    }

    #[test]
    fn places_in_other_numbers_are_forgotten() {
        let mut places = DurablePlaces::default();
        places.note(10, (0, 100));
        places.note(11, (1, 50));
        places.forget(0);
        places.note(12, (0, 3));
        assert_eq!(taken(&mut places, 12), [(1, 50), (0, 3)]);
    }

    #[test]
    fn they_are_bounded_and_say_less_if_the_disk_is_far_behind() {
        let mut places = DurablePlaces::default();
        for at in 1..=3 * DURABLE_PLACES as u64 {
            places.note(at, ((at % 2) as usize, 1000 + at));
        }
        assert!(places.0.len() <= DURABLE_PLACES);
        for synced in [1, DURABLE_PLACES as u64, 3 * DURABLE_PLACES as u64] {
            let told = taken(&mut places, synced);
            assert!(told.iter().all(|&(_, sequence)| sequence <= 1000 + synced));
        }
        assert!(places.0.is_empty());
    }
}
