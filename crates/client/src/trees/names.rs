//! Ids of the objects that a search has found, where their words are none.
//!
//! What it keeps true: a surrogate says nothing by itself, so that a session
//! that read one asks the tree's owner for its id. An object that has gone meanwhile, or has
//! expired, is left out, as one is that went during the search. No surrogate is
//! given twice, and an object keeps its own as long as it is there: so one that is
//! there all the time is found. The nearest objects are asked for anew then: with
//! one left out there would be too few.

use super::OpenTree;
use crate::api::Counts;
use crate::error::Error;
use crate::session::Session;
use remora_index::rtree::Object;
use remora_layout::limits::MAX_RESOLVE_WORDS;
use remora_layout::object::is_surrogate;
use remora_protocol::Items;
use remora_protocol::tree::{ObjectId, TreeCommand};
use std::collections::BTreeMap;

/// Texts of ids, by the words of the objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    texts: Vec<u8>,
    at: BTreeMap<u64, (usize, usize)>,
}

impl Names {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.at.clear();
    }

    /// The object with this word has an id of this text.
    pub(super) fn insert(&mut self, word: u64, text: &[u8]) {
        let from = self.texts.len();
        self.texts.extend_from_slice(text);
        self.at.insert(word, (from, from + text.len()));
    }

    /// The id of an object that was found.
    pub(super) fn id_of(&self, object: &Object) -> ObjectId<'_> {
        match self.at.get(&object.word) {
            Some(&(from, to)) => ObjectId::of_text(&self.texts[from..to]),
            None => ObjectId::Number(object.word),
        }
    }

    /// Leaves one object of each id: the one that got its word last. Between two
    /// parts of a search an object may have got a surrogate, or may have gone and
    /// come again.
    pub(super) fn drop_doubles(&self, found: &mut Vec<Object>) {
        let mut newest = BTreeMap::new();
        for (&word, &(from, to)) in &self.at {
            // Greater words come later.
            newest.insert(ObjectId::of_text(&self.texts[from..to]), word);
        }
        found.retain(|object| {
            newest.get(&self.id_of(object)).is_none_or(|newest| *newest == object.word)
        });
    }
}

impl Session {
    /// Asks for the ids of those objects in `self.found` whose words are none;
    /// objects that have gone are left out. How many were asked about, and how
    /// many of them have gone.
    pub(super) fn resolve_found(
        &mut self,
        tree: &OpenTree,
        cost: &mut Counts,
    ) -> Result<(usize, usize), Error> {
        self.found_names.clear();
        let surrogates = self.found.iter().map(|object| object.word).filter(|w| is_surrogate(*w));
        let words: Vec<u64> = surrogates.collect();
        if words.is_empty() {
            return Ok((0, 0));
        }
        let mut names = std::mem::take(&mut self.found_names);
        let resolved = self.ask_names(tree, &words, &mut names, cost);
        self.found_names = names;
        resolved?;
        let Self { found, found_names, .. } = self;
        let before = found.len();
        found.retain(|object| {
            !is_surrogate(object.word) || found_names.at.contains_key(&object.word)
        });
        let gone = before - found.len();
        found_names.drop_doubles(found);
        Ok((words.len(), gone))
    }

    fn ask_names(
        &mut self,
        tree: &OpenTree,
        words: &[u64],
        names: &mut Names,
        cost: &mut Counts,
    ) -> Result<(), Error> {
        for words in words.chunks(MAX_RESOLVE_WORDS) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (before, mut list) = (self.totals, Vec::new());
            let resolve = TreeCommand::Resolve { words: &bytes };
            let asked = self.ask_in_parts(tree.shard, &tree.name, resolve, |part| {
                list.extend_from_slice(part);
                true
            });
            let spent = self.totals.since(&before);
            self.totals = before;
            cost.round_trips += spent.round_trips;
            cost.bytes += spent.bytes;
            asked?;
            let items = Items::parse(&list).filter(|items| items.iter().count() == words.len());
            let Some(items) = items else {
                return Err(self.end(Error::Protocol("ids that cannot be")));
            };
            for (word, text) in words.iter().zip(items.iter()) {
                if let Some(text) = text {
                    names.insert(*word, text);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_layout::object::SURROGATE;
    use remora_layout::rect::Rect;

    #[test]
    fn of_each_id_the_newest_word_is_left() {
        let mut names = Names::default();
        names.insert(SURROGATE | 1, b"x");
        names.insert(SURROGATE | 2, b"7");
        names.insert(SURROGATE | 3, b"x");
        let words = [7, 8, SURROGATE | 1, SURROGATE | 2, SURROGATE | 3];
        let object = |word| Object { rect: Rect::default(), word };
        let mut found: Vec<Object> = words.into_iter().map(object).collect();
        names.drop_doubles(&mut found);
        let left: Vec<u64> = found.iter().map(|object| object.word).collect();
        assert_eq!(left, [8, SURROGATE | 2, SURROGATE | 3]);
        let ids: Vec<_> = found.iter().map(|object| names.id_of(object)).collect();
        assert_eq!(ids, [8.into(), 7.into(), b"x".into()]);
        names.clear();
        assert_eq!(names.id_of(&object(8)), ObjectId::Number(8));
    }
}
