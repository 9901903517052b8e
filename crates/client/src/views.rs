//! What a session keeps of objects that it has used, by their keys.

use crate::error::Error;
use remora_client_core as core;
use std::collections::BTreeMap;

/// Views by keys.
#[derive(Debug)]
pub(crate) struct Views<V>(BTreeMap<Box<[u8]>, V>);

/// What a session knows of where hashes lie, by their keys.
pub(crate) type HashViews = Views<core::OpenHash>;

/// What a session knows of trees, by their keys.
pub(crate) type TreeViews = Views<TreeView>;

/// What a session knows of one tree.
#[derive(Debug, Default)]
pub(crate) struct TreeView {
    /// Where it lies, and its upper nodes, once it was searched.
    pub open: Option<core::OpenTree>,
    pub reading: core::TreeRead,
}

impl<V> Default for Views<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> Views<V> {
    /// The view of this key, which `make` makes if there is none. Where there are `most`, all
    /// of them go first: no order is kept in which they could go, and each is a hint that the
    /// next operations learn anew.
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
