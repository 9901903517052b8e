//! Sorting in bounded memory, with a part of the result skipped and the rest limited.
//!
//! What was pushed lies in a balanced tree by the bytes of its sort key, which compare as the values do (see
//! [`crate::encode`]). So each call costs the logarithm of what is kept. With a limit, what cannot be among the
//! first ones is dropped at once.

use crate::error::{DocumentError, MEMORY_LIMIT};
use crate::sort::SortKeys;
use bson::raw::RawDocument;
use remora_layout::limits::MAX_STAGE_BYTES;
use std::collections::BTreeMap;

/// Sorts items by fields of their documents. Items whose keys are equal stay in the order of their arrival.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::{SortKeys, Sorter};
///
/// let mut sorter = Sorter::new(SortKeys::parse(&rawdoc! { "a": -1 })?, 1, Some(2));
/// for a in [3, 1, 4, 1, 5] {
///     let document = rawdoc! { "a": a };
///     sorter.push(&document, a, size_of::<i32>())?;
/// }
/// assert_eq!([sorter.take(), sorter.take(), sorter.take()], [Some(4), Some(3), None]);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sorter<T> {
    keys: SortKeys,
    /// Items to drop from the front.
    skip: u64,
    /// How many items are kept, the skipped ones included.
    most: Option<u64>,
    /// With their bytes.
    items: BTreeMap<Place, (T, usize)>,
    arrivals: u64,
    bytes: usize,
}

/// Where an item stands: its encoded key, then its arrival.
type Place = (Box<[u8]>, u64);

/// Bytes that the tree takes for an item beside its key and itself.
const OVERHEAD: usize = 64;

impl<T> Sorter<T> {
    /// A sorter that leaves out the first `skip` items, and gives `limit` ones at most.
    #[must_use]
    pub fn new(keys: SortKeys, skip: u64, limit: Option<u64>) -> Sorter<T> {
        let most = limit.map(|limit| limit.saturating_add(skip));
        Sorter { keys, skip, most, items: BTreeMap::new(), arrivals: 0, bytes: 0 }
    }

    /// Leaves out more items: behind what it leaves out already.
    pub(crate) fn skip_more(&mut self, skip: u64) {
        self.skip = self.skip.saturating_add(skip);
    }

    /// Gives so many items at most: of those that it does not leave out.
    pub(crate) fn limit_to(&mut self, limit: u64) {
        let most = self.skip.saturating_add(limit);
        self.most = Some(self.most.map_or(most, |known| known.min(most)));
    }

    /// Adds an item, which takes `bytes` bytes, at the place that `document` gives it.
    ///
    /// # Errors
    /// The items take more than [`MAX_STAGE_BYTES`]: code 292.
    pub fn push(
        &mut self,
        document: &RawDocument,
        item: T,
        bytes: usize,
    ) -> Result<(), DocumentError> {
        let mut key = Vec::new();
        self.keys.encode(document, &mut key)?;
        self.push_with(key, item, bytes)
    }

    /// Adds an item with its encoded key.
    fn push_with(&mut self, key: Vec<u8>, item: T, bytes: usize) -> Result<(), DocumentError> {
        let key = (key.into_boxed_slice(), self.arrivals);
        self.arrivals += 1;
        let is_full = self.most.is_some_and(|most| self.items.len() as u64 >= most);
        if is_full && self.items.last_key_value().is_none_or(|(last, _)| *last < key) {
            return Ok(());
        }
        let bytes = bytes.saturating_add(key.0.len() + OVERHEAD);
        self.bytes = self.bytes.saturating_add(bytes);
        self.items.insert(key, (item, bytes));
        if is_full && let Some((_, (_, bytes))) = self.items.pop_last() {
            self.bytes -= bytes;
        }
        if self.bytes > MAX_STAGE_BYTES {
            let text = format!(
                "Sort exceeded memory limit of {MAX_STAGE_BYTES} bytes, but did not opt in to external sorting."
            );
            return Err(DocumentError::new(MEMORY_LIMIT, text));
        }
        Ok(())
    }

    /// Takes the next item. After the first call nothing may be pushed.
    pub fn take(&mut self) -> Option<T> {
        // At most as many as were pushed.
        while self.skip > 0 {
            self.skip -= 1;
            self.items.pop_first()?;
        }
        self.items.pop_first().map(|(_, (item, _))| item)
    }

    /// Bytes of the items that it keeps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Sorter<bson::RawDocumentBuf> {
    /// Adds a document.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub fn push_document(&mut self, document: bson::RawDocumentBuf) -> Result<(), DocumentError> {
        let mut key = Vec::new();
        self.keys.encode(&document, &mut key)?;
        let bytes = document.as_bytes().len();
        self.push_with(key, document, bytes)
    }
}
