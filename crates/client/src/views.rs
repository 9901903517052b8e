//! A session's views of objects that it has used, by their keys.

use crate::collection::view::CollectionView;
use crate::error::Error;
use remora_client_core as core;
use std::collections::BTreeMap;

/// Views by keys.
#[derive(Debug)]
pub(crate) struct Views<V>(BTreeMap<Box<[u8]>, V>);

/// A session's views of hashes, by their keys.
pub(crate) type HashViews = Views<core::OpenHash>;

/// A session's views of collections, by their keys.
pub(crate) type CollectionViews = Views<CollectionView>;

/// A session's views of lists, by their keys.
pub(crate) type ListViews = Views<core::OpenList>;

/// A session's views of sets, by their keys.
pub(crate) type SetViews = Views<core::OpenSet>;

/// A session's views of sorted sets, by their keys.
pub(crate) type SortedViews = Views<core::OpenSorted>;

/// A session's views of ordered trees, by their keys.
pub(crate) type OrderedViews = Views<core::OpenOrdered>;

/// A session's views of trees, by their keys.
pub(crate) type TreeViews = Views<TreeView>;

/// A session's view of one tree.
#[derive(Debug, Default)]
pub(crate) struct TreeView {
    /// Its location, and its upper nodes, after the first search.
    pub open: Option<core::OpenTree>,
    pub reading: core::TreeRead,
}

impl<V> Default for Views<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> Views<V> {
    /// All views.
    pub fn all(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    /// Number of views.
    pub fn views(&self) -> usize {
        self.0.len()
    }

    /// The view of this key; `make` creates it if there is none. If there are `most` views, it
    /// first drops all of them: it keeps no order for eviction, and each view is a hint that the
    /// next operations learn again.
    pub fn get(
        &mut self,
        key: &[u8],
        most: usize,
        make: impl FnOnce() -> Result<V, core::Error>,
    ) -> Result<&mut V, Error> {
        if !self.0.contains_key(key) {
            if self.0.len() >= most {
                self.0.clear();
            }
            self.0.insert(key.into(), make()?);
        }
        Ok(self.0.get_mut(key).expect("it was just looked for"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_made_once_and_all_go_where_there_are_too_many() {
        let mut views = Views::default();
        let mut made = 0;
        let mut get = |key: &[u8]| {
            let view = views.get(key, 2, || {
                made += 1;
                Ok(made)
            });
            *view.expect("it is made")
        };
        assert_eq!([get(b"a"), get(b"b"), get(b"a")], [1, 2, 1]);
        assert_eq!([get(b"c"), get(b"a"), get(b"c")], [3, 4, 3]);
        assert_eq!(views.get(b"", 2, || Err(core::Error::KeyTooLong)), Err(Error::KeyTooLong));
    }
}
