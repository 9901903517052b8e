//! Ids of the found objects whose words are surrogates.

use remora_index::rtree::Object;
use remora_protocol::tree::ObjectId;
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

    /// Whether the text of this word's id is known.
    pub(super) fn knows(&self, word: u64) -> bool {
        self.at.contains_key(&word)
    }

    /// The id of an object that was found.
    pub(super) fn id_of(&self, object: &Object) -> ObjectId<'_> {
        match self.at.get(&object.word) {
            Some(&(from, to)) => ObjectId::of_text(&self.texts[from..to]),
            None => ObjectId::Number(object.word),
        }
    }

    /// Keeps one object of each id: the one that got its word last. Between two parts of a search
    /// an object may have got a surrogate, or may have been removed and added again.
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
