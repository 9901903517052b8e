//! A search goes over the keys of its plan, a bounded number in each step.
//!
//! Invariant: the next step goes on right behind the last key, whatever was inserted, removed or divided
//! meanwhile. A document with several keys in the ranges is given at the first one of them.

use super::entry::split;
use super::failure::{Failure, code};
use super::held::{Collection, Index};
use super::places::range_of_word;
use super::plan::{QueryPlan, Ring, Source, Wanted, meets_any};
use crate::store::Store;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use remora_arena::Journal;
use remora_document::{DocumentError, Filter};
use remora_index::btree::{Direction, Range};
use remora_layout::limits::{
    PLACE_STEP_NODES, SEARCH_STEP_BYTES, SEARCH_STEP_DOCUMENTS, SEARCH_STEP_KEYS,
};
use remora_layout::rect::Rect;
use std::collections::VecDeque;
use std::ops::Bound;

/// Keys that are read at a time.
const KEYS_AT_A_TIME: usize = 64;

/// A search that is under way.
pub(super) struct Scan {
    pub plan: QueryPlan,
    /// Of a search by distance: documents that lie elsewhere are not examined.
    pub ring: Option<Ring>,
    /// The key behind which it goes on.
    pub position: Option<Vec<u8>>,
    /// Keys, documents and bytes of these that this step has examined.
    pub keys: u64,
    pub documents: u64,
    bytes: usize,
    /// Keys that are read, and not examined.
    ahead: VecDeque<Vec<u8>>,
    is_read: bool,
}

/// What comes next.
pub(super) enum Next<'s> {
    /// A document that matches, and its encoded `_id`.
    Match(Vec<u8>, &'s RawDocument),
    /// The step has done its part; there may be more.
    Spent,
    /// There is nothing more.
    End,
    /// The filter's expression fails at a document.
    Failed(DocumentError),
}

/// Where a search goes on, from a request.
pub(super) struct Place<'r> {
    pub index: &'r str,
    /// The record that the header of its tree lies in.
    header: i64,
    position: Option<&'r [u8]>,
    is_reverse: bool,
    /// A document has matched before.
    pub has_matched: bool,
}

impl<'r> Place<'r> {
    /// # Errors
    /// It is none of ours.
    pub fn parse(at: RawBsonRef<'r>) -> Result<Self, Failure> {
        let parsed = match at {
            RawBsonRef::Binary(of) => RawDocument::from_bytes(of.bytes).ok(),
            _ => None,
        };
        let place = parsed.and_then(|of| {
            let position = of.get("k").ok()?.map(|of| match of {
                RawBsonRef::Binary(of) => Some(of.bytes),
                _ => None,
            });
            Some(Self {
                index: of.get_str("i").ok()?,
                header: of.get_i64("h").ok()?,
                position: position.map_or(Some(None), |of| of.map(Some))?,
                is_reverse: of.get_bool("r").ok()?,
                has_matched: of.get_bool("m").ok()?,
            })
        });
        place.ok_or_else(|| Failure::new(code::BAD_VALUE, "'at' is no place where a search ended"))
    }
}

impl Place<'_> {
    /// The failure of a search whose index, or whose collection, is gone.
    pub fn killed(&self) -> Failure {
        let text = format!("query plan killed: index '{}' dropped", self.index);
        Failure::new(code::QUERY_PLAN_KILLED, text)
    }
}

/// The record that the header of the tree of a plan lies in: an index of the same name that comes later has
/// another one.
fn header_of(plan: &QueryPlan, collection: &Collection) -> i64 {
    let header = match plan.source {
        Source::Ids => collection.root,
        Source::Index(at) => collection.indexes[at].header,
    };
    (i64::from(header.generation) << 32) | i64::from(header.slot)
}

impl Scan {
    pub fn new(plan: QueryPlan) -> Self {
        Self {
            plan,
            ring: None,
            position: None,
            keys: 0,
            documents: 0,
            bytes: 0,
            ahead: VecDeque::new(),
            is_read: false,
        }
    }

    /// Goes on where another step ended.
    ///
    /// # Errors
    /// The index is gone.
    pub fn resumed<J: Journal>(
        store: &Store<J>,
        collection: &Collection,
        place: &Place<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        let plan = collection.plan_by(store, place.index, wanted);
        let plan = plan.filter(|plan| header_of(plan, collection) == place.header);
        let plan = plan.ok_or_else(|| place.killed())?;
        if plan.is_geo() && place.position.is_some_and(|of| of.len() < size_of::<[u64; 2]>()) {
            return Err(Failure::new(
                code::BAD_VALUE,
                "'at' is no place in an index of geometries",
            ));
        }
        let is_sorted = plan.is_sorted && plan.is_reverse == place.is_reverse;
        let plan = QueryPlan { is_reverse: place.is_reverse, is_sorted, ..plan };
        Ok(Self { position: place.position.map(<[u8]>::to_vec), ..Self::new(plan) })
    }

    /// Where the next step goes on, as bytes that only we read.
    pub fn place(&self, collection: &Collection, has_matched: bool) -> Binary {
        let mut at: Document = doc! {
            "i": self.plan.name(collection), "h": header_of(&self.plan, collection),
            "r": self.plan.is_reverse, "m": has_matched,
        };
        if let Some(position) = &self.position {
            let bytes = position.clone();
            at.insert("k", Binary { subtype: BinarySubtype::Generic, bytes });
        }
        let bytes = super::settings::bytes_of(&at);
        Binary { subtype: BinarySubtype::Generic, bytes }
    }

    /// The next document that matches.
    pub fn next<'s, J: Journal>(
        &mut self,
        store: &'s Store<J>,
        collection: &Collection,
        filter: &Filter,
    ) -> Next<'s> {
        // Bounded: each turn examines a key.
        loop {
            if self.ahead.is_empty() && !self.is_read {
                match self.plan.windows.take() {
                    Some(windows) => {
                        let ring = self.ring.zip(filter.near());
                        let meets = |rect: &Rect| {
                            meets_any(&windows, rect)
                                && ring.is_none_or(|(ring, near)| ring.meets(near, rect))
                        };
                        self.read_windows(store, collection, &meets);
                        self.plan.windows = Some(windows);
                    }
                    None => self.read(store, collection),
                }
            }
            if self.ahead.is_empty() {
                return if self.is_read { Next::End } else { Next::Spent };
            }
            if self.is_spent() {
                return Next::Spent;
            }
            let Some(key) = self.ahead.pop_front() else { return Next::End };
            self.keys += 1;
            let id = match self.plan.source {
                Source::Ids => key.clone(),
                Source::Index(_) => split(&key).1.to_vec(),
            };
            let document = collection.document(store, &id);
            let document = document.and_then(|bytes| RawDocument::from_bytes(bytes).ok());
            let matches = match document {
                None => false,
                Some(document) => {
                    self.documents += 1;
                    self.bytes += document.as_bytes().len();
                    match filter.try_matches(document) {
                        Ok(matches) => matches && self.is_first(collection, (&key, &id), document),
                        Err(error) => return Next::Failed(error),
                    }
                }
            };
            self.position = Some(key);
            if let Some(document) = document.filter(|_| matches) {
                return Next::Match(id, document);
            }
        }
    }

    fn is_spent(&self) -> bool {
        self.keys >= SEARCH_STEP_KEYS as u64
            || self.documents >= SEARCH_STEP_DOCUMENTS as u64
            || self.bytes >= SEARCH_STEP_BYTES
    }

    /// Whether a key is the first one that its document has in the ranges.
    fn is_first(
        &self,
        collection: &Collection,
        (key, id): (&[u8], &[u8]),
        document: &RawDocument,
    ) -> bool {
        let Source::Index(at) = self.plan.source else { return true };
        let index = &collection.indexes[at];
        if index.multikey == 0 {
            return true;
        }
        let mut entries = index.entries(document, id);
        if self.plan.is_reverse {
            entries.reverse();
        }
        let first = entries.iter().find(|entry| self.range_of(entry).is_some());
        first.is_some_and(|first| &first[..] == key)
    }

    /// The range that has a key.
    fn range_of(&self, key: &[u8]) -> Option<usize> {
        let ranges = &self.plan.ranges;
        let at = ranges.partition_point(|range| &range.from[..] <= key).checked_sub(1)?;
        ranges[at].has(key).then_some(at)
    }

    /// Reads some keys of documents in windows: the value on the curve, then the entry.
    fn read_windows<J: Journal>(
        &mut self,
        store: &Store<J>,
        collection: &Collection,
        meets: &dyn Fn(&Rect) -> bool,
    ) {
        let Source::Index(at) = self.plan.source else { return self.is_read = true };
        let Index { tree, places: Some(places), .. } = &collection.indexes[at] else {
            return self.is_read = true;
        };
        let ahead = &mut self.ahead;
        let mut left = KEYS_AT_A_TIME;
        // Further documents of the last word.
        let mut after = None;
        if let Some((value, entry)) = self.position.as_deref().and_then(<[u8]>::split_first_chunk) {
            let Some((word, id)) = entry.split_first_chunk() else { return self.is_read = true };
            after = Some((u64::from_be_bytes(*value), u64::from_be_bytes(*word)));
            if !id.is_empty() {
                left -= range_of_word(word, left, |range| {
                    let range = Range { from: Bound::Excluded(entry), ..range };
                    tree.range(&store.owner, range, |key, _| {
                        ahead.push_back([&value[..], key].concat());
                    })
                });
            }
        }
        if left == 0 {
            return;
        }
        let some = places.tree.in_order(&store.owner, meets, after, (left, PLACE_STEP_NODES));
        for (value, word) in some.objects {
            left -= range_of_word(&word.to_be_bytes(), left, |range| {
                tree.range(&store.owner, range, |key, _| {
                    ahead.push_back([&value.to_be_bytes(), key].concat());
                })
            });
            if left == 0 {
                return;
            }
        }
        match some.goes_on {
            None => self.is_read = true,
            Some((value, word)) if ahead.is_empty() => {
                self.position = Some([value.to_be_bytes(), word.to_be_bytes()].concat());
            }
            Some(_) => {}
        }
    }

    /// Reads some keys behind the position.
    fn read<J: Journal>(&mut self, store: &Store<J>, collection: &Collection) {
        let tree = self.plan.tree(collection);
        let last = self.ahead.back().or(self.position.as_ref()).cloned();
        let ranges = &self.plan.ranges;
        // The first range that is not behind the position.
        let from = match (&last, self.plan.is_reverse) {
            (None, _) => 0,
            (Some(last), false) => {
                ranges.partition_point(|range| !range.to.is_empty() && range.to <= *last)
            }
            (Some(last), true) => ranges.len() - ranges.partition_point(|range| range.from < *last),
        };
        let ahead = &mut self.ahead;
        let mut left = KEYS_AT_A_TIME;
        for step in from..ranges.len() {
            let at = if self.plan.is_reverse { ranges.len() - 1 - step } else { step };
            let range = &ranges[at];
            let (mut low, mut high) = (Bound::Included(&range.from[..]), Bound::Unbounded);
            if !range.to.is_empty() {
                high = Bound::Excluded(&range.to[..]);
            }
            match &last {
                Some(last) if !self.plan.is_reverse && last >= &range.from => {
                    low = Bound::Excluded(last);
                }
                Some(last) if self.plan.is_reverse && range.has(last) => {
                    high = Bound::Excluded(last);
                }
                _ => {}
            }
            let direction = match self.plan.is_reverse {
                true => Direction::Descending,
                false => Direction::Ascending,
            };
            let range = Range { from: low, to: high, direction, limit: left };
            left -= tree.range(&store.owner, range, |key, _| ahead.push_back(key.to_vec()));
            if left == 0 {
                return;
            }
        }
        self.is_read = true;
    }
}
