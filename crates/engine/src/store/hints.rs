//! Where the targets of links lie.
//!
//! A hint is the owner's own finding, never what a client says: a client names the link, and the owner
//! looks for the target in its own table, or in another shard's memory if it can
//! ([`crate::Shard::set_find_elsewhere`]).

use super::links::FindElsewhere;
use super::{Now, Store};
use remora_arena::Journal;
use remora_layout::database::Database;

impl<J: Journal> Store<J> {
    /// From now on, where other shards' keys lie is found so.
    pub(crate) fn set_find_elsewhere(&mut self, find: FindElsewhere) {
        self.links.find_elsewhere = Some(find);
    }

    /// Where the record of a key lies, as the hint of a link; 0 if that is not known.
    pub(crate) fn hint_of(&self, database: Database, target: &[u8]) -> u64 {
        let hash = self.hash(database, target);
        match self.found(target, hash) {
            Some(found) => found.slot.to_word(),
            None => self.links.find_elsewhere.as_ref().map_or(0, |find| find(target, hash)),
        }
    }

    /// Whether one more hint may be looked at now, to mend it.
    pub(crate) fn may_mend(&mut self, now: Now) -> bool {
        let may = self.links.may_mend(now);
        self.stats.link_mends_refused += u64::from(!may);
        may
    }

    /// The word that a link's hint is to have, if that is another one than it has.
    pub(crate) fn mended(&mut self, database: Database, target: &[u8], hint: u64) -> Option<u64> {
        let new = Some(self.hint_of(database, target)).filter(|new| *new != 0 && *new != hint);
        self.stats.links_mended += u64::from(new.is_some());
        new
    }
}
