//! Members, keys and places of sorted sets are compared with each other.

use super::held::SortedSets;
use super::large::Large;
use super::packing::Scores;
use crate::elements::bins;
use crate::store::Store;
use remora_arena::Journal;
use remora_index::btree::Range;

impl SortedSets {
    /// Compares all sets. Bytes of the slots of their parts and of the records of places.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub(super) fn audit_all<J: Journal>(&self, store: &Store<J>) -> Result<u64, String> {
        let parts = bins::audit::<Scores, J>(store)?;
        for large in self.large.all().filter(|large| store.is_live(large.root)) {
            large.audit(store)?;
        }
        self.large.audit()?;
        let score = |root, member: &[u8]| bins::get::<Scores, J>(store, root, member);
        let places = self.places.audit(store, score, |root, each| {
            self.large.named(root).each_member(store, &mut |score, _| each(score));
        })?;
        Ok(parts + places)
    }
}

impl Large {
    fn each_member<J: Journal>(&self, store: &Store<J>, each: &mut dyn FnMut(f64, &[u8])) {
        self.tree
            .range(&store.owner, Range::ALL, |key, _| self.with_member(store, key, &mut *each));
    }

    /// Compares the keys of the tree with the members.
    fn audit<J: Journal>(&self, store: &Store<J>) -> Result<(), String> {
        self.tree.check(&store.owner).map_err(|broken| broken.to_string())?;
        let (mut wrong, mut zeros, mut found) = (None, 0, 0);
        self.each_member(store, &mut |score, member| {
            found += 1;
            zeros += u64::from(score == 0.0 && score.is_sign_negative());
            if self.score(store, member) != Some(score) {
                let member = member.escape_ascii();
                wrong = Some(format!("{member} has another score in the tree: {score}"));
            }
        });
        let members = store.parts.of(self.root.slot).bins().members();
        match wrong {
            Some(wrong) => Err(wrong),
            None if (found, zeros) == (members, self.negative_zeros) => Ok(()),
            None => Err(format!("{found} keys, {zeros} of -0, and {members} members")),
        }
    }
}
