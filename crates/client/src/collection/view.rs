//! A session's view of one collection.

use super::indexes::KnownIndexes;
use crate::error::Error;
use remora_client_core as core;

/// A session's view of one collection.
#[derive(Debug)]
pub(crate) struct CollectionView {
    pub open: core::OpenCollection,
    /// Its indexes, as its owner told them.
    pub indexes: Option<KnownIndexes>,
}

impl CollectionView {
    /// Asks what the indexes are, if that is not known. There are none without a collection.
    pub fn learn_indexes(&mut self, session: &mut core::Session) -> Result<(), Error> {
        let is_known = self.indexes.as_ref().is_some_and(|known| !known.is_old);
        if !is_known {
            let before = self.indexes.take();
            self.indexes = KnownIndexes::ask(session, &self.open, before)?;
        }
        Ok(())
    }
}
