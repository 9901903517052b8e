//! What a bench of documents needs of a client.

use super::contents::Contents;
use crate::costs::Costs;
use bson::raw::{RawDocument, RawDocumentBuf};

/// The name of the database.
pub const DATABASE: &str = "bench";
/// The name of the collection in it.
pub const COLLECTION: &str = "documents";
/// The name of the index of [`Contents::code`].
pub const INDEX: &str = "code_1";

/// Why the server did not do an operation. The connection goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused(pub String);

/// The answer to one operation. The outer error ends the run.
pub type Answer<T> = anyhow::Result<Result<T, Refused>>;

/// What a change did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that were changed.
    pub modified: u64,
}

/// One connection, and the operations of the bench.
pub trait Store {
    /// Adds these documents.
    fn insert(&mut self, documents: &[RawDocumentBuf]) -> Answer<()>;
    /// Shows the document with this `_id`.
    fn find(&mut self, id: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()>;
    /// Shows a document with this value in the indexed field.
    fn query(&mut self, code: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()>;
    /// Updates the document with this `_id`.
    fn update(&mut self, id: i64, update: &RawDocument) -> Answer<Written>;
    /// Removes the document with this `_id`, and tells how many there were.
    fn delete(&mut self, id: i64) -> Answer<u64>;
    /// The costs so far.
    fn costs(&self) -> Costs;
}

/// The collection as a whole.
pub trait Catalog {
    /// Removes the collection, if it is there.
    fn remove(&mut self) -> anyhow::Result<()>;
    /// Makes the index, and with it the collection.
    fn make_index(&mut self) -> anyhow::Result<()>;
    /// The number of documents.
    fn count(&mut self) -> anyhow::Result<u64>;
}

/// Bytes of the documents of one insertion while loading.
const LOAD_BYTES: usize = 48 << 10;

/// Loads the documents of numbers below `records`.
pub fn load(store: &mut impl Store, contents: &Contents, records: u32) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for number in 0..records {
        let document = contents.make(number, 0);
        bytes += document.as_bytes().len();
        batch.push(document);
        if bytes >= LOAD_BYTES || number + 1 == records {
            store.insert(&batch)?.map_err(|Refused(why)| anyhow::anyhow!("loading: {why}"))?;
            batch.clear();
            bytes = 0;
        }
    }
    Ok(())
}
