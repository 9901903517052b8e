//! Reads of sets that are one step: several members, and scans.

use super::held::Sets;
use super::members::Members;
use crate::elements::{Held, bins};
use crate::store::Store;
use remora_arena::Journal;
use remora_protocol::{Items, Reply};

impl Sets {
    pub(super) fn contains_many<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        members: Items<'_>,
    ) -> Reply<'_> {
        let mut are_there = std::mem::take(&mut self.scratch);
        are_there.clear();
        let is_there = |member| held.is_some_and(|held| Self::has(store, held, member));
        are_there.extend(members.iter().flatten().map(|member| u8::from(is_there(member))));
        self.scratch = are_there;
        Reply { value: Some(&self.scratch), ..Reply::number(self.scratch.len() as i64) }
    }

    /// One step of a scan.
    pub(super) fn scan<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        cursor: u64,
        options: Items<'_>,
    ) -> Reply<'_> {
        self.scratch.clear();
        let from = (cursor, options);
        let next = bins::scan::<Members, J>(store, held, from, &mut self.scratch);
        Reply { value: Some(&self.scratch), ..Reply::number(next as i64) }
    }
}
